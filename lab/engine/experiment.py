"""What a claim's experiment is: a function that measures. The rule that judges its figures stands
in the ledger.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from classroom.records.ledger import claim
from course_lib.errors import CourseError
from lab.engine.arms import Arm
from lab.engine.lab import Lab, Plan, shipped

LESSONS = Path(__file__).parents[1] / "lessons"  # bert.py holds the experiments of lesson 09_bert
Measure = Callable[[Lab, int], dict[str, float]]  # lab, seed -> the figures' values with that seed
Needs = Callable[[Plan, int], Sequence[Arm]]
_FOUND: dict[str, "Experiment"] = {}


@dataclass(frozen=True)
class Experiment:
    """How one claim is tested.

    measure: one seed's values by name, the same names with every seed. needs: the pretraining arms
    that it asks the lab for, which are then trained beforehand, side by side. config: settings
    beside the plan's."""

    id: str
    measure: Measure
    needs: Needs
    config: dict[str, Any]


@cache
def given(lesson: str) -> dict[str, Any]:
    """What the experiments of a lesson, "bert", take as given: the file beside them, bert.yaml.

    It may hold `sizes` at each scale (smoke proves the path in seconds, cpu is what data/results
    records, gpu is for larger machines), words of small languages, and under `settings`, by claim,
    what its record says of them; {} where there is no such file.
    """
    path = LESSONS / f"{lesson}.yaml"
    found: dict[str, Any] = yaml.safe_load(path.read_text("utf-8")) if path.exists() else {}
    return found


def settings(name: str) -> dict[str, Any]:
    """A claim's settings. A list of sizes is these columns of the lesson's table; checkpoints get
    their hashes.
    """
    lesson = given(claim(name).lesson[3:])
    found: dict[str, Any] = dict(lesson.get("settings", {}).get(name, {}))
    columns = found.get("sizes")
    if isinstance(columns, list):
        table = lesson["sizes"]
        found["sizes"] = {
            scale: {column: row[column] for column in columns} for scale, row in table.items()
        }
    if "checkpoints" in found:
        found["checkpoints"] = shipped(*found["checkpoints"])
    return found


def experiment(
    name: str, needs: Needs = lambda *_: (), **config: Any
) -> Callable[[Measure], Measure]:
    """Register the decorated function as the experiment of a claim. config: beside its settings in
    the lesson's YAML file.
    """

    def register(measure: Measure) -> Measure:
        _FOUND[name] = Experiment(name, measure, needs, settings(name) | config)
        return measure

    return register


def find(name: str) -> Experiment:
    """The experiment of a claim."""
    lesson = claim(name).lesson[3:]
    if (LESSONS / f"{lesson}.py").exists():
        import_module(f"lab.lessons.{lesson}")
    if name not in _FOUND:
        raise CourseError(
            f"The claim {name!r} has no experiment yet; `claims list` shows which have."
        )
    return _FOUND[name]
