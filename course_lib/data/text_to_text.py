"""Every task as text in and text out, and batches that mix several tasks, as in T5.

    mrpc sentence1: He left. sentence2: He went away.      -> equivalent

The wording is that of Raffel et al. (2020, section 2.4 and appendix D), the mixing that of section
3.5.2.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from course_lib.data.batch_plans import Shuffled
from course_lib.data.inputs import EncodedRow, SourceTarget
from course_lib.objectives import seeded_generator
from course_lib.objectives.losses import Batch

STEP = 0.2  # scores are rounded to this before they are written, as T5 does for STS-B
BLOCK = 1024  # draws made at a time


@dataclass(frozen=True)
class Wording:
    """How one task is said.

    Attributes:
        prefix: in front.
        fields: the course's column -> its name in the text.
        labels: the classes as words; none for a score, or a target that is text already.
    """

    prefix: str
    fields: Mapping[str, str] = field(default_factory=lambda: {"text": "sentence"})
    labels: Sequence[str] = ()

    def row(self, item: Mapping[str, Any]) -> dict[str, str]:
        """What the encoder reads (`text`), and what the decoder says (`target`)."""
        parts = [self.prefix]
        for column, name in self.fields.items():
            parts.append(f"{name}: {item[column]}" if name else str(item[column]))
        target = item.get("target", item.get("answer"))
        if target is None:  # a class as its word, or a score, rounded
            if self.labels:
                target = self.labels[item["label"]]
            else:
                target = f"{round(item['label'] / STEP) * STEP:.1f}"
        return {"text": " ".join(parts), "target": str(target)}


PAIR = {"text": "sentence1", "pair": "sentence2"}
WORDINGS = {
    "cola": Wording("cola", labels=("unacceptable", "acceptable")),
    "sst2": Wording("sst2", labels=("negative", "positive")),
    "mrpc": Wording("mrpc", PAIR, ("not_equivalent", "equivalent")),
    "stsb": Wording("stsb", PAIR),
    "rte": Wording("rte", PAIR, ("entailment", "not_entailment")),
    "mnli": Wording(
        "mnli",
        {"pair": "hypothesis", "text": "premise"},
        ("entailment", "neutral", "contradiction"),
    ),
    "qnli": Wording(
        "qnli", {"text": "question", "pair": "sentence"}, ("entailment", "not_entailment")
    ),
    "summary": Wording("summarize:", {"text": ""}),
    "squad": Wording("question:", {"text": "", "pair": "context"}),
}


def translation(source: str, target: str) -> Wording:
    """The wording of a translation between two languages, named in English."""
    return Wording(f"translate {source} to {target}:", {"text": ""})


def rows(data: Iterable[Mapping[str, Any]], wording: Wording | str) -> Iterator[dict[str, str]]:
    """Examples in the course's columns as rows `text`, `target` for `inputs.SourceTarget`."""
    wording = WORDINGS[wording] if isinstance(wording, str) else wording
    return map(wording.row, data)


def mixing_rates(
    sizes: Sequence[int], temperature: float = 1.0, *, limit: int | None = None
) -> list[float]:
    """Each task's share of the draws (section 3.5.2).

    Args:
        sizes: rows of each task.
        temperature: the sizes are raised to 1 / temperature. 1 is examples-proportional mixing;
            math.inf draws every task alike.
        limit: sizes above it (K) count as it.

    >>> mixing_rates([100, 300, 10_000], limit=400), mixing_rates([100, 900], temperature=2)
    ([0.125, 0.375, 0.5], [0.25, 0.75])
    """
    if limit is not None:
        sizes = [min(size, limit) for size in sizes]
    scaled = [size ** (1 / temperature) for size in sizes]
    return [rate / sum(scaled) for rate in scaled]


class Draws:
    """Draw number -> (task, how many draws of this task came before).

    It is a pure function of the rates and the seed, so a mixture can be read from any step on.

    >>> draws = Draws([0.5, 0.5], seed=0)
    >>> [draws[i] for i in range(4)]
    [(1, 0), (1, 1), (1, 2), (0, 0)]
    """

    def __init__(self, rates: Sequence[float], seed: int) -> None:
        self.rates = torch.tensor(rates, dtype=torch.float64)
        self.seed = seed
        # Int[tasks], one for each block: the draws of each task before the block
        self._before = [torch.zeros(len(rates), dtype=torch.int64)]
        self._block = lru_cache(maxsize=1)(self._draw_block)

    def __getitem__(self, number: int) -> tuple[int, int]:
        block, index = divmod(number, BLOCK)
        while len(self._before) <= block:
            counts = torch.bincount(self._block(len(self._before) - 1), minlength=len(self.rates))
            self._before.append(self._before[-1] + counts)
        tasks = self._block(block)
        task = int(tasks[index])
        return task, int(self._before[block][task] + (tasks[:index] == task).sum())

    def _draw_block(self, block: int) -> Tensor:
        """Int[BLOCK]: the tasks of a block's draws."""
        return torch.multinomial(
            self.rates, BLOCK, replacement=True, generator=seeded_generator(self.seed, block)
        )


class MixedTasks:
    """Batches whose rows come from several tasks, as T5 mixes them.

    Each row's task is drawn by the rates. A task is read in random order, and whole before it is
    read again.

    Args:
        frame: makes batches of rows.
        tasks: name -> framed rows.
        rates: each task's share of the rows.
        batch: rows in a batch.
        seed: of the draws and the orders.
    """

    def __init__(
        self,
        frame: SourceTarget,
        tasks: Mapping[str, Sequence[EncodedRow]],
        rates: Sequence[float],
        *,
        batch: int,
        seed: int = 0,
    ) -> None:
        self.frame = frame
        self.tasks = list(tasks.values())
        self.draws = Draws(rates, seed)
        self.batch = batch
        self.orders = [Shuffled(len(rows), 1, seed, task) for task, rows in enumerate(self.tasks)]

    def __getitem__(self, step: int, /) -> Batch:
        """The batch of this step."""
        rows = []
        for number in range(step * self.batch, (step + 1) * self.batch):
            task, before = self.draws[number]
            (row,) = self.orders[task][before]
            rows.append(self.tasks[task][row])
        return self.frame.collate(rows)
