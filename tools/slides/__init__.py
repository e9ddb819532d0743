"""Slide decks: notebooks in slides/ become one offline HTML file and one tagged PDF each, by `make
slides`.

The notebook is the only source. What a cell is on the slides stands in its metadata:

- `slideshow.slide_type`, which JupyterLab's property inspector edits: "slide" begins a slide (its
  first line is the heading, `# part` or `## slide`), "fragment" waits for the next step, "notes" is
  for the speaker and begins with the minutes (`**2 min**`), "skip" is not shown; a cell without one
  belongs to what stands before it.
- tags: `remove_input` hides the code; `left` and `right` put neighbours into two columns; `dense`
  sets a long table smaller and `large` a short one larger, `words` aligns a table's text to the
  left.
"""

from __future__ import annotations

from pathlib import Path

from tools import notebooks

ROOT = notebooks.ROOT
FOLDER = ROOT / "slides"


def decks() -> list[Path]:
    """All decks, in the order of the course."""
    return sorted(FOLDER.glob("[0-9]_*.ipynb"))


def find(name: str) -> Path:
    """The deck called "1_attention", "1" or by its path; CourseError names the decks there are."""
    return notebooks.find(name, decks, "deck")
