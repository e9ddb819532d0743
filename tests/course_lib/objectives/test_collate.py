"""Batches for each objective: what the loss reads, and rows in order."""

from functools import partial

import pytest
import torch

from course_lib import objectives
from course_lib.errors import CourseError
from course_lib.model import heads
from course_lib.model.config import EmbedConfig, StackConfig, T5Buckets
from course_lib.model.transformer import Transformer
from course_lib.objectives import collate, losses, masking, seeded_generator
from course_lib.vocab import IGNORE, Vocab

V = 60
SIGNS = tuple(range(40, V))
VOCAB = Vocab(size=V, pad=0, unk=1, cls=2, sep=3, mask=4, special=(0, 1, 2, 3, 4, *SIGNS))
LENGTHS = (20, 11, 4, 33)
# [CLS] tokens, full stops (5) among them, [SEP]
TEXTS = [
    [2, *torch.randint(5, 40, (n,), generator=seeded_generator(i)).tolist(), 3]
    for i, n in enumerate(LENGTHS)
]
MAKERS = {
    "denoised": partial(collate.denoised, vocab=VOCAB, ends=[5]),
    "span_corrupted": partial(collate.span_corrupted, vocab=VOCAB, sentinels=SIGNS),
    "prefixed": partial(collate.prefixed, vocab=VOCAB),
}


def given() -> tuple[torch.Tensor, torch.Tensor]:
    batch = collate.pad(TEXTS, 0)
    return batch["ids"], batch["attention_mask"]


def rows(batch) -> list[tuple[list[int], list[int]]]:
    return [
        (ids[attention_mask].tolist(), labels[labels != IGNORE].tolist())
        for ids, attention_mask, labels in zip(
            batch["ids"], batch["attention_mask"], batch["labels"], strict=True
        )
    ]


def test_whole_words_are_masked_only_where_they_are_known() -> None:
    with pytest.raises(CourseError, match="Whole words"):
        collate.masked(*given(), seeded_generator(0), vocab=VOCAB, spans=masking.whole_words())


def test_denoised_targets_are_the_texts_themselves() -> None:
    batch, rng = MAKERS["denoised"](*given(), seeded_generator(3)), seeded_generator(3)
    for (source, target), text in zip(rows(batch), TEXTS, strict=True):
        assert target == text
        assert (
            source
            == objectives.noised(torch.tensor(text), rng, vocab=VOCAB, ends=[5]).tolist()
            != text
        )
    ids, attention_mask = (x.flip(1) for x in given())  # padding on the left is no text either
    quiet = collate.denoised(ids, attention_mask, seeded_generator(0), vocab=VOCAB, noises=[])
    assert [source for source, _ in rows(quiet)] == [text[::-1] for text in TEXTS]


def test_span_corrupted_rows_restore_the_texts_and_prefixed_rows_are_cut_in_two() -> None:
    corrupted, cut = (
        rows(MAKERS[name](*given(), seeded_generator(3))) for name in ("span_corrupted", "prefixed")
    )
    for (source, target), text in zip(corrupted, TEXTS, strict=True):
        assert (
            objectives.restore(torch.tensor(source), torch.tensor(target), SIGNS).tolist() == text
        )
        assert source[-1] == target[-1] == 3 and set(source) & set(SIGNS)
    for (source, target), text in zip(cut, TEXTS, strict=True):
        assert source[:-1] + target == text and source[-1] == target[-1] == 3 and len(target) > 1


@pytest.mark.parametrize("name", ["span_corrupted", "prefixed"])
def test_joined_targets_stand_behind_their_sources(name: str) -> None:
    batch = MAKERS[name](*given(), seeded_generator(3))
    one = collate.joined(batch, vocab=VOCAB)
    for b, (source, target) in enumerate(rows(batch)):
        assert one["prefix"][b] == len(source)
        assert one["ids"][b][one["attention_mask"][b]].tolist() == source + target[:-1]
        first = len(source) - 1
        assert one["labels"][b, first : first + len(target)].tolist() == target
        assert (one["labels"][b] != IGNORE).sum() == len(target)
    assert collate.joined(batch, vocab=VOCAB, max_width=50)["ids"].shape[1] <= 50


def test_prefix_lm_sees_the_source_from_both_sides_and_the_target_from_the_left() -> None:
    torch.manual_seed(0)
    config = StackConfig(
        EmbedConfig(V),
        width=16,
        layers=2,
        heads=2,
        hidden=32,
        position=T5Buckets(8, 32, True),
        causal=True,
        dropout=0.0,
        attention_dropout=0.0,
        init_std=0.3,
    )
    model = heads.LM(Transformer(config))
    batch = collate.joined(MAKERS["prefixed"](*given(), seeded_generator(3)), vocab=VOCAB)
    value = losses.prefix_lm(model, batch)
    total, count = torch.zeros(()), 0
    for b in range(len(LENGTHS)):
        n, p = int(batch["attention_mask"][b].sum()), int(batch["prefix"][b])
        mask = torch.tensor([[j <= i or j < p for j in range(n)] for i in range(n)])
        logits = model(batch["ids"][b : b + 1, :n], mask=mask[None, None])[0].log_softmax(-1)
        for t in range(p - 1, n):
            total, count = total - logits[t, batch["labels"][b, t]], count + 1
    torch.testing.assert_close(value, total / count)
    assert not torch.allclose(value, losses.clm(model, batch)), (
        "the source is seen from the left only"
    )
