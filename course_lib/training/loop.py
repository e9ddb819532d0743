"""The training loop: a function that yields one `Step` record after each update of the weights.

    config = TrainConfig(steps=1000, lr=3e-4, schedule="cosine", warmup=100)
    for step in train(model, batches, losses.clm, config):
        curve.append(step.loss)    # a plot, a progress bar, a log file: the caller decides

`train` is the algorithm: forward, backward, clip, update. What surrounds it has a file of its own:
device.py (float32 or bfloat16), feed.py (brings batches to the GPU), guard.py (stops when the loss
is nan), distributed.py (several processes), run_state.py (saves and resumes).
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from course_lib.errors import CourseError
from course_lib.objectives.losses import Batch, Loss
from course_lib.training import distributed, run_state
from course_lib.training.device import autocast, chosen_bf16, known_device
from course_lib.training.feed import Batches, Feed, Part
from course_lib.training.guard import Guard
from course_lib.training.optim import OPTIMIZERS, SCHEDULES, Schedule
from course_lib.training.settings import OptimizerName, Precision, ScheduleName

# The settings that decide the result. A resumed run must have the same ones. All other settings may
# change: a run may get more steps, or continue on another machine.
RECIPE = ("lr", "schedule", "warmup", "optimizer", "weight_decay", "beta2", "clip", "precision")
COMPILED_FROM = 500  # steps; a shorter run would not win back the time that compiling takes


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How to train.

    Raises:
        CourseError: a value is out of range, or there is no choice of that name.
    """

    # The updates
    steps: int  # number of updates, including those made before a resume
    lr: float = 1e-3  # the highest learning rate
    schedule: ScheduleName = "constant"  # how the learning rate changes: a name in optim.SCHEDULES
    warmup: int = 0  # number of steps in which the learning rate rises to `lr`
    optimizer: OptimizerName = "adamw"  # a name in optim.OPTIMIZERS
    weight_decay: float = 0.01  # of matrices only; biases, norms and embeddings do not decay
    beta2: float = 0.999  # Adam's decay of the squared gradient; beta1 is 0.9
    clip: float = 1.0  # a gradient with a larger norm is scaled down to this norm
    # "bf16" computes matrix products in bfloat16 (autocast); weights and updates stay float32.
    # "auto" is "bf16" if the device computes it fast, else "fp32". None is "auto" on a GPU. On a
    # CPU it is "fp32", because two machines should get equal results.
    precision: Precision | None = None

    # The machine
    # Gradient accumulation: each process cuts its rows of a batch into this many parts and computes
    # one after the other, which saves memory. The update is the same as without.
    accumulate: int = 1
    device: str | torch.device = "cpu"  # "cpu", "cuda", "cuda:1" or "mps"
    # Use torch.compile. None: on a GPU, if the run has at least `COMPILED_FROM` steps.
    compile: bool | None = None

    # The saved state
    save_to: str | Path | None = None  # the file of the run's state; None: nothing is saved
    save_every: int = 500  # number of steps between two saves; the last step always saves
    resume: bool = True  # if the file exists, continue from it; False starts at step 1
    # What else decides the result, for a caller with more settings, such as `pretrain`. It is saved
    # with the state, and a resume must have the same. None: the settings named in `RECIPE`.
    recipe: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for name in ("steps", "accumulate", "save_every"):
            value = getattr(self, name)
            if value < 1:
                raise CourseError(f"{name} is {value}; it must be at least 1.")
        choices: dict[str, list[str]] = {
            "schedule": [*SCHEDULES],
            "optimizer": [*OPTIMIZERS],
            "precision": ["fp32", "bf16", "auto"],
        }
        for name, known in choices.items():
            value = getattr(self, name)
            if value not in known and not (name == "precision" and value is None):
                raise CourseError(
                    f"There is no {name} {value!r}; choose one of {', '.join(known)}."
                )

    def saved_recipe(self) -> dict[str, Any]:
        """The settings that decide the result: a resumed run must have the same."""
        if self.recipe is not None:
            return dict(self.recipe)
        return {name: getattr(self, name) for name in RECIPE}

    def new_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """The optimizer of the model's trainable weights."""
        return OPTIMIZERS[self.optimizer](
            model, self.lr, weight_decay=self.weight_decay, betas=(0.9, self.beta2)
        )

    def new_schedule(self) -> Schedule:
        """A function: step, counted from 0 -> factor on the learning rate."""
        return SCHEDULES[self.schedule](self.steps, self.warmup)


@dataclass(frozen=True)
class Step:
    """One update of the weights.

    Attributes:
        step: its number, from 1.
        lr: the learning rate; the highest, if the optimizer's parameter groups differ.
        tokens: number of tokens in the batch, without padding.
        seconds: duration of the step. On a GPU the work may still be running then.
        figures: the loss and the gradient's norm, a tensor on the device.
    """

    step: int
    lr: float
    tokens: int
    seconds: float
    figures: Tensor = field(repr=False)

    @cached_property
    def loss(self) -> float:
        """The mean loss of the batch before the update. Reading it waits for the GPU."""
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

    A resumed run ends with the same weights, to the last bit, as a run that never stopped. Only a
    run with another number of processes may differ.

    `accelerate launch` (or torchrun) starts several processes. Each takes some rows of each batch,
    and the updates are those that a single process would make. With `--use_fsdp` each process
    holds only a part (a shard) of every weight, also after the training.

    Args:
        model: the model to train.
        batches: `batches[step]` is the batch of a step, counted from 0: a dict of tensors whose
            first dimension is the B rows.
        loss: a function (model, batch) -> scalar, the mean over what the batch asks the model to
            predict, such as those in `course_lib.objectives.losses`.
        config: all other settings.
        optimizer: used instead of the config's optimizer.
        schedule: used instead of the config's schedule: step, counted from 0 -> factor on the
            optimizer's learning rate.

    Raises:
        CourseError: a loss or gradient is nan or infinite (then the weights and the saved state
            are those before the step); the saved state is damaged or belongs to another run; or a
            batch does not fit the model.
    """
    run = _Run(model, batches, loss, config, optimizer, schedule)
    started = time.perf_counter()
    for step, parts, tokens in run.steps():
        lr = run.set_learning_rate(step)
        batch_loss = torch.zeros((), device=run.device)
        for part in parts:  # one part is the whole batch, unless `accumulate` cuts it
            with autocast(run.device, run.bf16):
                # With these weights the parts' losses add up to the mean loss of the whole batch.
                part_loss = run.objective(part.batch) * part.weight
            part_loss.backward()
            batch_loss += part_loss.detach()
        batch_loss = run.processes.mean(batch_loss)
        grad_norm = distributed.full_tensor(clip_grad_norm_(run.weights, config.clip))
        # The guard stops at a loss of nan. Reading a number waits for the GPU, so there it looks
        # only now and then, and always before a save: no broken state is written.
        run.guard.check(step, batch_loss, grad_norm, look=run.saves_at(step))
        run.optimizer.step()
        run.optimizer.zero_grad()
        run.save_if_due(step)

        seconds = time.perf_counter() - started
        yield Step(step, lr, tokens, seconds, torch.stack((batch_loss, grad_norm)))
        started = time.perf_counter()  # what the caller does between two steps does not count


def compiles(config: TrainConfig, device: torch.device) -> bool:
    """Whether to use torch.compile: as the config says; by default in a long run on a GPU."""
    if config.compile is not None:
        return config.compile
    return device.type == "cuda" and config.steps >= COMPILED_FROM


class ModelWithLoss(nn.Module):
    """A model and its loss as one module: batch -> loss.

    PyTorch's wrappers for several processes take a module and watch its `forward`. A loss may call
    the model in its own way, so the loss has to be inside. It is inside for torch.compile, too: a
    loss outside the graph would write the logits to memory in float32, several times.
    """

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, batch: Batch) -> Tensor:
        return self.loss(self.model, batch)


class _Run:
    """All that a training needs besides the algorithm. The arguments are those of `train`."""

    def __init__(
        self,
        model: nn.Module,
        batches: Batches,
        loss: Loss,
        config: TrainConfig,
        optimizer: torch.optim.Optimizer | None,
        schedule: Schedule | None,
    ) -> None:
        if isinstance(batches, Sequence) and len(batches) == 0:
            raise CourseError("There are no batches to train on.")
        self.config = config
        self.save_to = Path(config.save_to) if config.save_to else None

        # 1. The machine: the processes that train together, and the device of this one
        self.processes, self.device = distributed.join(known_device(config.device))
        self.bf16 = chosen_bf16(config.precision, self.device)

        # 2. The model on its device, and the optimizer, which holds the weights on that device
        self.model = model.to(self.device).train()
        self.optimizer = optimizer or config.new_optimizer(model)
        self.schedule = schedule or config.new_schedule()

        # 3. Compile the model with its loss, and spread it over the processes. With shards this
        #    gives the optimizer new weights, so the list of weights is made afterwards.
        objective = ModelWithLoss(model, loss)
        is_compiled = compiles(config, self.device)
        if is_compiled:
            objective.compile()  # the caller's model itself stays as it is
        self.objective = distributed.spread(objective, self.optimizer, self.processes)
        groups = self.optimizer.param_groups
        self.weights: list[Tensor] = [weight for group in groups for weight in group["params"]]
        self.peaks: list[float] = [group["lr"] for group in groups]  # before the schedule

        # 4. The saved state, if there is one: weights, optimizer and random numbers
        self.done = self._resume()  # number of updates made before
        if self.done == 0 and self.processes.rank > 0:
            # Each process has other rows, so it should have other dropout masks, too.
            torch.manual_seed(torch.initial_seed() + self.processes.rank)

        # 5. The batches, and the guard against a loss of nan
        self.feed = Feed(
            batches,
            model,
            self.device,
            config.accumulate,
            self.processes,
            is_compiled=is_compiled,
        )
        self.guard = Guard(
            self.optimizer, self.device, sharded=self.processes.sharded, saved=self.save_to
        )

    def steps(self) -> Iterator[tuple[int, Iterator[Part], int]]:
        """For each step: its number from 1, the parts of its batch, and the batch's real tokens."""
        # Steps count from 1 and batches from 0: the updates so far used the batches below `done`.
        ready = self.feed.of_steps(range(self.done, self.config.steps))
        for step, (parts, tokens) in enumerate(ready, start=self.done + 1):
            if not self.model.training:  # the caller may have called eval() between two steps
                self.model.train()
            yield step, distributed.sync_on_last(self.objective, parts), tokens

    def set_learning_rate(self, step: int) -> float:
        """Set each parameter group's learning rate for this step; return the highest."""
        factor = self.schedule(step - 1)  # schedules count from 0
        for group, peak in zip(self.optimizer.param_groups, self.peaks, strict=True):
            group["lr"] = peak * factor
        return float(max(group["lr"] for group in self.optimizer.param_groups))

    def saves_at(self, step: int) -> bool:
        """Whether to save after this step: every `save_every` steps, and at the end."""
        return step % self.config.save_every == 0 or step == self.config.steps

    def save_if_due(self, step: int) -> None:
        """Save the state after this step, if the config names a file and it is time to."""
        if self.save_to and self.saves_at(step):
            run_state.save(
                self.save_to,
                self.model,
                self.optimizer,
                step,
                self.processes,
                recipe=self.config.saved_recipe(),
            )

    def _resume(self) -> int:
        """Load the saved state, if there is one. Return the number of updates that it has made."""
        path = self.save_to
        # The main process decides for all: it writes the file, perhaps while the others look.
        if not path or not self.processes.broadcast(self.config.resume and path.exists()):
            return 0
        done = run_state.steps_done(path, self.config.saved_recipe())
        if done > self.config.steps:
            raise CourseError(
                f"The run in {path} has made {done:,} steps, more than the {self.config.steps:,}"
                " asked for."
            )
        return run_state.load(path, self.model, self.optimizer, self.processes)
