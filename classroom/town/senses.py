"""English words with two senses in sentences, for lesson 06 (`data/probes/senses.tsv`).

A language model (Claude) wrote them: nine words, two senses each, six sentences a sense. Of five
words both senses are nouns, of four they differ in part of speech. No model had read them when they
were written, and none was changed after one had.
"""

import csv
from typing import NamedTuple

from course_lib.files import DATA


class Use(NamedTuple):
    """A sentence, the word that it is about, and how the word is used there.

    Attributes:
        word: in lower case; it stands in the sentence once.
        sense: a name for its sense there.
        part: its part of speech there.
        text: the sentence.
    """

    word: str
    sense: str
    part: str
    text: str


def sentences() -> list[Use]:
    """All uses, word by word; the two senses of a word take turns."""
    text = (DATA / "probes" / "senses.tsv").read_text(encoding="utf-8")
    _, *rows = csv.reader(text.splitlines(), delimiter="\t")
    return [Use(*row) for row in rows]


def differing(uses: list[Use]) -> set[str]:
    """The words whose senses differ in part of speech."""
    parts = {(use.word, use.part) for use in uses}
    words = [word for word, _ in parts]
    return {word for word in words if words.count(word) > 1}
