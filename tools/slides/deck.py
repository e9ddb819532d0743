"""A notebook read as slides: what stands on each, in which step it appears, what the speaker
says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from nbformat import NotebookNode

from course_lib.errors import CourseError

TYPES = ("slide", "fragment", "notes", "skip", "-")
MINUTES = re.compile(r"^\*\*(\d+(?:\.5)?) min\*\*")


@dataclass
class Piece:
    """One cell on a slide. step: 0 is there from the start, 1 appears first, and so on. place: "",
    left or right.
    """

    cell: NotebookNode
    step: int = 0
    place: str = ""

    @property
    def text(self) -> str:
        """Its Markdown: written in the cell, or shown by its code."""
        if self.cell.cell_type == "markdown":
            return str(self.cell.source)
        return "\n\n".join(
            o.get("data", {}).get("text/markdown", "") for o in self.cell.outputs
        ).strip()


@dataclass
class Slide:
    """A slide. level: 1 opens a part of the lecture, 2 is a slide in it. notes: Markdown, the
    minutes first.
    """

    name: str
    title: str
    level: int
    part: str = ""
    pieces: list[Piece] = field(default_factory=list)
    notes: str = ""

    @property
    def minutes(self) -> float:
        """What the notes plan for it; 0 where they say nothing."""
        found = MINUTES.match(self.notes)
        return float(found[1]) if found else 0.0

    def rows(self) -> list[list[Piece]]:
        """The pieces from top to bottom: one piece across the slide, or those of two columns."""
        result: list[list[Piece]] = []
        for piece in self.pieces:
            if piece.place and result and result[-1][0].place:
                result[-1].append(piece)
            else:
                result.append([piece])
        return result


def slides(notebook: NotebookNode) -> list[Slide]:
    """The notebook's slides.

    Raises:
        CourseError: a cell of an unknown type, or a slide without a heading.
    """
    result: list[Slide] = []
    kind, part = "skip", ""
    for number, cell in enumerate(notebook.cells):
        marked = cell.metadata.get("slideshow", {}).get("slide_type", "-") or "-"
        if marked not in TYPES:
            raise CourseError(
                f"Cell {number} has the slide type {marked!r}; it may have {', '.join(TYPES)}."
            )
        kind = marked if marked != "-" else kind
        if kind == "skip":
            continue
        if marked == "slide":
            slide = _opened(cell, number, part)
            part = slide.title if slide.level == 1 and result else slide.part
            slide.part = "" if slide.level == 1 else part
            result.append(slide)
            continue
        if not result:
            raise CourseError(
                f"Cell {number} stands before the first slide; give it the slide type skip."
            )
        if kind == "notes":
            result[-1].notes = f"{result[-1].notes}\n\n{cell.source}".strip()
            continue
        last = result[-1].pieces[-1].step if result[-1].pieces else 0
        place = next((tag for tag in ("left", "right") if tag in cell.metadata.get("tags", [])), "")
        result[-1].pieces.append(Piece(cell, last + (marked == "fragment"), place))
    return result


def parts(deck: list[Slide]) -> dict[str, float]:
    """Minutes of each part of the lecture; the title slide belongs to the first."""
    result: dict[str, float] = {}
    waiting = 0.0
    for slide in deck:
        name = slide.title if slide.level == 1 else slide.part
        if slide is deck[0] or not name:
            waiting += slide.minutes
            continue
        result[name] = result.get(name, 0.0) + slide.minutes + waiting
        waiting = 0.0
    return result


def _opened(cell: NotebookNode, number: int, part: str) -> Slide:
    """A slide from its first cell: the heading, and what stands below it."""
    first, _, rest = cell.source.partition("\n")
    heading = re.fullmatch(r"(##?) +(.+)", first)
    if cell.cell_type != "markdown" or heading is None:
        raise CourseError(
            f"Cell {number} begins a slide; its first line must be a heading, # or ##."
        )
    slide = Slide(str(cell.id), heading[2].strip(), len(heading[1]), part)
    if rest.strip():
        body = cell.copy()
        body["source"] = rest.strip()
        slide.pieces.append(Piece(body))
    return slide
