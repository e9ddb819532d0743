"""The world's tasks: the labels are true, the test split is new, and nothing but reading gives them away."""

import re
import shutil
import time
from collections import Counter, defaultdict
from typing import Any

import pytest

from course_lib.data.world import World
from course_lib.data.world.facts import held_out
from course_lib.data.world.lexicon import FOLDER, read_table
from course_lib.errors import CourseError

PAIR, CHOICE, TARGET = ["text", "pair", "label"], ["text", "choices", "label"], ["text", "target"]
SPAN = ["text", "pair", "answer", "start", "answers"]
COLUMNS = {
    "acceptability": ["text", "label"],
    "sentiment": ["text", "label"],
    "sentiment-food": ["text", "label"],
    "sentiment-film": ["text", "label"],
    "paraphrase": PAIR,
    "similarity": PAIR,
    "nli": PAIR,
    "nli-mismatched": PAIR,
    "rte": PAIR,
    "qnli": PAIR,
    "pronouns": CHOICE,
    "wic": ["text", "pair", "word", "label"],
    "continuation": CHOICE,
    "cloze": ["text", "answer", "choices", "label"],
    "questions": SPAN,
    "questions-open": [*SPAN, "label"],
    "retrieval": ["query", "positive", "negatives"],
    "pos": ["tokens", "labels"],
    "entities": ["tokens", "labels"],
    "summaries": TARGET,
    "translation": TARGET,
    "arithmetic": [*TARGET, "kind"],
    "arithmetic-words": [*TARGET, "kind"],
    "analogies": [*CHOICE, "relation"],
    "in-context": ["text", "answer", "choices", "label"],
    "in-context-random": ["text", "answer", "choices", "label"],
}
NAMELESS = ("arithmetic", "arithmetic-words", "analogies", "in-context", "in-context-random")  # nobody is in them
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def world() -> World:
    return World(0)


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def sentences(text: str) -> list[str]:
    return re.split(r"(?<=[.?]) ", text)


# -- shape ------------------------------------------------------------------------------------------------------


def test_every_task_is_tried_here(world):
    assert list(world.task_names()) == list(COLUMNS)


@pytest.mark.parametrize("name", COLUMNS)
def test_rows(world, name):
    rows = world.task(name, 30, "train", seed=2)
    assert rows == World(0).task(name, 45, "train", seed=2)[:30]
    assert rows != world.task(name, 30, "train", seed=3)
    assert rows != world.task(name, 30, "validation", seed=2)
    assert [list(row) for row in rows] == [COLUMNS[name]] * 30
    names = world.label_names(name)
    for row in rows:
        labels = row.get("labels", [row["label"]] if "label" in row and names else [])
        assert all(isinstance(x, int) and 0 <= x < len(names) for x in labels)
        assert "tokens" not in row or len(row["tokens"]) == len(labels)
        if "choices" in row:
            assert len(set(row["choices"])) == len(row["choices"]) == len(names)
    assert names == () or any(row.get("label") or row.get("labels") for row in rows)


@pytest.mark.parametrize(
    "name",
    [
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
    ],
)
def test_labels_are_balanced_exactly(world, name):
    k = len(world.label_names(name)) or 6  # grades of similarity
    counts = Counter(row["label"] for row in world.task(name, 20 * k))
    assert set(counts.values()) == {20} and len(counts) == k


def test_right_choices_stand_everywhere(world):
    for name, columns in COLUMNS.items():
        if "choices" in columns:
            places = Counter(row["label"] for row in world.task(name, 400))
            assert min(places.values()) > 0.7 * 400 / len(world.label_names(name)), name


def test_a_megabyte_a_second(world):
    """Rows are made at a speed like that of documents, which is measured beside them."""

    def rate(make: Any) -> float:
        start, rows = time.process_time(), make()
        size = sum(len(str(value)) for row in rows for value in row.values())
        return size / (time.process_time() - start)

    documents = rate(lambda: [{"text": row["text"]} for row in world.documents(300)])
    for name in COLUMNS:
        assert rate(lambda name=name: world.task(name, 200)) > documents / 8, name


# -- the labels, found again from the text ----------------------------------------------------------------------


def test_acceptability_pairs(world):
    """Two halves of a pair follow each other, differ, and one of them is a sentence; every rule is met."""
    rows = world.task("acceptability", 3000, gold=True)
    for a, b in zip(rows[::2], rows[1::2], strict=True):
        assert {a["label"], b["label"]} == {0, 1}
        assert a["text"] != b["text"] and a["gold"]["other"] == b["text"] and b["gold"]["other"] == a["text"]
        if a["gold"]["rule"] not in ("order", "tense"):
            assert len(words(a["text"])) == len(words(b["text"]))
            assert sum(x != y for x, y in zip(words(a["text"]), words(b["text"]), strict=True)) == 1
    assert {row["gold"]["rule"] for row in rows} == {row["rule"] for row in read_pairs()}


def read_pairs() -> list[dict[str, str]]:
    return read_table("pairs.tsv", ("rule", "split", "good", "bad"))


def test_acceptability_agreement_by_another_grammar(world):
    """Number of the head noun against number of the verb, both looked up in the lexicon."""
    number: dict[str, set[str]] = defaultdict(set)
    for pool in ("animal", "kin", "job", "kinf", "kinm", "object"):
        for item in world.lexicon.pools[pool].items:
            number[item[""][0][0]].add("one")
            number[item["pl"][0][0]].add("many")
    for pool in ("intr", "beast"):
        for item in world.lexicon.pools[pool].items:
            number[item["third"][0][0]].add("one")
            number[item["base"][0][0]].add("many")
    number |= {"is": {"one"}, "was": {"one"}, "are": {"many"}, "were": {"many"}}
    checked = 0
    for row in world.task("acceptability", 3000):
        found = re.match(
            r"The (\w+) (?:near|beside|with|on) the \w+ (?:always |often |\w+ly |never )?(\w+)", row["text"]
        )
        if found and all(len(number[word]) == 1 for word in found.groups()):
            checked += 1
            assert row["label"] == (number[found.group(1)] == number[found.group(2)]), row
    assert checked > 300


def test_sentiment_by_another_reading(world):
    """Each opinion's polarity by rules of its own; all opinions of a review agree with its label."""
    polarity = {
        row["word"]: row["polarity"] == "positive" for row in read_table("opinions.tsv", ("word", "domain", "polarity"))
    }
    for split in ("train", "test"):
        for row in world.task("sentiment", 600, split):
            for sentence in sentences(row["text"])[1:]:
                sentence = sentence[0].lower() + sentence[1:]
                opinions = [
                    (m.start(), polarity[m.group()]) for m in re.finditer(r"\w+", sentence) if m.group() in polarity
                ]
                if "was wrong" in sentence or sentence.endswith("was not."):
                    means = not opinions[0][1]
                elif ", not " in sentence or "although" in sentence or sentence.startswith("in the end"):
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
                    assert (wish.groups() in {("more", "hoped"), ("less", "feared")}) == bool(row["label"]), sentence


def test_nli_from_the_text(world):
    """Who did what where is read off the premise again; the label follows by the world's rule."""
    lexicon = world.lexicon
    people = {p[""][0][0] for p in lexicon.people}
    objects = {o[""][0][0] for o in lexicon.objects}
    places = {p[""][0][0] for p in lexicon.places}
    gets, loses = ({v[f][0][0] for v in lexicon.pools[k].items for f in ("past", "part")} for k in ("get", "lose"))
    asked_about = Counter()
    for split in ("train", "test"):
        for row in world.task("nli", 600, split, gold=True):
            gold = row["gold"]
            person, _, thing, place = gold["asked"]
            deeds = []  # of each deed: people, objects, places, all words
            for sentence in sentences(row["text"]):
                aside = re.search(r"^The \w+ was \w+\.$|\blikes\b|\btold\b|\bsaw the\b", sentence)
                if not aside:
                    said = set(words(sentence))
                    deeds.append((said & people, said & objects, said & places, said))
            no = gold["polarity"] == "no"
            if gold["about"] == "thing":
                done = [deed for deed in deeds if thing in deed[1]]
                truth = "neutral" if not done else "yes" if person in done[0][0] else "no"
            else:
                (own,) = [deed for deed in deeds if person in deed[0] and thing in deed[1]]
                if gold["about"] == "place":
                    truth = "neutral" if not own[2] else "yes" if place in own[2] else "no"
                else:
                    truth = "yes" if own[3] & gets else "no" if own[3] & loses else "neutral"
            label = "neutral" if truth == "neutral" else "entailment" if (truth == "yes") != no else "contradiction"
            assert world.label_names("nli")[row["label"]] == label, row
            assert {person, thing} & set(words(row["pair"]))
            assert bool(re.search(r"\bnot\b|no longer", row["pair"])) == no
            asked_about[gold["about"], row["label"]] += 1
    assert len(asked_about) == 9 and min(asked_about.values()) > 40


def test_nli_premises_of_every_label_have_the_same_shape(world):
    """Three sentences, three people or things: the number of words tells no label."""
    rows = world.task("nli", 3000)
    for about in range(3):
        lengths = [len(words(row["text"])) for row in rows if row["label"] == about]
        assert 17 < sum(lengths) / len(lengths) < 24
        assert all(len(sentences(row["text"])) == 3 for row in rows[:300])


def test_entities(world):
    names = world.label_names("entities")
    people = {p[""][0][0] for p in world.lexicon.people}
    towns = {t[""][0][0] for t in world.lexicon.towns}
    kinds = defaultdict(Counter)
    for row in world.task("entities", 1500):
        for before, label, token in zip([0, *row["labels"]], row["labels"], row["tokens"], strict=False):
            name = names[label]
            kinds[token][name] += 1
            assert name != "B-PERSON" or token in people
            assert name != "B-LOC" or token in towns
            assert not name.startswith("I-") or names[before][2:] == name[2:]
    alike = [token for token in people & towns if kinds[token]["B-PERSON"] > 3 and kinds[token]["B-LOC"] > 3]
    assert len(alike) >= 6  # a tagger by the word alone cannot do these
    assert {name for counts in kinds.values() for name in counts} == set(names) - {"I-LOC"}


def test_continuation_from_the_text(world):
    """Exactly one choice says together what one sentence of the text says together."""
    everything = {
        p[""][0][0]
        for items in ("people", "objects", "places", "towns", "foods")
        for p in getattr(world.lexicon, items)
    }
    for split in ("train", "test"):
        for row in world.task("continuation", 200, split, gold=True):
            text = re.sub(r"([A-Z]\w+) [A-Z]\w+(?=,| \w+ed\b)", r"\1", row["text"])  # a surname may be a town's name
            said = [set(words(s)) for s in sentences(text)]
            true = []
            shared = set.intersection(*(set(words(choice)) for choice in row["choices"]))
            for choice in row["choices"]:
                named = {w for w in words(choice) if w in everything} - shared
                named = {w for w in named if any(w in s for s in said)}
                true.append(any(named <= s for s in said))
            assert true == [i == row["label"] for i in range(4)], row


# -- the test split is new --------------------------------------------------------------------------------------


def parts(row: dict[str, Any]) -> list[str]:
    """All texts of a row."""
    found = [value for key, value in row.items() if key != "gold"]
    return [
        text for value in found for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)
    ]


@pytest.mark.parametrize("name", [name for name in COLUMNS if name not in NAMELESS])
def test_held_out_people(world, name):
    held = {p[""][0][0] for i, p in enumerate(world.lexicon.people) if held_out(i)}
    held -= {t[""][0][0] for t in world.lexicon.towns} | {"May", "March", "June", "April", "Dawn", "Rose", "August"}

    def met(rows: Rows) -> set[str]:
        return {word for row in rows for part in parts(row) for word in words(part)} & held

    assert not met(world.task(name, 200)) and not met(world.task(name, 200, "validation"))
    assert len(met(world.task(name, 200, "test"))) > 10


@pytest.mark.parametrize("name", ["in-context", "analogies"])
def test_held_out_words(world, name):
    """What is asked about is never asked about in training."""
    train, test = (
        [row["gold"].get("asked") or row["gold"]["pairs"][1] for row in world.task(name, 600, split, gold=True)]
        for split in ("train", "test")
    )
    assert len(set(test) - set(train)) > 20
    if name == "analogies":
        held = {pair for pairs in world._tasks[name].pairs.values() for i, pair in enumerate(pairs) if held_out(i)}
        everywhere = {
            pair for pairs in world._tasks[name].pairs.values() for i, pair in enumerate(pairs) if not held_out(i)
        }
        assert not set(train) & (held - everywhere)


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("acceptability", r"yesterday\.|tomorrow\.|could not|has not"),
        ("sentiment", r"far from|Nobody could call|, not "),
        ("nli", r"What \w+ \w+ was the|It was not (in|at|on|by) "),
        ("entities", r"all day|From \w+ ,|still"),
        ("continuation", r"^What|The one who|where \w+ and"),
        ("paraphrase", r"^What \w+ \w+ was|The one who|After (his|her) walk|^The owner of"),
        ("rte", r"^What \w+ \w+ was|The one who|is the owner of|The home of"),
        ("nli-mismatched", r"is the owner of|was the one who|for years"),
        ("qnli", r"what town|the job of|By whom|To whom does"),
        ("questions", r"what town|the job of|By whom|To whom does"),
        ("retrieval", r"what town|the job of|was \w+ by \w+\?|^Where is the \w+ of"),
        ("pronouns", r"told|^While|was \w+ to \w+ by"),
        ("translation", r"did not \w+ the \w+ \w+\.|^The \w+ of \w+ was"),
    ],
)
def test_held_out_templates(world, name, pattern):
    def found(rows: Rows) -> int:
        texts = [row.get("pair") or (row["choices"][0] if "choices" in row else row.get("text")) for row in rows]
        if name == "entities":
            texts = [" ".join(row["tokens"]) for row in rows if row["gold"]["source"] != "document"]
        if name in ("qnli", "questions", "retrieval", "pronouns"):
            texts = [row.get("query") or row["text"] for row in rows]
        return sum(bool(re.search(pattern, text)) for text in texts)

    assert not found(world.task(name, 400, gold=True)) and not found(world.task(name, 400, "validation", gold=True))
    assert found(world.task(name, 400, "test", gold=True)) > 15


# -- bad input --------------------------------------------------------------------------------------------------


def test_wrong_names_are_said(world):
    with pytest.raises(CourseError, match=r"no task 'stance'.*acceptability, sentiment"):
        world.task("stance", 1)
    with pytest.raises(CourseError, match="no task 'stance'"):
        world.label_names("stance")
    with pytest.raises(CourseError, match="no split 'dev'"):
        world.task("nli", 1, "dev")
    with pytest.raises(CourseError, match="n is -3"):
        world.task("nli", -3)


@pytest.mark.parametrize(
    ("name", "table", "old", "new", "message"),
    [
        ("acceptability", "pairs.tsv", "\tall\t", "\ttrain\t", "must be all or test"),
        ("sentiment", "sentiment.tsv", "food\topen", "drink\topen", "domain food or film"),
        ("nli", "hypotheses.tsv", "thing\tyes", "thing\tmaybe", "polarity yes or no"),
        ("entities", "naming.tsv", "all\t{X}", "all\t{Z}", "{Z}.*neither a part of a fact"),
        ("nli", "hypotheses.tsv", "about\tpolarity", "about\tsign", "starts with the columns"),
        ("rte", "sayings.tsv", "gift\tagain", "present\tagain", "needs a genre of deed"),
        ("questions", "questions.tsv", "deed\tX", "deed\tQ", "and asks X, Y, O"),
        ("pronouns", "pronouns.tsv", "giver", "donor", "kind gender, giver or receiver"),
        ("wic", "wic.tsv", "bank\tmoney", "bank\tsofa", "not in senses.tsv"),
        ("analogies", "analogies.tsv", "boy\tgirl", "boy", "cells"),
        ("translation", "translation.tsv", "{X:subject}", "{X:topic}", "topic.* is no slot or particle"),
        ("translation", "translation.tsv", "{adj.colour:object}", "{adj.age:object}", "its English does not have"),
    ],
)
def test_a_broken_table_is_said(tmp_path, name, table, old, new, message):
    shutil.copytree(FOLDER, tmp_path / "world")
    path = tmp_path / "world" / table
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(CourseError, match=message):
        World(folder=tmp_path / "world").task(name, 4)
