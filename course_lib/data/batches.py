"""Batches for pretraining: which tokens stand in which row of which step.

Every source is a pure function of (seed, step): `source[step]` is the same batch whenever and wherever it is
asked for, so training resumes at any step without replaying the ones before, and the processes of a distributed run
read the same batch, of which `train` takes each its rows: the order is the same however many there are.
`source.steps` batches are one epoch; later ones are shuffled anew.

    DocumentBatches      causal LM; one whole document (or piece of a long one) a row
    WindowBatches        causal LM; windows cut from the stream of all documents, as in GPT-2: no padding
    MaskedBatches        masked LM; [CLS] document [SEP] a row
    SentencePairBatches  masked LM and next sentence; [CLS] A [SEP] B [SEP] a row
    CorruptedBatches     BART's and T5's objectives on [CLS] document [SEP]

A batch is a dict of tensors with B rows and T positions: ids Int[B T], keep Bool[B T] (real tokens; padding
is on the right), segments Int[B T], labels Int[B T] (-100: no target), at Bool[B T] (masked positions), next
Int[B].
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from course_lib import corrupt
from course_lib.data.token_store import Ints, TokenStore, pieces
from course_lib.errors import CourseError
from course_lib.tokenizers import Tokenizer

Batch = dict[str, Tensor]

WIDTH_STEP = 16  # widths are its multiples: few shapes, each of which costs kernels and memory, and batches that mix


class Source(ABC):
    """What all sources share: step -> batch."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    steps: int
    """Batches in one epoch."""

    def __getitem__(self, step: int) -> Batch:
        """The batch of a step, any step from 0 on."""
        if step < 0:
            raise CourseError(f"There is no step {step}; steps count from 0.")
        return self._make(step)

    @abstractmethod
    def _make(self, step: int) -> Batch:
        """The batch of a step that there is."""


class DocumentBatches(Source):
    """Causal language modelling with one document a row, so that nothing is cut through and nothing leaks in.

    Rows of similar length stand together, so little of a batch is padding. A row starts with the start token
    (if the vocabulary has one) and ends with the end token; a document of more than `length` tokens is
    continued in another row, which sees the last token again, so that every token is predicted exactly once.
    Batches hold `ids` and `keep`; the loss shifts by one.
    """

    def __init__(
        self,
        store: TokenStore,
        tokenizer: Tokenizer,
        *,
        length: int,
        rows: int | None = None,
        tokens: int | None = None,
        seed: int = 0,
    ) -> None:
        """Plan the epochs.

        Args:
            store: the documents, from `encode_corpus`.
            length: most tokens in a row, the start token included.
            rows: rows in a batch; or
            tokens: positions in a batch, padding included; short documents then come in batches of more rows.
            seed: decides the order.
        """
        super().__init__(seed)
        self.store, self.pad, self.bos = store, tokenizer.vocab.pad or 0, tokenizer.vocab.bos
        extra = int(self.bos is not None)
        if length < 2 + extra:
            raise CourseError(f"Rows of length {length} have nothing to predict; give at least {2 + extra}.")
        cut = _cut(store, length, extra)
        self.plan = Plan(cut[:, 2] - cut[:, 1] + cut[:, 3], rows, tokens, seed, length)
        self.cut, self.steps, self.length = cut, self.plan.steps, length

    def _make(self, step: int) -> Batch:
        rows = [
            [*([self.bos] if opens else []), *self.store.stream(start, stop).tolist()]
            for _, start, stop, opens in self.cut[self.plan[step]].tolist()
        ]
        return pad(rows, self.pad, most=self.length)


class WindowBatches(Source):
    """Causal language modelling on windows of the stream of all documents (Radford et al. 2019; nanoGPT).

    No padding, every batch the same shape, but windows cut through documents. Each epoch starts the windows
    at another offset and shuffles them. Batches hold `ids` and `labels` (the ids one
    position on), both [rows length].
    """

    def __init__(self, store: TokenStore, *, length: int, rows: int, seed: int = 0) -> None:
        """Plan the epochs.

        Args:
            store: the documents.
            length: positions of a window.
            rows: windows in a batch.

        Raises:
            CourseError: the corpus is too short for one batch.
        """
        super().__init__(seed)
        self.store, self.length, self.rows = store, length, rows
        self.windows = max((store.tokens - length) // length, 0)  # whatever the offset, so many fit
        self.steps = self.windows // rows
        if self.steps == 0:
            raise CourseError(
                f"A corpus of {store.tokens} tokens is too short for {rows} windows of {length} tokens each."
            )

    def _make(self, step: int) -> Batch:
        epoch, at = divmod(step, self.steps)
        offset = int(_permutation(self.length, self.seed, epoch, 1)[0])
        chosen = _permutation(self.windows, self.seed, epoch)[at * self.rows : (at + 1) * self.rows]
        starts = (offset + chosen * self.length).tolist()
        rows = torch.from_numpy(np.stack([self.store.stream(s, s + self.length + 1) for s in starts]))
        return {"ids": rows[:, :-1].contiguous(), "labels": rows[:, 1:].contiguous()}


class MaskedBatches(Source):
    """Masked language modelling, [CLS] document [SEP] a row; long documents go on in further rows.

    Batches hold `ids` (masked), `labels`, `at` and `keep`.
    """

    def __init__(
        self,
        store: TokenStore,
        tokenizer: Tokenizer,
        *,
        length: int,
        rows: int | None = None,
        tokens: int | None = None,
        rate: float = 0.15,
        whole_words: bool = False,
        copies: int | None = None,
        seed: int = 0,
    ) -> None:
        """Plan the epochs.

        Args:
            store, length, rows, tokens, seed: as for `DocumentBatches`; [CLS] and [SEP] count.
            rate: share of the tokens to predict.
            whole_words: mask all pieces of a word together.
            copies: None masks anew in each epoch (dynamic); a number: so many fixed masks in turn (1: static).
        """
        super().__init__(seed)
        self.frame = Frame(tokenizer)
        if length < 3:
            raise CourseError(f"Rows of length {length} have no room beside [CLS] and [SEP]; give at least 3.")
        cut = _cut(store, length - 2, None)
        self.store, self.tokenizer, self.cut = store, tokenizer, cut
        self.rate, self.whole_words, self.copies = rate, whole_words, copies
        self.plan = Plan(cut[:, 2] - cut[:, 1] + 2, rows, tokens, seed, length)
        self.steps, self.length = self.plan.steps, length

    def _make(self, step: int) -> Batch:
        if self.copies is not None:
            return self._fixed(self._rows(step), self.plan[step], step // self.steps)
        batch = self.unmasked(step)
        words = self.tokenizer.words(batch["ids"]) if self.whole_words else None
        rng = corrupt.generator(self.seed, step)
        vocab = self.tokenizer.vocab
        masked = corrupt.mask_tokens(batch["ids"], rng, vocab=vocab, rate=self.rate, words=words, keep=batch["keep"])
        return {**batch, **masked._asdict()}

    def unmasked(self, step: int) -> Batch:
        """The texts of a step as they are: `ids` and `keep`."""
        return pad(self._rows(step), self.frame.pad, most=self.length)

    def _rows(self, step: int) -> list[Ints]:
        cut = self.cut[self.plan[step]].tolist()
        return [self.frame.single(self.store.stream(start, stop)) for _, start, stop, _ in cut]

    def _fixed(self, rows: list[Ints], numbers: Ints, epoch: int) -> Batch:
        """Static masks: each row is masked before padding, so that its mask does not depend on its
        neighbours."""
        masked = []
        for number, row in zip(numbers.tolist(), rows, strict=True):
            ids = torch.from_numpy(row)[None]
            words = self.tokenizer.words(ids) if self.whole_words else None
            masked.append(
                corrupt.mask_documents(
                    ids,
                    [number],
                    vocab=self.tokenizer.vocab,
                    seed=self.seed,
                    epoch=epoch,
                    copies=self.copies,
                    rate=self.rate,
                    words=words,
                )
            )
        batch = pad([m.ids[0].numpy() for m in masked], self.frame.pad, most=self.length)
        labels = pad([m.labels[0].numpy() for m in masked], corrupt.IGNORE, most=self.length)["ids"]
        return {**batch, "labels": labels, "at": labels != corrupt.IGNORE}


class CorruptedBatches(Source):
    """Any corruption of whole texts, [CLS] document [SEP] a row: what `course_lib.objectives` makes of them."""

    def __init__(
        self,
        store: TokenStore,
        tokenizer: Tokenizer,
        objective: Callable[[Tensor, Tensor, torch.Generator], Batch],
        *,
        length: int,
        rows: int | None = None,
        tokens: int | None = None,
        seed: int = 0,
    ) -> None:
        """Plan the epochs.

        Args:
            objective: (ids Int[B T], keep Bool[B T], generator) -> batch, such as BART's or T5's.
            store, length, rows, tokens, seed: as for `MaskedBatches`.
        """
        super().__init__(seed)
        self.texts = MaskedBatches(store, tokenizer, length=length, rows=rows, tokens=tokens, seed=seed)
        self.objective, self.steps = objective, self.texts.steps

    def _make(self, step: int) -> Batch:
        batch = self.texts.unmasked(step)
        return self.objective(batch["ids"], batch["keep"], corrupt.generator(self.seed, step))


class SentencePairBatches(Source):
    """Masked language modelling with next-sentence prediction (Devlin et al. 2019, section 3.1).

    [CLS] A [SEP] B [SEP]; B follows A in half of the rows (`next` 0) and comes from another document in the
    others. Batches hold `ids` (masked), `segments`, `keep`, `labels`, `at` and `next`. Pairs are drawn anew
    at every step; `steps` is how many it takes to draw as many as there are sentences.
    """

    def __init__(
        self,
        documents: Sequence[Sequence[str]],
        tokenizer: Tokenizer,
        *,
        length: int,
        rows: int,
        rate: float = 0.15,
        whole_words: bool = False,
        seed: int = 0,
    ) -> None:
        """Take `documents`, each a list of sentences; the other arguments are those of `MaskedBatches`."""
        super().__init__(seed)
        self.frame, self.tokenizer, self.documents = Frame(tokenizer), tokenizer, documents
        self.length, self.rows, self.rate, self.whole_words = length, rows, rate, whole_words
        self.steps = max(sum(map(len, documents)) // rows, 1)

    def _make(self, step: int) -> Batch:
        rng = corrupt.generator(self.seed, step)
        pairs = corrupt.nsp_pairs(self.documents, rng, n=self.rows)
        coded = self.tokenizer.encode_batch([p.text for p in pairs], [p.pair for p in pairs], max_length=self.length)
        batch = pad([e.ids for e in coded], self.frame.pad, most=self.length)
        words = self.tokenizer.words(batch["ids"]) if self.whole_words else None
        masked = corrupt.mask_tokens(
            batch["ids"], rng, vocab=self.tokenizer.vocab, rate=self.rate, words=words, keep=batch["keep"]
        )
        segments = pad([e.segments for e in coded], 0, most=self.length)["ids"]
        return {
            **batch,
            **masked._asdict(),
            "segments": segments,
            "next": torch.tensor([p.next for p in pairs]),
        }


class Frame:
    """[CLS] and [SEP] around a text, for vocabularies that have them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        vocab = tokenizer.vocab
        if vocab.cls is None or vocab.sep is None or vocab.mask is None:
            raise CourseError(f"Masked batches need [CLS], [SEP] and [MASK], which {tokenizer} does not have.")
        self.cls, self.sep, self.pad = vocab.cls, vocab.sep, vocab.pad or 0

    def single(self, ids: Ints) -> Ints:
        """[CLS] ids [SEP]."""
        return np.concatenate([[self.cls], ids, [self.sep]])


class Plan:
    """Which rows make up batch number `step`: rows of like width together, in another order each epoch.

    Rows are sorted by the width that `pad` gives them and cut into batches once; each epoch then shuffles the
    rows within each width, and the batches. So an epoch always has `steps` batches, any of which is found
    without building those before it.
    """

    def __init__(self, lengths: Ints, rows: int | None, tokens: int | None, seed: int, most: int | None = None) -> None:
        if (rows is None) == (tokens is None):
            raise CourseError("Give the size of a batch either in rows or in tokens, and not in both.")
        if (rows if rows is not None else tokens or 0) < 1:
            raise CourseError(f"A batch of {rows if rows is not None else tokens} is empty; give at least 1.")
        if len(lengths) == 0:
            raise CourseError("There are no documents to make batches of.")
        self.seed = seed
        self.widths = width_of(np.asarray(lengths), most)
        ordered = np.sort(self.widths)
        self.bounds = [0]
        while (first := self.bounds[-1]) < len(ordered):
            size = rows if rows is not None else _rows_within(ordered[first:], tokens or 0)
            self.bounds.append(min(first + size, len(ordered)))
        self.steps = len(self.bounds) - 1
        self._order = lru_cache(maxsize=2)(self._shuffle)  # two: a reader may be one epoch ahead of another

    def __getitem__(self, step: int) -> Ints:
        epoch, at = divmod(step, self.steps)
        rows, batches = self._order(epoch)
        batch = int(batches[at])
        return rows[self.bounds[batch] : self.bounds[batch + 1]]

    def _shuffle(self, epoch: int) -> tuple[Ints, Ints]:
        rows = _permutation(len(self.widths), self.seed, epoch)
        return rows[np.argsort(self.widths[rows], kind="stable")], _permutation(self.steps, self.seed, epoch, 1)


def pad(
    rows: Sequence[Ints | Sequence[int]], value: int, width: int | None = None, *, most: int | None = None
) -> Batch:
    """Rows of several lengths to `ids` Int[B T], padded on the right with `value`, and `keep` Bool[B T].

    Args:
        value: what fills the rows up.
        width: T; by default the longest row's length, rounded up (`width_of`).
        most: no rounding past this, such as a model's last position.

    Raises:
        CourseError: no rows, or one that is longer than `width`.
    """
    if not len(rows):
        raise CourseError("There are no rows to pad.")
    lengths = torch.tensor([len(row) for row in rows])
    longest = int(lengths.max())
    width = int(width_of(np.array(longest), most)) if width is None else width
    if longest > width:
        raise CourseError(f"A row of {longest} tokens does not fit into a width of {width}; cut it first.")
    ids = np.full((len(rows), width), value, dtype=np.int64)
    for line, row in zip(ids, rows, strict=True):
        line[: len(row)] = row
    return {"ids": torch.from_numpy(ids), "keep": torch.arange(width) < lengths[:, None]}


def width_of(lengths: Ints, most: int | None = None) -> Ints:
    """Lengths rounded up to multiples of 16, but not past `most`, if they are not longer themselves."""
    rounded = -(-lengths // WIDTH_STEP) * WIDTH_STEP
    return rounded if most is None else np.maximum(np.minimum(rounded, most), lengths)


def _cut(store: TokenStore, length: int, extra: int | None) -> Ints:
    """Int[N 4]: document, start, stop, and whether a start token goes in front (only to a document's first
    piece)."""
    cut = pieces(store.starts, length - (extra or 0), overlap=0 if extra is None else 1)
    opens = (extra or 0) * (cut[:, 1] == store.starts[cut[:, 0]])
    return np.column_stack([cut, opens])


def _rows_within(widths: Ints, tokens: int) -> int:
    """How many of these ascending widths make a batch of at most `tokens` positions, all padded to the
    widest."""
    some = widths[: tokens // int(widths[0]) + 1]
    return max(int(np.searchsorted(some * np.arange(1, len(some) + 1), tokens, side="right")), 1)


@lru_cache(maxsize=8)
def _permutation(n: int, seed: int, epoch: int, use: int = 0) -> Ints:
    return torch.randperm(n, generator=corrupt.generator(seed, epoch, use)).numpy()
