"""Every task as text in and text out, and batches that mix several tasks, as in T5.

    mrpc sentence1: He left. sentence2: He went away.      -> equivalent

The wording follows Raffel et al. (2020, section 2.4 and appendix D), the mixing section 3.5.2.
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

SCORE_STEP = 0.2  # scores are rounded to multiples of it, as in section 2.4 for STS-B
BLOCK = 1024  # number of tasks that are drawn at a time


@dataclass(frozen=True)
class Wording:
    """How the rows of one task are written as text.

    >>> row = {"text": "He left.", "pair": "He went away.", "label": 1}
    >>> WORDINGS["mrpc"].row(row)["text"], WORDINGS["mrpc"].row(row)["target"]
    ('mrpc sentence1: He left. sentence2: He went away.', 'equivalent')

    Attributes:
        prefix: the task's name or instruction, in front of the input.
        fields: the course's column -> its name in the input; "" writes no name.
        labels: the word for each class; empty if the label is a score or the target is a text.
    """

    prefix: str
    fields: Mapping[str, str] = field(default_factory=lambda: {"text": "sentence"})
    labels: Sequence[str] = ()

    def row(self, item: Mapping[str, Any]) -> dict[str, str]:
        """A row as `text`, the encoder's input, and `target`, the decoder's output."""
        parts = [self.prefix]
        for column, name in self.fields.items():
            parts.append(f"{name}: {item[column]}" if name else str(item[column]))
        target = item.get("target", item.get("answer"))
        if target is None:  # the label is a class or a score
            if self.labels:
                target = self.labels[item["label"]]
            else:
                target = f"{round(item['label'] / SCORE_STEP) * SCORE_STEP:.1f}"
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
    """The wording of a translation. The languages have their English names, such as "German"."""
    return Wording(f"translate {source} to {target}:", {"text": ""})


def rows(data: Iterable[Mapping[str, Any]], wording: Wording | str) -> Iterator[dict[str, str]]:
    """Write a task's rows as `text` and `target`, which `inputs.SourceTarget` reads."""
    wording = WORDINGS[wording] if isinstance(wording, str) else wording
    return map(wording.row, data)


def mixing_rates(
    sizes: Sequence[int], temperature: float = 1.0, *, limit: int | None = None
) -> list[float]:
    """The probability with which each task is drawn (section 3.5.2).

    Args:
        sizes: number of rows of each task.
        temperature: the sizes are raised to the power 1 / temperature. 1 is examples-proportional
            mixing; math.inf draws every task equally often.
        limit: K of the paper; a larger size counts as `limit`. None sets no limit.

    >>> mixing_rates([100, 300, 10_000], limit=400), mixing_rates([100, 900], temperature=2)
    ([0.125, 0.375, 0.5], [0.25, 0.75])
    """
    if limit is not None:
        sizes = [min(size, limit) for size in sizes]
    scaled = [size ** (1 / temperature) for size in sizes]
    return [rate / sum(scaled) for rate in scaled]


class Draws:
    """Draw number -> (task, number of earlier draws of the same task).

    It is a pure function of the rates and the seed, so training can resume at any step.

    >>> draws = Draws([0.5, 0.5], seed=0)
    >>> [draws[i] for i in range(4)]
    [(1, 0), (1, 1), (1, 2), (0, 0)]
    """

    def __init__(self, rates: Sequence[float], seed: int) -> None:
        self.rates = torch.tensor(rates, dtype=torch.float64)
        self.seed = seed
        # For each block: how often each task was drawn before it, Int[tasks].
        self._before = [torch.zeros(len(rates), dtype=torch.int64)]
        self._block = lru_cache(maxsize=1)(self._draw_block)

    def __getitem__(self, number: int) -> tuple[int, int]:
        block, index = divmod(number, BLOCK)
        # To know how often a task was drawn before, we count the draws of all earlier blocks once.
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

    Each row's task is drawn by the rates. The rows of a task come in random order, and all of them
    once before any of them comes again.

    Args:
        frame: collates rows to batches.
        tasks: name -> rows that `frame.rows` made.
        rates: the probability of each task, as from `mixing_rates`.
        batch: number of rows in a batch.
        seed: seed of the drawn tasks and of the order of their rows.
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
