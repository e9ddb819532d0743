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
from dataclasses import dataclass, replace
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
    """What became of a statement.

    Attributes:
        says: the statement.
        outcome: what became of it.
        values: its quantities, without their names.
        agrees: whether the means alone point its way.
        side, exploratory, draws: its marks, as the ledger has them.
    """

    says: str
    outcome: Outcome
    values: tuple[str, ...] = ()
    agrees: bool = False
    side: bool = False
    exploratory: bool = False
    draws: bool = False

    def __str__(self) -> str:
        line = f"{self.outcome}: {self.says}"
        if not self.values:
            return line
        values = ", ".join(self.values)
        if self.draws and self.outcome != "not tested":
            values += "; of draws, not of trainings"
        return f"{line} ({values})"


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
        """What the statements come to together.

        not tested: a control does not hold, or no statement could be tested. reproduced: all
        statements hold. partly: one at least that counts does. opposite: none does, and of one the
        contrary holds. no difference: otherwise.
        """
        outcomes = {each.outcome for each in self.main}
        if self.failed or outcomes <= {"not tested"}:
            return "not tested"
        if all(each.outcome == "holds" for each in self.statements if not each.exploratory):
            return "reproduced"
        if "holds" in outcomes:
            return "partly"
        return "opposite" if "opposite" in outcomes else "no difference"

    @property
    def why(self) -> str:
        """A line for each control that fails, and for each statement, with its figures."""
        return "\n".join([*self.failed, *map(str, self.statements)])


def judge(rule: Mapping[str, Any], figures: Figures) -> Judgement:
    """The rule applied to figures."""
    statements = tuple(_found(entry, figures) for entry in rule["statements"])
    controls = tuple(_found(entry, figures) for entry in rule.get("controls", ()))
    return Judgement(statements, controls)


def words(rule: Mapping[str, Any]) -> str:
    """The rule in a sentence or two."""

    statements = []
    for number, entry in enumerate(rule["statements"], start=1):
        marks = [mark for mark in (*MARKS, "untested") if entry.get(mark)]
        behind = f" ({', '.join(marks)})" if marks else ""
        statements.append(f"({number}) {entry['says']}{behind}")
    text = f"Statements: {'; '.join(statements)}."
    controls = "; ".join(entry["says"] for entry in rule.get("controls", ()))
    if controls:
        text += f" Tested only if: {controls}."
    if "changed" in rule:
        text += f" Changed {rule['changed']}, after the run; before: {rule['before']}."
    return text


def digest(rule: Mapping[str, Any]) -> str:
    """Names what a rule asks of the figures; what it says of itself is left out."""
    kept = _without(rule, "changed", "before")
    kept["statements"] = [_without(entry, "draws") for entry in rule["statements"]]
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:12]


def _without(entry: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in keys}


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
    forms = [form for form in FORMS if form in entry] if isinstance(entry, dict) else []
    if len(forms) != 1 or (top and "says" not in entry):
        raise CourseError(f"{where}: {entry!r} must have `says` and one of {', '.join(FORMS)}.")
    unknown = [key for key in entry if key not in KEYS]
    if unknown:
        raise CourseError(
            f"{where}: a statement has no {unknown[0]!r}; there are {', '.join(KEYS)}."
        )
    for part in entry.get("parts", ()):
        _check(part, where)
    if "given" in entry:
        _check(entry["given"], where)


def _found(entry: Mapping[str, Any], figures: Figures) -> Found:
    """What became of an entry of the ledger, with its marks."""
    marks: dict[str, Any] = {mark: True for mark in MARKS if entry.get(mark)}
    return replace(_outcome(entry, figures), says=entry.get("says", ""), **marks)


def _outcome(entry: Mapping[str, Any], figures: Figures) -> Found:
    """An entry's parts together."""
    if "untested" in entry:
        return _not_tested(entry["untested"])
    try:
        every = [_one(part, figures) for part in _written_out(entry)]
    except KeyError as missing:
        return _not_tested(f"no figure {missing.args[0]!r}")
    except CourseError:  # of `figure`: a quotient of zeros
        return _not_tested("no finite number")
    tested = [part for part in every if part.outcome != "not tested"]
    need = entry.get("need", len(tested))
    if not tested or need > len(tested):
        reasons = [part.values[0] for part in every if part.outcome == "not tested"]
        return _not_tested(*dict.fromkeys(reasons))
    hold = sum(part.outcome == "holds" for part in tested)
    outcome: Outcome = "not shown"
    if hold >= need:
        outcome = "holds"
    if not hold and any(part.outcome == "opposite" for part in tested):
        outcome = "opposite"
    values = [part.values[0] for part in tested]
    if len(values) > MOST:
        values = [f"{hold} of {len(tested)}"]
    if len(tested) < len(every):
        values.append(f"{len(tested)} of {len(every)} tested")
    agrees = sum(part.agrees for part in tested) >= need
    return Found("", outcome, tuple(values), agrees)


def _not_tested(*reasons: str) -> Found:
    return Found("", "not tested", reasons)


def _written_out(entry: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A statement's parts: of `parts`, and one for each value of `for`."""
    if "parts" in entry:
        for part in entry["parts"]:
            given = {"given": entry["given"]} if "given" in entry else {}
            yield from _written_out(given | part)
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
    if isinstance(part, list):
        return [_filled(value, values) for value in part]
    return part


def _one(entry: Mapping[str, Any], figures: Figures) -> Found:
    """One of the four forms, if what is given holds."""
    if "given" in entry:
        given = _found(entry["given"], figures)
        if given.outcome != "holds":
            return _not_tested(str(given))
    if "range" in entry:
        return _range(entry, figures)
    form = next(form for form in ("more", "same", "equal") if form in entry)
    first, second = entry[form]
    gap = _value(figures, [first, second])
    holds, contrary, agrees = _FORMS[form](entry, gap)
    if isinstance(second, int | float):  # the quantity tells more than its distance to a number
        return _settled(holds, contrary, agrees, str(_value(figures, first)))
    sign = "+" if gap.mean > 0 else ""
    return _settled(holds, contrary, agrees, f"{sign}{gap}")


def _range(entry: Mapping[str, Any], figures: Figures) -> Found:
    quantity, low, high = entry["range"]
    low = -math.inf if low is None else low
    high = math.inf if high is None else high
    value = _value(figures, quantity)
    least, most = value.interval or (-math.inf, math.inf)
    inside = all(low <= each <= high for each in (*value.seeds, least, most))
    outside = most < low or least > high
    return _settled(inside, outside, low <= value.mean <= high, str(value))


_Findings = tuple[bool, bool, bool]  # holds, the contrary does, the means alone agree


def _equal(entry: Mapping[str, Any], gap: Figure) -> _Findings:
    return not any(gap.seeds), all(gap.seeds), not gap.mean


def _same(entry: Mapping[str, Any], gap: Figure) -> _Findings:
    low, high = gap.interval or (-math.inf, math.inf)
    margin = entry["margin"]
    holds = -margin <= low and high <= margin
    apart = low > margin or high < -margin
    return holds, apart, abs(gap.mean) <= margin


def _more(entry: Mapping[str, Any], gap: Figure) -> _Findings:
    low, high = gap.interval or (-math.inf, math.inf)
    by = entry.get("by", 0)
    enough = gap.mean >= by if by > 0 else gap.mean > by
    bound = min(by, 0)
    return low > bound and enough, high < bound, enough


_FORMS = {"more": _more, "same": _same, "equal": _equal}


def _settled(holds: bool, contrary: bool, agrees: bool, value: str) -> Found:
    outcome: Outcome = "not shown"
    if holds:
        outcome = "holds"
    elif contrary:
        outcome = "opposite"
    return Found("", outcome, (value,), agrees)


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
