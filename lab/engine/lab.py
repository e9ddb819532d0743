"""What an experiment works with: the sizes of this run, pretrained arms, fine-tuning scores. All of
it kept on disk.

A score is a file beside its arm, named by the hash of what it follows from, the rows' own text
included; so claims share scores as they share arms, and a run that was killed goes on with the next
one."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor, nn

from course_lib import data, zoo
from course_lib.errors import CourseError
from course_lib.files import read_json, write_json
from course_lib.objectives import losses, seeded_generator
from course_lib.training import loop, optim
from course_lib.training.feed import Batches
from course_lib.training.finetune import FinetuneConfig, finetune
from lab.engine import arms


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The sizes of a run. "cpu" is what data/results records; "smoke" proves the path in seconds.

    Attributes:
        scale: its name.
        layers: of the arms that do not vary them.
        width: likewise.
        steps: updates of a pretraining.
        rows: of its batches.
        length: tokens of such a row.
        labels: training rows of a fine-tuning.
        tests: its test rows.
        epochs: how often it reads each row.
        batch: its rows at a time.
        lr: its learning rate.
        probes: questions of a kind of probe.
        seeds: trainings of each kind, if no other number is asked for.
        vocab: tokens that an arm knows.
    """

    scale: Literal["smoke", "cpu", "gpu"]
    layers: int
    width: int
    steps: int
    rows: int
    length: int
    labels: int
    tests: int
    epochs: int
    batch: int
    lr: float
    probes: int
    seeds: int = 3
    vocab: int = 3072


PLANS: dict[str, Plan] = {
    "smoke": Plan(
        scale="smoke",
        layers=1,
        width=64,
        steps=5,
        rows=8,
        length=64,
        labels=24,
        tests=16,
        epochs=1,
        batch=8,
        lr=1e-3,
        probes=8,
        seeds=2,
    ),
    "cpu": Plan(
        scale="cpu",
        layers=2,
        width=96,
        steps=900,
        rows=16,
        length=128,
        labels=240,
        tests=240,
        epochs=4,
        batch=16,
        lr=1e-3,
        probes=150,
    ),
    "gpu": Plan(
        scale="gpu",
        layers=4,
        width=256,
        steps=20_000,
        rows=128,
        length=128,
        labels=1000,
        tests=2000,
        epochs=4,
        batch=16,
        lr=3e-4,
        probes=2000,
        seeds=5,
    ),
}

BY_PLAN = ("labels", "tests", "epochs", "batch", "lr")  # of a `Tuning` that does not say them


@dataclass(frozen=True)
class Tuning:
    """One fine-tuning of a pretrained model.

    The other fields are those of `FinetuneConfig`.

    Attributes:
        source: an arm, or a shipped checkpoint's name.
        task: of the world.
        at: the arm's weights after that step; by default its last ones.
        labels: training rows; by default the plan's, and so are tests, epochs, batch and lr.
        tests: test rows.
    """

    source: arms.Arm | str
    task: str
    seed: int = 0
    at: int | None = None
    pretrained: bool = True
    frozen: bool = False
    labels: int | None = None
    tests: int | None = None
    epochs: int | None = None
    batch: int | None = None
    lr: float | None = None


@dataclass
class Lab:
    """The workplace of experiments.

    Attributes:
        plan: the sizes of this run.
        folder: where pretrained arms and finished scores are kept.
        device: where models are trained.
        public: the folder of public data sets (SST-2, STS-B and so on), which the course does not
            hold; see `public_data`.
        seconds: processor time of the scores that this lab has given out, whether computed now or
            before.
    """

    plan: Plan
    folder: Path = arms.FOLDER
    device: str = "cpu"
    public: Path | None = None
    seconds: float = field(default=0.0, init=False)

    def public_data(self, name: str) -> Path:
        """The folder or file of a public data set, such as "sst2".

        Raises:
            CourseError: no folder of public data was given, or the data set is not in it.
        """
        if self.public is None:
            raise CourseError(
                f"This claim reads the public data set {name!r}, which the course does not hold."
                " Name the folder that has it: claims run ... --data FOLDER."
            )
        path = self.public / name
        if not path.exists():
            raise CourseError(
                f"{self.public} has no {name!r}, which this claim reads; put the published files"
                " there."
            )
        return path

    def model(self, arm: arms.Arm, at: int | None = None) -> arms.Trained:
        """The arm's model after step `at` (by default its last), trained first if need be."""
        return arms.trained(arm, self.folder, at=at, device=self.device)

    def source(self, tuning: Tuning) -> arms.Trained:
        """The model that a fine-tuning starts from."""
        if isinstance(tuning.source, arms.Arm):
            return self.model(tuning.source, tuning.at)
        return arms.Trained(*zoo.load(tuning.source))

    def score(self, tuning: Tuning) -> float:
        """The test score of a fine-tuning, computed once."""
        missing = [name for name in BY_PLAN if getattr(tuning, name) is None]
        tuning = replace(tuning, **{name: getattr(self.plan, name) for name in missing})
        rows = task_rows(tuning.task, tuning.seed, train=tuning.labels, test=tuning.tests)

        source = tuning.source
        if isinstance(source, arms.Arm):
            source = place = source.name
        else:
            place = f"{source}-{checkpoint_hash(source)}"
        about = asdict(replace(tuning, source="")) | {"source": source}
        texts = {split: part.to_list() for split, part in rows.items()}
        key = arms.short_hash(json.dumps([about, texts], sort_keys=True))
        path = self.folder / place / "scores" / f"{tuning.task}-{key}.json"

        def measure() -> dict[str, float]:
            return {"score": _tune(tuning, self.source(tuning), rows, self.device)}

        scored = once(path, measure, tuning=about)
        self.seconds += scored["seconds"]
        return float(scored["score"])

    def kept(
        self, name: str, follows: Any, make: Callable[[], dict[str, float]]
    ) -> dict[str, float]:
        """Figures that several claims share, made once and kept in a file named by all that they
        follow from.
        """
        key = arms.short_hash(json.dumps(follows, sort_keys=True))
        path = self.folder / "shared" / f"{name}-{key}.json"
        figures = once(path, lambda: {"values": make()}, follows=follows)
        self.seconds += figures["seconds"]
        return dict(figures["values"])


def once(path: Path, make: Callable[[], dict[str, Any]], **about: Any) -> dict[str, Any]:
    """What a file holds, made first if it is not there, with the processor's seconds and what it is
    about.
    """
    if not path.exists():
        start = time.process_time()
        write_json(path, {**make(), "seconds": round(time.process_time() - start, 2), **about})
    return dict(read_json(path))


def task_rows(task: str, seed: int, **counts: int | None) -> dict[str, Any]:
    """Rows of a task of the town, so many of each split."""
    return {
        split: data.task(f"world/{task}", split=split, n=n, seed=seed)
        for split, n in counts.items()
    }


@dataclass(frozen=True)
class Made:
    """Batches that a function makes of the step's number."""

    make: Callable[[int], losses.Batch]

    def __getitem__(self, step: int, /) -> losses.Batch:
        return self.make(step)


def windows(stream: Int[Tensor, " N"], length: int, rows: int, *keys: int, ahead: int = 1) -> Made:
    """For each step that many rows of `length` consecutive tokens from anywhere in a stream, and
    `ahead` more.
    """

    def make(step: int) -> losses.Batch:
        rng = seeded_generator(*keys, step)
        starts = torch.randint(len(stream) - length, (rows, 1), generator=rng)  # B 1
        return {"ids": stream[starts + torch.arange(length + ahead)]}  # B T

    return Made(make)


def linear_config(steps: int, lr: float, **more: Any) -> loop.TrainConfig:
    """The usual short training: the rate rises in a tenth of the steps and falls in the others."""
    return loop.TrainConfig(steps=steps, lr=lr, schedule="linear", warmup=steps // 10, **more)


def fit(
    model: nn.Module,
    batches: Batches,
    loss: losses.Loss,
    config: loop.TrainConfig,
    schedule: optim.Schedule | None = None,
) -> list[float]:
    """Train what is not frozen, in place, and leave it on the CPU, in eval mode.

    Returns:
        the losses of all steps.
    """
    steps = loop.train(model, batches, loss, config, schedule=schedule)
    history = [step.loss for step in steps]
    model.eval().cpu()
    return history


def _tune(tuning: Tuning, source: arms.Trained, rows: dict[str, Any], device: str) -> float:
    """Fine-tune and score; the tuning says all its numbers."""
    assert tuning.epochs is not None and tuning.batch is not None and tuning.lr is not None
    body: Any = source.model.stack
    config = FinetuneConfig(
        epochs=tuning.epochs,
        batch=tuning.batch,
        lr=tuning.lr,
        seed=tuning.seed,
        pretrained=tuning.pretrained,
        frozen=tuning.frozen,
        dropout=0.1,
        pool="last" if body.config.causal else "mean",
        precision="auto",
        device=device,
    )
    return finetune(body, rows, source.tokenizer, config).score


def checkpoint_hash(name: str) -> str:
    """Of a shipped checkpoint's weights: a new build of it gives new scores."""
    return str(zoo.manifest_entry(name)["files"]["model.safetensors"]["sha256"])[:12]


def shipped(*names: str) -> dict[str, str]:
    """Those of these checkpoints that are there, each with its hash: what a record that reads them
    hangs on.
    """
    return {name: checkpoint_hash(name) for name in names if name in zoo.names()}
