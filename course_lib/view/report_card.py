"""Every claim with its verdict on one card, filtered by two menus; complete without its script."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from course_lib.errors import CourseError
from course_lib.view.display import Html, escape
from course_lib.view.html import card, table

_TINTS = {"reproduced": "#d5eed9", "partly": "#fdf0c8", "not at this scale": "#f9dcd4", "not reproduced": "#f9dcd4"}

_SCRIPT = """
var picks = root.querySelectorAll('select'), rows = root.querySelectorAll('tbody tr');
function draw() {
var seen = 0;
rows.forEach(function(row, i) {
var ok = (!picks[0].value || data[i][0] === picks[0].value) && (!picks[1].value || data[i][1] === picks[1].value);
row.hidden = !ok;
if (ok) seen += 1;
});
root.querySelector('output').textContent = seen + ' of ' + rows.length;
}
picks.forEach(function(pick) { pick.addEventListener('input', draw); });
root.querySelector('.controls').hidden = false;
draw();
"""


@dataclass(frozen=True)
class ReportEntry:
    """One claim. verdict: the recorded one, empty where there is none; note: how it was found, or where it is shown
    instead. link: address of its section, empty where the lesson does not stand. paper: the lecture's figures."""

    claim: str
    lesson: str
    kind: str
    says: str
    verdict: str
    note: str
    paper: str = ""
    link: str = ""


def report_card(entries: Sequence[ReportEntry], title: str = "The claims' report card") -> Html:
    """All claims in a table, a row each; the menus choose a lesson and a verdict.

    Raises:
        CourseError: there are no entries.
    """
    if not entries:
        raise CourseError("report_card needs at least one claim; the list is empty.")
    open_ = "not recorded yet"
    verdicts = [entry.verdict or open_ for entry in entries]
    menus = "".join(
        f'<label style="margin-right:16px">{name} <select aria-label="{name}" style="font:inherit;padding:3px">'
        f"<option value=''>all</option>{''.join(f'<option>{escape(v)}</option>' for v in dict.fromkeys(values))}"
        "</select></label>"
        for name, values in (("lesson", [entry.lesson for entry in entries]), ("verdict", verdicts))
    )
    rows = [
        (
            f'<a href="{escape(entry.link)}">{escape(entry.claim)}</a>' if entry.link else escape(entry.claim),
            escape(entry.lesson[:2]),
            escape(entry.kind),
            escape(entry.says),
            f'<span style="background:{_TINTS.get(entry.verdict, "#eceff1")};padding:1px 6px;border-radius:3px">'
            f"<b>{escape(verdict)}</b></span> {escape(entry.note)}",
            escape(entry.paper),
        )
        for entry, verdict in zip(entries, verdicts, strict=True)
    ]
    counted = Counter(verdicts)
    told = ", ".join(f"{counted[verdict]} {verdict}" for verdict in (*_TINTS, open_) if counted[verdict])
    body = (
        f'<p style="margin:0 0 8px 0">{len(entries)} claims: {told}.</p><p class="controls" hidden>{menus}'
        'shown: <output aria-live="polite"></output></p>'
        '<div style="max-height:34em;overflow:auto" tabindex="0" role="region" aria-label="all claims">'
        f"{table(('claim', 'lesson', 'kind', 'the lecture', 'verdict', 'its figures'), rows, text=range(6))}</div>"
    )
    data = [[entry.lesson, verdict] for entry, verdict in zip(entries, verdicts, strict=True)]
    lines = [
        f"{entry.lesson[:2]} {entry.claim}: {verdict}{f' ({entry.note})' if entry.note else ''}"
        for entry, verdict in zip(entries, verdicts, strict=True)
    ]
    return Html(card("report", title, body, _SCRIPT, data), "\n".join([f"{title}. {told}.", *lines]))
