"""The generated world: a small town whose grammar knows every label of every sentence it writes.

    from classroom.town import World

    world = World(seed=0)
    world.document(7)["text"]                      # one document, made alone
    world.task("nli", 1000, "train", seed=1)       # labelled examples, true by construction

The words and sentences are tables in data/world; a course can bring its own copy,
`World(folder="my_world")`, and docs/world.md says how to add a word, a sentence or a task. Shipped
checkpoints have learned this town: a change of a table that documents draw from belongs with `make
checkpoints`. Tables of tasks are free.

Its files:

    lexicon.py     the words, with their forms
    grammar.py     templates of sentences
    parses.py      their gold parses
    facts.py       who does what
    documents.py   documents made of facts
    primer.py      pages that repeat a few facts
    probes.py      the copy probe and the evidence probe
    searches.py    passages and queries
    arcs.py        English sentences whose determiners and objects are marked
    senses.py      English sentences with words of two senses
    choices.py     English sentences with a gap and four words for it
    gaps.py        hidden words in English texts, and a model's loss on them
    tasks/         labelled examples
    rows.py        rows in the forms that `course_lib.analysis` reads
    templates.py   wordings of the tasks for a language model
    source.py      the town as a source of `course_lib.data`
"""

import inspect
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from classroom.town.documents import Writer
from classroom.town.facts import GENRES, SPLITS, check
from classroom.town.lexicon import FOLDER, Lexicon
from classroom.town.primer import LEVELS, Primer
from classroom.town.probes import AGAIN, SIDES, Probes
from classroom.town.rows import analogy_questions, sentences
from classroom.town.tasks import TASKS, TownTask
from course_lib.analysis.analogies import AnalogyQuestion
from course_lib.errors import CourseError

__all__ = ["SPLITS", "World"]


class World:
    """One generated town. The same seed gives the same town, documents and tasks on every machine.

    seed: another seed is another town: other common words, other held-out people. folder: where the
    tables are."""

    def __init__(self, seed: int = 0, folder: str | Path = FOLDER) -> None:
        self.seed = seed
        self.lexicon = Lexicon(seed, Path(folder))
        self.writer = Writer(self.lexicon)
        unparsed = [text for text, parsed in self.lexicon.compiled.items() if not parsed]
        if unparsed:
            raise CourseError(
                f"The template {unparsed[0]!r} has no row in parses.tsv; add one with its heads and"
                " relations (docs/world.md)."
            )
        self.probes = Probes(self.writer.casting)
        self._primer = Primer(self.writer)
        self._tasks: dict[str, TownTask] = {}

    def document(
        self, index: int, split: str = "train", seed: int = 0, genre: str = ""
    ) -> dict[str, Any]:
        """Document number `index`, made alone: it depends on (world seed, split, seed, index,
        genre) and nothing else.

        Returns the text and its gold annotations (docs/world.md has the columns). `genre` asks for
        one of `genres()`."""
        check("split", split, SPLITS)
        if genre:
            check("genre", genre, GENRES)
        return self.writer.document(
            random.Random(f"{self.seed}/{split}/{seed}/{index}"), split, genre
        )

    def documents(
        self, n: int, split: str = "train", seed: int = 0, genre: str = ""
    ) -> list[dict[str, Any]]:
        """The first `n` documents of a split: "train", "validation" or "test"; only of one genre,
        if it is named.
        """
        return [self.document(index, split, seed, genre) for index in range(n)]

    def primer(
        self,
        index: int,
        level: int = 1,
        seed: int = 0,
        *,
        rounds: bool = True,
        made_up: float = 0.0,
    ) -> dict[str, Any]:
        """Page number `index` of the primer: two to six facts of one verb and form, said again and
        again.

        level: 1 pairs people and things; 2 has the facts of all genres. rounds: every fact once,
        then every fact again; without, any fact at any time after the first round, for a model that
        reads to both sides (docs/world.md). made_up: share of the names that are words nobody has
        read. Returns a document's text, sentences, facts, genre."""
        check("level of the primer", level, LEVELS)
        if not 0 <= made_up <= 1:
            raise CourseError(f"made_up is {made_up}; it is a share of the names, 0 to 1.")
        return self._primer.page(
            random.Random(f"{self.seed}/primer/{level}/{seed}/{index}"), level, rounds, made_up
        )

    def names(self, kind: str = "") -> list[str]:
        """What the parts of facts are called: people, objects, places, towns, jobs, foods; one
        kind, if it is named.
        """
        kinds = ("people", "objects", "places", "towns", "jobs", "foods")
        if kind:
            check("names of the kind", kind, kinds)
        parts = [getattr(self.lexicon, name) for name in kinds if name == (kind or name)]
        return [" ".join(item[""][0]) for items in parts for item in items]

    @staticmethod
    def genres() -> tuple[str, ...]:
        """The genres of documents."""
        return tuple(GENRES)

    def task(
        self, name: str, n: int, split: str = "train", seed: int = 0, *, gold: bool = False
    ) -> list[dict[str, Any]]:
        """`n` labelled examples with the labels as numbers; `label_names(name)` says what they
        mean.

        The test split brings people, things and places, and templates, that training never shows.
        With `gold`, a further column of that name says how each example came about."""
        check("split", split, SPLITS)
        if name not in self._tasks:
            self._tasks[name] = _find(name)(self.writer)
        task = self._tasks[name]
        rows = []
        for index in range(n):
            group, member = divmod(index, task.group)
            row = task.make(
                random.Random(f"{self.seed}/{name}/{split}/{seed}/{group}"), member, split
            )
            rows.append({key: row[key] for key in (*task.columns, *(["gold"] if gold else []))})
        return rows

    @staticmethod
    def label_names(name: str) -> tuple[str, ...]:
        """What the labels of a task are called, in the order of their numbers."""
        return _find(name).labels

    @staticmethod
    def describe(name: str) -> str:
        """What a task asks, in one line."""
        paragraph = (inspect.getdoc(_find(name)) or "").partition("\n\n")[0]
        return " ".join(paragraph.split())

    @staticmethod
    def sentences(documents: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The sentences of documents with their trees, each once."""
        return sentences(documents)

    @staticmethod
    def analogy_questions(task: Iterable[Mapping[str, Any]]) -> list[AnalogyQuestion]:
        """Rows of the task `analogies` as `course_lib.analysis.analogies` reads them."""
        return analogy_questions(task)

    @staticmethod
    def task_names() -> tuple[str, ...]:
        """The tasks that there are."""
        return tuple(TASKS)

    def probe(
        self, n: int, seed: int = 0, kind: str = "object", facts: int = 2
    ) -> list[dict[str, Any]]:
        """`n` items of the copy probe: `context` states `facts` competing facts, `sentence` says
        one of them again.

        The hidden word `answer` (kind "name", "object" or "place") is the last occurrence in
        `sentence`, and `prefix`, the sentence up to it, already decides it. The pairs of person and
        object never meet in a training document."""
        check("kind of the copy probe", kind, AGAIN)
        if facts < 2:
            raise CourseError(f"The copy probe needs at least 2 competing facts, not {facts}.")
        rng = random.Random(f"probe/{self.seed}/{seed}/{kind}")
        return [self.probes.copy(rng, kind, facts) for _ in range(n)]

    def evidence(self, n: int, seed: int = 0, side: str = "left") -> list[dict[str, Any]]:
        """`n` texts with one hidden word `answer` between `text_before` and `text_after`.

        side: where the evidence stands. "left": the fact was stated before. "right": it is stated
        after. "both": two facts stand before, and what tells which of them is meant stands after.
        Half of "both" can be guessed."""
        check("side of the evidence", side, SIDES)
        rng = random.Random(f"evidence/{self.seed}/{seed}/{side}")
        return [self.probes.evidence(rng, side) for _ in range(n)]


def _find(name: str) -> type[TownTask]:
    check("task", name, TASKS)
    return TASKS[name]
