"""Masking: who is chosen, what stands there afterwards, spans, what sentences before say; ELECTRA's
replaced tokens.
"""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib import objectives
from course_lib.data.tokenizers import train_wordpiece
from course_lib.errors import CourseError
from course_lib.objectives import (
    mask_documents,
    mask_tokens,
    original,
    replace_tokens,
    sample,
    seeded_generator,
)
from course_lib.objectives.masking import lay_out
from course_lib.vocab import IGNORE, Vocab

VOCAB = Vocab(size=1000, pad=0, unk=1, cls=2, sep=3, mask=4, special=(0, 1, 2, 3, 4))
BPE = Vocab(size=1000, pad=0, bos=1, eos=1, special=(0, 1))


def rows(b: int = 400, t: int = 100) -> tuple[torch.Tensor, torch.Tensor]:
    """[CLS] tokens [SEP] padding, all lengths from 5 on."""
    draw = seeded_generator(7)
    ids = torch.randint(5, VOCAB.size, (b, t), generator=draw)
    lengths = torch.randint(5, t + 1, (b, 1), generator=draw)
    places = torch.arange(t).expand(b, t)
    ids = ids.masked_fill(places == 0, 2).masked_fill(places == lengths - 1, 3)
    attention_mask = places < lengths
    return ids.masked_fill(~attention_mask, 0), attention_mask


def test_shares_are_80_10_10_and_not_81_10_9() -> None:
    ids, attention_mask = rows(8000)
    seen, labels, at = mask_tokens(
        ids, seeded_generator(0), vocab=VOCAB, attention_mask=attention_mask
    )
    n = int(at.sum())
    masked = int((seen[at] == VOCAB.mask).sum()) / n
    kept = int((seen[at] == labels[at]).sum()) / n
    tolerance = 4 * math.sqrt(0.1 * 0.9 / n)  # four standard errors
    assert tolerance < 0.006, "too few draws to tell 81/10/9 from 80/10/10"
    assert abs(masked - 0.8) < 1.4 * tolerance
    assert abs(kept - 0.1 - 0.1 / 995) < tolerance  # a random token may be the right one


@settings(deadline=None, max_examples=80)
@given(
    seed=st.integers(0, 2**31),
    rate=st.floats(0, 1),
    b=st.integers(1, 5),
    t=st.integers(1, 14),
    unit=st.sampled_from(["token", "word", "span"]),
)
def test_properties(seed: int, rate: float, b: int, t: int, unit: str) -> None:
    draw = seeded_generator(seed)
    ids = torch.randint(0, VOCAB.size if seed % 2 else 20, (b, t), generator=draw)
    attention_mask = torch.rand(b, t, generator=draw) < 0.8
    words = (torch.rand(b, t, generator=draw) < 0.5).cumsum(1) - 1 if unit == "word" else None
    before, options = (
        ids.clone(),
        {"vocab": VOCAB, "rate": rate, "words": words, "attention_mask": attention_mask},
    )
    seen, labels, at = mask_tokens(ids, seeded_generator(seed), spans=unit == "span", **options)
    again = mask_tokens(ids, seeded_generator(seed), spans=unit == "span", **options)
    assert all(torch.equal(x, y) for x, y in zip((seen, labels, at), again, strict=True))
    assert torch.equal(ids, before), "the input was written to"
    assert torch.equal(original(seen, labels, at), ids), "labels do not restore the text"
    assert torch.equal(seen[~at], ids[~at]), "a token that was not chosen changed"
    assert (labels[~at] == IGNORE).all()
    assert not (at & ~attention_mask).any() and not (ids[at] < 5).any(), (
        "padding or a special token was chosen"
    )
    assert ((seen[at] >= 5) | (seen[at] == VOCAB.mask)).all(), "a special token was put in"
    if unit != "word":
        real = (attention_mask & (ids >= 5)).sum(1).tolist()
        assert at.sum(1).tolist() == [min(n, max(int(rate > 0), round(n * rate))) for n in real]


@pytest.mark.parametrize("spans", [False, True])
def test_whole_words_are_chosen_whole_and_at_the_rate(spans: bool) -> None:
    t = 60
    words = (torch.arange(t) // 3).expand(500, t).clone()  # 20 words of three pieces
    words[:, -3:] = -1
    _, _, at = mask_tokens(
        torch.full((500, t), 50), seeded_generator(0), vocab=VOCAB, words=words, spans=spans
    )
    pieces = at[:, :57].reshape(500, 19, 3)
    assert (pieces.all(-1) | ~pieces.any(-1)).all()
    assert (pieces.all(-1).sum(1) == 3).all()  # 0.15 * 19, rounded
    assert not at[:, 57:].any()
    assert len({tuple(row) for row in pieces.all(-1).int().tolist()}) > (15 if spans else 300), (
        "rows share their draws"
    )


def test_every_arrangement_of_spans_is_equally_likely() -> None:
    rng, n = seeded_generator(5), 6000
    seen = Counter(tuple(lay_out(5, [2, 1], rng)) for _ in range(n))
    # Three items beside the spans' order: two kept tokens and two spans in any order, spans of
    # length 2 and 1.
    assert len(seen) == 12 and all(
        abs(count / n - 1 / 12) < 4 * math.sqrt(1 / 12 / n) for count in seen.values()
    )
    apart = Counter(tuple(lay_out(5, [2, 1], rng, apart=True)) for _ in range(n))
    assert len(apart) == 6 and all(b[0] > a[0] + a[1] for a, b in apart)


def test_one_draw_a_span() -> None:
    """Spans of 40 tokens at 10% are mostly alone: each is masked, random or kept as a whole."""
    ids = torch.randint(5, 1000, (3000, 40), generator=seeded_generator(1))
    seen, labels, at = mask_tokens(ids, seeded_generator(2), vocab=VOCAB, rate=0.1, spans=True)
    # run in the row
    one = torch.nn.functional.pad(at.int(), (1, 1)).diff().clamp(min=0).sum(1) == 1
    masked, kept = ((seen == 4) & at).sum(1)[one], ((seen == labels) & at).sum(1)[one]
    whole = (masked == 4) | (kept == 4) | (masked + kept == 0)
    assert len(whole) > 300 and whole.float().mean() > 0.75  # others: two spans side by side


def test_static_masks_depend_on_the_document_alone_and_dynamic_ones_on_the_epoch() -> None:
    ids, _ = rows(6, 40)

    def at(
        epoch: int, copies: int | None, order: tuple[int, ...] = tuple(range(6)), seed: int = 1
    ) -> torch.Tensor:
        made = mask_documents(
            ids[list(order)], order, vocab=VOCAB, seed=seed, epoch=epoch, copies=copies
        )
        return made.loss_mask

    assert torch.equal(at(5, 1, (4, 0, 2)), at(0, 1)[[4, 0, 2]]) and not torch.equal(
        at(0, 1), at(0, 1, seed=2)
    )
    assert not torch.equal(at(0, None), at(1, None)) and not torch.equal(at(0, None), at(10, None))
    assert torch.equal(at(3, 10), at(13, 10)) and not torch.equal(at(3, 10), at(4, 10))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rate": 1.5}, "between 0 and 1"),
        ({"parts": (0.8, 0.1, 0.2)}, "add up to 1"),
        ({"vocab": BPE}, "mask token"),
    ],
)
def test_bad_input_is_one_sentence(change: dict[str, object], words: str) -> None:
    with pytest.raises(CourseError, match=words):
        mask_tokens(torch.full((2, 8), 9), seeded_generator(0), **({"vocab": VOCAB} | change))  # type: ignore[arg-type]


# Masks that ask for what the sentences before have said.

TEXT = "ann has lamps . bob has keys . ann has keys . bob has lamps ? cy has lamps ."
TOKENIZER = train_wordpiece([TEXT, "ann bob cy lamps keys has . ?"] * 20, 60)
NAMES = {
    token
    for ids in TOKENIZER.ids(["ann", "bob", "cy", "lamps", "keys"], special=False)
    for token in ids
}


def known(text: str, seed: int, **options):
    ids, ends = torch.tensor(TOKENIZER.ids([text])), objectives.sentence_ends(TOKENIZER)
    options = {"names": NAMES, "rate": 1.0} | options
    return ids, objectives.mask_known(
        ids, seeded_generator(seed), vocab=TOKENIZER.vocab, ends=ends, **options
    )


def test_one_whole_name_of_each_known_sentence_is_hidden() -> None:
    chosen = set()
    for seed in range(30):
        ids, (seen, labels, at) = known(TEXT, seed)
        assert (
            torch.equal(original(seen, labels, at), ids)
            and (seen[at] == TOKENIZER.vocab.mask).all()
        )
        assert (labels[~at] == IGNORE).all()
        hidden = TOKENIZER.decode(ids[0][at[0]]).split()
        # of the third and the fourth sentence: of the first two and the last not all is known
        assert len(hidden) == 2
        assert hidden[0] in ("ann", "keys") and hidden[1] in ("bob", "lamps")
        chosen |= set(hidden)
    assert chosen == {"ann", "keys", "bob", "lamps"}
    masks = [known(TEXT, seed, rate=0.5)[1].loss_mask for seed in range(200)]
    counts = [len(TOKENIZER.decode(ids[0][mask[0]]).split()) for mask in masks]
    assert 0.4 < sum(counts) / 400 < 0.6 and not known(TEXT, 1, rate=0.0)[1].loss_mask.any()
    assert torch.equal(masks[3], known(TEXT, 3, rate=0.5)[1].loss_mask)


def test_a_word_of_several_tokens_is_a_name_and_hidden_whole() -> None:
    text, keys = "bobkeys has keys . bobkeys has keys .", TOKENIZER.ids(["keys"], special=False)[0]
    words = TOKENIZER.words(torch.tensor(TOKENIZER.ids([text])))
    pieces = int((words == 0).sum())
    assert pieces > 1
    masks = [known(text, seed, names=keys, words=words)[1].loss_mask[0] for seed in range(20)]
    # The second sentence's, all pieces of one of them.
    assert {tuple(words[0, at].tolist()) for at in masks} == {(4,) * pieces, (6,) * len(keys)}


# ELECTRA's generator.


def test_samples_follow_the_softmax() -> None:
    logits, n = torch.tensor([2.0, 0.0, 1.0, -1.0]), 40_000
    drawn = sample(logits.expand(n, 4), seeded_generator(0))
    for token, p in enumerate(logits.softmax(0).tolist()):
        assert abs((drawn == token).float().mean().item() - p) < 4 * math.sqrt(p * (1 - p) / n)


def test_replaced_means_different_from_the_original() -> None:
    """the chef cooked the meal: "the" and "cooked" are masked, the generator says "the" and "ate"
    (figure 2).
    """
    the, chef, cooked, meal, ate = range(10, 15)
    text = torch.tensor([[the, chef, cooked, the, meal]])
    at = torch.tensor([[True, False, True, False, False]])
    seen, replaced = replace_tokens(text, at, torch.tensor([the, ate]))
    assert seen.tolist() == [[the, chef, ate, the, meal]]
    assert replaced.tolist() == [[False, False, True, False, False]]
    assert text.tolist() == [[the, chef, cooked, the, meal]], "the input was written to"
