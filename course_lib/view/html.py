"""What every widget is made of: a white card, boxes for tokens, and a script that only adds to readable HTML.

A widget is complete HTML before its script runs. Where scripts are removed (GitHub, an untrusted notebook) or the
page is printed, everything can still be read; where they run, they hide, step and colour. No address is fetched.
"""

import re
from collections.abc import Collection, Iterable

from course_lib.view.display import escape, identity, inline_json
from course_lib.view.style import TINTS

FONT = "font-family:system-ui,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;font-size:15px;line-height:1.45"
QUIET = 'data-lm-suppress-shortcuts="true"'
MONO = "font-family:'DejaVu Sans Mono',Menlo,Consolas,monospace"
BUTTON = (
    "font:inherit;padding:4px 12px;border:1px solid #5f6368;border-radius:4px;"
    "background:#fff;color:#1b1b1b;cursor:pointer"
)


def card(kind: str, title: str, body: str, script: str = "", data: object = None) -> str:
    """A card with a heading, and a script that gets `root` (the card's element) and `data`.

    JupyterLab's shortcuts are off inside, so that arrow keys and letters reach the widget. It looks for the attribute
    at the focused element first, so each one that can have the focus carries it.
    """
    name = identity(kind, title, body, data)
    body = re.sub(r"<(button|input|select|summary)\b", rf"<\1 {QUIET}", body)
    style = (
        f"<style>[data-course={name}] :focus-visible{{outline:3px solid #0072B2;outline-offset:2px}}"
        f"[data-course={name}] button:disabled{{opacity:.4;cursor:default}}"
        f"@media print{{[data-course={name}] [hidden]{{display:revert!important}}"
        f"[data-course={name}] details::details-content{{content-visibility:visible;block-size:auto}}"
        f"[data-course={name}] .controls{{display:none!important}}}}</style>"
    )
    html = (
        f'{style}<div data-course="{name}" role="group" aria-label="{escape(title)}" {QUIET} '
        f'style="{FONT};background:#fff;color:#1b1b1b;border:1px solid #c8ccd0;border-radius:6px;'
        f'padding:12px 16px;margin:4px 0;max-width:60em;box-sizing:border-box">'
        f'<p style="margin:0 0 8px 0"><strong>{escape(title)}</strong></p>{body}</div>'
    )
    if script:
        html += (
            f"<script>document.querySelectorAll('[data-course={name}]').forEach(function(root){{"
            f"if(root.dataset.ready)return;root.dataset.ready='1';var data={inline_json(data)};"
            f"{minify(script)}}});</script>"
        )
    return html


def minify(script: str) -> str:
    """Strip indentation and line comments; the scripts here end every statement with a semicolon."""
    lines = (line.strip() for line in script.splitlines())
    return "".join(line for line in lines if line and not line.startswith("//"))


def box(text: str, tint: str = "plain", *, bold: bool = False) -> str:
    """One token in a box; `tint` is one of `style.TINTS`."""
    weight = "font-weight:700;" if bold else ""
    return (
        f'<span style="{MONO};{weight}display:inline-block;border:1px solid #9aa0a6;border-radius:3px;padding:2px 7px;'
        f'margin:2px;background:{TINTS[tint]};color:#1b1b1b">{escape(text)}</span>'
    )


def boxes(tokens: Iterable[tuple[str, str]]) -> str:
    """Tokens with their tints in a line that wraps; spaces between, so that it reads as text without styles too."""
    return '<div style="margin:4px 0">' + " ".join(box(text, tint) for text, tint in tokens) + "</div>"


def table(header: Iterable[str], rows: Iterable[Iterable[str]], *, text: Collection[int] = ()) -> str:
    """A plain table; cells are HTML already. The first column reads as row names.

    text: the numbers of further columns that are set to the left, as words are; the others to the right, as figures.
    """
    cell = "padding:4px 12px;border-bottom:1px solid #e0e3e6"
    header = list(header)
    align = ["left" if i == 0 or i in text else "right" for i in range(len(header))]
    head = "".join(
        f'<th scope="col" style="{cell};border-bottom:2px solid #5f6368;text-align:{side}">{name}</th>'
        for side, name in zip(align, header, strict=True)
    )
    body = ""
    for row in rows:
        first, *rest = row
        body += f'<tr><th scope="row" style="{cell};text-align:left;font-weight:600">{first}</th>'
        body += "".join(
            f'<td style="{cell};text-align:{side}">{value}</td>' for side, value in zip(align[1:], rest, strict=True)
        )
        body += "</tr>"
    return (
        f'<table style="{FONT};border-collapse:collapse;background:#fff;color:#1b1b1b">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )
