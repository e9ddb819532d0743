"""Plain text: books, WikiText, CNN's stories."""

import re
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path

from course_lib.data.readers.base import Columns, Placed, read_lines, wrong
from course_lib.errors import CourseError

PIECE = 4_000_000  # characters; a longer text becomes several documents, so that no file has to fit into memory
ARTICLE = re.compile(r"^ ?= [^=](.*[^=])? = ?$")  # WikiText: one "=" is an article's title, more are its sections
START, END = re.compile(r"^\*\*\* ?START OF"), re.compile(r"^\*\*\* ?END OF")
HIGHLIGHT = "@highlight"


def read_text(path: Path, columns: Columns | None = None) -> Iterator[Placed]:
    """Rows `text`: WikiText's articles if the file has their headings, else the whole file is one document.

    A text of more than four million characters is cut at blank lines into several. The licence around a Project
    Gutenberg book is left out.
    """
    body: list[str] = []
    begun, size, any_text = 1, 0, False
    for (number, line), (_, following) in pairwise(chain(read_lines(path), [(0, "")])):
        if START.match(line):
            body, size = [], 0
            continue
        if END.match(line):
            break
        # WikiText sets a title between two blank lines; a formula between text lines is none.
        title = ARTICLE.match(line) and not following.strip() and not (body and body[-1].strip())
        if title or (size > PIECE and not line.strip()):
            if text := "\n".join(body).strip():
                any_text = True
                yield f"line {begun}", {"text": text}
            body, begun, size = [], number, 0
        body.append(line)
        size += len(line) + 1
    if text := "\n".join(body).strip():
        yield f"line {begun}", {"text": text}
    elif not any_text:
        raise CourseError(f"{path} holds no text beside its licence.")


def read_story(path: Path, columns: Columns | None = None) -> Iterator[Placed]:
    """One row `text, target`: an article of the CNN / Daily Mail stories and its highlights, a sentence a line.

    Raises:
        CourseError: no article, no highlight, or a highlight without words.
    """
    article: list[str] = []
    highlights: list[str] = []
    waiting = 0  # the line of a mark whose sentence has not come yet
    for number, line in read_lines(path):
        line = line.strip()
        if line == HIGHLIGHT:
            if waiting:
                break
            waiting = number
        elif line and waiting:
            highlights.append(line)
            waiting = 0
        elif line and highlights:
            raise wrong(path, f"line {number}", f"text after the highlights; each begins with a line {HIGHLIGHT}.")
        elif line:
            article.append(line)
    if waiting:
        raise wrong(path, f"line {waiting}", f"no sentence follows {HIGHLIGHT}.")
    if not article or not highlights:
        lacks = "article before its highlights" if highlights else f"line {HIGHLIGHT} with a summary after it"
        raise CourseError(f"{path} has no {lacks}; is it a .story file of CNN or Daily Mail?")
    yield "line 1", {"text": "\n".join(article), "target": "\n".join(highlights)}
