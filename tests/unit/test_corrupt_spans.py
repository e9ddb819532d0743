"""Span masking: lengths, budget, one draw a span, what is never touched."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.corrupt import IGNORE, generator, mask_spans, span_lengths
from course_lib.corrupt.base import lay_out
from course_lib.errors import CourseError
from course_lib.tokenizers import Vocab

VOCAB = Vocab(size=1000, pad=0, unk=1, cls=2, sep=3, mask=4, special=(0, 1, 2, 3, 4))


def runs(marks: list[bool]) -> list[int]:
    """Lengths of the runs of True."""
    return [len(run) for run in "".join("x" if m else " " for m in marks).split()]


def test_lengths_are_geometric_up_to_ten_with_mean_3_8() -> None:
    lengths = span_lengths(60_000, generator(0))[:-1]
    n = len(lengths)
    chances = [0.2 * 0.8 ** (k - 1) for k in range(1, 11)]
    counts = Counter(lengths)
    assert set(counts) == set(range(1, 11))
    for k, chance in enumerate(chances, 1):
        p = chance / sum(chances)
        assert abs(counts[k] / n - p) < 4 * math.sqrt(p * (1 - p) / n)
    assert sum(lengths) / n == pytest.approx(3.8, abs=0.1)  # the paper's figure


def test_lengths_add_up_to_the_budget() -> None:
    for budget in range(30):
        lengths = span_lengths(budget, generator(budget))
        assert sum(lengths) == budget and all(1 <= length <= 10 for length in lengths)


def test_every_arrangement_is_equally_likely() -> None:
    rng = generator(5)
    n = 6000
    seen = Counter(tuple(lay_out(5, [2, 1], rng)) for _ in range(n))
    # Three items beside the spans' order: two kept tokens and two spans in any order, spans of length 2 and 1.
    assert len(seen) == 12
    assert all(abs(count / n - 1 / 12) < 4 * math.sqrt(1 / 12 / n) for count in seen.values())
    apart = Counter(tuple(lay_out(5, [2, 1], rng, apart=True)) for _ in range(n))
    assert len(apart) == 6
    assert all(b[0] > a[0] + a[1] for a, b in apart)


def test_budget_and_long_runs() -> None:
    ids = torch.randint(5, 1000, (200, 100), generator=generator(1))
    _, _, at = mask_spans(ids, generator(2), vocab=VOCAB)
    assert (at.sum(1) == 15).all()
    lengths = [length for row in at.tolist() for length in runs(row)]
    assert sum(lengths) / len(lengths) > 3, "the chosen tokens do not stand together"
    assert at.float().mean(0).std() < 0.06, "some places are chosen more often"


def test_one_draw_a_span() -> None:
    """Three words of 20 tokens are too far apart to be mixed up: each span is masked, random or kept as a whole."""
    ids = torch.randint(5, 1000, (3000, 40), generator=generator(1))
    seen, labels, at = mask_spans(ids, generator(2), vocab=VOCAB, rate=0.1)
    kinds: Counter[str] = Counter()
    for row in range(3000):
        if len(places := runs(at[row].tolist())) != 1 or places[0] < 4:
            continue  # two spans may touch; a run of 4 is one span
        new, old = seen[row, at[row]], labels[row, at[row]]
        masked, kept = (new == 4).sum().item(), (new == old).sum().item()
        kinds["masked" if masked == 4 else "kept" if kept == 4 else "random" if masked == kept == 0 else "mixed"] += 1
    n = sum(kinds.values())
    assert n > 300
    # Only a run made of two spans, or a random token that is the old one, can look mixed.
    assert kinds["mixed"] / n < 0.25
    for kind, share in (("masked", 0.8), ("random", 0.1), ("kept", 0.1)):
        assert kinds[kind] / n > share * 0.6, kinds


def test_words_are_masked_whole_and_counted_as_words() -> None:
    words = (torch.arange(60) // 3).expand(300, 60)  # 20 words of three pieces
    ids = torch.full((300, 60), 50)
    _, _, at = mask_spans(ids, generator(0), vocab=VOCAB, words=words)
    pieces = at.reshape(300, 20, 3)
    assert (pieces.all(-1) | ~pieces.any(-1)).all()
    assert (pieces.all(-1).sum(1) == 3).all()


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**31), rate=st.floats(0, 1), b=st.integers(1, 4), t=st.integers(1, 14))
def test_properties(seed: int, rate: float, b: int, t: int) -> None:
    draw = generator(seed)
    ids = torch.randint(0, 20, (b, t), generator=draw)
    keep = torch.rand(b, t, generator=draw) < 0.8
    before = ids.clone()
    seen, labels, at = mask_spans(ids, generator(seed), vocab=VOCAB, rate=rate, keep=keep)
    again = mask_spans(ids, generator(seed), vocab=VOCAB, rate=rate, keep=keep)
    assert all(torch.equal(x, y) for x, y in zip((seen, labels, at), again, strict=True))
    assert torch.equal(ids, before), "the input was written to"
    assert torch.equal(labels.where(at, seen), ids), "labels do not restore the text"
    assert (labels[~at] == IGNORE).all()
    assert not (at & ~keep).any() and not (ids[at] < 5).any(), "padding or a special token was chosen"
    real = (keep & (ids >= 5)).sum(1)
    expected = [min(n, max(int(rate > 0), round(n * rate))) for n in real.tolist()]
    assert at.sum(1).tolist() == expected


@pytest.mark.parametrize(
    ("change", "words"),
    [({"p": 0.0}, "0 < p"), ({"longest": 0}, "at least 1"), ({"rate": -0.1}, "between 0 and 1")],
)
def test_bad_input_is_one_sentence(change: dict[str, object], words: str) -> None:
    with pytest.raises(CourseError, match=words):
        mask_spans(torch.full((2, 8), 9), generator(0), **({"vocab": VOCAB} | change))  # type: ignore[arg-type]
