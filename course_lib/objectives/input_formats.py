"""Four ways to put the sentences of documents into rows, which RoBERTa compares.

BERT reads rows of two parts, A and B, and predicts whether B follows A in the document (next-
sentence prediction). RoBERTa found that it does as well without. Its four formats (Liu et al. 2019,
section 4.2), with two documents of the sentences a b c and x y:

    segment-pair      [CLS] a b [SEP] c [SEP]              A and B are several sentences each
    sentence-pair     [CLS] a [SEP] b [SEP]                A and B are one sentence each
    full-sentences    [CLS] a b c [SEP] x y [SEP]          as many sentences as fit, no prediction
    doc-sentences     [CLS] a b c [SEP]   [CLS] x y [SEP]  the same, for one document only

A sentence is a list of token ids, and a document a list of sentences.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
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
        ids: the token ids, special tokens included.
        segments: for each token, 0 in the first part (with its [SEP]) and 1 in the second.
        next: 0 = the second part follows the first in its document, 1 = it is from another
            document, -100 = the row is no pair.
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
    """Put documents into rows in one of the four formats, in the documents' order.

    Args:
        documents: lists of sentences.
        rng: random generator; only the formats with pairs use it.
        vocab: a vocabulary with [CLS] and [SEP].
        format: the name of the format.
        length: maximum number of tokens in a row, special tokens included.

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
    # One row for every two sentences gives about as many tokens as the other formats.
    frame = _Frame(vocab, length, specials=3)
    pairs = nsp_pairs(documents, rng, n=sum(map(len, documents)) // 2)
    return [frame.pair(list(first), list(second), follows) for first, second, follows in pairs]


def packed_sentences(
    documents: Sequence[Document], *, vocab: Vocab, length: int = 512, across: bool = True
) -> list[InputRow]:
    """Full-sentences or doc-sentences: each row has as many whole sentences as fit.

    Every token is in exactly one row.

    Args:
        documents: lists of sentences.
        vocab: a vocabulary with [CLS] and [SEP].
        length: maximum number of tokens in a row, special tokens included.
        across: full-sentences: the next document continues in the same row, after one more [SEP].
            Otherwise it starts a new row.
    """
    frame = _Frame(vocab, length, specials=2)
    rows: list[InputRow] = []
    row: list[int] = []
    for document in documents:
        # In the middle of a row a document starts after a [SEP].
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

    Take as many sentences of a document as fit, and cut them in two at a random sentence. In half
    of the rows, replace the second part by sentences of another document. The sentences that were
    replaced are not lost: the next row starts with them.

    Args:
        documents: lists of sentences.
        rng: random generator.
        vocab: a vocabulary with [CLS] and [SEP].
        length: maximum number of tokens in a row, special tokens included.
        short: share of the rows that get a random shorter length, because a fine-tuned model reads
            short texts, too.
    """
    frame = _Frame(vocab, length, specials=3)
    non_empty = _for_pairs(documents)
    rows = []
    for number, document in enumerate(non_empty):
        sentences = _cut(document, frame.room - 1)  # one token is left for the second part
        first = 0  # the number of the sentence that the next row starts with
        while first < len(sentences):
            room = frame.room
            if _draw(rng, 1000) < 1000 * short:
                # At least 2 tokens, one for each part.
                room = 2 + _draw(rng, frame.room - 1)
            fitting = _fitting(sentences[first:], room)
            cut = 1 + _draw(rng, fitting - 1) if fitting > 1 else 1
            a = _tokens(sentences[first : first + cut])
            follows = bool(fitting > 1 and _draw(rng, 2))
            if follows:
                b = _tokens(sentences[first + cut : first + fitting])
            else:
                other = non_empty[_another(number, len(non_empty), rng)]
                rest = other[_draw(rng, len(other)) :]  # from a random sentence on
                b = _tokens(rest[: _fitting(rest, room - len(a))])
            rows.append(frame.pair(a, b[: frame.room - len(a)], 0 if follows else 1))
            first += fitting if follows else cut
    return rows


class SentencePair(NamedTuple):
    """Two sentences (texts or token ids) for next-sentence prediction."""

    text: Any
    pair: Any
    next: int  # 0 = `pair` follows `text` in its document, 1 = it is from another document


def nsp_pairs(
    documents: Sequence[Sequence[Any]], rng: torch.Generator, *, n: int
) -> list[SentencePair]:
    """Draw sentence pairs for next-sentence prediction (Devlin et al. 2019, section 3.1).

    In n // 2 of them the second sentence follows the first; in the others it is from another
    document. They are in random order.

    Args:
        documents: lists of sentences; a sentence is a text or a list of token ids.
        rng: random generator.
        n: number of pairs.
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
    # The remainder of a number that is so much larger than `below` is as good as uniform.
    return int(torch.randint(2**62, (1,), generator=rng)) % below


def _another(number: int, count: int, rng: torch.Generator) -> int:
    """The number of a random document, but not this one."""
    # Go 1 to count - 1 documents further; after the last one comes the first.
    return (number + 1 + _draw(rng, count - 1)) % count


def _tokens(sentences: Sequence[Sequence[int]]) -> list[int]:
    """The tokens of several sentences in one list."""
    return list(chain.from_iterable(sentences))


class _Frame:
    """Puts [CLS] and [SEP] around one part or two.

    Args:
        vocab: a vocabulary with [CLS] and [SEP].
        length: maximum number of tokens in a row.
        specials: number of special tokens in a row: 2 for one part, 3 for a pair.
    """

    def __init__(self, vocab: Vocab, length: int, specials: int) -> None:
        if vocab.cls is None or vocab.sep is None:
            raise CourseError(
                "The input formats need a vocabulary with [CLS] and [SEP]; this tokenizer has none."
            )
        self.cls = vocab.cls
        self.sep = vocab.sep
        self.room = length - specials  # number of tokens of text that fit

    def single(self, ids: Sequence[int]) -> InputRow:
        """A row of one part: [CLS] ids [SEP]."""
        return InputRow([self.cls, *ids, self.sep], [0] * (len(ids) + 2))

    def pair(self, a: list[int], b: list[int], follows: int) -> InputRow:
        """A row of two parts: [CLS] a [SEP] b [SEP]. If they do not fit, the longer part is cut."""
        if len(a) + len(b) > self.room:
            keep_a = min(len(a), max(self.room // 2, self.room - len(b)))
            a = a[:keep_a]
            b = b[: self.room - keep_a]
        ids = [self.cls, *a, self.sep, *b, self.sep]
        segments = [0] * (len(a) + 2) + [1] * (len(b) + 1)
        return InputRow(ids, segments, follows)


def _for_pairs(documents: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """The documents that are not empty; an error if there are too few to make pairs."""
    full = [document for document in documents if len(document)]
    if len(full) < 2 or all(len(document) < 2 for document in full):
        raise CourseError(
            "Pairs need at least two documents, one of them with two sentences; there are"
            f" {len(full)}."
        )
    return full


def _cut(document: Document, room: int) -> list[Sequence[int]]:
    """The sentences of a document; one of more than `room` tokens becomes several."""
    sentences = []
    for sentence in document:
        for start in range(0, len(sentence), room):
            sentences.append(sentence[start : start + room])
    return sentences


def _fitting(sentences: Sequence[Sequence[int]], room: int) -> int:
    """How many sentences, counted from the first, fit into `room` tokens; at least 1."""
    total = 0
    for count, sentence in enumerate(sentences):
        total += len(sentence)
        if total > room:
            return max(1, count)
    return max(1, len(sentences))
