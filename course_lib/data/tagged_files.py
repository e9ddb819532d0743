"""Read sentences in which each word has a tag: CoNLL files and treebanks.

Each line of such a file is a word, and a blank line ends a sentence:

    Anna   B-PER
    slept  O              ->   ("line 1", {"tokens": ["Anna", "slept"], "labels": ["B-PER", "O"]})

A reader turns a file into pairs (location, record); the location is for messages.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from course_lib.data.columns import ColumnMap, Located
from course_lib.data.lines import read_lines, wrong
from course_lib.errors import CourseError

# Names of the tags' column: a first line that ends in one of them is a header.
TAG_COLUMNS = ("tag", "tags", "label", "labels", "ner", "ner_tag", "ner_tags", "pos", "upos")


def read_conll(path: Path, user_map: ColumnMap | None = None) -> Iterator[Located]:
    """Read tagged sentences as in CoNLL 2003: each line is a word with its tags.

    The first column becomes `tokens` and the last `labels`. Columns between them are called "1",
    "2", and so on. A file of one column has words without tags. The columns are separated by tabs;
    if a line has none, by blanks. A line such as "# id 7" is a comment.

    Raises:
        CourseError: the lines have different numbers of columns, or the file has a header.
    """
    width, tags = _columns_and_tags(path)
    first_tag = next(iter(tags), "")
    if tags[first_tag] == 1 and first_tag.casefold() in TAG_COLUMNS:
        raise CourseError(f"{path}: its first line, with {first_tag!r}, is a header; remove it.")
    for lines in _sentences(path, skip="-DOCSTART-"):
        rows = [(number, line, _words(line)) for number, line in lines]
        rows = [row for row in rows if not _is_comment(row[1], row[2], width, tags)]
        if not rows:
            continue
        for number, _, cells in rows:
            if len(cells) != width:
                message = f"expected {width} columns but found {len(cells)}."
                raise wrong(path, f"line {number}", message)
        names = ["tokens", *map(str, range(1, width - 1)), "labels"][:width]
        columns = zip(*(cells for _, _, cells in rows), strict=True)  # a list for each column
        yield f"line {rows[0][0]}", dict(zip(names, map(list, columns), strict=True))


def read_conllu(path: Path, user_map: ColumnMap | None = None) -> Iterator[Located]:
    """Read a treebank of Universal Dependencies: sentences with their grammar.

    Each record has `text`, `tokens`, `upos` (parts of speech, such as NOUN), `labels` (the same),
    `heads` (for each word, the number of the word that it depends on) and `deprels` (the kind of
    dependency). In "Anna slept" the heads are 2 and 0: words count from 1, and 0 means the root.
    -1 means that the file gives no head. "didn't" is two words, did and n't.

    Raises:
        CourseError: a line does not have 10 fields, or a head is no word of its sentence.
    """
    for lines in _sentences(path):
        first = f"line {lines[0][0]}"
        text = ""
        words: list[list[str]] = []
        for number, line in lines:
            if line.startswith("#"):
                if re.match(r"# *text =", line):
                    text = text or line.partition("=")[2].strip()
                continue
            cells = line.split("\t")
            if len(cells) != 10:
                message = f"expected 10 fields with tabs between, found {len(cells)}."
                raise wrong(path, f"line {number}", message)
            if re.fullmatch(r"[0-9]+[-.][0-9]+", cells[0]):
                # 3-4 is "didn't", whose two words follow; 3.1 is a word that was left unsaid.
                continue
            if cells[0] != str(len(words) + 1):
                message = f"word {len(words) + 1} of its sentence is numbered {cells[0]!r}."
                raise wrong(path, f"line {number}", message)
            if not re.fullmatch("[0-9]+|_", cells[6]):
                raise wrong(path, f"line {number}", f"the head {cells[6]!r} is no number.")
            words.append(cells)
        heads = [-1 if cells[6] == "_" else int(cells[6]) for cells in words]
        if any(head > len(words) for head in heads):
            raise wrong(path, first, f"the head {max(heads)} is no word of its sentence.")
        if not words:
            continue
        tokens = [cells[1] for cells in words]
        upos = [cells[3] for cells in words]
        record: dict[str, Any] = {"text": text or " ".join(tokens), "tokens": tokens}
        record["labels"] = upos
        record["upos"] = upos
        record["heads"] = heads
        record["deprels"] = [cells[7] for cells in words]
        yield first, record


def is_conll(path: Path) -> bool:
    """Whether a text file starts as CoNLL 2003's train.txt does."""
    first = next((line for _, line in read_lines(path) if line.strip()), "")
    return first.startswith("-DOCSTART-")


def _columns_and_tags(path: Path) -> tuple[int, Counter[str]]:
    """The number of columns, and how often each tag occurs. Lines with "#" do not count."""
    width = last_width = 0
    tags: Counter[str] = Counter()
    for lines in _sentences(path, skip="-DOCSTART-"):
        for _, line in lines:
            cells = _words(line)
            last_width = len(cells)
            if not line.startswith("#"):
                width = width or len(cells)
                tags[cells[-1]] += 1
    # If every line starts with "#", no line is a comment: all of them are words.
    return width or last_width, tags


def _is_comment(line: str, cells: list[str], width: int, tags: Collection[str]) -> bool:
    """Whether a line is a comment, and not a word that starts with "#".

    "# id 7" is a comment: it has more columns than the words, here two. "#tag O" and "# O" are
    words. "# newdoc" has two columns, too, but no word has the tag "newdoc", so it is a comment.
    (A pound sign has the part of speech "#".)
    """
    if not line.startswith("#"):
        return False
    if len(cells) != width or re.match("#(begin|end) document", line):  # CoNLL 2012
        return True
    return line.startswith("# ") and bool(tags) and cells[-1] not in (*tags, "#", "O")


def _words(line: str) -> list[str]:
    if "\t" in line:
        return [cell.strip() for cell in line.split("\t")]
    return re.split(" +", line.strip(" "))


def _sentences(path: Path, skip: str | None = None) -> Iterator[list[tuple[int, str]]]:
    """The lines of each sentence, with their numbers.

    A blank line ends a sentence, and so does a line that starts with `skip`.
    """

    def ends(line: tuple[int, str]) -> bool:
        return not line[1].strip() or (skip is not None and line[1].startswith(skip))

    for is_end, lines in groupby(read_lines(path), key=ends):
        if not is_end:
            yield list(lines)
