"""The training loop: a generator of `Step` records that prints nothing. One device, or several
processes.

Bars, curves and logs are consumers of the records:

    for step in train(model, batches, losses.clm, schedule=cosine(1000, warmup=100), steps=1000):
        curve.append(step.loss)
"""

import ctypes
import functools
import math
import platform
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import torch
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.files import sweep
from course_lib.model.layers import Embedding, check_ids
from course_lib.objectives.losses import Batch, Loss, counted
from course_lib.training import checkpoint as checkpoints
from course_lib.training import distributed
from course_lib.training.distributed import Processes
from course_lib.training.optim import Schedule, adamw
from course_lib.vocab import IGNORE

Precision = Literal["fp32", "bf16", "auto"]

WHOLE, YES_NO = (torch.int64, torch.int32), (torch.bool,)
# of a batch's tensors
TYPES = {"ids": WHOLE, "segments": WHOLE, "attention_mask": YES_NO, "loss_mask": YES_NO}
CLIP = 1.0  # largest norm of the gradient
COMPILED_FROM = 500  # steps; fewer do not pay for torch.compile on a GPU
# steps between two looks, which wait for the device, and where they are rare
LOOK, UNSEEN = 20, {"cuda"}
Part = tuple[Batch, float | Tensor]  # rows of a batch, and their share of its targets


class Batches(Protocol):
    """Batch number `step` for every step >= 0, always the same one for the same number. A list,
    over and over, too.
    """

    def __getitem__(self, step: int, /) -> Batch: ...


@dataclass(frozen=True)
class Step:
    """One update. step: from 1. loss: mean over the batch's targets, before the update. lr: the
    largest. grad_norm: before clipping. tokens: real ones read. seconds: until a GPU has its work;
    who reads loss or grad_norm waits."""

    step: int
    lr: float
    tokens: int
    seconds: float
    figures: Tensor = field(repr=False)  # on the device
    loss = functools.cached_property[float](lambda self: self.figures[0].item())
    grad_norm = functools.cached_property[float](lambda self: self.figures[1].item())


def train(
    model: nn.Module,
    batches: Batches,
    loss: Loss,
    optimizer: torch.optim.Optimizer | None = None,
    schedule: Schedule | None = None,
    *,
    steps: int,
    accumulate: int = 1,
    device: str | torch.device = "cpu",
    precision: Precision | None = None,
    compile: bool | None = None,
    checkpoint: str | Path | None = None,
    every: int = 500,
    resume: bool = True,
    recipe: checkpoints.Recipe | None = None,
) -> Iterator[Step]:
    """Train `model` in place; one `Step` after each update.

    Under `accelerate launch` (or torchrun) the processes share out each batch's rows, and the
    updates are those of one process: by data parallelism, or with `--use_fsdp` in shards, which the
    model's parameters then stay. A loss or gradient that is not finite is a CourseError; the model
    and the checkpoint stay as before the step.

    Args:
        batches: `batches[step]` is the batch of that step, a dict of tensors whose first dimension
            is B.
        loss: (model, batch) -> scalar, the mean over the batch's targets
            (`course_lib.objectives.losses`).
        optimizer: `optim.adamw(model)` if None. schedule: step -> factor on its learning rate;
            constant if None.
        steps: updates in all, those before a resume included.
        accumulate: cut each batch (each process's share of it) into so many parts of rows, one in
            memory at a time. The update is the whole batch's: each part counts by its number of
            targets.
        precision: "bf16" runs the matrix products in bfloat16 (autocast; weights and updates stay
            float32), "auto" does so where the device has instructions for it; None: "auto" on a
            GPU, "fp32" on a CPU, where equal runs on two machines matter more.
        compile: torch.compile; None: on a GPU, for `COMPILED_FROM` steps or more.
        checkpoint: file to write every `every` steps and at the end, and to resume from if it is
            there and `resume`. A resumed run ends with the same bits as one never stopped (of as
            many processes; another number may go on, too). Whenever the process is killed, the file
            is whole. recipe: what the run was asked for; a file of another recipe is refused.
    """
    for name, value in (("steps", steps), ("accumulate", accumulate), ("every", every)):
        if value < 1:
            raise CourseError(f"{name} is {value}; it must be at least 1.")
    if isinstance(batches, Sequence) and len(batches) == 0:
        raise CourseError("There are no batches to train on.")
    processes, place = distributed.join(known_device(device))
    keep_large_buffers()
    model.to(place).train()
    optimizer = adamw(model) if optimizer is None else optimizer
    bf16, compile = _chosen(precision, compile, place, steps)
    objective = _Objective(cast(nn.Module, torch.compile(model)) if compile else model, loss)
    net = distributed.spread(objective, optimizer, processes)
    peak = [group["lr"] for group in optimizer.param_groups]
    trained = [p for group in optimizer.param_groups for p in group["params"]]
    path = None if checkpoint is None else Path(checkpoint)
    first = 0
    if path and processes.is_main:
        sweep(path)
    # The main process knows: it may still have been writing while the others came here.
    if path and processes.agree(resume and path.exists()):
        if (done := checkpoints.steps_done(path, recipe)) > steps:
            raise CourseError(
                f"The run in {path} has made {done:,} steps, more than the {steps:,} asked for."
            )
        first = checkpoints.load(path, model, optimizer, processes)
    elif processes.rank:
        torch.manual_seed(torch.initial_seed() + processes.rank)  # other rows, other dropout

    # loss, norm and number of the first update that is not finite
    worst = torch.zeros(3, device=place)
    # The kernel leaves out an update where `found_inf` says so: then nobody has to look before.
    unseen = (
        place.type in UNSEEN
        and hasattr(optimizer, "_step_supports_amp_scaling")
        and not processes.sharded
    )
    start = time.perf_counter()
    coming = _ahead(batches, range(first, steps), model, place, accumulate, processes)
    for step, (parts, tokens) in zip(range(first, steps), coming, strict=True):
        if not model.training:  # a consumer may have called eval() between two steps
            model.train()
        for group, lr in zip(optimizer.param_groups, peak, strict=True):
            group["lr"] = lr * (1.0 if schedule is None else schedule(step))
        total = _backward(net, parts, processes, place, bf16)
        norm = distributed.whole(nn.utils.clip_grad_norm_(trained, CLIP))
        figures = torch.stack((total, norm, torch.full_like(total, step + 1)))
        worst = figures.where(worst.isfinite().all(), worst)
        if unseen:
            cast(Any, optimizer).found_inf = (~worst.isfinite().all()).float()
        saving = (step + 1) % every == 0 or step + 1 == steps
        if (saving or not unseen or (step + 1) % LOOK == 0) and not all(
            map(math.isfinite, seen := worst.tolist())
        ):
            kept = (
                f" The checkpoint {path} still holds the last good state."
                if path and path.exists()
                else ""
            )
            raise CourseError(
                f"Training diverged at step {seen[2]:.0f}: the loss is {seen[0]}, the norm of the"
                f" gradient is {seen[1]}. Lower the learning rate or warm up for longer.{kept}"
            )
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

        if path and saving:
            checkpoints.save(path, model, optimizer, step + 1, processes, recipe=recipe)
        rate = max(group["lr"] for group in optimizer.param_groups)
        seconds = time.perf_counter() - start
        yield Step(step + 1, rate, tokens, seconds, figures)
        start = time.perf_counter()


class _Objective(nn.Module):
    """Batch -> loss, as one module: what is spread over processes, whatever of the model a loss
    calls.
    """

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, batch: Batch) -> Tensor:
        return self.loss(self.model, batch)


def _backward(
    net: nn.Module, parts: list[Part], processes: Processes, device: torch.device, bf16: bool
) -> Tensor:
    """The gradients of this process's parts of the batch; the loss of all of it."""
    total = torch.zeros((), device=device)
    for index, (part, weight) in enumerate(parts, start=1):
        with distributed.silent(net, index < len(parts)):
            with torch.autocast(device.type, torch.bfloat16) if bf16 else nullcontext():
                value = net(part) * weight
            value = value * processes.world  # their gradients are averaged, not added
            value.backward()
        total += value.detach() / processes.world
    return processes.sum(total)


def micro_batches(batch: Batch, parts: int) -> Iterator[Part]:
    """Cut a batch into micro-batches of rows, each with its share of the batch's targets.

    The mean losses so weighted add up to the whole batch's mean loss. A part also carries
    `row_share` and `token_share`, for losses that count rows or real tokens beside targets
    (`losses.mlm_nsp`, `losses.electra`). Where there are more parts than rows, the last ones are
    the first row over again, with no share."""
    if parts == 1:
        yield batch, 1.0
        return
    rows = len(batch["ids"])
    whole = targets(batch)
    for index in torch.arange(rows, device=batch["ids"].device).tensor_split(parts):
        part = {name: value[index if len(index) else slice(1)] for name, value in batch.items()}
        share = targets(part) / whole.clamp(min=1) * bool(len(index))
        part["row_share"] = _pairs(part) / _pairs(batch) / share.clamp(min=1e-6)
        part["token_share"] = _real(part) / _real(batch) / share.clamp(min=1e-6)
        yield part, share


def targets(batch: Batch) -> Tensor:
    """How many targets the batch's mean loss is taken over: labels that are not -100, else next
    tokens, else rows.
    """
    if "labels" in batch:
        labels = batch["labels"]
        return (labels != IGNORE).sum() if labels.dim() > 1 else torch.tensor(len(labels))
    real = batch.get("attention_mask", torch.ones_like(batch["ids"])).bool()
    return (real[:, 1:] & real[:, :-1]).sum()


def _pairs(batch: Batch) -> Tensor:
    """Rows that carry a label of their own."""
    return (
        (batch["next"] != IGNORE).sum().clamp(min=1)
        if "next" in batch
        else torch.tensor(len(batch["ids"]))
    )


def _real(batch: Batch) -> Tensor:
    """Real tokens."""
    return (
        batch["attention_mask"].sum()
        if "attention_mask" in batch
        else torch.tensor(batch["ids"].numel())
    )


def has_bf16(device: str | torch.device) -> bool:
    """Whether bfloat16 products are faster in hardware: CUDA from Ampere on, CPUs with AMX, AMD's
    with AVX512-BF16.
    """
    if torch.device(device).type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    able = torch.cpu.get_capabilities() if torch.device(device).type == "cpu" else {}
    amd = (file := Path("/proc/cpuinfo")).exists() and "AuthenticAMD" in file.read_text(
        "utf-8", "replace"
    )
    # Intel's AVX512-BF16 alone is slower
    return bool(able.get("amx_bf16") or (amd and able.get("avx512_bf16")))


@functools.cache
def keep_large_buffers() -> None:
    """Tell glibc to keep large freed buffers instead of giving them back to the system at every
    step: some hundred thousand page faults less. The setting is the process's."""
    if platform.libc_ver()[0] == "glibc":
        m_trim_threshold, m_mmap_threshold = -1, -3  # malloc.h
        for threshold in (m_mmap_threshold, m_trim_threshold):
            ctypes.CDLL(None).mallopt(threshold, 2**31 - 1)


def _chosen(
    precision: Precision | None, compile: bool | None, device: torch.device, steps: int
) -> tuple[bool, bool]:
    """Whether to cast to bfloat16, and whether to compile."""
    if precision not in (None, "fp32", "bf16", "auto"):
        raise CourseError(f"There is no precision {precision!r}; choose fp32, bf16 or auto.")
    auto = precision == "auto" or (precision is None and device.type != "cpu")
    long = device.type == "cuda" and steps >= COMPILED_FROM
    return precision == "bf16" or (auto and has_bf16(device)), long if compile is None else compile


def known_device(device: str | torch.device) -> torch.device:
    """The device; a CourseError if there is none of this name."""
    try:
        known = torch.device(device)
    except RuntimeError as error:
        raise CourseError(
            f"There is no device {device!r}; use 'cpu', 'cuda', 'cuda:1' or 'mps'."
        ) from error
    if known.type == "cuda" and not torch.cuda.is_available():
        raise CourseError(
            "device is 'cuda', but PyTorch sees no NVIDIA GPU here; use device='cpu'."
        )
    return known


def _ahead(
    batches: Batches,
    steps: range,
    model: nn.Module,
    device: torch.device,
    accumulate: int,
    processes: Processes,
) -> Iterator[tuple[list[Part], int]]:
    """Each step's parts of this process, on the device, and the real tokens of all; beside a GPU,
    made meanwhile.
    """
    vocabularies = {
        module.tokens.num_embeddings for module in model.modules() if isinstance(module, Embedding)
    }

    def make(step: int) -> tuple[list[Part], int]:
        batch = batches[step % len(batches)] if isinstance(batches, Sequence) else batches[step]
        for name, kind in TYPES.items():
            if name in batch and batch[name].dtype not in kind:
                right = " or ".join(map(str, kind))
                raise CourseError(
                    f"{name!r} of batch {step} is of type {batch[name].dtype}; it must be {right}."
                )
        if accumulate > (rows := len(batch["ids"])):
            raise CourseError(
                f"accumulate is {accumulate}, but the batch has only {rows} rows to share out."
            )
        mine = islice(
            micro_batches(batch, accumulate * processes.world),
            processes.rank,
            None,
            processes.world,
        )
        for size in vocabularies if device.type != "cpu" else ():
            check_ids(batch["ids"], size)
        return [(move(part), share) for part, share in mine], int(_real(batch))

    def move(part: Batch) -> Batch:
        if device.type == "cpu":
            return part
        pinned = {
            k: x.pin_memory() if device.type == "cuda" and x.is_cpu else x
            for k, x in counted(part).items()
        }
        return {name: x.to(device, non_blocking=True) for name, x in pinned.items()}

    if device.type == "cpu":
        yield from map(make, steps)
        return
    with ThreadPoolExecutor(max_workers=1) as reader:
        coming = None
        for step in steps:
            made = make(step) if coming is None else coming.result()
            coming = reader.submit(make, step + 1) if step + 1 < steps.stop else None
            yield made
