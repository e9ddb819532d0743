"""Bring batches to the model: check them, cut them into parts, move them to the GPU.

A batch of 32 rows, with 2 processes and `accumulate` 4, is cut into 8 parts of 4 rows. Each process
computes 4 of them, one after the other, and adds up their gradients:

    rows     0-3  4-7  8-11  12-15  16-19  20-23  24-27  28-31
    process   0    1    0     1      0      1      0      1

If there is a GPU, a thread makes the next batch while the GPU computes. Shapes: B rows, T tokens. A
target is a token (or a class) that the model has to predict.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.model.checks import check_ids
from course_lib.model.layers import Embedding
from course_lib.model.seq2seq import Seq2SeqLM
from course_lib.model.transformer import Transformer
from course_lib.objectives.collate import WIDTH_STEP, width_of
from course_lib.objectives.losses import Batch, with_target_index
from course_lib.training.distributed import ALONE, Processes
from course_lib.vocab import IGNORE

# The types of a batch's tensors. Another type would fail deep inside the model, or silently work.
WHOLE_NUMBERS = (torch.int64, torch.int32)
YES_OR_NO = (torch.bool,)
TYPES = {
    "ids": WHOLE_NUMBERS,
    "segments": WHOLE_NUMBERS,
    "attention_mask": YES_OR_NO,
    "loss_mask": YES_OR_NO,
}
# The value of each entry at padding.
FILLERS = {"ids": 0, "segments": 0, "attention_mask": False, "loss_mask": False, "labels": IGNORE}
Value = TypeVar("Value")


class Batches(Protocol):
    """`batches[step]` is the batch of a step, for every step from 0, always the same one.

    A list of batches works, too. It is read again and again.
    """

    def __getitem__(self, step: int, /) -> Batch: ...


class Part(NamedTuple):
    """Some rows of a batch.

    Attributes:
        batch: the rows.
        weight: a factor for their mean loss: the rows' share of the batch's targets. So the
            weighted losses of all parts add up to the mean loss of the whole batch.
    """

    batch: Batch
    weight: float | Tensor


class Ready(NamedTuple):
    """A step's batch, ready for the model.

    Attributes:
        parts: the parts of this process, on its device.
        tokens: number of tokens without padding in the whole batch, other processes included.
    """

    parts: list[Part]
    tokens: int


class Feed:
    """Makes each step's batch ready for the model.

    Args:
        batches: `batches[step]` is the batch of a step.
        model: the model that will read them; it gives the size of the vocabulary.
        device: the device to move the batches to.
        accumulate: the number of parts that each process computes one after the other.
        processes: the processes that share each batch.
        is_compiled: whether torch.compile compiles model and loss. Then the targets are looked up
            here, because doing it in the loss would interrupt the compiled program.
    """

    def __init__(
        self,
        batches: Batches,
        model: nn.Module,
        device: torch.device,
        accumulate: int = 1,
        processes: Processes = ALONE,
        *,
        is_compiled: bool = False,
    ) -> None:
        self.batches = batches
        self.model = model
        limits = [
            part.config.max_length for part in model.modules() if isinstance(part, Transformer)
        ]
        self.max_length = min((limit for limit in limits if limit), default=None)
        self.device = device
        self.accumulate = accumulate
        self.is_compiled = is_compiled
        self.processes = processes
        self.vocabularies = {
            module.tokens.num_embeddings
            for module in model.modules()
            if isinstance(module, Embedding)
        }

    def of_steps(self, steps: range) -> Iterator[Ready]:
        """The batches of these steps, one after the other.

        Raises:
            CourseError: a batch does not fit the model, or it has fewer rows than `accumulate`.
        """
        if self.device.type == "cpu":
            return map(self.of_step, steps)
        return one_ahead(self.of_step, steps)

    def of_step(self, step: int) -> Ready:
        """The batch of one step."""
        batch = self._read(step)
        world = self.processes.world
        every_part = micro_batches(batch, self.accumulate * world)
        # Process 1 of 3 takes the parts 1, 4, 7, ...
        own_parts = islice(every_part, self.processes.rank, None, world)
        # The gradients of the processes are averaged, that is, divided by `world`. The factor
        # `world` undoes this.
        parts = [Part(self._moved(part), weight * world) for part, weight in own_parts]
        return Ready(parts, int(_real_tokens(batch)))

    def _read(self, step: int) -> Batch:
        """The batch of a step, checked."""
        if isinstance(self.batches, Sequence):
            batch: Batch = self.batches[step % len(self.batches)]
        else:
            batch = self.batches[step]
        for name, types in TYPES.items():
            if name in batch and batch[name].dtype not in types:
                allowed = " or ".join(map(str, types))
                raise CourseError(
                    f"{name!r} of batch {step} is of type {batch[name].dtype}; it must be"
                    f" {allowed}."
                )
        rows = len(batch["ids"])
        if self.accumulate > rows:
            raise CourseError(
                f"accumulate is {self.accumulate}, but the batch has only {rows} rows to share out."
            )
        if self.device.type != "cpu":
            # An id outside the vocabulary: on a GPU the error message would not say what is wrong.
            # On a CPU the embedding layer says it.
            for size in self.vocabularies:
                check_ids(batch["ids"], size)
        return batch

    def _moved(self, batch: Batch) -> Batch:
        """The batch on the device. The CPU does not wait until it is copied (non_blocking)."""
        if self.device.type == "cpu":
            return with_target_index(batch) if self.is_compiled else batch
        batch = in_round_widths(
            batch, self.max_length, has_targets=isinstance(self.model, Seq2SeqLM)
        )
        moved = {}
        for name, value in with_target_index(batch).items():
            if self.device.type == "cuda" and value.is_cpu:
                value = value.pin_memory()
            moved[name] = value.to(self.device, non_blocking=True)
        return moved


def in_round_widths(
    batch: Batch,
    max_length: int | None = None,
    *,
    has_targets: bool = False,
    multiple: int = WIDTH_STEP,
) -> Batch:
    """Pad the rows to a multiple of 16 tokens, if the batch has an attention mask.

    Pretraining makes such batches, and fine-tuning makes them as wide as the longest row. On a GPU,
    torch.compile hands the attention kernel a mask with memory behind each row that nobody has
    written, if the rows' width is not a multiple of 8. The gradients may then become nan.

    With multiple 4, the ids [[5, 6, 7, 8, 9]] become [[5, 6, 7, 8, 9, 0, 0, 0]].

    Args:
        batch: of tokens, `ids` and `attention_mask` [B T] or [B N T].
        max_length: no row becomes longer, for the model has learned so many positions.
        has_targets: `labels` [B U] are the targets of an encoder-decoder, so pad them as well.
        multiple: the width of each row becomes a multiple of this number.
    """
    ids = batch["ids"]
    if "attention_mask" not in batch or batch["attention_mask"].shape != ids.shape:
        return batch
    padded = dict(batch)
    for name, filler in FILLERS.items():
        if name not in batch:
            continue
        value = batch[name]
        if value.shape == ids.shape or (name == "labels" and has_targets):
            width = value.shape[-1]
            wider = int(width_of(np.array(width), max_length, multiple))
            padded[name] = F.pad(value, (0, wider - width), value=filler)
    return padded


def one_ahead(make: Callable[[int], Value], steps: range) -> Iterator[Value]:
    """Yield `make(step)` for each step; a thread makes the next one meanwhile."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        following = None
        for step in steps:
            ready = make(step) if following is None else following.result()
            following = thread.submit(make, step + 1) if step + 1 < steps.stop else None
            yield ready


def micro_batches(batch: Batch, parts: int) -> Iterator[Part]:
    """Cut a batch into parts, each with its share of the batch's targets as its weight.

    A batch with 3 targets in its first half and 1 in its second gives parts of the weights 0.75
    and 0.25. With more parts than rows, the last parts repeat the first row with the weight 0.

    Some losses also have a term that is a mean over rows or over all tokens (`losses.mlm_nsp`,
    `losses.electra`). They multiply it by the part's `row_share` or `token_share`: the part's share
    of the rows or tokens, divided by its weight.
    """
    if parts == 1:
        yield Part(batch, 1.0)
        return
    rows = torch.arange(len(batch["ids"]), device=batch["ids"].device)
    all_targets = target_count(batch).clamp(min=1)  # without any target every share is 0
    for chosen in rows.tensor_split(parts):
        is_empty = len(chosen) == 0
        # The processes wait for each other at each part, so all need the same number of parts. A
        # part that would be empty gets the first row.
        index = slice(1) if is_empty else chosen
        part = {name: value[index] for name, value in batch.items()}
        share = target_count(part) / all_targets
        if is_empty:
            share = share * 0
        # A part without targets has the share 0. The clamp keeps its factors finite, since infinity
        # times 0 would be nan.
        part["row_share"] = _labelled_rows(part) / _labelled_rows(batch) / share.clamp(min=1e-6)
        part["token_share"] = _real_tokens(part) / _real_tokens(batch) / share.clamp(min=1e-6)
        yield Part(part, share)


def target_count(batch: Batch) -> Tensor:
    """The number of targets in a batch, over which its loss is a mean.

    These are the labels that are not -100. Without labels the model predicts each next token, so
    every token that follows another one is a target.
    """
    if "labels" in batch:
        labels = batch["labels"]
        if labels.dim() == 1:  # one class or score for each row
            return torch.tensor(len(labels))
        return (labels != IGNORE).sum()
    real = batch.get("attention_mask", torch.ones_like(batch["ids"])).bool()
    return (real[:, 1:] & real[:, :-1]).sum()


def _labelled_rows(batch: Batch) -> Tensor:
    """The number of rows with a label `next`: whether their second text follows the first."""
    if "next" not in batch:
        return torch.tensor(len(batch["ids"]))
    return (batch["next"] != IGNORE).sum().clamp(min=1)  # not 0, because it is a divisor


def _real_tokens(batch: Batch) -> Tensor:
    """The number of tokens without padding."""
    if "attention_mask" not in batch:
        return torch.tensor(batch["ids"].numel())
    return batch["attention_mask"].sum()
