"""Batches for training: which rows, in what order and how wide (a plan), and what is asked of them
(an objective).

Every source is a pure function of (seed, step), so training resumes at any step, and all processes
read one batch.

A batch is a dict of tensors with B rows and T positions: ids Int[B T], attention_mask Bool[B T]
(real tokens; padding is on the right), segments Int[B T], labels Int[B T] (-100: no target),
loss_mask Bool[B T] (masked positions), next Int[B] (0: the second segment followed the first, 1: it
is another document's, -100: not a pair)."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from functools import lru_cache, partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from course_lib import objectives
from course_lib.data.token_store import TokenStore, encode_corpus, pieces
from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError
from course_lib.objectives import InputRow, collate
from course_lib.objectives.collate import Ints, width_of
from course_lib.objectives.collate import pad as pad
from course_lib.objectives.losses import Batch
from course_lib.vocab import IGNORE

# ids Int[B T], attention_mask Bool[B T], draws -> batch
Objective = Callable[[Tensor, Tensor, torch.Generator], Batch]
# tokens, or texts of which `encode_corpus` makes them
Documents = TokenStore | Iterable[Mapping[str, Any] | str]
R = TypeVar("R", bound=Sized)


class Source(ABC):
    """Step -> batch, for every step from 0 on. `steps` batches are one epoch; later ones are
    shuffled anew.
    """

    steps: int

    @abstractmethod
    def __getitem__(self, step: int, /) -> Batch:
        """The batch of this step."""


class StoredBatches(Source):
    """Rows cut from stored documents, special tokens around each; long documents go on in further
    rows.

    objective: what is asked of a batch. length: most tokens in a row, special ones included. rows:
    in a batch; or tokens: positions in a batch, padding included. before, after: the special
    tokens. overlap: so many tokens of a row are seen again at the start of the next, which then has
    no special ones."""

    def __init__(
        self,
        documents: Documents,
        tokenizer: Tokenizer,
        objective: Objective,
        *,
        length: int,
        rows: int | None = None,
        tokens: int | None = None,
        seed: int = 0,
        before: Sequence[int],
        after: Sequence[int] = (),
        overlap: int = 0,
    ) -> None:
        marks = len(before) + len(after)
        if length <= marks + overlap:
            raise CourseError(
                f"Rows of length {length} have no room for text; give at least"
                f" {marks + overlap + 1}."
            )
        if (rows is None) == (tokens is None):
            raise CourseError(
                "Give the size of a batch either in rows or in tokens, and not in both."
            )
        self.store = (
            documents if isinstance(documents, TokenStore) else encode_corpus(documents, tokenizer)
        )
        self.objective, self.length, self.seed, self.pad = (
            objective,
            length,
            seed,
            tokenizer.vocab.pad or 0,
        )
        self.before, self.after = np.array(before, np.int64), np.array(after, np.int64)
        self.cut = pieces(self.store.starts, length - marks, overlap)  # document, start, stop
        self.marked = (self.cut[:, 1] == self.store.starts[self.cut[:, 0]]) | (overlap == 0)
        self.plan = BatchPlan(
            self.cut[:, 2] - self.cut[:, 1] + marks * self.marked, rows, tokens, seed, length
        )
        self.steps = self.plan.steps

    def __getitem__(self, step: int, /) -> Batch:
        rows = []
        for row in self.plan[step]:
            text = self.store.stream(*self.cut[row, 1:].tolist())
            rows.append(
                np.concatenate([self.before, text, self.after]) if self.marked[row] else text
            )
        ids, attention_mask = pad(rows, self.pad, most=self.length).values()
        return self.objective(ids, attention_mask, objectives.seeded_generator(self.seed, step))


class DocumentBatches(StoredBatches):
    """Causal language modelling with one document a row, so that nothing is cut through and nothing
    leaks in.

    A row starts with the start token (if there is one) and ends with the end token; a longer
    document is continued in another row, which sees the last token again, so that every token is
    predicted exactly once."""

    def __init__(self, documents: Documents, tokenizer: Tokenizer, **size: Any) -> None:
        start = [] if tokenizer.vocab.bos is None else [tokenizer.vocab.bos]
        super().__init__(documents, tokenizer, collate.causal, before=start, overlap=1, **size)


class WindowBatches(Source):
    """Causal language modelling on windows of the stream of all documents (Radford et al. 2019;
    nanoGPT): no padding, but windows cut through documents. Each epoch starts them at another
    offset. `labels`: the ids one position on."""

    def __init__(self, store: TokenStore, *, length: int, rows: int, seed: int = 0) -> None:
        self.store, self.length, self.rows, self.seed = store, length, rows, seed
        self.windows = max((store.tokens - length) // length, 0)  # whatever the offset, so many fit
        self.steps = self.windows // rows
        if self.steps == 0:
            raise CourseError(
                f"{store.tokens} tokens are too few for {rows} windows of {length} tokens each."
            )

    def __getitem__(self, step: int, /) -> Batch:
        epoch, at = divmod(step, self.steps)
        offset = int(_permutation(self.length, self.seed, epoch, 1)[0])
        chosen = _permutation(self.windows, self.seed, epoch, 0)[
            at * self.rows : (at + 1) * self.rows
        ]
        starts = (offset + chosen * self.length).tolist()
        rows = torch.from_numpy(
            np.stack([self.store.stream(s, s + self.length + 1) for s in starts])
        )
        return {"ids": rows[:, :-1].contiguous(), "labels": rows[:, 1:].contiguous()}


class CorruptedBatches(StoredBatches):
    """Any corruption of whole texts, [CLS] document [SEP] a row: BERT's, BART's, T5's, ELECTRA's.

    >>> texts = ["the cat sat on the mat", "a dog ran over the mat"]
    >>> tokenizer = train_wordpiece(texts, 60)
    >>> batch = CorruptedBatches(texts, tokenizer, length=32, rows=2)[0]
    >>> list(batch), batch["ids"].shape
    (['ids', 'labels', 'loss_mask', 'attention_mask'], torch.Size([2, 16]))

    objective: one of `course_lib.objectives.collate`, its options bound by functools.partial; by
    default masked tokens, masked anew in every step. documents, size: as for `StoredBatches`."""

    def __init__(
        self,
        documents: Documents,
        tokenizer: Tokenizer,
        objective: Objective | None = None,
        **size: Any,
    ) -> None:
        cls, sep = _ends(tokenizer)
        objective = objective or partial(collate.masked, vocab=tokenizer.vocab)
        super().__init__(documents, tokenizer, objective, before=[cls], after=[sep], **size)


class StreamBatches(Source):
    """Documents that are written as they are needed and never end, one a row: [CLS] document [SEP].

    With `pairs` a row may be [CLS] first half [SEP] second half [SEP] and the batch holds
    `segments` and `next`: every second of these has the second half of another document (Devlin et
    al. 2019, section 3.1).

    sentences: document number -> its sentences, for any number from 0 on. pairs: share of the
    documents that are cut in two; None: none of them, and nothing is said of it. pool: batches
    whose rows are sorted by length together."""

    def __init__(
        self,
        sentences: Callable[[int], Sequence[str]],
        tokenizer: Tokenizer,
        objective: Objective | None = None,
        *,
        rows: int,
        length: int = 160,
        pairs: float | None = None,
        pool: int = 64,
        seed: int = 0,
    ) -> None:
        self.sentences, self.tokenizer, self.seed = sentences, tokenizer, seed
        self.objective = objective or partial(collate.masked, vocab=tokenizer.vocab)
        self.rows, self.length, self.pairs, self.steps = rows, length, pairs, pool
        self._pool = lru_cache(maxsize=1)(self.pool)

    def __getitem__(self, step: int, /) -> Batch:
        number, index = divmod(step, self.steps)
        rows = self._pool(number)[index]
        ids, attention_mask = pad(
            [row.ids for row in rows], self.tokenizer.vocab.pad or 0, most=self.length
        ).values()
        batch = self.ask(step, ids, attention_mask)
        if self.pairs is None:
            return batch
        segments = pad([row.segments for row in rows], 0, most=self.length)["ids"]
        return {**batch, "segments": segments, "next": torch.tensor([row.next for row in rows])}

    def ask(self, step: int, ids: Tensor, attention_mask: Tensor) -> Batch:
        """What this step asks of its rows."""
        return self.objective(ids, attention_mask, objectives.seeded_generator(self.seed, 1, step))

    def pool(self, number: int) -> list[list[InputRow]]:
        """The rows of a pool's batches."""
        rng, count = objectives.seeded_generator(self.seed, 0, number), self.rows * self.steps
        documents = [self.sentences(number * count + i) for i in range(count)]
        return self.framed(
            documents, [self._cut(len(document), rng) for document in documents], rng
        )

    def framed(
        self, documents: Sequence[Sequence[str]], cuts: Sequence[int], rng: torch.Generator
    ) -> list[list[InputRow]]:
        """Batches of documents, each cut behind so many of its sentences, the second halves of some
        exchanged.
        """
        halves = list(zip(documents, cuts, strict=True))
        first = self.tokenizer.ids([" ".join(d[:c]) for d, c in halves], special=False)
        second = self.tokenizer.ids([" ".join(d[c:]) for d, c in halves], special=False)
        pairs = [i for i, tail in enumerate(second) if tail]
        wrong = torch.rand(len(pairs), generator=rng) < 0.5
        follows = {i: i for i in pairs} | {i: pairs[k - 1] for k, i in enumerate(pairs) if wrong[k]}
        rows = [
            self.row(a, second[follows.get(i, i)], int(follows.get(i, i) != i))
            for i, a in enumerate(first)
        ]
        return by_length(rows, self.rows, rng)

    def row(self, first: list[int], second: list[int], follows: int) -> InputRow:
        """[CLS] first [SEP], or [CLS] first [SEP] second [SEP]."""
        (cls, sep), length = _ends(self.tokenizer), self.length
        ids = [cls, *first, sep]
        rest = [*second[: max(1, length - len(ids) - 1)], sep] if second else []
        segments = [0] * len(ids) + [1] * len(rest)
        return InputRow([*ids, *rest][:length], segments[:length], follows if second else IGNORE)

    def _cut(self, sentences: int, rng: torch.Generator) -> int:
        """After which sentence a document is cut in two; after the last one where it stays
        whole.
        """
        draw = torch.rand(2, generator=rng)
        whole = sentences < 2 or float(draw[0]) >= (self.pairs or 0.0)
        return sentences if whole else 1 + int(float(draw[1]) * (sentences - 1))


class BatchPlan:
    """Which rows make up batch number `step`: sorted by the width that `pad` gives them they are
    cut into batches, once; each epoch shuffles the rows within each width, and the batches."""

    def __init__(
        self, lengths: Ints, rows: int | None, tokens: int | None, seed: int, most: int
    ) -> None:
        self.seed, self.widths = seed, width_of(lengths, most)
        ordered = np.sort(self.widths)
        self.bounds = [0]
        while (first := self.bounds[-1]) < len(ordered):
            size = rows or 1
            if tokens:  # as many as make at most so many positions, all padded to the widest
                some = ordered[first : first + tokens // int(ordered[first]) + 1]
                size = max(
                    int(np.searchsorted(some * np.arange(1, len(some) + 1), tokens, side="right")),
                    1,
                )
            self.bounds.append(min(first + size, len(ordered)))
        self.steps = len(self.bounds) - 1
        # two: a reader may be one epoch ahead of another
        self._order = lru_cache(maxsize=2)(self._shuffle)

    def __getitem__(self, step: int) -> Ints:
        epoch, at = divmod(step, self.steps)
        rows, batches = self._order(epoch)
        batch = int(batches[at])
        return rows[self.bounds[batch] : self.bounds[batch + 1]]

    def _shuffle(self, epoch: int) -> tuple[Ints, Ints]:
        rows = _permutation(len(self.widths), self.seed, epoch, 0)
        return rows[np.argsort(self.widths[rows], kind="stable")], _permutation(
            self.steps, self.seed, epoch, 1
        )


class Shuffled:
    """Which of `count` rows make up batch number `step`: all, ordered by the keys and the epoch,
    `rows` at a time.
    """

    def __init__(self, count: int, rows: int, *keys: int) -> None:
        self.count, self.rows, self.keys, self.steps = count, rows, keys, -(-count // rows)

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
    return torch.randperm(count, generator=objectives.seeded_generator(*keys)).numpy()
