"""RoBERTa's four input formats: what stands in a row, what is lost (nothing), and the batches made of them."""

import math
from itertools import pairwise

import pytest
import torch

from course_lib.corrupt import IGNORE, generator, input_rows, packed_sentences, segment_pairs, sentence_pairs
from course_lib.data.formats import FormatBatches
from course_lib.errors import CourseError
from course_lib.tokenizers import Vocab, train_bpe, train_wordpiece

CLS, SEP = 2, 3
VOCAB = Vocab(size=10**6, pad=0, unk=1, cls=CLS, sep=SEP, mask=4, special=(0, 1, 2, 3, 4))
LENGTH = 40


def documents(n: int = 30, most: int = 20, seed: int = 0) -> list[list[list[int]]]:
    """Every token is new: 10,000 * document + place, 10 and up; sentences of 1 to 12 tokens."""
    draw = generator(seed)
    made = []
    for d in range(n):
        token = 10_000 * (d + 1)
        document = []
        for _ in range(int(torch.randint(1, most + 1, (1,), generator=draw))):
            size = int(torch.randint(1, 13, (1,), generator=draw))
            document.append(list(range(token, token + size)))
            token += size
        made.append(document)
    return made


def text(row) -> list[int]:
    return [t for t in row.ids if t > 4]


@pytest.mark.parametrize("across", [True, False])
def test_packed_rows_hold_every_sentence_whole_and_once(across: bool) -> None:
    docs = documents()
    rows = packed_sentences(docs, vocab=VOCAB, length=LENGTH, across=across)
    assert [t for row in rows for t in text(row)] == [t for d in docs for s in d for t in s]
    starts = {s[0] for d in docs for s in d}
    for row in rows:
        assert row.ids[0] == CLS and row.ids[-1] == SEP and len(row.ids) <= LENGTH
        assert text(row)[0] in starts, "a sentence was cut"
        assert row.next == IGNORE and set(row.segments) == {0} and len(row.segments) == len(row.ids)
    # Greedy: no row could have taken the next row's first sentence as well.
    sizes = {s[0]: len(s) for d in docs for s in d}
    for row, after in pairwise(rows):
        first = text(after)[0]
        same = text(row)[-1] // 10_000 == first // 10_000
        if across or same:
            assert len(row.ids) + (0 if same else 1) + sizes[first] > LENGTH


def test_a_separator_stands_between_two_documents_and_nowhere_else() -> None:
    docs = documents()
    full = packed_sentences(docs, vocab=VOCAB, length=LENGTH)
    mixed = 0
    for row in full:
        inside = row.ids[1:-1]
        for a, b in pairwise(inside):
            if SEP not in (a, b):
                assert b == a + 1
        for i, token in enumerate(inside):
            if token == SEP:
                mixed += 1
                assert inside[i - 1] // 10_000 != inside[i + 1] // 10_000
    assert mixed > 10
    for row in packed_sentences(docs, vocab=VOCAB, length=LENGTH, across=False):
        assert len({t // 10_000 for t in text(row)}) == 1 and row.ids.count(SEP) == 1


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
    rows = segment_pairs(docs, generator(1), vocab=VOCAB, length=LENGTH, short=0.0)
    several = 0
    for row in rows:
        a, b = parts(row)
        assert a and b and len(row.ids) <= LENGTH
        assert a == list(range(a[0], a[0] + len(a))) and b == list(range(b[0], b[0] + len(b)))
        assert row.next == int(b[0] != a[-1] + 1)
        assert (a[0] // 10_000 == b[0] // 10_000) == (row.next == 0)
        several += len(a) > 12 or len(b) > 12  # more than one sentence
    n = len(rows)
    assert abs(sum(row.next for row in rows) / n - 0.5) < 4 * math.sqrt(0.25 / n)
    assert several > n / 2
    assert sum(len(row.ids) for row in rows) / n > 0.75 * LENGTH
    firsts = sorted(t for row in rows for t in (parts(row)[0] + (parts(row)[1] if row.next == 0 else [])))
    assert firsts == [t for d in docs for s in d for t in s], "what gave way to a random part must come again"
    short = segment_pairs(docs, generator(1), vocab=VOCAB, length=LENGTH, short=1.0)
    assert sum(len(row.ids) for row in short) / len(short) < 0.75 * sum(len(row.ids) for row in rows) / n


def test_sentence_pairs_are_single_sentences() -> None:
    docs = documents()
    sentences = {tuple(s): (d, i) for d, document in enumerate(docs) for i, s in enumerate(document)}
    rows = sentence_pairs(docs, generator(0), vocab=VOCAB, length=LENGTH)
    assert len(rows) == len(sentences) // 2
    assert sum(row.next == 0 for row in rows) == len(rows) // 2
    for row in rows:
        (d, i), (e, j) = (sentences[tuple(part)] for part in parts(row))
        assert ((e, j) == (d, i + 1)) if row.next == 0 else e != d


def test_a_pair_that_is_too_long_loses_the_longer_parts_end() -> None:
    docs = [[list(range(10, 40)), list(range(40, 45))], [list(range(50, 90)), list(range(90, 130))]]
    for row in sentence_pairs(docs, generator(0), vocab=VOCAB, length=21, n=50):
        a, b = parts(row)
        assert len(row.ids) == 21
        assert (len(a), len(b)) == (9, 9) if b[0] != 40 else (len(a), len(b)) == (13, 5)


def test_input_rows_by_name_are_a_function_of_the_generator() -> None:
    docs = documents()
    for name in ("segment-pair", "sentence-pair", "full-sentences", "doc-sentences"):
        rows = input_rows(docs, generator(4), vocab=VOCAB, format=name, length=LENGTH)
        assert rows == input_rows(docs, generator(4), vocab=VOCAB, format=name, length=LENGTH)
    assert docs == documents()
    for call, words in (
        (lambda: input_rows(docs, generator(0), vocab=VOCAB, format="poem"), "no input format 'poem'"),
        (lambda: input_rows(docs, generator(0), vocab=VOCAB, format="segment-pair", length=4), "no room"),
        (lambda: input_rows(docs, generator(0), vocab=Vocab(9), format="full-sentences"), "CLS"),
        (lambda: input_rows(docs[:1], generator(0), vocab=VOCAB, format="segment-pair"), "at least two documents"),
    ):
        with pytest.raises(CourseError, match=words):
            call()


TEXTS = [[f"the baker sells bread number {d} ." for _ in range(3)] + ["a dog sleeps ."] for d in range(8)]
TOKENIZER = train_wordpiece([s for d in TEXTS for s in d], 120)


@pytest.mark.parametrize("name", ["segment-pair", "sentence-pair", "full-sentences", "doc-sentences"])
@pytest.mark.parametrize("unit", ["token", "word", "span"])
def test_batches_for_the_loss(name, unit) -> None:
    source = FormatBatches(TEXTS, TOKENIZER, format=name, length=32, tokens=128, unit=unit)
    first = source[0]
    assert ({"segments", "next"} <= first.keys()) == name.endswith("pair")
    original = first["labels"].where(first["at"], first["ids"])
    assert (original[:, 0] == TOKENIZER.vocab.cls).all()
    assert first["at"].any() and not (first["at"] & ~first["keep"]).any()
    assert all(torch.equal(a, b) for a, b in zip(first.values(), source[0].values(), strict=True))
    rows = sum(len(source[step]["ids"]) for step in range(source.steps))
    assert rows == len(source.rows)


def test_masks_are_new_in_every_epoch() -> None:
    source = FormatBatches(TEXTS[:2], TOKENIZER, format="full-sentences", length=64, rows=9)
    assert source.steps == 1
    ats = [source[epoch]["at"] for epoch in range(3)]
    assert not torch.equal(ats[0], ats[1]) and not torch.equal(ats[1], ats[2])


def test_a_vocabulary_without_masks_is_refused() -> None:
    with pytest.raises(CourseError, match="MASK"):
        FormatBatches(TEXTS, train_bpe(["a"], 300), format="full-sentences", length=32, rows=2)
