"""The claims of lesson 12: masks that are drawn anew, and how much is read.

For the masks `bert-english` reads four texts of the course again and again. For how much is read
one tiny BERT is the baseline, and every arm is the baseline but for one `Change`. All are asked the
same: to say the hidden tokens of documents that they have not been trained on."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import nn

from course_lib import data, objectives, zoo
from course_lib.analysis import evaluation
from course_lib.data.tokenizers import Tokenizer, train_wordpiece
from course_lib.families.roberta import roberta
from course_lib.model import heads, initialization, transformer
from course_lib.model.config import StackConfig
from course_lib.objectives import InputRow, collate, losses, seeded_generator
from lab.lessons import (
    Lab,
    Made,
    Plan,
    experiment,
    fit,
    given,
    linear_config,
    probes,
    sentences,
    small_models,
)

# of the vocabulary, of a row, of the model, about so many a batch
PIECES, LENGTH, WIDTH, TOKENS = 300, 64, 64, 780
ASKED = 96  # held-out rows
ROWS = 16  # of a step of bert-english


@dataclass(frozen=True)
class Change:
    """What an arm has other than the baseline.

    few: about a hundredth of the documents, over and over. batch: times the rows. longer: times the
    steps."""

    few: bool = False
    batch: int = 1
    longer: int = 1


BASE, FEW = Change(), Change(few=True)


def steps(plan: Plan) -> int:
    """Of the baseline."""
    return max(2, plan.steps // 9)


class Corpus(NamedTuple):
    """What is read, few of it and what is asked about, as word pieces by document and sentence."""

    words: Tokenizer
    read: list[list[list[int]]]
    few: list[list[list[int]]]
    unread: list[list[list[int]]]


@cache
def text(plan: Plan) -> Corpus:
    """Ten documents for each of the baseline's steps, and a tenth of that aside."""
    write, count = sentences(small_models.WORLD, "train"), max(60, 10 * steps(plan))
    told = [write(i) for i in range(count + count // 10)]
    words = train_wordpiece([" ".join(document) for document in told], PIECES)
    coded = [[list(ids) for ids in words.ids(document, special=False)] for document in told]
    return Corpus(words, coded[:count], coded[: max(6, 12 * steps(plan) // 100)], coded[count:])


@cache
def rows_of(plan: Plan, part: str) -> list[InputRow]:
    """A part of the corpus ("read", "few" or "unread") as rows of full sentences."""
    vocab, documents = text(plan).words.vocab, getattr(text(plan), part)
    return objectives.input_rows(
        documents, seeded_generator(0), vocab=vocab, format="full-sentences", length=LENGTH
    )


def hidden(rows: Iterable[InputRow], words: Tokenizer, rng: torch.Generator) -> losses.Batch:
    """Rows, padded and masked."""
    ids, attention_mask = collate.pad([row.ids for row in rows], words.vocab.padding_id).values()
    return collate.masked(ids, attention_mask, rng, vocab=words.vocab)


class MaskedRows:
    """Batch `step` of an arm: about as many tokens each time, the rows in another order each
    time round.
    """

    def __init__(self, rows: list[InputRow], words: Tokenizer, change: Change, seed: int) -> None:
        self.rows, self.words, self.change, self.seed = rows, words, change, seed
        self.each = max(
            1, round(change.batch * TOKENS * len(rows) / sum(len(row.ids) for row in rows))
        )
        self.order = cache(
            lambda epoch: torch.randperm(
                len(rows), generator=seeded_generator(seed, 0, epoch)
            ).tolist()
        )

    def __getitem__(self, step: int, /) -> losses.Batch:
        places = [divmod(step * self.each + i, len(self.rows)) for i in range(self.each)]
        picked = [(epoch, self.order(epoch)[place]) for epoch, place in places]
        rows = [self.rows[i] for _, i in picked]
        return hidden(rows, self.words, seeded_generator(self.seed, 1, step))


def body(vocab: int) -> StackConfig:
    """The tiny BERT."""
    size: dict[str, Any] = {
        "width": WIDTH,
        "layers": 2,
        "heads": 2,
        "length": LENGTH,
        "dropout": 0.0,
    }
    return replace(roberta(vocab, **size), init_std=0.05)


@cache
def trained(plan: Plan, seed: int, change: Change) -> nn.Module:
    """An arm's model at its end; once a process, for the claims that share it."""
    words, rows = text(plan).words, rows_of(plan, "few" if change.few else "read")
    torch.manual_seed(seed)
    model = heads.MLM(transformer.Transformer(body(words.vocab.size)))
    initialization.mimetic(model.stack)
    initialization.identity_init_(model.head)
    batches = MaskedRows(rows, words, change, seed)
    fit(model, batches, losses.mlm, linear_config(change.longer * steps(plan), 3e-3))
    return model


def held_out(lab: Lab, seed: int, change: Change) -> float:
    """An arm's loss in nats at hidden tokens of documents that nobody has read, the same for all
    arms and seeds.
    """
    rows = rows_of(lab.plan, "unread")[:ASKED]
    exam = hidden(rows, text(lab.plan).words, seeded_generator(5))
    return evaluation.mean_loss(trained(lab.plan, seed, change), probes.words_loss, [exam])


@experiment("undertrained")
def undertrained(lab: Lab, seed: int) -> dict[str, float]:
    """The arms' held-out losses, and nothing else."""
    changes = {
        "baseline": BASE,
        "few documents": FEW,
        "twice the batch": Change(batch=2),
        "twice the steps": Change(longer=2),
    }
    return {f"held-out loss/{arm}": held_out(lab, seed, each) for arm, each in changes.items()}


BODY = "bert-english"
GIVEN = given("roberta")
SIZES: dict[str, dict[str, Any]] = GIVEN["sizes"]
# How many stored masks an arm uses in turn; None draws a new one each time.
COPIES = {"a single mask": 1, "ten masks in turn": 10, "dynamic": None}


def english_rows(texts: Sequence[str]) -> list[InputRow]:
    """Texts of the course as rows of full sentences."""
    _, tokenizer, _ = zoo.load(BODY)
    documents = [
        [tokenizer.encode(part, special=False).ids for part in re.split(r"(?<=[.!?])\s+", text)]
        for text in map(str.strip, texts)
    ]
    return objectives.input_rows(
        documents,
        seeded_generator(0),
        vocab=tokenizer.vocab,
        format="full-sentences",
        length=LENGTH,
    )


def batches(rows: list[InputRow], copies: int | None, epochs: int, seed: int) -> list[losses.Batch]:
    """Some epochs over a few rows, each in an order of its own."""
    _, tokenizer, _ = zoo.load(BODY)
    made: list[losses.Batch] = []
    for epoch in range(epochs):
        copy = epoch if copies is None else epoch % copies
        masked = hidden(rows, tokenizer, seeded_generator(seed, 1, copy))
        order = torch.randperm(len(rows), generator=seeded_generator(seed, 0, epoch))
        for picked in torch.split(order, ROWS):
            made.append({name: values[picked] for name, values in masked.items()})
    return made


def frequency_loss(rows: list[InputRow], asked: losses.Batch) -> float:
    """Loss in nats of whoever knows of each token only how often it stands in these rows."""
    _, tokenizer, _ = zoo.load(BODY)
    counts = Counter(token for row in rows for token in row.ids)
    total = counts.total() + tokenizer.vocab.size
    wanted = asked["labels"][asked["loss_mask"]].tolist()
    return -sum(math.log((counts[token] + 1) / total) for token in wanted) / len(wanted)


@experiment("dynamic-masking")
def dynamic_masking(lab: Lab, seed: int) -> dict[str, float]:
    """Losses of `bert-english` before and after it has read a few texts again and again: at the
    gaps of the first epoch, at other gaps of the same texts, and on texts that it has not read.

    Each seed reads other texts. All arms of a seed share the gaps of their first epoch.
    """
    size = SIZES[lab.plan.scale]
    model, tokenizer, _ = zoo.load(BODY)
    texts = list(data.corpus("text", split="train")["text"])
    first = size["texts"] * (seed + 1)  # the first ones were for choosing the learning rate
    rows = english_rows(texts[first : first + size["texts"]])
    unread = english_rows(list(data.corpus("text", split="validation")["text"]))
    exams = {
        "first gaps": hidden(rows, tokenizer, seeded_generator(seed, 1, 0)),
        "other gaps": hidden(rows * 4, tokenizer, seeded_generator(seed, 2)),
        "held-out loss": hidden(unread[::3][: size["asked"]], tokenizer, seeded_generator(5)),
    }
    figures = {
        "held-out loss/token frequency": frequency_loss(english_rows(texts), exams["held-out loss"])
    }
    for arm, copies in {"before": None, **COPIES}.items():
        reader = deepcopy(model)
        if arm != "before":
            made = batches(rows, copies, size["epochs"], seed)
            config = linear_config(len(made), GIVEN["rate"])
            torch.manual_seed(seed)
            fit(reader, Made(made.__getitem__), losses.mlm, config)
        for name, exam in exams.items():
            figures[f"{name}/{arm}"] = evaluation.mean_loss(reader, probes.words_loss, [exam])
    return figures
