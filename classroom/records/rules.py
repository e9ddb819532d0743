"""The rule of a claim, as the ledger writes it, applied to figures: the same for a record and for a
lesson's live run.

    rule:
      statements:
        - says: GELU ends at a lower loss
          more: [loss/ReLU, loss/GELU]           # the 95% interval of the difference lies above 0
      controls:
        - says: both have left the plateau
          range: [loss/GELU, null, 4.5]          # with every seed

A statement has one of the forms below. `for: {x: [1, 2]}` writes it once for each value, in place
of {x}; `parts` joins several; all must hold, or `need` of them. `given`: a statement without which
this one, or this part of one, tests nothing: such a part is left out. `untested`: why the design
cannot say. `side: true`: alone it makes no "partly". `exploratory: true`: written after the figures
were seen; it lifts no verdict. `draws: true`: its seeds are draws of rows or texts, of one
checkpoint; they are no trainings. A rule that was `changed` after a run has the date, and as
`before` the former rule's verdict on the same figures, which the change may lower and never lift.

| form | holds if, for the paired difference of the quantities a and b |
|---|---|
| `more: [a, b]` | its 95% interval lies above 0; with `by: x`, and its mean is x or more |
| `same: [a, b]`, `margin: m` | its 95% interval lies within -m and m, fixed before the run |
| `range: [a, low, high]` | a and its 95% interval are in the range; null is an open end |
| `equal: [a, b]` | both are the same with every seed |

A quantity is a figure's name, a number, [a, b] for a minus b, {of: [a, b]} for a divided by b,
{log: a}, {mean: [...]} or {highest: [...]}, the one with the highest mean."""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Literal

import numpy as np

from classroom.records.figures import Figure, Figures, Verdict, figure
from course_lib.errors import CourseError

Outcome = Literal["holds", "not shown", "opposite", "not tested"]
FORMS = ("more", "same", "range", "equal", "parts", "untested")
MARKS = ("side", "exploratory", "draws")
KEYS = (*FORMS, *MARKS, "says", "by", "margin", "for", "need", "given")
MOST = 4  # quantities that a statement names
_COMBINED: dict[str, Callable[..., np.ndarray]] = {
    "minus": np.subtract,
    "of": np.divide,
    "log": np.log,
    "mean": lambda *some: np.mean(some, axis=0),
}


@dataclass(frozen=True)
class Found:
    """What became of a statement. values: its quantities, without their names. agrees: whether the
    means alone point its way."""

    says: str
    outcome: Outcome
    values: tuple[str, ...] = ()
    agrees: bool = False
    side: bool = False
    exploratory: bool = False
    draws: bool = False

    def __str__(self) -> str:
        drawn = "; of draws, not of trainings" * (self.draws and self.outcome != "not tested")
        return f"{self.outcome}: {self.says}" + (
            f" ({', '.join(self.values)}{drawn})" if self.values else ""
        )


@dataclass(frozen=True)
class Judgement:
    """What became of every statement and control."""

    statements: tuple[Found, ...]
    controls: tuple[Found, ...]

    @property
    def failed(self) -> list[str]:
        """The controls that do not hold."""
        return [f"control, {each}" for each in self.controls if each.outcome != "holds"]

    @property
    def main(self) -> list[Found]:
        """The statements that alone can make a verdict."""
        return [each for each in self.statements if not each.side and not each.exploratory]

    @property
    def verdict(self) -> Verdict:
        """not tested: a control does not hold, or no statement could be tested. reproduced: all
        statements hold. partly: one at least that counts does. opposite: none does, and of one the
        contrary holds. no difference: otherwise."""
        outcomes = {each.outcome for each in self.main}
        if self.failed or outcomes <= {"not tested"}:
            return "not tested"
        if all(each.outcome == "holds" for each in self.statements if not each.exploratory):
            return "reproduced"
        return (
            "partly"
            if "holds" in outcomes
            else "opposite"
            if "opposite" in outcomes
            else "no difference"
        )

    @property
    def why(self) -> str:
        """A line for each control that fails, and for each statement, with its figures."""
        return "\n".join([*self.failed, *map(str, self.statements)])


def judge(rule: Mapping[str, Any], figures: Figures) -> Judgement:
    """The rule applied to figures."""
    entries = (rule["statements"], rule.get("controls", ()))
    return Judgement(*(tuple(_found(entry, figures) for entry in each) for each in entries))


def words(rule: Mapping[str, Any]) -> str:
    """The rule in a sentence or two."""

    def told(entry: Mapping[str, Any]) -> str:
        marks = [mark for mark in (*MARKS, "untested") if entry.get(mark)]
        return str(entry["says"]) + (f" ({', '.join(marks)})" if marks else "")

    said = [f"({number}) {told(entry)}" for number, entry in enumerate(rule["statements"], start=1)]
    controls = "; ".join(entry["says"] for entry in rule.get("controls", ()))
    only = f" Tested only if: {controls}." if controls else ""
    late = (
        f" Changed {rule['changed']}, after the run; before: {rule['before']}."
        if "changed" in rule
        else ""
    )
    return f"Statements: {'; '.join(said)}." + only + late


def digest(rule: Mapping[str, Any]) -> str:
    """Names what a rule asks of the figures; what it says of itself is left out."""
    asks = [
        {key: value for key, value in entry.items() if key != "draws"}
        for entry in rule["statements"]
    ]
    kept = {key: value for key, value in rule.items() if key not in ("changed", "before")} | {
        "statements": asks
    }
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:12]


def check(rule: Any, where: str) -> None:
    """Raise if a rule of the ledger is none."""
    keys = {"statements", "controls", "changed", "before"}
    if not isinstance(rule, dict) or not set(rule) <= keys or not rule.get("statements"):
        raise CourseError(
            f"{where}: a rule has `statements`, and perhaps `controls`; see"
            " classroom/records/rules.py."
        )
    for entry in (*rule["statements"], *rule.get("controls", ())):
        _check(entry, where, top=True)


def _check(entry: Any, where: str, *, top: bool = False) -> None:
    if (
        not isinstance(entry, dict)
        or sum(form in entry for form in FORMS) != 1
        or (top and "says" not in entry)
    ):
        raise CourseError(f"{where}: {entry!r} must have `says` and one of {', '.join(FORMS)}.")
    if unknown := [key for key in entry if key not in KEYS]:
        raise CourseError(
            f"{where}: a statement has no {unknown[0]!r}; there are {', '.join(KEYS)}."
        )
    for part in (*entry.get("parts", ()), *([entry["given"]] if "given" in entry else ())):
        _check(part, where)


def _found(entry: Mapping[str, Any], figures: Figures) -> Found:
    marks: dict[str, Any] = {mark: True for mark in MARKS if entry.get(mark)}
    made: Callable[..., Found] = partial(Found, entry.get("says", ""), **marks)
    if "untested" in entry:
        return made("not tested", (entry["untested"],))
    try:
        every = [_one(part, figures) for part in _written_out(entry)]
    except KeyError as missing:
        return made("not tested", (f"no figure {missing.args[0]!r}",))
    except CourseError:  # of `figure`: a quotient of zeros
        return made("not tested", ("no finite number",))
    parts = [part for part in every if part.outcome != "not tested"]
    need, hold = entry.get("need", len(parts)), sum(part.outcome == "holds" for part in parts)
    if not parts or need > len(parts):
        return made(
            "not tested",
            tuple(dict.fromkeys(part.values[0] for part in every if part not in parts)),
        )
    outcome: Outcome = "holds" if hold >= need else "not shown"
    if not hold and any(part.outcome == "opposite" for part in parts):
        outcome = "opposite"
    values = [part.values[0] for part in parts]
    if len(values) > MOST:
        values = [f"{hold} of {len(parts)}"]
    if len(parts) < len(every):
        values.append(f"{len(parts)} of {len(every)} tested")
    return made(outcome, tuple(values), sum(part.agrees for part in parts) >= need)


def _written_out(entry: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A statement's parts: of `parts`, and one for each value of `for`."""
    if "parts" in entry:
        for part in entry["parts"]:
            yield from _written_out({"given": entry["given"], **part} if "given" in entry else part)
    elif "for" in entry:
        once = {key: value for key, value in entry.items() if key != "for"}
        for row in product(*entry["for"].values()):
            yield _filled(once, dict(zip(entry["for"], row, strict=True)))
    else:
        yield entry


def _filled(part: Any, values: Mapping[str, Any]) -> Any:
    """With {x} replaced by its value in every text."""
    if isinstance(part, str):
        for name, value in values.items():
            part = part.replace(f"{{{name}}}", str(value))
        return part
    if isinstance(part, dict):
        values = {name: value for name, value in values.items() if name not in part.get("for", ())}
        return {key: _filled(value, values) for key, value in part.items()}
    return [_filled(value, values) for value in part] if isinstance(part, list) else part


def _one(entry: Mapping[str, Any], figures: Figures) -> Found:
    """One of the four forms, if what is given holds."""
    if "given" in entry and (given := _found(entry["given"], figures)).outcome != "holds":
        return Found("", "not tested", (str(given),))
    if "range" in entry:
        quantity, low, high = entry["range"]
        low, high = (-math.inf if low is None else low), (math.inf if high is None else high)
        value = _value(figures, quantity)
        least, most = value.interval or (-math.inf, math.inf)
        inside = all(low <= x <= high for x in (*value.seeds, least, most))
        return _settled(inside, most < low or least > high, value, low <= value.mean <= high)
    form = next(form for form in ("more", "same", "equal") if form in entry)
    a, b = entry[form]
    gap = _value(figures, [a, b])
    told, signed = (_value(figures, a), False) if isinstance(b, int | float) else (gap, True)
    if form == "equal":
        return _settled(not any(gap.seeds), all(gap.seeds), told, not gap.mean, signed=signed)
    low, high = gap.interval or (-math.inf, math.inf)
    if form == "same":
        margin = entry["margin"]
        apart = low > margin or high < -margin
        return _settled(
            -margin <= low and high <= margin, apart, told, abs(gap.mean) <= margin, signed=signed
        )
    by = entry.get("by", 0)
    enough = gap.mean >= by if by > 0 else gap.mean > by
    return _settled(low > min(by, 0) and enough, high < min(by, 0), told, enough, signed=signed)


def _settled(
    holds: bool, contrary: bool, value: Figure, agrees: bool, *, signed: bool = False
) -> Found:
    outcome: Outcome = "holds" if holds else "opposite" if contrary else "not shown"
    return Found("", outcome, (f"{'+' * (signed and value.mean > 0)}{value}",), agrees)


def _value(figures: Figures, quantity: Any) -> Figure:
    """A quantity with every seed. Exact figures stay so: their interval is the value itself."""
    if isinstance(quantity, str):
        return figures[quantity]
    if isinstance(quantity, int | float):
        return figure([quantity], exact=True)
    (how, parts), *_ = quantity.items() if isinstance(quantity, dict) else [("minus", quantity)]
    if how == "highest":
        return max((_value(figures, part) for part in parts), key=lambda found: found.mean)
    given = [_value(figures, part) for part in ([parts] if how == "log" else parts)]
    rows = np.broadcast_arrays(*[np.array(each.seeds) for each in given])
    with np.errstate(divide="ignore", invalid="ignore"):
        found = _COMBINED[how](*rows)
    exact = len(rows[0]) == 1 and all(each.interval for each in given)
    return figure(found.tolist(), exact=exact)
