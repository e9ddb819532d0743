"""The world's tasks: the labels are true, the test split is new, and nothing but reading gives them
away.
"""

import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from classroom.town.facts import held_out
from classroom.town.lexicon import read_table
from classroom.town.tasks import TASKS
from tests.classroom.town.reader import sentences, words

HELD_OUT = tomllib.loads(Path(__file__).with_name("held_out.toml").read_text())
BALANCED = [
    "acceptability",
    "sentiment",
    "paraphrase",
    "similarity",
    "nli",
    "nli-mismatched",
    "rte",
    "qnli",
    "wic",
    "questions-open",
]
# nobody is in them
NAMELESS = ("arithmetic", "arithmetic-words", "analogies", "in-context", "in-context-random")
Rows = list[dict[str, Any]]


@pytest.mark.parametrize("name", TASKS)
def test_rows(world, again, name):
    rows = world.task(name, 30, "train", seed=2)
    assert rows == again.task(name, 45, "train", seed=2)[:30] and rows != world.task(
        name, 30, "train", seed=3
    )
    assert rows != world.task(name, 30, "validation", seed=2)
    assert [list(row) for row in rows] == [list(TASKS[name].columns)] * 30
    names = world.label_names(name)
    for row in rows:
        labels = row.get("labels", [row["label"]] if "label" in row and names else [])
        assert all(isinstance(x, int) and 0 <= x < len(names) for x in labels)
        assert "tokens" not in row or len(row["tokens"]) == len(labels)
        if "choices" in row:
            assert len(set(row["choices"])) == len(row["choices"]) == len(names)
    assert names == () or any(row.get("label") or row.get("labels") for row in rows)


@pytest.mark.parametrize("name", BALANCED)
def test_labels_are_balanced_exactly(world, name):
    k = len(world.label_names(name)) or 6  # grades of similarity
    counts = Counter(row["label"] for row in world.task(name, 20 * k))
    assert set(counts.values()) == {20} and len(counts) == k


def test_right_choices_stand_everywhere(world):
    for name, task in TASKS.items():
        if "choices" in task.columns:
            places = Counter(row["label"] for row in world.task(name, 400))
            assert min(places.values()) > 0.7 * 400 / len(world.label_names(name)), name


def test_acceptability_pairs(world):
    """Two halves of a pair follow each other, differ, and one of them is a sentence; every rule is
    met.
    """
    rows = world.task("acceptability", 3000, gold=True)
    for a, b in zip(rows[::2], rows[1::2], strict=True):
        assert {a["label"], b["label"]} == {0, 1}
        assert (
            a["text"] != b["text"]
            and a["gold"]["other"] == b["text"]
            and b["gold"]["other"] == a["text"]
        )
        if a["gold"]["rule"] not in ("order", "tense"):
            assert len(words(a["text"])) == len(words(b["text"]))
            assert sum(x != y for x, y in zip(words(a["text"]), words(b["text"]), strict=True)) == 1
    assert {row["gold"]["rule"] for row in rows} == {
        row["rule"] for row in read_table("pairs.tsv", ("rule", "split", "good", "bad"))
    }


def test_sentiment_by_another_reading(world):
    """Each opinion's polarity by rules of its own; all opinions of a review agree with its
    label.
    """
    polarity = {
        row["word"]: row["polarity"] == "positive"
        for row in read_table("opinions.tsv", ("word", "domain", "polarity"))
    }
    for split in ("train", "test"):
        for row in world.task("sentiment", 600, split):
            for sentence in sentences(row["text"])[1:]:
                sentence = sentence[0].lower() + sentence[1:]
                opinions = [
                    (m.start(), polarity[m.group()])
                    for m in re.finditer(r"\w+", sentence)
                    if m.group() in polarity
                ]
                if "was wrong" in sentence or sentence.endswith("was not."):
                    means = not opinions[0][1]
                elif (
                    ", not " in sentence
                    or "although" in sentence
                    or sentence.startswith("in the end")
                ):
                    means = opinions[0][1]
                elif len(opinions) == 2:
                    means = opinions[1][1]
                else:
                    ((start, good),) = opinions
                    before = sentence[:start]
                    negated = re.search(r"\bnot\b|far from|nobody could call|\bless\b", before)
                    means = good != bool(negated)
                assert means == bool(row["label"]), (sentence, row["label"])
                wish = re.search(r"\b(less|more) .* had (hoped|feared)\.", sentence)
                if wish:  # more than hoped, less than feared: praise
                    assert (wish.groups() in {("more", "hoped"), ("less", "feared")}) == bool(
                        row["label"]
                    ), sentence


def test_continuation_from_the_text(world):
    """Exactly one choice says together what one sentence of the text says together."""
    everything = {
        p[""][0][0]
        for items in ("people", "objects", "places", "towns", "foods")
        for p in getattr(world.lexicon, items)
    }
    for split in ("train", "test"):
        for row in world.task("continuation", 200, split, gold=True):
            # a surname may be a town's name
            text = re.sub(r"([A-Z]\w+) [A-Z]\w+(?=,| \w+ed\b)", r"\1", row["text"])
            said = [set(words(s)) for s in sentences(text)]
            true = []
            shared = set.intersection(*(set(words(choice)) for choice in row["choices"]))
            for choice in row["choices"]:
                named = {w for w in words(choice) if w in everything} - shared
                named = {w for w in named if any(w in s for s in said)}
                true.append(any(named <= s for s in said))
            assert true == [i == row["label"] for i in range(4)], row


def parts(row: dict[str, Any]) -> list[str]:
    """All texts of a row."""
    found = [value for key, value in row.items() if key != "gold"]
    return [
        text
        for each in found
        for text in (each if isinstance(each, list) else [each])
        if isinstance(text, str)
    ]


@pytest.mark.parametrize("name", [name for name in TASKS if name not in NAMELESS])
def test_held_out_people(world, name):
    held = {p[""][0][0] for i, p in enumerate(world.lexicon.people) if held_out(i)}
    held -= {t[""][0][0] for t in world.lexicon.towns} | {
        "May",
        "March",
        "June",
        "April",
        "Dawn",
        "Rose",
        "August",
    }

    def met(rows: Rows) -> set[str]:
        return {word for row in rows for part in parts(row) for word in words(part)} & held

    assert not met(world.task(name, 200)) and not met(world.task(name, 200, "validation"))
    assert len(met(world.task(name, 200, "test"))) > 10


@pytest.mark.parametrize("name", ["in-context", "analogies"])
def test_held_out_words(world, name):
    """The test split asks about words that training never asks about."""
    train, test = (
        {
            row["gold"].get("asked") or row["gold"]["pairs"][1]
            for row in world.task(name, 600, split, gold=True)
        }
        for split in ("train", "test")
    )
    assert len(test - train) > 20


@pytest.mark.parametrize(("name", "pattern"), HELD_OUT.items())
def test_held_out_templates(world, name, pattern):
    def found(rows: Rows) -> int:
        texts = [
            row.get("pair") or (row["choices"][0] if "choices" in row else row.get("text"))
            for row in rows
        ]
        if name == "entities":
            texts = [" ".join(row["tokens"]) for row in rows if row["gold"]["source"] != "document"]
        if name in ("qnli", "questions", "retrieval", "pronouns"):
            texts = [row.get("query") or row["text"] for row in rows]
        return sum(bool(re.search(pattern, text)) for text in texts)

    assert not found(world.task(name, 400, gold=True)) and not found(
        world.task(name, 400, "validation", gold=True)
    )
    assert found(world.task(name, 400, "test", gold=True)) > 15
