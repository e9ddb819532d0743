"""Drafts the parse of a template by rules over its parts of speech, for a person to correct. The table is the gold."""

from dataclasses import dataclass, field

from course_lib.data.world.chunks import Chunk, Chunker, Unit
from course_lib.data.world.grammar import CONSTANT, DRAWN, OTHER, Step, Template

POSSESSIVE = {"his", "her", "its", "their", "whose"}
BE = {"is", "are", "was", "were", "be", "been", "being"}
WH = {"who", "whom", "what", "which", "where", "when", "why", "how"}
# Verbs with a thing and what it does (saw the dog run), and verbs that go with "in order to".
CAUSES = {"told", "saw", "see", "heard", "hear", "made", "let", "asked", "watched", "helped", "taught"}
GOES = {"went", "came", "drove", "go", "walked", "stopped", "ran", "looked", "needed", "stood", "met"}
PARTICLES = {"in", "out", "up", "down", "off", "on", "away", "back", "over", "together"}
TIMES = {"day", "night", "morning", "evening", "afternoon", "week", "summer", "winter"}  # every day, no preposition
STANDS_FOR = {"it", "they", "them", "herself", "himself", "itself", "themselves"}
NOUNS = {"animal", "object", "job", "kin", "kinf", "kinm", "part", "plant", "tree", "crowd", "food", "event", "idea"}


@dataclass
class Clause:
    """A predicate. `first` and `last` number its chunks, auxiliaries and, in a question, the subject between."""

    head: int
    first: int
    last: int
    auxiliaries: list[int] = field(default_factory=list)
    copula: int = -1
    passive: bool = False
    intro: str = ""  # the kind of chunk that begins it: SC, REL, TO, CC, COMMA, ADV
    before: list[Chunk] = field(default_factory=list)  # what belongs to the clause before, up to this one
    begins: list[Chunk] = field(default_factory=list)  # the introducing chunks
    left: list[Chunk] = field(default_factory=list)  # what stands before the predicate


class Drafter(Chunker):
    """One sentence: first its phrases, then its clauses, then what hangs from which predicate."""

    def __init__(self, units: list[Unit]) -> None:
        super().__init__(units)
        self.root = 0
        clauses = self._find_clauses()
        if clauses:
            self._connect(clauses)
        else:
            self._fragment()
        for i, unit in enumerate(units):
            self.attach(i, self.root, "punct" if unit.tag == "PUNCT" else "dep")
        self.heads[self.root], self.relations[self.root] = -1, "root"

    def _fragment(self) -> None:
        """A sentence without a verb: To the mill."""
        found = [chunk for chunk in self.chunks if chunk.kind in ("N", "PP", "ADJ")]
        first = (found or self.chunks)[0]
        self.root = first.head
        self._right(Clause(first.head, 0, 0), [chunk for chunk in self.chunks if chunk is not first], first)

    def _find_clauses(self) -> list[Clause]:
        """Verbs with their auxiliaries, then what a form of be says, then auxiliaries by themselves."""
        chunks = self.chunks
        clauses: list[Clause] = []
        used: set[int] = set()
        for k, chunk in enumerate(chunks):
            if chunk.kind == "V":
                clause = Clause(chunk.head, k, k, self._auxiliaries(k, used))
                clause.first = min([k, *clause.auxiliaries])
                used |= set(clause.auxiliaries)
                unit = self.units[chunk.head]
                be = bool(clause.auxiliaries) and self.word(chunks[clause.auxiliaries[-1]].head) in BE
                clause.passive = be and unit.form != "ing" and not unit.word.endswith("ing")
                clauses.append(clause)
        clauses += [self._copula(k) for k, chunk in enumerate(chunks) if chunk.kind == "AUX" and k not in used]
        return sorted(clauses, key=lambda clause: clause.first)

    def _auxiliaries(self, k: int, used: set[int]) -> list[int]:
        """The auxiliaries of the verb in chunk `k`: right before it, or in a question before the subject."""
        chunks = self.chunks
        found: list[int] = []
        j = k - 1
        while j >= 0 and j not in used and chunks[j].kind in ("AUX", "NOT", "ADV"):
            if chunks[j].kind == "ADV" and (j == 0 or chunks[j - 1].kind not in ("AUX", "NOT")):
                break
            if chunks[j].kind == "AUX":
                found.insert(0, j)
            j -= 1
        if found:
            return found
        j = k - 1
        while j >= 0 and chunks[j].kind in ("N", "NOT", "PP", "ADV"):
            j -= 1
        if not 0 <= j < k - 1 or chunks[j].kind != "AUX" or j in used:
            return []
        before = chunks[j - 1] if j else None
        asks = before is None or before.kind in ("COMMA", "PPWH") or bool({self.word(before.head), self.word(0)} & WH)
        asks = asks or (
            before is not None and before.start == 0 and bool({self.word(i) for i in range(before.head)} & WH)
        )
        return [j] if asks else []

    def _copula(self, k: int) -> Clause:
        """The clause of the auxiliary in chunk `k`: a form of be with its predicate, or the auxiliary by itself."""
        chunks = self.chunks
        alone = Clause(chunks[k].head, k, k)
        if self.word(chunks[k].head) not in BE:
            return alone
        j = k + 1
        while j < len(chunks) and chunks[j].kind in ("NOT", "ADV"):
            j += 1
        following = chunks[j].kind if j < len(chunks) else ""
        if k == 1 and following == "N" and self.word(chunks[0].head) in WH:  # Who is the baker?
            return Clause(chunks[0].head, 0, k, copula=k)
        asks = all(chunk.kind in ("INTJ", "COMMA") for chunk in chunks[:k])
        if asks and following == "N" and j + 1 < len(chunks) and chunks[j + 1].kind in ("ADJ", "PP", "N", "ADV"):
            return Clause(chunks[j + 1].head, k, j + 1, copula=k)
        if following and self.word(chunks[j - 1].head) == "far":
            return Clause(chunks[j - 1].head, k, j - 1, copula=k)
        if following in ("N", "ADJ", "PP"):
            return Clause(chunks[j].head, k, j, copula=k)
        if k + 1 < len(chunks) and chunks[k + 1].kind == "ADV":
            return Clause(chunks[k + 1].head, k, k + 1, copula=k)
        return alone

    def _connect(self, clauses: list[Clause]) -> None:
        for k, clause in enumerate(clauses):
            start = clauses[k - 1].last + 1 if k else 0
            self._split(self.chunks[start : clause.first], clause, clauses[k - 1] if k else None)
        free = [clause for clause in clauses if clause.intro in ("", "COMMA")]
        main = clauses[0] if clauses[0].intro == "" else (free or clauses)[0]
        self.root = main.head
        self._join(clauses, main)
        if main is not clauses[0] and not any(chunk.kind == "N" for chunk in main.left):
            main.left = clauses[0].before + main.left  # its subject stands before a relative clause
        for k, clause in enumerate(clauses):
            self._inside(clause)
            self._left(clause)
            right = clauses[k + 1].before if k + 1 < len(clauses) else self.chunks[clause.last + 1 :]
            self._right(clause, right, None)

    def _split(self, zone: list[Chunk], clause: Clause, previous: Clause | None) -> None:
        """Which chunks between two predicates belong to the one before, begin this clause, or stand in it."""
        kinds = [chunk.kind for chunk in zone]
        cuts = [j for j, kind in enumerate(kinds) if kind in ("SC", "REL", "TO") or self._asks(zone[j], previous)]
        if previous is not None:
            rest = [{*kinds[j + 1 :]} - {"ADV", "NOT", "COMMA"} for j in range(len(kinds))]
            cuts = cuts or [j for j, kind in enumerate(kinds) if kind == "CC" and rest[j] <= {"N", "INTJ", "PP"}]
            cuts = cuts or [j for j, kind in enumerate(kinds) if kind == "COMMA"]
        if not cuts:
            small = previous is not None and (previous.intro == "REL" or self.word(previous.head) in CAUSES)
            clause.before, clause.left = (zone, []) if small else ([], zone)
            return
        cut = begin = cuts[-1]
        clause.intro = kinds[cut]
        while begin and (kinds[begin - 1] in ("COMMA", "CC") or (kinds[begin - 1] == "NOT" and clause.intro == "TO")):
            begin -= 1
        clause.before, clause.begins, clause.left = zone[:begin], zone[begin : cut + 1], zone[cut + 1 :]

    def _asks(self, chunk: Chunk, previous: Clause | None) -> bool:
        return previous is not None and chunk.kind == "ADV" and self.word(chunk.head) in WH

    def _join(self, clauses: list[Clause], main: Clause) -> None:
        """Hangs every clause from the one that it belongs to."""
        level = main
        for k, clause in enumerate(clauses):
            for chunk in clause.begins:
                relation = {"COMMA": "punct", "CC": "cc", "NOT": "advmod", "TO": "mark", "SC": "mark"}.get(chunk.kind)
                if relation:
                    self.attach(chunk.head, clause.head, relation)
            if clause is main:
                level = clause
                continue
            previous = clauses[k - 1] if k else main
            word = self.word(clause.begins[-1].head) if clause.begins else ""
            if clause.intro == "REL":
                self._relative_clause(clause, previous, main)
            elif clause.intro in ("SC", "ADV"):
                self._subordinate(clause, previous, main, word)
            elif clause.intro == "TO":
                goes = self.word(previous.head) in GOES or previous.passive
                self.attach(clause.head, previous.head, "advcl" if goes else "xcomp")
            elif clause.intro == "CC":
                self.attach(clause.head, (level if level.head < clause.head else previous).head, "conj")
                level = clause
            elif clause.intro == "COMMA":
                self.attach(clause.head, main.head, "parataxis")
            else:
                small = self.word(previous.head) in CAUSES
                self.attach(clause.head, previous.head, "xcomp" if small else "ccomp")

    def _relative_clause(self, clause: Clause, previous: Clause, main: Clause) -> None:
        nouns = [chunk for chunk in clause.before if chunk.kind in ("N", "PP")]
        if not nouns and self.units[previous.head].tag == "VERB":  # asked who had
            self.attach(clause.head, previous.head, "ccomp")
        elif previous.head < clause.head and self._it(main):
            self.attach(clause.head, main.head, "advcl:relcl")
        else:
            self.attach(clause.head, nouns[-1].head if nouns else previous.head, "acl:relcl")
        subject = "nsubj:pass" if clause.passive else "nsubj"
        has_subject = any(chunk.kind == "N" for chunk in clause.left)
        self.attach(clause.begins[-1].head, clause.head, "obj" if has_subject else subject)

    def _subordinate(self, clause: Clause, previous: Clause, main: Clause, word: str) -> None:
        parent, relation = previous, "advcl"
        if clause.intro == "ADV":
            self.attach(clause.begins[-1].head, clause.head, "advmod")
        if word == "that" and self._it(main):
            parent, relation = main, "csubj" if self.units[main.head].tag == "ADJ" else "advcl:relcl"
        elif word == "that" and self.units[parent.head].tag == "VERB" and not parent.passive:
            relation = "ccomp"
        self.attach(clause.head, parent.head, relation)

    def _it(self, main: Clause) -> bool:
        """Whether `it` stands for a clause that follows: it is true that, it was Anna who."""
        found = [
            chunk.head for chunk in self.chunks[: main.last] if chunk.kind == "N" and self.word(chunk.head) == "it"
        ]
        if main.copula < 0 or not found:
            return False
        self.heads[found[0]], self.relations[found[0]] = main.head, "expl"
        return True

    def _inside(self, clause: Clause) -> None:
        """What stands between the first and the last chunk of a predicate."""
        for j in range(clause.first, clause.last + 1):
            chunk = self.chunks[j]
            if j == clause.copula:
                self.attach(chunk.head, clause.head, "cop")
            elif j in clause.auxiliaries:
                last = clause.passive and j == clause.auxiliaries[-1]
                self.attach(chunk.head, clause.head, "aux:pass" if last else "aux")
            elif chunk.kind in ("NOT", "ADV"):
                self.attach(chunk.head, clause.head, "advmod")
            elif chunk.kind == "N":
                self.attach(chunk.head, clause.head, "nsubj:pass" if clause.passive else "nsubj")

    def _left(self, clause: Clause) -> None:
        """Subject and adjuncts before a predicate."""
        asks = bool(clause.auxiliaries) and any(c.kind == "N" for c in self.chunks[clause.first : clause.last])
        joined = any(chunk.kind == "CC" for chunk in clause.left)
        subject: Chunk | None = None
        phrase: Chunk | None = None
        for chunk in clause.left:
            if chunk.kind == "N" and self.units[chunk.head].word in TIMES:
                self.attach(chunk.head, clause.head, "obl:unmarked")
            elif chunk.kind == "N" and subject is not None and joined:
                self.attach(chunk.head, subject.head, "conj")
                for other in clause.left:
                    if other.kind == "CC":
                        self.attach(other.head, chunk.head, "cc")
            elif chunk.kind == "N":
                subject = chunk
            elif chunk.kind == "PP" and subject is not None:
                self.attach(chunk.head, subject.head, "nmod")
            elif chunk.kind in ("PP", "PPWH"):
                of = phrase is not None and self.word(chunk.start) == "of"
                self.attach(chunk.head, phrase.head if of and phrase else clause.head, "nmod" if of else "obl")
                phrase = chunk
            elif chunk.kind != "CC" or subject is None:
                relation = {"INTJ": "discourse", "COMMA": "punct", "CC": "cc"}.get(chunk.kind, "advmod")
                self.attach(chunk.head, clause.head, relation)
        if subject is not None:
            there = self.word(subject.head) == "there"
            relation = "obj" if asks else "expl" if there else "nsubj:pass" if clause.passive else "nsubj"
            self.attach(subject.head, clause.head, relation)

    def _right(self, clause: Clause, chunks: list[Chunk], previous: Chunk | None) -> None:
        """Objects and adjuncts behind a predicate."""
        self._contrast(clause, chunks)
        bare = [chunk.kind == "N" and self.units[chunk.head].word not in TIMES for chunk in chunks]
        two = len(bare) > 1 and bare[0] and bare[1]
        coordinator: Chunk | None = None
        objects = 0
        for chunk in chunks:
            before = previous or Chunk("V", clause.head, clause.head)
            if coordinator is not None and chunk.kind in ("N", "PP", "ADJ", "ADV"):
                self.attach(chunk.head, before.head, "conj")
                self.attach(coordinator.head, chunk.head, "cc")
                coordinator = None
                continue
            if chunk.kind == "CC":
                coordinator = chunk
            elif chunk.kind == "N":
                self._object(clause, chunk, objects, two=two)
                objects += self.units[chunk.head].word not in TIMES
            elif chunk.kind in ("PP", "PPWH"):
                self._adjunct(clause, chunk, before)
            elif chunk.kind == "ADJ":
                thing = self.word(before.head) == "something"
                verb = self.units[clause.head].tag == "VERB"
                relation = "xcomp" if verb and not thing else "amod"
                self.attach(chunk.head, before.head if thing else clause.head, relation)
            elif chunk.kind == "PRT":
                particle = self.word(chunk.head) in PARTICLES and self.units[clause.head].tag == "VERB"
                self.attach(chunk.head, clause.head, "compound:prt" if particle else "obl")
            elif chunk.kind in ("ADV", "NOT", "INTJ") or self.word(chunk.head) == ",":
                relation = {"INTJ": "discourse", "COMMA": "punct"}.get(chunk.kind, "advmod")
                self.attach(chunk.head, clause.head, relation)
            if chunk.kind in ("N", "PP", "ADJ"):
                previous = chunk

    def _contrast(self, clause: Clause, chunks: list[Chunk]) -> None:
        """The lamp, not the ring."""
        for k in range(2, len(chunks)):
            comma, negation, chunk = chunks[k - 2 : k + 1]
            if (comma.kind, negation.kind) == ("COMMA", "NOT") and chunk.kind in ("N", "PP", "ADJ", "ADV"):
                alike = [other.head for other in chunks[: k - 2] if other.kind == chunk.kind]
                self.attach(chunk.head, alike[-1] if alike else clause.head, "conj")
                self.attach(negation.head, chunk.head, "advmod")
                self.attach(comma.head, chunk.head, "punct")

    def _object(self, clause: Clause, chunk: Chunk, objects: int, *, two: bool) -> None:
        if self.units[chunk.head].word in TIMES:
            relation = "obl:unmarked"
        elif any(self.word(other.head) == "there" for other in clause.left):
            relation = "nsubj"
        elif self.units[clause.head].tag != "VERB":
            relation = "nsubj" if self.units[clause.head].tag != "AUX" else "dep"
        elif clause.passive or objects == int(two):
            relation = "obj"
        else:
            relation = "iobj" if two and not objects else "obl:unmarked"
        self.attach(chunk.head, clause.head, relation)

    def _adjunct(self, clause: Clause, chunk: Chunk, before: Chunk) -> None:
        case = self.word(chunk.start)
        noun = self.units[clause.head].tag in ("NOUN", "PROPN") and not self._in_phrase(clause.head)
        if case == "of" and (before.kind in ("N", "PP") or self._in_phrase(clause.head)):
            self.attach(chunk.head, before.head, "nmod")
        elif noun:
            self.attach(chunk.head, clause.head, "nmod")
        else:
            self.attach(chunk.head, clause.head, "obl:agent" if clause.passive and case == "by" else "obl")

    def _in_phrase(self, unit: int) -> bool:
        return any(chunk.kind == "PP" and chunk.head == unit for chunk in self.chunks)


def units_of(steps: list[Step], template: Template) -> list[Unit]:
    """The words and slots of one sentence of a template as the drafter reads them."""
    units = []
    for kind, key, form, _, constant in steps:
        if kind == CONSTANT:
            word, tag = constant[0][0], constant[1][0]
            units.append(Unit(word, "POSS" if tag == "PRON" and word.lower() in POSSESSIVE else tag))
        elif kind == DRAWN:
            _, tags, _, shape = template.lexicon.pools[key].items[0][form]
            whole = "NP" if "DET" in tags and tags[-1] == "NOUN" else ""
            units.append(Unit(f"{{{key}}}", tags[shape.head], "FREE" if key.startswith("adv.") else whole, form))
        else:
            units.append(_fact_unit(key, form))
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
    return Unit(name, "NOUN" if key[0] in "OPFJ" else "PROPN", "NP" if key in ("M", "R", "G") else "")


def draft(template: Template) -> tuple[str, str, str]:
    """The cells heads, relations and refers of a template's row in parses.tsv."""
    heads, relations, refers = [], [], []
    things: list[str] = []  # the slots of things so far, as refers names them
    for line in template.lines:
        drafter = Drafter(units_of(line.steps, template))
        heads.append(" ".join(str((-1 if head is None else head) + 1) for head in drafter.heads))
        relations.append(" ".join(drafter.relations))
        refers.append(" ".join(_stand_for(line.steps, drafter, things, template.text)))
    cells = [" | ".join(column) for column in (heads, relations, refers)]
    return cells[0], cells[1], cells[2] if any(refers) else ""


def _stand_for(steps: list[Step], drafter: Drafter, things: list[str], text: str) -> list[str]:
    """The marks of words that seem to stand for a slot; appends the slots of things to `things`."""
    marks = []
    for unit, (kind, key, form, number, constant) in enumerate(steps):
        word = constant[0][0].lower() if kind == CONSTANT else ""
        the = unit > 0 and drafter.word(unit - 1) == "the"
        if the and key == "J" and not form:
            marks.append(f"{unit + 1}=X")
        elif the and word == "film" and "{M" in text:
            marks.append(f"{unit + 1}=M")
        elif word in STANDS_FOR and things and drafter.relations[unit] != "expl":
            marks.append(f"{unit + 1}={things[0] if word.endswith(('self', 'selves')) else things[-1]}")
        elif kind != CONSTANT and (key[0] in "OFM" or (kind == DRAWN and key in NOUNS)):
            things.append(key + ("2" if kind == OTHER else number))
    return marks
