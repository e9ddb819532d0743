"""The papers of the lessons: read from their `Read on` cells, listed with a line on each in
docs/papers.md.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Any

from nbformat import NotebookNode

from classroom import course
from course_lib.files import atomic_write, read_json
from tools.notebooks import ROOT

PAGE = ROOT / "docs" / "papers.md"
LIST = ROOT / "data" / "bibliography.json"
TIMELINE = ROOT / "data" / "timeline.json"
_ITEM = re.compile(r"^[*-] (.*)$", re.MULTILINE)
_SLANTED = re.compile(r"(?<!\*)\*([^*]+)\*(?!\*)")
_WHERE = re.compile(r"(?: \([^)]*\))?,? *(?P<venue>[^.:;*()]*?)\b(?P<year>(?:19|20)\d\d)\b[.,:)]*")
# two citations of one item
_BETWEEN = re.compile(r"; |\. (?=[A-Z])|, and (?=[A-Z][\w-]+(?:, [A-Z]| et al))")


@dataclass(frozen=True)
class Paper:
    """One paper. `says`: what it is, in a line."""

    authors: str
    title: str
    venue: str
    year: int
    says: str

    @property
    def first(self) -> str:
        """The first author's last name."""
        return re.split(r",| et al\.| and ", self.authors)[0].strip()

    def same(self, other: Paper) -> bool:
        """Whether both mean one paper: first author, year, and title, of which one may be cut
        short.
        """
        a, b = _letters(self.title), _letters(other.title)
        return (self.first, self.year) == (other.first, other.year) and (
            a.startswith(b) or b.startswith(a)
        )


def read_on(notebook: NotebookNode) -> list[Paper]:
    """The papers that a lesson's `Read on` names, in its order."""
    found: list[Paper] = []
    for item in _items(notebook):
        end = 0
        for title in _SLANTED.finditer(item):
            where = _WHERE.match(item, title.end())
            authors = (
                _BETWEEN.split(item[end : title.start()])[-1].strip(" ,:").removeprefix("and ")
            )
            if where and authors:
                end = where.end()
                says = re.split(r";| \*", item[end:])[0].strip()
                found.append(
                    Paper(authors, title[1], where["venue"].strip(" ,"), int(where["year"]), says)
                )
    return found


def unread(notebook: NotebookNode) -> list[str]:
    """What looks like a title in `Read on`, three or more words in italics, and is none that
    `read_on` understands.
    """
    known = {paper.title for paper in read_on(notebook)}
    slanted = [text for item in _items(notebook) for text in _SLANTED.findall(item)]
    return [text for text in slanted if len(text.split()) >= 3 and text not in known]


def _items(notebook: NotebookNode) -> list[str]:
    cells = [
        c.source for c in notebook.cells if c.cell_type == "markdown" and "## Read on" in c.source
    ]
    return [item for source in cells for item in _ITEM.findall(source.partition("## Read on")[2])]


def listed() -> list[Paper]:
    """The list, as data/bibliography.json has it."""
    return [Paper(**row) for row in read_json(LIST)["papers"]]


def figures() -> dict[str, list[str]]:
    """What the lessons' papers.json and the timeline say of their sources: every string that names
    a year, by lesson.
    """
    tables = {name: course.papers(name) for name in course.names()}
    tables["timeline"] = read_json(TIMELINE)
    return {
        name: [text for text in _sources(table) if re.search(r"\b(?:19|20)\d\d\b", text)]
        for name, table in tables.items()
    }


def behind(text: str, papers: list[Paper]) -> list[Paper]:
    """The papers that a source names, by first author and year ("Devlin et al. 2019,
    table 4").
    """
    found = [
        p for p in papers if re.search(rf"\b{re.escape(p.first)}\b", text) and str(p.year) in text
    ]
    titled = [p for p in found if re.split(r"[:?]", p.title)[0].casefold() in text.casefold()]
    return titled or found


def add(new: list[Paper]) -> list[Paper]:
    """Add papers that the list lacks; returns them."""
    known = listed()
    missing: list[Paper] = []
    for paper in new:
        if not any(paper.same(other) for other in [*known, *missing]):
            missing.append(paper)
    if missing:
        rows = sorted([*known, *missing], key=lambda p: (p.year, p.authors, p.title))
        about = json.dumps(read_json(LIST)["about"], ensure_ascii=False)
        lines = ",\n".join("  " + json.dumps(asdict(row), ensure_ascii=False) for row in rows)
        with atomic_write(LIST) as file:
            file.write(f'{{\n "about": {about},\n "papers": [\n{lines}\n ]\n}}\n')
    return missing


def markdown(lessons: dict[str, NotebookNode]) -> str:
    """docs/papers.md: by year, each with the lessons that lead to it."""
    papers = listed()
    cited = {name: read_on(notebook) for name, notebook in lessons.items()}
    shown = {
        name: [p for text in texts for p in behind(text, papers)]
        for name, texts in figures().items()
    }
    lines = [
        "# The papers",
        "",
        (
            "Every paper that a lesson leads to or takes figures from, by year, with a line on what"
            " it is. The figures themselves are in the lessons' folders, `papers.json`. Written by"
            " `python -m tools.course` from `data/bibliography.json` and the lessons' *Read on*."
        ),
    ]
    for year in sorted({paper.year for paper in papers}):
        lines += ["", f"## {year}", ""]
        for paper in [p for p in papers if p.year == year]:
            names = [
                n
                for n in lessons
                if any(paper.same(c) for c in cited[n]) or paper in shown.get(n, [])
            ]
            places = (
                ", ".join(f"[{name[:2]}](../notebooks/{name}.ipynb)" for name in names)
                or "the timeline in 00"
            )
            lines.append(
                f"* {paper.authors}: *{paper.title}*, {paper.venue} {year}. {paper.says} ({places})"
            )
    return "\n".join(lines) + "\n"


def _letters(title: str) -> str:
    return re.sub(r"\W+", "", title).casefold()


def _sources(value: Any) -> list[str]:
    if isinstance(value, list):
        return [text for item in value for text in _sources(item)]
    if not isinstance(value, dict):
        return []
    own = [value[key] for key in ("about", "source") if isinstance(value.get(key), str)]
    if isinstance(value.get("paper"), str):
        own.append(f"{value['paper']}, {value.get('venue', '')}")
    return own + [
        text for item in value.values() if isinstance(item, dict | list) for text in _sources(item)
    ]
