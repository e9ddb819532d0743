"""Templates: a line of a table compiled once, rendered many times into words and their gold
annotations.

In a template words stand between spaces, `|` parts two sentences, `word/TAG` gives a word its part
of speech where words.tsv has another one, and `{key.form}` is a slot. A key in capitals (or the
verbs `v`, `s`) names a part of a fact: `{X}` its person, `{X.he}` the person's pronoun, `{O2}` the
other fact's object. A key in small letters draws from a pool of the lexicon: `{adj.look}`,
`{animal.pl}`; a number (`{animal2}`, `{adj.look2}`) asks for a second, different draw.

Heads, relations and coreference come from the template's row in parses.tsv, see parses.py.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from classroom.town.lexicon import Item, Lexicon, Phrase, Shape, phrase, same_form
from classroom.town.parses import NOUN_PHRASE, Parse, parses_of
from course_lib.errors import CourseError

Env = dict[str, Item]  # the parts of a fact (or of a document), by their letters
# kind, key, form, number, the phrase of a constant
TemplateStep = tuple[int, str, str, str, Phrase]
# the tokens from start to end (not included), and which entity they name
Mention = tuple[int, int, str]

HERE, OTHER, DRAWN, CONSTANT = range(4)
PARTS = re.compile(r"(v|s|W|A|B|R|G|M|L0|P0|[XYOPTFJL])(2?)(?:\.(\w+))?")
POOL = re.compile(r"([a-z]+(?:\.[a-z]+)?[+-]?)(\d*)")
FORMS = {
    "",
    "pl",
    "a",
    "base",
    "third",
    "past",
    "part",
    "ing",
    "he",
    "him",
    "his",
    "himself",
    "full",
    "at",
}
SLOT = re.compile(r"\{(.*)\}")
NOTHING: Phrase = ((), (), (), Shape((), (), 0, 0))
KINDS = {  # what the parts of a fact are that documents name
    **dict.fromkeys("XYWAB", "person"),
    "O": "object",
    "P": "place",
    "P0": "place",
    "L": "town",
    "L0": "town",
    "F": "food",
    "M": "film",
    "R": "restaurant",
    "G": "newspaper",
}


class CompiledSentence(NamedTuple):
    """A compiled sentence of a template.

    A mention is: its first and last step, what it names ("person"), and where its item is, kind of
    slot and key."""

    steps: list[TemplateStep]
    parse: Parse | None
    mentions: list[tuple[int, int, str, int, str]]


@dataclass(slots=True)
class RenderedSentence:
    """Words, parts of speech and entities (BIO), three equally long lists, and the parse on
    demand.
    """

    words: list[str]
    tags: list[str]
    entities: list[str]
    phrases: list[Phrase]  # one a step of the template
    named: list[Item]  # whom or what the line's mentions name
    line: CompiledSentence

    @property
    def text(self) -> str:
        return (
            " ".join(self.words)
            .replace(" .", ".")
            .replace(" ,", ",")
            .replace(" ?", "?")
            .replace(" 's", "'s")
        )

    def tree(self, first: int) -> tuple[list[int], list[str]]:
        """Of each word the number of its head, counted from `first`, -1 for the root; and its
        relation to it.
        """
        assert self.line.parse is not None
        starts = self._starts(first)
        heads: list[int] = []
        relations: list[str] = []
        for start, (_, _, _, shape), unit, outer in zip(
            starts, self.phrases, self.line.parse.heads, self.line.parse.relations, strict=False
        ):
            outside = starts[unit] + self.phrases[unit][3].head if unit >= 0 else -1
            heads += [outside if head == i else start + head for i, head in enumerate(shape.heads)]
            relations += shape.relations
            if unit < 0 or not shape.relations[shape.head]:
                relations[start + shape.head - first] = outer
        return heads, relations

    def mentions(self, first: int) -> list[Mention]:
        """The words that name a person, a thing or a place or stand for one, counted from
        `first`.
        """
        starts = self._starts(first)
        return [
            (
                starts[left] + self.phrases[left][3].name,
                starts[unit + 1],
                f"{what}/{' '.join(item[''][0])}",
            )
            for (left, unit, what, _, _), item in zip(self.line.mentions, self.named, strict=True)
        ]

    def _starts(self, first: int) -> list[int]:
        """Where the phrase of each step begins, and where the last one ends."""
        return list(accumulate((len(words) for words, _, _, _ in self.phrases), initial=first))


class SentenceTemplate:
    """A compiled template. `text` is its source; `render` writes its sentences."""

    def __init__(self, text: str, lexicon: Lexicon) -> None:
        self.text = text
        self.lexicon = lexicon
        sentences = [[self._step(word) for word in part.split()] for part in text.split(" | ")]
        if not all(sentences):
            raise CourseError(
                f"The template {text!r} has an empty sentence; write words between the bars."
            )
        self.parses = parses_of(
            lexicon.parses.get(same_form(text)), text, [len(steps) for steps in sentences]
        )
        parses: Sequence[Parse | None] = self.parses or [None] * len(sentences)
        self.lines = [
            self._line(steps, parse) for steps, parse in zip(sentences, parses, strict=True)
        ]
        lexicon.compiled[text] = bool(self.parses)

    def _step(self, word: str) -> TemplateStep:
        slot = SLOT.fullmatch(word)
        if not slot:
            plain, _, tag = word.partition("/")
            tag = (
                tag or self.lexicon.tags.get(plain, "") or self.lexicon.tags.get(plain.lower(), "")
            )
            if not tag:
                raise CourseError(
                    f"{plain!r} of {self.text!r} has no part of speech; add it to words.tsv or"
                    " write /TAG."
                )
            return CONSTANT, "", "", "", phrase(plain, tag)
        body = slot.group(1)
        part = PARTS.fullmatch(body)
        if part and (part.group(3) or "").lower() in FORMS:
            key, two, form = part.groups()
            return OTHER if two else HERE, key, (form or "").lower(), "", NOTHING
        return self._pool_step(body)

    def _pool_step(self, body: str) -> TemplateStep:
        """A slot that draws: the pool's name, perhaps numbered, then perhaps a form, perhaps
        numbered.
        """
        head, _, form = body.rpartition(".")
        form_match = re.fullmatch(r"([a-z]+)(\d*)", form)
        number = ""
        if head and form_match and form_match.group(1) in FORMS:
            form, number = form_match.groups()
        else:  # no form: a dot belongs to the pool's name
            head, form = body, ""
        name = POOL.fullmatch(head)
        if name:
            number = number or name.group(2)
            pool = self.lexicon.pools.get(name.group(1))
            if pool and form in pool.items[0] and not (number and len(pool.items) < 2):
                return DRAWN, name.group(1), form, number, NOTHING
        raise CourseError(
            f"The slot {{{body}}} of {self.text!r} is neither a part of a fact nor a pool in a"
            f" form that it has; the pools are {', '.join(sorted(self.lexicon.pools))}."
        )

    def _line(self, steps: list[TemplateStep], parse: Parse | None) -> CompiledSentence:
        """The sentence with its mentions: parts of facts, words that stand for something, and what
        they stand for.
        """
        if parse is None:
            return CompiledSentence(steps, None, [])
        stand_for = {unit: self._source(key) for unit, key in parse.refers.items()}
        drawn: set[str] = set()  # slots that words of the template stand for
        for other in self.parses:
            drawn.update(other.refers.values())
        mentions = []
        for unit, (kind, key, _, number, _) in enumerate(steps):
            names_a_part = kind in (HERE, OTHER) and key in KINDS
            names_a_draw = kind == DRAWN and key + number in drawn
            if unit in stand_for:
                source = stand_for[unit]
            elif names_a_part or names_a_draw:
                source = kind, key + number
            else:
                continue
            left = _first_of_noun_phrase(parse, unit)
            what = KINDS.get(source[1]) or source[1].rstrip("0123456789")
            mentions.append((left, unit, what, *source))
        return CompiledSentence(steps, parse, mentions)

    def _source(self, key: str) -> tuple[int, str]:
        """Where the item is that a word stands for: `O`, `O2` or a slot that draws, `animal2`."""
        part = PARTS.fullmatch(key)
        if part and part.group(1) in KINDS and not part.group(3):
            return (OTHER if part.group(2) else HERE), part.group(1)
        if f"{{{key.rstrip('0123456789')}" not in self.text:
            raise CourseError(
                f"parses.tsv: a word of {self.text!r} stands for {key!r}, which is no slot of it."
            )
        return DRAWN, key

    def render(
        self,
        rng: random.Random,
        here: Env,
        other: Env | None = None,
        drawn: dict[str, Item] | None = None,
    ) -> list[RenderedSentence]:
        """The template's sentences, `here` in the plain slots and `other` in those that end in 2.

        `drawn` takes the items drawn so far and gives them again, so that two templates can share
        their words."""
        if drawn is None:
            drawn = {}
        pools = self.lexicon.pools
        result = []
        there = other or here
        for line in self.lines:
            phrases: list[Phrase] = []
            for kind, key, form, number, constant in line.steps:
                if kind == CONSTANT:
                    one = constant
                elif kind == HERE:
                    one = here[key][form]
                elif kind == OTHER:
                    one = there[key][form]
                else:
                    item = drawn.get(key + number)
                    if item is None:
                        item = pools[key].draw(rng)
                        while number and item is drawn.get(key):
                            item = pools[key].draw(rng)
                        drawn[key + number] = item
                    one = item[form]
                phrases.append(one)
            words = [word for one in phrases for word in one[0]]
            tags = [tag for one in phrases for tag in one[1]]
            entities = [mark for one in phrases for mark in one[2]]
            words[0] = words[0][0].upper() + words[0][1:]
            named = [(here, there, drawn)[kind][key] for _, _, _, kind, key in line.mentions]
            result.append(RenderedSentence(words, tags, entities, phrases, named, line))
        return result


def _first_of_noun_phrase(parse: Parse, unit: int) -> int:
    """The first step of the noun phrase whose head is at `unit`."""
    left = unit
    while left and parse.heads[left - 1] == unit and parse.relations[left - 1] in NOUN_PHRASE:
        left -= 1
    return left


def write(sentences: list[RenderedSentence]) -> str:
    """The sentences as one text."""
    return " ".join(sentence.text for sentence in sentences)
