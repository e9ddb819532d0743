"""What every deck must have, as rules that can be tested: words for the speaker, answers a step later, pictures."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from nbformat import NotebookNode

from tools.notebooks import anatomy
from tools.slides.deck import MINUTES, Slide, parts, slides

LECTURE = 90  # minutes
FEWEST, MOST = 35, 56  # slides
WORDS = 80  # on one slide, code and tables not counted
SPOKEN = 20  # words of notes at least
QUESTIONS = 8
TAGS = {"remove_input", "left", "right", "dense", "words", "loose", "timing"}

Rule = Callable[[NotebookNode], Iterator[str]]


def problems(notebook: NotebookNode, rules: tuple[Rule, ...] | None = None) -> list[str]:
    """Everything that is wrong with a deck, one line each; empty for a good one."""
    return [line for rule in rules or RULES for line in rule(notebook)]


def opening_and_end(notebook: NotebookNode) -> Iterator[str]:
    """A title slide and an agenda first; the claims, what to remember and where to read on last."""
    deck = slides(notebook)
    if deck[0].level != 1 or not notebook.metadata.get("title"):
        yield "the first slide is not a title (# ...), or the notebook's metadata has no title"
    if not FEWEST <= len(deck) <= MOST:
        yield f"there are {len(deck)} slides; {FEWEST} to {MOST} fit a lecture"
    titles = [slide.title.lower() for slide in deck]
    for wanted in ("agenda", "claims", "what to remember", "read on"):
        if not any(wanted in title for title in titles):
            yield f"no slide's heading says {wanted!r}"
    names = [slide.name for slide in deck]
    if len(set(names)) < len(names):
        yield "two slides have the same cell id"


def spoken(notebook: NotebookNode) -> Iterator[str]:
    """Every slide has minutes and words for the speaker; they make one lecture, as the agenda says."""
    deck = slides(notebook)
    for slide in deck:
        if not MINUTES.match(slide.notes):
            yield f"{slide.name}: the notes do not begin with minutes such as **2 min**"
        elif len(slide.notes.split()) < SPOKEN and slide.level == 2:
            yield f"{slide.name}: the notes have {len(slide.notes.split())} words, fewer than {SPOKEN}"
        if "$" in slide.notes:
            yield f"{slide.name}: a formula in the notes; the speaker's window cannot draw it"
    if (total := sum(slide.minutes for slide in deck)) != LECTURE:
        yield f"the notes plan {total:g} minutes, not {LECTURE}"
    agenda = next((slide for slide in deck if "agenda" in slide.title.lower()), deck[0])
    said = " ".join(piece.cell.source for piece in agenda.pieces)
    for part, minutes in parts(deck).items():
        if not re.search(rf"\|\s*\**{re.escape(part)}\**\s*\|[^\n]*\|\s*{minutes:g}\s*\|", said):
            yield f"the agenda does not give {part!r} its {minutes:g} minutes"


def questions(notebook: NotebookNode) -> Iterator[str]:
    """A question for the class stands there at once; what answers it comes a step later."""
    count = 0
    for slide in slides(notebook):
        asked = [p.step for p in slide.pieces if re.search(r"^> \*\*Question", p.text, re.M)]
        told = [p.step for p in slide.pieces if re.search(r"^> \*\*Answer", p.text, re.M)]
        count += len(asked)
        if len(asked) != len(told) or not all(q < a for q, a in zip(asked, told, strict=False)):
            yield f"{slide.name}: {len(asked)} question(s) and {len(told)} answer(s), each a step after its question"
    if count < QUESTIONS:
        yield f"there are {count} questions for the class, fewer than {QUESTIONS}"


def sparse(notebook: NotebookNode) -> Iterator[str]:
    """No wall of text."""
    for slide in slides(notebook):
        if (count := words(slide)) > WORDS:
            yield f"{slide.name}: {count} words, more than {WORDS}"


def words(slide: Slide) -> int:
    """Words of running text on a slide: no tables, formulas or code."""
    count = len(slide.title.split())
    for piece in slide.pieces:
        text = re.sub(r"\$\$.*?\$\$|\$[^$]*\$|`[^`]*`", " ", piece.text, flags=re.DOTALL)
        text = "\n".join(line for line in text.splitlines() if not line.startswith("|"))
        count += len(re.findall(r"\w[\w'’-]*", text))
    return count


def tags(notebook: NotebookNode) -> Iterator[str]:
    """Only tags that mean something here."""
    for number, cell in enumerate(notebook.cells):
        if unknown := set(cell.metadata.get("tags", [])) - TAGS:
            yield f"cell {number} has unknown tags {sorted(unknown)}"


def executed(notebook: NotebookNode) -> Iterator[str]:
    """As for lessons: every code cell ran once, in order, without an error or a warning."""
    for line in anatomy.executed(notebook):
        if "unknown tags" not in line:
            yield line


RULES: tuple[Rule, ...] = (
    opening_and_end, spoken, questions, sparse, tags, executed, anatomy.pictures, anatomy.stands_alone,
)  # fmt: skip
