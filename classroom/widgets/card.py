"""What every widget is made of: a white card, readable HTML, and a script that only adds to it.

A widget is complete HTML before its script runs. Where scripts are removed (GitHub, an untrusted
notebook) or the page is printed, everything can still be read; where they run, they hide, step and
colour. No address is fetched.

The HTML is in assets/*.html (Jinja templates; every value is escaped that is not `Markup`), the
scripts in assets/*.js. The lines of both are stripped and joined, so every statement ends in a
semicolon."""

import functools
import hashlib
import json
import re
from typing import Any

import jinja2
from markupsafe import Markup

from classroom.figures import style, tables
from classroom.templates import asset, environment, escape, trusted

QUIET = 'data-lm-suppress-shortcuts="true"'
BUTTON = (
    "font:inherit;padding:4px 12px;border:1px solid #5f6368;border-radius:4px;"
    "background:#fff;color:#1b1b1b;cursor:pointer"
)


def card(
    kind: str,
    title: str,
    data: object = None,
    *,
    scripts: tuple[str, ...] | None = None,
    body: str = "",
    **values: Any,
) -> str:
    """A card with a heading, and a script that gets `root` (the card's element) and `data`.

    JupyterLab's shortcuts are off inside, so that arrow keys and letters reach the widget. It looks
    for the attribute at the focused element first, so each one that can have the focus carries it.

    kind: begins the card's name; its template and, if there is data, its script are called so too,
        where `body` and `scripts` do not say otherwise. values: what the template needs.
    """
    content = str(render(body or kind, title=title, **values))
    name = identity(kind, title, content, data)
    content = re.sub(r"<(button|input|select|summary)\b", rf"<\1 {QUIET}", content)
    if scripts is None:
        scripts = () if data is None else (kind,)
    written = trusted("".join(script(name) for name in scripts))
    inner = {"body": trusted(content), "data": trusted(inline_json(data)), "script": written}
    return str(render("card", name=name, title=title, **inner))


def render(template: str, **values: Any) -> Markup:
    """A template of assets/ filled in; values are escaped unless they are `Markup`."""
    return trusted(_templates().get_template(f"{template}.html").render(values))


def script(name: str) -> str:
    """A script of assets/ on one line, without comments."""
    lines = asset("classroom.widgets", f"{name}.js").splitlines()
    return "".join(line for line in lines if not line.startswith("//"))


def identity(kind: str, *content: object) -> str:
    """A name that depends on the content only, so a rebuilt notebook is byte-identical."""
    text = json.dumps(content, sort_keys=True, default=str)
    return f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def inline_json(value: object) -> str:
    """JSON that may stand inside a script element: it neither closes the element nor opens a
    comment in it.
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True)
    return text.replace("</", "<\\/").replace("<!--", "\\u003c!--")


@functools.cache
def _templates() -> jinja2.Environment:
    made = environment("classroom.widgets")
    colours = {
        name: getattr(style, name)
        for name in ("BLUE", "VERMILION", "GREY", "INK", "PALE", "PALETTE", "TINTS")
    }
    made.globals.update(
        colours,
        blue=style.blue,
        FONT=trusted(tables.FONT),
        MONO=trusted(tables.MONO),
        BUTTON=trusted(BUTTON),
        QUIET=trusted(QUIET),
        bar=lambda width, share: max(1, round(width * share)),
        boxes=lambda tokens: trusted(tables.boxes(tokens)),
        table=lambda *args, **kwargs: trusted(tables.html_table(*args, **kwargs)),
        code=_code,
    )
    return made


def _code(text: str) -> Markup:
    """Escape, and turn `backticks` into code."""
    parts = escape(text).split("`")
    code = f'<code style="{tables.MONO};font-size:14px;background:#f1f3f4;padding:0 3px">'
    return trusted(
        "".join(f"{code}{part}</code>" if i % 2 else part for i, part in enumerate(parts))
    )
