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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from course_lib.data.batch_plans import BatchPlan, permutation
from course_lib.data.token_store import TokenStore, encode_corpus, pieces
from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError
from course_lib.objectives import collate, corruption, seeded_generator
from course_lib.objectives.collate import pad as pad
from course_lib.objectives.losses import Batch
from course_lib.objectives.registry import Corruption

# tokens, or texts that `encode_corpus` makes into tokens
Documents = TokenStore | Iterable[Mapping[str, Any] | str]


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
class SpecialTokens:
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
        special: the special tokens of a row, and how far rows overlap.
        size: of rows and batches.
    """

    def __init__(
        self,
        documents: Documents,
        tokenizer: Tokenizer,
        corrupt: Corruption,
        special: SpecialTokens,
        size: Size,
    ) -> None:
        marks = len(special.before) + len(special.after)
        if size.length <= marks + special.overlap:
            raise CourseError(
                f"Rows of length {size.length} have no room for text; give at least"
                f" {marks + special.overlap + 1}."
            )
        if not isinstance(documents, TokenStore):
            documents = encode_corpus(documents, tokenizer)
        self.store = documents
        self.corrupt = corrupt
        self.size = size
        self.pad = tokenizer.vocab.pad or 0
        self.before = np.array(special.before, np.int64)
        self.after = np.array(special.after, np.int64)

        # Where the rows are cut: each one's document, its first token, and the one behind its last.
        self.cut = pieces(self.store.starts, size.length - marks, special.overlap)  # rows 3
        document, start, stop = self.cut.T
        # With an overlap, only a document's first row has special tokens.
        is_first = start == self.store.starts[document]
        self.marked = is_first | (special.overlap == 0)
        lengths = stop - start + marks * self.marked
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
        special = SpecialTokens(before=start, overlap=1)
        super().__init__(documents, tokenizer, collate.causal, special, Size(**size))


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
        offset = int(permutation(self.length, self.seed, epoch, 1)[0])
        order = permutation(self.windows, self.seed, epoch, 0)
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
        cls, sep = cls_and_sep(tokenizer)
        corrupt = corrupt or corruption("masked", tokenizer)
        special = SpecialTokens(before=[cls], after=[sep])
        super().__init__(documents, tokenizer, corrupt, special, Size(**size))


def cls_and_sep(tokenizer: Tokenizer) -> tuple[int, int]:
    """The tokens before and behind a text, [CLS] and [SEP].

    Raises:
        CourseError: the tokenizer has none, or no [MASK].
    """
    vocab = tokenizer.vocab
    if vocab.cls is None or vocab.sep is None or vocab.mask is None:
        raise CourseError(
            f"Masked batches need [CLS], [SEP] and [MASK], which {tokenizer} does not have."
        )
    return vocab.cls, vocab.sep
