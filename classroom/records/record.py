"""What became of a claim: data/results/<claim>.json, written by `claims run` and read by lessons and slides."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from classroom.records.ledger import DATA, claim
from course_lib.errors import CourseError
from course_lib.files import read_json, write_json

RESULTS = DATA / "results"

Verdict = Literal["reproduced", "partly", "not at this scale"]
VERDICTS: tuple[str, ...] = get_args(Verdict)


@dataclass(frozen=True)
class Figure:
    """One measured quantity: its value with each seed, and the 95% interval of the mean by Student's t.

    One value alone has no interval (None), unless it is exact: then the interval is the value itself.
    """

    seeds: list[float]
    mean: float
    interval: tuple[float, float] | None

    def __str__(self) -> str:
        half = "" if self.interval is None else f" ± {short((self.interval[1] - self.interval[0]) / 2)}"
        return short(self.mean) + ("" if len(self.seeds) == 1 else half)


Figures = Mapping[str, Figure]


@dataclass(frozen=True)
class Record:
    """One claim's experiment, whole.

    rule: when the verdict is which, written before the run; rule_hash: names it, in the shipped records with the code
    that applied it. why: the verdict in a sentence or two, from the figures. arms: names of the pretrained models used.
    tried: to find out why a claim does not show. seconds: of one processor core, its arms' training included.
    """

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
    tried: list[str] = field(default_factory=list)


def figure(values: Sequence[float], *, exact: bool = False) -> Figure:
    """Values of several seeds to their mean and its 95% interval."""
    if not values or not all(math.isfinite(value) for value in values):
        raise CourseError(f"A figure needs finite numbers, one a seed; it got {list(values)}.")
    values = [float(value) for value in values]
    mean = sum(values) / len(values)
    if exact:
        return Figure(values, mean, (min(values), max(values)))
    if len(values) < 2:
        return Figure(values, mean, None)
    from scipy.stats import t

    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    half = float(t.ppf(0.975, len(values) - 1)) * spread / math.sqrt(len(values))
    return Figure(values, mean, (mean - half, mean + half))


def difference(a: Figure, b: Figure) -> Figure:
    """a - b, paired by seed."""
    return figure([x - y for x, y in zip(a.seeds, b.seeds, strict=True)])


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
            key: Figure(list(f["seeds"]), f["mean"], None if f["interval"] is None else (*f["interval"],))
            for key, f in values["figures"].items()
        }
        found = Record(**{**values, "figures": figures})
    except (TypeError, KeyError, AttributeError) as error:
        raise CourseError(f"{path} is no record of a claim ({error}); make it again: claims run.") from error
    if found.id != path.stem or found.verdict not in VERDICTS:
        raise CourseError(f"{path} names the claim {found.id!r} and the verdict {found.verdict!r}.")
    return found


def short(value: float) -> str:
    """A number as one says it: three digits or so, whole ones whole."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    for least, digits in ((100, 0), (10, 1), (1, 2)):
        if abs(value) >= least:
            return f"{value:.{digits}f}"
    return f"{value:.3f}" if abs(value) >= 0.001 or value == 0 else f"{value:.1e}"
