"""How the sentences of documents become rows: next-sentence pairs, and the four input formats that RoBERTa compares.

    segment-pair     [CLS] A [SEP] B [SEP], A and B several sentences each, with next-sentence prediction
    sentence-pair    the same with one sentence each
    full-sentences   [CLS] sentences [SEP], packed to the full length, from one document into the next
    doc-sentences    the same, but a document's end ends the row

(Liu et al. 2019, section 4.2.) Here a sentence is a list of token ids, and a document a list of sentences.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import torch

from course_lib.corrupt.base import IGNORE
from course_lib.errors import CourseError

if TYPE_CHECKING:
    from course_lib.tokenizers import Vocab

Sentence = Sequence[int]
Document = Sequence[Sentence]
Format = Literal["segment-pair", "sentence-pair", "full-sentences", "doc-sentences"]


@dataclass(frozen=True)
class InputRow:
    """One row. segments: 0 up to the first [SEP] of a pair, 1 behind it. next: 0 = the second part followed the first,
    1 = it is from another document, -100 = not a pair."""

    ids: list[int]
    segments: list[int]
    next: int = IGNORE


def input_rows(
    documents: Sequence[Document], rng: torch.Generator, *, vocab: "Vocab", format: Format, length: int = 512
) -> list[InputRow]:
    """The rows of one pass over documents in one of the four formats, in the documents' order.

    Args:
        documents: sentences as token ids without special tokens. length: most tokens in a row, specials included.

    Raises:
        CourseError: no such format, no room, a vocabulary without [CLS] and [SEP], too few documents for pairs.
    """
    if format == "segment-pair":
        return segment_pairs(documents, rng, vocab=vocab, length=length)
    if format == "sentence-pair":
        return sentence_pairs(documents, rng, vocab=vocab, length=length)
    if format in get_args(Format):
        return packed_sentences(documents, vocab=vocab, length=length, across=format == "full-sentences")
    raise CourseError(f"There is no input format {format!r}; there are {', '.join(get_args(Format))}.")


def packed_sentences(
    documents: Sequence[Document], *, vocab: "Vocab", length: int = 512, across: bool = True
) -> list[InputRow]:
    """Full-sentences (across) or doc-sentences: as many whole sentences a row as fit, every token in exactly one row.

    across: where a document ends, a row goes on with the next one, behind one more [SEP]. A sentence longer than a row
    is cut.
    """
    frame = _Frame(vocab, length, specials=2)
    rows: list[InputRow] = []
    row: list[int] = []
    for document in documents:
        opening = [frame.sep] if row else []
        for sentence in _cut(document, frame.room):
            if len(row) + len(opening) + len(sentence) > frame.room:
                rows.append(frame.single(row))
                row, opening = [], []
            row = [*row, *opening, *sentence]
            opening = []
        if row and not across:
            rows.append(frame.single(row))
            row = []
    return [*rows, frame.single(row)] if row else rows


def segment_pairs(
    documents: Sequence[Document], rng: torch.Generator, *, vocab: "Vocab", length: int = 512, short: float = 0.1
) -> list[InputRow]:
    """BERT's own rows: two segments of several sentences that fill the length together (Devlin et al. 2019, A.2).

    As many sentences of a document as fit are cut in two behind a random one. In half of the rows another document's
    sentences stand in for the second part, which then comes again in the next row; they are cut where the row is full.
    A single sentence always gets a random second part. So every token of the documents is read in its own place.

    short: so many rows aim at a random shorter length, so that short texts are seen too.
    """
    frame, full = _Frame(vocab, length, specials=3), _filled(documents)
    draw = _draws(rng)
    rows = []
    for here, document in enumerate(full):
        sentences, first = _cut(document, frame.room - 1), 0
        while first < len(sentences):
            room = frame.room
            if next(draw) % 1000 < 1000 * short:
                room = 2 + next(draw) % (frame.room - 1)
            fitting = _fitting(sentences[first:], room)
            cut = 1 + next(draw) % (fitting - 1) if fitting > 1 else 1
            a = [t for sentence in sentences[first : first + cut] for t in sentence]
            true = bool(fitting > 1 and next(draw) % 2)
            if true:
                b = [t for sentence in sentences[first + cut : first + fitting] for t in sentence]
            else:
                other = full[(here + 1 + next(draw) % (len(full) - 1)) % len(full)]
                start = next(draw) % len(other)
                b = [t for s in other[start:][: _fitting(other[start:], room - len(a))] for t in s]
            rows.append(frame.pair(a, b[: frame.room - len(a)], int(not true)))
            first += fitting if true else cut
    return rows


def sentence_pairs(
    documents: Sequence[Document], rng: torch.Generator, *, vocab: "Vocab", length: int = 512, n: int | None = None
) -> list[InputRow]:
    """Pairs of single sentences, half of them neighbours, half from two documents; short rows, so take more of them.

    n: number of rows; one for two sentences by default, so that as many tokens are read as in the other formats.
    """
    frame = _Frame(vocab, length, specials=3)
    count = sum(map(len, documents)) // 2 if n is None else n
    places = _places([len(document) for document in documents], rng, count)
    return [frame.pair(list(documents[d][s]), list(documents[e][r]), follows) for (d, s), (e, r), follows in places]


@dataclass(frozen=True)
class SentencePair:
    """Two stretches of text. `next`: 0 = the second followed the first, 1 = it is from another document."""

    text: str
    pair: str
    next: int


def nsp_pairs(documents: Sequence[Sequence[str]], rng: torch.Generator, *, n: int) -> list[SentencePair]:
    """Sentence pairs for next-sentence prediction (Devlin et al. 2019, section 3.1): half true, half false.

    A true pair is two neighbouring sentences of one document; a false one has its second sentence from
    another document. Exactly half are true (n odd: one fewer), in random order.

    Args:
        documents: each a list of its sentences. rng: where every draw comes from. n: number of pairs.

    Returns: n pairs.

    Raises:
        CourseError: fewer than two non-empty documents, or none with two sentences.
    """
    places = _places([len(document) for document in documents], rng, n)
    return [SentencePair(documents[d][s], documents[e][r], follows) for (d, s), (e, r), follows in places]


Place = tuple[int, int]  # document, sentence


def _places(lengths: Sequence[int], rng: torch.Generator, n: int) -> list[tuple[Place, Place, int]]:
    """n pairs of sentences by their places, and whether the second follows the first (0) or not (1)."""
    if n < 0:
        raise CourseError(f"n is {n}; the number of pairs cannot be negative.")
    full = [d for d, length in enumerate(lengths) if length > 0]
    long = [i for i, d in enumerate(full) if lengths[d] > 1]
    if len(full) < 2 or not long:
        raise CourseError(
            "Next-sentence pairs need at least two documents, one of them with two sentences; "
            f"there are {len(full)} documents, {len(long)} of them long enough."
        )
    truth = (torch.randperm(n, generator=rng) < n // 2).tolist()
    draw, places = _draws(rng), []
    for true in truth:
        i = long[next(draw) % len(long)]
        here = full[i]
        first = next(draw) % (lengths[here] - 1)
        if true:
            places.append(((here, first), (here, first + 1), 0))
        else:
            there = full[(i + 1 + next(draw) % (len(full) - 1)) % len(full)]  # any document but this one
            places.append(((here, first), (there, next(draw) % lengths[there]), 1))
    return places


def _draws(rng: torch.Generator) -> Iterator[int]:
    while True:
        yield int(torch.randint(2**62, (1,), generator=rng))


class _Frame:
    """[CLS] and [SEP] around one part or two."""

    def __init__(self, vocab: "Vocab", length: int, specials: int) -> None:
        if vocab.cls is None or vocab.sep is None:
            raise CourseError("The input formats need a vocabulary with [CLS] and [SEP]; this tokenizer has none.")
        self.cls, self.sep, self.room = vocab.cls, vocab.sep, length - specials
        if self.room < 2:
            raise CourseError(f"Rows of length {length} have no room beside [CLS] and [SEP]; give at least 5.")

    def single(self, ids: Sequence[int]) -> InputRow:
        whole = [self.cls, *ids, self.sep]
        return InputRow(whole, [0] * len(whole))

    def pair(self, a: list[int], b: list[int], follows: int) -> InputRow:
        """The longer part loses its end until both fit."""
        over = len(a) + len(b) - self.room
        if over > 0:
            keep_a = min(len(a), max(self.room // 2, self.room - len(b)))
            a, b = a[:keep_a], b[: self.room - keep_a]
        whole = [self.cls, *a, self.sep, *b, self.sep]
        return InputRow(whole, [0] * (len(a) + 2) + [1] * (len(b) + 1), follows)


def _filled(documents: Sequence[Document]) -> list[Document]:
    full = [document for document in documents if len(document)]
    if len(full) < 2:
        raise CourseError(f"Segment pairs need at least two documents with sentences; there are {len(full)}.")
    return full


def _cut(document: Document, room: int) -> list[Sentence]:
    """The sentences, those longer than `room` in pieces."""
    return [sentence[i : i + room] for sentence in document for i in range(0, len(sentence), room)]


def _fitting(sentences: Sequence[Sentence], room: int) -> int:
    """How many sentences from the first one on fit into `room` tokens, at least one."""
    total, count = 0, 0
    for sentence in sentences:
        total += len(sentence)
        if count and total > room:
            break
        count += 1
    return count
