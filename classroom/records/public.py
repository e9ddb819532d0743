"""Public tasks, data/results/real_*.json (lab/real/tasks.py): a table of what is recorded,
and who is ahead.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from classroom.records.figures import Figure, difference, figure
from classroom.records.record import RESULTS
from course_lib.files import read_json

if TYPE_CHECKING:
    from classroom.figures.display import Html

TASKS = {
    "sst2": "SST-2: praise or blame?",
    "cola": "CoLA: is it grammatical?",
    "mrpc": "MRPC: the same said twice?",
    "stsb": "STS-B: how similar?",
    "wnut17": "WNUT-17: names",
    "ud_tags": "UD: parts of speech",
    "xquad": "XQuAD: answer spans",
    "senses": "CoarseWSD-20: which sense?",
}
ARMS = {
    "linear": "linear model",
    "scratch": "random weights",
    "town": "the town",
    "english": "English",
}
METRIC_TITLES = {  # by the names of `metrics.METRICS`; the others are called by their names
    "matthews": "Matthews",
    "spearman": "Spearman",
    "entity_f1": "F1 of names",
    "token_f1": "F1 of words",
}
NO_BREAK = ",\N{NO-BREAK SPACE}"  # within an interval
Records = Mapping[str, Mapping[str, Any]]


def public_records(folder: str | Path = RESULTS) -> dict[str, dict[str, Any]]:
    """The records that are there, by name, in the table's order."""
    files = {name: Path(folder) / f"real_{name}.json" for name in TASKS}
    return {name: read_json(file) for name, file in files.items() if file.exists()}


@cache
def figures(folder: str | Path = RESULTS) -> dict[str, Figure]:
    """Every figure of real_*.json by its path, NAME/arms/ARM; a number alone is that of one run."""
    found: dict[str, Figure] = {}

    def put(path: str, value: Any) -> None:
        if isinstance(value, dict) and {"seeds", "mean"} <= value.keys():
            found[path] = figure(value["seeds"])
        elif isinstance(value, dict):
            for key, part in value.items():
                put(f"{path}/{key}", part)
        elif isinstance(value, int | float):
            found[path] = figure([value])

    for file in sorted(Path(folder).glob("real_*.json")):
        put(file.stem.removeprefix("real_"), read_json(file))
    return found


def public_table(found: Records) -> "Html | None":
    """A row a task, a column an arm: the mean (times 100) with its 95% interval, a single training
    without one; a dash where nothing is recorded. None without any record."""
    from classroom.figures.tables import table

    rows = []
    for name, record in found.items():
        task = record.get("task", {"metric": "f1"})
        row: dict[str, Any] = {
            "task": TASKS[name],
            "metric": METRIC_TITLES.get(task["metric"], task["metric"]),
        }
        row["rows to train on"] = f"{record['rows']['train']:,}" if "rows" in record else None
        for arm, heading in ARMS.items():
            row[heading] = _said(_figure(record, arm))
        published = task.get("bert_base")
        rows.append(row | {"BERT-base, published": published and 100 * published})
    return table(rows, digits=1) if rows else None


def compared(found: Records, arm: str, other: str) -> str:
    """On which tasks an arm is ahead of another, the 95% interval of the difference (paired by
    seed; of the arm alone against a single training) above zero."""
    told: dict[str, list[str]] = {"ahead": [], "behind": [], "no difference shown": []}
    for name, record in found.items():
        one, two = _figure(record, arm), _figure(record, other)
        if len(one) < 3 or not two:
            continue
        a, b = (record["arms"][each]["seeds"] for each in (arm, other))
        low, high = (x - two[0] for x in one[1:])
        if len(a) == len(b):
            low, high = difference(figure(a), figure(b)).interval or (low, high)
        outcome = "no difference shown"
        if low > 0:
            outcome = "ahead"
        elif high < 0:
            outcome = "behind"
        told[outcome].append(TASKS[name].split(":")[0])
    said = "; ".join(f"{word}: {', '.join(names)}" for word, names in told.items() if names)
    return f"{ARMS[arm]} against {ARMS[other]}: {said or 'not recorded yet'}"


def _figure(record: Mapping[str, Any], arm: str) -> tuple[float, ...]:
    """Mean and interval of an arm, the mean alone, or nothing."""
    found = record["arms"].get(arm)
    return () if found is None else (found["mean"], *(found["interval"] or ()))


def _said(values: tuple[float, ...]) -> str | None:
    """Times 100, the interval in one piece."""
    mean, *interval = (f"{100 * x:.1f}" for x in values) if values else (None,)
    return f"{mean} [{NO_BREAK.join(interval)}]" if interval else mean
