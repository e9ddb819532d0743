"""The world's gold annotations: trees, coreference and opinions that fit the text, found again by
other ways.
"""

import re
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

from classroom.town.__main__ import task_table, unparsed_templates
from classroom.town.lexicon import FOLDER
from classroom.town.tasks import TASKS

Document = dict[str, Any]
PRONOUNS = {
    "he": "m",
    "him": "m",
    "himself": "m",
    "she": "f",
    "herself": "f",
    "his": "m",
    "her": "f",
}


@pytest.fixture(scope="session")
def documents(documents: list[Document], held_out_documents: list[Document]) -> list[Document]:
    return documents + held_out_documents


def sentences(d: Document) -> list[range]:
    """The tokens of each sentence."""
    ends = [i + 1 for i, token in enumerate(d["tokens"]) if token in (".", "?")]
    return [range(a, b) for a, b in pairwise([0, *ends])]


def text(d: Document, span: range) -> str:
    return " ".join(d["tokens"][i] for i in span)


def test_every_sentence_is_a_tree(documents):
    for d in documents[::3]:
        assert len(d["tokens"]) == len(d["heads"]) == len(d["deprels"]) == sentences(d)[-1].stop
        assert len(sentences(d)) == len(d["sentences"])
        for span in sentences(d):
            roots = [i for i in span if d["heads"][i] == -1]
            assert len(roots) == 1 and [i for i in span if d["deprels"][i] == "root"] == roots
            for i in span:
                j, steps = i, 0
                while d["heads"][j] >= 0:
                    assert d["heads"][j] in span and steps < len(span), text(d, span)
                    j, steps = d["heads"][j], steps + 1


def test_who_did_what_read_off_the_trees(documents):
    """Subject and object of a verb, in the active and in the passive, are a fact of the document
    where it says so.
    """
    checked = 0
    for d in documents:
        if d["genre"] not in ("deed", "gift", "list"):
            continue
        facts = {(fact[0], fact[2]) for fact in d["facts"] if fact[1] != "at"}
        things, people = {thing for _, thing in facts}, {person for person, _ in facts}
        name = {i: m["entity"] for m in d["mentions"] for i in range(m["start"], m["end"])}
        for span in sentences(d):
            if text(d, span)[-1] == "?" or re.search(r"\bnot\b|\bliked?\b|\btold\b", text(d, span)):
                continue
            arguments: dict[int, dict[str, str]] = defaultdict(dict)
            for i in span:
                arguments[d["heads"][i]][d["deprels"][i]] = name.get(i, "/").split("/")[1]
            for verb, found in arguments.items():
                if (
                    verb < 0
                    or d["tags"][verb] != "VERB"
                    or d["tokens"][verb] in ("thanked", "asked", "needed", "saw")
                ):
                    continue
                person = found.get("obl:agent") or found.get("nsubj")
                thing = found.get("obj") or found.get("nsubj:pass")
                if person in people and thing in things:
                    checked += 1
                    assert (person, thing) in facts, (person, thing, text(d, span))
    assert checked > 2000


def test_names_and_pronouns_of_one_entity_agree(world, documents):
    gender = {p[""][0][0]: "m" if p["he"][0][0] == "he" else "f" for p in world.lexicon.people}
    seen = defaultdict(int)
    for d in documents:
        for m in d["mentions"]:
            kind, _, name = m["entity"].partition("/")
            words = d["tokens"][m["start"] : m["end"]]
            word = words[-1].lower()
            seen[kind, word in PRONOUNS or word in ("it", "they", "themselves")] += 1
            if kind == "person":
                assert word == "baker" or PRONOUNS.get(word, gender[name]) == gender[name], d[
                    "text"
                ]
                assert word in PRONOUNS or name in words or d["tags"][m["end"] - 1] == "NOUN"
            elif word in ("it", "they", "them", "themselves", "there"):
                assert kind not in ("town", "restaurant")
            elif kind in ("object", "food", "place", "town", "restaurant", "newspaper"):
                assert " ".join(words).lower().endswith(name.lower()) or word.rstrip(
                    "s"
                ) == name.rstrip("s"), (
                    words,
                    name,
                )
    for kind in ("person", "object", "food"):
        assert seen[kind, True] > 20 and seen[kind, False] > 300


def test_opinions_read_off_the_sentences(documents):
    """A sentence that says who liked what says an opinion of the document; all are drawn from its
    facts.
    """
    told = 0
    for d in documents:
        opinions = {(who, what): verb == "like" for who, verb, what in d["opinions"]}
        assert {(fact[0], fact[2]) for fact in d["facts"]} >= set(opinions)
        for sentence in d["sentences"]:
            found = re.match(
                r"(\w+) (liked|did not like) (?:the (\w+)|(The \w+ \w+))(?: because .*)?\.$",
                sentence,
            )
            if found and d["genre"] in ("meal", "foodreview", "filmreview"):
                who, verb, food, film = found.groups()
                told += 1
                assert opinions[who, food or film] == (verb == "liked"), d["text"]
        liked = set(opinions.values())
        assert d["sentiment"] == (
            ""
            if not liked
            else "mixed"
            if len(liked) == 2
            else "positive"
            if liked == {True}
            else "negative"
        )
    assert told > 100
    reviews = [d for d in documents if d["genre"].endswith("review")]
    assert all(len(d["opinions"]) == len(d["facts"]) for d in reviews)
    assert {d["sentiment"] for d in reviews} == {"positive", "negative", "mixed"}


def test_templates_without_a_parse_are_named(changed):
    assert unparsed_templates() == []
    new = "The {job} admired/VERB {A.his} old {object} ."
    row = "colour\t1\tall\t"
    assert unparsed_templates(changed("templates.tsv", row, f"{row}{new}\n{row}")) == [new]


PAGE = FOLDER.parents[1] / "docs" / "world.md"


def test_the_page_works_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    """Reads a document, adds a word, a template with its parse, and a task."""
    monkeypatch.chdir(tmp_path)
    tasks = dict(TASKS)
    for module in ("classroom.town", "classroom.town.tasks"):
        monkeypatch.setattr(f"{module}.TASKS", tasks)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert len(blocks) == 7
    said = capsys.readouterr().out
    assert "has no row in parses.tsv" in said and "who-keeps-it" not in TASKS


def test_the_page_lists_the_tasks_and_columns(world):
    page = PAGE.read_text(encoding="utf-8")
    assert task_table() in page, (
        "put the output of `python -m classroom.town tasks` into docs/world.md"
    )
    for column in world.document(0):
        assert f"`{column}`" in page
    for genre in world.genres():
        assert f"`{genre}`" in page
