"""Two texts. Does the second follow from the first, with three classes (MNLI), in other genres too,
with two (RTE), and of answers to questions (QNLI)? Do they say the same (after MRPC and PAWS), how
much alike are they (after STS-B)? Has a word one sense in both (after WiC)?

The world's rule: a thing is done once, by one person at one place. Three sentences make the premise
of `nli`; which people, things and places the hypothesis brings together decides, and nothing in
either text alone does."""

import random
import re
from collections import defaultdict
from itertools import permutations

from classroom.town.documents import Writer
from classroom.town.facts import DEEDS, until, word
from classroom.town.grammar import Env, SentenceTemplate, write
from classroom.town.lexicon import TableRow, phrase, read_table
from classroom.town.tasks.base import Example, TownTask, balanced, of_split
from classroom.town.tasks.scenes import (
    GENRES,
    ROLES,
    Saying,
    SceneTask,
    exchange,
    exchangeable,
    reverse,
)
from course_lib.errors import CourseError

ENTAILMENT, NEUTRAL, CONTRADICTION = range(3)


def premises(task: TownTask) -> list[TableRow]:
    """Sentences of premises: with a place, without one, and beside the matter; of other genres,
    with a part unsaid.
    """
    return read_table("premises.tsv", ("use", "unsaid", "template"), task.lexicon.folder)


class NLI(TownTask):
    """Hypotheses about who did it to what, where it was done, and who has the thing now:
    hypotheses.tsv.
    """

    columns = ("text", "pair", "label")
    labels = ("entailment", "neutral", "contradiction")
    group = 3

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        allowed = {"about": ("thing", "place", "owner"), "polarity": ("yes", "no")}
        self.rows = self.table(
            "hypotheses.tsv", "about", "polarity", "split", "template", **allowed
        )
        self.compile(row["template"] for row in self.rows)
        self.premises: dict[str, list[SentenceTemplate]] = defaultdict(list)
        for row in premises(self):
            self.premises[row["use"]].append(self.template(row["template"]))

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        label, rng = balanced(rng, member, 3)
        row = rng.choice(of_split(self.rows, split))
        # What the hypothesis says without its "not": a denial swaps entailment and contradiction.
        truth = label if row["polarity"] == "yes" else (CONTRADICTION, NEUTRAL, ENTAILMENT)[label]
        facts, _, _ = self.casting.facts(rng, "deed", 3, split)
        premise, asked = getattr(self, f"_{row['about']}")(rng, facts, truth)
        rng.shuffle(premise)
        gold = {
            "about": row["about"],
            "polarity": row["polarity"],
            "split": row["split"],
            "facts": [said(fact) for fact in facts],
            "asked": said(asked),
        }
        hypothesis = self.template(row["template"]).render(rng, asked)
        return {"text": " ".join(premise), "pair": write(hypothesis), "label": label, "gold": gold}

    def _state(self, rng: random.Random, fact: Env, *, place: bool) -> str:
        return write(rng.choice(self.premises["placed" if place else "unplaced"]).render(rng, fact))

    def _thing(self, rng: random.Random, facts: list[Env], truth: int) -> tuple[list[str], Env]:
        """Two people did the same to two things; of a third thing it is not said who did."""
        share_verb(facts)
        first, second, third = facts
        premise = [self._state(rng, fact, place=rng.random() < 0.5) for fact in (first, second)]
        premise.append(write(rng.choice(self.premises["aside"]).render(rng, third)))
        thing = {ENTAILMENT: first, CONTRADICTION: second, NEUTRAL: third}[truth]["O"]
        return premise, first | {"O": thing}

    def _place(self, rng: random.Random, facts: list[Env], truth: int) -> tuple[list[str], Env]:
        """Of two deeds the place is said, of the third it is not."""
        share_verb(facts)
        first, second, third = facts
        premise = [self._state(rng, fact, place=fact is not third) for fact in facts]
        if truth == NEUTRAL:
            return premise, third | {"P": rng.choice((first, second))["P"]}
        return premise, first | {"P": (first if truth == ENTAILMENT else second)["P"]}

    def _owner(self, rng: random.Random, facts: list[Env], truth: int) -> tuple[list[str], Env]:
        """One got a thing, one got rid of one, one did something else."""
        kinds = ("get", "lose", rng.choice([kind for kind in DEEDS if kind not in ("get", "lose")]))
        for fact, kind in zip(facts, kinds, strict=True):
            fact["v"] = self.lexicon.pools[kind].draw(rng)
            fact["class"] = {"": phrase(kind, "X")}
        premise = [self._state(rng, fact, place=rng.random() < 0.5) for fact in facts]
        got, lost, other = facts
        return premise, {ENTAILMENT: got, CONTRADICTION: lost, NEUTRAL: other}[truth]


def said(fact: Env) -> tuple[str, str, str, str]:
    """Who did what to which thing, and where."""
    return word(fact, "X"), word(fact, "v", "base"), word(fact, "O"), word(fact, "P")


def share_verb(facts: list[Env]) -> None:
    """Gives all facts the first one's verb, so that the verb does not tell which fact is asked
    for.
    """
    for fact in facts[1:]:
        fact.update(v=facts[0]["v"], s=facts[0]["s"])


DENIAL = "It is not true/ADJ that "


class Mismatched(SceneTask):
    """The three classes of `nli`, in genres that it does not have: gifts, trips, help, work, things
    kept.

    Of the first two facts everything is said, of the third one part is not.
    """

    columns = ("text", "pair", "label")
    labels = ("entailment", "neutral", "contradiction")
    group = 3

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        rows = [row for row in premises(self) if row["unsaid"]]
        self.unsaid = {row["use"]: (self.template(row["template"]), row["unsaid"]) for row in rows}

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        label, rng = balanced(rng, member, 3)
        genre = rng.choice(list(self.unsaid))
        template, part = self.unsaid[genre]
        facts = self.casting.scene(rng, split, genre, 3)
        premise = self.story(rng, split, genre, facts[:2])
        premise.append(template.render(rng, facts[2])[0].text)
        rng.shuffle(premise)
        denial = rng.random() < 0.4
        truth = (CONTRADICTION, NEUTRAL, ENTAILMENT)[label] if denial else label
        asked = {
            ENTAILMENT: facts[0],
            CONTRADICTION: exchange(facts[0], facts[1], part),
            NEUTRAL: exchange(facts[2], facts[rng.random() < 0.5], part),
        }[truth]
        saying = self.saying(
            rng, split, genre, rng.choice(("state", "again")), frozenset({"X", part})
        )
        pair = self._deny(saying).render(rng, asked)[0].text if denial else saying.say(rng, asked)
        gold = {"genre": genre, "denial": denial, "truth": truth}
        return {"text": " ".join(premise), "pair": pair, "label": label, "gold": gold}

    def _deny(self, saying: Saying) -> SentenceTemplate:
        plain = re.sub("^(The|It) ", lambda found: found.group().lower(), saying.template.text)
        return self.template(DENIAL + plain)


class RTE(SceneTask):
    """Entailed or not, in all genres: two facts, one of them said again, half of the time with the
    other one's part.
    """

    columns = ("text", "pair", "label")
    labels = ("entailment", "not_entailment")
    group = 2

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        label, rng = balanced(rng, member, 2)
        genre = rng.choice(GENRES)
        first, second = self.casting.scene(rng, split, genre)
        text = self.story(rng, split, genre, [first, second])
        rng.shuffle(text)
        saying = until(
            lambda: self.saying(rng, split, genre, "again"), lambda found: len(found.parts) > 1
        )
        part = rng.choice(exchangeable(genre, saying.parts))
        pair = saying.say(rng, exchange(first, second, part) if label else first)
        gold = {"genre": genre, "exchanged": part if label else ""}
        return {"text": " ".join(text), "pair": pair, "label": label, "gold": gold}


class QNLI(SceneTask):
    """Does the sentence answer the question?

    Half of the rows have a sentence of two facts, which answers it or has a part of them exchanged;
    half have a short sentence that tells what is asked for or something else (where it was, when
    who is asked for)."""

    columns = ("text", "pair", "label")
    labels = ("entailment", "not_entailment")
    group = 2

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        label, rng = balanced(rng, member, 2)
        while True:
            kind = rng.choice(("two", "short"))
            question = self.question(rng, split, 2 if kind == "two" else 1)
            genre = question.genre
            facts = self.casting.scene(rng, split, genre)
            pair = getattr(self, f"_{kind}")(rng, split, question, facts, label)
            if pair:
                break
        gold = {"genre": genre, "asks": question.use, "kind": kind}
        return {"text": question.say(rng, facts[0]), "pair": pair, "label": label, "gold": gold}

    def _two(
        self, rng: random.Random, split: str, question: Saying, facts: list[Env], label: int
    ) -> str:
        """Two facts in a sentence; what the question names is parted where the sentence does not
        answer.
        """
        options = exchangeable(question.genre, question.parts)
        if not options:
            return ""
        part = rng.choice(options)
        first, second = facts
        if label:  # does not answer
            first, second = exchange(first, second, part), exchange(second, first, part)
        if rng.random() < 0.5:
            first, second = second, first
        return self.saying(rng, split, question.genre, "both").say(rng, first, second)

    def _short(
        self, rng: random.Random, split: str, question: Saying, facts: list[Env], label: int
    ) -> str:
        """A short sentence with all that the question names, and with what it asks for or not."""
        table = self.sayings[split == "test"]
        sayings = [s for use in ("state", "again") for s in table[question.genre, use]]
        fitting = [saying for saying in sayings if saying.parts >= question.parts]
        answers = [saying for saying in fitting if question.use in saying.parts]
        others = [saying for saying in fitting if question.use not in saying.parts]
        if not answers or not others:
            return ""
        return rng.choice(others if label else answers).say(rng, facts[0])


GRADED = ("deed", "gift", "meal", "help")  # genres whose verb is a word of the lexicon


class Paraphrase(SceneTask):
    """Two people change places, or two facts exchange a part: both labels have the same words."""

    columns = ("text", "pair", "label")
    labels = ("different", "paraphrase")
    group = 2

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        label, rng = balanced(rng, member, 2)
        genre = rng.choice(GENRES)
        first, second = self.casting.scene(rng, split, genre)
        if genre in ROLES and rng.random() < 0.75:
            a, b = until(
                lambda: self.paraphrases(rng, split, genre),
                lambda pair: pair[0].parts >= {"X", "Y"},
            )
            gold = {"genre": genre, "exchanged": "" if label else "XY"}
            pair = b.say(rng, first if label else reverse(first))
            return {"text": a.say(rng, first), "pair": pair, "label": label, "gold": gold}
        a, b = until(  # what can be exchanged must be said beside what it belongs to
            lambda: self.paraphrases(rng, split, genre),
            lambda pair: len(pair[0].parts) > 1 and exchangeable(genre, pair[0].parts),
        )
        part = rng.choice(exchangeable(genre, a.parts))
        others = first, second
        if not label:
            others = exchange(first, second, part), exchange(second, first, part)
        text = [a.say(rng, fact) for fact in (first, second)]
        pair_sentences = [b.say(rng, fact) for fact in others]
        rng.shuffle(pair_sentences)
        gold = {"genre": genre, "exchanged": "" if label else part}
        return {
            "text": " ".join(text),
            "pair": " ".join(pair_sentences),
            "label": label,
            "gold": gold,
        }


class Similarity(SceneTask):
    """How much of what the one says does the other say?

    5: the same fact in other words; 4: the same with a part left out; 3: one part is another; 2:
    the two people in each other's place, or only the thing is the same; 1: only the person is the
    same; 0: nothing. Texts of grades 5 and 4 are worded differently, those of 3 and 2 alike, so
    that shared words do not give the grade."""

    columns = ("text", "pair", "label")
    labels = ()
    group = 6

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        grade, rng = balanced(rng, member, 6)
        genre = rng.choice(GRADED)
        fact, other = self.casting.scene(rng, split, genre)
        a = self.saying(rng, split, genre, "state")
        pair = self._pair(rng, split, genre, grade, (fact, other), a)
        gold = {"genre": genre, "grade": grade}
        return {"text": a.say(rng, fact), "pair": pair, "label": float(grade), "gold": gold}

    def _pair(
        self,
        rng: random.Random,
        split: str,
        genre: str,
        grade: int,
        facts: tuple[Env, Env],
        text: Saying,
    ) -> str:
        """The second text, for a grade of likeness to the first."""
        fact, other = facts
        if grade == 5:
            words = until(
                lambda: self.saying(rng, split, genre, "state", text.parts),
                lambda saying: saying.template.text != text.template.text,
            )
            return words.say(rng, fact | {"v": fact["s"]})
        if grade == 4:
            return self._shorter(rng, split, genre, text).say(rng, fact)
        if grade == 3:
            part = rng.choice(exchangeable(genre, text.parts))
            return text.say(rng, exchange(fact, other, part))
        if grade == 2:
            if genre in ROLES:
                return text.say(rng, reverse(fact))
            return text.say(rng, other | {part: fact[part] for part in "OF"})
        return self._elsewhere(rng, split, genre, fact, same_person=grade == 1)

    def _shorter(self, rng: random.Random, split: str, genre: str, a: Saying) -> Saying:
        """A sentence that still says what was done, but not to or by whom, or not where."""
        return until(
            lambda: self.saying(rng, split, genre, "again"),
            lambda b: b.parts < a.parts and re.search(r"\{[vs]\.", b.template.text),
        )

    def _elsewhere(
        self, rng: random.Random, split: str, genre: str, fact: Env, *, same_person: bool
    ) -> str:
        """Another deed, with nothing of this one but perhaps its person."""
        other = rng.choice([g for g in GRADED if g != genre])
        new = until(
            lambda: self.casting.scene(rng, split, other, 1)[0],
            lambda new: (
                not any(new[a] is fact[b] for a, b in ("XX", "XY", "YX", "YY", "OO", "PP", "FF"))
            ),
        )
        if same_person:
            new = new | {"X": fact["X"]}
        return self.saying(rng, split, other, "state").say(rng, new)


CONTENT = ("NOUN", "VERB", "ADJ", "ADV")


class WordInContext(TownTask):
    """Sentences of senses.tsv, which documents have, and of wic.tsv, which none has.

    Two sentences of one sense share no noun, verb or adjective but the word itself, so that shared
    words do not tell. In the test split every second row is about a word that training does not ask
    about (every fourth word is kept)."""

    columns = ("text", "pair", "word", "label")
    labels = ("different", "same")
    group = 2

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        sentences: dict[tuple[str, str], list[SentenceTemplate]] = defaultdict(list)
        for template, target, sense in writer.senses:
            sentences[target, sense].append(template)
        for row in read_table("wic.tsv", ("word", "sense", "sentence"), self.lexicon.folder):
            if (row["word"], row["sense"]) not in sentences:
                raise CourseError(
                    f"wic.tsv: {row['word']}/{row['sense']} is not in senses.tsv; add it there."
                )
            sentences[row["word"], row["sense"]].append(
                self.template(row["sentence"].replace("{X}", "{A}"))
            )
        # Word -> sense -> pairs of sentences that share no content.
        self.pairs: dict[str, dict[str, list[tuple[SentenceTemplate, SentenceTemplate]]]] = (
            defaultdict(dict)
        )
        for (target, sense), found in sentences.items():
            content = {template.text: self._content(template) - {target} for template in found}
            pairs = [
                (a, b) for a, b in permutations(found, 2) if not content[a.text] & content[b.text]
            ]
            if pairs:
                self.pairs[target][sense] = pairs
        targets = sorted(target for target, senses in self.pairs.items() if len(senses) > 1)
        self.targets = {
            True: targets[::4],
            False: [target for i, target in enumerate(targets) if i % 4],
        }

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        label, rng = balanced(rng, member, 2)
        target = rng.choice(self.targets[split == "test" and rng.random() < 0.5])
        senses = self.pairs[target]
        first, second = rng.sample(sorted(senses), 2)
        one, two = rng.choice(senses[first])
        if not label:
            two = rng.choice(senses[second])[1]
        people = self.casting.some(rng, self.lexicon.people, 2, split)
        text, pair = (
            template.render(rng, {"A": self.lexicon.people[person]})[0].text
            for template, person in zip((one, two), people, strict=True)
        )
        gold = {"senses": [first, first if label else second]}
        return {"text": text, "pair": pair, "word": target, "label": label, "gold": gold}

    def _content(self, template: SentenceTemplate) -> set[str]:
        """The sentence's content words, without a plural's s."""
        sentence = template.render(random.Random(0), {"A": self.lexicon.people[0]})[0]
        tagged = zip(sentence.words, sentence.tags, strict=True)
        return {token.lower().rstrip("s") for token, tag in tagged if tag in CONTENT}
