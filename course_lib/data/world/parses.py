"""Gold parses: data/world/parses.tsv gives each template its heads, relations and coreference.

A row has the template's text, of each word or slot (a slot counts once) the number of its head, counted from 1, 0 at the
root of the sentence, and its relation of Universal Dependencies, version 2; `|` parts sentences as in the template:

    The {O} was {v.part} by {X} . | <tab> 2 4 4 0 6 4 4 <tab> det nsubj:pass aux:pass root case obl:agent punct <tab>

The last column says which words stand for something: `5=O`, the fifth word stands for the fact's object. Slots name
their people and things by themselves. What hangs together inside a slot ("in the garden") the lexicon knows.
"""

from typing import NamedTuple

from course_lib.data.world.lexicon import Row
from course_lib.errors import CourseError

NOUN_PHRASE = ("det", "det:predet", "amod", "nmod:poss", "nummod", "compound")


class Parse(NamedTuple):
    """The parse of one sentence of a template, a slot counting once.

    heads: of each step the number of its head, counted from 0; -1 at the root.
    relations: of each step.
    refers: step -> the slot that it stands for.
    """

    heads: tuple[int, ...]
    relations: tuple[str, ...]
    refers: dict[int, str]


def parses_of(rows: dict[str, Row], text: str, lengths: list[int]) -> list[Parse]:
    """The parses of a template's sentences, which have these many steps."""
    row = rows.get(text)
    if row is None:
        return [Parse((-1,) * n, ("dep",) * n, {}) for n in lengths]
    raise CourseError("not yet")
