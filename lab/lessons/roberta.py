"""The claims of lesson 12: masks that are drawn anew, and how much is read.

One tiny BERT is the baseline, and every arm is the baseline but for one `Change`. All arms are
asked the same: to say the hidden tokens of documents that nobody has read."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import nn

from course_lib import objectives
from course_lib.analysis import evaluation
from course_lib.data.tokenizers import Tokenizer, train_wordpiece
from course_lib.families.roberta import roberta
from course_lib.model import heads, initialization, transformer
from course_lib.model.config import StackConfig
from course_lib.objectives import InputRow, collate, losses, seeded_generator
from course_lib.vocab import IGNORE
from lab.lessons import (
    Lab,
    Plan,
    experiment,
    fit,
    linear_config,
    probes,
    sentences,
    small_models,
)

# of the vocabulary, of a row, of the model, about so many a batch
PIECES, LENGTH, WIDTH, TOKENS = 300, 64, 64, 780
ASKED = 96  # held-out rows


@dataclass(frozen=True)
class Change:
    """What an arm has other than the baseline.

    few: about a hundredth of the documents, over and over. copies: stored masks in turn, None draws
    anew. batch: times the rows. longer: times the steps."""

    few: bool = False
    copies: int | None = None
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
        if self.change.copies is not None:  # masks that were drawn beforehand
            how: dict[str, Any] = {
                "vocab": self.words.vocab,
                "seed": self.seed,
                "copies": self.change.copies,
            }
            texts = [(torch.tensor([self.rows[i].ids]), [i], epoch) for epoch, i in picked]
            made = [
                objectives.mask_documents(ids, number, epoch=epoch, **how)
                for ids, number, epoch in texts
            ]
            labels = collate.pad([mask.labels[0].tolist() for mask in made], IGNORE)["ids"]
            read = collate.pad([mask.ids[0].tolist() for mask in made], self.words.vocab.padding_id)
            return {**read, "labels": labels, "loss_mask": labels != IGNORE}
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


def compare(name: str, arms: dict[str, Change]) -> None:
    """An experiment that measures the arms' held-out losses and nothing else."""

    @experiment(name)
    def measure(lab: Lab, seed: int) -> dict[str, float]:
        return {f"held-out loss/{arm}": held_out(lab, seed, change) for arm, change in arms.items()}


compare(
    "dynamic-masking",
    {
        "dynamic": FEW,
        "ten masks in turn": replace(FEW, copies=10),
        "a single mask": replace(FEW, copies=1),
    },
)
compare(
    "undertrained",
    {
        "baseline": BASE,
        "few documents": FEW,
        "twice the batch": Change(batch=2),
        "twice the steps": Change(longer=2),
    },
)
