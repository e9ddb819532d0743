"""The training loop: a generator of `Step` records that prints nothing. One device, or several processes.

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
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal, Protocol, cast

import torch
from torch import Tensor, nn

from course_lib import checkpoint as checkpoints
from course_lib import parallel
from course_lib.corrupt import IGNORE
from course_lib.errors import CourseError
from course_lib.files import sweep
from course_lib.layers import Embedding
from course_lib.losses import Batch, Loss
from course_lib.optim import Schedule, adamw
from course_lib.parallel import Processes

Precision = Literal["fp32", "bf16", "auto"]

WHOLE = (torch.int64, torch.int32)
COMPILED_FROM = 500  # steps; fewer do not pay for torch.compile on a GPU


class Batches(Protocol):
    """Batch number `step` for every step >= 0, always the same one for the same number. A list, over and
    over, too."""

    def __getitem__(self, step: int, /) -> Batch: ...


@dataclass(frozen=True)
class Step:
    """One update. step: updates done, from 1. loss: mean over the batch's targets, before the update. lr: the
    largest learning rate used. grad_norm: before clipping. tokens: real tokens read. seconds: the update's
    time."""

    step: int
    loss: float
    lr: float
    grad_norm: float
    tokens: int
    seconds: float


def train(
    model: nn.Module,
    batches: Batches,
    loss: Loss,
    optimizer: torch.optim.Optimizer | None = None,
    schedule: Schedule | None = None,
    *,
    steps: int,
    accumulate: int = 1,
    clip: float | None = 1.0,
    device: str | torch.device = "cpu",
    precision: Precision | None = None,
    compile: bool | None = None,
    checkpoint: str | Path | None = None,
    every: int = 500,
    resume: bool = True,
) -> Iterator[Step]:
    """Train `model` in place; one `Step` after each update.

    Under `accelerate launch` (or torchrun) the processes share out each batch's rows, and the updates are those of one
    process: by data parallelism, or with `--use_fsdp` in shards, which the model's parameters then stay
    (`checkpoint.load_model` puts the whole weights into another model).

    Args:
        batches: `batches[step]` is the batch of that step, a dict of tensors whose first dimension is B.
        loss: (model, batch) -> scalar, the mean over the batch's targets (`course_lib.losses`).
        optimizer: `optim.adamw(model)` if None. schedule: step -> factor on its learning rate; constant if
            None.
        steps: updates in all, those before a resume included.
        accumulate: cut each batch (each process's share of it) into so many parts of rows, one in memory at a time.
            The update is the whole batch's: each part counts by its number of targets.
        clip: largest norm of the gradient; None leaves it alone.
        device: "cpu", "cuda", ...; the model is moved there.
        precision: "bf16" runs the matrix products in bfloat16 (autocast; weights and updates stay float32),
            "auto" does so where the device has instructions for it; None: "auto" on a GPU, "fp32" on a CPU, where
            equal runs on two machines matter more.
        compile: torch.compile, which pays back after some hundred steps; None: on a GPU, for `COMPILED_FROM` or more.
        checkpoint: file to write every `every` steps and at the end, and to resume from if it is there and
            `resume`. A resumed run ends with the same bits as one never stopped (of as many processes; another number
            may go on, too). Whenever the process is killed, the file is whole. The main process writes it.

    Raises:
        CourseError: a loss or gradient that is not finite (the model and the checkpoint stay as they were
            before the step), a checkpoint of another model or a damaged one, a full disk, a batch whose tensors are
            of the wrong type, a token id outside the vocabulary, a sequence over the limit, arguments out of range.
    """
    for name, value in (("steps", steps), ("accumulate", accumulate), ("every", every)):
        if value < 1:
            raise CourseError(f"{name} is {value}; it must be at least 1.")
    if clip is not None and clip <= 0:
        raise CourseError(f"clip is {clip}; give a gradient norm above 0, or None for no clipping.")
    if isinstance(batches, Sequence) and len(batches) == 0:
        raise CourseError("There are no batches to train on.")
    processes, device = parallel.join(_checked(device))
    keep_large_buffers()
    model.to(device).train()
    optimizer = adamw(model) if optimizer is None else optimizer
    cast_to_bf16, compile = _chosen(precision, compile, device, steps)
    net = _Objective(cast(nn.Module, torch.compile(model)) if compile else model, loss)
    return _loop(
        model,
        parallel.spread(net, optimizer, processes),
        batches,
        optimizer,
        schedule or (lambda step: 1.0),
        steps=steps,
        accumulate=accumulate,
        clip=math.inf if clip is None else clip,
        device=device,
        cast_to_bf16=cast_to_bf16,
        path=None if checkpoint is None else Path(checkpoint),
        every=every,
        resume=resume,
        processes=processes,
    )


class _Objective(nn.Module):
    """Batch -> loss, as one module: what is spread over processes, whatever of the model a loss calls."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, batch: Batch) -> Tensor:
        return self.loss(self.model, batch)


def _loop(
    model: nn.Module,
    net: nn.Module,
    batches: Batches,
    optimizer: torch.optim.Optimizer,
    schedule: Schedule,
    *,
    steps: int,
    accumulate: int,
    clip: float,
    device: torch.device,
    cast_to_bf16: bool,
    path: Path | None,
    every: int,
    resume: bool,
    processes: Processes,
) -> Iterator[Step]:
    peak = [group["lr"] for group in optimizer.param_groups]
    trained = [p for group in optimizer.param_groups for p in group["params"]]
    if path and processes.is_main:
        sweep(path)
    # The main process knows: it may still have been writing while the others came here.
    if path and processes.agree(resume and path.exists()):
        first = checkpoints.load(path, model, optimizer, processes)
    else:
        first = 0
        if processes.rank:
            torch.manual_seed(torch.initial_seed() + processes.rank)  # other rows, other dropout

    start = time.perf_counter()
    for step, batch in zip(range(first, steps), _ahead(batches, range(first, steps), model, device), strict=True):
        if not model.training:  # a consumer may have called eval() between two steps
            model.train()
        for group, lr in zip(optimizer.param_groups, peak, strict=True):
            group["lr"] = lr * schedule(step)
        if accumulate > len(batch["ids"]):
            raise CourseError(
                f"accumulate is {accumulate}, but the batch has only {len(batch['ids'])} rows to share out."
            )

        total = torch.zeros((), device=device)
        mine = islice(split(batch, accumulate * processes.world), processes.rank, None, processes.world)
        for index, (part, weight) in enumerate(mine, start=1):
            with parallel.silent(net, index < accumulate):
                with _autocast(device, cast_to_bf16):
                    value = net(part) * weight
                value = value * processes.world  # their gradients are averaged, not added
                value.backward()
            total += value.detach() / processes.world
        processes.sum(total)
        norm = parallel.whole(nn.utils.clip_grad_norm_(trained, clip))
        if not (math.isfinite(total.item()) and math.isfinite(norm.item())):
            raise CourseError(_diverged(step + 1, total.item(), norm.item(), path))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

        if path and ((step + 1) % every == 0 or step + 1 == steps):
            checkpoints.save(path, model, optimizer, step + 1, processes)
        rate = max(group["lr"] for group in optimizer.param_groups)
        seconds = time.perf_counter() - start
        yield Step(step + 1, total.item(), rate, norm.item(), _tokens(batch), seconds)
        start = time.perf_counter()


def split(batch: Batch, parts: int) -> Iterator[tuple[Batch, float | Tensor]]:
    """Cut a batch into micro-batches of rows, each with its share of the batch's targets.

    The shares add up to 1, and the mean losses so weighted add up to the whole batch's mean loss. A part also
    carries `row_share` and `token_share`, for losses that count rows or real tokens beside targets (`losses.mlm_nsp`,
    `losses.electra`). Where there are more parts than rows, the last ones are the first row over again, with no share:
    a process may not sit out.
    """
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
    """How many targets the batch's mean loss is taken over: labels that are not -100, else next tokens, else
    rows."""
    if "labels" in batch:
        labels = batch["labels"]
        return (labels != IGNORE).sum() if labels.dim() > 1 else torch.tensor(len(labels))
    keep = batch["keep"].bool() if "keep" in batch else torch.ones_like(batch["ids"], dtype=torch.bool)
    return (keep[:, 1:] & keep[:, :-1]).sum()


def _pairs(batch: Batch) -> Tensor:
    """Rows that carry a label of their own."""
    return (batch["next"] != IGNORE).sum().clamp(min=1) if "next" in batch else torch.tensor(len(batch["ids"]))


def _real(batch: Batch) -> Tensor:
    """Real tokens."""
    return batch["keep"].sum() if "keep" in batch else torch.tensor(batch["ids"].numel())


def has_bf16(device: str | torch.device) -> bool:
    """Whether the device multiplies bfloat16 matrices in hardware: CUDA from Ampere on, CPUs with AVX512-BF16
    or AMX."""
    if torch.device(device).type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if torch.device(device).type == "cpu":
        able = torch.cpu.get_capabilities()
        return bool(able.get("avx512_bf16") or able.get("amx_bf16"))
    return False


@functools.cache
def keep_large_buffers() -> bool:
    """Tell glibc to keep large freed buffers instead of giving them back to the system at every step.

    Without it each step costs some hundred thousand page faults. Only on Linux with glibc; the setting is
    the process's. Returns whether it was set.
    """
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return False
    m_trim_threshold, m_mmap_threshold = -1, -3  # malloc.h
    libc = ctypes.CDLL(None)
    return bool(libc.mallopt(m_mmap_threshold, 2**31 - 1) and libc.mallopt(m_trim_threshold, 2**31 - 1))


def _chosen(precision: Precision | None, compile: bool | None, device: torch.device, steps: int) -> tuple[bool, bool]:
    """Whether to cast to bfloat16, and whether to compile."""
    if precision not in (None, "fp32", "bf16", "auto"):
        raise CourseError(f"There is no precision {precision!r}; choose fp32, bf16 or auto.")
    auto = precision == "auto" or (precision is None and device.type != "cpu")
    long = device.type == "cuda" and steps >= COMPILED_FROM
    return precision == "bf16" or (auto and has_bf16(device)), long if compile is None else compile


def _checked(device: str | torch.device) -> torch.device:
    try:
        known = torch.device(device)
    except RuntimeError as error:
        raise CourseError(f"There is no device {device!r}; use 'cpu', 'cuda', 'cuda:1' or 'mps'.") from error
    if known.type == "cuda" and not torch.cuda.is_available():
        raise CourseError("device is 'cuda', but PyTorch sees no NVIDIA GPU here; use device='cpu'.")
    if known.type == "mps" and not torch.backends.mps.is_available():
        raise CourseError("device is 'mps', but this is no Mac with an Apple GPU; use device='cpu'.")
    return known


def _ahead(batches: Batches, steps: range, model: nn.Module, device: torch.device) -> Iterator[Batch]:
    """The batch of each step, on the device; beside a GPU, the next one is made while it computes."""

    def make(step: int) -> Batch:
        batch = batches[step % len(batches)] if isinstance(batches, Sequence) else batches[step]
        _check_types(batch, step)
        if device.type == "cpu":
            return batch
        for module in model.modules():  # a GPU would only say "device-side assert"
            if isinstance(module, Embedding):
                module.check(batch["ids"])
        return {name: _pinned(value, device).to(device, non_blocking=True) for name, value in batch.items()}

    if device.type == "cpu":
        yield from map(make, steps)
        return
    with ThreadPoolExecutor(max_workers=1) as reader:
        coming = None
        for step in steps:
            batch = make(step) if coming is None else coming.result()
            coming = reader.submit(make, step + 1) if step + 1 < steps.stop else None
            yield batch


def _check_types(batch: Batch, step: int) -> None:
    kinds = {"ids": WHOLE, "segments": WHOLE, "keep": (torch.bool,), "at": (torch.bool,)}
    for name, kind in kinds.items():
        if name in batch and batch[name].dtype not in kind:
            raise CourseError(
                f"{name!r} of batch {step} is of type {batch[name].dtype}; it must be {' or '.join(map(str, kind))}."
            )


def _pinned(value: Tensor, device: torch.device) -> Tensor:
    return value.pin_memory() if device.type == "cuda" and value.device.type == "cpu" else value


def _tokens(batch: Batch) -> int:
    return int(batch["keep"].sum()) if "keep" in batch else batch["ids"].numel()


def _autocast(device: torch.device, on: bool) -> AbstractContextManager[object]:
    return torch.autocast(device.type, torch.bfloat16) if on else nullcontext()


def _diverged(step: int, loss: float, norm: float, path: Path | None) -> str:
    what = f"the loss is {loss}" if not math.isfinite(loss) else f"the norm of the gradient is {norm}"
    kept = f" The checkpoint {path} still holds the last good state." if path and path.exists() else ""
    return f"Training diverged at step {step}: {what}. Lower the learning rate or warm up for longer.{kept}"
