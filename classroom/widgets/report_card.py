"""Every claim with its verdict on one card, filtered by two menus; complete without its script."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from classroom.figures.display import Html
from classroom.records.figures import VERDICTS
from classroom.widgets.card import card

_TINTS = dict(zip(VERDICTS, ("#d5eed9", "#fdf0c8", "#e7e7ea", "#f9dcd4", "#dbe7f6"), strict=True))
_OPEN = "not recorded yet"


class ReportEntry(NamedTuple):
    """One claim. verdict: the recorded one, empty where there is none; note: what it rests on, or
    where it is shown instead. link: address of its section, empty where the lesson does not stand.
    paper: the paper's figures."""

    claim: str
    lesson: str
    kind: str
    says: str
    verdict: str
    note: str
    paper: str = ""
    link: str = ""


def report_card(entries: Sequence[ReportEntry], title: str = "The claims' report card") -> Html:
    """All claims in a table, a row each; the menus choose a lesson and a verdict."""
    shown = [(entry, entry.verdict or _OPEN) for entry in entries]
    data = [[entry.lesson, verdict] for entry, verdict in shown]
    lessons, verdicts = zip(*data, strict=True)
    counts = Counter(verdicts)
    counted = ", ".join(
        f"{counts[verdict]} {verdict}" for verdict in (*_TINTS, _OPEN) if counts[verdict]
    )
    menus = [("lesson", list(dict.fromkeys(lessons))), ("verdict", list(dict.fromkeys(verdicts)))]
    html = card("report", title, data, entries=shown, counted=counted, menus=menus, tints=_TINTS)
    told = [
        f"{e.lesson[:2]} {e.claim}: {verdict}{f' ({e.note})' if e.note else ''}"
        for e, verdict in shown
    ]
    return Html(html, "\n".join([f"{title}. {counted}.", *told]))
