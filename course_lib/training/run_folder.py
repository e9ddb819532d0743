"""Train in a folder, which keeps the run's state and its learning curve.

state.safetensors    the state from which a stopped run resumes: weights, optimizer, ...
curve.json           the points of the learning curve, such as {"step": 100, "loss": 4.2, ...}
"""

import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from course_lib.errors import CourseError
from course_lib.files import locked, read_json, write_json
from course_lib.objectives.losses import Loss
from course_lib.training import distributed
from course_lib.training.device import known_device
from course_lib.training.feed import Batches
from course_lib.training.loop import Step, TrainConfig, train
from course_lib.training.optim import Schedule

Probe = Callable[[nn.Module], dict[str, float]]  # model -> its scores, such as {"loss": 3.1}


@dataclass(frozen=True)
class Point:
    """A point of the learning curve.

    Attributes:
        step: number of updates so far.
        loss: the mean loss of the steps since the last point.
        lr: the learning rate of this step.
        tokens: number of tokens, without padding, since the last point.
        seconds: time since the last point.
        probe: scores of the model, such as the held-out loss; None if they were not measured here.
    """

    step: int
    loss: float
    lr: float
    tokens: int
    seconds: float
    probe: dict[str, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Reports:
    """What is measured and reported during a run.

    Attributes:
        log: number of steps between two points of the curve.
        probe: a function that measures the model, such as its held-out loss. Its random numbers do
            not change those of the training.
        probe_every: number of steps between two probes; one more is taken at the end.
        watch: a function that is called with each step, for example to show a progress bar.
        clock: a function that returns the time in seconds.
    """

    log: int = 100
    probe: Probe | None = None
    probe_every: int = 250
    watch: Callable[[Step], object] | None = None
    clock: Callable[[], float] = time.perf_counter

    def probe_at(self, step: int, last: bool) -> Probe | None:
        """The probe if one is due at this step, else None."""
        return self.probe if last or step % self.probe_every == 0 else None


def train_in_folder(
    folder: Path,
    model: nn.Module,
    batches: Batches,
    loss: Loss,
    config: TrainConfig,
    reports: Reports | None = None,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    schedule: Schedule | None = None,
) -> Iterator[Point]:
    """`train`, with its state and learning curve in a folder; a run in the folder is resumed.

    Each point is written to `curve.json` and yielded. The other arguments are those of `train`.
    """
    reports = reports or Reports()
    processes, _ = distributed.join(known_device(config.device))
    config = replace(config, save_to=folder / "state.safetensors")
    curve = read_curve(folder)
    recent: list[Step] = []  # since the last point
    start = reports.clock()
    with locked(folder) if processes.is_main else nullcontext():
        for step in train(model, batches, loss, config, optimizer=optimizer, schedule=schedule):
            recent.append(step)
            last = step.step == config.steps
            probe = reports.probe_at(step.step, last)
            point = None
            if last or probe is not None or step.step % reports.log == 0:
                seconds = reports.clock() - start
                scores = None if probe is None else run_probe(probe, model)
                point = _point(recent, seconds, scores)
                # A run may have been stopped after points that are newer than its last saved state.
                # When it is resumed it makes these points again.
                curve = [old for old in curve if old["step"] < step.step]
                curve.append({k: value for k, value in asdict(point).items() if value is not None})
                if processes.is_main:
                    write_json(folder / "curve.json", curve)
            if reports.watch is not None:
                reports.watch(step)
            if point is not None:
                yield point
                recent.clear()
                start = reports.clock()


def _point(steps: Sequence[Step], seconds: float, scores: dict[str, float] | None) -> Point:
    """A point of the curve from the steps since the last one."""
    mean = sum(step.loss for step in steps) / len(steps)
    if scores:
        scores = {name: round(value, 4) for name, value in scores.items()}
    return Point(
        step=steps[-1].step,
        loss=round(mean, 5),
        lr=steps[-1].lr,
        tokens=sum(step.tokens for step in steps),
        seconds=round(seconds, 2),
        probe=scores,
    )


def run_probe(probe: Probe, model: nn.Module) -> dict[str, float]:
    """The scores of a probe, always with the same random numbers; the training keeps its own."""
    # `manual_seed` seeds the generators of the GPUs, too, so these are restored as well. A run on
    # the CPU must not start CUDA, which takes time and memory.
    gpus: list[int] = []
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        gpus = list(range(torch.cuda.device_count()))
    with torch.random.fork_rng(gpus):
        torch.manual_seed(0)
        return probe(model)


def read_curve(folder: Path) -> list[dict[str, Any]]:
    """The learning curve so far; a `CourseError` if the file does not hold one."""
    path = folder / "curve.json"
    curve = read_json(path) if path.exists() else []
    try:
        points = [Point(**point) for point in curve]
        is_curve = all(isinstance(point.step, int) for point in points)
    except TypeError:
        is_curve = False
    if not is_curve:
        raise CourseError(
            f"{path} is no learning curve of this version; remove it, and the next point begins"
            " one."
        )
    return list(curve)


def card(curve: Sequence[Mapping[str, Any]], **about: Any) -> dict[str, Any]:
    """What card.json says of a finished run: `about`, its curve and cost, and its machine."""
    # CUDA is started only if the run trained on a GPU.
    hardware = f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        hardware = torch.cuda.get_device_name()
    return about | {
        "steps": curve[-1]["step"] if curve else 0,
        "tokens": sum(point["tokens"] for point in curve),
        "seconds": round(sum(point["seconds"] for point in curve)),
        "curve": list(curve),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "hardware": hardware,
        "made": time.strftime("%Y-%m-%d"),
    }
