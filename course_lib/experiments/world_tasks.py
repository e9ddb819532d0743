"""How difficult are the world's tasks? Majority, bag of words, from scratch and pretrained, with few labels.

    python -m course_lib.experiments.world_tasks run --labels 100,1000 --seeds 3 --jobs 2
    python -m course_lib.experiments.world_tasks show

Encoders (bert-mini) get a head for the task's kind, as in `finetune`; tasks whose answer is a text are learned by a
decoder (gpt-mini) as text, then target. From scratch means the same architecture, the same tokenizer, the same steps.
Texts, pairs and choices are judged without fine-tuning as well: the encoder is asked for every word by its own head
(`world_asked`), and so is one with random weights.
Every cell of the table is a file in the work folder, named by all it follows from; a stopped run goes on where it
stopped. Seeds change the training rows, the head and the order of rows; the 300 test rows are the same.

The recipe was chosen once, on acceptability and sentiment with validation rows, and then kept for all tasks.
"""

import hashlib
import json
import os
import platform
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache
from importlib import metadata
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import Tensor, nn

from course_lib import heads, losses, optim, zoo
from course_lib.claims.record import Figure, difference, figure
from course_lib.corrupt import IGNORE, generator
from course_lib.data.batches import pad
from course_lib.data.world import World
from course_lib.errors import CourseError
from course_lib.experiments import world_asked, world_views
from course_lib.experiments.world_views import Rows, View, view
from course_lib.files import read_json, write_json
from course_lib.finetune import finetune
from course_lib.losses import Batch
from course_lib.stack import Stack
from course_lib.tokenizers import Tokenizer
from course_lib.train import train

WORK, OUT = Path("build/world_tasks"), Path("data/results/world_tasks.json")
PACKAGES = ("torch", "tokenizers", "numpy", "scikit-learn")
STARTS = ("majority", "bag of words", "from scratch", "pretrained")
ASKED = ("asked from scratch", "asked")  # further ones, where the task can be asked
AGAINST = {"pretrained": "from scratch", "asked": "asked from scratch"}  # what pretraining gave -> the same without it
ENCODER, DECODER = "bert-mini", "gpt-mini"
CLEAR = 0.05  # the pretrained mean must be so far above the others to be called clearly ahead

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help="How difficult the world's tasks are.")


@dataclass(frozen=True)
class Recipe:
    """How a model is tuned. batch, epochs: with (at most 100 labels, more); choices: rows of a batch of choices.

    pool: what the classifier reads. clip of the gradient's norm and AdamW are those of `train` and `optim.adamw`.
    """

    lr: float = 2e-3
    batch: tuple[int, int] = (16, 32)
    epochs: tuple[int, int] = (12, 8)
    choices: tuple[int, int] = (16, 16)
    choice_epochs: tuple[int, int] = (10, 3)
    target_epochs: tuple[int, int] = (8, 3)
    warmup: float = 0.1
    weight_decay: float = 0.01
    dropout: float = 0.1
    pool: heads.Pool = "mean"
    test_rows: int = 300


@dataclass(frozen=True)
class Cell:
    """One score of the table."""

    task: str
    labels: int
    start: str
    seed: int

    def __str__(self) -> str:
        return f"{self.task}, {self.labels} labels, {self.start}, seed {self.seed}"


@dataclass(frozen=True)
class Bench:
    """What all cells share. checkpoints: the folder of the zoo."""

    recipe: Recipe = Recipe()
    checkpoints: Path = zoo.FOLDER
    work: Path = WORK

    def file(self, cell: Cell) -> Path:
        """Where the cell's score is kept: another recipe, checkpoint or text of the task is another file."""
        name = DECODER if view(cell.task).kind == "target" else ENCODER
        made_of = [asdict(self.recipe), asdict(cell), _fingerprint(cell.task)]
        if cell.start not in ("majority", "bag of words"):
            file = "model.safetensors" if cell.start in AGAINST else "config.json"
            made_of.append(_sha256(self.checkpoints / name / file))
        if cell.start in ASKED:
            made_of.append(world_asked.HOW)
        digest = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:12]
        return self.work / f"{cell.task}-{cell.labels}-{cell.start.replace(' ', '_')}-{cell.seed}-{digest}.json"


@cache
def _fingerprint(task: str) -> str:
    """Of the first rows of the task: other templates or words are another task."""
    town = world_views.world()
    rows = [town.task(name, 40, split) for name in {task, view(task).train} for split in ("train", "test")]
    return hashlib.sha256(json.dumps(sorted(rows, key=str)).encode()).hexdigest()[:12]


@cache
def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@cache
def _model(folder: Path, name: str) -> zoo.Loaded:
    return zoo.load(name, folder=folder)


def measure(cell: Cell, bench: Bench) -> dict[str, float]:
    """The score of one cell, from its file if it was measured before; and its seconds."""
    path = bench.file(cell)
    if path.exists():
        return dict(read_json(path))
    start = time.perf_counter()
    what = view(cell.task)
    rows = {
        "train": what.rows(cell.labels, "train", cell.seed),
        "test": what.rows(bench.recipe.test_rows, "test", world_views.TEST_SEED),
    }
    if cell.start == "majority":
        score = world_views.majority(what, rows["train"], rows["test"])
    elif cell.start == "bag of words":
        score = world_views.bag_of_words(what, rows["train"], rows["test"])
    elif cell.start in ASKED:
        score = _asked(what, rows, cell, bench)
    else:
        score = (_decoder if what.kind == "target" else _encoder)(what, rows, cell, bench)
    result = {"score": round(float(score), 4), "seconds": round(time.perf_counter() - start, 1)}
    write_json(path, result)
    return result


def _encoder(what: View, rows: dict[str, Rows], cell: Cell, bench: Bench) -> float:
    recipe, loaded = bench.recipe, _model(bench.checkpoints, ENCODER)
    many, choice = cell.labels > 100, what.kind == "choice"
    assert what.kind != "target" and isinstance(loaded.model.stack, Stack)
    return finetune(
        loaded.model.stack,
        rows,
        loaded.tokenizer,
        kind=what.kind,
        classes=what.classes or None,
        epochs=(recipe.choice_epochs if choice else recipe.epochs)[many],
        batch=(recipe.choices if choice else recipe.batch)[many],
        lr=recipe.lr,
        warmup=recipe.warmup,
        weight_decay=recipe.weight_decay,
        dropout=recipe.dropout,
        pool=recipe.pool,
        metric=what.metric,
        seed=cell.seed,
        pretrained=cell.start == "pretrained",
        precision="auto",
    ).score


def _asked(what: View, rows: dict[str, Rows], cell: Cell, bench: Bench) -> float:
    seed = None if cell.start == "asked" else cell.seed
    told = world_asked.features(rows["train"], *_asked_model(bench, seed))
    return world_asked.score(what, rows["train"], rows["test"], told, _asked_test(bench, seed, cell.task))


def _asked_model(bench: Bench, seed: int | None) -> tuple[nn.Module, Tokenizer]:
    """The encoder with random weights of this seed; None: with its own."""
    model, tokenizer, _ = _model(bench.checkpoints, ENCODER)
    if seed is not None:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = heads.MLM(Stack(model.stack.config))
    return model, tokenizer


@cache
def _asked_test(bench: Bench, seed: int | None, task: str) -> np.ndarray:
    """Of the test rows, which are the same with every seed of the training."""
    rows = view(task).rows(bench.recipe.test_rows, "test", world_views.TEST_SEED)
    return world_asked.features(rows, *_asked_model(bench, seed))


class _Targets:
    """Batches of text and target in one row, labels on the target's tokens and the end mark alone."""

    def __init__(self, rows: Rows, tokenizer: Tokenizer, batch: int, seed: int, most: int) -> None:
        vocab = tokenizer.vocab
        assert vocab.bos is not None and vocab.eos is not None
        self.rows: list[tuple[list[int], int]] = []
        for row in rows:
            text = [vocab.bos, *tokenizer.encode(row["text"], special=False).ids]
            target = [*tokenizer.encode(f" {row['target']}", special=False).ids, vocab.eos]
            text = text[-(most - len(target)) :]  # what is too long loses its beginning
            self.rows.append((text + target, len(text)))
        self.pad, self.batch, self.seed, self.most = vocab.pad or 0, batch, seed, most
        self.per_epoch = -(-len(rows) // batch)

    def __getitem__(self, step: int, /) -> Batch:
        epoch, index = divmod(step, self.per_epoch)
        order = torch.randperm(len(self.rows), generator=generator(self.seed, epoch)).tolist()
        return self.collate(order[index * self.batch : (index + 1) * self.batch])

    def collate(self, numbers: Sequence[int]) -> Batch:
        """These rows: ids, keep, labels Int[B T] (what each position should predict)."""
        batch = dict(pad([self.rows[i][0] for i in numbers], self.pad, most=self.most))
        labels = losses.next_tokens(batch["ids"], batch["keep"])
        for line, number in zip(labels, numbers, strict=True):
            line[: self.rows[number][1] - 1] = IGNORE
        return batch | {"labels": labels}


def _decoder(what: View, rows: dict[str, Rows], cell: Cell, bench: Bench) -> float:
    """Fine-tune on text and target; the share of test targets (or of their tokens) that are predicted rightly.

    Each token is predicted after the right ones before it; where all of a target's are right, greedy writing gives
    the target, so that "exact" is the score of generation.
    """
    recipe, loaded = bench.recipe, _model(bench.checkpoints, DECODER)
    old = loaded.model.stack
    assert isinstance(old, Stack)
    many = cell.labels > 100
    most = getattr(old.config.position, "length", 512)
    batches = _Targets(rows["train"], loaded.tokenizer, recipe.batch[many], cell.seed, most)
    with torch.random.fork_rng():
        torch.manual_seed(cell.seed)
        model = heads.LM(Stack(old.config))
        if cell.start == "pretrained":
            model.stack.load_state_dict(old.state_dict())
        steps = recipe.target_epochs[many] * batches.per_epoch
        optimizer = optim.adamw(model, recipe.lr, weight_decay=recipe.weight_decay)
        schedule = optim.linear(steps, round(recipe.warmup * steps))
        for _ in train(model, batches, losses.clm, optimizer, schedule, steps=steps, precision="auto"):
            pass
    test = _Targets(rows["test"], loaded.tokenizer, 64, 0, most)
    hits = [hit for start in range(0, len(test.rows), 64) for hit in _hits(model, test, start)]
    return sum(float(hit.all()) if what.metric == "exact" else float(hit.float().mean()) for hit in hits) / len(hits)


@torch.no_grad()
def _hits(model: nn.Module, test: _Targets, start: int) -> Iterator[Tensor]:
    """For each row from `start` on, whether each of its target's tokens is the most probable one."""
    model.eval()
    batch = test.collate(range(start, min(start + 64, len(test.rows))))
    best = model(batch["ids"], keep=batch["keep"]).argmax(-1)
    for said, labels in zip(best, batch["labels"], strict=True):
        yield (said == labels)[labels != IGNORE]


def cells(tasks: Sequence[str], labels: Sequence[int], seeds: int) -> list[Cell]:
    """The cells of a table, one seed after the other, so that a stopped run has whole rows."""
    return [Cell(t, n, start, seed) for n in labels for seed in range(seeds) for t in tasks for start in starts(t)]


def starts(task: str) -> tuple[str, ...]:
    """How the task's scores come about."""
    return (*STARTS, *ASKED) if view(task).kind in world_asked.KINDS else STARTS


def fill(table: Sequence[Cell], bench: Bench, jobs: int = 1) -> Iterator[tuple[Cell, dict[str, float]]]:
    """Measure the cells, `jobs` processes side by side, each with its share of the cores."""
    if jobs == 1:
        for cell in table:
            yield cell, measure(cell, bench)
        return
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with ProcessPoolExecutor(jobs, get_context("spawn"), torch.set_num_threads, (threads,)) as pool:
        futures = {pool.submit(measure, cell, bench): cell for cell in table}
        for future in as_completed(futures):
            yield futures[future], future.result()


def record(table: Sequence[Cell], bench: Bench) -> dict[str, Any]:
    """The table from the cells that are measured: the figure of each (task, number of labels, start), who is ahead.

    A row (task, number of labels) lacks the seeds of which not every start is there, and is left out if none is.
    """
    done = {cell for cell in table if bench.file(cell).exists()}
    whole = [c for c in table if all(Cell(c.task, c.labels, start, c.seed) in done for start in starts(c.task))]
    if not whole:
        raise CourseError(f"No row of the table is measured in {bench.work}; run it first.")
    results = {cell: measure(cell, bench) for cell in whole}
    groups: dict[tuple[str, int, str], list[float]] = {}
    for cell, result in results.items():
        groups.setdefault((cell.task, cell.labels, cell.start), []).append(result["score"])
    figures = {key: figure(values) for key, values in groups.items()}
    counts = sorted({cell.labels for cell in whole})
    tasks = {}
    for task in dict.fromkeys(cell.task for cell in sorted(whole, key=table.index)):
        what = view(task)
        rows: dict[str, Any] = {
            "kind": what.kind,
            "metric": what.metric,
            "model": DECODER if what.kind == "target" else ENCODER,
        }
        measured = [n for n in counts if (task, n, "pretrained") in figures]
        for n in measured:
            found = {start: figures[task, n, start] for start in starts(task)}
            rows[str(n)] = {start: asdict(value) for start, value in found.items()}
            rows[str(n)]["ahead"] = ahead(found)
        rows["clearly_ahead"] = any(rows[str(n)]["ahead"]["clear"] for n in measured)
        tasks[task] = rows
    return {
        "id": "world_tasks",
        "rule": "Clearly ahead: with some number of labels the pretrained model, fine-tuned or asked, has a mean at "
        f"least {CLEAR} above that of every start without pretraining, and the 95% interval of its paired difference "
        "from the same with random weights lies above zero.",
        "measured": f"{len(done)} of {len(table)} cells",
        "tasks": tasks,
        "clearly_ahead": [task for task, rows in tasks.items() if rows["clearly_ahead"]],
        "seeds": sorted({cell.seed for cell in whole}),
        "config": asdict(bench.recipe) | {"labels": counts},
        "checkpoints": {name: _sha256(bench.checkpoints / name / "model.safetensors") for name in (ENCODER, DECODER)},
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
    return {"best": best, "margin": round(margin, 4), "over": over, "clear": margin >= CLEAR and above}


Work = Annotated[Path, typer.Option(help="Folder of the cells that are done.")]


@app.command("run")
def run(
    tasks: Annotated[str, typer.Option(help="Names with commas between; all if not given.")] = "",
    labels: Annotated[str, typer.Option(help="Numbers of labels.")] = "100,1000",
    seeds: int = 3,
    jobs: Annotated[int, typer.Option(help="Processes side by side.")] = 1,
    checkpoints: Annotated[Path, typer.Option(help="Folder of bert-mini and gpt-mini.")] = zoo.FOLDER,
    work: Work = WORK,
    out: Annotated[Path, typer.Option(help="The record.")] = OUT,
    measured: Annotated[bool, typer.Option("--measured", help="Only write the record of what is measured.")] = False,
) -> None:
    """Measure every cell that is not there yet, then write the record."""
    names = tasks.split(",") if tasks else list(World.task_names())
    world_views.check(names)
    counts = [int(n) if n.isdigit() else 0 for n in labels.split(",")]
    if min(counts) < 10 or seeds < 1 or jobs < 1:
        raise CourseError(f"labels {labels}, seeds {seeds}, jobs {jobs}: at least 10 labels, one seed, one process.")
    bench = Bench(checkpoints=checkpoints, work=work)
    table = cells(names, counts, seeds)
    for number, (cell, result) in enumerate(fill([] if measured else table, bench, jobs), 1):
        typer.echo(f"{number}/{len(table)} {cell}: {result['score']:.3f} ({result['seconds']:.0f} s)")
    write_json(out, record(table, bench))
    show(out)


@app.command("show")
def show(out: Annotated[Path, typer.Argument(help="The record.")] = OUT) -> None:
    """Print the table of a record."""
    values = read_json(out)
    for task, rows in values["tasks"].items():
        for n in [n for n in values["config"]["labels"] if str(n) in rows]:
            scores = "  ".join(f"{start} {rows[str(n)][start]['mean']:.3f}" for start in starts(task))
            typer.echo(f"{task:18} {n:5}  {scores}  {'ahead' if rows[str(n)]['ahead']['clear'] else ''}")
    typer.echo(f"Clearly ahead on {len(values['clearly_ahead'])} of {len(values['tasks'])} tasks.")


if __name__ == "__main__":
    try:
        app()
    except CourseError as error:
        raise SystemExit(str(error)) from None
