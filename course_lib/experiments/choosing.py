"""The claim of lesson 21: three architectures of equal training cost on one suite."""

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from statistics import mean
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib import cost, generate, heads, losses, objectives, optim
from course_lib.claims.experiment import experiment
from course_lib.claims.lab import Lab
from course_lib.claims.record import Figures
from course_lib.corrupt import IGNORE
from course_lib.data.batches import pad
from course_lib.experiments.judging import clearly_above, percent
from course_lib.losses import Batch, Loss
from course_lib.models.gpt import gpt
from course_lib.seq2seq import EncoderDecoder, Seq2SeqLM, shift_right
from course_lib.stack import Stack
from course_lib.tokenizers import Vocab
from course_lib.train import train

Row = tuple[str, str, str]  # task, source, target
SIZES = {"smoke": (4, 10), "cpu": (500, 300), "gpu": (3000, 1000)}  # the decoder's steps, test rows of a task
KINDS = ENCODER, DECODER, BOTH = "encoder", "decoder", "encoder-decoder"
TASKS = ("who", "roles", "velin", "then")
WIDTH, ROWS = 64, 8  # rows of each task a batch
LOSS: dict[str, Loss] = {ENCODER: losses.mlm, DECODER: losses.clm, BOTH: losses.seq2seq}
CHANCE = {"who": 1 / 8, "roles": 0.0, "search": 1 / 2}

PEOPLE = ("Mara", "Theo", "Lena", "Hugo", "Nora", "Emil", "Rosa", "Otto")
THINGS = ("lamp", "boat", "coat", "drum", "kite", "vase", "bell", "rope")
PLACES = ("mill", "pier", "barn", "yard")
FORMS = (  # how an event is said, and each word's role
    ("{x} gave {y} the {o} .", "giver - taker - thing -"),
    ("{x} gave the {o} to {y} .", "giver - - thing - taker -"),
    ("{y} was given the {o} by {x} .", "taker - - - thing - giver -"),
    ("the {o} was given to {y} by {x} .", "- thing - - - taker - giver -"),
)
REST = "giver taker thing - gave was given the by to . put took in home -o -m -ti gifu"
SIGNS = ("[PAD]", "[CLS]", "[SEP]", "[MASK]", *(f"{task}?" for task in TASKS), *PEOPLE, *THINGS, *PLACES, *REST.split())
NUMBER = {sign: number for number, sign in enumerate(SIGNS)}
START, END, MASK = 1, 2, 3
VOCAB = Vocab(len(SIGNS), pad=0, cls=START, sep=END, mask=MASK)
KEPT = {"who": 1, "roles": 0, "velin": 8, "then": 9}  # masks that keep an encoder's places for an answer
ONE = replace(gpt(VOCAB.size, layers=2, width=WIDTH, heads=4, length=64, dropout=0.0), init_std=0.5 * WIDTH**-0.5)
SEEN, TWO = replace(ONE, causal=False), replace(ONE, cross=True)


def event(rng: random.Random) -> tuple[str, str, str]:
    """Giver, taker, thing."""
    giver, taker = rng.sample(PEOPLE, 2)
    return giver, taker, rng.choice(THINGS)


def asked(task: str, rng: random.Random, who: tuple[str, str, str] | None = None, form: int | None = None) -> Row:
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


def form(kind: str, rows: Sequence[Row]) -> Batch:
    """The same rows as each architecture reads them: ids, keep, and labels where an answer is wanted.

    An encoder has tags at the words themselves, and masks behind the source for what is to be written.
    """
    if kind == ENCODER:
        read, wanted = [], []
        for task, source, target in rows:
            kept = KEPT[task]
            before = [IGNORE] * (len(ids(source)) if kept else 1)  # tags begin behind the task's name
            read.append(ids(source) + [MASK] * kept)
            wanted.append((before + ids(target)[: kept or None] + [IGNORE] * kept)[: len(read[-1])])
        return pad(read, 0) | {"labels": pad(wanted, IGNORE)["ids"]}
    both = pad([ids(source) for _, source, _ in rows], 0)
    both |= {"labels": pad([ids(target) for *_, target in rows], IGNORE)["ids"]}
    return both if kind == BOTH else objectives.joined(both, vocab=VOCAB)


def build(kind: str, seed: int) -> nn.Module:
    """A fresh network. A token passes two layers in each; the encoder-decoder has them once a side."""
    torch.manual_seed(seed)
    if kind == ENCODER:
        return heads.MLM(Stack(SEEN))
    return heads.LM(Stack(ONE)) if kind == DECODER else Seq2SeqLM(EncoderDecoder(TWO, start=START))


def flops(kind: str, batch: Batch) -> float:
    """Operations of a forward pass over a row, on average; padding is not counted."""
    read, said = (float(part.sum()) / len(part) for part in (batch["keep"], batch["labels"] != IGNORE))
    read, said = cast(tuple[Any, Any], (read, said))  # means, which the formula takes as well
    if kind == BOTH:
        return cost.forward_flops(SEEN, read, outputs=0) + cost.forward_flops(TWO, said, memory=read, outputs=said)
    return cost.forward_flops(SEEN if kind == ENCODER else ONE, read, outputs=said)


class Street:
    """Batch `step`: new rows of all four tasks, the same for every architecture."""

    def __init__(self, kind: str, seed: int) -> None:
        self.kind, self.seed = kind, seed

    def __getitem__(self, step: int, /) -> Batch:
        """The batch of this step."""
        rng = random.Random(100_000 * self.seed + step)
        return form(self.kind, [asked(task, rng) for task in TASKS for _ in range(ROWS)])


@cache
def steps(kind: str, decoder: int) -> int:
    """As many as take the decoder's operations."""
    mine, theirs = (mean(flops(each, Street(each, 0)[i]) for i in range(5)) for each in (kind, DECODER))
    return round(decoder * theirs / mine)


@torch.no_grad()
def answers(kind: str, model: Any, rows: Sequence[Row]) -> list[list[int]]:
    """What a network says to each row, up to the end: an encoder at all places at once, the others token by token."""
    batch = form(kind, rows)
    how: Any = {"max_new_tokens": max(len(ids(target)) for *_, target in rows), "eos": END, "pad": VOCAB.pad}
    if kind == ENCODER:
        best = model(batch["ids"], keep=batch["keep"]).argmax(-1)
        said = [row[label != IGNORE].tolist() for row, label in zip(best, batch["labels"], strict=True)]
    elif kind == DECODER:
        read, keep = generate.left_pad([ids(source) for _, source, _ in rows], 0)
        said = generate.generate(model, read, keep=keep, **how)[:, read.shape[1] :].tolist()
    else:
        said = generate.generate(model, batch["ids"], keep=batch["keep"], **how)[:, 1:].tolist()
    return [row[: [*row, END].index(END)] for row in said]


@torch.no_grad()
def surprise(kind: str, model: Any, rows: Sequence[Row]) -> float:
    """Nats a token of the targets, the mean over rows."""
    batch = form(kind, rows)
    labels, at = batch["labels"], batch["labels"] != IGNORE
    target = (shift_right(labels, START),) if kind == BOTH else ()
    logits: Tensor = model(batch["ids"], *target, keep=batch["keep"])
    nats = -logits.log_softmax(-1).gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    return float(((nats * at).sum(1) / at.sum(1)).mean())


@torch.no_grad()
def found(kind: str, model: Any, rng: random.Random, n: int) -> float:
    """Share of events whose other wording is closer than the sentence in which giver and taker are exchanged."""
    stack = model.stack.encoder if kind == BOTH else model.stack
    events = [event(rng) for _ in range(n)]
    turned = [(y, x, o) for x, y, o in events]
    vectors = []
    for some, wording in ((events, 0), (events, 2), (turned, 2)):
        batch = pad([ids(asked("who", rng, who, wording)[1]) for who in some], 0)
        vectors.append(F.normalize(heads.pool(stack(batch["ids"], keep=batch["keep"]), batch["keep"], "mean"), dim=-1))
    told, same, other = vectors
    return float(((told * same).sum(1) > (told * other).sum(1)).float().mean())


def _architecture(f: Figures) -> tuple[str, str]:
    others = (DECODER, BOTH)
    known = all((f[f"{task}/{ENCODER}"].interval or (0, 0))[0] > chance for task, chance in CHANCE.items())
    behind = [
        f"{other} on {task}"
        for task in CHANCE
        for other in others
        if clearly_above(f, f"{task}/{other}", f"{task}/{ENCODER}")
    ]
    light = {kind: f[f"cost/who/{kind}"].mean + f[f"cost/roles/{kind}"].mean for kind in KINDS}
    holds = {
        "open generation": clearly_above(f, f"then/{ENCODER}", f"then/{DECODER}")  # a surprise: less is better
        and not clearly_above(f, f"then/{DECODER}", f"then/{BOTH}"),
        "light understanding and retrieval": known and not behind and light[ENCODER] == min(light.values()),
        "many tasks at once": all(
            clearly_above(f, f"many tasks/{BOTH}", f"many tasks/{other}") for other in (ENCODER, DECODER)
        ),
    }
    told = [name for name, held in holds.items() if held]
    verdict = {len(holds): "reproduced", 0: "not at this scale"}.get(len(told), "partly")
    shares = {
        kind: [f"{task} {percent(f[f'{task}/{kind}'].mean)}" for task in (*TASKS[:3], "search")] for kind in KINDS
    }
    rows = "; ".join(f"{kind}: {', '.join(shares[kind])}, stories {f[f'then/{kind}'].mean:.2f} nats" for kind in KINDS)
    return verdict, (
        f"Of three statements {len(told)} hold ({'; '.join(told) or 'none'}). {rows} (best possible "
        f"{f['then/best possible'].mean:.2f}). Clearly ahead of the encoder: {', '.join(behind) or 'nobody'}."
    )


@experiment(
    "which-architecture",
    rule="""Three networks of one block, width and vocabulary, trained from nothing with equally many operations on
    four tasks mixed. One is clearly ahead of another if the 95% interval of the paired difference lies above zero.
    Open generation: on stories (nats a token) the decoder is clearly ahead of the encoder, and the encoder-decoder is
    not clearly ahead of the decoder. Light understanding and retrieval: on who, roles and search the encoder's 95%
    interval lies above chance (an eighth, nothing, a half), no other is clearly ahead of it, and its answers to who
    and roles together cost the fewest operations. Many tasks at once: averaged over who, roles and velin the
    encoder-decoder is clearly ahead of both others. All three: reproduced; one or two: partly; none: not at this
    scale.""",
    judge=_architecture,
    config={"layers": 2, "width": WIDTH, "rows a batch": ROWS * len(TASKS), "decoder's steps and test rows": SIZES},
)
def which_architecture(lab: Lab, seed: int) -> dict[str, float]:
    """Right answers by task, surprise by stories, search, and what training and an answer cost, of each network."""
    count, tests = SIZES[lab.plan.scale]
    values: dict[str, float] = {}
    for kind in KINDS:
        model, own = build(kind, seed), steps(kind, count)
        optimizer, schedule = optim.adamw(model, 0.03 / WIDTH**0.4), optim.stable(own, own // 12 + 1, 0.3)
        for _ in train(model, Street(kind, seed), LOSS[kind], optimizer, schedule, steps=own):
            pass
        model, rng = model.eval(), random.Random(f"test {seed}")
        values[f"steps/{kind}"] = own
        for task in TASKS:
            rows = [asked(task, rng) for _ in range(tests)]
            values[f"cost/{task}/{kind}"] = flops(kind, form(kind, rows))
            if task == "then":
                values[f"then/{kind}"] = surprise(kind, model, rows)
                continue
            said = answers(kind, model, rows)
            values[f"{task}/{kind}"] = mean(s == ids(t)[:-1] for s, (*_, t) in zip(said, rows, strict=True))
        values[f"many tasks/{kind}"] = mean(values[f"{task}/{kind}"] for task in TASKS[:3])
        values[f"search/{kind}"] = found(kind, model, rng, tests)
    rng = random.Random(f"test {seed}")
    stories = [asked("then", rng)[2] for _ in range(2000)]
    halves = torch.tensor([(1 if "home" in story else 3) / len(ids(story)) for story in stories])
    return values | {"then/best possible": float(halves.mean() * torch.tensor(2.0).log())}
