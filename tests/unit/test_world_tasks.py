"""The world's tasks: the labels are true, the test split is new, and nothing but reading gives them away."""

import re
import shutil
from collections import Counter, defaultdict
from typing import Any

import pytest

from course_lib.data.world import World
from course_lib.data.world.facts import held_out
from course_lib.data.world.lexicon import FOLDER, read_table
from course_lib.errors import CourseError

COLUMNS = {
    "acceptability": ["text", "label"],
    "sentiment": ["text", "label"],
    "sentiment-food": ["text", "label"],
    "sentiment-film": ["text", "label"],
    "nli": ["text", "pair", "label"],
    "entities": ["tokens", "labels"],
    "continuation": ["text", "choices", "label"],
}
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
        labels = row["labels"] if name == "entities" else [row["label"]]
        assert all(isinstance(x, int) and 0 <= x < len(names) for x in labels)
        if name == "entities":
            assert len(row["tokens"]) == len(labels)
        if name == "continuation":
            assert len(set(row["choices"])) == 4 == len(names)


@pytest.mark.parametrize("name", ["acceptability", "sentiment", "nli"])
def test_labels_are_balanced_exactly(world, name):
    k = len(world.label_names(name))
    counts = Counter(row["label"] for row in world.task(name, 20 * k))
    assert set(counts.values()) == {20} and len(counts) == k


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
    assert checked > 400


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


@pytest.mark.parametrize("name", COLUMNS)
def test_held_out_people(world, name):
    held = {p[""][0][0] for i, p in enumerate(world.lexicon.people) if held_out(i)}
    held -= {t[""][0][0] for t in world.lexicon.towns} | {"May", "March", "June", "April", "Dawn", "Rose"}

    def met(rows: Rows) -> set[str]:
        return {w for row in rows for part in (row.get("tokens") or [row["text"]]) for w in words(part)} & held

    if name == "entities":
        assert not met([{"tokens": row["tokens"]} for row in world.task(name, 300)])
    else:
        assert not met(world.task(name, 300)) and not met(world.task(name, 300, "validation"))
    assert len(met(world.task(name, 300, "test"))) > 10


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("acceptability", r"yesterday\.|tomorrow\."),
        ("sentiment", r"far from|Nobody could call|, not "),
        ("nli", r"What \w+ \w+ was the|It was not (in|at|on|by) "),
        ("entities", r"all day|From \w+ ,|still"),
        ("continuation", r"^What|The one who|where \w+ and"),
    ],
)
def test_held_out_templates(world, name, pattern):
    def found(rows: Rows) -> int:
        parts = [row.get("pair") or (row["choices"][0] if "choices" in row else row.get("text")) for row in rows]
        if name == "entities":
            parts = [" ".join(row["tokens"]) for row in rows if row["gold"]["source"] != "document"]
        return sum(bool(re.search(pattern, part)) for part in parts)

    assert not found(world.task(name, 400, gold=True)) and not found(world.task(name, 400, "validation", gold=True))
    assert found(world.task(name, 400, "test", gold=True)) > 15


# -- nothing gives the label away -------------------------------------------------------------------------------


def bag_of_words(train: list[str], labels: list[int], test: list[str]) -> Any:
    """TF-IDF of single words and pairs of neighbours, then logistic regression: the probabilities on `test`."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    vectors = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"\w+|[.,?]")
    return make_pipeline(vectors, LogisticRegression(max_iter=500)).fit(train, labels).predict_proba(test)


@pytest.mark.parametrize(
    ("name", "part", "ceiling"),
    [
        ("acceptability", None, 0.65),
        ("sentiment", None, 0.75),
        ("sentiment-food", None, 0.75),
        ("sentiment-film", None, 0.75),
        ("nli", None, 0.40),
        ("nli", "pair", 0.40),
        ("nli", "text", 0.40),
    ],
)
def test_a_bag_of_words_stays_low(world, name, part, ceiling):
    train, test = world.task(name, 1000), world.task(name, 999, "validation")
    texts = [
        [row[part] if part else " ".join(row[c] for c in row if c != "label") for row in rows] for rows in (train, test)
    ]
    predicted = bag_of_words(texts[0], [row["label"] for row in train], texts[1]).argmax(1)
    score = sum(p == row["label"] for p, row in zip(predicted, test, strict=True)) / len(test)
    assert score < ceiling


def test_a_choice_by_itself_does_not_tell(world):
    train, test = world.task("continuation", 400), world.task("continuation", 300, "validation")
    texts, labels = zip(*((c, i == row["label"]) for row in train for i, c in enumerate(row["choices"])), strict=True)
    scores = bag_of_words(list(texts), list(labels), [c for row in test for c in row["choices"]])[:, 1]
    best = scores.reshape(-1, 4).argmax(1)
    assert sum(b == row["label"] for b, row in zip(best, test, strict=True)) / len(test) < 0.35


def test_overlap_does_not_tell_the_choice(world):
    """The words of every choice are in the text equally often, on average."""
    right, wrong = [], []
    for row in world.task("continuation", 300):
        text = set(words(row["text"].lower()))
        for i, choice in enumerate(row["choices"]):
            (right if i == row["label"] else wrong).append(len(text & set(words(choice.lower()))))
    assert abs(sum(right) / len(right) - sum(wrong) / len(wrong)) < 0.1


def test_entities_by_the_word_alone(world):
    """The commonest label of each word leaves many entities of the held-out sentences wrong."""
    seen = defaultdict(Counter)
    for row in world.task("entities", 1000):
        for token, label in zip(row["tokens"], row["labels"], strict=True):
            seen[token.lower()][label] += 1
    hits = total = 0
    for row in world.task("entities", 500, "test"):
        for token, label in zip(row["tokens"], row["labels"], strict=True):
            if label:
                guess = seen[token.lower()].most_common(1)[0][0] if token.lower() in seen else 0
                hits += guess == label
                total += 1
    assert hits / total < 0.7


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
