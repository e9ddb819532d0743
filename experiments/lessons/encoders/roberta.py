"""The claims of lesson 12: masks, rows, how much is read, whole words, and three relatives of BERT.

One tiny BERT is the baseline, and every arm is the baseline but for one `Change`. All arms are
asked the same: to say the hidden tokens of documents that nobody has read."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from statistics import mean
from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor, nn

from course_lib import objectives, zoo
from course_lib.analysis import evaluation
from course_lib.data.tokenizers import Tokenizer, train_wordpiece
from course_lib.families import preset
from course_lib.families.bert import roberta
from course_lib.model import heads, initialization, transformer
from course_lib.model.config import Disentangled, StackConfig
from course_lib.objectives import Format, InputRow, collate, losses, seeded_generator
from course_lib.training.finetune import finetune
from course_lib.vocab import IGNORE
from experiments.lessons import (
    Lab,
    Plan,
    experiment,
    fit,
    probes,
    published,
    sentences,
    small_models,
    task_rows,
)

# of the vocabulary, of a row, of the model, about so many a batch
PIECES, LENGTH, WIDTH, TOKENS = 300, 64, 64, 780
ASKED = 96  # held-out rows
PUBLISHED = published("12_roberta")["span-and-sharing"]["albert"]["rows"]  # millions of parameters


@dataclass(frozen=True)
class Change:
    """What an arm has other than the baseline.

    few: about a hundredth of the documents, over and over. copies: stored masks in turn, None draws
    anew. batch: times the rows. longer: times the steps. start: the mimetic one, or noise."""

    format: Format = "full-sentences"
    few: bool = False
    copies: int | None = None
    unit: collate.Unit = "token"
    batch: int = 1
    longer: int = 1
    shape: str = "BERT"
    start: bool = True


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
def rows_of(plan: Plan, format: Format, part: str) -> list[InputRow]:
    """A part of the corpus ("read", "few" or "unread") as rows of a format."""
    vocab, documents = text(plan).words.vocab, getattr(text(plan), part)
    return objectives.input_rows(
        documents, seeded_generator(0), vocab=vocab, format=format, length=LENGTH
    )


def hidden(
    rows: Iterable[InputRow], words: Tokenizer, rng: torch.Generator, unit: collate.Unit
) -> losses.Batch:
    """Rows, padded and masked."""
    ids, attention_mask = collate.pad([row.ids for row in rows], words.vocab.pad or 0).values()
    return collate.masked(
        ids, attention_mask, rng, vocab=words.vocab, unit=unit, words=words.words(ids)
    )


class MaskedRows:
    """Batch `step` of an arm: about as many tokens in every format, the rows in another order each
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
            read = collate.pad([mask.ids[0].tolist() for mask in made], self.words.vocab.pad or 0)
            return {**read, "labels": labels, "loss_mask": labels != IGNORE}
        batch = hidden(rows, self.words, seeded_generator(self.seed, 1, step), self.change.unit)
        if rows[0].next == IGNORE:
            return batch
        segments = collate.pad([row.segments for row in rows], 0)["ids"]
        return {**batch, "segments": segments, "next": torch.tensor([row.next for row in rows])}


def shapes(vocab: int) -> dict[str, StackConfig]:
    """The tiny BERT and its relatives."""
    size: dict[str, Any] = {
        "width": WIDTH,
        "layers": 2,
        "heads": 2,
        "length": LENGTH,
        "dropout": 0.0,
    }
    bert = replace(roberta(vocab, **size), init_std=0.05)
    thin = replace(bert, embed=replace(bert.embed, width=WIDTH // 4))
    return {
        "BERT": bert,
        "shared": replace(bert, shared=True),
        "factorised": thin,
        "both (ALBERT)": replace(thin, shared=True),
        "disentangled (DeBERTa)": replace(bert, position=Disentangled(16)),
    }


@cache
def trained(plan: Plan, seed: int, change: Change) -> nn.Module:
    """An arm's model at its end; once a process, for the claims that share it."""
    words, rows = text(plan).words, rows_of(plan, change.format, "few" if change.few else "read")
    config, pairs = shapes(words.vocab.size)[change.shape], rows[0].next != IGNORE
    if pairs:
        config = replace(config, embed=replace(config.embed, segments=2))
    torch.manual_seed(seed)
    model = (heads.Pretraining if pairs else heads.MLM)(transformer.Transformer(config))
    if change.start:
        initialization.mimetic(model.stack)
        initialization.identity_init_(model.head)
    count = change.longer * steps(plan)
    fit(
        model,
        MaskedRows(rows, words, change, seed),
        losses.mlm_nsp if pairs else losses.mlm,
        count,
        3e-3,
    )
    return model


def held_out(
    lab: Lab,
    seed: int,
    change: Change,
    unit: collate.Unit = "token",
    format: Format = "full-sentences",
) -> float:
    """An arm's loss in nats at hidden tokens of documents that nobody has read, the same for all
    arms and seeds.
    """
    rows = rows_of(lab.plan, format, "unread")[:ASKED]
    exam = hidden(rows, text(lab.plan).words, seeded_generator(5), unit)
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


@experiment("input-formats")
def input_formats(lab: Lab, seed: int) -> dict[str, float]:
    """Held-out losses on full-sentence rows, and on average over rows of every format, so that none
    is at home.
    """
    found, formats = dict[str, float](), get_args(Format)
    for format in formats:
        by_rows = {
            rows: held_out(lab, seed, Change(format=format), format=rows) for rows in formats
        }
        found |= {f"held-out loss/{format}": by_rows["full-sentences"]}
        found |= {f"on rows of every format/{format}": mean(by_rows[rows] for rows in formats)}
    return found


def questions(
    tokenizer: Tokenizer, texts: list[str], length: int, seed: int
) -> Iterator[tuple[Tensor, int, Tensor]]:
    """Of each text with a word in several pieces: ids Int[T], the place of one of these, all of the
    word's, Bool[T].
    """
    rng = seeded_generator(seed, 8)
    for ids in map(torch.tensor, tokenizer.ids(texts, max_length=length)):
        number = tokenizer.words(ids)
        several = [i for i, n in enumerate(number.tolist()) if n >= 0 and (number == n).sum() > 1]
        if several:
            place = several[int(torch.randint(len(several), (), generator=rng))]
            yield ids, place, number == number[place]


@torch.no_grad()
def easier(n: int, seed: int) -> dict[str, float]:
    """bert-mini's accuracy at the same pieces, with the rest of the word in view and without."""
    model, tokenizer, _ = zoo.load("bert-mini")
    write = sentences(small_models.WORLD, "validation", seed)
    texts = [" ".join(write(i)) for i in range(n)]
    right: dict[str, list[bool]] = {"rest in view": [], "word hidden": []}
    for ids, place, word in questions(tokenizer, texts, model.stack.config.position.length, seed):
        for name, hide in zip(right, (torch.arange(len(ids)) == place, word), strict=True):
            said = model(ids.masked_fill(hide, tokenizer.vocab.mask or 0)[None])[0][
                0, place
            ].argmax()
            right[name].append(bool(said == ids[place]))
    return {f"pieces right/{name}": mean(hits) for name, hits in right.items()}


@experiment("whole-word-masking")
def whole_word_masking(lab: Lab, seed: int) -> dict[str, float]:
    """What bert-mini guesses, and both arms as taggers."""
    values = easier(lab.plan.tests, seed)
    tagging = task_rows("pos", seed, train=40, test=lab.plan.tests)
    for name, change in (("pieces", BASE), ("whole words", Change(unit="word"))):
        tagger = finetune(
            trained(lab.plan, seed, change),
            tagging,
            text(lab.plan).words,
            epochs=4,
            lr=1e-3,
            batch=16,
            dropout=0.0,
            max_length=LENGTH,
            seed=seed,
        )
        values[f"tags right/{name}"] = tagger.score
    return values


@experiment("span-and-sharing")
def span_and_sharing(lab: Lab, seed: int) -> dict[str, float]:
    """Parameters of the published sizes; held-out loss of each shape; the loss on spans and
    tokens.
    """
    values: dict[str, float] = {}
    for name, millions in PUBLISHED.items():
        ours = small_models.published_size(preset(name.lower()))
        values[f"parameters, of the paper's/{name}"] = ours / (1e6 * millions)
    for name in shapes(text(lab.plan).words.vocab.size):
        values[f"held-out loss/{name}"] = held_out(lab, seed, Change(start=False, shape=name))
    units: tuple[collate.Unit, collate.Unit] = ("token", "span")
    for on, read in product(units, units):
        values[f"loss on {on}s/trained on {read}s"] = held_out(lab, seed, Change(unit=read), on)
    return values
