"""Gold parses: data/world/parses.tsv gives each template its heads, relations and coreference.

A row has the template's text; of each word or slot (a slot counts once) the number of its head, counted from 1 in its
sentence, 0 at the root; and its relation of Universal Dependencies, version 2. `|` parts sentences as in the template:

    The {O} was {v.part} by {X} .  <tab>  2 4 4 0 6 4 4  <tab>  det nsubj:pass aux:pass root case obl:agent punct  <tab>

The last column says which words stand for something: `5=O`, the fifth word of the sentence stands for the fact's
object; `7=animal`, it stands for what the slot {animal} draws. Slots of people and things need no mark. What hangs
together inside a slot ("in the garden") the lexicon knows; an adverb's slot ({T}) brings its own relation.

`python -m course_lib.data.world draft "TEMPLATE"` proposes a row; read it before you add it.
"""

import re
from typing import NamedTuple

from course_lib.data.world.lexicon import Row
from course_lib.errors import CourseError

NOUN_PHRASE = ("det", "det:predet", "amod", "nmod:poss", "nummod", "compound")
NAMES = (
    "acl acl:relcl advcl advcl:relcl advmod amod appos aux aux:pass case cc ccomp compound compound:prt conj cop csubj "
    "csubj:pass dep det det:predet discourse dislocated expl fixed flat goeswith iobj list mark nmod nmod:poss nsubj "
    "nsubj:pass nummod obj obl obl:agent obl:unmarked orphan parataxis punct reparandum root vocative xcomp"
)
RELATIONS = frozenset(NAMES.split())
STAND_FOR = re.compile(r"(\d+)=([A-Za-z][A-Za-z0-9+]*)")


class Parse(NamedTuple):
    """The parse of one sentence of a template, a slot counting once.

    heads: of each step the number of its head, counted from 0; -1 at the root.
    relations: of each step.
    refers: step -> the slot that it stands for.
    """

    heads: tuple[int, ...]
    relations: tuple[str, ...]
    refers: dict[int, str]


def parses_of(row: Row | None, text: str, lengths: list[int]) -> list[Parse]:
    """The parses of a template's sentences, which have these many steps; none without a row.

    Raises:
        CourseError: the row does not fit the template, is no tree, or has a relation that there is none of.
    """
    if row is None:
        return []
    columns = [row[name].split("|") for name in ("heads", "relations")]
    refers = row["refers"].split("|") if row["refers"].strip() else [""] * len(lengths)
    counts = [[len(part.split()) for part in column] for column in columns]
    if counts != [lengths, lengths] or len(refers) != len(lengths):
        raise CourseError(
            f"parses.tsv: the template {text!r} has {lengths} words and slots in its sentences, but its row has "
            f"{counts[0]} heads and {counts[1]} relations; each needs one of both."
        )
    result = []
    for heads, relations, marks in zip(*columns, refers, strict=True):
        if not all(head.isdigit() for head in heads.split()):
            raise CourseError(f"parses.tsv: the heads of {text!r} are {heads.strip()!r}; they must be whole numbers.")
        stand_for = [STAND_FOR.fullmatch(mark) for mark in marks.split()]
        if not all(stand_for):
            raise CourseError(f"parses.tsv: {marks.strip()!r} of {text!r} must be marks like 5=O, parted by spaces.")
        parse = Parse(
            tuple(int(head) - 1 for head in heads.split()),
            tuple(relations.split()),
            {int(mark.group(1)) - 1: mark.group(2) for mark in stand_for if mark},
        )
        check(parse, text)
        result.append(parse)
    return result


def check(parse: Parse, text: str) -> None:
    """Raises CourseError unless the parse is a tree with one root and known relations."""
    n = len(parse.heads)
    unknown = sorted(set(parse.relations) - RELATIONS)
    if unknown:
        raise CourseError(f"parses.tsv: {text!r} has the relation {unknown[0]!r}, which Universal Dependencies lacks.")
    roots = [i for i, head in enumerate(parse.heads) if head < 0]
    if len(roots) != 1 or [i for i, name in enumerate(parse.relations) if name == "root"] != roots:
        raise CourseError(f"parses.tsv: a sentence of {text!r} needs exactly one head 0 and there the relation root.")
    for i, head in enumerate(parse.heads):
        if head >= n:
            raise CourseError(
                f"parses.tsv: word {i + 1} of {text!r} hangs from a word that its sentence does not have."
            )
    for i in range(n):
        j, steps = i, 0
        while j >= 0 and steps <= n:
            j, steps = parse.heads[j], steps + 1
        if steps > n:
            raise CourseError(f"parses.tsv: word {i + 1} of {text!r} does not hang from the root; mend the heads.")
    if not all(0 <= unit < n for unit in parse.refers):
        raise CourseError(f"parses.tsv: {text!r} marks a word that its sentence does not have.")


def unparsed(text: str) -> CourseError:
    """The error that a template has no parse."""
    return CourseError(
        f"The template {text!r} has no row in parses.tsv; `python -m course_lib.data.world draft` with the template in "
        "quotes proposes one to read, mend and add."
    )
