"""Read plain text: books, WikiText, stories with highlights, and translations line by line.

A reader turns a file into pairs (location, record). The location, such as "line 3", is for
messages; the record is a dict with the file's own column names:

    next(read_text(Path("moby-dick.txt")))     ("line 1", {"text": "Call me Ishmael. ..."})
    next(read_parallel(Path("train")))         ("line 1", {"de": "Ein Hund.", "en": "A dog."})
"""

import re
from collections.abc import Iterator
from itertools import chain, pairwise, zip_longest
from pathlib import Path

from course_lib.data.columns import ColumnMap, Located
from course_lib.data.lines import read_lines, unpacked, wrong
from course_lib.errors import CourseError

# Characters. A longer text becomes several documents, so that no file has to fit into memory.
MAX_DOCUMENT = 4_000_000
# In WikiText a line with one "=" on each side is an article's title; more mark its sections.
ARTICLE = re.compile(r"^ ?= [^=](.*[^=])? = ?$")
# Project Gutenberg puts these lines around the text of a book.
START = re.compile(r"^\*\*\* ?START OF")
END = re.compile(r"^\*\*\* ?END OF")
# A language's code at the end of a file name, such as de or pt_BR.
LANGUAGE = re.compile(r"[a-z]{2,3}(_[A-Z]{2})?")


def read_text(path: Path, user_map: ColumnMap | None = None) -> Iterator[Located]:
    """Read the documents of a text file, each in the column `text`.

    A file is one document, but in WikiText (Wikipedia in one file) each article is. The licence
    around a book of Project Gutenberg is left out. A document of more than `MAX_DOCUMENT`
    characters is cut at the next blank line.
    """
    body: list[str] = []  # the document's lines so far
    begun = 1  # the number of its first line
    size = 0  # its characters
    for (number, line), (_, following) in pairwise(chain(read_lines(path), [(0, "")])):
        if START.match(line):
            body = []
            size = 0
            continue
        if END.match(line):
            break
        # A title of WikiText has a blank line before and after it, so a formula "= x =" is none.
        title = ARTICLE.match(line) and not following.strip() and not (body and body[-1].strip())
        if title or (size > MAX_DOCUMENT and not line.strip()):
            yield f"line {begun}", {"text": "\n".join(body).strip()}
            body = []
            begun = number
            size = 0
        body.append(line)
        size += len(line) + 1  # with its line break
    yield f"line {begun}", {"text": "\n".join(body).strip()}


def read_story(path: Path, user_map: ColumnMap | None = None) -> Iterator[Located]:
    """Read a story of CNN / Daily Mail: `text` is the article, `target` its summary.

    The summary is the lines after the lines "@highlight".
    """
    lines = [line.strip() for _, line in read_lines(path) if line.strip()]
    article, *highlights = [part.strip() for part in "\n".join(lines).split("@highlight")]
    if not article or not highlights or not all(highlights):
        raise CourseError(
            f"{path} is no story: an article, then lines @highlight, each with a sentence after it."
        )
    yield "line 1", {"text": article, "target": "\n".join(highlights)}


def read_parallel(path: Path, user_map: ColumnMap | None = None) -> Iterator[Located]:
    """Read files that are translations of each other, line by line, one column for each language.

    Args:
        path: the common start of their names: "train" for train.en.gz and train.de.
        user_map: what the user says about the columns: text=en,target=fr chooses two of three
            languages.

    Raises:
        CourseError: a line has a translation but no text, or the other way round.
    """
    files = languages(path)
    chosen = set(user_map.columns.values()) if user_map else set()
    if chosen and chosen <= files.keys():
        files = {language: file for language, file in files.items() if language in chosen}
    # If one file is shorter than the others, zip_longest gives None for its missing lines.
    for lines in zip_longest(*(read_lines(file) for file in files.values())):
        number = next(line[0] for line in lines if line)
        texts = {
            language: line[1].strip() if line else None
            for language, line in zip(files, lines, strict=True)
        }
        if not any(texts.values()):
            continue  # a blank line in every language
        if not all(texts.values()):
            short = next(files[language] for language, text in texts.items() if not text)
            raise wrong(
                short, f"line {number}", "it has nothing here, but its translation goes on."
            )
        yield f"line {number}", texts


def languages(path: Path) -> dict[str, Path]:
    """The files that start with `path`: language -> file, such as de -> train.de.gz."""
    files = {}
    for file in sorted(path.parent.glob("*")):
        if not file.is_file():
            continue
        name = unpacked(file)
        language = name.suffix[1:]
        if name.with_suffix("") == path and LANGUAGE.fullmatch(language):
            files[language] = file
    return files
