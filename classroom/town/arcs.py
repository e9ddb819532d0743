"""English sentences whose determiners and direct objects are marked, for lesson 11.

Those of `data/probes/arcs.txt` are the sentences of the names task's validation split and of the
beginning of its test split that have such an arc. A language model (Claude) marked them after the
guidelines of Universal Dependencies; they were not marked a second time.
"""

from collections.abc import Sequence
from typing import Any

from course_lib import data
from course_lib.files import DATA

Row = dict[str, Any]
RELATIONS = {"d": "det", "o": "obj"}
CLASSES = {"NOUN": "N", "PROPN": "N", "VERB": "V"}
LONGEST = 40  # words of a sentence of a treebank


def marked(lines: Sequence[str]) -> list[Row]:
    """Sentences with their marks taken apart: words, governors, relations and tags.

    A word may carry marks after slashes. N is a noun, V a verb. `d2` is the determiner of the
    second word after it; `o-3` is the object of the verb three words before it.

    Args:
        lines: for instance "She/N opened/V the/d1 door/N/o-2".

    Returns:
        Rows with `tokens`, `heads` (places, -1 where none is marked), `deprels` ("det", "obj" or
        "") and `tags` ("N", "V" or "").
    """
    rows = []
    for line in lines:
        row: Row = {"tokens": [], "heads": [], "deprels": [], "tags": []}
        for place, item in enumerate(line.split()):
            word, *marks = item.split("/")
            arc = next((mark for mark in marks if mark[0] in RELATIONS), "")
            row["tokens"].append(word)
            row["heads"].append(place + int(arc[1:]) if arc else -1)
            row["deprels"].append(RELATIONS[arc[0]] if arc else "")
            row["tags"].append(next((mark for mark in marks if mark in "NV"), ""))
        rows.append(row)
    return rows


def sentences(source: str = "", n: int = 600) -> tuple[list[Row], list[Row]]:
    """Marked sentences in two halves: one to choose on, one to score on.

    Args:
        source: a treebank of Universal Dependencies (a name that ends in .conllu). For any other
            the course's own sentences are read, those of `data/probes/arcs.txt`.
        n: how many sentences of a treebank are drawn.
    """
    if source.endswith(".conllu"):
        rows = [_unmarked(row) for row in data.task(source, n=n).to_list()]
        rows = [row for row in rows if len(row["tokens"]) <= LONGEST]
    else:
        text = (DATA / "probes" / "arcs.txt").read_text(encoding="utf-8")
        rows = marked(text.splitlines())
    return rows[::2], rows[1::2]


def _unmarked(row: Row) -> Row:
    """A row of a treebank with the columns and values of `marked`."""
    wanted = [relation in RELATIONS.values() for relation in row["deprels"]]
    heads = zip(row["heads"], wanted, strict=True)  # counted from 1 in the file
    relations = zip(row["deprels"], wanted, strict=True)
    return {
        "tokens": row["tokens"],
        "heads": [head - 1 if kept else -1 for head, kept in heads],
        "deprels": [relation if kept else "" for relation, kept in relations],
        "tags": [CLASSES.get(tag, "") for tag in row["upos"]],
    }


def pairs(rows: Sequence[Row], relation: str) -> list[tuple[int, int]]:
    """All arcs (dependent, governor) of a relation, as places of words."""
    found = []
    for row in rows:
        for dependent, name in enumerate(row["deprels"]):
            if name == relation:
                found.append((dependent, row["heads"][dependent]))
    return found


def next_door(rows: Sequence[Row], relation: str) -> list[bool]:
    """Whether the nearest noun or verb is the governor, for each arc of a relation."""
    found = []
    for row in rows:
        for word, name in enumerate(row["deprels"]):
            if name == relation:
                found.append(neighbour(row, word) == row["heads"][word])
    return found


def neighbour(row: Row, word: int) -> int:
    """Where a rule without any model puts the governor of a word, or -1.

    For a determiner: the next noun (the last one of nouns in a row). For an object: the nearest
    verb before it.
    """
    tags = row["tags"]
    if row["deprels"][word] == "obj":
        return max((i for i in range(word) if tags[i] == "V"), default=-1)
    place = next((i for i in range(word + 1, len(tags)) if tags[i] == "N"), -1)
    while place >= 0 and tags[place : place + 2] == ["N", "N"]:
        place += 1
    return place
