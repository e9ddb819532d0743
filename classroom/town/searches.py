"""A collection to search: passages, queries, and for each query the passages that answer it.

In the town a query asks for a deed in the words of the passage ("bought lamp"), or with the verb's
synonym and in other forms, so that no word is shared ("purchasing lamps"), or so but with the
person's name ("Kate purchasing lamps")."""

import json
import random
import re
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from classroom.town import World
from classroom.town.source import TOWN
from course_lib.analysis.retrieval import words
from course_lib.data import corpus
from course_lib.errors import CourseError
from course_lib.files import DATA

KINDS = ("same words", "name, other words", "other words")
FIRST = "first sentence"
WRITTEN = "tasks/search"  # what was written for the course
SENTENCES = 4  # a passage of the town
LONGEST = 80  # words of a passage of other texts
# classes of verbs whose object is a thing
VERBS = ("get", "lose", "fix", "break", "look", "move", "give")
UNSURE = {"not", "no", "n", "nobody", "never"}
SENTENCE = re.compile(r"(?<=[.!?])\s+")


class Query(NamedTuple):
    """What is asked, how it is said (`KINDS`, or `FIRST`), the passage it was made from, all that
    answer it.
    """

    text: str
    kind: str
    passage: int
    answers: frozenset[int]


class Collection(NamedTuple):
    """Passages, and queries with the numbers of the passages that answer them. `topics`: what each
    passage is about, one word, where that is known.
    """

    passages: list[str]
    queries: list[Query]
    topics: tuple[str, ...] = ()

    def pairs(self) -> list[dict[str, Any]]:
        """Each query with its passage, for `TextBatches` and a ranking loss."""
        return [
            {"query": q.text, "positive": self.passages[q.passage], "negatives": []}
            for q in self.queries
        ]


class Deed(NamedTuple):
    """Somebody (or nobody named) did something to a thing: forms of words as they stand, and the
    verb's meaning.
    """

    person: str
    verb: str
    meaning: str
    thing: str


def collection(
    source: str | Path = "world", *, split: str = "test", n: int = 300, seed: int = 0
) -> Collection:
    """Passages and queries of the first `n` documents of a corpus.

    source: "tasks/search": all that was written for the course. "world": passages of four
    sentences, and a query of each of the `KINDS` for every passage that tells of a deed. Any other
    of `data.corpus`: its texts in passages of at most `LONGEST` words, and the first sentence of
    each passage asks for it. Where no test split is, all texts are searched."""
    if str(source) == WRITTEN:
        found = _written()
    elif str(source) == "world":
        found = _town(split, n, seed)
    else:
        try:
            corpus(source, split="test", n=1, streaming=True)
            texts = list(corpus(source, split=split, n=n, seed=seed)["text"])
        except CourseError:
            texts = list(corpus(source)["text"])
        found = _first_sentences(texts)
    if len(found.queries) < 2:
        raise CourseError(
            f"There is nothing to search in {source}: it takes two sentences or more, in two texts."
        )
    return found


def _written() -> Collection:
    """The paragraphs and questions that were written for the course."""

    def rows(name: str) -> list[dict[str, Any]]:
        lines = (DATA / WRITTEN / name).read_text("utf-8").splitlines()
        return [json.loads(line) for line in lines]

    paragraphs = rows("paragraphs.jsonl")
    numbers = {row["id"]: number for number, row in enumerate(paragraphs)}
    queries = []
    for row in rows("queries.jsonl"):
        answers = [numbers[name] for name in row["relevant"]]
        queries.append(Query(row["query"], KINDS[2], answers[0], frozenset(answers)))
    topics = tuple(row["id"].rpartition("-")[0] for row in paragraphs)
    return Collection([row["text"] for row in paragraphs], queries, topics)


def deeds(passage: str) -> list[Deed]:
    """What is done to things in a passage of the town; sentences that deny, ask, or name two things
    do not count.
    """
    meanings, _, things, people = _known()
    found = []
    for sentence in SENTENCE.split(passage):
        inside = words(sentence)
        verbs = [word for word in inside if word in meanings]
        objects = [word for word in inside if word in things]
        if sentence.endswith("?") or UNSURE & set(inside) or len(verbs) != 1 or len(objects) != 1:
            continue
        named = [word for word in inside if word in people]
        person = named[0] if len(named) == 1 else ""
        found.append(Deed(person, verbs[0], meanings[verbs[0]], objects[0]))
    return found


def _town(split: str, n: int, seed: int) -> Collection:
    passages = []
    for document in World(TOWN).documents(n, split, seed):
        sentences = document["sentences"]
        # no passage of one sentence
        starts = range(0, max(1, len(sentences) - SENTENCES // 2), SENTENCES)
        passages += [" ".join(sentences[start : start + SENTENCES]) for start in starts]
    told = [deeds(passage) for passage in passages]
    where: dict[tuple[str, ...], set[int]] = defaultdict(set)
    for number, found in enumerate(told):
        for deed in found:
            where[deed.meaning, deed.thing].add(number)
            where[deed.meaning, deed.thing, deed.person].add(number)
    rng = random.Random(f"searches/{split}/{seed}")
    queries = []
    for number, found in enumerate(told):
        named = [deed for deed in found if deed.person]
        if named:
            queries += _asked(number, passages, rng.choice(named), where)
    return Collection(passages, queries)


def _asked(
    number: int, passages: Sequence[str], deed: Deed, where: dict[tuple[str, ...], set[int]]
) -> list[Query]:
    """A query of each kind, if one can be made that shares no word with any passage that answers
    it.
    """
    _, others, things, _ = _known()
    answers = frozenset(where[deed.meaning, deed.thing])
    own = frozenset(where[deed.meaning, deed.thing, deed.person])
    inside = {word for answer in answers for word in words(passages[answer])}
    verb = next((form for form in others[deed.verb] if form not in inside), "")
    other = f"{verb} {things[deed.thing]}"
    if not verb or things[deed.thing] in inside:
        return []
    name = deed.person.capitalize()
    asked = ((f"{deed.verb} {deed.thing}", answers), (f"{name} {other}", own), (other, answers))
    return [
        Query(text, kind, number, right) for kind, (text, right) in zip(KINDS, asked, strict=True)
    ]


def _first_sentences(texts: Sequence[str]) -> Collection:
    """All passages of the texts; the first sentence of each asks for it."""
    found = [parts for text in texts for parts in _passages(text) if words(parts[0])]
    queries = [Query(parts[0], FIRST, i, frozenset({i})) for i, parts in enumerate(found)]
    return Collection([" ".join(parts) for parts in found], queries)


def _passages(text: str) -> list[list[str]]:
    """The sentences of a text, joined to passages of at most `LONGEST` words."""
    passages: list[list[str]] = []
    count = LONGEST  # words of the last passage; full, so that the first sentence opens one
    for sentence in re.split(rf"{SENTENCE.pattern}|\n\s*\n", text.strip()):
        inside = sentence.split()
        for start in range(0, len(inside), LONGEST):  # a longer sentence is cut
            piece = inside[start : start + LONGEST]
            if count + len(piece) > LONGEST:
                passages.append([])
                count = 0
            passages[-1].append(" ".join(piece))
            count += len(piece)
    return passages


def two_words(passages: Sequence[str], seed: int = 0) -> Collection:
    """For each passage a query of two words that stand in it, of six letters or more."""
    rng = random.Random(seed)
    queries = []
    for number, passage in enumerate(passages):
        long_words = [word for word in words(passage) if len(word) >= 6] or words(passage)
        chosen = rng.sample(long_words, min(2, len(long_words)))
        queries.append(Query(" ".join(chosen), KINDS[0], number, frozenset({number})))
    return Collection(list(passages), queries)


def part_numbers(n: int = 100, seed: int = 0) -> Collection:
    """A shop whose n articles differ by their number alone, and an order for each."""
    numbers = random.Random(seed).sample(range(1000, 10_000), n)
    parts = [f"Water filter XK-{number} for coffee machines" for number in numbers]
    orders = [
        Query(f"I need part number XK-{number}.", KINDS[0], i, frozenset({i}))
        for i, number in enumerate(numbers)
    ]
    return Collection(parts, orders)


@cache
def _known() -> tuple[dict[str, str], dict[str, list[str]], dict[str, str], frozenset[str]]:
    """Form of a verb -> its meaning, and -> forms to say the same by (a synonym's first); thing ->
    plural; people.
    """
    lexicon = World(TOWN).lexicon

    def said(item: Any, form: str = "") -> str:
        return " ".join(item[form][0]).casefold()

    meanings: dict[str, str] = {}
    others: dict[str, list[str]] = {}
    for kind in VERBS:
        for verb in lexicon.pools[kind].items:
            base = said(verb, "base")
            synonym = lexicon.synonyms.get(f"{kind}/{base}", verb)
            for form in ("base", "third", "past", "part", "ing"):
                meanings[said(verb, form)] = min(base, said(synonym, "base"))
                others[said(verb, form)] = [
                    said(synonym, "ing"),
                    said(synonym, "base"),
                    said(verb, "ing"),
                ]
    things = {said(thing): said(thing, "pl") for thing in lexicon.objects}
    return meanings, others, things, frozenset(said(person) for person in lexicon.people)
