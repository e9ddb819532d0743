"""Records told: one sentence, a table beside the paper's, a report of all in the terminal, in Markdown and in HTML."""

from collections import Counter
from collections.abc import Mapping
from html import escape
from math import isclose
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib.claims.ledger import Claim, claim, read
from course_lib.claims.record import RESULTS, VERDICTS, Record, difference, record
from course_lib.errors import CourseError
from course_lib.files import atomic_write

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from course_lib.view.display import Html

NOT_YET = "not recorded yet"
COLOURS = {"reproduced": "green", "partly": "yellow", "not at this scale": "red"}


def summary(name: str, folder: str | Path = RESULTS) -> str:
    """One or two sentences on a claim: verdict, how it was found, the main figures.

    Raises:
        CourseError: no such claim.
    """
    found = record(name, folder)
    if found is None:
        return f"{name}: {NOT_YET}; `python -m course_lib claims run {name}` makes the record."
    return f"{name}: {found.verdict} ({basis(found)}). {found.why}"


def basis(found: Record) -> str:
    """What a verdict rests on."""
    if found.kind != "measured":
        return found.kind
    return f"{len(found.seeds)} seeds, mean and 95% interval"


def table(name: str, folder: str | Path = RESULTS) -> "pd.DataFrame":
    """The paper's figures beside ours, a row each.

    Columns: figure, paper, recorded (the mean), low, high (its 95% interval), seeds. A figure of the paper that we have
    no counterpart of, and the other way round, has a row with a gap. Systems and tasks have our own names: what carries
    the claim is who is ahead of whom.

    Raises:
        CourseError: no such claim.
    """
    import pandas as pd

    rows = [{"figure": f"paper: {key}", "paper": value} for key, value in flat(claim(name).paper)]
    found = record(name, folder)
    for key, figure in (found.figures if found else {}).items():
        low, high = figure.interval or (None, None)
        rows.append({"figure": key, "recorded": figure.mean, "low": low, "high": high, "seeds": len(figure.seeds)})
    return pd.DataFrame(rows, columns=["figure", "paper", "recorded", "low", "high", "seeds"])


def beside(
    name: str,
    rows: Mapping[str, str],
    paper: Mapping[str, Any] | None = None,
    *,
    scale: float = 1.0,
    digits: int = 2,
    folder: str | Path = RESULTS,
) -> "Html":
    """A lesson's table: chosen figures of a record, the paper's beside them; the summary's sentence if there is none.

    Args:
        rows: what a row is called -> the record's figure. paper: what a row is called -> the paper's figure.
        scale: factor on ours; 100 makes shares percent.

    Raises:
        CourseError: the record has no such figure.
    """
    from course_lib.view.display import Html
    from course_lib.view.tables import table as drawn

    found = record(name, folder)
    if found is None:
        return Html(f"<p>{escape(summary(name, folder))}</p>", summary(name, folder))
    lines = []
    for label, key in rows.items():
        ours = _as_shown(found, key, scale=scale)
        lines.append({name: label} | ({"paper": (paper or {}).get(label)} if paper else {}) | {"recorded": ours})
    return drawn(lines, digits=digits)


def recorded(
    name: str, key: str, minus: str = "", *, scale: float = 1.0, folder: str | Path = RESULTS
) -> float | tuple[float, float, float] | None:
    """A record's figure as a table shows it: (mean, low, high) of its 95% interval, one number where there is no
    interval, None where there is no record.

    Args:
        minus: a figure to subtract, seed by seed. scale: a factor; 100 makes shares percent.

    Raises:
        CourseError: the record has no such figure.
    """
    found = record(name, folder)
    return None if found is None else _as_shown(found, key, minus, scale)


def _as_shown(found: Record, key: str, minus: str = "", scale: float = 1.0) -> float | tuple[float, float, float]:
    absent = [each for each in (key, minus) if each and each not in found.figures]
    if absent:
        raise CourseError(f"The record of {found.id} has no figure {absent[0]!r}; it has {', '.join(found.figures)}.")
    figure = difference(found.figures[key], found.figures[minus]) if minus else found.figures[key]
    low, high = figure.interval or (figure.mean, figure.mean)
    return figure.mean * scale if isclose(low, high) else (figure.mean * scale, low * scale, high * scale)


def flat(paper: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """The lecture's figures, in whatever shape the ledger has them, as (name, value) pairs.

    >>> flat({"BERT": {"MNLI": 84.6, "span": [1, 2]}})
    [('BERT/MNLI', 84.6), ('BERT/span/1', 1), ('BERT/span/2', 2)]
    """
    if paper is None:
        return []
    if isinstance(paper, Mapping):
        pairs = [(str(key), value) for key, value in paper.items()]
    elif isinstance(paper, list):
        pairs = [(str(number), value) for number, value in enumerate(paper, start=1)]
    else:
        return [(prefix, paper)]
    return [item for key, value in pairs for item in flat(value, f"{prefix}/{key}" if prefix else key)]


def overview(folder: str | Path = RESULTS) -> list[tuple[Claim, Record | None]]:
    """Every claim of the ledger with its record."""
    return [(found, record(name, folder)) for name, found in read().items()]


def tally(rows: list[tuple[Claim, Record | None]]) -> str:
    """How many of which verdict.

    >>> tally([])
    '0 of 0 claims recorded'
    """
    counts: Counter[str] = Counter(found.verdict for _, found in rows if found)
    said = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
    return f"{sum(counts.values())} of {len(rows)} claims recorded" + (f": {said}" if said else "")


def rich_table(rows: list[tuple[Claim, Record | None]], *, why: bool = True) -> "Table":
    """For the terminal."""
    from rich.table import Table

    shown = Table("lesson", "claim", "kind", "verdict", "why" if why else "seeds")
    for entry, found in rows:
        verdict = "–" if found is None else f"[{COLOURS[found.verdict]}]{found.verdict}[/]"
        last = "" if found is None else found.why if why else str(len(found.seeds))
        shown.add_row(entry.lesson[:2], entry.id, entry.kind, verdict, last)
    return shown


def markdown(rows: list[tuple[Claim, Record | None]]) -> str:
    """A page on the records that there are: the claim, its rule, the verdict, the figures, what was tried."""
    parts = ["# The claims, tested", tally(rows) + "."]
    parts.append("| lesson | claim | kind | verdict |\n|---|---|---|---|\n" + "\n".join(
        f"| {entry.lesson[:2]} | {f'[{entry.id}](#{entry.id})' if found else entry.id} | {entry.kind} | "
        f"{found.verdict if found else '–'} |"
        for entry, found in rows
    ))  # fmt: skip
    for entry, found in rows:
        if found is not None:
            parts += _section(entry, found)
    return "\n\n".join(parts) + "\n"


def page(rows: list[tuple[Claim, Record | None]]) -> str:
    """The same as one HTML file that needs nothing else."""
    lines = "".join(
        f"<tr><td>{entry.lesson[:2]}<td>{f'<a href=#{entry.id}>{entry.id}</a>' if found else entry.id}"
        f"<td>{entry.kind}<td>{found.verdict if found else '–'}"
        for entry, found in rows
    )
    sections = "".join(_html(entry, found) for entry, found in rows if found)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>The claims, tested</title>'
        "<style>body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
        "table{border-collapse:collapse}td,th{padding:.15em .8em;text-align:left;border-bottom:1px solid #ccc}"
        "td.n{text-align:right;font-variant-numeric:tabular-nums}</style>"
        f"<h1>The claims, tested</h1><p>{tally(rows)}.</p>"
        f"<table><tr><th>lesson<th>claim<th>kind<th>verdict{lines}</table>{sections}</html>\n"
    )


def save(path: str | Path, folder: str | Path = RESULTS) -> Path:
    """Write the report: HTML if the name ends so, Markdown otherwise."""
    path, rows = Path(path), overview(folder)
    with atomic_write(path) as file:
        file.write(page(rows) if path.suffix in (".html", ".htm") else markdown(rows))
    return path


def _section(entry: Claim, found: Record) -> list[str]:
    lines = [
        f"## {entry.id}",
        f"*{entry.says}* (lesson {entry.lesson[:2]}, {basis(found)})",
        f"**{found.verdict}.** {found.why}",
        f"Rule, stated before the run: {found.rule}",
    ]
    figures = "\n".join(f"| {name} | {figure} |" for name, figure in found.figures.items())
    lines.append(f"| figure | ours |\n|---|---|\n{figures}")
    if entry.paper is not None:
        lines.append("The paper: " + "; ".join(f"{name} {value}" for name, value in flat(entry.paper)) + ".")
    if found.tried:
        lines.append("Tried, to find out why:\n\n" + "\n".join(f"- {text}" for text in found.tried))
    lines.append(f"Made {found.made}, {found.seconds:,.0f} s of one core ({found.hardware}).")
    return lines


def _html(entry: Claim, found: Record) -> str:
    figures = "".join(
        f'<tr><td>{escape(name)}<td class="n">{escape(str(figure))}' for name, figure in found.figures.items()
    )
    paper = "; ".join(f"{escape(name)} {escape(str(value))}" for name, value in flat(entry.paper))
    tried = "".join(f"<li>{escape(text)}" for text in found.tried)
    return (
        f'<h2 id="{entry.id}">{entry.id}</h2><p><i>{escape(entry.says)}</i> '
        f"(lesson {entry.lesson[:2]}, {basis(found)})<p><b>{found.verdict}.</b> {escape(found.why)}"
        f"<p>Rule, stated before the run: {escape(found.rule)}<table>{figures}</table>"
        + (f"<p>The paper: {paper}." if paper else "")
        + (f"<p>Tried, to find out why:<ul>{tried}</ul>" if tried else "")
        + f"<p>Made {found.made}, {found.seconds:,.0f} s of one core ({escape(found.hardware)})."
    )
