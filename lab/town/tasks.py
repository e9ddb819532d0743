"""How difficult are the world's tasks? Majority, bag of words, from scratch and pretrained, with
few labels.

    python -m lab.town.tasks --labels 100,1000 --seeds 3 --jobs 2 python -m
    lab.town.tasks --tasks rte --labels 1000,80000 --same-steps  # then, into the same
    record

Encoders (bert-mini) get a head for the task's kind; tasks whose answer is a text are learned by a
decoder (gpt-mini). From scratch means the same architecture, tokenizer and steps. Texts, pairs and
choices are judged without fine-tuning as well (`hiding`). Seeds change the training rows, the head
and the order; the 300 test rows are the same. The recipe was chosen once, on acceptability and
sentiment with validation rows, and then kept for all tasks."""

import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import numpy as np
import torch
import typer

from classroom.records.figures import Figure, difference, figure
from classroom.town import World
from course_lib import zoo
from course_lib.data import tokenizers
from course_lib.data.batch_plans import Shuffled
from course_lib.files import read_json, write_json
from course_lib.model import heads, transformer
from course_lib.model.config import Pool
from course_lib.objectives import losses
from course_lib.objectives.collate import pad
from course_lib.training import optim
from course_lib.training.finetune import FinetuneConfig, finetune
from course_lib.vocab import IGNORE
from lab.engine import arms, lab, run
from lab.town import hiding, views

WORK = Path("build/world_tasks")
OUT = Path("data/results/world_tasks.json")
PACKAGES = ("torch", "tokenizers", "numpy", "scikit-learn")
STARTS = ("majority", "bag of words", "from scratch", "pretrained")
ASKED = ("asked from scratch", "asked")  # further ones, where the task can be asked
# what pretraining gave -> the same without it
AGAINST = {"pretrained": "from scratch", "asked": "asked from scratch"}
ENCODER = "bert-mini"
DECODER = "gpt-mini"
CLEAR = 0.05  # the pretrained mean must be so far above the others to be called clearly ahead


@dataclass(frozen=True)
class Hyperparameters:
    """How a model is tuned. batch, epochs and the like: with (at most 100 labels, more)."""

    lr: float = 2e-3
    batch: tuple[int, int] = (16, 32)
    epochs: tuple[int, int] = (12, 8)
    choices: tuple[int, int] = (16, 16)
    choice_epochs: tuple[int, int] = (10, 3)
    target_epochs: tuple[int, int] = (8, 3)
    warmup: float = 0.1
    weight_decay: float = 0.01
    dropout: float = 0.1
    pool: Pool = "mean"
    test_rows: int = 300


@dataclass(frozen=True)
class Cell:
    """One score of the table."""

    task: str
    labels: int
    start: str
    seed: int


@dataclass(frozen=True)
class Grid:
    """What all cells share."""

    settings: Hyperparameters = Hyperparameters()
    work: Path = WORK

    def file(self, cell: Cell) -> Path:
        """Where the cell's score is kept: another recipe, checkpoint or text of the task is another
        file.
        """
        model = DECODER if views.view(cell.task).kind == "target" else ENCODER
        follows = [
            asdict(self.settings),
            asdict(cell),
            _fingerprint(cell.task),
            lab.checkpoint_hash(model),
            hiding.HOW,
        ]
        name = f"{cell.task}-{cell.labels}-{cell.start.replace(' ', '_')}-{cell.seed}"
        return self.work / f"{name}-{arms.short_hash(json.dumps(follows))}.json"


@cache
def _fingerprint(task: str) -> str:
    """Of the first rows of the task: other templates or words are another task."""
    return arms.short_hash(
        json.dumps([views.view(task).rows(40, split, 0) for split in ("train", "test")])
    )


_model = cache(zoo.load)


def measure(cell: Cell, grid: Grid) -> dict[str, float]:
    """The score of one cell, from its file if it was measured before; and its seconds."""
    return lab.once(grid.file(cell), lambda: {"score": round(float(_score(cell, grid)), 4)})


def _score(cell: Cell, grid: Grid) -> float:
    what = views.view(cell.task)
    train = what.rows(cell.labels, "train", cell.seed)
    test = what.rows(grid.settings.test_rows, "test", views.TEST_SEED)
    if cell.start == "majority":
        return views.majority(what, train, test)
    if cell.start == "bag of words":
        return views.bag_of_words(what, train, test)
    if cell.start in ASKED:
        seed = None if cell.start == "asked" else cell.seed
        x = _asked(cell.task, cell.labels, "train", cell.seed, seed)
        x_test = _asked(cell.task, grid.settings.test_rows, "test", views.TEST_SEED, seed)
        return hiding.asked_score(what, train, test, x, x_test)
    tune = _decoder if what.kind == "target" else _encoder
    return tune(what, {"train": train, "test": test}, cell, grid.settings)


def _encoder(
    what: views.View, rows: dict[str, views.Rows], cell: Cell, use: Hyperparameters
) -> float:
    loaded = _model(ENCODER)
    many = cell.labels > 100
    assert what.kind != "target" and isinstance(loaded.model.stack, transformer.Transformer)
    is_choice = what.kind == "choice"
    epochs = use.choice_epochs if is_choice else use.epochs
    batch = use.choices if is_choice else use.batch
    return finetune(
        loaded.model.stack,
        rows,
        loaded.tokenizer,
        FinetuneConfig(
            kind=what.kind,
            classes=what.classes or None,
            metric=what.metric,
            epochs=epochs[many],
            batch=batch[many],
            seed=cell.seed,
            pretrained=cell.start == "pretrained",
            precision="auto",
            lr=use.lr,
            warmup=use.warmup,
            weight_decay=use.weight_decay,
            dropout=use.dropout,
            pool=use.pool,
        ),
    ).score


@cache
def _asked(task: str, n: int, split: str, draw: int, seed: int | None) -> np.ndarray:
    """What the encoder thinks of `n` rows, with random weights of this seed; None: with its own."""
    model, tokenizer, _ = _model(ENCODER)
    if seed is not None:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = heads.MLM(transformer.Transformer(model.stack.config))
    return hiding.features(views.view(task).rows(n, split, draw), model, tokenizer)


class _Targets:
    """Batches of text and target in one row, labels on the target's tokens and the end mark
    alone.
    """

    def __init__(
        self, rows: views.Rows, tokenizer: tokenizers.Tokenizer, batch: int, seed: int, most: int
    ) -> None:
        vocab = tokenizer.vocab
        assert vocab.bos is not None and vocab.eos is not None
        self.rows: list[tuple[list[int], list[int]]] = []
        for row in rows:
            text = [vocab.bos, *tokenizer.encode(row["text"], special=False).ids]
            target = [*tokenizer.encode(f" {row['target']}", special=False).ids, vocab.eos]
            text = text[-(most - len(target)) :]  # what is too long loses its beginning
            self.rows.append((text + target, [IGNORE] * (len(text) - 1) + target + [IGNORE]))
        self.pad, self.most, self.plan = vocab.padding_id, most, Shuffled(len(rows), batch, seed)

    def __getitem__(self, step: int, /) -> losses.Batch:
        return self.collate(self.plan[step])

    def collate(self, numbers: Sequence[int]) -> losses.Batch:
        """These rows: ids, attention_mask, labels Int[B T] (what each position should predict)."""
        rows, labels = zip(*(self.rows[i] for i in numbers), strict=True)
        batch = pad(rows, self.pad, max_width=self.most)
        return batch | {"labels": pad(labels, IGNORE, max_width=self.most)["ids"]}


def _decoder(
    what: views.View, rows: dict[str, views.Rows], cell: Cell, use: Hyperparameters
) -> float:
    """Fine-tune on text and target; the share of test targets (or of their tokens) that are
    predicted rightly.

    Each token is predicted after the right ones before it; where all of a target's are right,
    greedy writing gives the target, so that "exact" is the score of generation."""
    loaded = _model(DECODER)
    many = cell.labels > 100
    old = loaded.model.stack
    assert isinstance(old, transformer.Transformer)
    most = getattr(old.config.position, "length", 512)
    batches = _Targets(rows["train"], loaded.tokenizer, use.batch[many], cell.seed, most)
    with torch.random.fork_rng():
        torch.manual_seed(cell.seed)
        model = heads.LM(transformer.Transformer(old.config))
        if cell.start == "pretrained":
            model.stack.load_state_dict(old.state_dict())
        steps = use.target_epochs[many] * batches.plan.steps
        schedule = optim.linear(steps, round(use.warmup * steps))
        lab.fit(
            model,
            batches,
            losses.clm,
            lab.linear_config(steps, use.lr, weight_decay=use.weight_decay, precision="auto"),
            schedule,
        )
    test = _Targets(rows["test"], loaded.tokenizer, 64, 0, most)
    scores: list[float] = []
    for start in range(0, len(test.rows), 64):
        batch = test.collate(range(start, min(start + 64, len(test.rows))))
        with torch.no_grad():
            best = model(batch["ids"], attention_mask=batch["attention_mask"]).argmax(-1)  # B T
        for row, labels in zip(best, batch["labels"], strict=True):
            is_right = (row == labels)[labels != IGNORE]
            share = is_right.all() if what.metric == "exact" else is_right.float().mean()
            scores.append(float(share))
    return mean(scores)


def cells(tasks: Sequence[str], labels: Sequence[int], seeds: int) -> list[Cell]:
    """The cells of a table, one seed after the other, so that a stopped run has whole rows."""
    return [
        Cell(t, n, start, seed)
        for n in labels
        for seed in range(seeds)
        for t in tasks
        for start in starts(t)
    ]


def starts(task: str) -> tuple[str, ...]:
    """How the task's scores come about."""
    return (*STARTS, *ASKED) if views.view(task).kind in hiding.KINDS else STARTS


def record(table: Sequence[Cell], grid: Grid) -> dict[str, Any]:
    """The table of the measured cells: the figure of each (task, number of labels, start), and who
    is ahead.
    """
    results = {cell: measure(cell, grid) for cell in table}
    counts, tasks = sorted({cell.labels for cell in table}), {}
    for task in dict.fromkeys(cell.task for cell in table):
        what = views.view(task)
        rows: dict[str, Any] = {"kind": what.kind, "metric": what.metric}
        rows["model"] = DECODER if what.kind == "target" else ENCODER
        for n in counts:
            scores = [
                (c.start, result["score"])
                for c, result in results.items()
                if (c.task, c.labels) == (task, n)
            ]
            found = {
                start: figure([score for s, score in scores if s == start])
                for start in starts(task)
            }
            rows[str(n)] = {start: asdict(value) for start, value in found.items()} | {
                "ahead": ahead(found)
            }
        rows["clearly_ahead"] = any(rows[str(n)]["ahead"]["clear"] for n in counts)
        tasks[task] = rows
    return {
        "id": "world_tasks",
        "rule": (
            "Clearly ahead: with some number of labels the pretrained model, fine-tuned or asked,"
            f" has a mean at least {CLEAR} above that of every start without pretraining, and the"
            " 95% interval of its paired difference from the same with random weights lies above"
            " zero."
        ),
        "tasks": tasks,
        "clearly_ahead": [task for task, rows in tasks.items() if rows["clearly_ahead"]],
        "seeds": sorted({cell.seed for cell in table}),
        "config": asdict(grid.settings) | {"labels": counts},
        "checkpoints": {name: lab.checkpoint_hash(name) for name in (ENCODER, DECODER)},
        "versions": {name: metadata.version(name) for name in PACKAGES},
        "hardware": f"{platform.machine()} CPU, {os.cpu_count()} cores",
        "seconds": round(sum(result["seconds"] for result in results.values()), 1),
        "made": time.strftime("%Y-%m-%d"),
    }


def ahead(found: dict[str, Figure]) -> dict[str, Any]:
    """By how much the pretrained model is above the best other start, and whether that is clear."""
    others = {start: value.mean for start, value in found.items() if start not in AGAINST}
    best = max((start for start in AGAINST if start in found), key=lambda start: found[start].mean)
    margin = found[best].mean - max(others.values())
    paired = difference(found[best], found[AGAINST[best]])
    above = paired.interval is not None and paired.interval[0] > 0  # one seed alone proves nothing
    over = max(others, key=others.__getitem__)
    return {
        "best": best,
        "margin": round(margin, 4),
        "over": over,
        "clear": margin >= CLEAR and above,
    }


def same_steps(task: str, labels: Sequence[int], seeds: int, grid: Grid) -> dict[str, Any]:
    """The tuned encoder with more and more rows, always after as many steps: those of eight epochs
    of 10,000 rows.
    """
    found: dict[str, Any] = {}
    for n in labels:
        use = replace(
            grid, settings=replace(grid.settings, epochs=(grid.settings.epochs[0], 80_000 // n))
        )
        scores = [measure(Cell(task, n, "pretrained", seed), use)["score"] for seed in range(seeds)]
        found[str(n)] = {"epochs": 80_000 // n, "pretrained": asdict(figure(scores))}
    return found


def main(
    tasks: Annotated[str, typer.Option(help="Names with commas between; all if not given.")] = "",
    labels: Annotated[str, typer.Option(help="Numbers of labels.")] = "100,1000",
    seeds: int = 3,
    jobs: Annotated[int, typer.Option(help="Processes side by side.")] = 1,
    work: Annotated[Path, typer.Option(help="Folder of the cells that are done.")] = WORK,
    out: Annotated[Path, typer.Option(help="The record.")] = OUT,
    steps: Annotated[
        bool, typer.Option("--same-steps", help="Rows alone vary; into a record that is there.")
    ] = False,
) -> None:
    """Measure every cell that is not there yet, then write the record."""
    names = tasks.split(",") if tasks else list(World.task_names())
    grid, counts = Grid(work=work), [int(n) for n in labels.split(",")]
    if steps:
        values = dict(read_json(out))
        for name in names:
            values["tasks"][name]["same steps"] = same_steps(name, counts, seeds, grid)
        write_json(out, values)
        return
    table = cells(names, counts, seeds)
    for number, (cell, result) in enumerate(
        run.side_by_side(partial(measure, grid=grid), table, jobs), 1
    ):
        typer.echo(
            f"{number}/{len(table)} {cell}: {result['score']:.3f} ({result['seconds']:.0f} s)"
        )
    values = record(table, grid)
    write_json(out, values)
    typer.echo(f"Clearly ahead on {len(values['clearly_ahead'])} of {len(values['tasks'])} tasks.")


if __name__ == "__main__":
    typer.run(main)
