"""Every rule of the ledger can come out either way, and hangs on each of its statements."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from classroom import records
from classroom.records import ledger, rules
from classroom.records.figures import Figure, figure
from course_lib.errors import CourseError

# The others wait for their first run: a rule stands in the ledger before it.
RECORDED = [claim for claim in ledger.read().values() if records.record(claim.id) is not None]


def forms(entry: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The single comparisons of a statement, those first without which one tests nothing."""
    for form in () if "untested" in entry else rules._written_out(entry):
        if "given" in form:
            yield from forms(form["given"])
        yield {key: value for key, value in form.items() if key != "given"}


def put(figures: dict[str, Figure], quantity: Any, to: Any) -> None:
    """Change the figures of a quantity so that it is this, with each seed or with every one."""
    if isinstance(quantity, str):
        seeds = np.broadcast_to(to, len(figures[quantity].seeds)).tolist()
        figures[quantity] = figure(seeds, exact=len(seeds) == 1)
        return
    (how, parts), *_ = quantity.items() if isinstance(quantity, dict) else [("minus", quantity)]
    if how in ("highest", "mean"):
        for part in parts:
            put(figures, part, to)
        return
    first, *others = [parts] if how == "log" else parts
    other = np.array(rules._value(figures, others[0]).seeds) if others else np.array(0.0)
    put(figures, first, to + other if how == "minus" else to * other if how == "of" else np.exp(to))


def settle(figures: dict[str, Figure], form: Mapping[str, Any], *, holds: bool) -> None:
    """Change the figures so that a comparison holds, or does not."""
    if "range" in form:
        quantity, low, high = form["range"]
        least, most = (high - 1 if low is None else low), (low + 1 if high is None else high)
        put(
            figures, quantity, (least + most) / 2 if holds else most + 1 if low is None else low - 1
        )
        return
    a, b = form.get("more") or form.get("same") or form["equal"]
    by, margin = form.get("by", 0), form.get("margin", 0)
    more = (by + 0.02 if by >= 0 else by / 5) if holds else -abs(by) - 0.3
    gap = more if "more" in form else 0.0 if holds else 2 * margin + 0.3
    if isinstance(a, int | float):
        put(figures, b, a - gap)
        return
    to = np.array(rules._value(figures, b).seeds) + gap
    put(
        figures,
        a,
        np.maximum(to, rules._value(figures, a).seeds) if holds and "more" in form else to,
    )


def solved(rule: Mapping[str, Any], figures: Mapping[str, Figure]) -> dict[str, Figure]:
    """Figures, the same with every seed, under which all holds that can."""
    found = dict(figures)
    for name, value in figures.items():
        put(found, name, value.mean)
    for turn in range(30):
        for entry in (*rule.get("controls", ()), *rule["statements"]):
            some = list(forms(entry))
            for form in [*some[turn % max(1, len(some)) :], *some[: turn % max(1, len(some))]]:
                hold = sum(rules._one(each, found).outcome == "holds" for each in some)
                enough = len(some) if "given" in entry else entry.get("need", len(some))
                if hold < enough and rules._one(form, found).outcome != "holds":
                    settle(found, form, holds=True)
    return found


@pytest.mark.parametrize("claim", RECORDED, ids=lambda claim: claim.id)
def test_a_rule_hangs_on_each_of_its_statements(claim: ledger.Claim) -> None:
    figures = solved(claim.rule, records.record(claim.id).figures)  # type: ignore[union-attr]
    best = rules.judge(claim.rule, figures)
    open_ = [entry for entry in claim.rule["statements"] if "untested" in entry]
    closed = any("untested" in entry for entry in claim.rule.get("controls", ()))
    assert best.verdict == ("not tested" if closed else "partly" if open_ else "reproduced"), best
    for part in ("statements", "controls"):
        for number, entry in enumerate(claim.rule.get(part, ())):
            if "untested" in entry:
                continue
            worse = dict(figures)
            for form in (*forms(entry), *forms(entry)):
                settle(worse, form, holds=False)
            found = rules.judge(claim.rule, worse)
            assert getattr(found, part)[number].outcome != "holds", entry["says"]
            late = entry.get("exploratory") and best.verdict == found.verdict
            assert late or found.verdict not in (
                "reproduced",
                "partly" if part == "controls" else "",
            ), entry["says"]


@pytest.mark.parametrize("claim", RECORDED, ids=lambda claim: claim.id)
def test_nothing_holds_whose_interval_holds_its_null(claim: ledger.Claim) -> None:
    """Of every comparison that holds in a record the 95% interval is on one side of the null, or
    within the range.
    """
    figures = records.record(claim.id).figures  # type: ignore[union-attr]
    for form in (form for entry in claim.rule["statements"] for form in forms(entry)):
        if claim.kind == "measured" and rules._one(form, figures).outcome == "holds":
            ends = {
                "range": form.get("range", ())[1:],
                "more": (min(form.get("by", 0), 0), None),
                "equal": (0, 0),
                "same": (-form.get("margin", 0), form.get("margin", 0)),
            }
            (name,) = ends.keys() & form.keys()
            least, most = ends[name]
            found = rules._value(figures, form[name][0] if name == "range" else form[name])
            low, high = found.interval or (-np.inf, np.inf)
            assert (least is None or least <= low) and (most is None or high <= most), form


SEEDS: dict[str, list[float]] = {
    "a": [0.5, 0.6, 0.7],
    "b": [0.4, 0.5, 0.6],
    "c": [0.1, 0.9, 0.5],
    "one": [1, 1, 1],
}
FIGURES = {name: figure(values) for name, values in SEEDS.items()}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("holds", {"more": ["a", "b"]}),  # by 0.1 with every seed
    ("opposite", {"more": ["b", "a"]}),
    ("not shown", {"more": ["a", "c"]}),
    ("not shown", {"more": ["a", "b"], "by": 0.11}),
    ("holds", {"more": ["b", "a"], "by": -0.11}),
    ("opposite", {"more": ["b", "a"], "by": -0.05}),
    ("holds", {"more": [["a", "b"], 0.05]}),
    ("holds", {"more": [{"log": {"of": ["a", "b"]}}, 0]}),
    ("holds", {"more": [{"highest": ["b", "a"]}, "b"]}),
    ("holds", {"same": ["a", "b"], "margin": 0.2}),
    ("opposite", {"same": ["a", "b"], "margin": 0.05}),
    ("not shown", {"same": ["a", "c"], "margin": 0.2}),
    ("holds", {"range": ["b", 0.2, None]}),
    ("not shown", {"range": ["b", 0.4, None]}),  # with every seed; not with the interval
    ("opposite", {"range": ["b", 0.8, 0.9]}),
    ("holds", {"equal": ["one", 1]}),
    ("opposite", {"equal": ["a", 1]}),
    ("holds", {"for": {"x": ["a", "one"]}, "more": ["{x}", "b"]}),
    ("not shown", {"for": {"x": ["a", "c"]}, "more": ["{x}", "b"]}),
    ("holds", {"for": {"x": ["a", "c"]}, "more": ["{x}", "b"], "need": 1}),
    ("not tested", {"more": ["a", "b"], "given": {"more": ["b", "a"]}}),
    (
        "holds",
        {"parts": [{"more": ["a", "b"]}, {"more": ["b", "a"], "given": {"more": ["c", 0.5]}}]},
    ),
    (
        "not tested",
        {
            "parts": [{"more": ["a", "b"]}, {"more": ["a", "b"], "given": {"more": ["c", 0.5]}}],
            "need": 2,
        },
    ),
    ("not tested", {"for": {"x": ["a", "b"]}, "more": ["{x}", 0], "given": {"more": ["{x}", 0.7]}}),
    (
        "holds",
        {
            "for": {"x": ["a"]},
            "more": ["{x}", 0],
            "given": {"for": {"x": ["one"]}, "more": ["{x}", "a"]},
        },
    ),
    ("not tested", {"untested": "why"}),
    ("not tested", {"more": ["a", "nothing"]}),
]


@pytest.mark.parametrize(("outcome", "entry"), CASES)
def test_what_becomes_of_a_statement(outcome: str, entry: dict[str, Any]) -> None:
    assert (
        rules.judge({"statements": [{"says": "so", **entry}]}, FIGURES).statements[0].outcome
        == outcome
    )


def verdict(*statements: dict[str, Any], controls: tuple[dict[str, Any], ...] = ()) -> str:
    return rules.judge(
        {"statements": [{"says": "so", **s} for s in statements], "controls": controls}, FIGURES
    ).verdict


def test_the_five_words() -> None:
    yes, no, contrary = {"more": ["a", "b"]}, {"more": ["a", "c"]}, {"more": ["b", "a"]}
    assert verdict(yes) == verdict(yes, {**no, "exploratory": True}) == "reproduced"
    assert (
        verdict(yes, no) == verdict(yes, contrary) == verdict(yes, {"untested": "why"}) == "partly"
    )
    assert (
        verdict(no)
        == verdict(no, {**yes, "side": True})
        == verdict(no, {**yes, "exploratory": True})
        == "no difference"
    )
    assert verdict(no, contrary) == "opposite"
    assert (
        verdict({"untested": "why"})
        == verdict(yes, controls=({"says": "off the floor", **no},))
        == "not tested"
    )


def test_a_live_run_is_told_by_the_rule_of_the_record() -> None:
    """One run decides nothing, and says which way its figures point."""
    said = records.live("gelu-converges", {"held-out loss/GELU": 3.0, "held-out loss/ReLU": 3.2})
    assert "this run: 1 of 1" in said and "yes after the same steps" in said and "(+0.200)" in said
    assert "0 of 1" in records.live(
        "gelu-converges", {"held-out loss/GELU": 3.2, "held-out loss/ReLU": 3.0}
    )
    assert "0 of 0" in records.live("gelu-converges", {"held-out loss/GELU": 3.2})


def test_a_rule_that_is_none_is_refused() -> None:
    for rule in (
        {},
        {"statements": []},
        {"statements": [{"says": "no form"}]},
        {"statements": [{"more": ["a", "b"]}]},
        {"statements": [{"says": "", "more": ["a", "b"], "bye": 1}]},
    ):
        with pytest.raises(CourseError, match="ledger"):
            rules.check(rule, "ledger")
