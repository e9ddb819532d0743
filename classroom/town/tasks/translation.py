"""Translation into Velin, an invented language: the verb comes last, adjectives follow their noun,
cases have endings.

    Anna painted the red lamp at the mill.       Anna-o mulu-ne lipa-m sako-m dare-ki.
                                                 Anna-SUBJECT mill-AT lamp-OBJECT red-OBJECT
                                                 paint-PAST

(Without the hyphens: Annao mulune lipam sakom dareki.) Every English lemma has one stem, made from
its letters by a hash, and every stem its own spelling; names keep theirs. Endings: subject -o,
object -m, place -ne, receiver -ti, owner -sa, agent of a passive -vu, plural -r- before the case;
verbs: past -ki, present -ta, passive -len- before the tense. A question ends in "ka", a denied verb
follows "nu". translation.tsv says, sentence by sentence, what stands where."""

import hashlib
import random
import re
from itertools import count

from classroom.town.documents import Writer
from classroom.town.grammar import Env, write
from classroom.town.lexicon import Item
from classroom.town.tasks.base import Example, TownTask, of_split
from course_lib.errors import CourseError

CASES = {
    "subject": "o",
    "object": "m",
    "place": "ne",
    "receiver": "ti",
    "owner": "sa",
    "agent": "vu",
}
TENSES = {"past": "ki", "present": "ta", "passive": "lenki"}
PLURAL = "r"
PARTICLES = ("ka", "nu", ".", "?")
SLOT = re.compile(r"\{([\w.]+?)(\+?):(\w+)\}")  # {key:ending}, {key+:ending} for the plural
SYLLABLES = [onset + vowel for onset in "bdfghjklmnprstvz" for vowel in "aeiou"]


class Translation(TownTask):
    """English sentences and their Velin, word for word from the same facts."""

    columns = ("text", "target")
    labels = ()

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        self.rows = self.table("translation.tsv", "genre", "split", "english", "velin")
        for row in self.rows:
            unknown = [
                word
                for word in row["velin"].split()
                if not SLOT.fullmatch(word) and word not in PARTICLES
            ]
            unknown += [
                m.group(3) for m in SLOT.finditer(row["velin"]) if m.group(3) not in CASES | TENSES
            ]
            if unknown:
                raise CourseError(
                    f"translation.tsv: {unknown[0]!r} in {row['velin']!r} is no slot or particle."
                )
        self.compile(row["english"] for row in self.rows)
        self.dictionary = self._dictionary()

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        row = rng.choice(of_split(self.rows, split))
        fact = self.casting.facts(rng, row["genre"], 1, split)[0][0]
        drawn: dict[str, Item] = {}
        text = write(self.template(row["english"]).render(rng, fact, drawn=drawn))
        words = [self._word(word, fact | drawn) for word in row["velin"].split()]
        target = " ".join(words).replace(" .", ".").replace(" ?", "?")
        return {
            "text": text,
            "target": target[0].upper() + target[1:],
            "gold": {"english": row["english"]},
        }

    def _word(self, word: str, items: Env) -> str:
        slot = SLOT.fullmatch(word)
        if not slot:
            return word
        key, plural, ending = slot.groups()
        if key not in items:
            raise CourseError(
                f"translation.tsv: the slot {word} is about {key!r}, which its English does not"
                " have."
            )
        stem = self.stem(items[key])
        if ending in TENSES:
            return stem + TENSES[ending]
        return stem + (PLURAL if plural else "") + CASES[ending]

    def stem(self, item: Item) -> str:
        """The Velin stem of a word of the lexicon; a name is its own."""
        phrase = item.get("base") or item[""]
        lemma = " ".join(phrase[0])
        return lemma if phrase[1][0] == "PROPN" else self.dictionary[lemma]

    def _dictionary(self) -> dict[str, str]:
        """English lemma -> stem, for all nouns, verbs and adjectives, in the order of the
        alphabet.
        """
        items = [
            item for pool in self.lexicon.pools.values() for item in pool.items
        ] + self.lexicon.places
        lemmas = sorted({" ".join((item.get("base") or item[""])[0]) for item in items})
        result: dict[str, str] = {}
        taken: set[str] = set()
        for lemma in lemmas:
            stems = (self._coined(f"{lemma}/{attempt}") for attempt in count())
            result[lemma] = next(stem for stem in stems if stem not in taken)
            taken.add(result[lemma])
        return result

    @staticmethod
    def _coined(text: str) -> str:
        digest = hashlib.sha256(text.encode()).digest()
        return "".join(SYLLABLES[byte % len(SYLLABLES)] for byte in digest[: 2 + digest[-1] % 2])
