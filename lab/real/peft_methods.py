"""The methods of lesson 20 on few labelled rows of real English.

    task = peft_methods.tags(lab.public_data, seed)
    peft_methods.tune("minilm", "LoRA", task, setting, seed).score

Where a method's number of weights can be chosen, all have the same number up to three in a hundred:
a prefix of 9 r positions trains as many as LoRA of rank r at all six matrices of a block. DoRA also
trains the length of each row of a matrix, so its rank is lower in the feed-forward layer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, concatenate_datasets
from torch import nn

from course_lib import data, peft, zoo
from course_lib.data.tokenizers import Tokenizer
from course_lib.objectives import collate, seeded_generator
from course_lib.objectives.losses import Batch
from course_lib.training.finetune import FinetuneConfig, Result, finetune

METHODS = ("full", "head only", "BitFit", "prompt", "prefix", "adapters", "LoRA", "DoRA")
EVERYWHERE = "blocks.*.*.*"  # all matrices of all blocks
RANK = 4
LOWER_RANK = 3  # of DoRA in the feed-forward layer
ADAPTER = 17  # width
PREFIX = 9 * RANK  # positions
PROMPT = 20
LABELS = 200
TESTS = 200
WORDS = range(4, 13)  # of a sentence that is tagged; short ones make 20 seeds affordable
TOKENS = 28  # of a text that is judged, at most
LENGTH = 192  # tokens of a text in which words are hidden

Task = dict[str, Dataset]


@dataclass(frozen=True)
class Setting:
    """How all methods are trained on one task.

    Attributes:
        rates: the learning rate of each method.
        epochs: over the labelled rows.
        batch: rows of a batch.
    """

    rates: Mapping[str, float]
    epochs: int
    batch: int


def tune(
    model: str, method: str, task: Task, setting: Setting, seed: int, device: str = "cpu"
) -> Result:
    """Train a named model on the task's "train" rows and score its "test" rows.

    Args:
        model: a shipped checkpoint, or a public model such as "minilm".
        method: of `METHODS`.
        task: its rows.
        setting: how it is trained.
        seed: of the head's weights, the dropout and the order of the rows.
        device: where it is trained.
    """
    opened = _opened(model)
    config = FinetuneConfig(
        epochs=setting.epochs,
        batch=setting.batch,
        lr=setting.rates[method],
        frozen=method == "head only",
        dropout=0.1,
        pool="mean",
        by_length=True,
        seed=seed,
        precision="auto",
        device=device,
    )
    words = first_tokens(task["train"], opened.tokenizer)
    makers: dict[str, Any] = {
        "BitFit": peft.bitfit,
        "prompt": partial(peft.prompt, length=PROMPT, words=words),
        "prefix": partial(peft.prefix, words=words),
        "adapters": partial(peft.adapters, width=ADAPTER),
        "LoRA": partial(peft.lora, pattern=EVERYWHERE, rank=RANK),
        "DoRA": dora,
    }
    body: Any = opened.model.stack
    return finetune(body, task, opened.tokenizer, config, peft=makers.get(method))


def dora(body: nn.Module) -> nn.Module:
    """DoRA at all matrices, with about as many weights as LoRA of rank `RANK`."""
    peft.dora(body, "blocks.*.attn.*", rank=RANK)
    return peft.dora(body, "blocks.*.ff.*", rank=LOWER_RANK)


def trained_weights(result: Result) -> int:
    """Number of weights in the body that were trained."""
    body: Any = result.model.stack
    return peft.count(body).trainable


def first_tokens(rows: Dataset, tokenizer: Tokenizer) -> list[int]:
    """The first tokens of the rows' texts. Prefix and prompt begin with them."""
    texts = _texts(rows.select(range(min(len(rows), PREFIX))))
    ids = [row[1:-1] for row in tokenizer.ids(texts)]  # without [CLS] and [SEP]
    return list(chain.from_iterable(ids))[:PREFIX]


def most_frequent(task: Task) -> float:
    """The accuracy of the label that is most frequent among the labelled rows."""
    shown, asked = (_labels(task[split]) for split in ("train", "test"))
    return float((asked == np.bincount(shown).argmax()).mean())


def masked_texts(tokenizer: Tokenizer, rows: int) -> list[Batch]:
    """Batches of held-out texts of the course with hidden tokens, always the same ones."""
    texts = data.corpus("text", split="test", n=rows)
    ids = [row[:LENGTH] for row in tokenizer.ids(list(texts["text"]))]
    padded = collate.pad(ids, tokenizer.vocab.padding_id)
    rng = seeded_generator(0)
    return [collate.masked(padded["ids"], padded["attention_mask"], rng, vocab=tokenizer.vocab)]


def sentiment(seed: int, labels: int = LABELS, *, is_pilot: bool = False) -> Task:
    """Short remarks of `data/tasks/sentiment`, positive or negative.

    Args:
        seed: of the draw of labelled rows.
        labels: how many.
        is_pilot: test on rows of the pool that were not drawn; the test rows stay untouched.
    """
    return _draw(_short_remarks(), seed, labels, is_pilot)


def tags(
    find: Callable[[str], Path], seed: int, labels: int = LABELS, *, is_pilot: bool = False
) -> Task:
    """Short sentences of the English Web Treebank with the parts of speech of their words.

    Args:
        find: the path of a public data set by its name, such as `Lab.public_data`.
        seed: of the draw of labelled rows.
        labels: how many.
        is_pilot: as of `sentiment`.
    """
    return _draw(_short_sentences(find("ud_english_ewt")), seed, labels, is_pilot)


@cache
def _opened(model: str) -> Any:
    """A named model with its tokenizer, read once."""
    return zoo.open_model(model)


@cache
def _short_remarks() -> Task:
    """The rows to draw from, and the test rows."""
    tokenizer = _opened("bert-english").tokenizer

    def short(split: str) -> Dataset:
        rows = data.task("tasks/sentiment", split=split)
        lengths = map(len, tokenizer.ids(list(rows["text"])))
        return rows.select([i for i, length in enumerate(lengths) if length <= TOKENS])

    pool = concatenate_datasets([short("train"), short("validation")])
    return {"pool": pool, "test": short("test")}


@cache
def _short_sentences(folder: Path) -> Task:
    """The rows to draw from, and the test rows."""

    def short(split: str) -> Dataset:
        rows = data.task(folder, split=split)
        lengths = map(len, rows["tokens"])
        return rows.select([i for i, length in enumerate(lengths) if length in WORDS])

    test = short("test").shuffle(seed=0)
    return {"pool": short("validation"), "test": test.select(range(min(TESTS, len(test))))}


def _draw(rows: Task, seed: int, labels: int, is_pilot: bool) -> Task:
    """Labelled rows of the pool, and rows to score."""
    pool = rows["pool"].shuffle(seed=seed)
    labels = min(labels, len(pool) // 2)
    test = rows["test"]
    if is_pilot:
        test = pool.select(range(labels, min(labels + TESTS, len(pool))))
    return {"train": pool.select(range(labels)), "test": test}


def _texts(rows: Dataset) -> list[str]:
    if "tokens" in rows.column_names:
        return [" ".join(words) for words in rows["tokens"]]
    return list(rows["text"])


def _labels(rows: Dataset) -> np.ndarray:
    """Of all rows, or of all words."""
    if "tokens" in rows.column_names:
        return np.concatenate(rows["labels"])
    return np.array(rows["label"])
