"""Readers of published file formats: plain text, WikiText, GLUE-like tables, CoNLL columns.

Each takes one file and gives plain rows; a file that does not hold what it should is one sentence that says where.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError

Row = dict[str, Any]
Columns = Mapping[str, str | int]  # our name -> the file's: a header's name, or a number from 0

# The names by which public tables head their columns.
HEADERS = {
    "text": ("text", "sentence", "sentence1", "question1", "premise", "#1 String", "question", "s1"),
    "pair": ("pair", "sentence2", "question2", "hypothesis", "#2 String", "s2"),
    "label": ("label", "labels", "gold_label", "Quality", "is_duplicate", "score", "similarity"),
}
SECOND_OF = {"question": "sentence"}  # QNLI heads its pair question, sentence
ARTICLE = re.compile(r"^ ?= [^=](.*[^=])? = ?$")  # WikiText: one "=" is an article's title, more are its sections
START, END = re.compile(r"^\*\*\* ?START OF.*$", re.MULTILINE), re.compile(r"^\*\*\* ?END OF.*$", re.MULTILINE)


def read_file(path: str | Path) -> str:
    """A file as text, with line ends made uniform.

    Raises:
        CourseError: there is no such file, it is empty, or it is not UTF-8.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise CourseError(f"There is no file {path}; check the path.") from None
    except IsADirectoryError:
        raise CourseError(f"{path} is a folder; name the file inside it.") from None
    except UnicodeDecodeError as error:
        raise CourseError(
            f"{path} is not UTF-8 text (byte {error.start} is 0x{error.object[error.start]:02x}); convert it to UTF-8."
        ) from None
    except OSError as error:
        raise CourseError(f"{path} cannot be read: {error.strerror}.") from None
    if not text.strip():
        raise CourseError(f"{path} is empty.")
    return text


def read_text(path: str | Path) -> list[Row]:
    """Documents of a plain text file: WikiText's articles if it has their headings, else the whole file is one.

    The licence around a Project Gutenberg book is left out.
    """
    text = read_file(path)
    lines = text.split("\n")
    # WikiText sets a title between two blank lines; a formula between text lines is none.
    titles = [
        i for i, line in enumerate(lines) if ARTICLE.match(line) and _blank(lines, i - 1) and _blank(lines, i + 1)
    ]
    if titles:
        bounds = [*titles, len(lines)]
        return [{"text": "\n".join(lines[a:b]).strip()} for a, b in pairwise(bounds)]
    start, end = START.search(text), END.search(text)
    body = text[start.end() if start else 0 : end.start() if end else len(text)]
    return [{"text": body.strip()}]


def read_table(path: str | Path, columns: Columns | None = None) -> list[Row]:
    """Rows `text, label` or `text, pair, label` (label a string) of a tab- or comma-separated table.

    Knows the headers of GLUE's tasks, and without a header: sentence and label (either order), CoLA's four columns,
    two texts and a label, a score and two texts.

    Args:
        path: .csv is comma-separated, anything else tab-separated, where quotes are ordinary characters, as in GLUE.
        columns: which columns to take, by the header's names or by number from 0, e.g. {"text": 3, "label": 1}.

    Raises:
        CourseError: the columns cannot be told, a named one is missing, or a line has too few.
    """
    path = Path(path)
    table = list(_cells(path))
    first = table[0][1]
    named = columns is not None and any(isinstance(c, str) for c in columns.values())
    header = named or (columns is None and by_header(first).keys() >= {"text", "label"})
    where = _named(path, columns, first) if columns is not None else _guess(path, table, header)
    rows = []
    for number, cells in table[1:] if header else table:
        if len(cells) <= max(where.values()):
            raise CourseError(f"{path}, line {number}: expected {len(first)} columns but found {len(cells)}.")
        rows.append({name: cells[i].strip() for name, i in where.items()})
        if not rows[-1]["text"]:
            raise CourseError(f"{path}, line {number}: the text is empty.")
    if not rows:
        raise CourseError(f"{path} has a header but no rows.")
    return rows


def read_conll(path: str | Path, columns: Columns | None = None) -> list[Row]:
    """Rows `tokens, labels` of a column file: one token a line, a blank line after each sentence.

    Args:
        path: columns are separated by tabs or spaces. In .conllu files (Universal Dependencies) the label is the
            universal part of speech; elsewhere the first column is the token and the last its label.
        columns: other columns, by number: {"tokens": 0, "labels": 3}.

    Raises:
        CourseError: a line with too few columns.
    """
    path = Path(path)
    universal = path.suffix == ".conllu"
    chosen = {**({"tokens": 1, "labels": 3} if universal else {"tokens": 0, "labels": -1}), **(columns or {})}
    token, label = int(chosen["tokens"]), int(chosen["labels"])
    least = max(token, label, 1) + 1
    rows: list[Row] = []
    tokens: list[str] = []
    labels: list[str] = []
    for number, line in enumerate([*read_file(path).split("\n"), ""], start=1):
        if not line.strip():
            if tokens:
                rows.append({"tokens": tokens, "labels": labels})
            tokens, labels = [], []
            continue
        if line.startswith("-DOCSTART-") or (universal and line.startswith("#")):
            continue
        cells = line.split("\t") if "\t" in line else line.split()
        if len(cells) < least:
            raise CourseError(f"{path}, line {number}: expected at least {least} columns but found {len(cells)}.")
        if universal and not cells[0].isdigit():
            continue  # 3-4 is a contraction and 3.1 an empty node, not a word
        tokens.append(cells[token])
        labels.append(cells[label].strip())
    if not rows:
        raise CourseError(f"{path} holds no sentences.")
    return rows


def is_number(text: str) -> bool:
    """Whether a label is a number, such as 1 or 3.25."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _blank(lines: list[str], i: int) -> bool:
    return not 0 <= i < len(lines) or not lines[i].strip()


def _cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of each line that is not blank."""
    lines = read_file(path).splitlines() if path.suffix == ".csv" else read_file(path).split("\n")
    if path.suffix == ".csv":
        reader = csv.reader(lines)
    else:
        reader = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    try:
        yield from ((reader.line_num, cells) for cells in reader if any(c.strip() for c in cells))
    except csv.Error as error:
        raise CourseError(f"{path}, line {reader.line_num}: not a readable table ({error}).") from None


def by_header(cells: list[str]) -> dict[str, int]:
    """Where text, pair and label stand, by the names in the header; empty for a line that is no header."""
    found = {ours: cells.index(name) for ours, names in HEADERS.items() for name in names[::-1] if name in cells}
    for first, second in SECOND_OF.items():
        if first in cells and second in cells:
            found |= {"text": cells.index(first), "pair": cells.index(second)}
    return found


def _named(path: Path, columns: Columns, first: list[str]) -> dict[str, int]:
    where = {}
    for ours, theirs in columns.items():
        if isinstance(theirs, str) and theirs not in first:
            raise CourseError(f"{path} has no column {theirs!r}; its columns are {', '.join(first)}.")
        where[ours] = first.index(theirs) if isinstance(theirs, str) else theirs
        if where[ours] >= len(first):
            raise CourseError(f"{path} has no column {theirs}; it has {len(first)}, counted from 0.")
    if "text" not in where or "label" not in where:
        raise CourseError(f"columns must say where text and label stand; it says only {', '.join(where)}.")
    return where


def _guess(path: Path, table: list[tuple[int, list[str]]], header: bool) -> dict[str, int]:
    first = table[0][1]
    if header:
        return by_header(first)
    if len(first) == 2:
        width = [sum(len(cells[i]) for _, cells in table if len(cells) > i) for i in range(2)]
        return {"text": 0, "label": 1} if width[0] >= width[1] else {"text": 1, "label": 0}
    if len(first) == 3:  # SemEval's similarity files put the score first
        score_first = all(is_number(cells[0]) for _, cells in table)
        return {"label": 0, "text": 1, "pair": 2} if score_first else {"text": 0, "pair": 1, "label": 2}
    if len(first) == 4 and all(cells[1] in ("0", "1") for _, cells in table if len(cells) == 4):
        return {"text": 3, "label": 1}  # CoLA
    raise CourseError(
        f"The columns of {path} are not known (its first line has {len(first)}: {' | '.join(c[:20] for c in first)}); "
        'say which to take, e.g. columns={"text": 3, "label": 1}.'
    )
