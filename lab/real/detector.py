"""Train `electra-english`: a discriminator of real English, from bert-english's body.

    python -m lab.real.detector ENGLISH WORK

`distilbert-english` is the generator and stays as it is. In the paper both networks learn together,
from random weights. A part of the fakes are no samples of the generator but tokens drawn by their
frequency, so that the discriminator also finds what is plainly wrong. It reads rows of running text
first, and then sentences that stand alone. WORK keeps the state of both parts, from which the same
command goes on. The card has the discriminator's scores on rows that it has not read, beside those
of bert-english's own probability of each token.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from classroom.odd_words import sentences
from course_lib import data, zoo
from course_lib.families.electra import Electra
from course_lib.model import heads
from course_lib.model.modes import evaluating
from course_lib.objectives import (
    collate,
    losses,
    original,
    replace_tokens,
    sample,
    seeded_generator,
)
from course_lib.objectives.losses import Batch
from course_lib.training import loop

NAME = "electra-english"
GENERATOR, BODY = "distilbert-english", "bert-english"
LENGTH = 64  # tokens of a row of running text
CURVE_EVERY = 50
TESTS = 200  # rows that are not read


@dataclass(frozen=True)
class Part:
    """A part of the training.

    Attributes:
        steps: updates.
        lr: the highest learning rate.
        rows: of a batch.
        rate: the share of tokens that are hidden.
        plain: the share of fakes that are drawn by their frequency.
    """

    steps: int
    lr: float
    rows: int
    rate: float
    plain: float


RUNNING = Part(steps=3000, lr=1e-3, rows=16, rate=0.15, plain=0.3)
ALONE = Part(steps=200, lr=4e-4, rows=32, rate=0.25, plain=0.5)

app = typer.Typer(help=__doc__, no_args_is_help=True)


def rows_of(texts: Sequence[str]) -> list[list[int]]:
    """Documents as one text, cut into rows of equal length."""
    tokenizer: Any = zoo.load(BODY).tokenizer
    flat = [token for ids in tokenizer.ids(list(texts), max_length=10**7) for token in ids]
    return [flat[i : i + LENGTH] for i in range(0, len(flat) - LENGTH + 1, LENGTH)]


def hide(rows: Sequence[Sequence[int]], rate: float, *keys: int) -> Batch:
    """Rows, padded, with a share of their tokens hidden."""
    vocab = zoo.load(BODY).tokenizer.vocab
    ids, real = collate.pad_to_longest(rows, vocab.padding_id).values()
    return collate.replaced(ids, real, seeded_generator(*keys), vocab=vocab, rate=rate)


@torch.no_grad()
def fake(
    generator: nn.Module, batch: Batch, frequency: Tensor, plain: float, rng: torch.Generator
) -> tuple[Tensor, Tensor]:
    """The text with fakes at the hidden places, and where they differ from it. [B T] each.

    Args:
        generator: fills the hidden places.
        batch: `hide`'s.
        frequency: how often each token stands in the corpus. [V]
        plain: the share of fakes that are drawn by that frequency instead.
        rng: draws.
    """
    hidden = batch["loss_mask"]
    text = original(batch["ids"], batch["labels"], hidden)
    logits = generator(batch["ids"], attention_mask=batch["attention_mask"], loss_mask=hidden)
    sampled = sample(logits, rng)
    common = torch.multinomial(frequency, len(sampled), replacement=True, generator=rng)
    kept = torch.rand(len(sampled), generator=rng) >= plain
    return replace_tokens(text, hidden, torch.where(kept, sampled, common))


def ranked(
    model: Electra, rows: Sequence[Sequence[int]], frequency: Tensor, plain: float
) -> dict[str, float]:
    """How well the discriminator finds fakes in rows that it has not read, and how well a token's
    improbability does, in the eyes of the masked language model from which it began.
    """
    found = []
    rng = seeded_generator(0, 3)
    body: Any = zoo.load(BODY).model
    with evaluating(model), torch.no_grad():
        for start in range(0, len(rows), 32):
            batch = hide(rows[start : start + 32], RUNNING.rate, 0, 2, start)
            filled, replaced = fake(model.generator, batch, frequency, plain, rng)
            log_p = body(filled).log_softmax(-1).gather(-1, filled[..., None])  # B T 1
            verdicts = model.discriminator(filled)
            found.append((verdicts.flatten(), -log_p.flatten(), replaced.flatten()))
    verdicts, surprise, replaced = (torch.cat(parts) for parts in zip(*found, strict=True))
    figures = {
        "accuracy": float(((verdicts > 0) == replaced).float().mean()),
        "accuracy, always original": float((~replaced).float().mean()),
        "area": float(roc_auc_score(replaced.numpy(), verdicts.numpy())),
        f"area, {BODY}'s own probability": float(roc_auc_score(replaced.numpy(), surprise.numpy())),
    }
    return {name: round(value, 4) for name, value in figures.items()}


class Hidden:
    """Batch number i of a part, made when it is asked for."""

    def __init__(self, rows: Sequence[Sequence[int]], part: Part, seed: int) -> None:
        self.rows, self.part, self.seed = rows, part, seed
        self.order = torch.randperm(len(rows), generator=seeded_generator(seed, 0)).tolist()

    def __getitem__(self, step: int) -> Batch:
        return hide(self.chosen(step), self.part.rate, self.seed, 1, step)

    def chosen(self, step: int) -> list[Sequence[int]]:
        """The rows of a batch."""
        first = step * self.part.rows
        places = [i % len(self.rows) for i in range(first, first + self.part.rows)]
        return [self.rows[self.order[place]] for place in places]

    @property
    def tokens(self) -> int:
        """How many tokens the part reads."""
        return sum(len(row) for step in range(self.part.steps) for row in self.chosen(step))


@app.command()
def train(
    corpus: Annotated[str, typer.Argument(help="Documents to train on.")],
    work: Annotated[Path, typer.Argument(help="Folder of the training's state.")],
    to: Annotated[Path, typer.Option(help="Folder of all checkpoints.")] = zoo.FOLDER,
    seed: int = 0,
    documents: Annotated[int, typer.Option(help="That are read.")] = 800,
) -> None:
    """Train the discriminator, go on where a run was stopped, and write it as a checkpoint."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    body: Any = zoo.load(BODY)
    generator = zoo.load(GENERATOR).model.requires_grad_(False)
    model = Electra(generator, heads.RTD(body.model.stack))
    texts, others = (
        list(data.corpus(corpus, split=split, n=documents)["text"])
        for split in ("train", "validation")
    )
    rows = rows_of(texts)
    alone = body.tokenizer.ids(sentences(texts, shortest=5), max_length=LENGTH)
    flat = torch.tensor([token for row in rows for token in row])
    frequency = torch.bincount(flat, minlength=body.tokenizer.vocab.size).float()
    told: dict[str, Any] = {"tokens": 0, "seed": seed, "seconds": 0, "curve": []}
    for name, part, read in (("running", RUNNING, rows), ("alone", ALONE, alone)):
        batches = Hidden(read, part, seed)
        told["tokens"] += batches.tokens
        config = loop.TrainConfig(
            steps=part.steps,
            lr=part.lr,
            schedule="linear",
            warmup=part.steps // 10,
            precision="bf16",
            save_to=work / f"{name}.pt",
            save_every=100,
        )
        taught(model, batches, frequency, config, told["curve"])
    told["seconds"] = sum(point["seconds"] for point in told["curve"])
    tests = rows_of(others)[:TESTS]
    told["scores"] = {
        f"{measure}, fakes {whose}": value
        for whose, plain in (("of the generator", 0), ("drawn by frequency", 1))
        for measure, value in ranked(model, tests, frequency, plain).items()
    }
    export(model.discriminator, told, to)


def taught(
    model: Electra,
    batches: Hidden,
    frequency: Tensor,
    config: loop.TrainConfig,
    curve: list[dict[str, float]],
) -> None:
    """Train the discriminator on one part, and add the mean losses to the curve."""

    def detection(_: nn.Module, batch: Batch) -> Tensor:
        """The discriminator's loss alone; the generator does not learn."""
        rng = torch.Generator().manual_seed(int(torch.randint(2**31, ())))
        filled, replaced = fake(model.generator, batch, frequency, batches.part.plain, rng)
        real = batch["attention_mask"]
        return losses.detection_loss(
            model.discriminator(filled, attention_mask=real), replaced, real
        )

    since, start = [], time.time()
    for update in loop.train(model, batches, detection, config):
        since.append(update.loss)
        if update.step % CURVE_EVERY == 0 or update.step == config.steps:
            loss = round(sum(since) / len(since), 4)
            curve.append({"step": update.step, "loss": loss, "seconds": round(time.time() - start)})
            since, start = [], time.time()
            typer.echo(json.dumps(curve[-1]))


def export(discriminator: nn.Module, told: dict[str, Any], to: Path = zoo.FOLDER) -> None:
    """Write the discriminator among the checkpoints, with what its training told."""
    body = zoo.load(BODY)
    card: dict[str, Any] = {"name": NAME, "generator": GENERATOR, "body": BODY}
    card["recipe"] = {
        "command": "python -m lab.real.detector ENGLISH WORK",
        "running text": asdict(RUNNING),
        "sentences alone": asdict(ALONE),
    }
    card |= {"steps": RUNNING.steps + ALONE.steps, **told}
    card["data"] = f"{body.card['data']}; here up to 800 of its documents"
    card |= {"torch": torch.__version__, "made": time.strftime("%Y-%m-%d")}
    zoo.export(NAME, discriminator.eval(), body.tokenizer, card, to)


if __name__ == "__main__":
    app()
