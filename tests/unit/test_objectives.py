"""Batches for each objective: what the loss reads, rows in order, nothing written to, and training on them."""

from functools import partial

import pytest
import torch

from course_lib import corrupt, heads, losses, objectives
from course_lib.config import EmbedConfig, StackConfig, T5Buckets
from course_lib.corrupt import IGNORE, generator
from course_lib.data.batches import pad
from course_lib.errors import CourseError
from course_lib.models.t5 import t5
from course_lib.seq2seq import EncoderDecoder, Seq2SeqLM
from course_lib.stack import Stack
from course_lib.tokenizers import Vocab
from course_lib.train import train

V = 60
SIGNS = tuple(range(40, V))
VOCAB = Vocab(size=V, pad=0, unk=1, cls=2, sep=3, mask=4, special=(0, 1, 2, 3, 4, *SIGNS))
LENGTHS = (20, 11, 4, 33)


def texts() -> list[list[int]]:
    """[CLS] tokens, full stops (5) among them, [SEP]"""
    return [
        [2, *torch.randint(5, 40, (n,), generator=generator(i)).tolist(), 3] for i, n in enumerate(LENGTHS)
    ]  # fmt: skip


def given(left: bool = False):
    batch = pad(texts(), 0)
    ids, keep = batch["ids"], batch["keep"]
    return (ids.flip(1), keep.flip(1)) if left else (ids, keep)


MAKERS = {
    "masked": partial(objectives.masked, vocab=VOCAB),
    "spans": partial(objectives.masked, vocab=VOCAB, unit="span"),
    "denoised": partial(objectives.denoised, vocab=VOCAB, ends=[5]),
    "span_corrupted": partial(objectives.span_corrupted, vocab=VOCAB, sentinels=SIGNS),
    "prefixed": partial(objectives.prefixed, vocab=VOCAB),
}


@pytest.mark.parametrize("name", MAKERS)
def test_every_batch_is_a_function_of_the_generator_and_writes_to_nothing(name: str) -> None:
    ids, keep = given()
    before = ids.clone(), keep.clone()
    one, two, other = (MAKERS[name](ids, keep, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(ids, before[0]) and torch.equal(keep, before[1])
    assert one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)
    assert any(one[key].shape != other[key].shape or not torch.equal(one[key], other[key]) for key in one)
    assert all(len(value) == len(ids) for value in one.values()), "train() cuts batches by rows"


def rows(batch) -> list[tuple[list[int], list[int]]]:
    return [
        (ids[keep].tolist(), labels[labels != IGNORE].tolist())
        for ids, keep, labels in zip(batch["ids"], batch["keep"], batch["labels"], strict=True)
    ]


def test_masked_units() -> None:
    ids, keep = given()
    words = ((torch.arange(ids.shape[1]) - 1) // 2).expand(ids.shape).masked_fill(~keep | (ids < 5), -1)
    for unit in ("token", "word", "span"):
        batch = objectives.masked(ids, keep, generator(0), vocab=VOCAB, unit=unit, words=words)
        assert torch.equal(batch["labels"].where(batch["at"], batch["ids"]), ids)
        pairs = batch["at"][:, 1:-1].reshape(len(ids), -1, 2)[:, :2]
        assert (pairs[..., 0] == pairs[..., 1]).all() == (unit != "token")
    electra = objectives.masked(ids, keep, generator(0), vocab=VOCAB, parts=(1, 0, 0))
    assert (electra["ids"][electra["at"]] == 4).all()
    for wrong, message in (({"unit": "letter"}, "no unit 'letter'"), ({"unit": "word"}, "Whole words")):
        with pytest.raises(CourseError, match=message):
            objectives.masked(ids, keep, generator(0), vocab=VOCAB, **wrong)


def test_denoised_targets_are_the_texts_themselves() -> None:
    batch = MAKERS["denoised"](*given(), generator(3))
    rng = generator(3)
    for (source, target), text in zip(rows(batch), texts(), strict=True):
        assert target == text
        assert source == corrupt.noised(torch.tensor(text), rng, vocab=VOCAB, ends=[5]).tolist()
        assert source != text
    quiet = objectives.denoised(*given(), generator(0), vocab=VOCAB, noises=[])
    assert all(source == target for source, target in rows(quiet))


def test_span_corrupted_rows_restore_the_texts() -> None:
    batch = MAKERS["span_corrupted"](*given(), generator(3))
    for (source, target), text in zip(rows(batch), texts(), strict=True):
        assert corrupt.restore(torch.tensor(source), torch.tensor(target), SIGNS).tolist() == text
        assert source[-1] == target[-1] == 3 and set(source) & set(SIGNS)


def test_prefixed_rows_are_cut_in_two() -> None:
    for (source, target), text in zip(rows(MAKERS["prefixed"](*given(), generator(3))), texts(), strict=True):
        assert source[:-1] + target == text and source[-1] == target[-1] == 3 and len(target) > 1


def test_left_padding_is_no_text() -> None:
    ids, keep = given(left=True)
    batch = objectives.denoised(ids, keep, generator(0), vocab=VOCAB, noises=[])
    assert [source for source, _ in rows(batch)] == [text[::-1] for text in texts()]


def test_no_row_is_wider_than_the_rows_that_came_in() -> None:
    ids, keep = given()
    for name in ("denoised", "prefixed"):
        for seed in range(20):
            batch = MAKERS[name](ids[:, :35], keep[:, :35], generator(seed))
            assert batch["ids"].shape[1] <= 35 and batch["labels"].shape[1] <= 35


@pytest.mark.parametrize("name", ["span_corrupted", "prefixed"])
def test_joined_targets_stand_behind_their_sources(name: str) -> None:
    batch = MAKERS[name](*given(), generator(3))
    one = objectives.joined(batch, vocab=VOCAB)
    for b, (source, target) in enumerate(rows(batch)):
        assert one["prefix"][b] == len(source)
        assert one["ids"][b][one["keep"][b]].tolist() == source + target[:-1]
        first = len(source) - 1
        assert one["labels"][b, first : first + len(target)].tolist() == target
        assert (one["labels"][b] != IGNORE).sum() == len(target)
    assert objectives.joined(batch, vocab=VOCAB, most=50)["ids"].shape[1] <= max(50, *map(len, texts()))


def test_prefix_lm_sees_the_source_from_both_sides_and_the_target_from_the_left() -> None:
    torch.manual_seed(0)
    config = StackConfig(EmbedConfig(V), width=16, layers=2, heads=2, hidden=32, position=T5Buckets(8, 32, True),
                         causal=True, dropout=0.0, attention_dropout=0.0, init_std=0.3)  # fmt: skip
    model = heads.LM(Stack(config))
    batch = objectives.joined(MAKERS["prefixed"](*given(), generator(3)), vocab=VOCAB)
    value = losses.prefix_lm(model, batch)
    total, count = torch.zeros(()), 0
    for b in range(len(LENGTHS)):
        n, p = int(batch["keep"][b].sum()), int(batch["prefix"][b])
        mask = torch.tensor([[j <= i or j < p for j in range(n)] for i in range(n)])
        logits = model(batch["ids"][b : b + 1, :n], mask=mask[None, None])[0].log_softmax(-1)
        for t in range(p - 1, n):
            total, count = total - logits[t, batch["labels"][b, t]], count + 1
    torch.testing.assert_close(value, total / count)
    assert not torch.allclose(value, losses.clm(model, batch)), "the source is seen from the left only"


@pytest.mark.parametrize("name", ["denoised", "span_corrupted", "prefixed"])
def test_train_takes_the_batches_as_they_are(name: str) -> None:
    torch.manual_seed(0)
    model = Seq2SeqLM(EncoderDecoder(t5(V, width=16, layers=1, heads=2, hidden=32, dropout=0.0)))
    steps = list(train(model, [MAKERS[name](*given(), generator(0))], losses.seq2seq, steps=4, accumulate=2))
    assert steps[-1].loss < steps[0].loss and steps[0].tokens > 0
