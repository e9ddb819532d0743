"""Templates: one line of templates.tsv compiled once, rendered many times into words, tags and entities.

In a template words stand between spaces, `|` parts two sentences, `word/TAG` gives a word its part of speech, and
`{key.form}` is a slot. A key in capitals names a part of a fact (`{X}` its person, `{O2}` the other fact's object) or of the
document (`{W}`); a key in small letters draws from the lexicon (`{adj.look}`, `{animal.pl}`, `{animal2}` a second animal).
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field

from course_lib.data.world.lexicon import Item, Lexicon, Phrase, phrase
from course_lib.errors import CourseError

SLOT = re.compile(r"\{([^}]*)\}")
FORMS = {"pl", "a", "A", "base", "third", "past", "part", "ing", "he", "him", "his", "himself", "full", "at"}
ENDINGS = ((" .", "."), (" ,", ","), (" ?", "?"))

Env = dict[str, Item]


@dataclass
class Sentence:
    """Words, their tags and their entities (BIO), equally long."""

    words: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    entities: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return " ".join(self.words).replace(" .", ".").replace(" ,", ",").replace(" ?", "?")


class Template:
    """A compiled template; `steps` are (kind, key, form, index): kind 0 constant phrase, 1 fact or document, 2 the other fact, 3 pool."""

    def __init__(self, text: str, lexicon: Lexicon) -> None:
        self.text = text
        self.sentences: list[list[tuple[int, str, str, str, Phrase | None]]] = []
        for part in text.split(" | "):
            steps: list[tuple[int, str, str, str, Phrase | None]] = []
            for word in part.split():
                slot = SLOT.fullmatch(word)
                if not slot:
                    plain, _, tag = word.partition("/")
                    steps.append((0, "", "", "", phrase(plain, tag or lexicon.tags.get(plain, "X"))))
                    continue
                body = slot.group(1)
                if body[0].isupper() or body[0] in "vs" and re.fullmatch(r"[vs]2?\..*", body):
                    key, _, form = body.partition(".")
                    kind, key = (2, key[:-1]) if key.endswith("2") else (1, key)
                    steps.append((kind, key, form.lower() if form in ("At", "He", "His") else form, "", None))
                    continue
                number = re.search(r"\d*$", body)
                index = number.group() if number else ""
                name = body[: len(body) - len(index)] if index else body
                head, _, form = name.rpartition(".")
                form_index = re.search(r"\d+$", head)
                if head and form in FORMS:
                    name = head
                    if form_index:
                        index, name = form_index.group(), head[: -len(form_index.group())]
                else:
                    form = ""
                if name not in lexicon.pools:
                    raise CourseError(f"The template {text!r} has the slot {{{body}}}, but the lexicon has no pool {name!r}; "
                                      f"pools are {', '.join(sorted(lexicon.pools))}.")
                steps.append((3, name, form, index, None))
            self.sentences.append(steps)

    def render(self, rng: random.Random, lexicon: Lexicon, one: Env, two: Env | None = None) -> list[Sentence]:
        """The template's sentences with `one`'s parts in the plain slots and `two`'s in those that end in 2."""
        drawn: dict[str, Item] = {}
        result = []
        for steps in self.sentences:
            words: list[str] = []
            tags: list[str] = []
            entities: list[str] = []
            for kind, key, form, index, constant in steps:
                if kind == 0:
                    w, t, e = constant  # type: ignore[misc]
                elif kind == 1:
                    w, t, e = one[key][form]
                elif kind == 2:
                    w, t, e = two[key][form]  # type: ignore[index]
                else:
                    item = drawn.get(key + index)
                    if item is None:
                        pool = lexicon.pools[key]
                        item = pool.draw(rng)
                        while index and item is drawn.get(key):
                            item = pool.draw(rng)
                        drawn[key + index] = item
                    w, t, e = item[form]
                words += w
                tags += t
                entities += e
            words[0] = words[0][0].upper() + words[0][1:]
            result.append(Sentence(words, tags, entities))
        return result
