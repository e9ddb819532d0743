"""Tables that set three figures side by side: the paper's, this run's, the recorded many-seed result's."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from course_lib.errors import CourseError
from course_lib.view.display import Html, escape
from course_lib.view.html import table as html_table

VERDICTS = ("reproduced", "partly", "not at this scale")
NONE = "–"


@dataclass(frozen=True)
class Row:
    """One line of a results table. A figure that does not exist stays None and shows as a dash.

    recorded: a number, or (mean, lower, upper) of the 95% interval over seeds.
    """

    name: str
    paper: float | None = None
    here: float | None = None
    recorded: float | tuple[float, float, float] | None = None
    verdict: str = ""


def results_table(
    rows: Sequence[Row | Mapping[str, Any]], *, digits: int = 1, unit: str = "", name: str = "measure"
) -> Html:
    """The paper's figure, this run's, the recorded one's and the verdict in words; a column that nobody has a figure
    for is left out.

    Args:
        rows: `Row`s, or mappings with the same keys.
        unit: what the numbers are in, set in the header ("%", "perplexity").
        name: heading of the first column.
    """
    if not rows:
        raise CourseError("results_table needs at least one row; the list is empty.")
    known = set(Row.__dataclass_fields__)
    lines: list[list[str]] = []
    for row in rows:
        if isinstance(row, Mapping):
            if "name" not in row or set(row) - known:
                raise CourseError(
                    f"results_table: a row has the keys {sorted(row)}; it may have {sorted(known)}, name always."
                )
            row = Row(**row)
        lines.append(
            [
                row.name,
                _number(row.paper, digits),
                _number(row.here, digits),
                _number(row.recorded, digits),
                row.verdict,
            ]
        )
    suffix = f" ({unit})" if unit else ""
    header = [name, f"paper{suffix}", f"this run{suffix}", f"recorded{suffix}", "verdict"]
    used = [0, *(column for column in range(1, len(header)) if any(line[column] not in ("", NONE) for line in lines))]
    return _both([header[column] for column in used], [[line[column] for column in used] for line in lines])


def table(rows: Sequence[Mapping[str, Any]], *, digits: int = 3) -> Html:
    """Any small table: a mapping a row, the keys of the first row as header. Floats are rounded to `digits`."""
    if not rows:
        raise CourseError("table needs at least one row; the list is empty.")
    header = list(rows[0])
    lines = [[_number(row.get(key), digits) for key in header] for row in rows]
    return _both(header, lines)


def _both(header: Sequence[str], lines: Sequence[Sequence[str]]) -> Html:
    words = {0} | {i for i in range(1, len(header)) if not _figures([line[i] for line in lines])}
    widths = [max(len(header[i]), *(len(line[i]) for line in lines)) for i in range(len(header))]
    text = "\n".join(
        "  ".join(
            cell.ljust(width) if i in words else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in [header, *lines]
    )
    rows = [[escape(cell) for cell in line] for line in lines]
    html = html_table([escape(h) for h in header], rows, text=words)
    return Html(f'<div style="overflow-x:auto">{html}</div>', text)


def _figures(column: Sequence[str]) -> bool:
    """True where most of what a column says begins with a number, signs and brackets aside."""
    said = [cell for cell in column if cell not in ("", NONE)]
    return 2 * sum(bool(re.match(r"\W*\d", cell)) for cell in said) >= len(said)


def _number(value: Any, digits: int) -> str:
    if value is None:
        return NONE
    if isinstance(value, tuple):
        mean, low, high = value
        return f"{mean:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)
