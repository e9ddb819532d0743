"""How the shipped checkpoints are made: each recipe is data, and `build` runs it, resumable at any moment.

`python -m course_lib zoo build bert-mini` makes one again, from the world's documents alone.
"""

import json
import platform
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from course_lib import heads, losses, optim, zoo
from course_lib.config import StackConfig
from course_lib.corrupt import generator, mask_tokens
from course_lib.data.batches import pad
from course_lib.errors import CourseError
from course_lib.files import read_json, write_json
from course_lib.initial import mimetic
from course_lib.losses import Batch, Loss
from course_lib.models import bert, gpt
from course_lib.probes import Blank, fill_in_accuracy, mean_loss
from course_lib.stack import Stack
from course_lib.tokenizers import Tokenizer, train_bpe, train_wordpiece
from course_lib.train import train

Sentences = Callable[[int], Sequence[str]]  # document number -> its sentences
LOG = 100  # steps between two points of the learning curve
TOKENIZER_DOCUMENTS = 20_000  # that the vocabulary is learned from
BLANKS = 256  # of each kind in the copy probe


@dataclass(frozen=True)
class Recipe:
    """Everything that a checkpoint follows from, beside the code.

    objective: "mlm_nsp" (BERT) or "clm" (GPT). rows: documents a batch. pairs: share of rows that are a document cut
    in two for next-sentence prediction, every second one with a wrong second half. primer: so many of the steps read
    the pages of each level of the world's primer in place of documents (whole, masked at `primer_mask_rate`; they say
    everything often). pool: batches whose documents are
    sorted by length together, so that little of a batch is padding. init_std: of the initial weights (0.02 suits a
    width of 768, not one of 128). mimetic: strength of the mimetic start of attention and positions
    (`initial.mimetic`); 0 for none. The learning rate warms up, stays at `lr`, and falls to 0 over the last `decay` of
    the steps.
    """

    objective: Literal["mlm_nsp", "clm"]
    vocab: int = 3072
    length: int = 160
    steps: int = 12_000
    rows: int = 48
    lr: float = 1e-3
    warmup: int = 300
    decay: float = 0.2
    weight_decay: float = 0.01
    beta2: float = 0.98
    mask_rate: float = 0.15
    primer: tuple[int, int] = (0, 0)
    primer_mask_rate: float = 0.4
    replay: float = 0.0
    pairs: float = 0.5
    pool: int = 64
    init_std: float = 0.05
    mimetic: float = 0.4
    world: int = 0
    seed: int = 0
    precision: Literal["fp32", "bf16", "auto"] = "auto"
    probe_every: int = 250
    checkpoint_every: int = 250


RECIPES = {
    "bert-mini": Recipe("mlm_nsp", lr=2e-3, steps=13_600, primer=(2_560, 3_840), rows=24, mask_rate=0.2, pairs=0.2),
    "gpt-mini": Recipe("clm", lr=3e-3, steps=10_240, primer=(2_048, 2_816), replay=0.25, rows=24, pairs=0.0),
}


@dataclass(frozen=True)
class Progress:
    """A point of the learning curve: mean loss and speed of the last `LOG` steps; the probe's accuracies if
    taken."""

    step: int
    loss: float
    lr: float
    tokens_per_second: float
    probe: dict[str, float] | None = None


class DocumentBatches:
    """Whole documents, one a row, made anew for every step: batch `step` depends on (seed, step) only.

    For "clm" a row is bos, document, eos. For "mlm_nsp" it is [CLS] document [SEP], or [CLS] first half [SEP]
    second half [SEP] with its label in `next` (0 = it follows, 1 = of another document, -100 = not a pair).
    """

    def __init__(self, sentences: Sentences, tokenizer: Tokenizer, recipe: Recipe, *, seed: int = 0) -> None:
        self.sentences, self.tokenizer, self.recipe, self.seed = sentences, tokenizer, recipe, seed
        self._pool: tuple[int, list[list[_Row]]] = (-1, [])

    def __getitem__(self, step: int, /) -> Batch:
        """The batch of this step."""
        pool, index = divmod(step, self.recipe.pool)
        if self._pool[0] != pool:
            self._pool = (pool, self._make(pool))
        rows = self._pool[1][index]
        batch = pad([row.ids for row in rows], self.tokenizer.vocab.pad or 0, most=self.recipe.length)
        if self.recipe.objective == "clm":
            return batch
        ids, keep = batch["ids"], batch["keep"]
        segments = torch.zeros_like(ids)
        for i, row in enumerate(rows):
            segments[i, row.second : len(row.ids)] = 1
        rate = self.recipe.primer_mask_rate if step < sum(self.recipe.primer) else self.recipe.mask_rate
        hidden = mask_tokens(ids, generator(self.seed, 1, step), vocab=self.tokenizer.vocab, rate=rate, keep=keep)
        follows = torch.tensor([row.next for row in rows])
        return {**hidden._asdict(), "keep": keep, "segments": segments, "next": follows}

    def _make(self, pool: int) -> list[list["_Row"]]:
        """The rows of `recipe.pool` batches, of like length in each batch, batches in random order."""
        recipe, rng = self.recipe, generator(self.seed, 0, pool)
        count = recipe.rows * recipe.pool
        documents = [self.sentences(pool * count + i) for i in range(count)]
        primer = pool * recipe.pool < sum(recipe.primer)
        cuts = [len(document) if primer else self._cut(len(document), rng) for document in documents]
        first = self.tokenizer.ids([" ".join(d[:c]) for d, c in zip(documents, cuts, strict=True)], special=False)
        second = self.tokenizer.ids([" ".join(d[c:]) for d, c in zip(documents, cuts, strict=True)], special=False)
        pairs = [i for i, tail in enumerate(second) if tail]
        wrong = torch.rand(len(pairs), generator=rng) < 0.5
        follows = {i: i for i in pairs} | {i: pairs[k - 1] for k, i in enumerate(pairs) if wrong[k]}
        rows = [self._row(a, second[follows.get(i, i)], int(follows.get(i, i) != i)) for i, a in enumerate(first)]
        rows.sort(key=lambda row: len(row.ids))
        order = torch.randperm(recipe.pool, generator=rng).tolist()
        return [rows[k * recipe.rows : (k + 1) * recipe.rows] for k in order]

    def _cut(self, sentences: int, rng: torch.Generator) -> int:
        """After which sentence a document is cut in two; after the last one where it stays whole."""
        draw = torch.rand(2, generator=rng)
        whole = sentences < 2 or float(draw[0]) >= self.recipe.pairs
        return sentences if whole else 1 + int(float(draw[1]) * (sentences - 1))

    def _row(self, first: list[int], second: list[int], follows: int) -> "_Row":
        vocab, length = self.tokenizer.vocab, self.recipe.length
        if self.recipe.objective == "clm":
            ids = [*_id(vocab.bos), *first, *_id(vocab.eos)]
            return _Row(ids[:length], length, -100)
        ids = [*_id(vocab.cls), *first, *_id(vocab.sep)]
        if not second:
            return _Row(ids[:length], length, -100)
        whole = [*ids, *second[: max(1, length - len(ids) - 1)], *_id(vocab.sep)]
        return _Row(whole[:length], len(ids), follows)


@dataclass(frozen=True)
class _Row:
    ids: list[int]
    second: int  # where the second segment starts
    next: int


@dataclass(frozen=True)
class Run:
    """One recipe at work in its folder."""

    name: str
    recipe: Recipe
    folder: Path

    @cached_property
    def world(self) -> Any:
        """The generated town whose documents are read."""
        from course_lib.data.world import World

        return World(self.recipe.world)

    def sentences(self, split: str) -> Sentences:
        """Document number -> sentences."""
        return lambda index: list(self.world.document(index, split, self.recipe.seed)["sentences"])

    def lessons(self) -> Sentences:
        """Row number -> sentences, as training meets them: both levels of the primer, then documents."""
        first, second = (sum(self.recipe.primer[:n]) * self.recipe.rows for n in (1, 2))
        documents = self.sentences("train")

        def read(row: int) -> list[str]:
            again = random.Random(f"replay/{self.recipe.seed}/{row}").random() < self.recipe.replay
            if row >= second and not again:
                return list(documents(row))
            return list(self.world.primer(row, 1 if row < first else 2, self.recipe.seed)["sentences"])

        return read

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Trained once, on the first documents."""
        path = self.folder / "tokenizer.json"
        if not path.exists():
            texts = [" ".join(self.sentences("train")(i)) for i in range(TOKENIZER_DOCUMENTS)]
            learn = train_bpe if self.recipe.objective == "clm" else train_wordpiece
            learn(texts, self.recipe.vocab).save(path)
        return Tokenizer.load(path)

    @cached_property
    def config(self) -> StackConfig:
        """The model's configuration."""
        preset = gpt.gpt_mini if self.recipe.objective == "clm" else bert.bert_mini
        return replace(preset(self.tokenizer.vocab.size, self.recipe.length), init_std=self.recipe.init_std)

    def model(self) -> nn.Module:
        """A fresh model, by the recipe's seed."""
        torch.manual_seed(self.recipe.seed)
        stack = Stack(self.config)
        if self.recipe.mimetic:
            mimetic(stack, strength=self.recipe.mimetic)
        return heads.LM(stack) if self.recipe.objective == "clm" else heads.Pretraining(stack)

    @property
    def loss(self) -> Loss:
        """The objective."""
        return losses.clm if self.recipe.objective == "clm" else partial(losses.mlm_nsp, weight=self.recipe.pairs)

    def blanks(self, kind: str) -> list[Blank]:
        """The copy probe's questions: two facts, one of them said again with a word to fill in."""
        return [_blank(item) for item in self.world.probe(BLANKS, seed=1, kind=kind)]

    def heldout(self, n: int = 16) -> list[Batch]:
        """Batches of the validation split."""
        batches = DocumentBatches(
            self.sentences("validation"), self.tokenizer, replace(self.recipe, pool=n, primer=(0, 0)), seed=2
        )
        return [batches[i] for i in range(n)]


def build(
    name: str,
    *,
    work: str | Path = "build/checkpoints",
    to: str | Path = zoo.FOLDER,
    steps: int | None = None,
    device: str = "cpu",
) -> Iterator[Progress]:
    """Make a shipped checkpoint: train by its recipe, probe, export to `to`. Resumes what `work` holds.

    Args:
        name: a key of `RECIPES`. work: folder for the unfinished run. to: folder of the finished ones.
        steps: in place of the recipe's; before the decay has begun, the run is the same up to there.

    Raises:
        CourseError: unknown name, or `work` holds a run of another recipe.
    """
    if name not in RECIPES:
        raise CourseError(f"There is no recipe {name!r}; there are {', '.join(RECIPES)}.")
    recipe = RECIPES[name] if steps is None else replace(RECIPES[name], steps=steps)
    run = Run(name, recipe, Path(work) / name)
    _same_recipe(run)
    return _build(run, Path(to), device)


def _build(run: Run, to: Path, device: str) -> Iterator[Progress]:
    recipe, model = run.recipe, run.model()
    log = _Log(run.folder / "curve.json")
    optimizer = optim.adamw(model, recipe.lr, weight_decay=recipe.weight_decay, betas=(0.9, recipe.beta2))
    batches = DocumentBatches(run.lessons(), run.tokenizer, recipe, seed=recipe.seed)
    blanks = {kind: run.blanks(kind) for kind in ("name", "object", "place")}
    recent: list[tuple[float, int, float]] = []
    for step in train(
        model,
        batches,
        run.loss,
        optimizer,
        optim.stable(recipe.steps, recipe.warmup, recipe.decay),
        steps=recipe.steps,
        device=device,
        precision=recipe.precision,
        checkpoint=run.folder / "state.safetensors",
        every=recipe.checkpoint_every,
    ):
        recent.append((step.loss, step.tokens, step.seconds))
        probing = step.step % recipe.probe_every == 0 or step.step == recipe.steps
        if step.step % LOG and not probing:
            continue
        mean, tokens, seconds = (sum(column) for column in zip(*recent, strict=True))
        probe = {k: fill_in_accuracy(model, run.tokenizer, rows) for k, rows in blanks.items()} if probing else None
        progress = Progress(step.step, mean / len(recent), step.lr, tokens / seconds, probe)
        log.add(progress, tokens, seconds)
        recent.clear()
        yield progress
    # A run that was already at its last step only exports.
    scores = log.last_probe() | {"loss": mean_loss(model, run.loss, run.heldout())}
    zoo.export(run.name, model, run.tokenizer, _card(run, scores, log), to)


class _Log:
    """The learning curve on disk. After a resume, points from beyond the checkpoint are overwritten."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.points: list[dict[str, Any]] = read_json(path) if path.exists() else []

    def add(self, progress: Progress, tokens: float, seconds: float) -> None:
        """Append a point and write the file."""
        self.points = [point for point in self.points if point["step"] < progress.step]
        point: dict[str, Any] = {
            "step": progress.step,
            "loss": round(progress.loss, 4),
            "lr": progress.lr,
            "tokens": int(tokens),
        }
        point["seconds"] = round(seconds, 1)
        if progress.probe is not None:
            point["probe"] = {kind: round(value, 4) for kind, value in progress.probe.items()}
        self.points.append(point)
        write_json(self.path, self.points)

    def last_probe(self) -> dict[str, float]:
        """The probe's last accuracies."""
        probes = [point["probe"] for point in self.points if "probe" in point]
        return dict(probes[-1]) if probes else {}


def _card(run: Run, scores: dict[str, float], log: _Log) -> dict[str, Any]:
    return {
        "name": run.name,
        "recipe": asdict(run.recipe),
        "seed": run.recipe.seed,
        "data": f"World({run.recipe.world}): primer, then documents of the split train, never one twice",
        "steps": run.recipe.steps,
        "tokens": sum(point["tokens"] for point in log.points),
        "seconds": round(sum(point["seconds"] for point in log.points)),
        "scores": scores,
        "curve": log.points,
        "torch": torch.__version__,
        "hardware": f"{platform.machine()} CPU, {torch.get_num_threads()} threads",
        "made": time.strftime("%Y-%m-%d"),
    }


def _same_recipe(run: Run) -> None:
    """Refuse to go on with a run of another recipe (another number of steps is fine)."""
    path = run.folder / "recipe.json"
    mine = json.loads(json.dumps(asdict(run.recipe)))
    if path.exists():
        theirs = read_json(path)
        odd = [key for key in mine if key != "steps" and mine[key] != theirs.get(key)]
        if odd:
            raise CourseError(
                f"{run.folder} holds a run with {odd[0]} = {theirs.get(odd[0])}, the recipe says "
                f"{mine[odd[0]]}; remove the folder to start afresh, or name another by --work."
            )
    write_json(path, mine)


def _blank(item: dict[str, Any]) -> Blank:
    start = item["sentence"].rindex(item["answer"])
    end = start + len(item["answer"])
    return Blank(f"{item['context']} {item['sentence'][:start]}", item["answer"], item["sentence"][end:])


def _id(token: int | None) -> list[int]:
    return [] if token is None else [token]
