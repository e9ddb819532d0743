"""BART's five corruptions: the slides' examples to the letter, what survives, what is never touched."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.corrupt import (
    NOISES,
    document_rotation,
    generator,
    infill,
    noised,
    poisson_lengths,
    sentence_ends,
    sentence_permutation,
    text_infilling,
    token_deletion,
    token_masking,
)
from course_lib.errors import CourseError
from course_lib.tokenizers import Vocab, train_bpe, train_wordpiece

MASK, STOP = 4, 5
VOCAB = Vocab(size=500, pad=0, unk=1, cls=2, sep=3, mask=MASK, special=(0, 1, 2, 3, 4))
NAMES = {STOP: ".", MASK: "<mask>"} | {6 + i: letter for i, letter in enumerate("ABCDEFG")}
IDS = {name: i for i, name in NAMES.items()}


def read(text: str) -> torch.Tensor:
    return torch.tensor([IDS[c] for c in text if c != " "])


def write(ids: torch.Tensor) -> str:
    """As on the slides: a space behind a full stop, but for the last one."""
    return "".join(NAMES[i] + (" " if i == STOP else "") for i in ids.tolist()).strip()


def outcomes(noise, text: str, n: int = 400, **options) -> Counter[str]:
    return Counter(write(noise(read(text), generator(seed), vocab=VOCAB, **options)) for seed in range(n))


@pytest.mark.parametrize(
    ("noise", "text", "spoiled", "options", "possible"),
    [
        (token_masking, "ABCDEF.", "A<mask>CD<mask>F.", {"rate": 2 / 7}, 21),
        (token_deletion, "ABCDEF.", "ACDF.", {"rate": 2 / 7}, 21),
        (sentence_permutation, "ABC. DE. FG.", "FG. ABC. DE.", {"ends": [STOP]}, 6),
        (document_rotation, "ABC. DE. FG.", "E. FG. ABC. D", {}, 10),
    ],
)
def test_the_slides_examples_are_among_all_equally_likely_outcomes(noise, text, spoiled, options, possible) -> None:
    seen = outcomes(noise, text, 1000, **options)
    assert spoiled in seen
    assert len(seen) == possible
    assert max(seen.values()) < 1000 / possible + 5 * math.sqrt(1000 / possible)


def test_the_slides_infilling_to_the_letter() -> None:
    assert write(infill(read("ABCDEF."), [(1, 2), (4, 1)], MASK)) == "A<mask>D<mask>F."
    assert "A<mask>D<mask>F." in outcomes(text_infilling, "ABCDEF.", 3000, rate=3 / 7, mean=1.5)


def test_infilling_with_nothing_missing_puts_a_mask_in() -> None:
    assert write(infill(read("ABC"), [(0, 0), (3, 0)], MASK)) == "<mask>ABC<mask>"
    assert write(infill(read("ABC"), [], MASK)) == "ABC"


def test_span_lengths_are_poisson_3_zeros_included() -> None:
    lengths = poisson_lengths(40_000, generator(0))
    assert sum(lengths) == 40_000
    n, counts = len(lengths), Counter(lengths[:-1])
    for k in range(9):
        p = math.exp(-3) * 3**k / math.factorial(k)
        assert abs(counts[k] / n - p) < 4 * math.sqrt(p * (1 - p) / n)


def test_infilling_covers_its_rate_and_keeps_the_rest_in_order() -> None:
    ids = torch.cat([torch.tensor([2]), torch.arange(10, 210), torch.tensor([3])])
    masks = []
    for seed in range(100):
        new = text_infilling(ids, generator(seed), vocab=VOCAB)
        rest = new[new != MASK]
        assert len(rest) == 2 + 140, "0.3 of 200 tokens are covered"
        assert torch.equal(rest, rest.sort().values[[0, *range(2, 142), 1]]), "the order has changed"
        masks.append(int((new == MASK).sum()))
    assert sum(masks) / 100 == pytest.approx(60 / 3, abs=1.0)
    assert len(set(masks)) > 3


def test_masking_and_deletion_choose_their_rate() -> None:
    ids = torch.arange(10, 110)
    masked = token_masking(ids, generator(0), vocab=VOCAB)
    assert int((masked == MASK).sum()) == 15 and torch.equal(masked.where(masked != MASK, ids), ids)
    left = token_deletion(ids, generator(0), vocab=VOCAB)
    assert len(left) == 85 and set(left.tolist()) < set(ids.tolist()) and torch.equal(left, left.sort().values)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**31), t=st.integers(1, 20), name=st.sampled_from(sorted(NOISES)), padding=st.integers(0, 3)
)
def test_properties(seed: int, t: int, name: str, padding: int) -> None:
    draw = generator(seed)
    text = torch.randint(5, 12, (t,), generator=draw)
    ids = torch.cat([torch.tensor([2]), text, torch.tensor([3]), torch.zeros(padding, dtype=torch.int64)])
    if t > 4 and seed % 3 == 0:
        ids[t // 2] = 3  # two documents in one row
    before = ids.clone()
    new = noised(ids, generator(seed), vocab=VOCAB, noises=[name], ends=[STOP])
    assert torch.equal(ids, before), "the input was written to"
    assert torch.equal(new, noised(ids, generator(seed), vocab=VOCAB, noises=[name], ends=[STOP]))
    special = [i for i in new.tolist() if i < 4]
    assert special == [i for i in ids.tolist() if i < 4], "special tokens or padding were touched"
    assert new[0] == 2 and len(new) <= len(ids)
    counts, old = Counter(new.tolist()), Counter(ids.tolist())
    if name in ("sentence permutation", "document rotation"):
        assert counts == old
        inside = ids[1:-1].tolist()
        if 3 not in inside:
            assert sorted(new[1:].tolist()) == sorted(ids[1:].tolist())
    else:
        made_up = counts - old
        assert set(made_up) <= {MASK}
        if name == "token deletion":
            assert not made_up and len(new) == len(ids) - (old - counts).total()
        if name == "token masking":
            assert len(new) == len(ids) and torch.equal(new.where(new != MASK, ids), ids)


def test_sentences_stay_whole_within_their_document() -> None:
    ids = torch.tensor([2, 10, 5, 11, 12, 5, 13, 3, 20, 5, 21, 5, 3])
    orders = {tuple(sentence_permutation(ids, generator(s), vocab=VOCAB, ends=[5]).tolist()) for s in range(100)}
    assert len(orders) == 6 * 2
    for row in orders:
        first, second = row[1:7], row[8:12]
        assert {13} < set(first) and set(second) == {20, 21, 5}
        assert (11, 12, 5) in list(zip(first, first[1:], first[2:], strict=False))


def test_an_unknown_word_is_text_like_any_other() -> None:
    ids = torch.tensor([2, 10, 1, 11, 3])
    assert len({tuple(document_rotation(ids, generator(s), vocab=VOCAB).tolist()) for s in range(40)}) == 3
    assert {token_deletion(ids, generator(s), vocab=VOCAB).tolist().count(1) for s in range(40)} == {0, 1}


def test_noises_come_one_after_the_other() -> None:
    ids = read("ABC. DE. FG.")
    rng = generator(3)
    expected = text_infilling(sentence_permutation(ids, rng, vocab=VOCAB, ends=[STOP]), rng, vocab=VOCAB)
    assert torch.equal(noised(ids, generator(3), vocab=VOCAB, ends=[STOP]), expected)
    assert int((noised(ids, generator(3), vocab=VOCAB, noises=["token masking"], rate=0.5) == MASK).sum()) == 5


def test_ends_of_sentences_are_found_in_a_vocabulary() -> None:
    texts = ["Is it? It is. It is!"] * 3
    for tokenizer in (train_wordpiece(texts, 60), train_bpe(texts, 280)):
        assert {tokenizer.decode([i]).strip() for i in sentence_ends(tokenizer)} == {".", "?", "!"}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: noised(read("AB."), generator(0), vocab=VOCAB), "ends"),
        (lambda: noised(read("AB."), generator(0), vocab=VOCAB, noises=["shouting"]), "no noise 'shouting'"),
        (lambda: token_masking(read("AB."), generator(0), vocab=Vocab(20)), "mask token"),
        (lambda: token_deletion(read("AB.")[None], generator(0), vocab=VOCAB), "one text at a time"),
        (lambda: token_deletion(read("AB."), generator(0), vocab=VOCAB, rate=2), "between 0 and 1"),
        (lambda: text_infilling(read("AB."), generator(0), vocab=VOCAB, mean=0), "above 0"),
    ],
)
def test_bad_input_is_one_sentence(call, words: str) -> None:
    with pytest.raises(CourseError, match=words):
        call()
