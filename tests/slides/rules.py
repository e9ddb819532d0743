"""What every deck must have, as rules that can be tested: words for the speaker, answers a step
later, pictures.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from nbformat import NotebookNode

from tests.notebooks import anatomy
from tools.slides.deck import MINUTES, parts, slides

TAGS = {"remove_input", "left", "right", "dense", "large", "words", "loose", "timing"}


def opening_and_end(notebook: NotebookNode) -> Iterator[str]:
    """A title slide and an agenda first; the claims, what to remember and where to read on last."""
    deck = slides(notebook)
    if deck[0].level != 1 or not notebook.metadata.get("title"):
        yield "the first slide is not a title (# ...), or the notebook's metadata has no title"
    titles = [slide.title.lower() for slide in deck]
    for wanted in ("agenda", "claims", "what to remember", "read on"):
        if not any(wanted in title for title in titles):
            yield f"no slide's heading says {wanted!r}"
    names = [slide.name for slide in deck]
    if len(set(names)) < len(names):
        yield "two slides have the same cell id"


def spoken(notebook: NotebookNode) -> Iterator[str]:
    """Every slide has minutes and words for the speaker; the agenda adds the minutes up."""
    deck = slides(notebook)
    for slide in deck:
        if not MINUTES.match(slide.notes):
            yield f"{slide.name}: the notes do not begin with minutes such as **2 min**"
        if "$" in slide.notes:
            yield f"{slide.name}: a formula in the notes; the speaker's window cannot draw it"
    agenda = next((slide for slide in deck if "agenda" in slide.title.lower()), deck[0])
    said = " ".join(piece.cell.source for piece in agenda.pieces)
    for part, minutes in parts(deck).items():
        if not re.search(rf"\|\s*\**{re.escape(part)}\**\s*\|[^\n]*\|\s*{minutes:g}\s*\|", said):
            yield f"the agenda does not give {part!r} its {minutes:g} minutes"


def questions(notebook: NotebookNode) -> Iterator[str]:
    """A question for the class stands there at once; what answers it comes a step later."""
    for slide in slides(notebook):
        asked = [p.step for p in slide.pieces if re.search(r"^> \*\*Question", p.text, re.M)]
        told = [p.step for p in slide.pieces if re.search(r"^> \*\*Answer", p.text, re.M)]
        if len(asked) != len(told) or not all(q < a for q, a in zip(asked, told, strict=False)):
            yield (
                f"{slide.name}: {len(asked)} question(s) and {len(told)} answer(s), each a step"
                " after its question"
            )


RULES: tuple[anatomy.Rule, ...] = (
    opening_and_end,
    spoken,
    questions,
    partial(anatomy.executed, tags=TAGS),
    anatomy.pictures,
    anatomy.stands_alone,
)
problems = partial(anatomy.problems, rules=RULES)


def contrast(*colours: str) -> float:
    """Of two colours "#rrggbb", as the accessibility guidelines reckon it: 1 to 21."""
    light = []
    for colour in colours:
        parts = [byte / 255 for byte in bytes.fromhex(colour[1:])]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        light.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(light) + 0.05) / (min(light) + 0.05)
