"""The generated world: a small town whose grammar knows every label of every sentence it writes."""

import random
from pathlib import Path
from typing import Any

from course_lib.data.world.documents import Writer
from course_lib.data.world.facts import SPLITS, check_split
from course_lib.data.world.lexicon import FOLDER, Lexicon
from course_lib.data.world.probes import Probes, check_kind, check_side

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

    def document(self, index: int, split: str = "train", seed: int = 0) -> dict[str, Any]:
        """Document number `index`, made alone: it depends on (world seed, split, seed, index) and nothing else."""
        check_split(split)
        return self.writer.document(random.Random(f"{self.seed}/{split}/{seed}/{index}"), split)

    def documents(self, n: int, split: str = "train", seed: int = 0) -> list[dict[str, Any]]:
        """The first `n` documents of a split."""
        return [self.document(index, split, seed) for index in range(n)]

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
