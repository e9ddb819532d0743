"""The training loop: a generator of `Step` records that prints nothing.

Bars, curves and logs are consumers of the records:

    config = TrainConfig(steps=1000, lr=3e-4, schedule="cosine", warmup=100)
    for step in train(model, batches, losses.clm, config):
        curve.append(step.loss)

`train` is the algorithm. What surrounds it has its own place: `device` (precision), `feed` (batches
on their way to the device), `guard` (updates that are not finite), `distributed` (several
processes), `run_state` (saving and resuming).
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from course_lib.errors import CourseError
from course_lib.objectives.losses import Batch, Loss
from course_lib.training import distributed, run_state
from course_lib.training.device import autocast, chosen_bf16, known_device
from course_lib.training.distributed import Processes
from course_lib.training.feed import Batches, Feed, Part
from course_lib.training.guard import Guard
from course_lib.training.optim import OPTIMIZERS, SCHEDULES, Schedule
from course_lib.training.settings import OptimizerName, Precision, ScheduleName

# The fields of TrainConfig that decide the result. A resumed run must have the same ones. The
# others may change: a run may get more steps, or be resumed on another machine.
RECIPE = ("lr", "schedule", "warmup", "optimizer", "weight_decay", "beta2", "clip", "precision")
COMPILED_FROM = 500  # steps; fewer do not pay for torch.compile on a GPU


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How to train.

    Raises:
        CourseError: if a value is out of range or names nothing.
    """

    # The updates
    steps: int  # updates in all, those before a resume included
    lr: float = 1e-3  # the peak of the learning rate
    schedule: ScheduleName = "constant"  # how the rate changes over the steps: `optim.SCHEDULES`
    warmup: int = 0  # steps until the rate has risen to `lr`
    optimizer: OptimizerName = "adamw"  # a name of `optim.OPTIMIZERS`
    weight_decay: float = 0.01  # of matrices; biases, norms and embedding tables do not decay
    beta2: float = 0.999  # decay of the second moment; that of the first is 0.9
    clip: float = 1.0  # the largest norm of the gradient
    # "bf16" computes matrix products in bfloat16 (autocast); weights and updates stay float32.
    # "auto" does so where the device has instructions for it. None is "auto" on a GPU and "fp32" on
    # a CPU, where it matters more that two machines give equal results.
    precision: Precision | None = None

    # The machine
    # Each process cuts its rows of a batch into so many parts and has one in memory at a time. The
    # update is that of the whole batch.
    accumulate: int = 1
    device: str | torch.device = "cpu"  # "cpu", "cuda", "cuda:1" or "mps"
    compile: bool | None = None  # torch.compile; None: on a GPU, from `COMPILED_FROM` steps on

    # The saved state
    save_to: str | Path | None = None  # its file, which is whole even if the process is killed
    save_every: int = 500  # steps between two writes; the last step always writes
    resume: bool = True  # go on from the state in `save_to`, if there is one
    # What is saved with the state, for a caller with a larger config of its own. A resume that asks
    # for another recipe is refused. None: the fields of `RECIPE`.
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


@dataclass(frozen=True)
class Step:
    """One update.

    Attributes:
        step: its number, from 1.
        lr: the learning rate, the largest of the optimizer's groups.
        tokens: real tokens read.
        seconds: from asking for the batch until the device has all its work.
        figures: loss and norm of the gradient, on the device.
    """

    step: int
    lr: float
    tokens: int
    seconds: float
    figures: Tensor = field(repr=False)

    @cached_property
    def loss(self) -> float:
        """The mean over the batch's targets, before the update. Reading it waits for the GPU."""
        return self.figures[0].item()

    @cached_property
    def grad_norm(self) -> float:
        """The norm of the gradient before clipping. Reading it waits for the GPU."""
        return self.figures[1].item()


def train(
    model: nn.Module,
    batches: Batches,
    loss: Loss,
    config: TrainConfig,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    schedule: Schedule | None = None,
) -> Iterator[Step]:
    """Train `model` in place and yield a `Step` after each update.

    Under `accelerate launch` (or torchrun) each process takes some rows of each batch, and the
    updates are those that one process would make. With `--use_fsdp` each process holds a shard of
    every parameter, also after the training. A resumed run ends with the same bits as a run that
    never stopped, if the number of processes is the same. Another number may go on, too.

    Args:
        batches: `batches[step]` is the batch of that step, a dict of tensors whose first dimension
            is B. Batches count from 0.
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
    run = _prepare(model, batches, loss, config, optimizer, schedule)
    started = time.perf_counter()
    for step, parts, tokens in run.steps():
        lr = run.set_learning_rate(step)
        batch_loss = torch.zeros((), device=run.device)
        # Usually one part. More of them accumulate their gradients.
        for part in parts:
            with autocast(run.device, run.bf16):
                # The weights make the sum over the parts, averaged over the processes, the mean
                # loss of the whole batch.
                part_loss = run.objective(part.batch) * part.weight
            part_loss.backward()
            batch_loss += part_loss.detach()
        batch_loss = run.processes.mean(batch_loss)
        grad_norm = distributed.whole(clip_grad_norm_(run.weights, config.clip))
        # On a GPU the guard reads the figures only now and then, for reading waits for the GPU. It
        # does before a save, so that no broken state is written.
        run.guard.check(step, batch_loss, grad_norm, look=run.saves_at(step))
        run.optimizer.step()
        run.optimizer.zero_grad()
        run.save_if_due(step)

        seconds = time.perf_counter() - started
        yield Step(step, lr, tokens, seconds, torch.stack((batch_loss, grad_norm)))
        started = time.perf_counter()  # the caller's time does not count


def compiles(config: TrainConfig, device: torch.device) -> bool:
    """Whether the model is compiled: as the config says, else where it pays."""
    if config.compile is not None:
        return config.compile
    return device.type == "cuda" and config.steps >= COMPILED_FROM


class Objective(nn.Module):
    """Batch -> loss, as one module: what several processes share, whatever a loss calls of it."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, batch: Batch) -> Tensor:
        return self.loss(self.model, batch)


@dataclass
class _Run:
    """What surrounds the algorithm.

    Attributes:
        objective: the model and its loss, compiled and spread over the processes as the config
            says.
        weights: what is trained.
        peaks: the learning rate of each of the optimizer's groups, before the schedule.
        done: updates made before, by the run that this one resumes.
    """

    config: TrainConfig
    model: nn.Module
    objective: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: Schedule
    weights: list[Tensor]
    peaks: list[float]
    feed: Feed
    guard: Guard
    processes: Processes
    device: torch.device
    bf16: bool
    done: int

    def steps(self) -> Iterator[tuple[int, Iterator[Part], int]]:
        """Each step's number, from 1; the parts of its batch; the whole batch's real tokens."""
        ready = self.feed.of_steps(range(self.done, self.config.steps))  # batches count from 0
        for step, (parts, tokens) in enumerate(ready, start=self.done + 1):
            if not self.model.training:  # a consumer may have called eval() between two steps
                self.model.train()
            yield step, distributed.one_by_one(self.objective, parts), tokens

    def set_learning_rate(self, step: int) -> float:
        """Give each group its own peak times the schedule's factor; return the largest rate."""
        factor = self.schedule(step - 1)  # schedules count from 0
        for group, peak in zip(self.optimizer.param_groups, self.peaks, strict=True):
            group["lr"] = peak * factor
        return float(max(group["lr"] for group in self.optimizer.param_groups))

    def saves_at(self, step: int) -> bool:
        """Whether the state is due after this step: every `save_every` steps, and at the end."""
        return step % self.config.save_every == 0 or step == self.config.steps

    def save_if_due(self, step: int) -> None:
        """Write the state after this step, if there is a file for it and its turn has come."""
        if self.config.save_to and self.saves_at(step):
            run_state.save(
                Path(self.config.save_to),
                self.model,
                self.optimizer,
                step,
                self.processes,
                recipe=self.config.saved_recipe(),
            )


def _prepare(
    model: nn.Module,
    batches: Batches,
    loss: Loss,
    config: TrainConfig,
    optimizer: torch.optim.Optimizer | None,
    schedule: Schedule | None,
) -> _Run:
    """Set up all that surrounds the algorithm, and load the saved state if there is one."""
    if isinstance(batches, Sequence) and len(batches) == 0:
        raise CourseError("There are no batches to train on.")
    processes, device = distributed.join(known_device(config.device))
    model.to(device).train()
    optimizer = config.new_optimizer(model) if optimizer is None else optimizer

    compiled_model = model
    if compiles(config, device):
        compiled_model = cast(nn.Module, torch.compile(model))
    # With shards, this changes the optimizer's parameters. So it comes before they are listed.
    objective = distributed.spread(Objective(compiled_model, loss), optimizer, processes)
    done = _resume(model, optimizer, config, processes)
    if done == 0:
        _seed_process(processes.rank)
    return _Run(
        config=config,
        model=model,
        objective=objective,
        optimizer=optimizer,
        schedule=config.new_schedule() if schedule is None else schedule,
        weights=[weight for group in optimizer.param_groups for weight in group["params"]],
        peaks=[group["lr"] for group in optimizer.param_groups],
        feed=Feed(batches, model, device, config.accumulate, processes),
        guard=Guard(
            optimizer,
            device,
            sharded=processes.sharded,
            saved=Path(config.save_to) if config.save_to else None,
        ),
        processes=processes,
        device=device,
        bf16=chosen_bf16(config.precision, device),
        done=done,
    )


def _resume(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    config: TrainConfig,
    processes: Processes,
) -> int:
    """Load the saved state, if there is one, into the model and the optimizer.

    Returns:
        how many updates it has made; 0 without a saved state.
    """
    path = Path(config.save_to) if config.save_to else None
    # All processes ask the main one: it writes the file, and may not have been done when they came.
    if path and processes.agree(config.resume and path.exists()):
        done = run_state.steps_done(path, config.saved_recipe())
        if done > config.steps:
            raise CourseError(
                f"The run in {path} has made {done:,} steps, more than the {config.steps:,} asked"
                " for."
            )
        return run_state.load(path, model, optimizer, processes)
    return 0


def _seed_process(rank: int) -> None:
    """Give each process but the main one a seed of its own: other rows, other dropout."""
    if rank > 0:
        torch.manual_seed(torch.initial_seed() + rank)
