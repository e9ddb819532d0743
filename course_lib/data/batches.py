"""Batches for training: a plan says which rows come when, an objective what is asked of them.

Every source is a pure function of (seed, step). So training resumes at any step, and all processes
read the same batch.

A batch is a dict of tensors with B rows and T positions:

    ids               Int[B T]
    attention_mask    Bool[B T], True at real tokens; padding is on the right
    segments          Int[B T], the text of a pair that a token belongs to
    labels            Int[B T], -100 = no target
    loss_mask         Bool[B T], the masked positions
    next              Int[B], 0 = the second segment followed the first, 1 = it is from another
                      document, -100 = not a pair
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from course_lib.data.token_store import TokenStore, encode_corpus, pieces
from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError
from course_lib.objectives import InputRow, collate, corruption, seeded_generator
from course_lib.objectives.collate import Ints, width_of
from course_lib.objectives.collate import pad as pad
from course_lib.objectives.losses import Batch
from course_lib.objectives.registry import Corruption
from course_lib.vocab import IGNORE

# tokens, or texts that `encode_corpus` makes into tokens
Documents = TokenStore | Iterable[Mapping[str, Any] | str]
R = TypeVar("R", bound=Sized)


class Source(ABC):
    """Step -> batch, for every step from 0 on.

    `steps` batches are one epoch; later epochs are shuffled anew.
    """

    steps: int

    @abstractmethod
    def __getitem__(self, step: int, /) -> Batch:
        """The batch of this step."""


@dataclass(frozen=True)
class Size:
    """How large rows and batches are.

    Attributes:
        length: most tokens in a row, special ones included.
        rows: rows in a batch; or
        tokens: positions in a batch, padding included.
        seed: of the order of rows and batches, and of every draw.
    """

    length: int
    rows: int | None = None
    tokens: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if (self.rows is None) == (self.tokens is None):
            raise CourseError(
                "Give the size of a batch either in rows or in tokens, and not in both."
            )


@dataclass(frozen=True)
class Frame:
    """What stands around the text of a row.

    Attributes:
        before, after: special tokens.
        overlap: so many tokens of a row are seen again at the start of the next row of the same
            document, which then has no special tokens.
    """

    before: Sequence[int]
    after: Sequence[int] = ()
    overlap: int = 0


class StoredBatches(Source):
    """Rows cut from stored documents; long documents go on in further rows.

    Args:
        documents: tokens, or texts.
        tokenizer: of the texts.
        corrupt: what is asked of a batch.
        frame: the special tokens of a row.
        size: of rows and batches.
    """

    def __init__(
        self,
        documents: Documents,
        tokenizer: Tokenizer,
        corrupt: Corruption,
        frame: Frame,
        size: Size,
    ) -> None:
        marks = len(frame.before) + len(frame.after)
        if size.length <= marks + frame.overlap:
            raise CourseError(
                f"Rows of length {size.length} have no room for text; give at least"
                f" {marks + frame.overlap + 1}."
            )
        if not isinstance(documents, TokenStore):
            documents = encode_corpus(documents, tokenizer)
        self.store = documents
        self.corrupt = corrupt
        self.size = size
        self.pad = tokenizer.vocab.pad or 0
        self.before = np.array(frame.before, np.int64)
        self.after = np.array(frame.after, np.int64)
        starts = self.store.starts
        self.cut = pieces(starts, size.length - marks, frame.overlap)  # document, start, stop
        # With an overlap, only a document's first row has special tokens.
        self.marked = (self.cut[:, 1] == starts[self.cut[:, 0]]) | (frame.overlap == 0)
        lengths = self.cut[:, 2] - self.cut[:, 1] + marks * self.marked
        self.plan = BatchPlan(lengths, size.rows, size.tokens, size.seed, size.length)
        self.steps = self.plan.steps

    def __getitem__(self, step: int, /) -> Batch:
        rows = []
        for row in self.plan[step]:
            start, stop = self.cut[row, 1:].tolist()
            text = self.store.stream(start, stop)
            if self.marked[row]:
                text = np.concatenate([self.before, text, self.after])
            rows.append(text)
        ids, attention_mask = pad(rows, self.pad, most=self.size.length).values()
        return self.corrupt(ids, attention_mask, seeded_generator(self.size.seed, step))


class DocumentBatches(StoredBatches):
    """Causal language modelling with one document a row.

    No document sees another. A row starts with the start token (if there is one) and ends with the
    end token. A document that is too long goes on in another row, which sees the last token again,
    so every token is predicted exactly once.

    Args:
        documents: tokens, or texts.
        tokenizer: of the texts.
        size: the fields of `Size`.
    """

    def __init__(self, documents: Documents, tokenizer: Tokenizer, **size: Any) -> None:
        start = [] if tokenizer.vocab.bos is None else [tokenizer.vocab.bos]
        frame = Frame(before=start, overlap=1)
        super().__init__(documents, tokenizer, collate.causal, frame, Size(**size))


class WindowBatches(Source):
    """Causal language modelling on windows of the stream of all documents, as GPT-2 was trained.

    There is no padding, but a window cuts through documents (Radford et al. 2019). Each epoch
    starts the windows at another offset. `labels` are the ids one position further.

    Args:
        store: the documents' tokens.
        length: tokens in a window.
        rows: windows in a batch.
        seed: of the offsets and the order.

    Raises:
        CourseError: there are too few tokens for one batch.
    """

    def __init__(self, store: TokenStore, *, length: int, rows: int, seed: int = 0) -> None:
        self.store = store
        self.length = length
        self.rows = rows
        self.seed = seed
        self.windows = max((store.tokens - length) // length, 0)  # so many fit at every offset
        self.steps = self.windows // rows
        if self.steps == 0:
            raise CourseError(
                f"{store.tokens} tokens are too few for {rows} windows of {length} tokens each."
            )

    def __getitem__(self, step: int, /) -> Batch:
        epoch, index = divmod(step, self.steps)
        offset = int(_permutation(self.length, self.seed, epoch, 1)[0])
        order = _permutation(self.windows, self.seed, epoch, 0)
        chosen = order[index * self.rows : (index + 1) * self.rows]
        starts = (offset + chosen * self.length).tolist()
        windows = [self.store.stream(start, start + self.length + 1) for start in starts]
        rows = torch.from_numpy(np.stack(windows))  # B T+1
        return {"ids": rows[:, :-1].contiguous(), "labels": rows[:, 1:].contiguous()}


class CorruptedBatches(StoredBatches):
    """Any corruption of whole texts, [CLS] document [SEP] a row: BERT's, BART's, T5's, ELECTRA's.

    >>> from course_lib.data.tokenizers import train_wordpiece
    >>> texts = ["the cat sat on the mat", "a dog ran over the mat"]
    >>> tokenizer = train_wordpiece(texts, 60)
    >>> batch = CorruptedBatches(texts, tokenizer, length=32, rows=2)[0]
    >>> list(batch), batch["ids"].shape
    (['ids', 'labels', 'loss_mask', 'attention_mask'], torch.Size([2, 16]))

    Args:
        documents: tokens, or texts.
        tokenizer: of the texts.
        corrupt: as `objectives.corruption` makes it, or a function of `objectives.collate` with its
            options bound; by default masked tokens, masked anew in every step.
        size: the fields of `Size`.
    """

    def __init__(
        self,
        documents: Documents,
        tokenizer: Tokenizer,
        corrupt: Corruption | None = None,
        **size: Any,
    ) -> None:
        cls, sep = _ends(tokenizer)
        corrupt = corrupt or corruption("masked", tokenizer)
        frame = Frame(before=[cls], after=[sep])
        super().__init__(documents, tokenizer, corrupt, frame, Size(**size))


class StreamBatches(Source):
    """Documents that are written as they are needed and never end, one a row: [CLS] document [SEP].

    With `pairs` a row may be [CLS] first half [SEP] second half [SEP] and the batch holds
    `segments` and `next`: every second of these has the second half of another document (Devlin et
    al. 2019, section 3.1).

    Args:
        sentences: document number -> its sentences, for any number from 0 on.
        tokenizer: of the sentences.
        corrupt: as for `CorruptedBatches`.
        rows: in a batch.
        length: most tokens in a row, special ones included.
        pairs: share of the documents that are cut in two. None cuts none, and the batch has no
            `segments` and no `next`.
        pool: batches whose rows are sorted by length together.
        seed: of the cuts, of the order and of every draw.
    """

    def __init__(
        self,
        sentences: Callable[[int], Sequence[str]],
        tokenizer: Tokenizer,
        corrupt: Corruption | None = None,
        *,
        rows: int,
        length: int = 160,
        pairs: float | None = None,
        pool: int = 64,
        seed: int = 0,
    ) -> None:
        self.sentences = sentences
        self.tokenizer = tokenizer
        self.corrupt = corrupt or corruption("masked", tokenizer)
        self.rows = rows
        self.length = length
        self.pairs = pairs
        self.steps = pool
        self.seed = seed
        self._pool = lru_cache(maxsize=1)(self.pool)

    def __getitem__(self, step: int, /) -> Batch:
        number, index = divmod(step, self.steps)
        rows = self._pool(number)[index]
        padding = self.tokenizer.vocab.pad or 0
        ids, attention_mask = pad([row.ids for row in rows], padding, most=self.length).values()
        batch = self.ask(step, ids, attention_mask)
        if self.pairs is None:
            return batch
        segments = pad([row.segments for row in rows], 0, most=self.length)["ids"]
        return {**batch, "segments": segments, "next": torch.tensor([row.next for row in rows])}

    def ask(self, step: int, ids: Tensor, attention_mask: Tensor) -> Batch:
        """What this step asks of its rows."""
        return self.corrupt(ids, attention_mask, seeded_generator(self.seed, 1, step))

    def pool(self, number: int) -> list[list[InputRow]]:
        """The rows of a pool's batches."""
        rng = seeded_generator(self.seed, 0, number)
        documents = self.documents(number)
        cuts = [self._cut(len(document), rng) for document in documents]
        return self.framed(documents, cuts, rng)

    def documents(self, number: int) -> list[Sequence[str]]:
        """The documents of a pool, each as its sentences."""
        count = self.rows * self.steps
        return [self.sentences(number * count + i) for i in range(count)]

    def framed(
        self, documents: Sequence[Sequence[str]], cuts: Sequence[int], rng: torch.Generator
    ) -> list[list[InputRow]]:
        """Batches of documents, each cut behind so many of its sentences.

        Of those that have a second half, about every second one gets the half of the one before.
        """
        halves = list(zip(documents, cuts, strict=True))
        first_texts = [" ".join(document[:cut]) for document, cut in halves]
        second_texts = [" ".join(document[cut:]) for document, cut in halves]
        first = self.tokenizer.ids(first_texts, special=False)
        second = self.tokenizer.ids(second_texts, special=False)
        pairs = [i for i, half in enumerate(second) if half]
        is_wrong = torch.rand(len(pairs), generator=rng) < 0.5
        source = list(range(len(first)))  # whose second half a row has
        for k, i in enumerate(pairs):
            if is_wrong[k]:
                source[i] = pairs[k - 1]  # the pair before; the first pair takes the last one's
        rows = []
        for i, half in enumerate(first):
            rows.append(self.row(half, second[source[i]], int(source[i] != i)))
        return by_length(rows, self.rows, rng)

    def row(self, first: list[int], second: list[int], follows: int) -> InputRow:
        """[CLS] first [SEP], or [CLS] first [SEP] second [SEP]."""
        cls, sep = _ends(self.tokenizer)
        ids = [cls, *first, sep]
        segments = [0] * len(ids)
        if second:
            room = max(1, self.length - len(ids) - 1)
            rest = [*second[:room], sep]
            ids += rest
            segments += [1] * len(rest)
        return InputRow(ids[: self.length], segments[: self.length], follows if second else IGNORE)

    def _cut(self, sentences: int, rng: torch.Generator) -> int:
        """How many sentences of a document are the first half: all, where it stays whole."""
        # Both draws are always made, so that one document does not change those of the next.
        draw = torch.rand(2, generator=rng)
        stays_whole = sentences < 2 or float(draw[0]) >= (self.pairs or 0.0)
        if stays_whole:
            return sentences
        return 1 + int(float(draw[1]) * (sentences - 1))


class BatchPlan:
    """Which rows make up batch number `step`, so that rows of like length stand together.

    Rows are sorted by the width that `pad` gives them and cut into batches once. Each epoch
    shuffles the rows of each width, and the batches.

    Args:
        lengths: tokens of each row.
        rows: rows in a batch; or
        tokens: positions in a batch at most, padding included.
        seed: of the shuffles.
        most: widths are not rounded up past it.
    """

    def __init__(
        self, lengths: Ints, rows: int | None, tokens: int | None, seed: int, most: int
    ) -> None:
        self.seed = seed
        self.widths = width_of(lengths, most)
        ordered = np.sort(self.widths)
        self.bounds = [0]  # batch i has the rows bounds[i] to bounds[i + 1], in this order
        while self.bounds[-1] < len(ordered):
            first = self.bounds[-1]
            size = rows or 1
            if tokens:
                # As many rows as make at most so many positions, all padded to the widest.
                widths = ordered[first : first + tokens // int(ordered[first]) + 1]
                positions = widths * np.arange(1, len(widths) + 1)
                size = max(1, int(np.searchsorted(positions, tokens, side="right")))
            self.bounds.append(min(first + size, len(ordered)))
        self.steps = len(self.bounds) - 1
        # Two epochs are kept, because one reader may be an epoch ahead of another.
        self._order = lru_cache(maxsize=2)(self._shuffle)

    def __getitem__(self, step: int) -> Ints:
        epoch, at = divmod(step, self.steps)
        rows, batches = self._order(epoch)
        batch = int(batches[at])
        return rows[self.bounds[batch] : self.bounds[batch + 1]]

    def _shuffle(self, epoch: int) -> tuple[Ints, Ints]:
        rows = _permutation(len(self.widths), self.seed, epoch, 0)
        by_width = np.argsort(self.widths[rows], kind="stable")
        return rows[by_width], _permutation(self.steps, self.seed, epoch, 1)


class Shuffled:
    """Which of `count` rows make up batch number `step`: every epoch takes all in a new order.

    Args:
        count: of all rows.
        rows: rows in a batch; the last one of an epoch may have fewer.
        keys: the seeds of the order, beside the epoch.
    """

    def __init__(self, count: int, rows: int, *keys: int) -> None:
        self.count = count
        self.rows = rows
        self.keys = keys
        self.steps = -(-count // rows)  # rounded up

    def __getitem__(self, step: int) -> list[int]:
        epoch, index = divmod(step, self.steps)
        order = _permutation(self.count, *self.keys, epoch)
        return [int(row) for row in order[index * self.rows : (index + 1) * self.rows]]


def by_length(rows: Iterable[R], size: int, rng: torch.Generator) -> list[list[R]]:
    """Batches of `size` rows of like length, in random order."""
    ordered = sorted(rows, key=len)
    order = torch.randperm(len(ordered) // size, generator=rng).tolist()
    return [ordered[k * size : (k + 1) * size] for k in order]


def _ends(tokenizer: Tokenizer) -> tuple[int, int]:
    """[CLS] and [SEP]."""
    vocab = tokenizer.vocab
    if vocab.cls is None or vocab.sep is None or vocab.mask is None:
        raise CourseError(
            f"Masked batches need [CLS], [SEP] and [MASK], which {tokenizer} does not have."
        )
    return vocab.cls, vocab.sep


@lru_cache(maxsize=8)
def _permutation(count: int, *keys: int) -> Ints:
    return torch.randperm(count, generator=seeded_generator(*keys)).numpy()
