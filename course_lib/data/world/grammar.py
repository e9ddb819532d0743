"""Templates: a line of a table compiled once, rendered many times into words, tags and entities.

In a template words stand between spaces, `|` parts two sentences, `word/TAG` gives a word its part of speech where
words.tsv has another one, and `{key.form}` is a slot. A key in capitals (or the verbs `v`, `s`) names a part of a
fact: `{X}` its person, `{X.he}` the person's pronoun, `{O2}` the other fact's object. A key in small letters draws from
a pool of the lexicon: `{adj.look}`, `{animal.pl}`; a number (`{animal2}`, `{adj.look2}`) asks for a second, different
draw.
"""

import random
import re
from dataclasses import dataclass

from course_lib.data.world.lexicon import Item, Lexicon, Phrase, phrase
from course_lib.errors import CourseError

Env = dict[str, Item]  # the parts of a fact (or of a document), by their letters
Step = tuple[int, str, str, str, Phrase]  # kind, key, form, number, the phrase of a constant

CONSTANT, HERE, OTHER, DRAWN = range(4)
PARTS = re.compile(r"(v|s|W|A|B|R|G|M|L0|P0|[XYOPTFJL])(2?)(?:\.(\w+))?")
POOL = re.compile(r"([a-z]+(?:\.[a-z]+)?[+-]?)(\d*)")
FORMS = {"", "pl", "a", "base", "third", "past", "part", "ing", "he", "him", "his", "himself", "full", "at"}
SLOT = re.compile(r"\{(.*)\}")
NOTHING: Phrase = ((), (), ())


@dataclass(slots=True)
class Sentence:
    """Words, parts of speech and entities (BIO), three equally long lists."""

    words: list[str]
    tags: list[str]
    entities: list[str]

    @property
    def text(self) -> str:
        """The sentence as it is written."""
        return " ".join(self.words).replace(" .", ".").replace(" ,", ",").replace(" ?", "?")


class Template:
    """A compiled template. `text` is its source; `render` writes its sentences."""

    def __init__(self, text: str, lexicon: Lexicon) -> None:
        self.text = text
        self.lexicon = lexicon
        self.sentences = [[self._step(word) for word in part.split()] for part in text.split(" | ")]
        if not all(self.sentences):
            raise CourseError(f"The template {text!r} has an empty sentence; write words between the bars.")

    def _step(self, word: str) -> Step:
        slot = SLOT.fullmatch(word)
        if not slot:
            plain, _, tag = word.partition("/")
            tag = tag or self.lexicon.tags.get(plain, "") or self.lexicon.tags.get(plain.lower(), "")
            if not tag:
                raise CourseError(
                    f"The word {plain!r} of the template {self.text!r} has no part of speech; add it to words.tsv or "
                    f"write {plain}/TAG."
                )
            return CONSTANT, "", "", "", phrase(plain, tag)
        body = slot.group(1)
        part = PARTS.fullmatch(body)
        if part and (part.group(3) or "").lower() in FORMS:
            key, two, form = part.groups()
            return OTHER if two else HERE, key, (form or "").lower(), "", NOTHING
        return self._pool_step(body)

    def _pool_step(self, body: str) -> Step:
        """A slot that draws: the pool's name, perhaps numbered, then perhaps a form, perhaps numbered."""
        head, _, form = body.rpartition(".")
        form_match = re.fullmatch(r"([a-z]+)(\d*)", form)
        if head and form_match and form_match.group(1) in FORMS:
            name, number = POOL.fullmatch(head), form_match.group(2)
            form = form_match.group(1)
        else:
            name, number, form = POOL.fullmatch(body), "", ""
        pool = self.lexicon.pools.get(name.group(1)) if name else None
        if name is None or pool is None:
            raise CourseError(
                f"The slot {{{body}}} of the template {self.text!r} is neither a part of a fact nor a pool; "
                f"the pools are {', '.join(sorted(self.lexicon.pools))}."
            )
        if form not in pool.items[0]:
            raise CourseError(
                f"The slot {{{body}}} of the template {self.text!r} asks for a form that its pool lacks; "
                f"it has {', '.join(f or 'the plain one' for f in pool.items[0])}."
            )
        number = number or name.group(2)
        if number and len(pool.items) < 2:
            raise CourseError(f"The slot {{{body}}} asks for a second {name.group(1)!r}, but the lexicon has only one.")
        return DRAWN, name.group(1), form, number, NOTHING

    def render(
        self, rng: random.Random, here: Env, other: Env | None = None, drawn: dict[str, Item] | None = None
    ) -> list[Sentence]:
        """The template's sentences, `here` in the plain slots and `other` in those that end in 2.

        `drawn` takes the items drawn so far and gives them again, so that two templates can share their words.
        """
        if drawn is None:
            drawn = {}
        pools = self.lexicon.pools
        result = []
        for steps in self.sentences:
            words: list[str] = []
            tags: list[str] = []
            entities: list[str] = []
            for kind, key, form, number, constant in steps:
                if kind == CONSTANT:
                    w, t, e = constant
                elif kind == HERE:
                    w, t, e = here[key][form]
                elif kind == OTHER:
                    w, t, e = (other or here)[key][form]
                else:
                    item = drawn.get(key + number)
                    if item is None:
                        item = pools[key].draw(rng)
                        while number and item is drawn.get(key):
                            item = pools[key].draw(rng)
                        drawn[key + number] = item
                    w, t, e = item[form]
                words += w
                tags += t
                entities += e
            words[0] = words[0][0].upper() + words[0][1:]
            result.append(Sentence(words, tags, entities))
        return result


def write(sentences: list[Sentence]) -> str:
    """The sentences as one text."""
    return " ".join(sentence.text for sentence in sentences)
