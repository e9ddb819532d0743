"""What all recipes share: how a training is said, and the job that runs it, stops at any moment and goes on."""

import json
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import nn

from course_lib import optim, zoo
from course_lib.errors import CourseError
from course_lib.files import read_json, write_json
from course_lib.losses import Loss
from course_lib.probes import Blank
from course_lib.train import Batches, train

Sentences = Callable[[int], Sequence[str]]  # document number -> its sentences
Scores = dict[str, float]
LOG = 100  # steps between two points of the learning curve
TOKENIZER_DOCUMENTS = 20_000  # that a vocabulary is learned from
BLANKS = 256  # of each kind in the copy probe


@dataclass(frozen=True, kw_only=True)
class Training:
    """What a recipe says of its training.

    rows: of a batch. The learning rate warms up, stays at `lr`, and falls to 0 over the last `decay` of the steps.
    world: seed of the town whose texts are read; seed: of which texts, their order and the first weights.
    """

    steps: int = 12_000
    rows: int = 48
    lr: float = 1e-3
    warmup: int = 300
    decay: float = 0.2
    weight_decay: float = 0.01
    beta2: float = 0.98
    world: int = 0
    seed: int = 0
    precision: Literal["fp32", "bf16", "auto"] = "auto"
    probe_every: int = 250
    checkpoint_every: int = 250


@dataclass(frozen=True)
class Progress:
    """A point of the learning curve: mean loss and speed since the last one; the probe's scores if it was taken."""

    step: int
    loss: float
    lr: float
    tokens_per_second: float
    probe: Scores | None = None


R = TypeVar("R")


@dataclass(frozen=True)
class Job(ABC, Generic[R]):
    """One recipe at work. folder: of the unfinished run. shipped: where finished checkpoints are, for a recipe that
    starts from another one."""

    name: str
    recipe: R
    folder: Path
    shipped: Path = zoo.FOLDER

    @property
    @abstractmethod
    def data(self) -> str:
        """What it reads, in words."""

    @property
    def parents(self) -> dict[str, str]:
        """The checkpoints it starts from, each with the SHA-256 of its weights."""
        return {}

    @abstractmethod
    def build(self, to: Path, device: str = "cpu") -> Iterator[Progress]:
        """Train, score and export to `to`; what `folder` holds is gone on with."""

    @property
    def world(self) -> Any:
        """The generated town whose documents are read."""
        return _town(self.recipe.world)  # type: ignore[attr-defined]

    def sentences(self, split: str) -> Sentences:
        """Document number -> sentences."""
        seed = self.recipe.seed  # type: ignore[attr-defined]
        return lambda index: list(self.world.document(index, split, seed)["sentences"])

    def blanks(self, kind: str) -> list[Blank]:
        """The copy probe's questions: two facts, one of them said again with a word to fill in."""
        return [_blank(item) for item in self.world.probe(BLANKS, seed=1, kind=kind)]

    def sha256(self, parent: str) -> str:
        """Of a parent's weights.

        Raises:
            CourseError: it has not been made yet.
        """
        try:
            return zoo.entry(parent, self.shipped)["files"]["model.safetensors"]["sha256"]  # type: ignore[no-any-return]
        except CourseError as error:
            raise CourseError(f"{self.name} starts from {parent}; build that first. {error}") from None

    def same(self) -> None:
        """Refuse to go on with a run of another recipe or from other weights (another number of steps is fine)."""
        path = self.folder / "recipe.json"
        mine: dict[str, Any] = json.loads(json.dumps(asdict(self.recipe)))  # type: ignore[call-overload]
        mine |= {"from": self.parents} if self.parents else {}
        if path.exists():
            theirs = read_json(path)
            odd = [key for key in mine if key != "steps" and key in theirs and mine[key] != theirs[key]]
            if odd:
                raise CourseError(
                    f"{self.folder} holds a run with {odd[0]} = {theirs[odd[0]]}, the recipe says "
                    f"{mine[odd[0]]}; remove the folder to start afresh, or name another by --work."
                )
        write_json(path, mine)

    def card(self, scores: Scores, points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """What card.json says. points: the learning curve."""
        recipe: Any = self.recipe
        return {
            "name": self.name,
            "recipe": asdict(recipe),
            "seed": recipe.seed,
            "data": self.data,
            **({"from": self.parents} if self.parents else {}),
            "steps": points[-1]["step"] if points else 0,
            "tokens": sum(point["tokens"] for point in points),
            "seconds": round(sum(point["seconds"] for point in points)),
            "scores": {name: round(score, 4) for name, score in scores.items()},
            "curve": list(points),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "hardware": f"{platform.machine()} CPU, {torch.get_num_threads()} threads",
            "made": time.strftime("%Y-%m-%d"),
        }


T = TypeVar("T", bound=Training)


class TrainingJob(Job[T], Generic[T]):
    """A job that `train` does: steps of gradient descent on one model."""

    loss: Loss

    @abstractmethod
    def model(self) -> nn.Module:
        """What is trained, as it is before the first step; by the recipe's seed."""

    @abstractmethod
    def batches(self) -> Batches:
        """What it reads."""

    @abstractmethod
    def probe(self, model: nn.Module) -> Scores:
        """What is asked every `probe_every` steps."""

    @abstractmethod
    def scores(self, model: nn.Module) -> Scores:
        """What is asked at the end, beside the probe."""

    @abstractmethod
    def exports(self, model: nn.Module) -> dict[str, tuple[nn.Module, Any]]:
        """What is shipped of it: name -> model and tokenizer."""

    def build(self, to: Path, device: str = "cpu") -> Iterator[Progress]:
        recipe, model = self.recipe, self.model()
        log = _Log(self.folder / "curve.json")
        recent: list[tuple[float, int, float]] = []
        for step in train(
            model,
            self.batches(),
            self.loss,
            optim.adamw(model, recipe.lr, weight_decay=recipe.weight_decay, betas=(0.9, recipe.beta2)),
            optim.stable(recipe.steps, min(recipe.warmup, recipe.steps), recipe.decay),
            steps=recipe.steps,
            device=device,
            precision=recipe.precision,
            checkpoint=self.folder / "state.safetensors",
            every=recipe.checkpoint_every,
        ):
            recent.append((step.loss, step.tokens, step.seconds))
            probing = step.step % recipe.probe_every == 0 or step.step == recipe.steps
            if step.step % LOG and not probing:
                continue
            mean, tokens, seconds = (sum(column) for column in zip(*recent, strict=True))
            probe = _apart(self.probe, model) if probing else None
            progress = Progress(step.step, mean / len(recent), step.lr, tokens / seconds, probe)
            log.add(progress, tokens, seconds)
            recent.clear()
            yield progress
        # A run that was already at its last step only exports.
        card = self.card(log.last_probe() | _apart(self.scores, model), log.points)
        for name, (part, tokenizer) in self.exports(model).items():
            zoo.export(name, part, tokenizer, card | {"name": name}, to)


def _apart(ask: Callable[[nn.Module], Scores], model: nn.Module) -> Scores:
    """With random numbers of its own, so that a run that was stopped draws on as one that was not."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return ask(model)


class _Log:
    """The learning curve on disk. After a resume, points from beyond the checkpoint are overwritten."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.points: list[dict[str, Any]] = read_json(path) if path.exists() else []

    def add(self, progress: Progress, tokens: float, seconds: float) -> None:
        """Append a point and write the file."""
        self.points = [point for point in self.points if point["step"] < progress.step]
        point: dict[str, Any] = {
            "step": progress.step,
            "loss": round(progress.loss, 4),
            "lr": progress.lr,
            "tokens": int(tokens),
        }
        point["seconds"] = round(seconds, 1)
        if progress.probe is not None:
            point["probe"] = {kind: round(value, 4) for kind, value in progress.probe.items()}
        self.points.append(point)
        write_json(self.path, self.points)

    def last_probe(self) -> Scores:
        """The probe's last scores."""
        probes = [point["probe"] for point in self.points if "probe" in point]
        return dict(probes[-1]) if probes else {}


@cache
def _town(seed: int) -> Any:
    from course_lib.data.world import World

    return World(seed)


def _blank(item: dict[str, Any]) -> Blank:
    start = item["sentence"].rindex(item["answer"])
    end = start + len(item["answer"])
    return Blank(f"{item['context']} {item['sentence'][:start]}", item["answer"], item["sentence"][end:])
