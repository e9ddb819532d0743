"""What became of a claim: data/results/<claim>.json, written by `claims run` and read by lessons
and slides.
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from classroom.records.figures import VERDICTS, Figure, Verdict
from classroom.records.ledger import claim
from course_lib.errors import CourseError
from course_lib.files import DATA, read_json, write_json

RESULTS = DATA / "results"


@dataclass(frozen=True)
class Record:
    """One claim's experiment, whole.

    rule: the ledger's, in words; rule_hash: names the rule that gave the verdict; ruled: that of
    the run. why: a line for each statement, and for each control that fails, with its figures.
    arms: names of the pretrained models used. tried: to find out why a claim does not show.
    seconds: of one processor core, its arms' training included."""

    id: str
    kind: str
    rule: str
    rule_hash: str
    verdict: Verdict
    why: str
    figures: dict[str, Figure]
    seeds: list[int]
    config: dict[str, Any]
    arms: list[str]
    versions: dict[str, str]
    hardware: str
    seconds: float
    made: str
    ruled: str = ""
    tried: list[str] = field(default_factory=list)


def write(record: Record, folder: str | Path = RESULTS) -> Path:
    """Write a record to `folder`/<claim>.json, atomically."""
    path = Path(folder) / f"{record.id}.json"
    write_json(path, asdict(record))
    return path


def record(name: str, folder: str | Path = RESULTS) -> Record | None:
    """The record of a claim; None where there is none yet."""
    claim(name)
    path = Path(folder) / f"{name}.json"
    return read(path) if path.exists() else None


def read(path: Path) -> Record:
    """The record in a file; see `record`."""
    values = read_json(path)
    try:
        figures = {
            key: Figure(
                list(f["seeds"]), f["mean"], None if f["interval"] is None else (*f["interval"],)
            )
            for key, f in values["figures"].items()
        }
        found = Record(**{**values, "figures": figures})
    except (TypeError, KeyError, AttributeError) as error:
        raise CourseError(
            f"{path} is no record of a claim ({error}); make it again: claims run."
        ) from error
    if found.id != path.stem or found.verdict not in VERDICTS:
        raise CourseError(f"{path} names the claim {found.id!r} and the verdict {found.verdict!r}.")
    return found
