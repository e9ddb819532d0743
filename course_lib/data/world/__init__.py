"""The generated world: a small town whose grammar knows every label of every sentence it writes."""

from __future__ import annotations

import random
from typing import Any

from course_lib.data.world.documents import SPLITS, Writer
from course_lib.data.world.lexicon import Lexicon
from course_lib.data.world.probes import Probes
from course_lib.errors import CourseError


class World:
    """One generated town. The same seed gives the same town, documents and tasks, on every machine."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.lexicon = Lexicon(seed)
        self.writer = Writer(self.lexicon, seed)
        self.probes = Probes(self.writer)

    def document(self, index: int, split: str = "train", seed: int = 0) -> dict[str, Any]:
        """Document number `index` of a split, made alone: it depends on nothing but (world seed, split, seed, index)."""
        if split not in SPLITS:
            raise CourseError(f"The world has no split {split!r}; choose one of {', '.join(SPLITS)}.")
        return self.writer.document(random.Random(f"{self.seed}/{split}/{seed}/{index}"), split)

    def documents(self, n: int, split: str = "train", seed: int = 0) -> list[dict[str, Any]]:
        """The first `n` documents of a split."""
        return [self.document(i, split, seed) for i in range(n)]

    def probe(self, n: int, seed: int = 0, kind: str = "object", facts: int = 2) -> list[dict[str, Any]]:
        """`n` items of the copy probe: `context` states `facts` competing facts, `sentence` says one of them again.

        The hidden word `answer` (kind "name", "object" or "place") is the last occurrence in `sentence`, and `prefix`, the
        sentence up to it, already decides it, so the item serves causal and masked models. The pairs of person and object
        never meet in a training document.
        """
        return self.probes.probe(n, seed, kind, facts)
