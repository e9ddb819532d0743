"""Column files: CoNLL's (a token a line, a blank line after each sentence) and Universal Dependencies' CoNLL-U."""

from collections.abc import Iterator
from pathlib import Path

from course_lib.data.readers.base import Columns, Placed, Row, read_lines, wrong
from course_lib.errors import CourseError

FIELDS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
NONE = "_"


def read_conll(path: Path, columns: Columns | None = None) -> Iterator[Placed]:
    """Rows `tokens, labels` of a column file: named entities, chunks, parts of speech.

    Args:
        path: columns are separated by tabs or spaces; the first is the token and the last its label.
        columns: other columns, by number: {"tokens": 0, "labels": 3}; negative numbers count from the last.

    Raises:
        CourseError: a line with another number of columns than the first; no sentences.
    """
    chosen = {"tokens": 0, "labels": -1, **(columns or {})}
    if odd := [value for value in chosen.values() if not isinstance(value, int)]:
        raise CourseError(f"{path}: CoNLL columns have no names; give a number from 0 instead of {odd[0]!r}.")
    token, label = int(chosen["tokens"]), int(chosen["labels"])
    tokens: list[str] = []
    labels: list[str] = []
    width, begun, any_rows = 0, 0, False
    for number, line in _with_end(path):
        if not line.strip():
            if tokens:
                yield f"line {begun}", {"tokens": tokens, "labels": labels}
                any_rows = True
            tokens, labels = [], []
            continue
        if line.startswith("-DOCSTART-"):
            continue
        cells = line.split("\t") if "\t" in line else line.split()
        width = width or len(cells)
        if len(cells) < 2 or len(cells) != width:
            raise wrong(path, f"line {number}", f"expected {max(width, 2)} columns but found {len(cells)}.")
        if not (-width <= token < width and -width <= label < width):
            raise CourseError(f"{path} has {width} columns, counted from 0; columns= asks for {token} and {label}.")
        begun = begun if tokens else number
        tokens.append(cells[token])
        labels.append(cells[label].strip())
    if not any_rows:
        raise CourseError(f"{path} holds no sentences.")


def read_conllu(path: Path, columns: Columns | None = None) -> Iterator[Placed]:
    """Rows `text, tokens, labels, upos, heads, deprels` of a treebank.

    The tokens are the syntactic words: "didn't" counts as its two words, empty nodes (8.1) are left out. heads: for
    each word the number of its head, counted from 1; 0 is the root, -1 says that the file does not tell.

    Args:
        columns: which field becomes `labels`, by its name in the format or its number from 0, in place of the universal
            part of speech: {"labels": "xpos"}.

    Raises:
        CourseError: a line without ten fields, words that are not numbered 1, 2, ..., a head outside the sentence,
            no root or several.
    """
    field = (columns or {}).get("labels", "upos")
    if set(columns or {}) > {"labels"} or (field not in FIELDS and field not in range(len(FIELDS))):
        raise CourseError(f"{path}: columns= chooses the labels among {', '.join(FIELDS)}, e.g. {{'labels': 'xpos'}}.")
    label = field if isinstance(field, int) else FIELDS.index(field)
    words: list[tuple[int, list[str]]] = []
    text, any_rows = "", False
    for number, line in _with_end(path):
        if not line.strip():
            if words:
                yield f"line {words[0][0]}", _sentence(path, words, text, label)
                any_rows = True
            words, text = [], ""
        elif line.startswith("#"):
            text = line.partition("=")[2].strip() if line[1:].lstrip().startswith("text =") else text
        else:
            cells = line.split("\t")
            if len(cells) != len(FIELDS):
                raise wrong(
                    path, f"line {number}", f"expected {len(FIELDS)} fields with tabs between, found {len(cells)}."
                )
            if cells[0].isdigit():  # 3-4 is a contraction of two words, 3.1 an empty node
                words.append((number, cells))
                if int(cells[0]) != len(words):
                    raise wrong(path, f"line {number}", f"expected word {len(words)} of the sentence, not {cells[0]}.")
            elif not cells[0].replace("-", ".", 1).replace(".", "", 1).isdigit():
                raise wrong(path, f"line {number}", f"{cells[0]!r} is no number of a word.")
    if not any_rows:
        raise CourseError(f"{path} holds no sentences.")


def _sentence(path: Path, words: list[tuple[int, list[str]]], text: str, label: int) -> Row:
    heads = []
    for number, cells in words:
        head = -1 if cells[6] == NONE else int(cells[6]) if cells[6].isdigit() else len(words) + 1
        if head > len(words) or head == int(cells[0]):
            raise wrong(path, f"line {number}", f"the head {cells[6]!r} is no other word of its sentence, nor 0.")
        heads.append(head)
    if -1 not in heads and heads.count(0) != 1:
        raise wrong(path, f"line {words[0][0]}", f"the sentence has {heads.count(0)} roots (heads of 0), not one.")
    tokens = [cells[1] for _, cells in words]
    return {
        "text": text or " ".join(tokens),
        "tokens": tokens,
        "labels": [cells[label] for _, cells in words],
        "upos": [cells[3] for _, cells in words],
        "heads": heads,
        "deprels": [cells[7] for _, cells in words],
    }


def _with_end(path: Path) -> Iterator[tuple[int, str]]:
    """The numbered lines, and a blank one that ends the last sentence."""
    yield from read_lines(path)
    yield 0, ""
