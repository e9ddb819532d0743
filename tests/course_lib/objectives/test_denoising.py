"""BART's noises and T5's objectives: the slides' examples to the letter, what survives, what is
never touched.
"""

import math
from collections import Counter
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.data.tokenizers import add_sentinels, train_wordpiece
from course_lib.errors import CourseError
from course_lib.objectives import (
    NOISES,
    mark_spans,
    noised,
    prefix_lm,
    restore,
    seeded_generator,
    span_corruption,
)
from course_lib.vocab import Vocab

MASK, STOP = 4, 5
VOCAB = Vocab(size=500, pad=0, unk=1, cls=2, sep=3, mask=MASK, special=(0, 1, 2, 3, 4))
NAMES = {STOP: ".", MASK: "<mask>"} | {6 + i: letter for i, letter in enumerate("ABCDEFG")}
IDS = {name: i for i, name in NAMES.items()}


def read(text: str) -> torch.Tensor:
    return torch.tensor([IDS[c] for c in text if c != " "])


def write(ids: torch.Tensor) -> str:
    """As on the slides: a space behind a full stop, but for the last one."""
    return "".join(NAMES[i] + (" " if i == STOP else "") for i in ids.tolist()).strip()


@pytest.mark.parametrize(
    ("noise", "text", "spoiled", "options", "possible"),
    [
        ("token masking", "ABCDEF.", "A<mask>CD<mask>F.", {"rate": 2 / 7}, 21),
        ("token deletion", "ABCDEF.", "ACDF.", {"rate": 2 / 7}, 21),
        ("sentence permutation", "ABC. DE. FG.", "FG. ABC. DE.", {"ends": [STOP]}, 6),
        ("document rotation", "ABC. DE. FG.", "E. FG. ABC. D", {}, 10),
    ],
)
def test_the_slides_examples_are_among_all_equally_likely_outcomes(
    noise, text, spoiled, options, possible
) -> None:
    made = (
        NOISES[noise](read(text), seeded_generator(seed), vocab=VOCAB, **options)
        for seed in range(1000)
    )
    seen = Counter(map(write, made))
    assert spoiled in seen and len(seen) == possible
    assert max(seen.values()) < 1000 / possible + 5 * math.sqrt(1000 / possible)


def test_infilling_covers_its_rate_and_keeps_the_rest_in_order() -> None:
    ids = torch.cat([torch.tensor([2]), torch.arange(10, 210), torch.tensor([3])])
    masks = []
    for seed in range(100):
        new = noised(ids, seeded_generator(seed), vocab=VOCAB, noises=["text infilling"])
        rest = new[new != MASK]
        assert len(rest) == 2 + 140, "0.3 of 200 tokens are covered"
        assert torch.equal(rest, rest.sort().values[[0, *range(2, 142), 1]]), (
            "the order has changed"
        )
        masks.append(int((new == MASK).sum()))
    assert sum(masks) / 100 == pytest.approx(60 / 3, abs=1.0) and len(set(masks)) > 3


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**31),
    t=st.integers(1, 20),
    name=st.sampled_from(sorted(NOISES)),
    padding=st.integers(0, 3),
)
def test_properties(seed: int, t: int, name: str, padding: int) -> None:
    text = torch.randint(5, 12, (t,), generator=seeded_generator(seed))
    ids = torch.cat(
        [torch.tensor([2]), text, torch.tensor([3]), torch.zeros(padding, dtype=torch.int64)]
    )
    if t > 4 and seed % 3 == 0:
        ids[t // 2] = 3  # two documents in one row
    before = ids.clone()
    new = noised(ids, seeded_generator(seed), vocab=VOCAB, noises=[name], ends=[STOP])
    assert torch.equal(ids, before), "the input was written to"
    assert torch.equal(
        new, noised(ids, seeded_generator(seed), vocab=VOCAB, noises=[name], ends=[STOP])
    )
    special = [i for i in new.tolist() if i < 4]
    assert special == [i for i in ids.tolist() if i < 4], "special tokens or padding were touched"
    assert new[0] == 2 and len(new) <= len(ids)
    counts, old = Counter(new.tolist()), Counter(ids.tolist())
    if name in ("sentence permutation", "document rotation"):
        assert counts == old
        return
    made_up = counts - old
    assert set(made_up) <= {MASK}
    if name == "token deletion":
        assert not made_up and len(new) == len(ids) - (old - counts).total()
    if name == "token masking":
        assert len(new) == len(ids) and torch.equal(new.where(new != MASK, ids), ids)


def test_an_unknown_word_is_text_like_any_other() -> None:
    ids = torch.tensor([2, 10, 1, 11, 3])
    rotate, delete = NOISES["document rotation"], NOISES["token deletion"]
    assert (
        len({tuple(rotate(ids, seeded_generator(s), vocab=VOCAB).tolist()) for s in range(40)}) == 3
    )
    assert {delete(ids, seeded_generator(s), vocab=VOCAB).tolist().count(1) for s in range(40)} == {
        0,
        1,
    }


T5 = Vocab(size=500, pad=0, unk=1, eos=2, special=(0, 1, 2))
SIGNS = list(range(499, 399, -1))
WORDS = ["Thank", "you", "for", "inviting", "me", "to", "your", "party", "last", "week", "."]
TEXT = torch.arange(10, 10 + len(WORDS))


def words(ids: torch.Tensor) -> str:
    names = dict(zip(SIGNS, ["<X>", "<Y>", "<Z>"], strict=False))
    return " ".join(names.get(i) or WORDS[i - 10] for i in ids.tolist()).replace(" .", ".")


def test_the_slides_spans_to_the_letter_and_among_the_draws() -> None:
    marked = mark_spans(TEXT, [(2, 2), (8, 1)], SIGNS)
    assert words(marked.input) == "Thank you <X> me to your party <Y> week."
    assert words(marked.target) == "<X> for inviting <Y> last <Z>"
    assert words(restore(*marked, SIGNS)) == "Thank you for inviting me to your party last week."
    drawn = Counter(
        words(
            span_corruption(
                TEXT, seeded_generator(seed), vocab=T5, sentinels=SIGNS, rate=3 / 11, mean=1.5
            ).input
        )
        for seed in range(1500)
    )
    # 9 gaps between 8 kept tokens, two of them taken, and 3 = 1 + 2 or 2 + 1.
    assert len(drawn) == 72 and words(marked.input) in drawn
    assert max(drawn.values()) < 1500 / 72 + 5 * math.sqrt(1500 / 72)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**31),
    t=st.integers(0, 40),
    rate=st.floats(0, 1),
    mean=st.floats(1, 5),
    end=st.booleans(),
)
def test_input_and_target_hold_every_token_once(
    seed: int, t: int, rate: float, mean: float, end: bool
) -> None:
    text = torch.randint(3, 300, (t,), generator=seeded_generator(seed))
    if t > 4 and seed % 3 == 0:
        text[t // 2] = 2  # a special token within
    ids = torch.cat([text, torch.tensor([2] if end else [], dtype=torch.int64)])
    before = ids.clone()
    source, target = span_corruption(
        ids, seeded_generator(seed), vocab=T5, sentinels=SIGNS, rate=rate, mean=mean
    )
    assert torch.equal(ids, before), "the input was written to"
    assert torch.equal(restore(source, target, SIGNS), ids)
    again = span_corruption(
        ids, seeded_generator(seed), vocab=T5, sentinels=SIGNS, rate=rate, mean=mean
    )
    assert torch.equal(again.input, source) and torch.equal(again.target, target)
    assert source.tolist().count(2) == ids.tolist().count(2) and target.tolist().count(2) == int(
        ids[-1:].eq(2).any()
    )
    flags = [i in SIGNS for i in source.tolist()]
    assert not any(a and b for a, b in pairwise(flags)), "two spans touch"


def test_a_prefix_and_its_continuation() -> None:
    seen = set()
    for seed in range(300):
        source, target = prefix_lm(
            torch.cat([TEXT, torch.tensor([2])]), seeded_generator(seed), vocab=T5
        )
        assert source[-1] == 2 and target[-1] == 2
        seen.add((words(source[:-1]), words(target[:-1])))
    assert ("Thank you for inviting me", "to your party last week.") in seen and len(seen) == 10
    assert torch.equal(torch.cat(prefix_lm(TEXT, seeded_generator(0), vocab=T5)), TEXT)


def test_a_vocabulary_gets_sentinels() -> None:
    tokenizer = train_wordpiece(["thank you for the party"] * 3, 60)
    more = add_sentinels(tokenizer, 5)
    assert more.vocab.sentinels == tuple(range(tokenizer.vocab.size, tokenizer.vocab.size + 5))
    assert set(more.vocab.sentinels) < set(more.vocab.special)
    assert more.encode("thank you").ids == tokenizer.encode("thank you").ids
    assert more.tokens(more.vocab.sentinels[:2]) == ["<extra_id_0>", "<extra_id_1>"]
    assert len(tokenizer) == len(more) - 5, "the old tokenizer has changed"
    with pytest.raises(CourseError, match="add_sentinels"):
        span_corruption(TEXT, seeded_generator(0), vocab=tokenizer.vocab)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: noised(read("AB."), seeded_generator(0), vocab=VOCAB), "ends"),
        (
            lambda: noised(
                read("AB."), seeded_generator(0), vocab=Vocab(20), noises=["token masking"]
            ),
            "mask token",
        ),
        (lambda: mark_spans(torch.arange(9), [(1, 1), (3, 1)], SIGNS[:2]), "need 3 sentinels"),
        (lambda: prefix_lm(torch.tensor([10, 2]), seeded_generator(0), vocab=T5), "fewer than two"),
    ],
)
def test_bad_input_is_one_sentence(call, says: str) -> None:
    with pytest.raises(CourseError, match=says):
        call()
