"""Gold parses: data/world/parses.tsv gives each template its heads, relations and coreference.

A row has the template's text; of each word or slot (a slot counts once) the number of its head,
counted from 1 in its sentence, 0 at the root; and its relation of Universal Dependencies, version
2. `|` parts sentences as in the template:

    The {O} was {v.part} by {X} .  <tab>  2 4 4 0 6 4 4  <tab>  det nsubj:pass aux:pass root case
    obl:agent punct  <tab>

The last column says which words stand for something: `5=O`, the fifth word of the sentence stands
for the fact's object; `7=animal`, it stands for what the slot {animal} draws. Slots of people and
things need no mark. What hangs together inside a slot ("in the garden") the lexicon knows; an
adverb's slot ({T}) brings its own relation."""

from typing import NamedTuple

from classroom.town.lexicon import FOLDER, TableRow
from course_lib.errors import CourseError

NOUN_PHRASE = ("det", "det:predet", "amod", "nmod:poss", "nummod", "compound")
RELATIONS = frozenset((FOLDER / "relations.txt").read_text("utf-8").split())


class Parse(NamedTuple):
    """The parse of one sentence of a template, a slot counting once."""

    heads: tuple[int, ...]  # counted from 0; -1 at the root
    relations: tuple[str, ...]
    refers: dict[int, str]  # step -> the slot that it stands for


def parses_of(row: TableRow | None, text: str, lengths: list[int]) -> list[Parse]:
    """The parses of a template's sentences, which have these many steps; none without a row."""
    if row is None:
        return []
    columns = [row[name].split("|") for name in ("heads", "relations")]
    refers = row["refers"].split("|") if row["refers"].strip() else [""] * len(lengths)
    counts = [[len(part.split()) for part in column] for column in columns]
    if counts != [lengths, lengths] or len(refers) != len(lengths):
        raise CourseError(
            f"parses.tsv: the template {text!r} has {lengths} words and slots in its sentences, but"
            f" its row has {counts[0]} heads and {counts[1]} relations; each needs one of both."
        )
    result = []
    for heads, relations, marks in zip(*columns, refers, strict=True):
        try:
            numbers = tuple(int(head) - 1 for head in heads.split())
            stand_for = {}
            for mark in marks.split():
                unit, slot = mark.split("=")
                stand_for[int(unit) - 1] = slot
        except ValueError:
            raise CourseError(
                f"parses.tsv: the heads of {text!r} must be whole numbers, its marks like 5=O."
            ) from None
        parse = Parse(numbers, tuple(relations.split()), stand_for)
        mistake = _mistake(parse)
        if mistake:
            raise CourseError(f"parses.tsv: {text!r} {mistake}.")
        result.append(parse)
    return result


def _mistake(parse: Parse) -> str:
    """What keeps the parse from being a tree with one root and known relations."""
    n = len(parse.heads)
    unknown = sorted(set(parse.relations) - RELATIONS)
    if unknown:
        return f"has the relation {unknown[0]!r}, which Universal Dependencies lacks"
    roots = [i for i, head in enumerate(parse.heads) if head < 0]
    if len(roots) != 1 or [i for i, name in enumerate(parse.relations) if name == "root"] != roots:
        return "needs in each sentence exactly one head 0 and there the relation root"
    if max((*parse.heads, *parse.refers)) >= n:
        return "has a head or a mark for a word that its sentence does not have"
    for i in range(n):
        above = i
        for _ in range(n):
            above = parse.heads[above] if above >= 0 else above
        if above >= 0:
            return f"has a word {i + 1} that does not hang from the root; mend the heads"
    return ""
