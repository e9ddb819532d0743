"""Public tasks: their rows, and the score of a named model that is tuned on them.

    task = tasks.TASKS["sst2"]
    rows, test = tasks.parts(task, lab.public_data)
    run = tasks.tuner("bert-english", task)
    tasks.tries(run, (3e-4, 1e-3), rows)      # to choose a rate, on training rows alone
    run(rows, test, 1e-3, seed)               # the score

As a script it compares a small encoder from random weights, pretrained on the town, pretrained on
English, and a linear model of counted words and letters.

    python -m lab.real.tasks FOLDER [--task sst2 ...]

FOLDER has the published files. An arm's learning rate (the linear model's regularisation) is chosen
on a tenth of the training rows, by trainings on the others, or on the first of them
(`PublicTask.trial`). Then it is trained on all of them, once a seed, and scored on rows that chose
nothing. data/results/real_NAME.json keeps every finished arm."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from datasets import Dataset, concatenate_datasets

from classroom.records.figures import figure
from classroom.records.record import RESULTS
from course_lib import data, zoo
from course_lib.analysis.sts import sts
from course_lib.data.columns import Columns
from course_lib.data.embedders import SentenceEncoder
from course_lib.data.text_batches import TextBatches
from course_lib.families.sentence import Sentence, cosine_regression
from course_lib.files import read_json, write_json
from course_lib.model.config import Pool
from course_lib.model.transformer import Transformer
from course_lib.training.finetune import FinetuneConfig, finetune
from course_lib.training.settings import Precision
from lab.engine.lab import fit, linear_config
from lab.real.baselines import PENALTIES, Run, linear
from lab.real.remembered import Remembered

RATES = (3e-4, 1e-3, 3e-3)  # peak learning rates that are tried
DROPOUT = 0.1


@dataclass(frozen=True)
class PublicTask:
    """A task's files, and how it is scored.

    Attributes:
        train: file or folder, and split, or several with " + " between.
        test: likewise; if it is the same as `train`, every fourth article is for testing.
        metric: of `metrics.METRICS`.
        bert_base: the published score, of the paper's own test rows.
        epochs: over the training rows, the same for every arm.
        trial: rows at most that a trial of a learning rate trains on.
        columns: of `data.task`.
    """

    train: tuple[str, str]
    test: tuple[str, str]
    metric: str
    bert_base: float | None = None
    epochs: int = 3
    trial: int = 1000
    columns: Columns | None = None

    def rows(self, find: Callable[[str], Path], part: tuple[str, str]) -> Dataset:
        """The rows of one part; `find` is told in `parts`."""
        path, splits = part
        names = splits.split(" + ")
        rows = [data.task(find(path), split=name, columns=self.columns) for name in names]
        return concatenate_datasets(rows)


# bert_base: Devlin et al. 2019, table 1, on GLUE's hidden test sets.
TASKS = {
    "cola": PublicTask(
        ("cola/raw", "train"),
        ("cola/raw", "in_domain_dev + out_of_domain_dev"),
        "matthews",
        bert_base=0.521,
        epochs=10,
        trial=10**6,
    ),
    "stsb": PublicTask(("stsb_en", "train"), ("stsb_en", "test"), "spearman", bert_base=0.858),
    "wnut17": PublicTask(("wnut17", "train"), ("wnut17", "validation"), "entity_f1", epochs=5),
    "ud_tags": PublicTask(
        ("ud_english_ewt", "validation"),
        ("ud_english_ewt", "test"),
        "accuracy",
        epochs=15,
        trial=10**6,
    ),
    "xquad": PublicTask(
        ("xquad_en/xquad.en.json", "train"),
        ("xquad_en/xquad.en.json", "train"),
        "token_f1",
        epochs=5,
    ),
    "mrpc": PublicTask(("mrpc", "train"), ("mrpc", "test"), "f1", bert_base=0.889),
    "sst2": PublicTask(
        ("sst2", "train"),
        ("sst2", "test"),
        "accuracy",
        bert_base=0.935,
        columns={"text": 0, "label": 1},
    ),
}


def parts(task: PublicTask, find: Callable[[str], Path]) -> tuple[Dataset, Dataset]:
    """Training rows and rows to score.

    Args:
        task: one of `TASKS`.
        find: the path of a public data set by its name, such as `Lab.public_data`.
    """
    if task.train != task.test:
        return task.rows(find, task.train), task.rows(find, task.test)
    rows = task.rows(find, task.train)
    test_titles = sorted(set(rows["title"]))[::4]
    train = rows.filter(lambda row: row["title"] not in test_titles)
    test = rows.filter(lambda row: row["title"] in test_titles)
    return train, test


def tuner(
    name: str,
    task: PublicTask,
    *,
    pretrained: bool = True,
    frozen: bool = False,
    pool: Pool | None = None,
    batch: int = 32,
    precision: Precision = "auto",
    device: str = "cpu",
) -> Run:
    """Fine-tuning of a named model, or of its configuration with random weights.

    A text is the mean of its vectors, a decoder's text its last vector. Two texts are read
    together, but a graded pair as two means and their cosine (Reimers and Gurevych 2019).

    Args:
        name: a shipped checkpoint, or a public model such as "minilm".
        task: tells the metric and the epochs.
        pretrained: begin with the model's weights, or with random ones.
        frozen: train the head alone, on vectors that are computed once; not for a graded pair.
        pool: how the vectors of a text become one, if not as said above.
        batch: rows in a batch.
        precision: of `FinetuneConfig`.
        device: where it is trained.
    """
    model, tokenizer, _ = zoo.open_model(name)
    body = model.stack

    def classify(rows: Dataset, test: Dataset, rate: float, seed: int) -> float:
        config = FinetuneConfig(
            metric=task.metric,
            pretrained=pretrained,
            frozen=frozen,
            dropout=DROPOUT,
            pool=pool or ("last" if body.config.causal else "mean"),
            epochs=task.epochs,
            batch=batch,
            by_length=True,
            lr=rate,
            seed=seed,
            precision=precision,
            device=device,
        )
        split = {"train": rows, "test": test}
        on_top = Remembered if frozen else None
        return finetune(model, split, tokenizer, config, on_top=on_top).score

    def grade(rows: Dataset, test: Dataset, rate: float, seed: int) -> float:
        torch.manual_seed(seed)
        shape = replace(body.config, dropout=DROPOUT, attention_dropout=DROPOUT)
        sentence = Sentence(Transformer(shape), pool or "mean")
        if pretrained:
            sentence.stack.load_state_dict(body.state_dict())
        batches = TextBatches(rows, tokenizer, batch=batch, seed=seed, best=max(rows["label"]))
        steps = task.epochs * batches.per_epoch
        training = linear_config(steps, rate, precision=precision, device=device)
        fit(sentence, batches, cosine_regression, training)
        return sts(SentenceEncoder(sentence, tokenizer), test["text"], test["pair"], test["label"])

    return grade if task.metric == "spearman" else classify


def tries(
    run: Run, choices: Sequence[float], rows: Dataset, trial: int = PublicTask.trial, seed: int = 0
) -> dict[float, float]:
    """The score of each rate or penalty on a tenth of the training rows.

    Args:
        run: trains and scores.
        choices: rates or penalties.
        rows: for training; a tenth of them is held out.
        trial: rows at most that a trial trains on.
        seed: of the division and of the trainings.
    """
    divided = rows.train_test_split(test_size=0.1, seed=seed)
    few = divided["train"].select(range(min(trial, len(divided["train"]))))
    return {choice: run(few, divided["test"], choice, seed) for choice in choices}


def arm(
    run: Run,
    choices: Sequence[float],
    rows: Dataset,
    test: Dataset,
    seeds: int,
    trial: int = PublicTask.trial,
) -> dict[str, Any]:
    """Choose on a tenth of the training rows, train on all of them `seeds` times, score."""
    start = time.perf_counter()
    tried = tries(run, choices, rows, trial)
    best = max(tried, key=tried.__getitem__)
    scores = [run(rows, test, best, seed) for seed in range(seeds)]
    seconds = round(time.perf_counter() - start)
    return asdict(figure(scores)) | {"chosen": best, "tried": tried, "seconds": seconds}


def main(
    folder: Annotated[Path, typer.Argument(help="Folder of the public data.")],
    english: Annotated[
        str, typer.Option(help="The encoder that has read English.")
    ] = "bert-english",
    town: Annotated[str, typer.Option(help="The one that has read the town.")] = "bert-mini",
    task: Annotated[list[str] | None, typer.Option(help="Only these.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Of the arms, these.")] = None,
    seeds: Annotated[int, typer.Option(help="Trainings of an arm.", min=1)] = 5,
    device: Annotated[str, typer.Option()] = "cpu",
    out: Annotated[Path, typer.Option(help="Folder of the figures.")] = RESULTS,
) -> None:
    """Fine-tune on public tasks and record the scores."""
    torch.set_num_threads(1)
    for name in task or TASKS:
        this = TASKS[name]
        rows, test = parts(this, folder.joinpath)
        # How an arm is run, the settings to choose from, its number of seeds.
        arms: dict[str, tuple[Run, Sequence[float], int]] = {
            "linear": (linear(this.metric), PENALTIES, 1)
        }
        for label, model in (("english", english), ("scratch", english), ("town", town)):
            pretrained = label != "scratch"
            run = tuner(model, this, pretrained=pretrained, precision="bf16", device=device)
            arms[label] = (run, RATES, seeds)
        file = out / f"real_{name}.json"
        found: dict[str, Any] = read_json(file) if file.exists() else {"arms": {}}
        found |= {"task": asdict(this), "rows": {"train": len(rows), "test": len(test)}}
        found |= {"torch": torch.__version__, "made": time.strftime("%Y-%m-%d")}
        for label, (run, choices, count) in arms.items():
            if label not in found["arms"] and label in (only or arms):
                found["arms"][label] = arm(run, choices, rows, test, count, this.trial)
                write_json(file, found)
                typer.echo(f"{name} {label} {found['arms'][label]}")


if __name__ == "__main__":
    typer.run(main)
