"""Batches of stored documents, for pretraining.

    batches = CorruptedBatches(texts, tokenizer, length=128, rows=32)
    batches[0]["ids"]       Int[32 128], rows [CLS] text [SEP] with hidden tokens

Documents are cut into rows. A batch plan (batch_plans.py) says which rows make up a batch, and a
corruption (objectives/collate.py) hides a part of them, which the model must predict. A batch
depends on nothing but (seed, step): a resumed training reads the same batches, and so do all
processes that train together.

A batch is a dict of tensors with B rows and T positions; the corruption decides which it holds:

    ids               Int[B T]
    attention_mask    Bool[B T], True at real tokens; padding is on the right
    labels            Int[B T], -100 = no target
    loss_mask         Bool[B T], True at the masked positions
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from course_lib.data.batch_plans import SimilarLength, permutation
from course_lib.data.token_store import TokenStore, cut_documents, encode_corpus
from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError
from course_lib.objectives import collate, corruption, seeded_generator
from course_lib.objectives.collate import pad
from course_lib.objectives.losses import Batch
from course_lib.objectives.registry import Corruption

# Token ids, or texts that `encode_corpus` turns into token ids.
Documents = TokenStore | Iterable[Mapping[str, Any] | str]

# An epoch of `WindowBatches` draws twice. Each draw has a random stream of its own.
WINDOW_ORDER = 0
WINDOW_OFFSET = 1


class BatchSource(ABC):
    """`source[step]` is the batch of a step, for every step from 0.

    `steps` batches are one epoch, a pass over all rows. Each epoch has another random order.
    """

    steps: int

    @abstractmethod
    def __getitem__(self, step: int, /) -> Batch:
        """The batch of this step."""


@dataclass(frozen=True)
class Size:
    """The size of rows and batches. A batch has either a number of `rows` or a number of `tokens`.

    Attributes:
        length: maximum number of tokens in a row, special tokens included.
        rows: number of rows in a batch, or None.
        tokens: maximum number of positions in a batch, padding included, or None.
        seed: seed of the order of rows and batches, and of every corruption.
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
class RowLayout:
    """The special tokens of a row, and how much the rows of one long document overlap.

    Attributes:
        before: special tokens in front of the text.
        after: special tokens behind the text.
        overlap: a further row of the same document starts with this many tokens of the row before.
            With an overlap above 0, only a document's first row gets special tokens: further rows
            start in the middle of the document, and the repeated tokens are their context.
    """

    before: Sequence[int]
    after: Sequence[int] = ()
    overlap: int = 0


class StoredBatches(BatchSource):
    """Rows cut from stored documents; a long document becomes several rows.

    With rows of 4 tokens, [CLS] and [SEP] included, a document of the tokens 5 6 7 becomes

        [CLS] 5 6 [SEP]
        [CLS] 7 [SEP]

    With <s> in front, and an overlap of 1, a document of the tokens 5 6 7 8 9 becomes

        <s> 5 6 7
        7 8 9

    Args:
        documents: token ids, or texts.
        tokenizer: the tokenizer of the texts.
        corrupt: turns padded rows into a batch.
        layout: the special tokens of a row, and the overlap of rows.
        size: the size of rows and batches.
    """

    def __init__(
        self,
        documents: Documents,
        tokenizer: Tokenizer,
        corrupt: Corruption,
        layout: RowLayout,
        size: Size,
    ) -> None:
        special = len(layout.before) + len(layout.after)
        if size.length <= special + layout.overlap:
            raise CourseError(
                f"Rows of length {size.length} have no room for text; give at least"
                f" {special + layout.overlap + 1}."
            )
        if not isinstance(documents, TokenStore):
            documents = encode_corpus(documents, tokenizer)
        self.store = documents
        self.corrupt = corrupt
        self.size = size
        self.padding_id = tokenizer.vocab.padding_id
        self.before = np.array(layout.before, np.int64)
        self.after = np.array(layout.after, np.int64)

        # For each row: its document, and the stream positions where its text starts and stops.
        self.row_bounds = cut_documents(
            self.store.starts, size.length - special, layout.overlap
        )  # rows 3
        document, start, stop = self.row_bounds.T
        is_first = start == self.store.starts[document]
        self.has_special = is_first | (layout.overlap == 0)  # see `RowLayout.overlap`
        lengths = stop - start + special * self.has_special
        self.plan = SimilarLength(lengths, size.rows, size.tokens, size.seed, size.length)
        self.steps = self.plan.steps

    def __getitem__(self, step: int, /) -> Batch:
        rows = []
        for row in self.plan[step]:
            start, stop = self.row_bounds[row, 1:].tolist()
            text = self.store.stream(start, stop)
            if self.has_special[row]:
                text = np.concatenate([self.before, text, self.after])
            rows.append(text)
        padded = pad(rows, self.padding_id, max_width=self.size.length)
        rng = seeded_generator(self.size.seed, step)
        return self.corrupt(padded["ids"], padded["attention_mask"], rng)


class DocumentBatches(StoredBatches):
    """Causal language modelling with one document in a row.

    No document sees another. A row starts with the tokenizer's start token, if it has one. It ends
    with the end token, which is already stored with each document (token_store.py).

    A long document becomes several rows. Each further row starts with the last token of the row
    before, so every token of the document is predicted exactly once.

    Args:
        documents: token ids, or texts.
        tokenizer: the tokenizer of the texts.
        length: maximum number of tokens in a row, special tokens included.
        rows: number of rows in a batch; give this or `tokens`.
        tokens: maximum number of positions in a batch, padding included.
        seed: seed of the order of rows and batches.
    """

    def __init__(
        self,
        documents: Documents,
        tokenizer: Tokenizer,
        *,
        length: int,
        rows: int | None = None,
        tokens: int | None = None,
        seed: int = 0,
    ) -> None:
        bos = tokenizer.vocab.bos
        layout = RowLayout(before=[] if bos is None else [bos], overlap=1)
        size = Size(length, rows, tokens, seed)
        super().__init__(documents, tokenizer, collate.causal, layout, size)


class WindowBatches(BatchSource):
    """Causal language modelling on windows of the stream of all documents, as GPT-2 was trained.

    A window may start and stop in the middle of a document (Radford et al. 2019), so there is no
    padding. Each epoch cuts the stream at another random offset. With windows of 3 tokens and
    offset 1, the stream 10 11 12 13 14 15 16 17 18 gives

        ids 11 12 13    labels 12 13 14
        ids 14 15 16    labels 15 16 17

    Args:
        store: the documents' token ids.
        length: tokens in a window.
        rows: windows in a batch.
        seed: seed of the offsets and of the order of the windows.

    Raises:
        CourseError: there are too few tokens for one batch.
    """

    def __init__(self, store: TokenStore, *, length: int, rows: int, seed: int = 0) -> None:
        self.store = store
        self.length = length
        self.rows = rows
        self.seed = seed
        # The same number of windows must fit at every offset. The largest offset, length - 1, and
        # the label of the last token together take the place of one window.
        self.windows = max(store.tokens // length - 1, 0)
        self.steps = self.windows // rows
        if self.steps == 0:
            raise CourseError(
                f"{store.tokens} tokens are too few for {rows} windows of {length} tokens each."
            )

    def __getitem__(self, step: int, /) -> Batch:
        epoch, index = divmod(step, self.steps)
        order = permutation(self.windows, self.seed, epoch, WINDOW_ORDER)
        chosen = order[index * self.rows : (index + 1) * self.rows]
        starts = (self._offset(epoch) + chosen * self.length).tolist()
        windows = [self.store.stream(start, start + self.length + 1) for start in starts]
        rows = torch.from_numpy(np.stack(windows))  # B T+1
        return {"ids": rows[:, :-1].contiguous(), "labels": rows[:, 1:].contiguous()}

    def _offset(self, epoch: int) -> int:
        """Where the first window of an epoch starts: a random number below `length`."""
        # `permutation` is cached, so that the draw is made once an epoch and not at every step.
        return int(permutation(self.length, self.seed, epoch, WINDOW_OFFSET)[0])


class CorruptedBatches(StoredBatches):
    """Rows [CLS] text [SEP] with any corruption: that of BERT, BART, T5 or ELECTRA.

    A long document becomes several rows, each with its own [CLS] and [SEP].

    >>> from course_lib.data.tokenizers import train_wordpiece
    >>> texts = ["the cat sat on the mat", "a dog ran over the mat"]
    >>> tokenizer = train_wordpiece(texts, 60)
    >>> batch = CorruptedBatches(texts, tokenizer, length=32, rows=2)[0]
    >>> list(batch), batch["ids"].shape
    (['ids', 'labels', 'loss_mask', 'attention_mask'], torch.Size([2, 16]))

    Args:
        documents: token ids, or texts.
        tokenizer: the tokenizer of the texts.
        corrupt: what `objectives.corruption` returns, or a function of `objectives.collate` with
            its options bound. The default is masked language modelling with new masks at every
            step.
        length: maximum number of tokens in a row, special tokens included.
        rows: number of rows in a batch; give this or `tokens`.
        tokens: maximum number of positions in a batch, padding included.
        seed: seed of the order of rows and batches, and of every corruption.
    """

    def __init__(
        self,
        documents: Documents,
        tokenizer: Tokenizer,
        corrupt: Corruption | None = None,
        *,
        length: int,
        rows: int | None = None,
        tokens: int | None = None,
        seed: int = 0,
    ) -> None:
        cls, sep = require_bert_tokens(tokenizer)
        corrupt = corrupt or corruption("masked", tokenizer)
        layout = RowLayout(before=[cls], after=[sep])
        super().__init__(documents, tokenizer, corrupt, layout, Size(length, rows, tokens, seed))


def require_bert_tokens(tokenizer: Tokenizer) -> tuple[int, int]:
    """Check that a tokenizer has BERT's [CLS], [SEP] and [MASK].

    Returns:
        The ids of [CLS] and [SEP], which stand around a text.

    Raises:
        CourseError: one of the three is missing.
    """
    vocab = tokenizer.vocab
    if vocab.cls is None or vocab.sep is None or vocab.mask is None:
        raise CourseError(
            f"Masked batches need [CLS], [SEP] and [MASK], which {tokenizer} does not have."
        )
    return vocab.cls, vocab.sep
