"""Sentences with a gap and four words for it, written for the course (data/probes/knowledge.tsv).

    asked = choices.questions()
    asked[0].sentences             the sentence with each of the words
    choices.by_kind(asked, right, texts)    rows of a table: how many answers are right

Of the four words the right one is the first.
"""

import csv
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from classroom.intervals import percent
from course_lib.files import DATA

FILE = DATA / "probes" / "knowledge.tsv"
GAP = "___"


class Question(NamedTuple):
    """A sentence with a gap.

    Attributes:
        kind: what one has to know, such as "verb" or "place".
        sentence: with `___` at the gap.
        words: four that may fill it, the right one first.
    """

    kind: str
    sentence: str
    words: tuple[str, ...]

    @property
    def sentences(self) -> list[str]:
        """The sentence with each of the words."""
        return [self.sentence.replace(GAP, word) for word in self.words]


def questions(every: int = 1) -> list[Question]:
    """The questions, in the order of the file; every second, third, ... of them for a short run."""
    with FILE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    found = []
    for row in rows[::every]:
        words = tuple(row[key] for key in ("answer", "wrong_1", "wrong_2", "wrong_3"))
        found.append(Question(row["kind"], row["sentence"], words))
    return found


def by_kind(
    asked: Sequence[Question], right: Sequence[bool], texts: Sequence[str]
) -> list[dict[str, Any]]:
    """Rows of a table: the share of right answers of each kind of question, and of all.

    Beside it stands what the word that is most frequent in some texts would get.

    Args:
        asked: the questions.
        right: of each, whether it was answered rightly.
        texts: whose words are counted.
    """
    count = Counter(word.strip(".,;:!?\"'()") for text in texts for word in text.lower().split())
    rows = []
    for kind in [*dict.fromkeys(question.kind for question in asked), "all"]:
        own = [i for i, question in enumerate(asked) if kind in (question.kind, "all")]
        guessed = sum(_by_frequency(asked[i], count) for i in own) / len(own)
        row: dict[str, Any] = {"kind": kind, "right (%)": percent([right[i] for i in own])}
        row["most frequent word (%)"] = 100 * guessed
        example = asked[own[0]]
        row["such as"] = "" if kind == "all" else example.sentence
        row["four words"] = "" if kind == "all" else ", ".join(example.words)
        rows.append(row)
    return rows


def _by_frequency(question: Question, count: Counter[str]) -> float:
    """1 if the right word is the most frequent of the four; with ties its share of them."""
    counts = [count[word.lower()] for word in question.words]
    return (counts[0] == max(counts)) / counts.count(max(counts))
