"""The course as offline pages: lessons, glossary, papers and an index, linked with one another, nothing fetched."""

from __future__ import annotations

import html
import os
import re
import shutil
from pathlib import Path
from typing import Any

from course_lib.files import atomic_write
from course_lib.view.course_map import lesson_map, planned
from course_lib.view.display import png
from tools.notebooks import ROOT, page, record, scrub
from tools.notebooks.build import read
from tools.readme import README, opening

DOCS = ("glossary", "papers", "world", "claims", "teaching")
_LINK = re.compile(r"""<a\b([^>]*?)\bhref=(["'])([^"']*)\2([^>]*)>(.*?)</a>""", re.DOTALL)
_OUTSIDE = re.compile(r"[a-z][a-z+.-]*:|//|#", re.IGNORECASE)

STYLE = """
nav.course { font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; max-width: 60rem;
  margin: 0 auto; padding: .6rem 1rem; border-bottom: 1px solid #c8ccd0; background: #fff; }
nav.course a { color: #00598a; text-decoration: underline; margin-right: 1em; }
@media print { nav.course { display: none; } }
"""
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 17px/1.55 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; color: #1b1b1b; background: #fff;
  margin: 0; overflow-wrap: break-word; }}
main {{ max-width: 52rem; margin: 0 auto; padding: 1rem; }}
h1, h2, h3 {{ line-height: 1.25; }}
a {{ color: #00598a; }}
img, svg {{ max-width: 100%; height: auto; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; }}
th, td {{ text-align: left; vertical-align: top; padding: .35rem .6rem .35rem 0; border-bottom: 1px solid #e6e8eb; }}
td.number, th.number {{ text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }}
pre {{ white-space: pre-wrap; background: #f1f3f4; padding: .6rem; }}
code {{ font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: .9em; }}
figure {{ margin: 1rem 0; }}
.quiet {{ color: #5f6368; }}
@media (max-width: 40rem) {{
  table.lessons, table.lessons tbody, table.lessons tr, table.lessons td {{ display: block; }}
  table.lessons thead {{ display: none; }}
  table.lessons tr {{ padding: .5rem 0; border-bottom: 1px solid #c8ccd0; }}
  table.lessons td {{ border: 0; padding: 0; }}
  table.lessons td.number {{ display: inline; text-align: left; margin-right: 1em; color: #5f6368; }}
}}
@media print {{ body {{ font-size: 11pt; }} tr, figure, li {{ break-inside: avoid; }} h2 {{ break-after: avoid; }} }}
{style}
</style>
</head>
<body>
{bar}
<main>
{body}
</main>
</body>
</html>
"""


def build(
    folder: Path, notebooks: dict[str, Path], entries: dict[str, dict[str, Any]], given: dict[str, Any] | None = None
) -> Path:
    """Write all pages into a fresh `folder`; returns the index.

    Args:
        notebooks: executed lessons by name; entries: what they took, where it is known; given: the run's parameters.
    """
    new = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    pages = {f"notebooks/{name}.ipynb": f"{name}.html" for name in notebooks}
    pages |= {f"docs/{name}.md": f"{name}.html" for name in DOCS if (ROOT / "docs" / f"{name}.md").exists()}
    pages["README.md"] = "index.html"
    for name, path in notebooks.items():
        made = page.html(scrub.scrub(read(path)), f"{name[:2]} {planned()[name].title}" if name in planned() else name)
        made = linked(made, "notebooks", pages).replace("</head>", f"<style>{STYLE}</style></head>", 1)
        _write(new / f"{name}.html", re.sub(r"<body[^>]*>", lambda m: m[0] + bar(), made, count=1))
    for source, name in pages.items():
        if source.startswith("docs/"):
            text = (ROOT / source).read_text("utf-8")
            body = linked(page.markdown(text), "docs", pages)
            body = re.sub(r"<table>.*?</table>", r'<div class="wide">\g<0></div>', body, flags=re.DOTALL)
            title = text.splitlines()[0].lstrip("# ")
            _write(new / name, PAGE.format(title=title, style=STYLE, bar=bar(), body=body))
    _write(new / "index.html", index(notebooks, entries, given or {}))
    shutil.rmtree(folder, ignore_errors=True)
    new.rename(folder)
    return folder / "index.html"


def linked(made: str, where: str, pages: dict[str, str]) -> str:
    """The page with its links led to other pages; what is not among them becomes plain text.

    Args:
        where: the folder that the page's source stands in, from the repository's root; pages: source -> page.
    """

    def lead(match: re.Match[str]) -> str:
        before, _, address, after, text = match.groups()
        if _OUTSIDE.match(address):
            return match[0]
        place, mark, anchor = address.partition("#")
        target = pages.get(os.path.normpath(Path(where) / place).replace(os.sep, "/"))
        return f'<a{before}href="{target}{mark}{anchor}"{after}>{text}</a>' if target else text

    return _LINK.sub(lead, made)


def bar() -> str:
    """The line on top of each page."""
    links = (("index", "All lessons"), ("glossary", "Glossary"), ("papers", "Papers"))
    return '<nav class="course">' + " ".join(f'<a href="{to}.html">{text}</a>' for to, text in links) + "</nav>"


def index(notebooks: dict[str, Path], entries: dict[str, dict[str, Any]], given: dict[str, Any]) -> str:
    """The first page: what the course is, the map, a table of lessons with what they took."""
    title, _, rest = README.read_text("utf-8").partition("\n")
    about = rest.strip().split("\n\n")[0].replace("\n", " ")
    rows = ""
    for lesson in planned().values():
        if lesson.name not in notebooks:
            name = f"{lesson.number} {html.escape(lesson.title)}"
            rows += f'<tr class="quiet"><td>{name}</td><td>to come</td><td></td><td></td></tr>\n'
            continue
        name, says = opening(ROOT / "notebooks" / f"{lesson.name}.ipynb")
        took = entries.get(lesson.name)
        time, memory = (f"{took['seconds']:.0f} s", f"{took['peak_mb'] / 1024:.1f} GB") if took else ("", "")
        says = re.sub(r"^<p>|</p>\s*$", "", page.markdown(says).strip())
        rows += f'<tr><td><a href="{lesson.name}.html">{html.escape(name)}</a></td><td>{says}</td>'
        rows += f'<td class="number">{time}</td><td class="number">{memory}</td></tr>\n'
    machines = "; ".join(sorted({record.machine(entry["hardware"]) for entry in entries.values()}))
    scale = f" at SCALE={given['SCALE']}, SEED={given['SEED']}" if given.get("SCALE") else ""
    measured = f"Time and memory as measured{scale} on {html.escape(machines)}." if machines else ""
    drawing = png(lesson_map(ready=list(notebooks)), 160)
    body = f"""<h1>{html.escape(title.lstrip("# "))}</h1>
<p>{html.escape(about)}</p>
<p>These pages need no network. Read them in any browser, or print them. To run and change a lesson, open it with
<code>make lab</code>.</p>
<h2>The way through the course</h2>
<figure><img src="data:image/png;base64,{drawing}" alt="A map of the lessons as boxes, with
 arrows from each lesson to those that build on it; the table below links to each of them."></figure>
<h2>The lessons</h2>
<table class="lessons"><thead><tr><th>lesson</th><th>what it is about</th><th class="number">time</th><th
 class="number">memory</th></tr></thead><tbody>
{rows}</tbody></table>
<p class="quiet">{measured}</p>
<h2>Beside the lessons</h2>
<ul><li><a href="glossary.html">Glossary</a>: each term in a sentence</li>
<li><a href="papers.html">Papers</a>: each with a line</li>
<li><a href="world.html">The generated town</a>, <a href="claims.html">the claims engine</a>,
<a href="teaching.html">teaching with the homework</a></li></ul>"""
    return PAGE.format(title=html.escape(title.lstrip("# ")), style=STYLE, bar=bar(), body=body)


def _write(path: Path, text: str) -> None:
    with atomic_write(path) as file:
        file.write(text)
