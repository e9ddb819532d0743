"""The claims of lesson 21: three architectures of equal training cost on one suite, and what
pretraining costs.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from statistics import mean
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib import generation
from course_lib.analysis import cost
from course_lib.families import preset
from course_lib.families.gpt import gpt
from course_lib.model import heads, transformer
from course_lib.model.seq2seq import EncoderDecoder, Seq2SeqLM, shift_right
from course_lib.objectives import collate, losses
from course_lib.training import optim
from course_lib.vocab import IGNORE, Vocab
from experiments.lessons import Lab, Made, experiment, fit, given, published

_Example = tuple[str, str, str]  # task, source, target
SIZES, WIDTH, ROWS, PEOPLE, THINGS, PLACES, REST, FORMS = given("choosing").values()
KINDS = ENCODER, DECODER, BOTH = "encoder", "decoder", "encoder-decoder"
TASKS = ("who", "roles", "velin", "then")
LOSS: dict[str, losses.Loss] = {ENCODER: losses.mlm, DECODER: losses.clm, BOTH: losses.seq2seq}
SIGNS = (
    "[PAD]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *(f"{task}?" for task in TASKS),
    *PEOPLE,
    *THINGS,
    *PLACES,
    *REST.split(),
)
NUMBER = {sign: number for number, sign in enumerate(SIGNS)}
START, END, MASK = 1, 2, 3
VOCAB = Vocab(len(SIGNS), pad=0, cls=START, sep=END, mask=MASK)
# masks that keep an encoder's places for an answer
KEPT = {"who": 1, "roles": 0, "velin": 8, "then": 9}
ONE = replace(
    gpt(VOCAB.size, layers=2, width=WIDTH, heads=4, length=64, dropout=0.0),
    init_std=0.5 * WIDTH**-0.5,
)
SEEN, TWO = replace(ONE, causal=False), replace(ONE, cross=True)
MIDDLE = "as if all had 512"  # lengths of the texts that a published model read


def event(rng: random.Random) -> tuple[str, str, str]:
    """Giver, taker, thing."""
    giver, taker = rng.sample(PEOPLE, 2)
    return giver, taker, rng.choice(THINGS)


def asked(
    task: str, rng: random.Random, who: tuple[str, str, str] | None = None, form: int | None = None
) -> _Example:
    """A row: an event in one of four wordings, and what the task wants to know of it."""
    x, y, o = who or event(rng)
    text, roles = FORMS[rng.randrange(4) if form is None else form]
    home = f"{y} took the {o} home ."
    story = home if rng.random() < 0.5 else f"{y} put the {o} in the {rng.choice(PLACES)} ."
    said = {"who": y, "roles": roles, "velin": f"{x} -o {y} -ti {o} -m gifu", "then": story}
    return task, f"{task}? {text.format(x=x, y=y, o=o)}", said[task]


def ids(text: str) -> list[int]:
    """Its words and the end."""
    return [*(NUMBER[word] for word in text.split()), END]


def form(kind: str, rows: Sequence[_Example]) -> losses.Batch:
    """The same rows as each architecture reads them: ids, attention_mask, and labels where an
    answer is wanted.

    An encoder has tags at the words themselves, and masks behind the source for what is to be
    written."""
    if kind == ENCODER:
        read, wanted = [], []
        for task, source, target in rows:
            kept = KEPT[task]
            # tags begin behind the task's name
            before = [IGNORE] * (len(ids(source)) if kept else 1)
            read.append(ids(source) + [MASK] * kept)
            wanted.append((before + ids(target)[: kept or None] + [IGNORE] * kept)[: len(read[-1])])
        return collate.pad(read, 0) | {"labels": collate.pad(wanted, IGNORE)["ids"]}
    both = collate.pad([ids(source) for _, source, _ in rows], 0)
    both |= {"labels": collate.pad([ids(target) for *_, target in rows], IGNORE)["ids"]}
    return both if kind == BOTH else collate.joined(both, vocab=VOCAB)


def build(kind: str, seed: int) -> nn.Module:
    """A fresh network. A token passes two layers in each; the encoder-decoder has them once a
    side.
    """
    torch.manual_seed(seed)
    if kind == ENCODER:
        return heads.MLM(transformer.Transformer(SEEN))
    return (
        heads.LM(transformer.Transformer(ONE))
        if kind == DECODER
        else Seq2SeqLM(EncoderDecoder(TWO, start=START))
    )


def flops(kind: str, batch: losses.Batch) -> float:
    """Operations of a forward pass over a row, on average; padding is not counted."""
    read, said = (
        float(part.sum()) / len(part)
        for part in (batch["attention_mask"], batch["labels"] != IGNORE)
    )
    read, said = cast(tuple[Any, Any], (read, said))  # means, which the formula takes as well
    if kind == BOTH:
        return cost.forward_flops(SEEN, read, outputs=0) + cost.forward_flops(
            TWO, said, memory=read, outputs=said
        )
    return cost.forward_flops(SEEN if kind == ENCODER else ONE, read, outputs=said)


def task_batches(kind: str, seed: int) -> Made:
    """New rows of all four tasks, the same for every architecture."""

    def make(step: int) -> losses.Batch:
        rng = random.Random(100_000 * seed + step)
        return form(kind, [asked(task, rng) for task in TASKS for _ in range(ROWS)])

    return Made(make)


@cache
def steps(kind: str, decoder: int) -> int:
    """As many as take the decoder's operations."""
    mine, theirs = (
        mean(flops(each, task_batches(each, 0)[i]) for i in range(5)) for each in (kind, DECODER)
    )
    return round(decoder * theirs / mine)


@torch.no_grad()
def answers(kind: str, model: Any, rows: Sequence[_Example]) -> list[list[int]]:
    """What a network says to each row, up to the end: an encoder at all places at once, the others
    token by token.
    """
    batch = form(kind, rows)
    how: Any = {
        "max_new_tokens": max(len(ids(target)) for *_, target in rows),
        "eos": END,
        "pad": VOCAB.pad,
    }
    if kind == ENCODER:
        best = model(batch["ids"], attention_mask=batch["attention_mask"]).argmax(-1)
        said = [
            row[label != IGNORE].tolist() for row, label in zip(best, batch["labels"], strict=True)
        ]
    elif kind == DECODER:
        read, attention_mask = generation.left_pad([ids(source) for _, source, _ in rows], 0)
        said = generation.generate(model, read, attention_mask=attention_mask, **how)[
            :, read.shape[1] :
        ].tolist()
    else:
        said = generation.generate(
            model, batch["ids"], attention_mask=batch["attention_mask"], **how
        )[:, 1:].tolist()
    return [row[: [*row, END].index(END)] for row in said]


@torch.no_grad()
def surprise(kind: str, model: Any, rows: Sequence[_Example]) -> float:
    """Nats a token of the targets, the mean over rows."""
    batch = form(kind, rows)
    labels, at = batch["labels"], batch["labels"] != IGNORE
    target = (shift_right(labels, START),) if kind == BOTH else ()
    logits: Tensor = model(batch["ids"], *target, attention_mask=batch["attention_mask"])
    nats = -logits.log_softmax(-1).gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    return float(((nats * at).sum(1) / at.sum(1)).mean())


@torch.no_grad()
def found(kind: str, model: Any, rng: random.Random, n: int) -> float:
    """Share of events whose other wording is closer than the sentence in which giver and taker are
    exchanged.
    """
    stack = model.stack.encoder if kind == BOTH else model.stack
    events = [event(rng) for _ in range(n)]
    turned = [(y, x, o) for x, y, o in events]
    vectors = []
    for some, wording in ((events, 0), (events, 2), (turned, 2)):
        batch = collate.pad([ids(asked("who", rng, who, wording)[1]) for who in some], 0)
        vectors.append(heads.pool(stack(**batch), batch["attention_mask"], "mean"))
    told, same, other = vectors
    return float(
        (F.cosine_similarity(told, same) > F.cosine_similarity(told, other)).float().mean()
    )


@experiment("which-architecture")
def which_architecture(lab: Lab, seed: int) -> dict[str, float]:
    """Right answers by task, surprise by stories, search, and what training and an answer cost, of
    each network.
    """
    count, tests = SIZES[lab.plan.scale]
    values: dict[str, float] = {}
    for kind in KINDS:
        model, own = build(kind, seed), steps(kind, count)
        fit(
            model,
            task_batches(kind, seed),
            LOSS[kind],
            own,
            0.03 / WIDTH**0.4,
            optim.wsd(own, own // 12 + 1, 0.3),
        )
        rng = random.Random(f"test {seed}")
        for task in TASKS:
            rows = [asked(task, rng) for _ in range(tests)]
            values[f"cost/{task}/{kind}"] = flops(kind, form(kind, rows))
            if task == "then":
                values[f"then/{kind}"] = surprise(kind, model, rows)
                continue
            said = answers(kind, model, rows)
            values[f"{task}/{kind}"] = mean(
                s == ids(t)[:-1] for s, (*_, t) in zip(said, rows, strict=True)
            )
        values[f"many tasks/{kind}"] = mean(values[f"{task}/{kind}"] for task in TASKS[:3])
        values[f"search/{kind}"] = found(kind, model, rng, tests)
    return values


@experiment("pretraining-cost")
def pretraining_cost(lab: Lab, seed: int) -> dict[str, float]:
    """The lecture's dollars, hours times the nearest list price, shares of the peak, and today's
    dollars.
    """
    said = published("21_choosing")["pretraining-cost"]
    values: dict[str, float] = {}
    for name, used in said["hardware"].items():
        hours, dollars = used["devices"] * used["days"] * 24, said["dollars"][name]
        listed = min(
            said["prices"][used["kind"]].values(), key=lambda price: abs(price - dollars / hours)
        )
        values |= {f"the lecture says/{name}": dollars, f"device-hours/{name}": hours}
        values[f"hours x list price/{name}"] = hours * listed
    for name in ("BERT-base", "BERT-large"):
        used, counted = said["hardware"][name], cost.parameters(preset(name.lower()))
        operations = cost.training_flops(counted, said["tokens"][MIDDLE])
        # a device has four chips
        peak = 4 * used["devices"] * said["peak of a v2 chip"] * used["days"] * 86_400
        values[f"share of peak, {MIDDLE}/{name}"] = operations / peak
        values[f"today, one A100/{name}"] = cost.bill(operations, cost.DEVICES["A100"]).money
    return values
