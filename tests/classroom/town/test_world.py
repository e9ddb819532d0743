"""The generated world: documents and probes are what they claim, for ever the same, and hold back
what they should.
"""

import re
from collections import defaultdict
from typing import Any

import pytest

from classroom.town import World
from classroom.town.facts import held_out, held_pair
from course_lib.errors import CourseError

TAGS = {"PUNCT", "DET", "NOUN", "PROPN", "VERB", "ADP", "AUX", "PRON"}
TAGS |= {"ADV", "ADJ", "CCONJ", "PART", "SCONJ", "INTJ", "NUM"}
KINDS = {"PERSON", "LOC", "ORG", "WORK"}


def index(items: list[Any]) -> dict[str, int]:
    return {item[""][0][0]: i for i, item in enumerate(items)}


def people_of(document: dict[str, Any]) -> set[str]:
    return {
        t for t, e in zip(document["tokens"], document["entities"], strict=True) if e == "B-PERSON"
    }


def test_a_document_depends_on_its_numbers_only(world, again):
    assert again.document(13, "validation", seed=3) == world.documents(20, "validation", seed=3)[13]
    others = World(1).document(0), world.document(0, "test"), world.document(0, seed=1)
    assert world.document(0)["text"] not in {other["text"] for other in others}


def test_annotations_fit_the_text(documents):
    for d in documents[:500]:
        assert (
            " ".join(d["sentences"]) == d["text"]
            and re.findall(r"'s|\w+|[^\w\s]", d["text"]) == d["tokens"]
        )
        assert len(d["tokens"]) == len(d["tags"]) == len(d["entities"]) and set(d["tags"]) <= TAGS
        for before, mark in zip(["O", *d["entities"]], d["entities"], strict=False):
            assert mark == "O" or mark[2:] in KINDS
            assert not mark.startswith("I-") or before[2:] == mark[2:]
        assert all(s[0].isupper() and s[-1] in ".?" and " ." not in s for s in d["sentences"])


def test_vocabulary_and_senses(documents):
    assert len({t.lower() for d in documents for t in d["tokens"]}) >= 2000
    senses = defaultdict(set)
    for d in documents:
        for mark in d["senses"]:
            word, sense = mark["sense"].split("/")
            assert d["tokens"][mark["token"]].lower() == word
            senses[word].add(sense)
    assert sum(len(found) >= 2 for found in senses.values()) >= 24


def test_held_out_people_and_places_are_met_in_the_test_split_only(
    world, documents, held_out_documents
):
    people, places = index(world.lexicon.people), index(world.lexicon.places)
    for split, some in {
        "train": documents,
        "validation": world.documents(500, "validation"),
    }.items():
        met = {name for d in some for name in people_of(d)}
        assert not {name for name in met if held_out(people[name])}, split
        at = {fact[2] for d in some for fact in d["facts"] if fact[1] == "at"}
        assert not {place for place in at if held_out(places[place])}, split
    assert (
        len({name for d in held_out_documents for name in people_of(d) if held_out(people[name])})
        > 20
    )


def test_held_out_objects_and_pairs_are_in_no_training_fact(world, documents, held_out_documents):
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
    assert len(train) > 1000 and not [
        pair for pair in train if held_pair(*pair) or held_out(pair[1])
    ]
    validation = pairs(world.documents(500, "validation"))
    assert [pair for pair in validation if held_pair(*pair)] and not [
        p for p in validation if held_out(p[1])
    ]
    assert [pair for pair in pairs(held_out_documents) if held_out(pair[1])]


def test_held_out_templates(documents, held_out_documents):
    held = (
        "was the person who had",
        "As everyone knows",
        "is the owner of",
        "After his walk",
        "After her walk",
    )
    text = " ".join(d["text"] for d in documents)
    assert not [phrase for phrase in held if phrase in text]
    text = " ".join(d["text"] for d in held_out_documents)
    assert [phrase for phrase in held if phrase in text] == list(held)


@pytest.mark.parametrize("kind", ["name", "object", "place"])
@pytest.mark.parametrize("facts", [2, 4])
def test_copy_probe_is_decided_by_its_context(world, kind, facts):
    people, objects = index(world.lexicon.people), index(world.lexicon.objects)
    first = 0
    for item in (items := world.probe(200, seed=1, kind=kind, facts=facts)):
        stated = re.split(r"(?<=\.) ", item["context"])
        assert len(stated) == facts and item["sentence"].startswith(
            item["prefix"] + " " + item["answer"]
        )
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
    assert (
        abs(first / len(items) - 1 / facts) < 0.12 and len({item["answer"] for item in items}) > 50
    )


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


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda w: w.documents(1, "dev"), "no split 'dev'.*train, validation, test"),
        (lambda w: w.document(0, genre="letter"), "no genre 'letter'.*deed"),
        (lambda w: w.names("pets"), "no names of the kind 'pets'.*people, objects"),
        (lambda w: w.task("stance", 1), "no task 'stance'.*acceptability, sentiment"),
        (lambda w: w.primer(0, 3), "no level of the primer 3; choose one of 1, 2"),
        (lambda w: w.primer(0, 1, made_up=1.5), r"made_up is 1\.5"),
        (lambda w: w.probe(1, kind="verb"), "no kind .* 'verb'.*name, object, place"),
        (lambda w: w.probe(1, facts=1), "at least 2"),
        (lambda w: w.evidence(1, side="above"), "no side .* 'above'.*left, right, both"),
    ],
)
def test_a_wrong_name_is_said(world, call, words):
    with pytest.raises(CourseError, match=words):
        call(world)


PARSE = "\n{X} {v.past} the {O} .\t2 0 4 2 2\tnsubj root det obj punct\t\n"
PARSES = [  # what stands there in the place of the parse
    ("\n", r"'\{X\} \{v.past\} the \{O\} \.' has no row in parses.tsv; add one"),
    (
        PARSE.replace("2 0 4 2 2", "2 0 4 2"),
        r"has \[5\] words and slots in its sentences, but its row has \[4\] heads",
    ),
    (PARSE.replace("2 0 4", "2 x 4"), "must be whole numbers"),
    (PARSE.replace("2 0 4 2", "2 0 4 9"), "a word that its sentence does not have"),
    (PARSE.replace("2 0 4 2", "2 0 4 3"), "has a word 3 that does not hang from the root"),
    (PARSE.replace("2 0 4", "0 0 4"), "exactly one head 0"),
    (PARSE.replace("nsubj", "subject"), "relation 'subject'"),
    (PARSE[:-1] + "four=O\n", "marks like 5=O"),
    (PARSE[:-1] + "4=animal\n", "stands for 'animal', which is no slot"),
]


@pytest.mark.parametrize(
    ("task", "table", "old", "new", "words"),
    [
        ("", "names.tsv", "Anna\tf\n", "Anna\n", "names.tsv, line 2, has 1 cells"),
        ("", "names.tsv", "Anna\tf\n", "Anna\tx\n", "line 2: the gender of .* must be m or f"),
        ("", "places.tsv", "word\tprep", "word\tpreposition", "needs .*'word', 'prep'"),
        ("", "verbs.tsv", "\tpurchase\n", "\tsnatch\n", "'snatch', synonym of 'buy', has no row"),
        (
            "",
            "templates.tsv",
            "{X} {v.past} the {O} .",
            "{X} {v.past} teh {O} .",
            "'teh'.*no part of speech",
        ),
        ("", "templates.tsv", "{adj.weather}", "{adj.wether}", "adj.wether.*neither"),
        ("", "templates.tsv", "{animal.pl}", "{animal.past}", "nor a pool in a form that it has"),
        ("", "templates.tsv", "\nnext\t", "\nnxet\t", "no template for next"),
        ("", "templates.tsv", "deed.state\t1", "deed.state\tone", "whole number"),
        (
            "",
            "senses.tsv",
            "put the money in the bank/NOUN",
            "put the money in the bag/NOUN",
            "does not mark bank",
        ),
        (
            "acceptability",
            "pairs.tsv",
            "\tall\t",
            "\ttrain\t",
            "the split of .* must be all or test",
        ),
        ("entities", "naming.tsv", "all\t{X}", "all\t{Z}", "{Z}.*neither a part of a fact"),
        ("questions", "questions.tsv", "deed\tX", "deed\tQ", "the asks of .* must be X or Y or O"),
        ("wic", "wic.tsv", "bank\tmoney", "bank\tsofa", "not in senses.tsv"),
        (
            "translation",
            "translation.tsv",
            "{X:subject}",
            "{X:topic}",
            "topic.* is no slot or particle",
        ),
        (
            "translation",
            "translation.tsv",
            "{adj.colour:object}",
            "{adj.age:object}",
            "its English does not have",
        ),
        *(("", "parses.tsv", PARSE, new, words) for new, words in PARSES),
    ],
)
def test_a_broken_row_is_said(changed, task, table, old, new, words):
    folder = changed(table, old, new)

    def used() -> None:
        world = World(folder=folder)
        world.task(task or "nli", 4)
        world.documents(40)

    with pytest.raises(CourseError, match=words) as caught:
        used()
    assert "\n" not in str(caught.value)


def test_a_missing_table_is_said(tmp_path):
    with pytest.raises(CourseError, match=r"words\.tsv is missing"):
        World(folder=tmp_path)
