"""The generated world: a small town whose grammar knows every label of every sentence it writes.

    from course_lib.data.world import World

    world = World(seed=0)
    world.document(7)["text"]                      # one document, made alone
    world.task("nli", 1000, "train", seed=1)       # labelled examples, true by construction
    world.probe(200, kind="place")                 # can a model look a word up in its context?

What is where: `lexicon.py` reads words into pools, `grammar.py` renders templates, `facts.py` casts people and
things, `documents.py` writes documents, `probes.py` asks what a model can look up, `tasks/` makes labelled examples.
The words and the sentences themselves are tables in /data/world, one line a word or a sentence, and a course can
bring its own copy: `World(folder="my_world")`.

**Add a word.** Append a row to its table: a person to names.tsv (gender f or m), a thing to objects.tsv with its
plural, a place to places.tsv with its preposition, a verb to verbs.tsv with all its forms, a class (what can be done:
get, lose, fix, break, look, move to things; who to people; intr without an object) and perhaps a synonym that has a
row too, an opinion to opinions.tsv. A row with a missing cell is refused with its line number.

**Add a sentence.** Append a row to templates.tsv: its group, its weight, `all` or `test` (kept from training), and
the template, words between spaces: `The {O} was {v.part} by {X} .` The slots are explained in grammar.py. A group is
the genre and the sentence's place in a document: `deed.state` states a fact, `deed.again` says it again, `deed.get`
is what follows from a verb of class get, `deed.same` is true where both facts share a verb; `colour` is said between.
A word in one of its senses goes to senses.tsv, marked like `bank/NOUN`. What is said must be true in every document
of its group.

**Add a task.** Subclass `tasks.base.Task`: name its columns and labels, return one example from `make(rng, member,
split)`, all chance from `rng`; list the class in `tasks/__init__.py`. Then measure it: no word by itself, no half of
a pair may tell the label (tests/unit/test_world_tasks.py shows how).

**Shipped checkpoints** have learned this town's words and sentences. A change of a table that documents draw from
changes the documents (a test holds their fingerprint): such a change belongs with `make checkpoints`. Tables of tasks
are free.

What training never shows: one person, place and (as what a fact is about) object in twelve; one pair of person and
object in ten; the templates marked `test`. All of these come in the test split; the validation split has only new
pairs.
"""

import random
from pathlib import Path
from typing import Any

from course_lib.data.world.documents import GENRES, Writer
from course_lib.data.world.facts import SPLITS, check_count, check_split
from course_lib.data.world.lexicon import FOLDER, Lexicon
from course_lib.data.world.primer import Primer, check_level
from course_lib.data.world.probes import Probes, check_kind, check_side
from course_lib.data.world.tasks import TASKS, Task, find
from course_lib.errors import CourseError

__all__ = ["SPLITS", "World"]


class World:
    """One generated town. The same seed gives the same town, documents and tasks on every machine.

    Args:
        seed: another seed is another town: other common words, other held-out people.
        folder: where the tables are; a teacher's own copy of data/world may stand elsewhere.
    """

    def __init__(self, seed: int = 0, folder: str | Path = FOLDER) -> None:
        self.seed = seed
        self.lexicon = Lexicon(seed, Path(folder))
        self.writer = Writer(self.lexicon)
        self.probes = Probes(self.writer.casting)
        self._primer = Primer(self.writer)
        self._tasks: dict[str, Task] = {}

    def document(self, index: int, split: str = "train", seed: int = 0, genre: str = "") -> dict[str, Any]:
        """Document number `index`, made alone: it depends on (world seed, split, seed, index, genre) and nothing else.

        Returns a dictionary of the text and its gold annotations. Tokens are counted from 0 in the document:

            text, sentences: the sentences joined by spaces are the text.
            tokens: words and punctuation of all sentences.
            tags: of each token its part of speech, one of the 17 of Universal Dependencies.
            heads: of each token the number of the token that it hangs from, -1 for the root of a sentence.
            deprels: of each token its relation to its head (Universal Dependencies, version 2).
            entities: of each token its named entity in BIO: PERSON, LOC, ORG, WORK.
            mentions: {"start", "end", "entity"}: tokens start to end - 1 name or stand for "person/Anna"; the mentions
                of one entity corefer.
            senses: {"token", "sense"}: an ambiguous word and its sense, "bank/river".
            facts: (subject, relation, object), what the document says.
            opinions: (person, "like" or "dislike", thing), in reviews and meals.
            sentiment: "positive", "negative" or "mixed" opinions; "" where there are none.
            genre: what kind of document it is, one of `genres()`; `genre` asks for one.
        """
        check_split(split)
        if genre and genre not in GENRES:
            raise CourseError(f"The world has no genre {genre!r}; choose one of {', '.join(GENRES)}.")
        return self.writer.document(random.Random(f"{self.seed}/{split}/{seed}/{index}"), split, genre)

    def documents(self, n: int, split: str = "train", seed: int = 0, genre: str = "") -> list[dict[str, Any]]:
        """The first `n` documents of a split: "train", "validation" or "test"; only of one genre, if it is named."""
        check_count(n)
        return [self.document(index, split, seed, genre) for index in range(n)]

    def primer(
        self, index: int, level: int = 1, seed: int = 0, *, rounds: bool = True, made_up: float = 0.0
    ) -> dict[str, Any]:
        """Page number `index` of the primer: two to six facts of one verb and form, said again and again.

        level: 1 pairs people and things; 2 has the facts of all genres. rounds: every fact once, then every fact again;
        without, any fact at any time after the first round, on pages of many lengths, for a model that reads to both
        sides: in rounds it would fill in whichever fact the round still lacks. made_up: share of the names that are
        words nobody has read, so that a reader learns to copy words of many pieces too. Returns the columns text,
        sentences, facts and genre of a document. What training documents never show, the primer does not show either.

        Raises:
            CourseError: no such level; a share outside 0 to 1.
        """
        check_level(level)
        if not 0 <= made_up <= 1:
            raise CourseError(f"made_up is {made_up}; it is a share of the names, 0 to 1.")
        return self._primer.page(random.Random(f"{self.seed}/primer/{level}/{seed}/{index}"), level, rounds, made_up)

    def names(self, kind: str = "") -> list[str]:
        """What the parts of facts are called: people, objects, places, towns, jobs, foods; one kind, if it is named."""
        kinds = ("people", "objects", "places", "towns", "jobs", "foods")
        if kind and kind not in kinds:
            raise CourseError(f"The world has no names of the kind {kind!r}; choose one of {', '.join(kinds)}.")
        parts = [getattr(self.lexicon, name) for name in kinds if name == (kind or name)]
        return [" ".join(item[""][0]) for items in parts for item in items]

    @staticmethod
    def genres() -> tuple[str, ...]:
        """The genres of documents."""
        return tuple(GENRES)

    def task(
        self, name: str, n: int, split: str = "train", seed: int = 0, *, gold: bool = False
    ) -> list[dict[str, Any]]:
        """`n` labelled examples with the labels as numbers; `label_names(name)` says what they mean.

        The test split brings people, things and places, and templates, that training never shows. With `gold`, a
        further column of that name says how each example came about.
        """
        check_split(split)
        check_count(n)
        if name not in self._tasks:
            self._tasks[name] = find(name)(self.writer)
        task = self._tasks[name]
        rows = []
        for index in range(n):
            group, member = divmod(index, task.group)
            row = task.make(random.Random(f"{self.seed}/{name}/{split}/{seed}/{group}"), member, split)
            rows.append({key: row[key] for key in (*task.columns, *(["gold"] if gold else []))})
        return rows

    @staticmethod
    def label_names(name: str) -> tuple[str, ...]:
        """What the labels of a task are called, in the order of their numbers."""
        return find(name).labels

    @staticmethod
    def describe(name: str) -> str:
        """What a task asks, in one line."""
        return (find(name).__doc__ or "").strip().split("\n")[0]

    @staticmethod
    def task_names() -> tuple[str, ...]:
        """The tasks that there are."""
        return tuple(TASKS)

    def probe(self, n: int, seed: int = 0, kind: str = "object", facts: int = 2) -> list[dict[str, Any]]:
        """`n` items of the copy probe: `context` states `facts` competing facts, `sentence` says one of them again.

        The hidden word `answer` (kind "name", "object" or "place") is the last occurrence in `sentence`, and `prefix`,
        the sentence up to it, already decides it, so that the item serves causal and masked models. The pairs of person
        and object never meet in a training document.
        """
        check_kind(kind, facts)
        check_count(n)
        rng = random.Random(f"probe/{self.seed}/{seed}/{kind}")
        return [self.probes.copy(rng, kind, facts) for _ in range(n)]

    def evidence(self, n: int, seed: int = 0, side: str = "left") -> list[dict[str, Any]]:
        """`n` texts with one hidden word `answer` between `text_before` and `text_after`.

        side: where the evidence stands. "left": the fact was stated before. "right": it is stated after. "both": two
        facts stand before, and what tells which of them is meant stands after. Half of "both" can be guessed.
        """
        check_side(side)
        check_count(n)
        rng = random.Random(f"evidence/{self.seed}/{seed}/{side}")
        return [self.probes.evidence(rng, side) for _ in range(n)]
