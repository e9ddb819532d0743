"""The training loop: a generator of `Step` records that prints nothing.

Bars, curves and logs are consumers of the records:

    config = TrainConfig(steps=1000, lr=3e-4, schedule="cosine", warmup=100)
    for step in train(model, batches, losses.clm, config):
        curve.append(step.loss)

`train` is the algorithm. What surrounds it has its own place: `device` (precision), `feed` (batches
on their way to the device), `guard` (updates that are not finite), `distributed` (several
processes), `run_state` (stopping and going on)."""

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
from course_lib.files import sweep
from course_lib.objectives.losses import Batch, Loss
from course_lib.training import distributed, run_state
from course_lib.training.device import Precision, autocast, chosen_bf16, known_device
from course_lib.training.distributed import Processes
from course_lib.training.feed import Batches, Feed, Part
from course_lib.training.guard import Guard
from course_lib.training.optim import OPTIMIZERS, SCHEDULES, Schedule
from course_lib.training.pretrain_config import OptimizerName, ScheduleName

# Fields of TrainConfig that decide the result. Free are the others: more steps may be asked of a
# run that is done, and another machine may go on with it.
RECIPE = ("lr", "schedule", "warmup", "optimizer", "weight_decay", "beta2", "clip", "precision")
COMPILED_FROM = 500  # steps; fewer do not pay for torch.compile on a GPU


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
    schedule: ScheduleName = "constant"
    warmup: int = 0
    optimizer: OptimizerName = "adamw"
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


@dataclass(frozen=True)
class Step:
    """One update.

    Attributes:
        step: its number, from 1.
        lr: the learning rate, the largest of the optimizer's groups.
        tokens: real tokens read.
        seconds: until the device has its work.
        figures: loss and norm of the gradient, on the device.
    """

    step: int
    lr: float
    tokens: int
    seconds: float
    figures: Tensor = field(repr=False)

    @cached_property
    def loss(self) -> float:
        """The mean over the batch's targets, before the update. A GPU is waited for."""
        return self.figures[0].item()

    @cached_property
    def grad_norm(self) -> float:
        """The norm of the gradient before clipping. A GPU is waited for."""
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
    run = _prepare(model, batches, loss, config, optimizer, schedule)
    for step, parts in run.steps():
        run.set_learning_rate(step)
        batch_loss = torch.zeros((), device=run.device)
        # Usually one part. More of them accumulate their gradients.
        for part in parts:
            with autocast(run.device, run.bf16):
                part_loss = run.objective(part.batch) * part.weight
            part_loss.backward()
            batch_loss += part_loss.detach()
        batch_loss = run.processes.mean(batch_loss)
        grad_norm = distributed.whole(clip_grad_norm_(run.weights, config.clip))
        run.guard.check(step, batch_loss, grad_norm, look=run.saves_at(step))
        run.optimizer.step()
        run.optimizer.zero_grad()
        yield run.finish(step, batch_loss, grad_norm)


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
        first: updates done before.
        tokens: real tokens of the step that is being made.
        started: when it began, in seconds.
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
    first: int
    tokens: int = 0
    started: float = 0.0

    def steps(self) -> Iterator[tuple[int, Iterator[Part]]]:
        """Each step's number, from 1, and the parts of its batch."""
        steps = range(self.first, self.config.steps)
        self.started = time.perf_counter()
        for step, (parts, tokens) in zip(steps, self.feed.of_steps(steps), strict=True):
            self.tokens = tokens
            if not self.model.training:  # a consumer may have called eval() between two steps
                self.model.train()
            yield step + 1, distributed.one_by_one(self.objective, parts)
            self.started = time.perf_counter()

    def set_learning_rate(self, step: int) -> None:
        """Each group's own rate, times the schedule's factor."""
        factor = self.schedule(step - 1)
        for group, peak in zip(self.optimizer.param_groups, self.peaks, strict=True):
            group["lr"] = peak * factor

    def saves_at(self, step: int) -> bool:
        """Whether the state is due after this step: so often, and at the end."""
        return step % self.config.save_every == 0 or step == self.config.steps

    def finish(self, step: int, loss: Tensor, grad_norm: Tensor) -> Step:
        """Save the state if it is due; the record of the step."""
        if self.config.save_to and self.saves_at(step):
            run_state.save(
                Path(self.config.save_to),
                self.model,
                self.optimizer,
                step,
                self.processes,
                recipe=self.config.saved_recipe(),
            )
        return Step(
            step=step,
            lr=max(group["lr"] for group in self.optimizer.param_groups),
            tokens=self.tokens,
            seconds=time.perf_counter() - self.started,
            figures=torch.stack((loss, grad_norm)),
        )


def _prepare(
    model: nn.Module,
    batches: Batches,
    loss: Loss,
    config: TrainConfig,
    optimizer: torch.optim.Optimizer | None,
    schedule: Schedule | None,
) -> _Run:
    """Model on its device, optimizer, processes, guard; a run that stands in the file goes on."""
    if isinstance(batches, Sequence) and len(batches) == 0:
        raise CourseError("There are no batches to train on.")
    processes, device = distributed.join(known_device(config.device))
    model.to(device).train()
    optimizer = config.new_optimizer(model) if optimizer is None else optimizer

    called = cast(nn.Module, torch.compile(model)) if compiles(config, device) else model
    # With shards, this changes the optimizer's parameters. So it comes before they are listed.
    objective = distributed.spread(Objective(called, loss), optimizer, processes)
    first = _resume(model, optimizer, config, processes)
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
        first=first,
    )


def _resume(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    config: TrainConfig,
    processes: Processes,
) -> int:
    """Put the state of the config's file, if there is one, into model and optimizer.

    Returns:
        how many updates are done.
    """
    path = Path(config.save_to) if config.save_to else None
    if path and processes.is_main:
        sweep(path)
    # The main process knows: it may still have been writing while the others came here.
    if path and processes.agree(config.resume and path.exists()):
        done = run_state.steps_done(path, config.saved_recipe())
        if done > config.steps:
            raise CourseError(
                f"The run in {path} has made {done:,} steps, more than the {config.steps:,} asked"
                " for."
            )
        return run_state.load(path, model, optimizer, processes)
    if processes.rank:
        torch.manual_seed(torch.initial_seed() + processes.rank)  # other rows, other dropout
    return 0
