"""How the sentences of documents become rows: next-sentence pairs, and RoBERTa's input formats.

    segment-pair     [CLS] A [SEP] B [SEP], several sentences each, with next-sentence prediction
    sentence-pair    the same with one sentence each
    full-sentences   [CLS] sentences [SEP], packed to the full length, on into the next document
    doc-sentences    the same, but a document's end ends the row

RoBERTa compares these four (Liu et al. 2019, section 4.2). Here a sentence is a list of token ids,
and a document a list of sentences.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, takewhile
from typing import Any, Literal, NamedTuple, get_args

import torch

from course_lib.errors import CourseError
from course_lib.vocab import IGNORE, Vocab

Document = Sequence[Sequence[int]]  # sentences of token ids
Format = Literal["segment-pair", "sentence-pair", "full-sentences", "doc-sentences"]


@dataclass(frozen=True)
class InputRow:
    """One row of a batch.

    Attributes:
        ids: the tokens, specials included.
        segments: 0 up to the first [SEP] of a pair, 1 after it.
        next: 0 = the second part followed the first, 1 = it is from another document, -100 = not a
            pair.
    """

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

    Args:
        documents: sentences of token ids.
        rng: of the pairs; packed rows draw nothing.
        vocab: has [CLS] and [SEP].
        format: one of the four.
        length: most tokens in a row, specials included.

    Raises:
        CourseError: there is no such format, or the vocabulary lacks the special tokens.
    """
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
    # One row for every two sentences: as many tokens in all as the other formats have.
    frame = _Frame(vocab, length, specials=3)
    pairs = nsp_pairs(documents, rng, n=sum(map(len, documents)) // 2)
    return [frame.pair(list(first), list(second), follows) for first, second, follows in pairs]


def packed_sentences(
    documents: Sequence[Document], *, vocab: Vocab, length: int = 512, across: bool = True
) -> list[InputRow]:
    """Full-sentences or doc-sentences: as many whole sentences a row as fit.

    Every token is in exactly one row.

    Args:
        documents: sentences of token ids.
        vocab: has [CLS] and [SEP].
        length: most tokens in a row, specials included.
        across: continue with the next document in the same row, after one more [SEP].
    """
    frame = _Frame(vocab, length, specials=2)
    rows: list[InputRow] = []
    row: list[int] = []
    for document in documents:
        # In the middle of a row a document begins after a [SEP].
        opening = [frame.sep] if row else []
        for sentence in _cut(document, frame.room):
            if len(row) + len(opening) + len(sentence) > frame.room:  # the row is full
                rows.append(frame.single(row))
                row = []
                opening = []
            row = [*row, *opening, *sentence]
            opening = []
        if row and not across:
            rows.append(frame.single(row))
            row = []
    if row:
        rows.append(frame.single(row))
    return rows


def segment_pairs(
    documents: Sequence[Document],
    rng: torch.Generator,
    *,
    vocab: Vocab,
    length: int = 512,
    short: float = 0.1,
) -> list[InputRow]:
    """BERT's own rows (Devlin et al. 2019, appendix A.2): two parts of several sentences each.

    As many sentences of a document as fit are cut in two after a random one. In half of the rows
    sentences of another document take the place of the second part; it then begins the next row.

    Args:
        documents: sentences of token ids.
        rng: of the draws.
        vocab: has [CLS] and [SEP].
        length: most tokens in a row, specials included.
        short: share of the rows that have a random shorter length.
    """
    frame = _Frame(vocab, length, specials=3)
    non_empty = _for_pairs(documents)
    rows = []
    for number, document in enumerate(non_empty):
        sentences = _cut(document, frame.room - 1)
        first = 0  # the sentence that the next row begins with
        while first < len(sentences):
            room = frame.room
            if _draw(rng, 1000) < 1000 * short:
                room = 2 + _draw(rng, frame.room - 1)
            fitting = _fitting(sentences[first:], room)
            cut = 1 + _draw(rng, fitting - 1) if fitting > 1 else 1
            a = _tokens(sentences[first : first + cut])
            follows = bool(fitting > 1 and _draw(rng, 2))
            if follows:
                b = _tokens(sentences[first + cut : first + fitting])
            else:
                other = non_empty[_another(number, len(non_empty), rng)]
                rest = other[_draw(rng, len(other)) :]
                b = _tokens(rest[: _fitting(rest, room - len(a))])
            rows.append(frame.pair(a, b[: frame.room - len(a)], 0 if follows else 1))
            first += fitting if follows else cut
    return rows


class SentencePair(NamedTuple):
    """Two sentences, texts or token ids, and whether the second followed the first."""

    text: Any
    pair: Any
    next: int  # 0 = it followed, 1 = it is from another document


def nsp_pairs(
    documents: Sequence[Sequence[Any]], rng: torch.Generator, *, n: int
) -> list[SentencePair]:
    """Sentence pairs for next-sentence prediction (Devlin et al. 2019, section 3.1).

    In n // 2 of them the second sentence followed the first; in the others it is from another
    document. They come in random order.

    Args:
        documents: sentences, texts or token ids.
        rng: of the draws.
        n: how many pairs.
    """
    non_empty = _for_pairs(documents)
    long = [number for number, document in enumerate(non_empty) if len(document) > 1]
    truth = (torch.randperm(n, generator=rng) < n // 2).tolist()
    pairs = []
    for follows in truth:
        number = long[_draw(rng, len(long))]
        document = non_empty[number]
        first = _draw(rng, len(document) - 1)
        if follows:
            pairs.append(SentencePair(document[first], document[first + 1], 0))
        else:
            other = non_empty[_another(number, len(non_empty), rng)]
            pairs.append(SentencePair(document[first], other[_draw(rng, len(other))], 1))
    return pairs


def _draw(rng: torch.Generator, below: int) -> int:
    """A random number from 0 to `below` - 1."""
    return int(torch.randint(2**62, (1,), generator=rng)) % below


def _another(number: int, count: int, rng: torch.Generator) -> int:
    """The number of any of `count` documents but this one."""
    return (number + 1 + _draw(rng, count - 1)) % count


def _tokens(sentences: Sequence[Sequence[int]]) -> list[int]:
    """Sentences end to end."""
    return list(chain.from_iterable(sentences))


class _Frame:
    """[CLS] and [SEP] around one part or two."""

    def __init__(self, vocab: Vocab, length: int, specials: int) -> None:
        if vocab.cls is None or vocab.sep is None:
            raise CourseError(
                "The input formats need a vocabulary with [CLS] and [SEP]; this tokenizer has none."
            )
        self.cls = vocab.cls
        self.sep = vocab.sep
        self.room = length - specials  # tokens of text

    def single(self, ids: Sequence[int]) -> InputRow:
        """One part."""
        return InputRow([self.cls, *ids, self.sep], [0] * (len(ids) + 2))

    def pair(self, a: list[int], b: list[int], follows: int) -> InputRow:
        """Two parts; the longer one loses its end until both fit."""
        if len(a) + len(b) > self.room:
            keep_a = min(len(a), max(self.room // 2, self.room - len(b)))
            a = a[:keep_a]
            b = b[: self.room - keep_a]
        ids = [self.cls, *a, self.sep, *b, self.sep]
        segments = [0] * (len(a) + 2) + [1] * (len(b) + 1)
        return InputRow(ids, segments, follows)


def _for_pairs(documents: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """The documents that have sentences; a `CourseError` if they are too few for pairs."""
    full = [document for document in documents if len(document)]
    if len(full) < 2 or all(len(document) < 2 for document in full):
        raise CourseError(
            "Pairs need at least two documents, one of them with two sentences; there are"
            f" {len(full)}."
        )
    return full


def _cut(document: Document, room: int) -> list[Sequence[int]]:
    """The sentences, those longer than `room` in pieces."""
    pieces = []
    for sentence in document:
        for start in range(0, len(sentence), room):
            pieces.append(sentence[start : start + room])
    return pieces


def _fitting(sentences: Sequence[Sequence[int]], room: int) -> int:
    """How many sentences from the first one on fit into `room` tokens, at least one."""
    ends = accumulate(map(len, sentences))
    return max(1, sum(1 for _ in takewhile(lambda end: end <= room, ends)))
