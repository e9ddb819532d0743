"""`elmo-english`: ELMo's two language models over characters, on real English.

    python -m lab.real.bilm ENGLISH WORK

ENGLISH is a corpus of documents with the splits train and validation. WORK keeps the vocabulary and
the state of the training, from which the same command goes on. The finished model becomes a shipped
checkpoint, its softmax included. Its card has the loss on held-out text and how often the model
names a held-out word from its left, from its right, and from both sides.
"""

import random
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import torch
import typer

from course_lib import data, zoo
from course_lib.analysis import evaluation
from course_lib.data.word_batches import BiLMBatches
from course_lib.data.words import split_words
from course_lib.families import elmo
from course_lib.training import loop, optim

NAME = "elmo-english"
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])")
FILTERS = ((1, 16), (2, 32), (3, 64), (4, 96), (5, 96), (6, 64))  # width and number
LONGEST = 62  # words of a row, without its two marks
HELD_OUT = 40  # batches
GAPS = 1000  # held-out rows in which one word is hidden


def rows_of(texts: Iterable[str], most: int = LONGEST) -> Iterator[list[str]]:
    """Neighbouring sentences of a paragraph, packed into rows of at most `most` words."""
    for text in texts:
        for paragraph in text.split("\n"):
            row: list[str] = []
            for sentence in SENTENCE_END.split(paragraph.strip()):
                words = split_words(sentence)
                while len(words) > most:
                    yield words[:most]
                    words = words[most:]
                if row and len(row) + len(words) > most:
                    yield row
                    row = []
                row = row + words
            if row:
                yield row


class Shuffled:
    """A row for any number: all rows in a random order, then all of them in another."""

    def __init__(self, rows: Sequence[Sequence[str]]) -> None:
        self.rows = rows
        self._epoch = -1

    def __call__(self, number: int) -> Sequence[str]:
        epoch, place = divmod(number, len(self.rows))
        if epoch != self._epoch:
            self._order = list(range(len(self.rows)))
            random.Random(epoch).shuffle(self._order)
            self._epoch = epoch
        return self.rows[self._order[place]]


def named(
    model: elmo.BiLM, vocabulary: elmo.Vocabulary, rows: Sequence[Sequence[str]]
) -> dict[str, float]:
    """How often the likeliest word is the hidden one: from the left, from the right, from both.

    One word of each row is hidden, never its last. Both: the two log-probabilities are added.
    """
    draw = random.Random(0)
    gaps = [draw.randrange(len(row) - 1) for row in rows]
    right = dict.fromkeys(("left", "right", "both"), 0)
    for start in range(0, len(rows), 64):
        some = list(zip(rows, gaps, strict=True))[start : start + 64]
        before, after = [r[:gap] for r, gap in some], [r[gap + 1 :] for r, gap in some]
        left, other = elmo.hidden_word(model, before, after)  # N V each
        for side, scores in (("left", left), ("right", other), ("both", left + other)):
            best = [vocabulary.words[i] for i in scores.argmax(1).tolist()]
            right[side] += sum(b == r[gap] for b, (r, gap) in zip(best, some, strict=True))
    return {f"hidden words, {side}": n / len(rows) for side, n in right.items()}


def scores(
    model: elmo.BiLM, vocabulary: elmo.Vocabulary, rows: Sequence[Sequence[str]], size: int
) -> dict[str, float]:
    """The loss on held-out rows and the share of hidden words that the model names."""
    batches = BiLMBatches(
        lambda i: rows[i % len(rows)], vocabulary, model.elmo.config, rows=size, length=64, pool=20
    )
    loss = evaluation.mean_loss(model, elmo.loss, (batches[i] for i in range(HELD_OUT)))
    found = {"loss, held-out text": loss} | named(model, vocabulary, _sampled(rows))
    return {name: round(value, 3) for name, value in found.items()}


def main(
    corpus: Annotated[str, typer.Argument(help="Documents.")],
    work: Annotated[Path, typer.Argument(help="Folder of the training's state.")],
    to: Annotated[Path, typer.Option(help="Folder of all checkpoints.")] = zoo.FOLDER,
    steps: Annotated[int, typer.Option(min=4)] = 5000,
    rows: Annotated[int, typer.Option(help="Rows of a batch.", min=1)] = 64,
    width: Annotated[int, typer.Option(help="Numbers of one direction.")] = 128,
    hidden: Annotated[int, typer.Option(help="Cells of an LSTM.")] = 512,
    vocab: Annotated[int, typer.Option(help="Words of the softmax.")] = 16_000,
    lr: Annotated[float, typer.Option(help="The peak of the learning rate.")] = 3e-3,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Train the two language models and write them among the checkpoints."""
    torch.set_num_threads(1)
    work.mkdir(parents=True, exist_ok=True)
    texts = [r for r in rows_of(data.corpus(corpus, split="train")["text"]) if len(r) > 2]
    held = [r for r in rows_of(data.corpus(corpus, split="validation")["text"]) if len(r) > 2]
    if not (work / "vocabulary.txt").exists():
        elmo.Vocabulary.count(texts, vocab).save(work / "vocabulary.txt")
    vocabulary = elmo.Vocabulary.load(work / "vocabulary.txt")
    config = elmo.ElmoConfig(len(vocabulary), width, hidden, FILTERS, length=24, dropout=0.1)
    torch.manual_seed(seed)
    model = elmo.model(config)

    drawn = Shuffled(texts)
    batches = BiLMBatches(drawn, vocabulary, config, rows=rows, length=64, pool=50)
    training = loop.TrainConfig(steps=steps, lr=lr, precision="bf16", save_to=work / "run_state.pt")
    schedule = optim.wsd(steps, steps // 5, decay=0.25)
    begin = time.perf_counter()
    curve: list[dict[str, float]] = []
    losses: list[float] = []
    for step in loop.train(model, batches, elmo.loss, training, schedule=schedule):
        losses.append(step.loss)
        if step.step % 100 == 0:
            curve.append({"step": step.step, "loss": round(sum(losses) / len(losses), 3)})
            typer.echo(f"step {step.step}: loss {curve[-1]['loss']:.3f}")
            losses = []
    model.eval()

    card = {
        "name": NAME,
        "recipe": {
            "command": "python -m lab.real.bilm ENGLISH WORK",
            "steps": steps,
            "rows": rows,
            "width": width,
            "hidden": hidden,
            "vocab": vocab,
            "lr": lr,
        },
        "seed": seed,
        "data": f"{len(texts):,} rows of openly licensed English (OpenStax textbooks, Project"
        f" Gutenberg, speeches, Common Voice sentences), split train, of which {steps * rows:,}"
        " were read, one after the other; the text is not part of the course",
        "steps": steps,
        "tokens": sum(len(drawn(i)) + 2 for i in range(steps * rows)),  # a row has two marks
        "seconds": round(time.perf_counter() - begin),
        "scores": scores(model, vocabulary, held, rows),
        "curve": curve,
        "torch": torch.__version__,
        "made": time.strftime("%Y-%m-%d"),
    }
    zoo.export(NAME, model, vocabulary, card, to)


def _sampled(rows: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    return random.Random(0).sample(rows, min(GAPS, len(rows)))


if __name__ == "__main__":
    typer.run(main)
