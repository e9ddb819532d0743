"""Batches on their way to the model: checked, cut into parts, moved to the device.

On a GPU the next batch is made in a thread while the device computes. Letters: B rows of a batch, T
positions."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.model.checks import check_ids
from course_lib.model.layers import Embedding
from course_lib.objectives.losses import Batch, counted
from course_lib.training.distributed import ALONE, Processes
from course_lib.vocab import IGNORE

# The types that a batch's tensors must have. Others would fail deep inside the model, or not fail.
WHOLE_NUMBERS = (torch.int64, torch.int32)
YES_OR_NO = (torch.bool,)
TYPES = {
    "ids": WHOLE_NUMBERS,
    "segments": WHOLE_NUMBERS,
    "attention_mask": YES_OR_NO,
    "loss_mask": YES_OR_NO,
}
Value = TypeVar("Value")


class Batches(Protocol):
    """Batch number `step` for every step >= 0, always the same one for the same number.

    A list will do: it is read over and over.
    """

    def __getitem__(self, step: int, /) -> Batch: ...


class Part(NamedTuple):
    """Some rows of a batch.

    Attributes:
        batch: the rows.
        weight: the factor on their mean loss. The weighted losses of all parts add up to the
            whole batch's mean loss.
    """

    batch: Batch
    weight: float | Tensor


class Ready(NamedTuple):
    """A step's batch, ready for the model.

    Attributes:
        parts: those of this process, on its device.
        tokens: real tokens of the whole batch, those of other processes included.
    """

    parts: list[Part]
    tokens: int


class Feed:
    """Makes each step's batch ready.

    Args:
        batches: `batches[step]` is the batch of that step.
        model: the model that will read them; ids must be in its vocabulary.
        device: the device to move them to.
        accumulate: parts that each process cuts its share of a batch into.
        processes: those that share the rows of each batch.
    """

    def __init__(
        self,
        batches: Batches,
        model: nn.Module,
        device: torch.device,
        accumulate: int = 1,
        processes: Processes = ALONE,
    ) -> None:
        self.batches = batches
        self.device = device
        self.accumulate = accumulate
        self.processes = processes
        self.vocabularies = {
            module.tokens.num_embeddings
            for module in model.modules()
            if isinstance(module, Embedding)
        }

    def of_steps(self, steps: range) -> Iterator[Ready]:
        """The batches of these steps; beside a GPU each is made while the one before is computed.

        Raises:
            CourseError: if a batch does not fit the model, or cannot be cut.
        """
        if self.device.type == "cpu":
            return map(self.of_step, steps)
        return one_ahead(self.of_step, steps)

    def of_step(self, step: int) -> Ready:
        """The batch of one step."""
        batch = self._read(step)
        world = self.processes.world
        every_part = micro_batches(batch, self.accumulate * world)
        own_parts = islice(every_part, self.processes.rank, None, world)
        # The gradients of several processes are averaged, so each part counts `world` times.
        parts = [Part(self._moved(part), weight * world) for part, weight in own_parts]
        return Ready(parts, int(_real_tokens(batch)))

    def _read(self, step: int) -> Batch:
        """The batch of a step; a `CourseError` if the model cannot read it."""
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
            # A GPU would only report that some kernel failed. On a CPU the embedding raises.
            for size in self.vocabularies:
                check_ids(batch["ids"], size)
        return batch

    def _moved(self, batch: Batch) -> Batch:
        """The batch on the device; the host does not wait for the copy."""
        if self.device.type == "cpu":
            return batch
        moved = {}
        for name, value in counted(batch).items():
            if self.device.type == "cuda" and value.is_cpu:
                value = value.pin_memory()
            moved[name] = value.to(self.device, non_blocking=True)
        return moved


def one_ahead(make: Callable[[int], Value], steps: range) -> Iterator[Value]:
    """`make(step)` of each step; a thread makes the next one while the caller uses this one."""
    with ThreadPoolExecutor(max_workers=1) as reader:
        coming = None
        for step in steps:
            ready = make(step) if coming is None else coming.result()
            coming = reader.submit(make, step + 1) if step + 1 < steps.stop else None
            yield ready


def micro_batches(batch: Batch, parts: int) -> Iterator[Part]:
    """Cut a batch into parts of rows, each weighted by its share of the batch's targets.

    A part also carries `row_share` and `token_share`, for losses that count rows or real tokens
    beside targets (`losses.mlm_nsp`, `losses.electra`). Where there are more parts than rows, the
    last ones are the first row over again, with no weight.
    """
    if parts == 1:
        yield Part(batch, 1.0)
        return
    rows = torch.arange(len(batch["ids"]), device=batch["ids"].device)
    all_targets = targets(batch).clamp(min=1)
    for chosen in rows.tensor_split(parts):
        is_empty = len(chosen) == 0
        index = slice(1) if is_empty else chosen
        part = {name: value[index] for name, value in batch.items()}
        share = targets(part) / all_targets
        if is_empty:
            share = share * 0
        part["row_share"] = _labelled_rows(part) / _labelled_rows(batch) / share.clamp(min=1e-6)
        part["token_share"] = _real_tokens(part) / _real_tokens(batch) / share.clamp(min=1e-6)
        yield Part(part, share)


def targets(batch: Batch) -> Tensor:
    """How many targets the batch's mean loss is taken over.

    They are the labels that are not -100; without labels, the tokens that follow another one.
    """
    if "labels" in batch:
        labels = batch["labels"]
        if labels.dim() == 1:  # one a row
            return torch.tensor(len(labels))
        return (labels != IGNORE).sum()
    real = batch.get("attention_mask", torch.ones_like(batch["ids"])).bool()
    return (real[:, 1:] & real[:, :-1]).sum()


def _labelled_rows(batch: Batch) -> Tensor:
    """How many rows carry a label of their own: whether the second text follows the first."""
    if "next" not in batch:
        return torch.tensor(len(batch["ids"]))
    return (batch["next"] != IGNORE).sum().clamp(min=1)


def _real_tokens(batch: Batch) -> Tensor:
    """How many tokens are not padding."""
    if "attention_mask" not in batch:
        return torch.tensor(batch["ids"].numel())
    return batch["attention_mask"].sum()
