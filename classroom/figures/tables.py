"""Tables: any rows, the paper's figures beside this run's and the recorded ones; and boxes for
tokens, as HTML.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from classroom.figures.display import Html
from classroom.figures.style import TINTS
from classroom.templates import escape

FONT = (
    "font-family:system-ui,'Segoe UI',Roboto,'DejaVu"
    " Sans',sans-serif;font-size:15px;line-height:1.45"
)
MONO = "font-family:'DejaVu Sans Mono',Menlo,Consolas,monospace"
NONE = "–"


def table(rows: Sequence[Mapping[str, Any]], *, digits: int = 3) -> Html:
    """Any small table: a mapping a row, the keys of the first row as header. Floats are rounded to
    `digits`.
    """
    header = list(rows[0])
    lines = [[_number(row.get(key), digits) for key in header] for row in rows]
    columns = list(zip(*lines, strict=True))
    words = {i for i, column in enumerate(columns) if i == 0 or not _figures(column)}
    widths = [max(map(len, (name, *column))) for name, column in zip(header, columns, strict=True)]
    text = "\n".join(
        "  ".join(
            f"{cell:{'<' if i in words else '>'}{widths[i]}}" for i, cell in enumerate(line)
        ).rstrip()
        for line in [header, *lines]
    )
    html = html_table(
        [escape(h) for h in header], [map(_whole, line) for line in lines], text=words
    )
    return Html(f'<div style="overflow-x:auto">{html}</div>', text)


def _whole(cell: str) -> str:
    """The cell as HTML, its intervals not to be broken at the comma."""
    return re.sub(r"(\[[-\d.]+,) ", "\\1\u00a0", escape(cell))


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


def box(text: str, tint: str = "plain") -> str:
    """One token in a box; `tint` is one of `style.TINTS`."""
    return (
        f'<span style="{MONO};display:inline-block;border:1px solid'
        " #9aa0a6;border-radius:3px;padding:2px"
        f' 7px;margin:2px;background:{TINTS[tint]};color:#1b1b1b">{escape(text)}</span>'
    )


def boxes(tokens: Iterable[tuple[str, str]]) -> str:
    """Tokens with their tints in a line that wraps; spaces between, so that it reads as text
    without styles too.
    """
    return (
        '<div style="margin:4px 0">' + " ".join(box(text, tint) for text, tint in tokens) + "</div>"
    )


def html_table(
    header: Iterable[str], rows: Iterable[Iterable[str]], *, text: Collection[int] = ()
) -> str:
    """A plain table; cells are HTML already. The first column reads as row names.

    text: the numbers of further columns that are set to the left, as words are; the others to the
    right, as figures."""
    cell = "padding:4px 12px;border-bottom:1px solid #9aa0a666"
    header = list(header)
    align = ["left" if i == 0 or i in text else "right" for i in range(len(header))]
    head = "".join(
        f'<th scope="col" style="{cell};border-bottom:2px solid'
        f' #5f6368;text-align:{side}">{name}</th>'
        for side, name in zip(align, header, strict=True)
    )
    body = ""
    for first, *rest in rows:
        cells = [
            f'<td style="{cell};text-align:{side}">{value}</td>'
            for side, value in zip(align[1:], rest, strict=True)
        ]
        body += (
            '<tr><th scope="row"'
            f' style="{cell};text-align:left;font-weight:600">{first}</th>{"".join(cells)}</tr>'
        )
    return (
        "<table"
        f' style="{FONT};border-collapse:collapse"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )
