"""Finds the phrases of a template for the drafter: what hangs together inside them is easy, so it comes first."""

from dataclasses import dataclass
from itertools import pairwise

BEFORE_NOUN = {"DET": "det", "ADJ": "amod", "NUM": "nummod", "POSS": "nmod:poss", "ADV": "advmod", "NOUN": "compound"}
FOLLOWS_DET = {"NOUN", "ADJ", "NUM", "ADV", "PROPN", "DET", "POSS"}
RELATIVE = {"who", "which", "whom", "that"}
KINDS = {"AUX": "AUX", "CCONJ": "CC", "INTJ": "INTJ", "ADV": "ADV", "VERB": "V", "SCONJ": "SC", "PUNCT": "COMMA"}
PAIRS = {  # word, the next word -> which hangs from which (0 the first from the second), and how
    ("no", "longer"): (0, "advmod"), ("any", "more"): (0, "det"), ("because", "of"): (1, "fixed"),
    ("out", "of"): (1, "fixed"), ("nobody", "else"): (1, "advmod"), ("somewhere", "else"): (1, "advmod"),
    ("something", "else"): (1, "advmod"),
}  # fmt: skip


@dataclass
class Unit:
    """A word or slot of a template: its (plain) word or slot, part of speech, and what kind of phrase it is by itself.

    kind: "" a single word, "NP" a whole noun phrase, "PP" a phrase with its preposition, "FREE" an adverbial.
    """

    word: str
    tag: str
    kind: str = ""
    form: str = ""


@dataclass
class Chunk:
    """A piece of a sentence: its kind, its head and its first unit."""

    kind: str  # N, PP, PPWH (with whom), ADJ, ADV, AUX, V, NOT, CC, SC, REL, TO, COMMA, INTJ, PRT
    head: int
    start: int


class Chunker:
    """The phrases of one sentence; `heads` (counted from 0, None where open) and `relations` grow from here."""

    def __init__(self, units: list[Unit]) -> None:
        self.units = units
        self.heads: list[int | None] = [None] * len(units)
        self.relations = ["dep"] * len(units)
        self.chunks: list[Chunk] = []
        self._pairs()
        self._chunk()

    def attach(self, unit: int, head: int, relation: str) -> None:
        """Hangs a unit from its head, if it hangs from none yet."""
        if self.heads[unit] is None and unit != head:
            self.heads[unit], self.relations[unit] = head, relation

    def word(self, unit: int) -> str:
        """The unit's word in small letters."""
        return self.units[unit].word.lower()

    def _pairs(self) -> None:
        """Words that belong together; a clause may follow "than" and "when"."""
        words = [unit.word.lower() for unit in self.units]
        for i, pair in enumerate(pairwise(words)):
            if pair in PAIRS:
                last, relation = PAIRS[pair]
                self.attach(i + last, i + 1 - last, relation)
                if relation == "fixed":
                    self.units[i].tag = "ADP"
                self.units[i + last].kind = "FIXED"
        for i, word in enumerate(words):
            later = any(unit.tag in ("VERB", "AUX") for unit in self.units[i:])
            if (word == "than" and later) or (word == "when" and words[-1] != "?"):
                self.units[i].tag = "SCONJ"

    def _chunk(self) -> None:
        i = 0
        while i < len(self.units):
            i = self._next(i)

    def _next(self, i: int) -> int:
        """Takes the phrase that begins at unit `i`; where the next one begins."""
        unit, kind, head, end = self.units[i], "", i, i + 1
        if unit.kind == "FIXED":
            return end
        if unit.kind in ("FREE", "PP"):
            kind = "ADV" if unit.kind == "FREE" else "PP"
        elif unit.tag == "PART":
            kind = "TO" if self.word(i) == "to" else "NOT"
        elif unit.tag == "ADP":
            kind, head, end = self._after_preposition(i)
        elif unit.tag == "PRON" and self.word(i) in RELATIVE and self._relative(i):
            kind = "REL"
        elif unit.tag in KINDS:
            kind = KINDS[unit.tag]
        else:
            found = self._noun_phrase(i)
            kind, head, end = ("N", *found) if found else ("ADJ", i, end)
        self.chunks.append(Chunk(kind, head, i))
        return end

    def _after_preposition(self, i: int) -> tuple[str, int, int]:
        """A phrase with its preposition, or a preposition by itself: kind, head, end."""
        begin = i + 2 if i + 1 < len(self.units) and self.units[i + 1].kind == "FIXED" else i + 1
        found = self._noun_phrase(begin)
        if found is None and begin < len(self.units) and self.units[begin].tag == "ADJ":  # at first
            found = begin, begin + 1
        if found is None:
            return "PRT", i, i + 1
        head, end = found
        self.attach(i, head, "case")
        return "PPWH" if self.word(head) in ("whom", "which", "what") else "PP", head, end

    def _relative(self, i: int) -> bool:
        """Whether "who", "that" begins a clause: behind a noun, or as a question in the middle of a sentence."""
        kinds = [chunk.kind for chunk in self.chunks if chunk.kind != "COMMA"]
        return bool(kinds) and (kinds[-1] in ("N", "PP", "REL") or self.word(i) == "who")

    def _noun_phrase(self, i: int) -> tuple[int, int] | None:
        """The head and the end of the noun phrase that begins at unit `i`, whose inside is attached; or None."""
        units = self.units
        before: list[int] = []
        head = i
        while head < len(units) and not self._is_head(head, before):
            if not self._may_precede(head):
                return None
            before.append(head)
            head += 1
        if head == len(units) or (units[head].kind and units[head].kind != "NP"):
            return None
        for k in before:
            predet = self.word(k) in ("all", "both") and units[k + 1].tag == "DET"
            relation = "det:predet" if predet else BEFORE_NOUN[units[k].tag]
            self.attach(k, k + 1 if units[k].tag == "ADV" else head, relation)
        if head + 1 < len(units) and units[head + 1].word == "'s":
            self.attach(head + 1, head, "case")
            owned = self._noun_phrase(head + 2)
            if owned:
                self.attach(head, owned[0], "nmod:poss")
                return owned
            return head, head + 2
        return head, head + 1

    def _is_head(self, i: int, before: list[int]) -> bool:
        """Whether a noun phrase ends with unit `i`, behind what stands before the noun."""
        unit = self.units[i]
        after = self.units[i + 1] if i + 1 < len(self.units) else None
        if unit.kind:
            return unit.kind == "NP"
        if unit.tag == "NOUN":
            return after is None or after.tag != "NOUN" or bool(after.kind)
        if unit.tag in ("DET", "POSS"):
            return after is None or bool(after.kind) or (after.tag not in FOLLOWS_DET and after.word != "one")
        if unit.tag in ("ADJ", "NUM") and not self._noun_follows(i):
            return unit.tag == "NUM" or bool(before and self.units[before[0]].tag in ("DET", "POSS"))
        return unit.tag in ("PROPN", "PRON")

    def _may_precede(self, i: int) -> bool:
        """Whether unit `i` may stand before the noun of its phrase."""
        unit = self.units[i]
        if unit.kind:
            return False
        if unit.tag == "ADV":
            return i > 0 and i + 1 < len(self.units) and self.units[i + 1].tag == "ADJ"
        return unit.tag in ("DET", "POSS", "NOUN") or (unit.tag in ("ADJ", "NUM") and self._noun_follows(i))

    def _noun_follows(self, i: int) -> bool:
        """Whether behind adjectives and numbers from unit `i` on a noun comes."""
        j = i + 1
        while j < len(self.units) and self.units[j].tag in ("ADJ", "NUM") and not self.units[j].kind:
            j += 1
        return j < len(self.units) and self.units[j].tag == "NOUN" and not self.units[j].kind
