"""T5's objectives: the slides' example to the letter, density and span lengths, input and target restore the text."""

import math
from collections import Counter
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.corrupt import (
    add_sentinels,
    generator,
    mark_spans,
    prefix_lm,
    restore,
    sentinels,
    span_corruption,
)
from course_lib.errors import CourseError
from course_lib.tokenizers import Vocab, train_wordpiece

VOCAB = Vocab(size=500, pad=0, unk=1, eos=2, special=(0, 1, 2))
SIGNS = list(range(499, 399, -1))
WORDS = ["Thank", "you", "for", "inviting", "me", "to", "your", "party", "last", "week", "."]


def words(ids: torch.Tensor) -> str:
    names = dict(zip(SIGNS, ["<X>", "<Y>", "<Z>"], strict=False))
    return " ".join(names.get(i) or WORDS[i - 10] for i in ids.tolist()).replace(" .", ".")


def test_the_slides_example_to_the_letter() -> None:
    text = torch.arange(10, 10 + len(WORDS))
    marked = mark_spans(text, [(2, 2), (8, 1)], SIGNS)
    assert words(marked.input) == "Thank you <X> me to your party <Y> week."
    assert words(marked.target) == "<X> for inviting <Y> last <Z>"
    assert words(restore(*marked, SIGNS)) == "Thank you for inviting me to your party last week."


def test_the_slides_example_is_drawn_too() -> None:
    text = torch.arange(10, 10 + len(WORDS))
    drawn = Counter(
        words(span_corruption(text, generator(seed), vocab=VOCAB, sentinels=SIGNS, rate=3 / 11, mean=1.5).input)
        for seed in range(1500)
    )
    # 9 gaps between 8 kept tokens, two of them taken, and 3 = 1 + 2 or 2 + 1.
    assert len(drawn) == 72 and "Thank you <X> me to your party <Y> week." in drawn
    assert max(drawn.values()) < 1500 / 72 + 5 * math.sqrt(1500 / 72)


def test_density_is_15_percent_and_the_mean_span_3() -> None:
    text = torch.randint(10, 300, (512,), generator=generator(0))
    lengths: Counter[int] = Counter()
    for seed in range(50):
        source, target = span_corruption(text, generator(seed), vocab=VOCAB, sentinels=SIGNS)
        noise = round(512 * 0.15)
        spans = round(noise / 3)
        assert len(source) == 512 - noise + spans and len(target) == noise + spans + 1
        signs = [t for t in source.tolist() if t in SIGNS]
        assert signs == SIGNS[:spans], "sentinels in order, each once"
        assert [t for t in target.tolist() if t in SIGNS] == SIGNS[: spans + 1]
        assert target[0] == SIGNS[0] and target[-1] == SIGNS[spans]
        places = [i for i, t in enumerate(target.tolist()) if t in SIGNS]
        lengths.update(b - a - 1 for a, b in pairwise(places))
    assert sum(k * n for k, n in lengths.items()) / lengths.total() == pytest.approx(3, abs=0.1)
    # 26 parts that add up to 77, each way equally likely: P(first part = 1) = C(75, 24) / C(76, 25).
    p = math.comb(75, 24) / math.comb(76, 25)
    assert abs(lengths[1] / lengths.total() - p) < 4 * math.sqrt(p * (1 - p) / lengths.total())


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 2**31), t=st.integers(0, 40), rate=st.floats(0, 1), mean=st.floats(1, 5), end=st.booleans())
def test_input_and_target_hold_every_token_once(seed: int, t: int, rate: float, mean: float, end: bool) -> None:
    text = torch.randint(1, 300, (t,), generator=generator(seed))
    text = text[text != 2]
    ids = torch.cat([text, torch.tensor([2] if end else [], dtype=torch.int64)])
    before = ids.clone()
    source, target = span_corruption(ids, generator(seed), vocab=VOCAB, sentinels=SIGNS, rate=rate, mean=mean)
    assert torch.equal(ids, before), "the input was written to"
    assert torch.equal(restore(source, target, SIGNS), ids)
    again = span_corruption(ids, generator(seed), vocab=VOCAB, sentinels=SIGNS, rate=rate, mean=mean)
    assert torch.equal(again.input, source) and torch.equal(again.target, target)
    if end:
        assert source[-1] == 2 and target[-1] == 2
    flags = [i in SIGNS for i in source.tolist()]
    assert not any(a and b for a, b in pairwise(flags)), "two spans touch"
    taken = [i for i in target.tolist() if i not in SIGNS and i != 2]
    n = len(text)
    assert len(taken) == min(max(n - 1, 0), max(int(rate > 0), round(n * rate)))


def test_special_tokens_are_never_taken_out() -> None:
    ids = torch.tensor([10, 11, 2, 12, 13, 14, 15, 2])
    for seed in range(50):
        source, target = span_corruption(ids, generator(seed), vocab=VOCAB, sentinels=SIGNS, rate=0.5)
        assert source.tolist().count(2) == 2 and target.tolist().count(2) == 1
        assert torch.equal(restore(source, target, SIGNS), ids)


def test_a_prefix_and_its_continuation() -> None:
    ids = torch.tensor([10, 11, 12, 13, 2])
    seen = Counter()
    for seed in range(300):
        source, target = prefix_lm(ids, generator(seed), vocab=VOCAB)
        assert source[-1] == 2 and target[-1] == 2
        assert torch.equal(torch.cat([source[:-1], target]), ids)
        seen[len(target)] += 1
    assert set(seen) == {2, 3, 4} and min(seen.values()) > 60
    bare = prefix_lm(ids[:4], generator(0), vocab=VOCAB)
    assert torch.equal(torch.cat(bare), ids[:4])


def test_a_vocabulary_gets_sentinels() -> None:
    tokenizer = train_wordpiece(["thank you for the party"] * 3, 60)
    more = add_sentinels(tokenizer, 5)
    assert sentinels(more) == tuple(range(tokenizer.vocab.size, tokenizer.vocab.size + 5))
    assert set(sentinels(more)) < set(more.vocab.special)
    assert more.encode("thank you").ids == tokenizer.encode("thank you").ids
    assert more.tokens(sentinels(more)[:2]) == ["<extra_id_0>", "<extra_id_1>"]
    assert len(tokenizer) == len(more) - 5, "the old tokenizer has changed"
    with pytest.raises(CourseError, match="add_sentinels"):
        sentinels(tokenizer)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: mark_spans(torch.arange(9), [(1, 1), (3, 1)], SIGNS[:2]), "need 3 sentinels"),
        (lambda: prefix_lm(torch.tensor([10, 2]), generator(0), vocab=VOCAB), "fewer than two"),
        (
            lambda: span_corruption(torch.arange(10, 20), generator(0), vocab=VOCAB, sentinels=SIGNS, mean=0.5),
            "at least 1 token",
        ),
        (
            lambda: span_corruption(torch.zeros(2, 3).long(), generator(0), vocab=VOCAB, sentinels=SIGNS),
            "one text at a time",
        ),
    ],
)
def test_bad_input_is_one_sentence(call, words: str) -> None:
    with pytest.raises(CourseError, match=words):
        call()
