"""Drafts the parse of a template by rules over its parts of speech, for a person to correct. The table is the gold."""

from dataclasses import dataclass, field

from course_lib.data.world.grammar import CONSTANT, DRAWN, OTHER, Step, Template

NOMINAL = {"NOUN", "PROPN", "PRON", "NUM"}
BEFORE_NOUN = {"DET": "det", "ADJ": "amod", "NUM": "nummod", "POSS": "nmod:poss", "ADV": "advmod"}
BE = {"is", "are", "was", "were", "be", "been", "being"}
RELATIVE = {"who", "which", "whom", "that"}
POSSESSIVE = {"his", "her", "its", "their", "whose"}
WH = {"who", "whom", "what", "which", "where", "when", "why", "how"}
GIVES = {"give", "gave", "told", "showed", "handed", "asked", "lent", "brought", "wished", "taught", "sent", "offered"}
CAUSES = {"told", "saw", "heard", "made", "let", "asked", "watched", "helped", "taught"}
GOES = {"went", "came", "drove", "go", "walked", "stopped", "ran", "looked", "needed", "stood", "met"}
PAIRS = {  # word, the next word -> which hangs from which (0 the first from the second), and how
    ("no", "longer"): (0, "advmod"), ("any", "more"): (0, "det"), ("because", "of"): (1, "fixed"),
    ("out", "of"): (1, "fixed"), ("nobody", "else"): (1, "advmod"), ("somewhere", "else"): (1, "advmod"),
    ("something", "else"): (1, "advmod"),
}  # fmt: skip
STANDS_FOR = {"it", "they", "them", "herself", "himself", "itself", "themselves"}
NOUNS = {"animal", "object", "job", "kin", "kinf", "kinm", "part", "plant", "tree", "crowd", "food", "event", "idea"}
PARTICLES = {"in", "out", "up", "down", "off", "on", "away", "back", "over", "together"}
NOMINAL_PP = {"of"}
FOLLOWS_DET = {"NOUN", "ADJ", "NUM", "ADV", "PROPN", "DET", "POSS"}
TIMES = {"day", "night", "morning", "evening", "afternoon", "week", "summer", "winter"}


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
    """A piece of a sentence: its kind and the units of its head and borders."""

    kind: str  # N, PP, ADJ, ADV, AUX, V, NOT, CC, SC, REL, TO, COMMA, INTJ, PRT
    head: int
    start: int
    end: int


@dataclass
class Clause:
    """A predicate with its auxiliaries; `first` and `last` are chunks."""

    head: int
    first: int
    last: int
    auxiliaries: list[int] = field(default_factory=list)
    copula: int = -1
    passive: bool = False
    intro: str = ""
    finite_aux: bool = False


class Drafter:
    """One sentence; `heads` (counted from 0, -1 at the root) and `relations` are the draft."""

    def __init__(self, units: list[Unit]) -> None:
        self.units = units
        n = len(units)
        self.heads: list[int | None] = [None] * n
        self.relations = ["dep"] * n
        self.chunks: list[Chunk] = []
        self._pairs()
        self._chunk()
        self._clauses()
        for i in range(n):
            if self.heads[i] is None and i != self.root:
                self.heads[i] = self.root
                self.relations[i] = "punct" if units[i].tag == "PUNCT" else "dep"
        self.heads[self.root], self.relations[self.root] = -1, "root"

    def attach(self, unit: int, head: int, relation: str) -> None:
        if self.heads[unit] is None and unit != head:
            self.heads[unit], self.relations[unit] = head, relation

    def _pairs(self) -> None:
        """Words that belong together; a clause may follow "than" and "when"."""
        words = [u.word.lower() for u in self.units]
        for i, pair in enumerate(zip(words, words[1:], strict=False)):
            if pair in PAIRS:
                last, relation = PAIRS[pair]
                self.attach(i + last, i + 1 - last, relation)
                if relation == "fixed":
                    self.units[i].tag = "ADP"
                self.units[i + last].kind = "FIXED"
        for i, word in enumerate(words):
            later = any(u.tag in ("VERB", "AUX") for u in self.units[i:])
            if (word == "than" and later) or (word == "when" and words[-1] != "?"):
                self.units[i].tag = "SCONJ"

    # -- chunks

    def _noun_phrase(self, i: int) -> int | None:
        """The end of the noun phrase that begins at unit `i`, attaching its inside; None if there is none."""
        units, n = self.units, len(self.units)
        pre: list[int] = []
        j = i
        while j < n:
            u = units[j]
            if u.kind == "NP" and (not pre or u.tag == "PROPN"):
                head = j
                break
            if u.kind:
                return None
            after = units[j + 1] if j + 1 < n else None
            if u.tag in ("DET", "POSS"):
                inside = after is not None and (after.tag in FOLLOWS_DET or after.word.lower() in ("one", "ones"))
                if not inside or (after is not None and after.kind):
                    head = j
                    break
                pre.append(j)
            elif u.tag == "ADV" and pre and after is not None and after.tag == "ADJ":
                pre.append(j)
            elif u.tag in ("ADJ", "NUM"):
                k = j + 1
                while k < n and units[k].tag in ("ADJ", "NUM", "NOUN") and not units[k].kind and units[k].tag != "NOUN":
                    k += 1
                if k < n and units[k].tag == "NOUN" and not units[k].kind:
                    pre.append(j)
                elif u.tag == "NUM" or (pre and units[pre[0]].tag in ("DET", "POSS")):
                    head = j
                    break
                else:
                    return None
            elif u.tag == "NOUN" and after is not None and after.tag == "NOUN" and not after.kind:
                pre.append(j)
            elif u.tag in NOMINAL:
                head = j
                break
            else:
                return None
            j += 1
        else:
            return None
        if units[head].tag == "ADV":
            return None
        for p in pre:
            relation = "compound" if units[p].tag == "NOUN" else BEFORE_NOUN[units[p].tag]
            target = p + 1 if units[p].tag == "ADV" else head
            if units[p].word.lower() in ("all", "both") and p + 1 < len(units) and units[p + 1].tag == "DET":
                relation = "det:predet"
            self.attach(p, target, relation)
        end = head + 1
        if end < n and units[end].word == "'s":
            self.attach(end, head, "case")
            more = self._noun_phrase(end + 1)
            if more is not None:
                self.attach(head, self._np_head, "nmod:poss")
                return more
        self._np_head = head
        return end

    def _chunk(self) -> None:
        units, n = self.units, len(self.units)
        i = 0
        while i < n:
            u = units[i]
            low = u.word.lower()
            if u.kind == "FIXED":
                i += 1
                continue
            if u.tag == "PUNCT":
                self.chunks.append(Chunk("COMMA", i, i, i + 1))
                i += 1
                continue
            if u.kind == "FREE":
                self.chunks.append(Chunk("ADV", i, i, i + 1))
            elif u.kind == "PP":
                self.chunks.append(Chunk("PP", i, i, i + 1))
            elif u.tag in ("AUX", "CCONJ", "INTJ", "ADV"):
                self.chunks.append(Chunk({"CCONJ": "CC"}.get(u.tag, u.tag), i, i, i + 1))
            elif u.tag == "VERB":
                self.chunks.append(Chunk("V", i, i, i + 1))
            elif u.tag == "PART":
                self.chunks.append(Chunk("TO" if low == "to" else "NOT", i, i, i + 1))
            elif u.tag == "SCONJ":
                self.chunks.append(Chunk("SC", i, i, i + 1))
            elif u.tag == "ADP":
                begin = i + 2 if i + 1 < n and units[i + 1].kind == "FIXED" else i + 1
                end = None if begin >= n else self._noun_phrase(begin)
                if end is None and i + 1 < n and units[i + 1].tag == "ADJ":
                    end, self._np_head = i + 2, i + 1
                if end is None:
                    self.chunks.append(Chunk("PRT", i, i, i + 1))
                else:
                    self.attach(i, self._np_head, "case")
                    wh = units[self._np_head].word.lower() in ("whom", "which", "what")
                    self.chunks.append(Chunk("PP", self._np_head, i, end))
                    if wh:
                        self.chunks[-1].kind = "PPWH"
                    i = end
                    continue
            elif u.tag == "PRON" and low in RELATIVE and (self._after_noun() or (low in ("who", "what") and self.chunks)):
                self.chunks.append(Chunk("REL", i, i, i + 1))
            else:
                end = self._noun_phrase(i)
                if end is None:
                    self.chunks.append(Chunk("ADJ", i, i, i + 1))
                else:
                    self.chunks.append(Chunk("N", self._np_head, i, end))
                    i = end
                    continue
            i += 1

    def _after_noun(self) -> bool:
        chunks = [c for c in self.chunks if c.kind != "COMMA"]
        return bool(chunks) and chunks[-1].kind in ("N", "PP", "REL")

    # -- clauses

    def _find_clauses(self) -> list[Clause]:
        chunks, units = self.chunks, self.units
        clauses: list[Clause] = []
        used: set[int] = set()
        for k, chunk in enumerate(chunks):
            if chunk.kind != "V":
                continue
            clause = Clause(chunk.head, k, k)
            j = k - 1
            while j >= 0 and chunks[j].kind in ("AUX", "NOT", "ADV") and j not in used:
                if chunks[j].kind == "ADV" and not (j and chunks[j - 1].kind in ("AUX", "NOT")):
                    break
                if chunks[j].kind == "AUX":
                    clause.auxiliaries.insert(0, j)
                    clause.first = j
                j -= 1
            if not clause.auxiliaries:  # a question: the auxiliary stands before the subject
                j = k - 1
                while j >= 0 and chunks[j].kind in ("N", "NOT", "PP"):
                    j -= 1
                before = chunks[j - 1] if j > 0 else None
                if j >= 0 and j < k - 1 and chunks[j].kind == "AUX" and j not in used:
                    wh = before is not None and units[before.head].word.lower() in WH
                    if before is None or wh or (before.kind in ("COMMA", "PPWH", "N") and units[0].word.lower() in WH):
                        clause.auxiliaries.append(j)
                        clause.first = j
            used |= set(clause.auxiliaries)
            words = [units[chunks[a].head].word.lower() for a in clause.auxiliaries]
            form = units[chunk.head].form
            clause.passive = bool(words) and words[-1] in BE and form != "ing" and not units[chunk.head].word.endswith("ing")
            clauses.append(clause)
        for k, chunk in enumerate(chunks):
            if chunk.kind == "AUX" and k not in used:
                clauses.append(self._without_verb(k))
        clauses.sort(key=lambda c: c.first)
        return clauses

    def _without_verb(self, k: int) -> Clause:
        """A copula with its predicate, or an auxiliary by itself."""
        chunks, units = self.chunks, self.units
        word = units[chunks[k].head].word.lower()
        if word in BE:
            first = k == 0 or all(c.kind in ("INTJ", "COMMA") for c in chunks[:k])
            j = k + 1
            while j < len(chunks) and chunks[j].kind in ("NOT", "ADV"):
                j += 1
            wh = k and units[chunks[k - 1].head].word.lower() in WH and k == 1
            if wh and j < len(chunks) and chunks[j].kind in ("N",):
                return Clause(chunks[k - 1].head, k - 1, k, copula=k)
            if first and j + 1 < len(chunks) and chunks[j].kind == "N" and chunks[j + 1].kind in ("ADJ", "PP", "N", "ADV"):
                return Clause(chunks[j + 1].head, k, j + 1, copula=k)
            if j < len(chunks) and units[chunks[j - 1].head].word == "far":
                return Clause(chunks[j - 1].head, k, j - 1, copula=k)
            if j < len(chunks) and chunks[j].kind in ("N", "ADJ", "PP"):
                return Clause(chunks[j].head, k, j, copula=k)
            if k + 1 < len(chunks) and chunks[k + 1].kind == "ADV":
                return Clause(chunks[k + 1].head, k, k + 1, copula=k)
        return Clause(chunks[k].head, k, k)

    def _clauses(self) -> None:
        chunks = self.chunks
        clauses = self._find_clauses()
        if not clauses:
            first = next((c for c in chunks if c.kind in ("N", "PP", "ADJ")), next((c for c in chunks if c.kind != "COMMA"), chunks[0]))
            self.root = first.head
            self._spread([c for c in chunks if c is not first], first.head, first)
            return
        zones: list[tuple[list[Chunk], list[Chunk], list[Chunk]]] = []  # of each clause: what belongs to the one before
        for k, clause in enumerate(clauses):
            start = 0 if k == 0 else clauses[k - 1].last + 1
            zones.append(self._split(chunks[start : clause.first], clauses, k))
        self._roles(clauses, zones)
        main = next((k for k, clause in enumerate(clauses) if clause.head == self.root), 0)
        if main and not any(c.kind == "N" for c in zones[main][2]):  # the subject stands before its relative clause
            zones[main] = (zones[main][0], zones[main][1], zones[0][0] + zones[main][2])
        for k, clause in enumerate(clauses):
            self._inside(clause)
            self._left(clause, zones[k][1], zones[k][2])
            right = zones[k + 1][0] if k + 1 < len(clauses) else chunks[clause.last + 1 :]
            self._right(clause, right)

    def _split(self, zone: list[Chunk], clauses: list[Clause], k: int) -> tuple[list[Chunk], list[Chunk], list[Chunk]]:
        """What belongs to the clause before, what introduces this one, and what stands before its predicate."""
        kinds = [c.kind for c in zone]
        cut = None
        for j in reversed(range(len(zone))):
            if kinds[j] in ("SC", "REL", "TO") or (kinds[j] == "ADV" and self.units[zone[j].head].word.lower() in WH and k):
                cut = j
                break
        if cut is None and k:
            for j in reversed(range(len(zone))):
                if kinds[j] == "CC":
                    after = [x for x in kinds[j + 1 :] if x not in ("ADV", "NOT", "COMMA")]
                    if all(x in ("N", "INTJ", "PP") for x in after):
                        cut = j
                        break
            if cut is None and "COMMA" in kinds:
                cut = len(kinds) - 1 - kinds[::-1].index("COMMA")
        if cut is None:
            if k == 0:
                return [], [], zone
            if clauses[k - 1].intro == "REL":
                return zone, [], []
            return (zone, [], []) if self.units[clauses[k - 1].head].word.lower() in CAUSES else ([], [], zone)
        end = cut + 1
        clauses[k].intro = kinds[cut]
        begin = cut
        while begin and (kinds[begin - 1] in ("COMMA", "CC") or (kinds[begin - 1] == "NOT" and kinds[cut] == "TO")):
            begin -= 1
        return zone[:begin], zone[begin:end], zone[end:]

    def _roles(self, clauses: list[Clause], zones: list[tuple[list[Chunk], list[Chunk], list[Chunk]]]) -> None:
        units = self.units
        main = next((c for c in clauses if c.intro in ("", "COMMA")), None) or clauses[0]
        if clauses[0].intro == "" and clauses[0] is not main:
            main = clauses[0]
        self.root = main.head
        level = main
        for k, clause in enumerate(clauses):
            before, intro, left = zones[k]
            for chunk in intro:
                if chunk.kind == "COMMA":
                    self.attach(chunk.head, clause.head, "punct")
                if chunk.kind == "CC":
                    self.attach(chunk.head, clause.head, "cc")
                if chunk.kind == "NOT":
                    self.attach(chunk.head, clause.head, "advmod")
                if clause is main and chunk.kind == "SC":
                    self.attach(chunk.head, clause.head, "mark")
            if clause is main:
                for earlier in clauses[:k]:
                    if earlier.intro in ("SC",):
                        self.attach(earlier.head, main.head, "advcl")
                level = clause
                continue
            previous = clauses[k - 1] if k else main
            last = intro[-1] if intro else None
            word = units[last.head].word.lower() if last else ""
            if clause.intro == "SC" or (clause.intro == "ADV" and k):
                parent = previous if k else main
                says = self.units[parent.head].tag == "VERB" and not parent.passive
                self.attach(last.head if last else 0, clause.head, "mark" if clause.intro == "SC" else "advmod")
                relation = "ccomp" if word == "that" and says else "advcl"
                if word == "that" and self._it(main):
                    relation = "csubj" if units[main.head].tag == "ADJ" else "advcl:relcl"
                    parent = main
                if parent is not clause:
                    self.attach(clause.head, parent.head, relation)
            elif clause.intro == "REL":
                nouns = [c for c in before if c.kind in ("N", "PP")]
                antecedent = nouns[-1].head if nouns else previous.head
                if k and not nouns and word in ("who", "what", "which") and units[previous.head].tag == "VERB":
                    self.attach(clause.head, previous.head, "ccomp")
                elif k and self._it(main):
                    self.attach(clause.head, main.head, "advcl:relcl")
                else:
                    self.attach(clause.head, antecedent, "acl:relcl")
                has_subject = any(c.kind == "N" for c in left)
                self.attach(last.head, clause.head, "obj" if has_subject else "nsubj:pass" if clause.passive else "nsubj")
            elif clause.intro == "TO":
                self.attach(last.head, clause.head, "mark")
                goes = units[previous.head].word.lower() in GOES or previous.passive
                self.attach(clause.head, previous.head, "advcl" if goes else "xcomp")
            elif clause.intro == "CC":
                self.attach(clause.head, level.head if level.head < clause.head else previous.head, "conj")
                level = clause
            elif clause.intro == "COMMA":
                self.attach(clause.head, main.head, "parataxis")
            else:
                small = units[previous.head].word.lower() in CAUSES
                self.attach(clause.head, previous.head, "xcomp" if small else "ccomp")

    def _it(self, main: Clause) -> bool:
        """Whether `it` stands for a clause that follows: it is true that; it was Anna who."""
        before = [c for c in self.chunks[: main.last] if c.kind == "N" and self.units[c.head].word.lower() == "it"]
        if main.copula < 0 or not before:
            return False
        self.heads[before[0].head], self.relations[before[0].head] = main.head, "expl"
        return True

    def _inside(self, clause: Clause) -> None:
        """Auxiliaries, copula, negation, adverbs and, in a question, the subject: all between the first and last chunk."""
        for j in range(clause.first, clause.last + 1):
            chunk = self.chunks[j]
            if j == clause.copula:
                self.attach(chunk.head, clause.head, "cop")
            elif j in clause.auxiliaries:
                last = j == clause.auxiliaries[-1]
                self.attach(chunk.head, clause.head, "aux:pass" if clause.passive and last else "aux")
            elif chunk.kind in ("NOT", "ADV"):
                self.attach(chunk.head, clause.head, "advmod")
            elif chunk.kind == "N":
                self.attach(chunk.head, clause.head, "nsubj:pass" if clause.passive else "nsubj")

    def _left(self, clause: Clause, intro: list[Chunk], left: list[Chunk]) -> None:
        subject = None
        before: Chunk | None = None
        question = bool(clause.auxiliaries) and clause.first + 1 <= clause.last and any(
            self.chunks[j].kind == "N" for j in range(clause.first, clause.last)
        )
        first = None
        for chunk in left:
            if chunk.kind == "N" and self.units[chunk.head].word in TIMES:
                self.attach(chunk.head, clause.head, "obl:unmarked")
                continue
            if chunk.kind == "N":
                if first is not None and any(c.kind == "CC" for c in left):
                    self.attach(chunk.head, first.head, "conj")
                    for cc in left:
                        if cc.kind == "CC":
                            self.attach(cc.head, chunk.head, "cc")
                    continue
                first = subject = chunk
                continue
            if chunk.kind == "PP" and subject is not None:
                self.attach(chunk.head, subject.head, "nmod")
            elif chunk.kind in ("PP", "PPWH"):
                of = self.units[chunk.start].word.lower() in NOMINAL_PP and before is not None
                self.attach(chunk.head, before.head if of and before else clause.head, "nmod" if of else "obl")
                before = chunk
            elif chunk.kind == "INTJ":
                self.attach(chunk.head, clause.head, "discourse")
            elif chunk.kind in ("ADV", "NOT", "PRT") or chunk.kind == "ADJ":
                self.attach(chunk.head, clause.head, "advmod")
            elif chunk.kind == "COMMA":
                self.attach(chunk.head, clause.head, "punct")
            elif chunk.kind == "CC" and not (first is not None):
                self.attach(chunk.head, clause.head, "cc")
        if subject is not None:
            word = self.units[subject.head].word.lower()
            relation = "nsubj:pass" if clause.passive else "nsubj"
            if question:
                relation = "obj"
            if word == "there":
                relation = "expl"
            self.attach(first.head if first else subject.head, clause.head, relation)

    def _right(self, clause: Clause, right: list[Chunk]) -> None:
        self._spread(right, clause.head, None, clause)

    def _spread(self, chunks: list[Chunk], head: int, last: Chunk | None, clause: Clause | None = None) -> None:
        """Objects and adjuncts behind a predicate."""
        units = self.units
        verb = units[head].tag == "VERB"
        word = units[head].word.lower()
        nouns = 0
        total = 0
        for c in chunks:
            if c.kind != "N" or units[c.head].word in TIMES:
                break
            total += 1
        kinds = [c.kind for c in chunks]
        for k in range(2, len(chunks)):  # the lamp, not the ring
            if kinds[k - 2 : k] == ["COMMA", "NOT"] and kinds[k] in ("N", "PP", "ADJ", "ADV"):
                like = next((c for c in reversed(chunks[: k - 2]) if c.kind == kinds[k]), None)
                target = like.head if like else head
                self.attach(chunks[k].head, target, "conj")
                self.attach(chunks[k - 1].head, chunks[k].head, "advmod")
                self.attach(chunks[k - 2].head, chunks[k].head, "punct")
        pending: Chunk | None = None  # a coordinator
        previous: Chunk | None = last or (Chunk("V", head, head, head + 1))
        for c in chunks:
            if pending is not None and c.kind in ("N", "PP", "ADJ", "ADV") and previous is not None:
                parent = previous
                self.attach(c.head, parent.head, "conj")
                self.attach(pending.head, c.head, "cc")
                pending = None
                continue
            if c.kind == "N" and units[c.head].word in TIMES:
                self.attach(c.head, head, "obl:unmarked")
            elif c.kind == "N":
                if not verb and clause is not None and (clause.copula < 0 or True) and units[head].tag != "AUX":
                    self.attach(c.head, head, "nsubj" if units[head].word.lower() in WH else "appos" if last else "nsubj")
                elif not verb:
                    self.attach(c.head, head, "dep")
                elif clause is not None and clause.passive:
                    self.attach(c.head, head, "obj")
                else:
                    two = total >= 2 and nouns == 0
                    later = total >= 2 and nouns == 1
                    self.attach(c.head, head, "iobj" if two else "obj" if later or nouns == 0 else "obl:unmarked")
                nouns += 1
            elif c.kind == "PP":
                case = units[c.start].word.lower()
                if case in NOMINAL_PP and previous is not None and previous.kind in ("N", "PP") :
                    self.attach(c.head, previous.head, "nmod")
                elif units[head].tag in ("NOUN", "PROPN") and (clause is None or clause.copula >= 0) and not self._in_pp(head):
                    self.attach(c.head, head, "nmod")
                elif clause is not None and clause.passive and case == "by":
                    self.attach(c.head, head, "obl:agent")
                else:
                    self.attach(c.head, head, "obl")
            elif c.kind == "PPWH":
                self.attach(c.head, head, "obl")
            elif c.kind == "ADJ":
                thing = previous is not None and units[previous.head].word.lower() == "something"
                self.attach(c.head, previous.head if thing and previous else head, "xcomp" if verb and not thing else "amod")
            elif c.kind == "ADV" or c.kind == "NOT":
                self.attach(c.head, head, "advmod")
            elif c.kind == "PRT":
                prt = units[c.head].word.lower() in PARTICLES
                self.attach(c.head, head, "compound:prt" if prt and verb else "obl")
            elif c.kind == "INTJ":
                self.attach(c.head, head, "discourse")
            elif c.kind == "CC":
                pending = c
                continue
            elif c.kind == "COMMA" and units[c.head].word == ",":
                self.attach(c.head, head, "punct")
                continue
            if c.kind in ("N", "PP", "ADJ"):
                previous = c

    def _in_pp(self, unit: int) -> bool:
        return any(c.kind == "PP" and c.head == unit for c in self.chunks) or self.units[unit].kind == "PP"


def units_of(steps: list[Step], template: Template) -> list[Unit]:
    """The words and slots of one sentence of a template as the drafter reads them."""
    units = []
    for kind, key, form, _, constant in steps:
        if kind == CONSTANT:
            word, tag = constant[0][0], constant[1][0]
            units.append(Unit(word, "POSS" if tag == "PRON" and word.lower() in POSSESSIVE else tag))
        elif kind != DRAWN:
            units.append(_fact_unit(key, form))
        else:
            tags, shape = (template.lexicon.pools[key].items[0][form][i] for i in (1, 3))
            free = key.startswith("adv.")
            whole = "DET" in tags and tags[-1] == "NOUN"
            units.append(Unit(f"{{{key}}}", tags[shape.head], "FREE" if free else "NP" if whole else "", form))
    return units


def _fact_unit(key: str, form: str) -> Unit:
    """A part of a fact."""
    name = f"{{{key}}}"
    if key in ("v", "s"):
        return Unit(name, "VERB", "", form)
    if key == "T":
        return Unit(name, "ADV", "FREE")
    if form in ("he", "him", "himself", "his"):
        return Unit(form, "POSS" if form == "his" else "PRON")
    if form in ("at", "full", "a") and key[0] in "OPJ":
        return Unit(name, "NOUN", "PP" if form == "at" else "NP")
    return Unit(name, "NOUN" if key[0] in "OPFJ" else "PROPN", "NP" if key in "MRG" else "")


def draft(template: Template) -> tuple[str, str, str]:
    """The cells heads, relations and refers of a template's row in parses.tsv."""
    heads, relations, refers = [], [], []
    things: list[str] = []  # the slots of things so far, as refers names them
    for line in template.lines:
        drafter = Drafter(units_of(line.steps, template))
        heads.append(" ".join(str((-1 if head is None else head) + 1) for head in drafter.heads))
        relations.append(" ".join(drafter.relations))
        marks = []
        for unit, (kind, key, form, number, constant) in enumerate(line.steps):
            word = constant[0][0].lower() if kind == CONSTANT else ""
            before = line.steps[unit - 1] if unit else None
            the = before is not None and before[0] == CONSTANT and before[4][0][0].lower() == "the"
            if key == "J" and not form and the:
                marks.append(f"{unit + 1}=X")
            elif word == "film" and the and "{M" in template.text:
                marks.append(f"{unit + 1}=M")
            elif word in STANDS_FOR and things and drafter.relations[unit] != "expl":
                marks.append(f"{unit + 1}={things[0] if word.endswith(('self', 'selves')) else things[-1]}")
            elif (kind != CONSTANT and key[0] in "OFM") or (kind == DRAWN and key in NOUNS):
                things.append(key + ("2" if kind == OTHER else number))
        refers.append(" ".join(marks))
    cells = [" | ".join(column) for column in (heads, relations, refers)]
    return cells[0], cells[1], cells[2] if any(refers) else ""
