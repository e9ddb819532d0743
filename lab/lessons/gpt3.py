"""The claims of lesson 19: sizes and compute, learning from the prompt, laws of scale, wordings."""

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from course_lib import data, zoo
from course_lib.analysis import cost
from course_lib.data import tokenizers
from course_lib.errors import CourseError
from course_lib.families.gpt import GPT3_SIZES, gpt, gpt1, gpt3
from course_lib.generation import prompting
from course_lib.model import heads, transformer
from course_lib.objectives import losses, seeded_generator
from course_lib.training import optim
from lab.lessons import (
    BILLION,
    MILLION,
    Lab,
    Made,
    experiment,
    fit,
    given,
    linear_config,
    papers,
    small_models,
    windows,
)

GIVEN = given("gpt3")
SIZES: dict[str, dict[str, int]] = GIVEN["sizes"]
WIDTHS: list[int] = GIVEN["widths"]  # of the calculators
SHAPES: list[list[int]] = GIVEN["shapes"]  # layers and width of the models of letters
LENGTH: int = GIVEN["length"]  # letters a row
LAW: dict[str, Any] = GIVEN["settings"]["power-law"]
PEOPLE: list[str] = GIVEN["people"]
THINGS: list[str] = GIVEN["things"]
WORDINGS: dict[str, str] = GIVEN["wordings"]  # how a fact is told -> what is asked for
HAD = next(iter(WORDINGS))
MARK = prompting.Template("{word}: {answer}.", words=("name", "thing"))
SHOTS, MANY = (0, 1, 4, 12), 12
PROBLEMS = torch.tensor([(a, b) for a in range(100) for b in range(a + 1)])
KNOWN = torch.arange(len(PROBLEMS)) * 7919 % 5 > 0
TAUGHT, HELD_OUT = PROBLEMS[KNOWN], PROBLEMS[~KNOWN]  # the latter stand on no page
SUM = 10  # tokens of one: two digits, sign, two digits, =, three digits, full stop
PLUS, MINUS, UNKNOWN = SIGNS = 0, 1, 2


def accuracy(
    model: nn.Module, tokenizer: tokenizers.Tokenizer, asked: Sequence[prompting.Question]
) -> float:
    """Share of the questions whose right choice is the likeliest."""
    ranks = prompting.rank(model, tokenizer, asked, batch=100)
    return sum(
        int(rank.argmax()) == question.label for rank, question in zip(ranks, asked, strict=True)
    ) / len(asked)


def pairs(rng: random.Random, asks: str) -> list[dict[str, Any]]:
    """Four people, each with a thing, as rows of a task that asks for the one or the other."""
    who, what = rng.sample(PEOPLE, 4), rng.sample(THINGS, 4)
    choices = what if asks == "what" else who
    return [{"who": who[i], "what": what[i], "choices": choices, "label": i} for i in range(4)]


def facts(
    wording: str, shots: int, n: int, seed: int, *, random_labels: bool = False
) -> list[prompting.Question]:
    """Questions about four new pairs each; `shots` sentences drawn from the pairs stand before."""
    asked, template = [], prompting.Template(wording)
    for number in range(n):
        rng = random.Random(f"{seed}/{number}")
        rows = pairs(rng, WORDINGS[wording])
        row, shown = rng.choice(rows), rng.choices(rows, k=shots)
        if random_labels:
            shown = [other | {"label": rng.randrange(4)} for other in shown]
        asked.append(template.ask(row, shown))
    return asked


def told_once(wording: str, back: int, n: int, seed: int) -> list[prompting.Question]:
    """Four facts, each told once; the one asked for stands so many sentences back."""
    towns = [pairs(random.Random(f"{seed}/{number}"), WORDINGS[wording]) for number in range(n)]
    return [prompting.Template(wording).ask(rows[-back], rows) for rows in towns]


def marked(shots: int, n: int, seed: int) -> list[prompting.Question]:
    """Words to be marked as a name or a thing, each after `shots` marked ones: GPT-NER in small."""
    asked = []
    for number in range(n):
        rng = random.Random(f"{seed}/{number}")
        pool = [(word, 0) for word in rng.sample(PEOPLE, 7)] + [
            (word, 1) for word in rng.sample(THINGS, 7)
        ]
        rows = [{"word": word, "label": label} for word, label in rng.sample(pool, shots + 1)]
        asked.append(MARK.ask(rows[-1], rows[:-1]))
    return asked


@experiment("prompting", wordings=tuple(WORDINGS), shots=MANY)
def wordings(lab: Lab, seed: int) -> dict[str, float]:
    """Accuracy on facts that only the prompt tells: by wording, by order; and of words marked by
    example.
    """
    n = SIZES[lab.plan.scale]["asked"]
    model, tokenizer, _ = zoo.load("gpt-mini")
    values = {
        f"wording/{text}": accuracy(model, tokenizer, facts(text, MANY, n, seed))
        for text in WORDINGS
    }
    other = {
        text: accuracy(model, tokenizer, facts(text, MANY, n, seed + 1000)) for text in WORDINGS
    }
    for which, choose in (("best", max), ("worst", min)):  # of other questions
        values[f"{which} wording of other questions"] = values[
            f"wording/{choose(other, key=other.__getitem__)}"
        ]
    for back in (4, 3, 2, 1):
        values[f"order/{back} back"] = accuracy(model, tokenizer, told_once(HAD, back, n, seed))
    for shots in (0, 4, MANY):
        values[f"marked/{shots} shots"] = accuracy(model, tokenizer, marked(shots, n, seed))
    return values


def digits(numbers: Tensor, count: int) -> Tensor:
    """The decimal digits on a new axis, ones first (Lee et al. 2023, Teaching Arithmetic to Small
    Transformers).
    """
    return torch.stack([numbers // 10**place % 10 for place in range(count)], -1)


def pages(
    rows: int,
    rng: torch.Generator,
    signs: Sequence[int] = SIGNS,
    problems: Tensor = TAUGHT,
    *,
    random_labels: bool = False,
) -> Tensor:
    """Pages of six sums, Int[rows 60], one sign a page. @ means plus on half of the pages, minus on
    the others.

    Tokens: digits, + - @ = and the full stop. random_labels: on a page each @ means plus or minus.
    """
    a, b = problems[torch.randint(len(problems), (rows, 6), generator=rng)].unbind(-1)
    sign = torch.tensor(signs)[torch.randint(len(signs), (rows, 1), generator=rng)].expand(rows, 6)
    hidden = torch.rand(rows, 6 if random_labels else 1, generator=rng) < 0.5
    result = torch.where((sign == MINUS) | ((sign == UNKNOWN) & hidden), a - b, a + b)
    marks = [torch.full((rows, 6, 1), mark) for mark in (13, 14)]
    parts = digits(a, 2), 10 + sign[..., None], digits(b, 2), marks[0], digits(result, 3), marks[1]
    return torch.cat(parts, -1).flatten(1)


def sums(seed: int) -> Made:
    """New pages for every step."""
    return Made(lambda step: {"ids": pages(48, seeded_generator(seed, step))})


def fresh(vocab: int, layers: int, width: int, length: int, seed: int) -> heads.LM:
    """A GPT with GPT-2's block; first weights that suit its width."""
    torch.manual_seed(seed)
    config = gpt(
        vocab, layers=layers, width=width, heads=max(1, width // 16), length=length, dropout=0.0
    )
    return heads.LM(transformer.Transformer(replace(config, init_std=0.5 * width**-0.5)))


@cache
def calculators(steps: int, seed: int, device: str) -> dict[int, heads.LM]:
    """Four sizes, two layers and 8 to 64 numbers wide, that have read the same pages."""
    models = {width: fresh(15, 2, width, 6 * SUM, seed) for width in WIDTHS}
    for width, model in models.items():
        schedule = optim.wsd(steps, max(1, steps // 12), 0.3)
        fit(
            model,
            sums(seed),
            losses.clm,
            linear_config(steps, 0.03 / width**0.4, device=device),
            schedule,
        )
    return models


@torch.no_grad()
def by_shots(
    model: nn.Module, rows: int, seed: int, signs: Sequence[int], **options: Any
) -> list[float]:
    """Accuracy of the sums after 0 to 5 examples, in one pass: each digit is the likeliest behind
    those before it.
    """
    ids = pages(rows, seeded_generator(seed, 10**7), signs, **options)
    right = model(ids)[:, :-1].argmax(-1) == ids[:, 1:]
    answers = torch.stack([right[:, place::SUM] for place in (5, 6, 7)]).all(0)  # rows 6
    return [float(share) for share in answers.float().mean(0)]


@experiment("in-context-learning")
def in_context(lab: Lab, seed: int) -> dict[str, float]:
    """The unexplained sign by size and shots; new facts by shipped size and shots; both with random
    labels.
    """
    size = SIZES[lab.plan.scale]
    values: dict[str, float] = {}
    models = calculators(size["steps"], seed, lab.device)
    rows = {
        f"width {width}": by_shots(model, size["pages"], seed, (UNKNOWN,))
        for width, model in models.items()
    }
    rows["random signs"] = by_shots(
        models[WIDTHS[-1]], size["pages"], seed, (UNKNOWN,), random_labels=True
    )
    rows["new sums"] = by_shots(
        models[WIDTHS[-1]], size["pages"], seed, (UNKNOWN,), problems=HELD_OUT
    )
    for name, shares in rows.items():
        values |= {f"{name}/{k} shots": share for k, share in enumerate(shares)}
    for name in small_models.GPTS:
        model, tokenizer, _ = zoo.load(name)
        for shots in SHOTS:
            asked = facts(HAD, shots, size["asked"], seed)
            values[f"facts/{name}/{shots} shots"] = accuracy(model, tokenizer, asked)
    asked = facts(HAD, MANY, size["asked"], seed, random_labels=True)  # of the last, the largest
    return values | {f"facts, random/{name}/{MANY} shots": accuracy(model, tokenizer, asked)}


def law(x: Sequence[float], loss: Sequence[float]) -> tuple[float, float]:
    """Exponent of the fitted power law and its largest residual; 0 and 1 where the loss does not
    fall.
    """
    try:
        found = cost.fit_power_law(x, loss)
        return found.exponent, max(map(abs, found.residuals))
    except CourseError:
        return 0.0, 1.0


@experiment("scaling-laws")
def scaling_laws(lab: Lab, seed: int) -> dict[str, float]:
    """Held-out loss of six sizes, and the exponents of the laws of size and of compute spent
    best.
    """
    size = SIZES[lab.plan.scale]
    texts = data.corpus("docs", n=size["letters"])["text"]
    codes = torch.tensor([min(ord(letter), 127) for letter in "\n".join(texts)])
    cut, updates = int(0.95 * len(codes)), size["updates"]
    batches = windows(codes[:cut], LENGTH, 16, seed, ahead=0)
    test = {"ids": codes[cut:][: len(codes[cut:]) // LENGTH * LENGTH].view(-1, LENGTH)[:128]}
    window = max(1, updates // 12)
    final, spent, reached = dict[int, float](), list[float](), list[float]()
    for layers, width in SHAPES:
        model = fresh(128, layers, width, LENGTH, seed)
        schedule = optim.wsd(updates, window)
        seen = fit(
            model,
            batches,
            losses.clm,
            linear_config(updates, 0.024 / width**0.4, device=lab.device),
            schedule,
        )
        # forward, and twice that backward
        step = 3 * 16 * cost.forward_flops(model.stack.config, LENGTH)
        ends = range(window, updates + 1, window)
        spent += [step * end for end in ends]
        reached += [sum(seen[end - window : end]) / window for end in ends]
        with torch.no_grad():
            weights = sum(p.numel() for p in model.stack.blocks.parameters())
            final[weights] = losses.clm(model, test).item()
    edge = cost.frontier(spent, reached)
    exponent, off = law(list(final), list(final.values()))
    compute, _ = law([spent[i] for i in edge], [reached[i] for i in edge])
    x, y = np.log(list(final)), np.array(list(final.values()))
    # the rival: as many parameters
    straight = abs(np.polyval(np.polyfit(x, y, 1), x) / y - 1).max()
    return {f"loss/{weights}": loss for weights, loss in final.items()} | {
        "exponent/parameters": exponent,
        "exponent/compute": compute,
        "largest residual": off,
        "largest residual/straight line": float(straight),
        "points of the frontier": len(edge),
    }


def text_of_letters(lab: Lab, split: str, count: int) -> Tensor:
    """The first `count` letters of real documents, as numbers below 128."""
    letters = ""
    for document in data.corpus(lab.public_data("english"), split=split)["text"]:
        letters += document + "\n"
        if len(letters) >= count:
            break
    return torch.tensor([min(ord(letter), 127) for letter in letters[:count]])


@torch.no_grad()
def held_out_loss(model: nn.Module, test: Tensor) -> float:
    """Mean loss of a letter, in nats, over rows of a text."""
    parts = [losses.clm(model, {"ids": rows}).item() for rows in torch.split(test, 64)]
    return sum(parts) / len(parts)


def trained_letters(
    lab: Lab, text: Tensor, shape: Sequence[int], rate: float, seed: int
) -> heads.LM:
    """A GPT of these layers and width that has read part of a text, letter by letter."""
    size = SIZES[lab.plan.scale]
    layers, width = shape
    model = fresh(128, layers, width, LAW["length"], seed)
    batches = windows(text, LAW["length"], LAW["rows"], seed, ahead=0)
    training = linear_config(size["law"], rate, precision="auto", device=lab.device)
    fit(model, batches, losses.clm, training, optim.wsd(size["law"], size["law"] // 10, 0.3))
    return model


@experiment("power-law")
def power_law(lab: Lab, seed: int) -> dict[str, float]:
    """Held-out loss of seven sizes on real text, and how far three laws, fitted to the six smaller
    ones, miss the largest.
    """
    size = SIZES[lab.plan.scale]
    text = text_of_letters(lab, "train", size["read"])
    test = text_of_letters(lab, "validation", size["held out"])
    length = LAW["length"]
    test = test[: len(test) // length * length].view(-1, length)
    loss: dict[int, float] = {}
    for shape, rate in zip(LAW["layers and width"], LAW["rates"], strict=True):
        model = trained_letters(lab, text, shape, rate, seed)
        weights = sum(p.numel() for p in model.stack.blocks.parameters())
        loss[weights] = held_out_loss(model, test)

    *smaller, largest = loss
    known = [loss[weights] for weights in smaller]
    with_floor = cost.fit_law_with_floor(smaller, known)
    line = np.polyfit(np.log(smaller), known, 1)
    predictions = {
        "with a floor": with_floor(largest),
        "without a floor": cost.fit_power_law(smaller, known)(largest),
        "straight line": float(np.polyval(line, np.log(largest))),
    }
    whole = cost.fit_law_with_floor(list(loss), list(loss.values()))
    counts = torch.bincount(text, minlength=128) + 1.0
    unigram = -(counts / counts.sum()).log()[test].mean().item()
    return (
        {f"loss/{weights}": value for weights, value in loss.items()}
        | {f"miss/{name}": abs(value - loss[largest]) for name, value in predictions.items()}
        | {"floor": whole.floor, "exponent": whole.exponent, "loss/letter frequencies": unigram}
    )


@experiment("gpt3-table")
def gpt3_table(lab: Lab, seed: int) -> dict[str, float]:
    """Parameters, operations and days of the eight rows; the widths that they print."""
    values: dict[str, float] = {}
    for size, row in GPT3_SIZES.items():
        counted = cost.parameters(gpt3(size))
        operations = cost.training_flops(counted, 300 * BILLION)
        bill = cost.bill(operations, cost.DEVICES["V100"], devices=1000, utilisation=0.3)
        values |= {
            f"printed/{size}": row.parameters,
            f"counted/{size}": counted,
            f"printed width/{size}": row.width,
            f"heads x head width/{size}": row.heads * row.head_width,
            f"operations/{size}": operations,
            f"days of 1,000 V100 at 30%/{size}": bill.days,
        }
    return values


@experiment("training-compute")
def training_compute(lab: Lab, seed: int) -> dict[str, float]:
    """6 N D of the published models, of GPT-1 and of the course's own, and hours of one A100."""
    models = {name: row[:3] for name, row in papers("19_gpt3")["training-compute"]["rows"].items()}
    mini, tokens = zoo.load("gpt-mini")[0], zoo.card("gpt-mini")["tokens"]
    models["GPT-1"] = [cost.parameters(gpt1()) / MILLION, 100, 6]
    models["gpt-mini"] = [cost.parameters(mini.stack.config) / MILLION, tokens / BILLION, 6]
    values: dict[str, float] = {}
    for name, (millions, billions, each) in models.items():
        operations = cost.training_flops(millions * MILLION, billions * BILLION, per_parameter=each)
        values |= {
            f"parameters/{name}": millions * MILLION,
            f"petaflop/s-days/{name}": cost.petaflop_days(operations),
            f"hours of one A100/{name}": cost.bill(operations, cost.DEVICES["A100"]).device_hours,
        }
    return values
