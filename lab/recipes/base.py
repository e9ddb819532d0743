"""What all recipes share: the job that trains by one, stops at any moment and goes on."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from course_lib import zoo
from course_lib.analysis.copy_probe import Blank
from course_lib.errors import CourseError
from course_lib.files import read_json, write_json
from course_lib.objectives.losses import Loss
from course_lib.training.feed import Batches
from course_lib.training.run_folder import Point, Reports, card, read_curve, run_probe
from lab.engine.arms import Sentences, Training, learned, sentences, town

Scores = dict[str, float]
LOG = 100  # steps between two points of the learning curve
TOKENIZER_DOCUMENTS = 20_000  # that a vocabulary is learned from
BLANKS = 256  # of each kind in the copy probe
HELD_OUT = 16  # batches of the validation split
MAX_BYTES = 12_000_000  # of a shipped model's weights in half precision


@dataclass(frozen=True, kw_only=True)
class RecipeTraining(Training):
    """A recipe's training; the state is saved every `checkpoint_every` steps."""

    steps: int = 12_000
    rows: int = 48
    lr: float = 1e-3
    warmup: int = 300
    probe_every: int = 250
    checkpoint_every: int = 250


@dataclass(frozen=True)
class Job(ABC):
    """One recipe at work. folder: of the unfinished run. shipped: where finished checkpoints are,
    for a recipe that starts from another one."""

    name: str
    recipe: Any
    folder: Path
    shipped: Path = zoo.FOLDER

    @property
    def data(self) -> str:
        """What it reads, in words."""
        return f"World({self.recipe.world}): documents of the split train, never one twice"

    @property
    def starts_from(self) -> list[str]:
        """The names of the checkpoints that must be there before."""
        return []

    @property
    def parents(self) -> dict[str, str]:
        """The checkpoints it starts from, each with the SHA-256 of its weights."""
        names = self.starts_from
        try:
            made = {name: zoo.manifest_entry(name, self.shipped)["files"] for name in names}
        except CourseError as error:
            raise CourseError(
                f"{self.name} starts from {''.join(names)}; build that first. {error}"
            ) from None
        return {name: files["model.safetensors"]["sha256"] for name, files in made.items()}

    @abstractmethod
    def build(self, to: Path, device: str = "cpu") -> Iterator[Point]:
        """Train, score and export to `to`; what `folder` holds is gone on with."""

    @property
    def world(self) -> Any:
        """The generated town whose documents are read."""
        return town(self.recipe.world)

    def sentences(self, split: str) -> Sentences:
        """Document number -> sentences."""
        return sentences(self.recipe.world, split, self.recipe.seed)

    def learned(self, file: str, learn: Callable[[Iterable[str]], Any]) -> Any:
        """The run's vocabulary, learned once."""
        return learned(self.folder / file, self.sentences("train"), TOKENIZER_DOCUMENTS, learn)

    @cached_property
    def blanks(self) -> dict[str, list[Blank]]:
        """The copy probe's questions by kind: two facts, one of them said again with a word to fill
        in.
        """
        kinds = ("name", "object", "place")
        return {
            kind: [_blank(item) for item in self.world.probe(BLANKS, seed=1, kind=kind)]
            for kind in kinds
        }

    def same(self) -> None:
        """Refuse to go on with a run of another recipe or from other weights (another number of
        steps is fine).
        """
        path = self.folder / "recipe.json"
        mine: dict[str, Any] = json.loads(json.dumps(asdict(self.recipe)))
        mine |= {"from": self.parents} if self.parents else {}
        if path.exists():
            theirs = read_json(path)
            odd = [
                key for key in mine if key != "steps" and key in theirs and mine[key] != theirs[key]
            ]
            if odd:
                raise CourseError(
                    f"{self.folder} holds a run with {odd[0]} = {theirs[odd[0]]}, the recipe says "
                    f"{mine[odd[0]]}; remove the folder to start afresh, or name another by --work."
                )
        write_json(path, mine)

    def card(self, scores: Scores, points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """What card.json says. points: the learning curve."""
        recipe = self.recipe
        about: dict[str, Any] = {
            "name": self.name,
            "recipe": asdict(recipe),
            "seed": recipe.seed,
            "data": self.data,
        }
        about |= {"from": self.parents} if self.parents else {}
        return card(
            points, **about, scores={name: round(score, 4) for name, score in scores.items()}
        )


class TrainingJob(Job):
    """A job of gradient descent on one model. Where a subclass says no other, that model is what is
    shipped.

    model: what is trained, before the first step, by the recipe's seed. batches: what it reads.
    probe: what is asked every `probe_every` steps; scores: at the end, beside it."""

    loss: Loss
    tokenizer: Any
    model: Callable[[], nn.Module]
    batches: Callable[[], Batches]
    probe: Callable[[nn.Module], Scores]
    scores: Callable[[nn.Module], Scores]

    def exports(self, model: nn.Module) -> dict[str, nn.Module]:
        """What is shipped of it, by name."""
        return {self.name: model}

    def build(self, to: Path, device: str = "cpu") -> Iterator[Point]:
        recipe = self.recipe
        model = self.model()
        reports = Reports(log=LOG, probe=self.probe, probe_every=recipe.probe_every)
        yield from recipe.run(
            self.folder,
            model,
            self.batches(),
            self.loss,
            reports=reports,
            save_every=recipe.checkpoint_every,
            device=device,
        )
        # A run that was already at its last step only exports.
        curve = read_curve(self.folder)
        probes = [point["probe"] for point in curve if "probe" in point]
        about = self.card((probes[-1] if probes else {}) | run_probe(self.scores, model), curve)
        for name, part in self.exports(model).items():
            check_size(name, part)
            zoo.export(name, part, self.tokenizer, about | {"name": name}, to)


def check_size(name: str, model: nn.Module) -> None:
    """Raise a `CourseError` if the model is too large to be shipped."""
    size = 2 * sum(weight.numel() for weight in model.parameters())
    if size > MAX_BYTES:
        raise CourseError(
            f"{name} takes {size:,} bytes in half precision; {MAX_BYTES:,} is the most a file may."
        )


def _blank(item: dict[str, Any]) -> Blank:
    start = item["sentence"].rindex(item["answer"])
    end = start + len(item["answer"])
    return Blank(
        f"{item['context']} {item['sentence'][:start]}", item["answer"], item["sentence"][end:]
    )
