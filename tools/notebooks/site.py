"""The course as offline pages: lessons, glossary, papers and an index, linked with one another,
nothing fetched.
"""

from __future__ import annotations

import html
import os
import re
import shutil
from pathlib import Path
from typing import Any

import jinja2

from classroom import course
from classroom.figures.course_map import lesson_map
from classroom.figures.display import png
from course_lib.files import atomic_write
from tools.notebooks import ROOT, api, page, scrub
from tools.notebooks.build import read
from tools.notebooks.navigation import opening

# Pages of docs/ that the site has, and what its index says of each
DOCS = {
    "glossary": "each term in a sentence",
    "papers": "each with a line",
    "world": "the generated town",
    "evidence": "what our models show of the papers' results",
    "teaching": "for teachers, from the release to the grades",
}
_LINK = re.compile(r"""<a\b([^>]*?)\bhref=(["'])([^"']*)\2([^>]*)>(.*?)</a>""", re.DOTALL)
_OUTSIDE = re.compile(r"[a-z][a-z+.-]*:|//|#", re.IGNORECASE)

STYLE, _PAGE, _INDEX = (
    (Path(__file__).parent / name).read_text("utf-8")
    for name in ("bar.css", "site.html.j2", "index.html.j2")
)


def build(
    folder: Path,
    notebooks: dict[str, Path],
    entries: dict[str, dict[str, Any]] | None = None,
    given: dict[str, Any] | None = None,
    with_api: bool = False,
) -> Path:
    """Write all pages into a fresh `folder`; returns the index.

    Args:
        folder: what stands in it is replaced.
        notebooks: executed lessons by name.
        entries: what each took in a run, seconds and peak_mb.
        given: the run's parameters.
        with_api: write the library's API pages too, into `folder/api`. This takes half a minute.
    """
    new = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    pages = {f"notebooks/{name}.ipynb": f"{name}.html" for name in notebooks}
    pages |= {f"docs/{name}.md": f"{name}.html" for name in docs()}
    pages["README.md"] = "index.html"
    known = course.lessons()
    for name, path in notebooks.items():
        made = page.html(
            scrub.scrub(read(path)),
            f"{name[:2]} {known[name].title}" if name in known else name,
        )
        made = linked(made, "notebooks", pages).replace(
            "</head>", f"<style>{STYLE}</style></head>", 1
        )
        _write(new / f"{name}.html", re.sub(r"<body[^>]*>", lambda m: m[0] + bar(), made, count=1))
    for source, name in pages.items():
        if source.startswith("docs/"):
            text = (ROOT / source).read_text("utf-8")
            body = linked(page.markdown(text), "docs", pages)
            body = re.sub(
                r"<table>.*?</table>", r'<div class="wide">\g<0></div>', body, flags=re.DOTALL
            )
            _write(
                new / name,
                jinja2.Template(_PAGE).render(
                    title=doc_title(Path(source).stem), style=STYLE, bar=bar(), body=body
                ),
            )
    if with_api:
        api.build(new / "api")
    _write(new / "index.html", index(notebooks, entries or {}, given or {}, with_api))
    shutil.rmtree(folder, ignore_errors=True)
    new.rename(folder)
    return folder / "index.html"


def linked(made: str, where: str, pages: dict[str, str]) -> str:
    """The page with its links led to other pages; what is not among them becomes plain text.

    Args:
        where: the folder that the page's source stands in, from the repository's root; pages:
            source -> page.
    """

    def lead(match: re.Match[str]) -> str:
        before, _, address, after, text = match.groups()
        if _OUTSIDE.match(address):
            return match[0]
        place, mark, anchor = address.partition("#")
        target = pages.get(os.path.normpath(Path(where) / place).replace(os.sep, "/"))
        return f'<a{before}href="{target}{mark}{anchor}"{after}>{text}</a>' if target else text

    return _LINK.sub(lead, made)


def docs() -> list[str]:
    """The pages of docs/ that this copy of the course has."""
    return [name for name in DOCS if (ROOT / "docs" / f"{name}.md").exists()]


def doc_title(name: str) -> str:
    """The heading of a page of docs/."""
    return (ROOT / "docs" / f"{name}.md").read_text("utf-8").partition("\n")[0].lstrip("# ")


def bar() -> str:
    """The line on top of each page."""
    links = (("index", "All lessons"), ("glossary", "Glossary"), ("papers", "Papers"))
    return (
        '<nav class="course">'
        + " ".join(f'<a href="{to}.html">{text}</a>' for to, text in links)
        + "</nav>"
    )


def index(
    notebooks: dict[str, Path],
    entries: dict[str, dict[str, Any]],
    given: dict[str, Any],
    with_api: bool = False,
) -> str:
    """The first page: what the course is, the map, a table of lessons with what they took."""
    title, _, rest = (ROOT / "README.md").read_text("utf-8").partition("\n")
    rows = []
    for lesson in course.lessons().values():
        name, says = f"{lesson.number} {lesson.title}", "to come"
        if lesson.name in notebooks:
            name, says = opening(ROOT / "notebooks" / f"{lesson.name}.ipynb")
            says = re.sub(r"^<p>|</p>\s*$", "", page.markdown(says).strip())
        rows.append(
            (
                name,
                f"{lesson.name}.html" * (lesson.name in notebooks),
                says,
                entries.get(lesson.name),
            )
        )
    body = jinja2.Template(_INDEX).render(
        title=title.lstrip("# "),
        about=page.markdown(
            re.sub(r"\(docs/(\w+)\.md[^)]*", r"(\1.html", rest.strip().split("\n\n")[0])
        ),
        map=png(lesson_map(), 160),
        rows=rows,
        docs=[(f"{name}.html", doc_title(name), DOCS[name]) for name in docs()],
        measured=bool(entries),
        api=f"api/{api.FIRST}" if with_api else "",
        scale=f" at SCALE={given['SCALE']}, SEED={given['SEED']}" if given.get("SCALE") else "",
    )
    return str(
        jinja2.Template(_PAGE).render(
            title=html.escape(title.lstrip("# ")), style=STYLE, bar=bar(), body=body
        )
    )


def _write(path: Path, text: str) -> None:
    with atomic_write(path) as file:
        file.write(text)
