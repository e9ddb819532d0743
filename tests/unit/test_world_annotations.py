"""The world's gold annotations: trees, coreference and opinions that fit the text, found again by other ways."""

import re
import shutil
from collections import defaultdict
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest

from course_lib import view
from course_lib.data.world import World
from course_lib.data.world.__main__ import main, task_table
from course_lib.data.world.drafting import draft
from course_lib.data.world.grammar import Template
from course_lib.data.world.lexicon import FOLDER, Lexicon, phrase, shape
from course_lib.data.world.parses import RELATIONS
from course_lib.data.world.tasks import TASKS
from course_lib.errors import CourseError

Document = dict[str, Any]
NOMINAL = {"NOUN", "PROPN", "PRON", "NUM"}
TAGS = {  # the parts of speech that a relation allows
    "det": {"DET"}, "case": {"ADP", "PART"}, "punct": {"PUNCT"}, "aux": {"AUX"}, "aux:pass": {"AUX"}, "cop": {"AUX"},
    "mark": {"SCONJ", "PART", "ADP"}, "cc": {"CCONJ"}, "amod": {"ADJ"}, "nummod": {"NUM"}, "advmod": {"ADV", "PART"},
    "discourse": {"INTJ"}, "nmod:poss": {"PRON", "PROPN"}, "flat": {"PROPN"}, "expl": {"PRON"}, "fixed": {"ADP"},
    "compound": {"NOUN", "PROPN"}, "compound:prt": {"ADP"}, "nsubj": NOMINAL, "nsubj:pass": NOMINAL, "obj": NOMINAL,
    "iobj": NOMINAL, "obl:agent": NOMINAL, "obl:unmarked": NOMINAL, "nmod": NOMINAL, "obl": NOMINAL | {"DET", "ADJ"},
    "acl:relcl": {"VERB", "PROPN"}, "csubj": {"VERB", "NOUN", "ADJ", "ADV"}, "xcomp": {"VERB", "ADJ"},
}  # fmt: skip
CROSSING = re.compile(r"^What did \w+ complain about at")  # the only sentence whose arcs cross
PRONOUNS = {"he": "m", "him": "m", "himself": "m", "she": "f", "herself": "f", "his": "m", "her": "f"}


@pytest.fixture(scope="module")
def world() -> World:
    return World(0)


@pytest.fixture(scope="module")
def documents(world: World) -> list[Document]:
    return world.documents(1200) + world.documents(400, "test")


def sentences(d: Document) -> list[range]:
    """The tokens of each sentence."""
    ends = [i + 1 for i, token in enumerate(d["tokens"]) if token in (".", "?")]
    return [range(a, b) for a, b in pairwise([0, *ends])]


def text(d: Document, span: range) -> str:
    return " ".join(d["tokens"][i] for i in span)


# -- trees ------------------------------------------------------------------------------------------------------


def test_every_sentence_is_a_tree(documents):
    for d in documents:
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


def test_arcs_cross_in_stranded_prepositions_only(documents):
    for d in documents:
        for span in sentences(d):
            arcs = [sorted((i, d["heads"][i])) for i in span if d["heads"][i] >= 0]
            crossed = any(a < c < b < e for a, b in arcs for c, e in arcs)
            root = next(i for i in span if d["heads"][i] == -1)
            assert (crossed or any(a < root < b for a, b in arcs)) == bool(CROSSING.match(text(d, span))), text(d, span)


def test_relations_fit_the_parts_of_speech(documents):
    met = set()
    for d in documents:
        for token, tag, relation in zip(d["tokens"], d["tags"], d["deprels"], strict=True):
            met.add(relation)
            assert relation in RELATIONS
            assert tag in TAGS.get(relation, {tag}), (token, tag, relation, d["text"])
            for name in ("punct", "cc", "discourse"):
                assert (tag in TAGS[name]) == (relation == name), (token, tag, relation, d["text"])
            assert tag != "DET" or relation in ("det", "obl"), (token, relation, d["text"])
    assert len(met) >= 33 and "dep" not in met


def test_passives_agents_and_possessors(documents):
    for d in documents:
        children = defaultdict(list)
        for i, head in enumerate(d["heads"]):
            children[head].append(i)
        for i, relation in enumerate(d["deprels"]):
            beside = {d["deprels"][j] for j in children[i]}
            what = d["tokens"][d["heads"][i]] == "what"  # the head of "what was found" is its own subject
            assert what or ("nsubj:pass" in beside) == ("aux:pass" in beside), d["text"]
            if relation == "obl:agent":
                assert {d["tokens"][j] for j in children[i]} & {"by"}
                assert "aux:pass" in {d["deprels"][j] for j in children[d["heads"][i]]}
            if d["tokens"][i] == "'s":
                assert relation == "case" and d["tags"][d["heads"][i]] == "PROPN"
            assert len([j for j in children[i] if d["deprels"][j] in ("nsubj", "nsubj:pass", "csubj")]) <= 1, d["text"]


def test_who_did_what_read_off_the_trees(documents):
    """Subject and object of a verb, in the active and in the passive, are a fact of the document where it says so."""
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
                if verb < 0 or d["tags"][verb] != "VERB" or d["tokens"][verb] in ("thanked", "asked", "needed", "saw"):
                    continue
                person = found.get("obl:agent") or found.get("nsubj")
                thing = found.get("obj") or found.get("nsubj:pass")
                if person in people and thing in things:
                    checked += 1
                    assert (person, thing) in facts, (person, thing, text(d, span))
    assert checked > 2000


def test_the_shape_of_phrases():
    assert shape(("ADP", "DET", "NOUN")) == ((2, 2, 2), ("case", "det", ""), 2, 1)
    assert shape(("PROPN", "PROPN")) == ((0, 0), ("", "flat"), 0, 0)
    assert phrase("a large", "DET", "ADJ")[3].heads == (0, 1)  # both hang from the noun behind
    assert phrase("two days ago", "NUM", "NOUN", "ADV", free=True)[3].relations == ("nummod", "obl:unmarked", "advmod")
    assert phrase("last week", "ADJ", "NOUN", free=True)[3].relations == ("amod", "obl:unmarked")
    assert phrase("in March", "ADP", "PROPN", free=True)[3].relations == ("case", "obl")


# -- coreference ------------------------------------------------------------------------------------------------


def test_mentions_are_phrases(documents):
    for d in documents:
        for m in d["mentions"]:
            span = range(m["start"], m["end"])
            assert len([i for i in span if d["heads"][i] not in span]) == 1, d["text"]
            assert d["tags"][m["start"]] not in ("ADP", "VERB", "PUNCT")
            assert m["start"] == 0 or d["tags"][m["start"] - 1] != "DET" or d["tags"][m["start"]] == "PROPN"
        spans = [(m["start"], m["end"]) for m in d["mentions"]]
        assert spans == sorted(spans) and len(spans) == len(set(spans))


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
                assert word == "baker" or PRONOUNS.get(word, gender[name]) == gender[name], d["text"]
                assert word in PRONOUNS or name in words or d["tags"][m["end"] - 1] == "NOUN"
            elif word in ("it", "they", "them", "themselves", "there"):
                assert kind not in ("town", "restaurant")
            elif kind in ("object", "food", "place", "town", "restaurant", "newspaper"):
                assert " ".join(words).lower().endswith(name.lower()) or word.rstrip("s") == name.rstrip("s"), (
                    words,
                    name,
                )
    for kind in ("person", "object", "food"):
        assert seen[kind, True] > 20 and seen[kind, False] > 300


def test_every_pronoun_of_a_person_is_a_mention(documents):
    for d in documents:
        starts = {m["start"] for m in d["mentions"]}
        for i, token in enumerate(d["tokens"]):
            if token.lower() in ("he", "she", "him", "his", "himself"):
                constant = "the old man" in d["text"]  # "... and helped him" of the word kind
                assert i in starts or constant, d["text"]


def test_a_pronoun_has_its_name_before_or_in_its_sentence(documents):
    for d in documents:
        for span in sentences(d):
            for m in d["mentions"]:
                if m["start"] in span and d["tokens"][m["start"]].lower() in ("he", "she"):
                    named = [k["start"] for k in d["mentions"] if k["entity"] == m["entity"]]
                    assert any(d["tags"][i] == "PROPN" and i < span.stop for i in named), d["text"]


# -- opinions and genres ----------------------------------------------------------------------------------------


def test_opinions_read_off_the_sentences(documents):
    """A sentence that says who liked what says an opinion of the document; all are drawn from its facts."""
    told = 0
    for d in documents:
        opinions = {(who, what): verb == "like" for who, verb, what in d["opinions"]}
        assert {(fact[0], fact[2]) for fact in d["facts"]} >= set(opinions)
        for sentence in d["sentences"]:
            found = re.match(r"(\w+) (liked|did not like) (?:the (\w+)|(The \w+ \w+))(?: because .*)?\.$", sentence)
            if found and d["genre"] in ("meal", "foodreview", "filmreview"):
                who, verb, food, film = found.groups()
                told += 1
                assert opinions[who, food or film] == (verb == "liked"), d["text"]
        liked = set(opinions.values())
        assert d["sentiment"] == (
            "" if not liked else "mixed" if len(liked) == 2 else "positive" if liked == {True} else "negative"
        )
    assert told > 100
    reviews = [d for d in documents if d["genre"].endswith("review")]
    assert all(len(d["opinions"]) == len(d["facts"]) for d in reviews)
    assert {d["sentiment"] for d in reviews} == {"positive", "negative", "mixed"}


def test_a_genre_can_be_asked_for(world):
    for genre in world.genres():
        assert {d["genre"] for d in world.documents(5, genre=genre)} == {genre}
    assert world.documents(5, genre="")[3] == world.document(3)
    with pytest.raises(CourseError, match=r"no genre 'letter'.*deed"):
        world.document(0, genre="letter")


def test_names_of_one_kind_can_be_asked_for(world):
    kinds = ("people", "objects", "places", "towns", "jobs", "foods")
    assert [name for kind in kinds for name in world.names(kind)] == world.names()
    assert len(world.names("people")) == len(world.lexicon.people) > 100
    with pytest.raises(CourseError, match=r"no names of the kind 'pets'.*people, objects"):
        world.names("pets")


# -- the table --------------------------------------------------------------------------------------------------


def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FOLDER, tmp_path / "world"))


def swap(path: Path, old: str, new: str) -> None:
    content = path.read_text(encoding="utf-8")
    assert old in content
    path.write_text(content.replace(old, new, 1), encoding="utf-8")


ROW = "{X} {v.past} the {O} .\t2 0 4 2 2\tnsubj root det obj punct\t\n"


@pytest.mark.parametrize(
    ("new", "words"),
    [
        ("", r"'\{X\} \{v.past\} the \{O\} \.' has no row in parses.tsv; `python -m course_lib.data.world draft`"),
        (
            ROW.replace("2 0 4 2 2", "2 0 4 2"),
            r"has \[5\] words and slots in its sentences, but its row has \[4\] heads",
        ),
        (ROW.replace("2 0 4", "2 x 4"), "must be whole numbers"),
        (ROW.replace("2 0 4 2", "2 0 4 9"), "word 4 of .* hangs from a word that its sentence does not have"),
        (ROW.replace("2 0 4 2", "2 0 4 3"), "word 3 of .* does not hang from the root"),
        (ROW.replace("2 0 4", "0 0 4"), "exactly one head 0"),
        (ROW.replace("root", "obj"), "exactly one head 0"),
        (ROW.replace("nsubj", "subject"), "relation 'subject'"),
        (ROW[:-1] + "four=O\n", "marks like 5=O"),
        (ROW[:-1] + "9=O\n", "a word that its sentence does not have"),
        (ROW[:-1] + "4=animal\n", "stands for 'animal', which is no slot"),
    ],
)
def test_a_broken_parse_is_said(tmp_path, new, words):
    folder = copy(tmp_path)
    swap(folder / "parses.tsv", "\n" + ROW, "\n" + new)
    with pytest.raises(CourseError, match=words) as caught:  # a missing row is an error of documents only
        World(folder=folder) if not new else Template("{X} {v.past} the {O} .", Lexicon(folder=folder))
    assert "\n" not in str(caught.value)


def test_every_shipped_template_has_a_parse_with_known_words(capsys):
    assert main(["check"]) == 0, capsys.readouterr().out
    assert capsys.readouterr().out == "Every template has its parse.\n"


def test_the_drafter_agrees_with_most_of_the_table():
    lexicon = Lexicon()
    rows = list(lexicon.parses.values())
    agree = sum(draft(Template(row["template"], lexicon))[:2] == (row["heads"], row["relations"]) for row in rows)
    assert agree / len(rows) > 0.9


def test_draft_and_check_on_the_command_line(tmp_path, capsys):
    folder = copy(tmp_path)
    swap(
        folder / "templates.tsv",
        "colour\t1\tall\t",
        "colour\t1\tall\tThe {job} admired/VERB {A.his} old {object} .\ncolour\t1\tall\t",
    )
    assert main(["--folder", str(folder), "check"]) == 1
    assert capsys.readouterr().out == "The {job} admired/VERB {A.his} old {object} .\n"
    assert main(["--folder", str(folder), "draft"]) == 0
    row = capsys.readouterr().out
    assert row.split("\t")[1:3] == ["2 3 0 6 6 3 3", "det nsubj root nmod:poss amod obj punct"]
    with (folder / "parses.tsv").open("a", encoding="utf-8") as table:
        table.write(row)
    assert main(["--folder", str(folder), "check"]) == 0
    assert main(["--folder", str(folder), "draft", "The {nobody} ran ."]) == 1
    assert "neither a part of a fact nor a pool" in capsys.readouterr().err


# -- the page for teachers --------------------------------------------------------------------------------------

PAGE = FOLDER.parents[1] / "docs" / "world.md"


def test_the_page_works_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    """Reads a document, adds a word, a template with its parse, and a task."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("course_lib.data.world.tasks.TASKS", dict(TASKS))
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parents[1]))
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert len(blocks) == 7
    said = capsys.readouterr().out
    assert "has no row in parses.tsv" in said and "12=O" in said
    assert "who-keeps-it" not in TASKS


def test_the_page_lists_the_tasks_and_columns(world):
    page = PAGE.read_text(encoding="utf-8")
    assert task_table() in page, "put the output of `python -m course_lib.data.world tasks` into docs/world.md"
    for column in world.document(0):
        assert f"`{column}`" in page
    for genre in world.genres():
        assert f"`{genre}`" in page


# -- the figure -------------------------------------------------------------------------------------------------


def test_the_figure_shows_every_arc_word_and_entity(world):
    document = world.document(5)
    figure = view.annotations(document, first=0, count=2)
    written = [text.get_text() for text in figure.axes[0].texts]
    spans = sentences(document)[:2]
    for span in spans:
        for column in ("tokens", "tags", "deprels"):
            assert {document[column][i] for i in span} <= set(written)
    named = [m["entity"].partition("/")[2] for m in document["mentions"] if m["start"] < spans[-1].stop]
    assert all(written.count(name) >= named.count(name) for name in named)
    tall = view.annotations(document, first=0, count=3).get_size_inches()[1]
    assert tall > figure.get_size_inches()[1]


def test_arcs_inside_one_another_have_different_heights(world):
    document = world.document(5)
    figure = view.annotations(document, first=0, count=1)
    arcs = [line.get_data() for line in figure.axes[0].lines if len(line.get_xdata()) == 6]
    assert len(arcs) == len(sentences(document)[0]) - 1
    for (x, y), (u, v) in combinations(arcs, 2):
        apart = max(x) <= min(u) + 0.1 or max(u) <= min(x) + 0.1
        assert apart or max(y) != max(v)


def test_the_figure_names_what_is_missing(world):
    document = world.document(5)
    with pytest.raises(CourseError, match="column 'heads'"):
        view.annotations({key: value for key, value in document.items() if key != "heads"})
    with pytest.raises(CourseError, match="has 8 sentences; first=7, count=2"):
        view.annotations(document, first=7, count=2)
