"""The world's tasks done again by another reader: regular expressions and the lexicon, none of the grammar's templates.

A sentence is read as the set of the lexicon's people, things and places in it and, where two people are in it, who did
it to whom. What a hypothesis, a question or a paraphrase says is true if some sentence says at least that.
"""

import re
from collections import Counter, defaultdict
from typing import Any, NamedTuple

import pytest

from course_lib.data.world import World
from course_lib.data.world.lexicon import read_table
from course_lib.data.world.tasks.arithmetic import spell

Row = dict[str, Any]
ROLES = ("gift", "help")  # genres in which two people could change places
BOTH = pytest.mark.parametrize("split", ["train", "test"])


class Fact(NamedTuple):
    """What a sentence says: the words of the lexicon in it, and who did it."""

    words: frozenset[str]
    agent: str


class Reader:
    """Reads sentences with the lexicon of a world."""

    def __init__(self, world: World) -> None:
        lexicon = world.lexicon
        pools = {"X": lexicon.people, "O": lexicon.objects, "P": lexicon.places, "F": lexicon.foods}
        pools |= {"L": lexicon.towns, "J": lexicon.jobs}
        self.kinds = {kind: {" ".join(item[""][0]) for item in items} for kind, items in pools.items()}
        self.kinds["Y"] = self.kinds["X"]
        self.towns, self.kinds["L"] = self.kinds["L"], {f"in {town}" for town in self.kinds["L"]}
        self.known = set().union(*self.kinds.values())
        times = sorted((" ".join(item[""][0]) for item in lexicon.pools["adv.time"].items), key=len, reverse=True)
        self.time = re.compile(rf"(^|, while )(?:{'|'.join(map(re.escape, times))}), ", re.IGNORECASE)

    def plain(self, sentence: str) -> str:
        """The sentence without when it was."""
        return self.time.sub(r"\1", sentence)

    def meant(self, before: str, word: str) -> str:
        """A town as "in Florence", for there are people of that name; not the verb of "did he cook"."""
        if before == "in" and word in self.towns:
            return f"in {word}"
        verb = word in self.kinds["J"] - self.kinds["O"] and before.lower() not in ("a", "an", "the")
        return "" if verb else word

    def fact(self, sentence: str) -> Fact:
        sentence = self.plain(sentence)
        tokens = re.findall(r"\w+", sentence)
        words = [self.meant(before, word) for before, word in zip(["", *tokens], tokens, strict=False)]
        words = [word for word in words if word in self.known]
        people = [w for w in words if w in self.kinds["X"]]
        agent = people[0] if people else ""
        if found := re.search(r"\bby (\w+)(?:[.,]| (?:in|at|on|by|for)\b)|\bwhom (\w+)", sentence):
            agent = next(name for name in found.groups() if name)
        elif re.search(r"\bthanked (\w+) for the ", sentence):
            agent = people[1]
        return Fact(frozenset(words), agent)

    def facts(self, text: str) -> list[Fact]:
        """Of every sentence, and of both halves of one that says two facts."""
        return [
            self.fact(clause) for s in sentences(text) for clause in re.split(r", (?:and|while|but) (?=\w+ .*\w)", s)
        ]


def sentences(text: str) -> list[str]:
    return re.split(r"(?<=[.?]) ", text)


@pytest.fixture(scope="module")
def world() -> World:
    return World(0)


@pytest.fixture(scope="module")
def reader(world: World) -> Reader:
    return Reader(world)


# -- two texts --------------------------------------------------------------------------------------------------


@BOTH
def test_rte(world, reader, split):
    """Entailed if a sentence of the text says it, by the same person."""
    for row in world.task("rte", 300, split, gold=True):
        (asked,) = [reader.fact(row["pair"])]
        known = [reader.fact(s) for s in sentences(row["text"])]
        two = len(asked.words & reader.kinds["X"]) == 2
        true = any(
            asked.words <= k.words and (not two or row["gold"]["genre"] == "trip" or asked.agent == k.agent)
            for k in known
        )
        assert row["label"] == (not true), row


@BOTH
def test_paraphrase(world, reader, split):
    """A paraphrase says the same facts, with the same people doing them."""
    for row in world.task("paraphrase", 300, split, gold=True):
        roles = row["gold"]["genre"] in ROLES
        one, two = (
            Counter((f.words, f.agent if roles and len(f.words & reader.kinds["X"]) == 2 else "") for f in
                    (reader.fact(s) for s in sentences(row[side])))
            for side in ("text", "pair")
        )  # fmt: skip
        assert (one == two) == bool(row["label"]), row


@BOTH
def test_similarity(world, reader, split):
    for row in world.task("similarity", 300, split):
        one, two = reader.fact(row["text"]), reader.fact(row["pair"])
        shared, grade = one.words & two.words, row["label"]
        if grade == 5:
            assert one == two, row
        elif grade == 4:
            assert two.words < one.words, row
        elif grade == 3:
            assert len(one.words) == len(two.words) == len(shared) + 1, row
        elif grade == 2:
            if one.words == two.words:
                assert {one.agent, two.agent} <= shared and one.agent != two.agent, row
            else:
                assert len(shared) == 1 and shared <= reader.kinds["O"] | reader.kinds["F"], row
        else:
            assert shared == ({one.agent} if grade else frozenset()), row


@BOTH
def test_nli_mismatched(world, reader, split):
    """Neutral if it is about the fact of which the least is said, else as with two classes; a denial turns it round."""
    seen = Counter()
    for row in world.task("nli-mismatched", 300, split, gold=True):
        premise = [reader.fact(s) for s in sentences(row["text"])]
        denial = row["pair"].startswith("It is not true that ")
        asked = reader.fact(row["pair"].removeprefix("It is not true that "))
        short = min(premise, key=lambda f: len(f.words))
        if asked.words & short.words:
            label = "neutral"
        else:
            true = any(asked.words <= f.words for f in premise)
            label = "entailment" if true != denial else "contradiction"
        assert world.label_names("nli-mismatched")[row["label"]] == label, row
        seen[row["label"], denial] += 1
    assert len(seen) == 6


def test_nli_mismatched_is_another_genre(world):
    verbs = {" ".join(v["base"][0]) for kind in ("fix", "break", "look") for v in world.lexicon.pools[kind].items}
    asked = {row["gold"]["asked"][1] for row in world.task("nli", 300, gold=True)}
    assert asked & verbs
    assert {row["gold"]["genre"] for row in world.task("nli-mismatched", 300, gold=True)}.isdisjoint({"deed"})


@BOTH
def test_qnli(world, reader, split):
    """Answered if a clause has all that the question names, and something of the kind that it asks for beside."""
    seen = Counter()
    for row in world.task("qnli", 400, split, gold=True):
        gold = row["gold"]
        named = reader.fact(row["text"]).words
        clauses = reader.facts(row["pair"]) if gold["kind"] == "two" else [reader.fact(row["pair"])]
        answered = any(named <= f.words and (f.words - named) & reader.kinds[gold["asks"]] for f in clauses)
        assert row["label"] == (not answered), row
        seen[gold["kind"], row["label"]] += 1
    assert len(seen) == 4 and min(seen.values()) > 50


@BOTH
def test_word_in_context(world, split):
    """The senses by the tables."""

    def pattern(row: Row) -> re.Pattern[str]:
        plain = (
            " ".join(part.partition("/")[0] for part in row["sentence"].split())
            .replace(" .", ".")
            .replace(" ,", ",")
            .replace(" ?", "?")
        )
        plain = plain[0].upper() + plain[1:]
        return re.compile(re.escape(plain).replace(r"\{X\}", r"\w+"))

    columns = ("word", "sense", "sentence")
    known, new = (
        [(pattern(r), f"{r['word']}/{r['sense']}") for r in read_table(t, columns)] for t in ("senses.tsv", "wic.tsv")
    )
    for row in world.task("wic", 100, split):
        found = [
            [s for p, s in known + new if p.fullmatch(row[side]) and s.startswith(row["word"])]
            for side in ("text", "pair")
        ]
        assert all(len(set(senses)) == 1 for senses in found), row
        assert (found[0][0] == found[1][0]) == bool(row["label"]), row
        assert row["text"] != row["pair"]


# -- choices ----------------------------------------------------------------------------------------------------


@BOTH
def test_pronouns(world, split):
    gender = {p[""][0][0]: p["he"][0][0] for p in world.lexicon.people}
    seen = Counter()
    for row in world.task("pronouns", 300, split, gold=True):
        people = [w for w in re.findall(r"\w+", row["text"]) if w in gender][:2]
        names = [next(w for w in re.findall(r"\w+", choice) if w in people) for choice in row["choices"]]
        assert set(names) == set(people), row
        if gender[people[0]] != gender[people[1]]:
            pronoun = re.search(r"\b(he|she|his|her|him)\b", row["text"], re.IGNORECASE).group().lower()
            meant = next(
                p for p in people if gender[p] == {"his": "he", "him": "he", "her": "she"}.get(pronoun, pronoun)
            )
        else:
            giver = re.search(r"by (\w+) because", row["text"])
            giver = giver.group(1) if giver else people[0]
            meant = giver if "did not need" in row["text"] else next(p for p in people if p != giver)
        assert names[row["label"]] == meant, row
        seen[row["gold"]["kind"], row["label"]] += 1
    assert len(seen) == 6 and min(seen.values()) > 15


@BOTH
def test_cloze(world, reader, split):
    """With the right word the last sentence says what another one says, with no other word it does."""
    for row in world.task("cloze", 200, split, gold=True):
        *story, last = sentences(row["text"])
        known = [reader.fact(s) for s in story]
        true = [any(reader.fact(f"{last} {c}.").words <= k.words for k in known) for c in row["choices"]]
        assert true == [i == row["label"] for i in range(3)], row
        assert row["choices"][row["label"]] == row["answer"]


@BOTH
def test_retrieval(world, reader, split):
    """In the positive alone one sentence has all that the question names; all passages have the same words."""
    for row in world.task("retrieval", 150, split):
        named = reader.fact(row["query"]).words
        passages = [row["positive"], *row["negatives"]]
        assert len(set(passages)) == 4
        facts = [[reader.fact(s) for s in sentences(p)] for p in passages]
        assert [any(named <= f.words for f in some) for some in facts] == [True, False, False, False], row
        assert len({frozenset().union(*(f.words for f in some)) for some in facts}) == 1


@BOTH
def test_analogies(world, split):
    """The same step from a to b and from c to the answer, by the endings or by the table."""
    table = {(row["a"], row["b"]) for row in read_table("analogies.tsv", ("relation", "split", "a", "b"))}
    forms = {(" ".join(v["base"][0]), " ".join(v[f][0])): f for pool in world.lexicon.pools.values() for v in pool.items
             for f in ("past", "third", "ing", "part") if "base" in v}  # fmt: skip
    plurals = {
        (" ".join(n[""][0]), " ".join(n["pl"][0]))
        for pool in world.lexicon.pools.values()
        for n in pool.items
        if "pl" in n
    }
    known = {"plural": plurals, "participle": set(forms)} | {
        f: {k for k, v in forms.items() if v == f} for f in ("third", "ing")
    }
    for row in world.task("analogies", 300, split):
        a, b, c = re.fullmatch(r"(\w+) is to (\w+) as (\w+) is to", row["text"]).groups()
        answer = row["choices"][row["label"]]
        pairs = known.get(row["relation"]) or (set(forms) if row["relation"] == "past" else table)
        assert (a.lower(), b) in pairs and (c, answer) in pairs, row
        assert len(set(row["choices"])) == 4
        if row["relation"] == "ing":
            assert answer.endswith("ing")


@BOTH
def test_in_context(world, split):
    """The colour of the examples of the same kind; in the control, that of the kind in half of the cases."""
    kind_of: dict[str, set[str]] = defaultdict(set)
    for pool in ("animal", "job", "food", "object", "feel", "kin"):
        for item in world.lexicon.pools[pool].items:
            kind_of[" ".join(item[""][0])].add(pool)
    agree = Counter()
    for name in ("in-context", "in-context-random"):
        for row in world.task(name, 200, split, gold=True):
            shown = re.findall(r"The ([\w ]+?)(?: man)? is (\w+)\.", row["text"])
            assert len(shown) == 6
            asked = kind_of[row["gold"]["asked"]]
            votes = Counter(colour for word, colour in shown if kind_of[word] & asked)
            if name == "in-context":
                assert votes.most_common(1)[0][0] == row["answer"] == row["choices"][row["label"]], row
            agree[name] += sum(votes[row["answer"]] for _ in "1") / sum(votes.values())
    assert agree["in-context"] > 190 and 80 < agree["in-context-random"] < 120


# -- answers, tags, targets -------------------------------------------------------------------------------------


@BOTH
def test_questions(world, reader, split):
    seen = Counter()
    for name in ("questions", "questions-open"):
        for row in world.task(name, 200, split, gold=True):
            named = reader.fact(row["text"]).words
            about = [s for s in sentences(row["pair"]) if named <= reader.fact(s).words]
            answered = row["answer"] != ""
            assert bool(about) == answered == row.get("label", 1), row
            if answered:
                assert row["pair"][row["start"] :].startswith(row["answer"]) and row["answers"] == [row["answer"]]
                assert row["answer"] in about[0] and len(about) == 1, row
                said = {f"in {row['answer']}", *re.findall(r"\w+", row["answer"])}
                assert said & reader.kinds[row["gold"]["asks"]], row
            else:
                assert row["start"] == -1 and row["answers"] == []
            seen[name, answered] += 1
    assert seen == {("questions", True): 200, ("questions-open", True): 100, ("questions-open", False): 100}


def test_parts_of_speech(world):
    """A closed list for the commonest words; words of several senses with two tags; every tag is met."""
    names = world.label_names("pos")
    tags: dict[str, Counter[str]] = defaultdict(Counter)
    for row in world.task("pos", 1500):
        assert len(row["tokens"]) == len(row["labels"])
        for token, label in zip(row["tokens"], row["labels"], strict=True):
            tags[token.lower()][names[label]] += 1
    closed = {"the": "DET", ".": "PUNCT", "and": "CCONJ", "of": "ADP", "she": "PRON", "will": "AUX", "because": "SCONJ"}
    for word, tag in closed.items():
        assert tags[word].most_common(1)[0][0] == tag, (word, tags[word])
    people = {p[""][0][0].lower() for p in world.lexicon.people} - {"will", "may", "rose", "dawn", "art", "bill"}
    assert all(set(tags[p]) <= {"PROPN", "NOUN", "ADJ", "VERB"} and tags[p]["PROPN"] for p in people & set(tags))
    double = [w for w, c in tags.items() if len([tag for tag, n in c.items() if n > 2]) > 1]
    assert {"play", "light", "cold"} <= set(double)


@BOTH
def test_summaries(world, reader, split):
    """Each clause of the summary is said by a sentence of the story, and every fact's person is in it."""
    for row in world.task("summaries", 60, split, gold=True):
        clauses = re.split(r", (?:and )?", row["target"].removeprefix("In short, ").removesuffix("."))
        assert len(clauses) == len(row["gold"]["people"])
        story = [reader.fact(s) for s in sentences(row["text"])]
        for clause, person in zip(clauses, row["gold"]["people"], strict=True):
            fact = reader.fact(f"{clause}.")
            assert person in fact.words and len(fact.words) > 1
            assert any(fact.words <= f.words for f in story), row


@BOTH
def test_translation(world, split):
    """Every word of Velin taken apart: its stem's English word stands in the text, and the verb is last."""
    lexicon, task = world.lexicon, None
    world.task("translation", 1)
    task = world._tasks["translation"]
    english: dict[str, set[str]] = defaultdict(set)
    for item in [i for pool in lexicon.pools.values() for i in pool.items] + lexicon.places + lexicon.people:
        if (
            item.get("base", item.get(""))[1][0] == "PROPN"
            or " ".join(item.get("base", item.get(""))[0]) in task.dictionary
        ):
            for form, phrase in item.items():
                if form not in ("he", "him", "his", "himself"):
                    english[task.stem(item)] |= {w.lower() for w in phrase[0]}
    stems = {stem.lower(): words for stem, words in english.items()}
    endings = {"o", "m", "ne", "ti", "sa", "vu", "ro", "rm", "ki", "ta", "lenki"}
    for row in world.task("translation", 200, split):
        text = set(re.findall(r"\w+", row["text"].lower()))
        words = [w for w in re.findall(r"\w+", row["target"].lower()) if w not in ("ka", "nu")]
        for number, word in enumerate(words):
            readings = [(word[:-n], word[-n:]) for n in range(1, 6) if word[-n:] in endings and word[:-n] in stems]
            assert any(stems[stem] & text for stem, _ in readings), (row, word)
            verb = any(ending in ("ki", "ta", "lenki") and stems[stem] & text for stem, ending in readings)
            assert verb or number < len(words) - 1, row
        assert ("ka?" in row["target"]) == row["text"].endswith("?")
        assert (" nu " in row["target"]) == ("not" in text)


def test_velin_has_one_word_for_each(world):
    world.task("translation", 1)
    stems = world._tasks["translation"].dictionary
    assert len(set(stems.values())) == len(stems) > 1000


@BOTH
@pytest.mark.parametrize("name", ["arithmetic", "arithmetic-words"])
def test_arithmetic(world, name, split):
    back = {spell(n): n for n in range(-1000, 1000)}
    for row in world.task(name, 200, split):
        text = row["text"].removeprefix("What is ").removesuffix("?")
        if name == "arithmetic-words":
            if "D+" not in row["kind"] or row["kind"][0] not in "23":
                continue
            one, two = text.split(" plus ")
            assert (
                back[row["target"]] == back[one] + back[two] if row["target"] in back else back[one] + back[two] > 999
            )
            continue
        for word, sign in (("plus", "+"), ("minus", "-"), ("times", "*")):
            text = text.replace(word, sign)
        assert eval(text) == int(row["target"]), row


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "zero"), (13, "thirteen"), (-48, "minus forty-eight"), (105, "one hundred and five"),
        (340, "three hundred and forty"), (48_002, "forty-eight thousand and two"),
        (99_999, "ninety-nine thousand nine hundred and ninety-nine"),
    ],
)  # fmt: skip
def test_numbers_in_words(number, words):
    assert spell(number) == words


def test_no_problem_of_the_test_split_is_in_training(world):
    train, test = ({row["text"] for row in world.task("arithmetic", 4000, split)} for split in ("train", "test"))
    assert not train & test
