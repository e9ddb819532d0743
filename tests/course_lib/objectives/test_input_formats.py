"""Next-sentence pairs and RoBERTa's four input formats: what stands in a row, and what is lost
(nothing).
"""

import math
from collections import Counter
from itertools import pairwise

import pytest
import torch

from course_lib.errors import CourseError
from course_lib.objectives import input_rows, nsp_pairs, packed_sentences, seeded_generator
from course_lib.objectives.input_formats import segment_pairs
from course_lib.vocab import IGNORE, Vocab

CLS, SEP = 2, 3
VOCAB = Vocab(size=10**6, pad=0, unk=1, cls=CLS, sep=SEP, mask=4, special=(0, 1, 2, 3, 4))
LENGTH = 40


def documents(n: int = 30, most: int = 20) -> list[list[list[int]]]:
    """Every token is new: 10,000 * document + place, 10 and up; sentences of 1 to 12 tokens."""
    draw = seeded_generator(0)
    made = []
    for d in range(n):
        sizes = torch.randint(
            1, 13, (int(torch.randint(1, most + 1, (1,), generator=draw)),), generator=draw
        )
        ends = (10_000 * (d + 1) + sizes.cumsum(0)).tolist()
        made.append(
            [list(range(end - size, end)) for end, size in zip(ends, sizes.tolist(), strict=True)]
        )
    return made


def text(row) -> list[int]:
    return [t for t in row.ids if t > 4]


@pytest.mark.parametrize("across", [True, False])
def test_packed_rows_hold_every_sentence_whole_and_once(across: bool) -> None:
    docs = documents()
    rows = packed_sentences(docs, vocab=VOCAB, length=LENGTH, across=across)
    assert [t for row in rows for t in text(row)] == [t for d in docs for s in d for t in s]
    sizes = {s[0]: len(s) for d in docs for s in d}
    for row in rows:
        assert row.ids[0] == CLS and row.ids[-1] == SEP and len(row.ids) <= LENGTH
        assert text(row)[0] in sizes, "a sentence was cut"
        assert row.next == IGNORE and set(row.segments) == {0} and len(row.segments) == len(row.ids)
        # A separator stands between two documents and nowhere else.
        assert across or row.ids.count(SEP) == 1
        assert row.ids.count(SEP) == len({t // 10_000 for t in text(row)})
    # Greedy: no row could have taken the next row's first sentence as well.
    for row, after in pairwise(rows):
        first = text(after)[0]
        same = text(row)[-1] // 10_000 == first // 10_000
        if across or same:
            assert len(row.ids) + (0 if same else 1) + sizes[first] > LENGTH


def test_a_sentence_longer_than_a_row_is_cut_and_not_lost() -> None:
    rows = packed_sentences([[list(range(10, 110))]], vocab=VOCAB, length=LENGTH)
    assert [t for row in rows for t in text(row)] == list(range(10, 110))
    assert [len(row.ids) for row in rows] == [40, 40, 26]


def parts(row) -> tuple[list[int], list[int]]:
    cut = row.ids.index(SEP)
    assert row.ids[0] == CLS and row.ids[-1] == SEP and row.ids.count(SEP) == 2
    assert row.segments == [0] * (cut + 1) + [1] * (len(row.ids) - cut - 1)
    return row.ids[1:cut], row.ids[cut + 1 : -1]


def test_segment_pairs_fill_the_row_and_are_true_in_half_of_the_cases() -> None:
    docs = documents(20, 200)
    rows = segment_pairs(docs, seeded_generator(1), vocab=VOCAB, length=LENGTH, short=0.0)
    several = 0
    for row in rows:
        a, b = parts(row)
        assert a and b and len(row.ids) <= LENGTH
        assert a == list(range(a[0], a[0] + len(a))) and b == list(range(b[0], b[0] + len(b)))
        assert row.next == int(b[0] != a[-1] + 1) and (a[0] // 10_000 == b[0] // 10_000) == (
            row.next == 0
        )
        several += len(a) > 12 or len(b) > 12  # more than one sentence
    n = len(rows)
    assert abs(sum(row.next for row in rows) / n - 0.5) < 4 * math.sqrt(0.25 / n)
    assert several > n / 2 and sum(len(row.ids) for row in rows) / n > 0.75 * LENGTH
    firsts = sorted(
        t for row in rows for t in (parts(row)[0] + (parts(row)[1] if row.next == 0 else []))
    )
    assert firsts == [t for d in docs for s in d for t in s], (
        "what gave way to a random part must come again"
    )
    short = segment_pairs(docs, seeded_generator(1), vocab=VOCAB, length=LENGTH, short=1.0)
    assert (
        sum(len(row.ids) for row in short) / len(short)
        < 0.75 * sum(len(row.ids) for row in rows) / n
    )


def test_sentence_pairs_are_single_sentences() -> None:
    docs = documents()
    sentences = {
        tuple(s): (d, i) for d, document in enumerate(docs) for i, s in enumerate(document)
    }
    rows = input_rows(docs, seeded_generator(0), vocab=VOCAB, format="sentence-pair", length=LENGTH)
    assert len(rows) == len(sentences) // 2 and sum(row.next == 0 for row in rows) == len(rows) // 2
    for row in rows:
        (d, i), (e, j) = (sentences[tuple(part)] for part in parts(row))
        assert ((e, j) == (d, i + 1)) if row.next == 0 else e != d


def test_a_pair_that_is_too_long_loses_the_longer_parts_end() -> None:
    docs = [
        [list(range(10, 40)), list(range(40, 45))],
        [list(range(50, 90)), list(range(90, 130))],
    ] * 9
    for row in input_rows(
        docs, seeded_generator(0), vocab=VOCAB, format="sentence-pair", length=21
    ):
        a, b = parts(row)
        assert len(row.ids) == 21 and (len(a), len(b)) == ((9, 9) if b[0] != 40 else (13, 5))


def test_half_of_the_next_sentence_pairs_are_neighbours_and_half_from_another_document() -> None:
    docs = [[f"{d}.{s}" for s in range(length)] for d, length in enumerate([6, 1, 4, 9, 2, 0])]
    pairs = nsp_pairs(docs, seeded_generator(3), n=1000)
    assert sum(pair.next == 0 for pair in pairs) == 500
    for pair in pairs:
        (d, s), (e, r) = (map(int, text.split(".")) for text in (pair.text, pair.pair))
        assert (e, r) == (d, s + 1) if pair.next == 0 else e != d
    assert min(Counter(pair.next for pair in pairs[:100]).values()) > 20, (
        "true and false pairs are not mixed"
    )
    assert {pair.pair.split(".")[0] for pair in pairs if pair.next} == {"0", "1", "2", "3", "4"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "poem"}, "no input format 'poem'"),
        ({"vocab": Vocab(9), "format": "full-sentences"}, "CLS"),
        ({"documents": documents()[:1]}, "at least two documents"),
        ({"documents": [[[9]], [[10]]], "format": "sentence-pair"}, "at least two documents"),
    ],
)
def test_bad_input_is_one_sentence(change: dict[str, object], words: str) -> None:
    given = {
        "documents": documents(),
        "rng": seeded_generator(0),
        "vocab": VOCAB,
        "format": "segment-pair",
    }
    with pytest.raises(CourseError, match=words):
        input_rows(**(given | change))  # type: ignore[arg-type]
