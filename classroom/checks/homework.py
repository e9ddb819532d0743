"""The checks of the homework: like those of the lessons, but the right answer is not in the
course's code.

A release comes as two files: the notebook, and `NAME_checks.json` with inputs, right results and
the results that known mistakes would give, as numbers. `make homework` writes it from the master;
the grader draws other inputs."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from classroom.checks import base
from classroom.checks.base import (
    Case,
    CheckResult,
    Crash,
    close,
    describe,
    difference,
    outcome,
    report,
)
from course_lib.errors import CourseError
from course_lib.files import COURSE

BUILT = COURSE / "build" / "homework"  # where `make homework` puts the releases
# exceptions whose names may be told of hidden inputs
USUAL_ERRORS = ("AttributeError", "IndexError", "RuntimeError", "TypeError", "ValueError")


@dataclass(frozen=True)
class Sheet:
    """Inputs for one function, the right results, and what known mistakes would give.

    verified: what passing proves. cases: inputs, passed by position. right: one result a case.
    mistakes: (the sentence that names it, `fingerprint` of its result on every case). band:
    (absolute, relative) deviation that is still right."""

    name: str
    verified: str
    cases: Sequence[Case]
    right: Sequence[Any]
    mistakes: Sequence[tuple[str, list[Any]]]
    band: tuple[float, float] | None = None

    def accepts(self, value: Any, true: Any) -> bool:
        """Is this result right?"""
        if self.band is None:
            return close(value, true)
        if isinstance(value, Tensor) and value.numel() == 1:
            value = value.detach().item()
        if not isinstance(value, int | float) or isinstance(value, bool):
            return False
        return bool(abs(value - true) <= self.band[0] + self.band[1] * abs(true))  # false for NaN


def compare(fn: object, sheet: Sheet, *, secret: bool = False) -> None:
    """Compare a function with the right results on every case.

    secret: the cases are hidden ones; the sentence then tells the likely mistake and nothing about
    the inputs."""
    got = [outcome(fn, case) for case in sheet.cases]
    good = [sheet.accepts(value, true) for value, true in zip(got, sheet.right, strict=True)]
    prints = [fingerprint(value) for value in got]

    def fits(wrong: list[Any]) -> bool:
        return all(alike(a, b) for a, b in zip(prints, wrong, strict=True))

    def otherwise() -> str:
        if secret:
            raised = {type(v.error).__name__ for v in got if isinstance(v, Crash)}
            why = ""
            if raised:
                # one plain name: a choice of many could tell what the inputs are
                name = raised.pop() if len(raised) == 1 else ""
                why = f"; it raises {name if name in USUAL_ERRORS else 'errors'}"
            return f"{good.count(False)} of {len(good)} hidden inputs give a wrong result{why}."
        where = good.index(False)
        case, value = sheet.cases[where], got[where]
        if sheet.band is not None and isinstance(value, int | float):
            return (
                f"It returns {value:.3g} for {describe(case)}; that is outside the band of right"
                " values."
            )
        return difference(case, value, sheet.right[where], fn)

    known = ((says, partial(fits, wrong)) for says, wrong in sheet.mistakes)
    base.compare(got, outcome(fn, sheet.cases[0]), good, known, otherwise)


class Homework:
    """The checks of one assignment, read from `NAME_checks.json` when the first is asked."""

    def __init__(self, name: str, folder: str | Path = ".") -> None:
        self.name, self.folder = name, Path(folder)

    def check(self, name: str, fn: object) -> CheckResult:
        """Try the student's function; prints what is right, or the likely mistake."""
        if name not in self._sheets:
            raise CourseError(
                f"{self.name} has no check {name!r}; it has {', '.join(self._sheets)}."
            )
        sheet = self._sheets[name]

        def test() -> str:
            compare(fn, sheet)
            return sheet.verified

        return report(name, test)

    @cached_property
    def _sheets(self) -> dict[str, Sheet]:
        file = f"{self.name}_checks.json"
        for place in (self.folder / file, BUILT / self.name / "release" / file):
            if place.is_file():
                return read_sheets(place)
        raise CourseError(
            f"There is no {file} beside this notebook; put the file that came with it there"
            " (teachers: make homework)."
        )


def fingerprint(value: Any) -> Any:
    """A few numbers that tell results apart: kind, shape and one weighted sum for each tensor."""
    if isinstance(value, Crash):
        return ["crash", type(value.error).__name__, str(value.error)[:60]]
    if isinstance(value, Tensor):
        kind = "int"
        if value.is_floating_point():
            kind = "float"
        elif value.dtype == torch.bool:
            kind = "bool"
        flat = value.detach().cpu().double().flatten()
        weights = torch.arange(1, flat.numel() + 1, dtype=torch.double).cos()
        total = float(flat @ weights)
        return [kind, list(value.shape), total if math.isfinite(total) else None]
    if isinstance(value, tuple | list):
        return ["several", [fingerprint(item) for item in value]]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return ["number", [], float(value) if math.isfinite(value) else None]
    return ["other", repr(value)[:80]]


def alike(a: Any, b: Any) -> bool:
    """Two fingerprints of the same result, up to rounding."""
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= 1e-4 + 1e-4 * abs(b)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(alike(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def write_sheets(sheets: Sequence[Sheet]) -> str:
    """Sheets as JSON text."""
    rows = {
        s.name: {
            "verified": s.verified,
            "band": s.band,
            "cases": [{name: _plain(value) for name, value in case.items()} for case in s.cases],
            "right": [_plain(value) for value in s.right],
            "mistakes": s.mistakes,
        }
        for s in sheets
    }
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def read_sheets(path: Path) -> dict[str, Sheet]:
    """Sheets by name; CourseError where the file is broken."""
    try:
        rows = json.loads(path.read_text("utf-8"))
        return {
            name: Sheet(
                name,
                row["verified"],
                [{key: _thing(value) for key, value in case.items()} for case in row["cases"]],
                [_thing(value) for value in row["right"]],
                [(says, prints) for says, prints in row["mistakes"]],
                None if row["band"] is None else (row["band"][0], row["band"][1]),
            )
            for name, row in rows.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CourseError(
            f"{path.name} is damaged; fetch it again from where you got the homework."
        ) from None


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        rows = value.flatten().tolist()
        if value.is_floating_point():
            rows = [round(x, 6) for x in rows]
        return {
            "dtype": str(value.dtype).removeprefix("torch."),
            "shape": list(value.shape),
            "data": rows,
        }
    if isinstance(value, tuple | list):
        return {"tuple": isinstance(value, tuple), "items": [_plain(item) for item in value]}
    return value


def _thing(value: Any) -> Any:
    if isinstance(value, dict) and "dtype" in value:
        return torch.tensor(value["data"], dtype=getattr(torch, value["dtype"])).reshape(
            value["shape"]
        )
    if isinstance(value, dict):
        items = [_thing(item) for item in value["items"]]
        return tuple(items) if value["tuple"] else items
    return value
