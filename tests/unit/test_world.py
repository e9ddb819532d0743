"""The generated world: documents and probes are what they claim, for ever the same, and hold back what they should."""

import hashlib
import random
import re
import shutil
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from course_lib.data.world import World
from course_lib.data.world.facts import held_out, held_pair
from course_lib.data.world.lexicon import FOLDER
from course_lib.errors import CourseError

# The documents that the shipped checkpoints learned from: SHA-256 of the first 200 texts of each split, world 0.
FINGERPRINTS = {
    "train": "29cebf9b7a73ccb1433cebbc7c69effbaafdf44cc041b05678954d47fa079347",
    "validation": "e74fcf16f3f2b2f63a9507a0425270adcd4ff44b962d5d3dd360add921584640",
    "test": "e1c22586322223e3c8fd58d48a12066a98bb550ae2d4a61a61f493373c01ed93",
}
TAGS = {"PUNCT", "DET", "NOUN", "PROPN", "VERB", "ADP", "AUX", "PRON"}
TAGS |= {"ADV", "ADJ", "CCONJ", "PART", "SCONJ", "INTJ", "NUM"}
KINDS = {"PERSON", "LOC", "ORG", "WORK"}


@pytest.fixture(scope="module")
def world() -> World:
    return World(0)


@pytest.fixture(scope="module")
def documents(world: World) -> list[dict[str, Any]]:
    return world.documents(2000)


def index(items: list[Any]) -> dict[str, int]:
    return {item[""][0][0]: i for i, item in enumerate(items)}


def people_of(document: dict[str, Any]) -> set[str]:
    return {t for t, e in zip(document["tokens"], document["entities"], strict=True) if e == "B-PERSON"}


# -- the same for ever ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", FINGERPRINTS)
def test_documents_are_those_of_the_checkpoints(world, split):
    texts = "\n".join(document["text"] for document in world.documents(200, split))
    assert hashlib.sha256(texts.encode()).hexdigest() == FINGERPRINTS[split]


def test_a_document_depends_on_its_number_only(world):
    many = world.documents(20, "validation", seed=3)
    assert World(0).document(13, "validation", seed=3) == many[13]


@pytest.mark.parametrize("other", [World(1).document(0), World(0).document(0, "test"), World(0).document(0, seed=1)])
def test_another_seed_or_split_is_another_text(world, other):
    assert world.document(0)["text"] != other["text"]


# -- what a document is -----------------------------------------------------------------------------------------


def test_annotations_fit_the_text(documents):
    for d in documents[:500]:
        assert " ".join(d["sentences"]) == d["text"]
        assert re.findall(r"'s|\w+|[^\w\s]", d["text"]) == d["tokens"]
        assert len(d["tokens"]) == len(d["tags"]) == len(d["entities"])
        assert set(d["tags"]) <= TAGS
        for before, mark in zip(["O", *d["entities"]], d["entities"], strict=False):
            assert mark == "O" or mark[2:] in KINDS
            assert not mark.startswith("I-") or before[2:] == mark[2:]
        assert all(s[0].isupper() and s[-1] in ".?" and " ." not in s for s in d["sentences"])


def test_parts_of_speech_follow_the_context(world, documents):
    """The same word has its own part of speech in each use."""
    uses = defaultdict(set)
    for d in documents:
        for token, tag in zip(d["tokens"], d["tags"], strict=True):
            uses[token.lower()].add(tag)
    expected = {"saw": "NOUN VERB", "light": "NOUN ADJ", "that": "SCONJ DET PRON", "rose": "NOUN PROPN VERB"}
    expected |= {"to": "ADP PART", "had": "AUX VERB", "watch": "NOUN VERB"}
    for word, tags in expected.items():
        assert set(tags.split()) <= uses[word], word


def test_lengths(documents):
    tokens = sorted(len(d["tokens"]) for d in documents)
    assert 75 <= sum(tokens) / len(tokens) <= 90
    assert tokens[int(0.95 * len(tokens))] <= 110 and tokens[-1] <= 150
    assert all(4 <= len(d["sentences"]) <= 30 for d in documents)


def test_half_of_all_sentences_come_back_to_something_said(documents):
    """A sentence comes back if it names two parts of a fact (or a review's thing) that were named before."""
    back = total = 0
    for d in documents:
        parts = {w for fact in d["facts"] for w in fact[::2]}
        seen: set[str] = set()
        for sentence in d["sentences"]:
            words = " ".join(re.findall(r"\w+", sentence))
            named = {part for part in parts if f" {part} " in f" {words} "}
            back += len(named & seen) >= 1 and not named - seen
            total += 1
            seen |= named
    assert back / total >= 0.5


def test_facts_compete(documents):
    for d in documents:
        subjects = [fact[0] for fact in d["facts"]]
        assert len(set(subjects)) >= 2
        assert d["genre"] and all(len(fact) == 3 for fact in d["facts"])


def test_vocabulary_and_senses(documents):
    assert len({t.lower() for d in documents for t in d["tokens"]}) >= 2000
    senses = defaultdict(set)
    for d in documents:
        for mark in d["senses"]:
            word, sense = mark["sense"].split("/")
            assert d["tokens"][mark["token"]].lower() == word
            senses[word].add(sense)
    assert sum(len(found) >= 2 for found in senses.values()) >= 24


def test_names_cannot_be_guessed(world, documents):
    """Many people, objects, places, none of them common."""
    assert len(world.lexicon.people) >= 300 and len(world.lexicon.objects) >= 200 and len(world.lexicon.places) >= 80
    counts: dict[str, int] = defaultdict(int)
    for d in documents:
        for name in people_of(d):
            counts[name] += 1
    assert max(counts.values()) / sum(counts.values()) < 0.01


def test_agreement_is_strict(world, documents):
    """Verbs behind a phrase with a distractor, read off the text again, agree with the head noun."""
    one, many, third, base = (set() for _ in range(4))
    for pool in ("animal", "kin", "job"):
        for item in world.lexicon.pools[pool].items:
            one.add(item[""][0][0])
            many.add(item["pl"][0][0])
    for pool in ("intr", "beast"):
        for item in world.lexicon.pools[pool].items:
            third.add(item["third"][0][0])
            base.add(item["base"][0][0])
    either = one & many
    checked = 0
    for d in documents:
        for head, verb in re.findall(r"The (\w+) near the \w+ (\w+)(?: every day)?\.", d["text"]):
            if head in either or verb not in third | base:
                continue
            checked += 1
            assert (verb in third) == (head in one), (head, verb)
    assert checked > 50


def test_articles(world, documents):
    nouns = [item["a"][0] for kind in ("object", "animal", "job") for item in world.lexicon.pools[kind].items]
    found = re.findall(r"\b([Aa]n?) ([a-z]+)", " ".join(d["text"] for d in documents))
    for article, word in [*nouns, *found]:
        vowel = (word[0] in "aeiou" or word in ("honest", "hour", "hourglass")) and not word.startswith(("use", "uni"))
        assert (article.lower() == "an") == vowel, (article, word)
    assert len(found) > 500


def test_reflexives_agree(world, documents):
    sex = {p[""][0][0]: p["himself"][0][0] for p in world.lexicon.people}
    found = re.findall(r"(\w+) \w+ (himself|herself) while", " ".join(d["text"] for d in documents))
    assert len(found) > 10
    assert all(sex[name] == pronoun for name, pronoun in found)


# -- what training never shows ----------------------------------------------------------------------------------


def test_held_out_people_and_places_are_met_in_the_test_split_only(world, documents):
    people, places = index(world.lexicon.people), index(world.lexicon.places)
    for split, some in {"train": documents, "validation": world.documents(500, "validation")}.items():
        met = {name for d in some for name in people_of(d)}
        assert not {name for name in met if held_out(people[name])}, split
        at = {fact[2] for d in some for fact in d["facts"] if fact[1] == "at"}
        assert not {place for place in at if held_out(places[place])}, split
    tests = world.documents(500, "test")
    assert len({name for d in tests for name in people_of(d) if held_out(people[name])}) > 20


def test_held_out_objects_and_pairs_are_in_no_training_fact(world, documents):
    people, objects = index(world.lexicon.people), index(world.lexicon.objects)

    def pairs(some: list[dict[str, Any]]) -> list[tuple[int, int]]:
        return [
            (people[f[0]], objects[f[2]])
            for d in some
            if d["genre"] in ("deed", "gift", "keep")
            for f in d["facts"]
            if f[0] in people and f[2] in objects and f[1] != "at"
        ]

    train = pairs(documents)
    assert len(train) > 1000
    assert not [pair for pair in train if held_pair(*pair) or held_out(pair[1])]
    validation = pairs(world.documents(500, "validation"))
    assert [pair for pair in validation if held_pair(*pair)] and not [p for p in validation if held_out(p[1])]
    assert [pair for pair in pairs(world.documents(500, "test")) if held_out(pair[1])]


def test_held_out_templates(world, documents):
    held = ("was the person who had", "As everyone knows", "is the owner of", "After his walk", "After her walk")
    text = " ".join(d["text"] for d in documents)
    assert not [phrase for phrase in held if phrase in text]
    text = " ".join(d["text"] for d in world.documents(800, "test"))
    assert [phrase for phrase in held if phrase in text] == list(held)


# -- probes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["name", "object", "place"])
@pytest.mark.parametrize("facts", [2, 4])
def test_copy_probe_is_decided_by_its_context(world, kind, facts):
    people, objects = index(world.lexicon.people), index(world.lexicon.objects)
    first = 0
    for item in (items := world.probe(200, seed=1, kind=kind, facts=facts)):
        stated = re.split(r"(?<=\.) ", item["context"])
        assert len(stated) == facts
        assert item["sentence"].startswith(item["prefix"] + " " + item["answer"])
        # What the prefix names stands in one of the stated facts only, and the answer in the same.
        cue = {w for w in re.findall(r"\w+", item["prefix"]) if w in people or w in objects}
        fits = [s for s in stated if cue <= set(re.findall(r"\w+", s))]
        assert len(fits) == 1 and re.search(rf"\b{item['answer']}\b", fits[0])
        assert sum(bool(re.search(rf"\b{item['answer']}\b", s)) for s in stated) == 1
        first += fits[0] == stated[0]
        for sentence in stated:
            words = re.findall(r"\w+", sentence)
            persons = [people[w] for w in words if w in people]
            things = [objects[w] for w in words if w in objects]
            assert any(held_pair(person, thing) for person in persons for thing in things)
    assert abs(first / len(items) - 1 / facts) < 0.12
    assert len({item["answer"] for item in items}) > 50


def test_probe_is_deterministic(world):
    assert world.probe(10, 5, "name") == World(0).probe(20, 5, "name")[:10]
    assert world.probe(10, 5, "name") != world.probe(10, 6, "name")


@pytest.mark.parametrize("side", ["left", "right", "both"])
def test_evidence_stands_where_it_says(world, side):
    for item in world.evidence(100, side=side):
        before, after = item["text_before"], item["text_after"]
        named = [bool(re.search(rf"\b{item['answer']}\b", part)) for part in (before, after)]
        assert named == {"left": [True, False], "right": [False, True], "both": [True, False]}[side]
        if side == "both":  # the person who decides comes behind the gap
            (person,) = re.findall(r"by (\w+)\.$", after)
            assert re.search(rf"\b{person}\b", before)
        assert (before + " " + item["answer"] + after).count("  ") == 0


# -- bad input --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda w: w.documents(1, "dev"), "no split 'dev'.*train, validation, test"),
        (lambda w: w.documents(-1), "n is -1"),
        (lambda w: w.probe(1, kind="verb"), "no kind 'verb'.*name, object, place"),
        (lambda w: w.probe(1, facts=1), "at least 2"),
        (lambda w: w.evidence(1, side="above"), "no side 'above'.*left, right, both"),
    ],
)
def test_a_wrong_name_is_said(world, call, words):
    with pytest.raises(CourseError, match=words):
        call(world)


def broken(tmp_path: Path, table: str, old: str, new: str) -> Path:
    folder = tmp_path / "world"
    shutil.copytree(FOLDER, folder)
    text = (folder / table).read_text(encoding="utf-8")
    assert old in text
    (folder / table).write_text(text.replace(old, new, 1), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("table", "old", "new", "words"),
    [
        ("names.tsv", "Anna\tf\n", "Anna\n", "names.tsv, line 2, has 1 cells"),
        ("names.tsv", "Anna\tf\n", "Anna\tx\n", "'Anna' the gender 'x'"),
        ("places.tsv", "word\tprep", "word\tpreposition", "needs .*'word', 'prep'"),
        ("verbs.tsv", "\tpurchase\n", "\tsnatch\n", "'snatch' as synonym of 'buy'"),
        ("opinions.tsv", "food\tpositive", "food\tnice", "polarity positive or negative"),
        ("templates.tsv", "{X} {v.past} the {O} .", "{X} {v.past} teh {O} .", "'teh'.*no part of speech"),
        ("templates.tsv", "{adj.weather}", "{adj.wether}", "adj.wether.*neither"),
        ("templates.tsv", "{animal.pl}", "{animal.past}", "asks for a form that its pool lacks"),
        ("templates.tsv", "next\t", "nxet\t", None),
        ("templates.tsv", "deed.state\t1", "deed.state\tone", "whole number"),
        ("senses.tsv", "bank/NOUN", "bank", "'bank'.*no part of speech"),
        ("senses.tsv", "put the money in the bank/NOUN", "put the money in the bag/NOUN", "does not mark bank"),
    ],
)
def test_a_broken_row_is_said(tmp_path, table, old, new, words):
    folder = broken(tmp_path, table, old, new)
    if words is None:  # one row fewer in a group is no error, none at all is
        path = folder / table
        path.write_text(path.read_text().replace("\nnext\t", "\nnxet\t"))
        words = "no template for next"
    with pytest.raises(CourseError, match=words) as caught:
        World(folder=folder)
    assert "\n" not in str(caught.value)


def test_a_missing_table_is_said(tmp_path):
    with pytest.raises(CourseError, match=r"names\.tsv is missing|words\.tsv is missing"):
        World(folder=tmp_path)


def test_a_teachers_row_is_used(tmp_path):
    folder = broken(tmp_path, "names.tsv", "Anna\tf\n", "Anna\tf\nBrunhilde\tf\n")
    world = World(folder=folder)  # the name may be one that is held out
    texts = " ".join(d["text"] for split in ("train", "test") for d in world.documents(800, split))
    assert "Brunhilde" in texts


# -- speed ------------------------------------------------------------------------------------------------------


def test_writing_is_quick(world):
    """Against reading the same text with a regular expression, word by word, the best of three rounds each."""

    def seconds(call: Any) -> float:
        rounds = []
        for _ in range(3):
            start = time.process_time()
            call()
            rounds.append(time.process_time() - start)
        return min(rounds)

    texts = [d["text"] for d in world.documents(300)]
    pattern = re.compile(r"\w+|[^\w\s]")
    reading = seconds(lambda: [[random.random() for _ in pattern.findall(text)] for text in texts])
    assert seconds(lambda: world.documents(300)) < 20 * reading
