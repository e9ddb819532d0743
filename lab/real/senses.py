"""Word senses (CoarseWSD-20, Loureiro et al. 2021): does a frozen model's vector of a word say
which one is meant?

    python -m lab.real.senses FOLDER

FOLDER has a folder a word. A linear classifier, senses weighed alike, its regularisation chosen on
a tenth of the training rows, reads the word's vector (the mean over the layers), or counts of the
words around it. The score is macro F1, the mean over the words, intervals over the words; written
to data/results/real_senses.json."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from datasets import Dataset, concatenate_datasets
from jaxtyping import Float
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from classroom.records.figures import Figure, difference, figure
from classroom.records.record import RESULTS
from course_lib import zoo
from course_lib.analysis import probing
from course_lib.analysis.metrics import METRICS
from course_lib.data.tokenizers import Tokenizer
from course_lib.files import write_json
from course_lib.model.transformer import Transformer
from lab.real import baselines, tasks

AROUND = 25  # words on either side of the one that is asked about
CHUNK = 256  # texts at a time
PENALTIES = (1e-3, 1e-2, 0.1, 1.0)  # inverse regularisations of a classifier of vectors
METRIC = "macro_f1"


def read(folder: Path) -> tuple[Dataset, Dataset]:
    """Training and test rows of one word: the words around it, its place among them, the number of
    its sense, and the number of the row."""
    train = _read_split(folder, "train", first=0)
    return train, _read_split(folder, "test", first=len(train))


def _read_split(folder: Path, split: str, first: int) -> Dataset:
    """One part's rows, numbered from `first` on."""
    lines = (folder / f"{split}.data.txt").read_text("utf-8").splitlines()
    senses = (folder / f"{split}.gold.txt").read_text("utf-8").splitlines()
    rows = []
    for number, (line, sense) in enumerate(zip(lines, senses, strict=True), start=first):
        position, _, text = line.partition("\t")
        place = int(position)
        start = max(0, place - AROUND)
        around = text.split()[start : place + AROUND + 1]
        row = {"text": " ".join(around), "place": place - start, "label": int(sense)}
        rows.append(row | {"row": number})
    return Dataset.from_list(rows)


def vectors(model: nn.Module, tokenizer: Tokenizer, rows: Dataset) -> Float[Tensor, "N D"]:
    """Of each row the vector at its word: the mean over the layers without the embeddings. What is
    too long for the model loses words at its ends."""
    body: Any = getattr(model, "stack", model)
    length = body.config.position.length
    texts, places = [], []
    for text, place in zip(rows["text"], rows["place"], strict=True):
        words = text.split()
        start = 0
        while len(tokenizer.encode(words).ids) > length:
            if place - start > len(words) // 2:
                words = words[1:]
                start += 1
            else:
                words = words[:-1]
        texts.append(words)
        places.append(place - start)
    found = []
    for start in range(0, len(texts), CHUNK):
        layers = probing.word_layers(model, tokenizer, texts[start : start + CHUNK])
        for states, place in zip(layers, places[start : start + CHUNK], strict=True):
            found.append(states[1:, place].mean(0))  # layer 0 is the embeddings
    return torch.stack(found)


def probe(known: Float[Tensor, "N D"]) -> baselines.Run:
    """A linear classifier of the rows' vectors; for `tasks.arm`."""

    def run(rows: Dataset, test: Dataset, penalty: float, seed: int) -> float:
        linear = LogisticRegression(C=penalty, max_iter=500, class_weight="balanced")
        classifier = make_pipeline(StandardScaler(), linear)
        classifier.fit(known[rows["row"]].numpy(), rows["label"])
        predictions = classifier.predict(known[test["row"]].numpy()).tolist()
        return METRICS[METRIC](predictions, test["label"])

    return run


def main(
    folder: Annotated[Path, typer.Argument(help="CoarseWSD-20.")],
    out: Annotated[Path, typer.Option(help="File of the figures.")] = RESULTS / "real_senses.json",
) -> None:
    """Score the counts and every model, and write the figures."""
    torch.set_num_threads(1)
    english, town = (zoo.load(name) for name in ("bert-english", "bert-mini"))
    torch.manual_seed(0)
    readers = {"scratch": (Transformer(english.model.stack.config).eval(), english.tokenizer)}
    readers |= {"town": town[:2], "english": english[:2]}
    words = {path.name: read(path) for path in sorted(folder.iterdir()) if path.is_dir()}
    found: dict[str, Figure] = {}
    for name in ("linear", *readers):
        scores: list[float] = []
        for parts in words.values():
            if name == "linear":
                done = tasks.arm(baselines.linear(METRIC), baselines.PENALTIES, *parts, seeds=1)
            else:
                known = vectors(*readers[name], concatenate_datasets(parts))
                done = tasks.arm(probe(known), PENALTIES, *parts, seeds=1)
            scores.append(done["mean"])
        found[name] = figure(scores)
        typer.echo(f"senses {name} {found[name].mean:.4f} {found[name].interval}")
    ahead = {
        name: asdict(difference(found["english"], found[name]))
        for name in found
        if name != "english"
    }
    about = {"words": list(words), "torch": torch.__version__, "made": time.strftime("%Y-%m-%d")}
    write_json(
        out,
        {"arms": {name: asdict(value) for name, value in found.items()}, "ahead": ahead} | about,
    )


if __name__ == "__main__":
    typer.run(main)
