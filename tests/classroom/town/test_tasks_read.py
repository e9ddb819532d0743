"""The world's tasks done again by another reader, which knows the lexicon and none of the
templates.
"""

import re
from collections import Counter
from typing import Any

import pytest

from classroom.town.tasks.prompted import spell
from tests.classroom.town.reader import sentences, words

Row = dict[str, Any]
ROLES = ("gift", "help")  # genres in which two people could change places
BOTH = pytest.mark.parametrize("split", ["train", "test"])


@BOTH
def test_nli(world, reader, split):
    """Who did what where is read off the premise again; the label follows by the world's rule."""
    got, lost = (
        {v[f][0][0] for v in world.lexicon.pools[k].items for f in ("past", "part")}
        for k in ("get", "lose")
    )
    seen = Counter()
    for row in world.task("nli", 600, split, gold=True):
        gold, no = row["gold"], row["gold"]["polarity"] == "no"
        person, _, thing, place = gold["asked"]
        deeds = [
            s
            for s in sentences(row["text"])
            if not re.search(r"^The \w+ was \w+\.$|\b(likes|told|saw the)\b", s)
        ]
        (own, *_) = [s for s in deeds if {person, thing} <= reader.fact(s).words] or [""]
        if gold["about"] == "thing":
            done = any(thing in reader.fact(s).words for s in deeds)
            truth = "neutral" if not done else "yes" if own else "no"
        elif gold["about"] == "place":
            said = reader.fact(own).words & reader.kinds["P"]
            truth = "neutral" if not said else "yes" if place in said else "no"
        else:
            truth = "yes" if {*words(own)} & got else "no" if {*words(own)} & lost else "neutral"
        label = (
            "neutral"
            if truth == "neutral"
            else "entailment"
            if (truth == "yes") != no
            else "contradiction"
        )
        assert world.label_names("nli")[row["label"]] == label, row
        assert {person, thing} & {*words(row["pair"])} and bool(
            re.search(r"\bnot\b|no longer", row["pair"])
        ) == no
        seen[gold["about"], row["label"]] += 1
    assert len(seen) == 9 and min(seen.values()) > 20


@BOTH
def test_rte(world, reader, split):
    """Entailed if a sentence of the text says it, by the same person."""
    for row in world.task("rte", 300, split, gold=True):
        (asked,) = [reader.fact(row["pair"])]
        known = [reader.fact(s) for s in sentences(row["text"])]
        two = len(asked.words & reader.kinds["X"]) == 2
        true = any(
            asked.words <= k.words
            and (not two or row["gold"]["genre"] == "trip" or asked.agent == k.agent)
            for k in known
        )
        assert row["label"] == (not true), row


@BOTH
def test_paraphrase(world, reader, split):
    """A paraphrase says the same facts, with the same people doing them."""
    for row in world.task("paraphrase", 300, split, gold=True):
        roles = row["gold"]["genre"] in ROLES
        one, two = (
            Counter(
                (f.words, f.agent if roles and len(f.words & reader.kinds["X"]) == 2 else "")
                for f in (reader.fact(s) for s in sentences(row[side]))
            )
            for side in ("text", "pair")
        )
        assert (one == two) == bool(row["label"]), row


@BOTH
def test_nli_mismatched(world, reader, split):
    """Neutral if it is about the fact of which the least is said, else as with two classes; a
    denial turns it round.
    """
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


@BOTH
def test_qnli(world, reader, split):
    """Answered if a clause has all that the question names, and something of the kind that it asks
    for beside.
    """
    seen = Counter()
    for row in world.task("qnli", 400, split, gold=True):
        gold = row["gold"]
        named = reader.fact(row["text"]).words
        clauses = reader.facts(row["pair"]) if gold["kind"] == "two" else [reader.fact(row["pair"])]
        answered = any(
            named <= f.words and (f.words - named) & reader.kinds[gold["asks"]] for f in clauses
        )
        assert row["label"] == (not answered), row
        seen[gold["kind"], row["label"]] += 1
    assert len(seen) == 4 and min(seen.values()) > 50


@BOTH
def test_pronouns(world, split):
    gender = {p[""][0][0]: p["he"][0][0] for p in world.lexicon.people}
    seen = Counter()
    for row in world.task("pronouns", 300, split, gold=True):
        people = [w for w in re.findall(r"\w+", row["text"]) if w in gender][:2]
        names = [
            next(w for w in re.findall(r"\w+", choice) if w in people) for choice in row["choices"]
        ]
        assert set(names) == set(people), row
        if gender[people[0]] != gender[people[1]]:
            pronoun = (
                re.search(r"\b(he|she|his|her|him)\b", row["text"], re.IGNORECASE).group().lower()
            )
            meant = next(
                p
                for p in people
                if gender[p] == {"his": "he", "him": "he", "her": "she"}.get(pronoun, pronoun)
            )
        else:
            giver = re.search(r"by (\w+) because", row["text"])
            giver = giver.group(1) if giver else people[0]
            meant = (
                giver if "did not need" in row["text"] else next(p for p in people if p != giver)
            )
        assert names[row["label"]] == meant, row
        seen[row["gold"]["kind"], row["label"]] += 1
    assert len(seen) == 6 and min(seen.values()) > 15


@BOTH
def test_cloze(world, reader, split):
    """With the right word the last sentence says what another one says, with no other word it
    does.
    """
    for row in world.task("cloze", 200, split, gold=True):
        *story, last = sentences(row["text"])
        known = [reader.fact(s) for s in story]
        true = [
            any(reader.fact(f"{last} {c}.").words <= k.words for k in known) for c in row["choices"]
        ]
        assert true == [i == row["label"] for i in range(3)], row
        assert row["choices"][row["label"]] == row["answer"]


@BOTH
def test_retrieval(world, reader, split):
    """In the positive alone one sentence has all that the question names; all passages have the
    same words.
    """
    for row in world.task("retrieval", 150, split):
        named = reader.fact(row["query"]).words
        passages = [row["positive"], *row["negatives"]]
        assert len(set(passages)) == 4
        facts = [[reader.fact(s) for s in sentences(p)] for p in passages]
        assert [any(named <= f.words for f in some) for some in facts] == [
            True,
            False,
            False,
            False,
        ], row
        assert len({frozenset().union(*(f.words for f in some)) for some in facts}) == 1


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
                assert row["pair"][row["start"] :].startswith(row["answer"]) and row["answers"] == [
                    row["answer"]
                ]
                assert row["answer"] in about[0] and len(about) == 1, row
                said = {f"in {row['answer']}", *re.findall(r"\w+", row["answer"])}
                assert said & reader.kinds[row["gold"]["asks"]], row
            else:
                assert row["start"] == -1 and row["answers"] == []
            seen[name, answered] += 1
    assert seen == {
        ("questions", True): 200,
        ("questions-open", True): 100,
        ("questions-open", False): 100,
    }


@BOTH
@pytest.mark.parametrize("name", ["arithmetic", "arithmetic-words"])
def test_arithmetic(world, name, split):
    back = {spell(n): n for n in range(2000)}
    for row in world.task(name, 200, split):
        text = row["text"].removeprefix("What is ").removesuffix("?")
        if name == "arithmetic":
            for word, sign in (("plus", "+"), ("minus", "-"), ("times", "*")):
                text = text.replace(word, sign)
            assert eval(text) == int(row["target"]), row
        elif row["kind"] in ("2D+", "3D+"):
            assert back[row["target"]] == sum(back[part] for part in text.split(" plus ")), row


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (13, "thirteen"),
        (-48, "minus forty-eight"),
        (105, "one hundred and five"),
        (48_002, "forty-eight thousand and two"),
    ],
)
def test_numbers_in_words(number, words):
    assert spell(number) == words


def test_no_problem_of_the_test_split_is_in_training(world):
    train, test = (
        {row["text"] for row in world.task("arithmetic", 4000, split)}
        for split in ("train", "test")
    )
    assert not train & test
