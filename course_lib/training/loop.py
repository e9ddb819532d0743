"""The training loop: a generator of `Step` records that prints nothing. One device, or several
processes.

Bars, curves and logs are consumers of the records:

    config = TrainConfig(steps=1000, lr=3e-4, schedule="cosine", warmup=100)
    for step in train(model, batches, losses.clm, config):
        curve.append(step.loss)
"""

import ctypes
import functools
import math
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
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
from course_lib.training import distributed, run_state
from course_lib.training.distributed import Processes
from course_lib.training.optim import OPTIMIZERS, SCHEDULES, Schedule
from course_lib.vocab import IGNORE

Precision = Literal["fp32", "bf16", "auto"]

WHOLE, YES_NO = (torch.int64, torch.int32), (torch.bool,)
# of a batch's tensors
TYPES = {"ids": WHOLE, "segments": WHOLE, "attention_mask": YES_NO, "loss_mask": YES_NO}
# Fields of TrainConfig that decide the result. More steps may be asked of a run that is done, and
# another machine may go on with it.
RECIPE = ("lr", "schedule", "warmup", "optimizer", "weight_decay", "beta2", "clip", "precision")
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


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How to train: what decides the result, where it runs, and where its state is kept.

    Attributes:
        steps: updates in all, those before a resume included.
        lr: the peak of the learning rate.
        schedule: of `optim.SCHEDULES`: how the rate rises and falls over the steps.
        warmup: steps until the rate has risen to `lr`.
        optimizer: of `optim.OPTIMIZERS`.
        weight_decay: for matrices; biases, norms and embedding tables do not decay.
        beta2: the decay of the second moment. The first moment's is 0.9.
        clip: the largest norm of the gradient.
        precision: "bf16" runs the matrix products in bfloat16 (autocast: weights and updates stay
            float32). "auto" does so where the device has instructions for it. None: "auto" on a
            GPU, "fp32" on a CPU, where equal runs on two machines matter more.
        accumulate: cut each batch (each process's share of it) into so many parts of rows, one in
            memory at a time. The update is the whole batch's.
        device: "cpu", "cuda", "cuda:1" or "mps".
        compile: torch.compile. None: on a GPU, for `COMPILED_FROM` steps or more.
        save_to: the file of the run's state, written every `save_every` steps and at the end.
            Whenever the process is killed, the file is whole.
        save_every: steps between two writes.
        resume: go on from the state in `save_to`, if there is one. The run then ends with the same
            bits as one never stopped.
        recipe: what decides the result, for a caller with a larger config of its own. None: the
            fields of `RECIPE`. It is saved with the state, and a resume that asks for another one
            is refused.

    Raises:
        CourseError: if a value is out of range or names nothing.
    """

    steps: int
    lr: float = 1e-3
    schedule: str = "constant"
    warmup: int = 0
    optimizer: str = "adamw"
    weight_decay: float = 0.01
    beta2: float = 0.999
    clip: float = 1.0
    precision: Precision | None = None

    accumulate: int = 1
    device: str | torch.device = "cpu"
    compile: bool | None = None

    save_to: str | Path | None = None
    save_every: int = 500
    resume: bool = True
    recipe: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for name in ("steps", "accumulate", "save_every"):
            value = getattr(self, name)
            if value < 1:
                raise CourseError(f"{name} is {value}; it must be at least 1.")
        choices: dict[str, list[str | None]] = {
            "schedule": [*SCHEDULES],
            "optimizer": [*OPTIMIZERS],
            "precision": [None, "fp32", "bf16", "auto"],
        }
        for name, known in choices.items():
            value = getattr(self, name)
            if value not in known:
                raise CourseError(
                    f"There is no {name} {value!r}; choose one of"
                    f" {', '.join(str(choice) for choice in known if choice)}."
                )

    def saved_recipe(self) -> dict[str, Any]:
        """What is saved with the state and compared by a resume."""
        if self.recipe is not None:
            return dict(self.recipe)
        return {name: getattr(self, name) for name in RECIPE}

    def new_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """The optimizer of the model's trainable weights."""
        return OPTIMIZERS[self.optimizer](
            model, self.lr, weight_decay=self.weight_decay, betas=(0.9, self.beta2)
        )

    def new_schedule(self) -> Schedule:
        """Step, from 0 -> factor on the learning rate."""
        return SCHEDULES[self.schedule](self.steps, self.warmup)


def train(
    model: nn.Module,
    batches: Batches,
    loss: Loss,
    config: TrainConfig,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    schedule: Schedule | None = None,
) -> Iterator[Step]:
    """Train `model` in place; one `Step` after each update.

    Under `accelerate launch` (or torchrun) the processes share out each batch's rows, and the
    updates are those of one process: by data parallelism, or with `--use_fsdp` in shards, which the
    model's parameters then stay. A resumed run ends with the same bits as one never stopped (of as
    many processes; another number may go on, too).

    Args:
        batches: `batches[step]` is the batch of that step, a dict of tensors whose first dimension
            is B.
        loss: (model, batch) -> scalar, the mean over the batch's targets
            (`course_lib.objectives.losses`).
        config: everything else.
        optimizer: one of your own, in place of the config's.
        schedule: step, from 0 -> factor on the optimizer's learning rate, in place of the config's.

    Raises:
        CourseError: if a loss or gradient is not finite; the model and the saved state stay as
            before the step. If the saved state is of another run or damaged. If a batch does not
            fit.
    """
    if isinstance(batches, Sequence) and len(batches) == 0:
        raise CourseError("There are no batches to train on.")
    steps, accumulate, every = config.steps, config.accumulate, config.save_every
    recipe = config.saved_recipe()
    processes, place = distributed.join(known_device(config.device))
    keep_large_buffers()
    model.to(place).train()
    if optimizer is None:
        optimizer = config.new_optimizer(model)
    if schedule is None:
        schedule = config.new_schedule()
    bf16, compile = _chosen(config.precision, config.compile, place, steps)
    objective = _Objective(cast(nn.Module, torch.compile(model)) if compile else model, loss)
    net = distributed.spread(objective, optimizer, processes)
    peak = [group["lr"] for group in optimizer.param_groups]
    trained = [p for group in optimizer.param_groups for p in group["params"]]
    path = None if config.save_to is None else Path(config.save_to)
    first = 0
    if path and processes.is_main:
        sweep(path)
    # The main process knows: it may still have been writing while the others came here.
    if path and processes.agree(config.resume and path.exists()):
        if (done := run_state.steps_done(path, recipe)) > steps:
            raise CourseError(
                f"The run in {path} has made {done:,} steps, more than the {steps:,} asked for."
            )
        first = run_state.load(path, model, optimizer, processes)
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
            group["lr"] = lr * schedule(step)
        total = _backward(net, parts, processes, place, bf16)
        norm = distributed.whole(nn.utils.clip_grad_norm_(trained, config.clip))
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
            run_state.save(path, model, optimizer, step + 1, processes, recipe=recipe)
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
