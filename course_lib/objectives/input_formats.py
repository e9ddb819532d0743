"""How the sentences of documents become rows: next-sentence pairs, and the four input formats that
RoBERTa compares.

    segment-pair     [CLS] A [SEP] B [SEP], several sentences each, with next-sentence prediction
    sentence-pair    the same with one sentence each
    full-sentences   [CLS] sentences [SEP], packed to the full length, on into the next document
    doc-sentences    the same, but a document's end ends the row

(Liu et al. 2019, section 4.2.) Here a sentence is a list of token ids, and a document a list of
sentences."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from typing import Any, Literal, NamedTuple, get_args

import torch

from course_lib.errors import CourseError
from course_lib.vocab import IGNORE, Vocab

Document = Sequence[Sequence[int]]  # sentences of token ids
Format = Literal["segment-pair", "sentence-pair", "full-sentences", "doc-sentences"]


@dataclass(frozen=True)
class InputRow:
    """One row. segments: 0 up to the first [SEP] of a pair, 1 behind it. next: 0 = the second part
    followed the first, 1 = it is from another document, -100 = not a pair."""

    ids: list[int]
    segments: list[int]
    next: int = IGNORE

    def __len__(self) -> int:
        return len(self.ids)


def input_rows(
    documents: Sequence[Document],
    rng: torch.Generator,
    *,
    vocab: Vocab,
    format: Format,
    length: int = 512,
) -> list[InputRow]:
    """The rows of one pass over documents in one of the four formats, in the documents' order.
    length: most tokens in a row, specials included."""
    if format not in get_args(Format):
        raise CourseError(
            f"There is no input format {format!r}; there are {', '.join(get_args(Format))}."
        )
    if format in ("full-sentences", "doc-sentences"):
        return packed_sentences(
            documents, vocab=vocab, length=length, across=format == "full-sentences"
        )
    if format == "segment-pair":
        return segment_pairs(documents, rng, vocab=vocab, length=length)
    # short rows; one for two sentences: as many tokens as the other formats
    frame = _Frame(vocab, length, specials=3)
    pairs = nsp_pairs(documents, rng, n=sum(map(len, documents)) // 2)
    return [frame.pair(list(first), list(second), follows) for first, second, follows in pairs]


def packed_sentences(
    documents: Sequence[Document], *, vocab: Vocab, length: int = 512, across: bool = True
) -> list[InputRow]:
    """Full-sentences or doc-sentences: as many whole sentences a row as fit, every token in exactly
    one row. across: where a document ends, a row goes on with the next one, behind one more
    [SEP]."""
    frame = _Frame(vocab, length, specials=2)
    rows: list[InputRow] = []
    row: list[int] = []
    for document in documents:
        opening = [frame.sep] if row else []
        for sentence in _cut(document, frame.room):
            if len(row) + len(opening) + len(sentence) > frame.room:
                rows.append(frame.single(row))
                row, opening = [], []
            row, opening = [*row, *opening, *sentence], []
        if row and not across:
            rows.append(frame.single(row))
            row = []
    return [*rows, frame.single(row)] if row else rows


def segment_pairs(
    documents: Sequence[Document],
    rng: torch.Generator,
    *,
    vocab: Vocab,
    length: int = 512,
    short: float = 0.1,
) -> list[InputRow]:
    """BERT's own rows (Devlin et al. 2019, A.2): as many sentences of a document as fit are cut in
    two behind a random one. In half of the rows another document's stand in for the second part,
    which comes again in the next row. short: share of the rows of a random shorter length."""
    frame, full = _Frame(vocab, length, specials=3), _for_pairs(documents)
    rows = []
    for here, document in enumerate(full):
        sentences, first = _cut(document, frame.room - 1), 0
        while first < len(sentences):
            room = frame.room
            if _draw(rng, 1000) < 1000 * short:
                room = 2 + _draw(rng, frame.room - 1)
            fitting = _fitting(sentences[first:], room)
            cut = 1 + _draw(rng, fitting - 1) if fitting > 1 else 1
            a = [t for sentence in sentences[first : first + cut] for t in sentence]
            true = bool(fitting > 1 and _draw(rng, 2))
            if true:
                b = [t for sentence in sentences[first + cut : first + fitting] for t in sentence]
            else:
                other = full[(here + 1 + _draw(rng, len(full) - 1)) % len(full)]
                start = _draw(rng, len(other))
                b = [t for s in other[start:][: _fitting(other[start:], room - len(a))] for t in s]
            rows.append(frame.pair(a, b[: frame.room - len(a)], int(not true)))
            first += fitting if true else cut
    return rows


class SentencePair(NamedTuple):
    """Two sentences, texts or token ids. next: 0 = the second followed the first, 1 = it is from
    another document.
    """

    text: Any
    pair: Any
    next: int


def nsp_pairs(
    documents: Sequence[Sequence[Any]], rng: torch.Generator, *, n: int
) -> list[SentencePair]:
    """n sentence pairs for next-sentence prediction (Devlin et al. 2019, section 3.1), in random
    order: n // 2 of them two neighbouring sentences of one document, the others with the second one
    from another document."""
    full = _for_pairs(documents)
    long = [d for d, document in enumerate(full) if len(document) > 1]
    truth = (torch.randperm(n, generator=rng) < n // 2).tolist()
    pairs = []
    for true in truth:
        place = long[_draw(rng, len(long))]
        here = full[place]
        first = _draw(rng, len(here) - 1)
        if true:
            pairs.append(SentencePair(here[first], here[first + 1], 0))
        else:
            # any document but this one
            there = full[(place + 1 + _draw(rng, len(full) - 1)) % len(full)]
            pairs.append(SentencePair(here[first], there[_draw(rng, len(there))], 1))
    return pairs


def _draw(rng: torch.Generator, below: int) -> int:
    return int(torch.randint(2**62, (1,), generator=rng)) % below


class _Frame:
    """[CLS] and [SEP] around one part or two."""

    def __init__(self, vocab: Vocab, length: int, specials: int) -> None:
        if vocab.cls is None or vocab.sep is None:
            raise CourseError(
                "The input formats need a vocabulary with [CLS] and [SEP]; this tokenizer has none."
            )
        self.cls, self.sep, self.room = vocab.cls, vocab.sep, length - specials

    def single(self, ids: Sequence[int]) -> InputRow:
        return InputRow([self.cls, *ids, self.sep], [0] * (len(ids) + 2))

    def pair(self, a: list[int], b: list[int], follows: int) -> InputRow:
        """The longer part loses its end until both fit."""
        over = len(a) + len(b) - self.room
        if over > 0:
            keep_a = min(len(a), max(self.room // 2, self.room - len(b)))
            a, b = a[:keep_a], b[: self.room - keep_a]
        whole = [self.cls, *a, self.sep, *b, self.sep]
        return InputRow(whole, [0] * (len(a) + 2) + [1] * (len(b) + 1), follows)


def _for_pairs(documents: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """The documents that have sentences."""
    full = [document for document in documents if len(document)]
    if len(full) < 2 or all(len(document) < 2 for document in full):
        raise CourseError(
            "Pairs need at least two documents, one of them with two sentences; there are"
            f" {len(full)}."
        )
    return full


def _cut(document: Document, room: int) -> list[Sequence[int]]:
    """The sentences, those longer than `room` in pieces."""
    return [sentence[i : i + room] for sentence in document for i in range(0, len(sentence), room)]


def _fitting(sentences: Sequence[Sequence[int]], room: int) -> int:
    """How many sentences from the first one on fit into `room` tokens, at least one."""
    ends = accumulate(map(len, sentences))
    return max(1, sum(1 for _ in takewhile(lambda end: end <= room, ends)))
