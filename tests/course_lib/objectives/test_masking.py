"""Masking: who is chosen, what stands there afterwards, spans; ELECTRA's replaced tokens."""

import math
from collections import Counter
from itertools import groupby

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.errors import CourseError
from course_lib.objectives import (
    mask_documents,
    mask_tokens,
    original,
    replace_tokens,
    sample,
    seeded_generator,
)
from course_lib.objectives.draws import lay_out
from course_lib.objectives.masking import (
    SPAN_SAMPLERS,
    SpanSampler,
    geometric_spans,
    ngram_weights,
    ngrams,
    span_lengths,
    whole_words,
)
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
    unit=st.sampled_from(sorted(SPAN_SAMPLERS)),
    known_words=st.booleans(),
)
def test_properties(seed: int, rate: float, b: int, t: int, unit: str, known_words: bool) -> None:
    draw = seeded_generator(seed)
    ids = torch.randint(0, VOCAB.size if seed % 2 else 20, (b, t), generator=draw)
    attention_mask = torch.rand(b, t, generator=draw) < 0.8
    known_words = known_words or unit == "words"
    words = (torch.rand(b, t, generator=draw) < 0.5).cumsum(1) - 1 if known_words else None
    before = ids.clone()
    options = {
        "vocab": VOCAB,
        "rate": rate,
        "spans": SPAN_SAMPLERS[unit](),
        "words": words,
        "attention_mask": attention_mask,
    }
    seen, labels, at = mask_tokens(ids, seeded_generator(seed), **options)
    again = mask_tokens(ids, seeded_generator(seed), **options)
    assert all(torch.equal(x, y) for x, y in zip((seen, labels, at), again, strict=True))
    assert torch.equal(ids, before), "the input was written to"
    assert torch.equal(original(seen, labels, at), ids), "labels do not restore the text"
    assert torch.equal(seen[~at], ids[~at]), "a token that was not chosen changed"
    assert (labels[~at] == IGNORE).all()
    assert not (at & ~attention_mask).any() and not (ids[at] < 5).any(), (
        "padding or a special token was chosen"
    )
    assert ((seen[at] >= 5) | (seen[at] == VOCAB.mask)).all(), "a special token was put in"
    if unit == "tokens" or not known_words:
        real = (attention_mask & (ids >= 5)).sum(1).tolist()
        assert at.sum(1).tolist() == [min(n, max(int(rate > 0), round(n * rate))) for n in real]


@pytest.mark.parametrize(
    ("spans", "rows"),
    [(whole_words(), 300), (geometric_spans(), 15), (ngrams(), 100)],
    ids=["words", "spans", "ngrams"],
)
def test_whole_words_are_chosen_whole_and_at_the_rate(spans: SpanSampler, rows: int) -> None:
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
    assert len({tuple(row) for row in pieces.all(-1).int().tolist()}) > rows, (
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


def lengths_of_runs(at: torch.Tensor) -> Counter:
    """How many runs of True of each length stand in the rows of Bool[B T]."""
    counts: Counter[int] = Counter()
    for row in at.tolist():
        for hidden, run in groupby(row):
            counts[len(list(run))] += hidden
    return counts


def test_ngrams_are_as_long_as_in_albert() -> None:
    """P(n) = (1/n) / (1 + 1/2 + 1/3) for n of 1 to 3 (section 4.1), where spans lie far apart."""
    rng = seeded_generator(3)
    drawn = Counter(span_lengths(ngram_weights(3), 3, rng)[0] for _ in range(4000))
    total = sum(drawn.values())
    for n in (1, 2, 3):
        p = (1 / n) / (1 + 1 / 2 + 1 / 3)
        assert abs(drawn[n] / total - p) < 4 * math.sqrt(p * (1 - p) / total)
    ids = torch.full((500, 100), 50)
    *_, at = mask_tokens(ids, seeded_generator(0), vocab=VOCAB, rate=0.03, spans=ngrams())
    runs = lengths_of_runs(at)
    assert runs[1] > runs[2] > runs[3] > 0, "three tokens a row: mostly alone, seldom together"


def test_masks_of_a_seed_are_those_of_the_loops() -> None:
    """Single tokens, chosen by loops over the same draws: the ranks, then one draw each."""
    ids, attention_mask = rows(20, 30)
    seen, labels, at = mask_tokens(
        ids, seeded_generator(11), vocab=VOCAB, attention_mask=attention_mask
    )
    rng = seeded_generator(11)
    order = torch.rand(ids.shape, generator=rng)
    fate = torch.rand(ids.shape, generator=rng)
    other = torch.randint(995, ids.shape, generator=rng) + 5  # all but the five special tokens
    for b, row in enumerate(ids.tolist()):
        text = [t for t in range(30) if attention_mask[b, t] and row[t] >= 5]
        count = max(1, round(0.15 * len(text)))
        hidden = sorted(text, key=lambda t: order[b, t].item())[:count]
        assert at[b].nonzero().flatten().tolist() == sorted(hidden)
        for t in range(30):
            wanted = row[t]
            if t in hidden and fate[b, t] < 0.8:
                wanted = VOCAB.mask
            elif t in hidden and fate[b, t] < 0.9:
                wanted = other[b, t].item()
            assert seen[b, t] == wanted
            assert labels[b, t] == (row[t] if t in hidden else IGNORE)


def test_one_draw_a_span() -> None:
    """Spans of 40 tokens at 10% are mostly alone: each is masked, random or kept as a whole."""
    ids = torch.randint(5, 1000, (3000, 40), generator=seeded_generator(1))
    seen, labels, at = mask_tokens(
        ids, seeded_generator(2), vocab=VOCAB, rate=0.1, spans=geometric_spans()
    )
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
