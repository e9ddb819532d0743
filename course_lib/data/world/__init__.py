"""The generated world: a small town whose grammar knows every label of every sentence it writes."""

import random
from pathlib import Path
from typing import Any

from course_lib.data.world.documents import Writer
from course_lib.data.world.facts import SPLITS, check_split
from course_lib.data.world.lexicon import FOLDER, Lexicon
from course_lib.data.world.probes import Probes, check_kind, check_side
from course_lib.data.world.tasks import TASKS, Task, find

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
        self._tasks: dict[str, Task] = {}

    def document(self, index: int, split: str = "train", seed: int = 0) -> dict[str, Any]:
        """Document number `index`, made alone: it depends on (world seed, split, seed, index) and nothing else."""
        check_split(split)
        return self.writer.document(random.Random(f"{self.seed}/{split}/{seed}/{index}"), split)

    def documents(self, n: int, split: str = "train", seed: int = 0) -> list[dict[str, Any]]:
        """The first `n` documents of a split."""
        return [self.document(index, split, seed) for index in range(n)]

    def task(
        self, name: str, n: int, split: str = "train", seed: int = 0, *, gold: bool = False
    ) -> list[dict[str, Any]]:
        """`n` labelled examples with the labels as numbers; `label_names(name)` says what they mean.

        The test split brings people, things and places, and templates, that training never shows. With `gold`, a
        further column of that name says how each example came about.
        """
        check_split(split)
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
        rng = random.Random(f"probe/{self.seed}/{seed}/{kind}")
        return [self.probes.copy(rng, kind, facts) for _ in range(n)]

    def evidence(self, n: int, seed: int = 0, side: str = "left") -> list[dict[str, Any]]:
        """`n` texts with one hidden word `answer` between `text_before` and `text_after`.

        side: where the evidence stands. "left": the fact was stated before. "right": it is stated after. "both": two
        facts stand before, and what tells which of them is meant stands after. Half of "both" can be guessed.
        """
        check_side(side)
        rng = random.Random(f"evidence/{self.seed}/{seed}/{side}")
        return [self.probes.evidence(rng, side) for _ in range(n)]
