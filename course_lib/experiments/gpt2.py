"""The claims of lesson 18: what a language model can do without training, and what its hints are worth."""

import math
import random
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import torch
from torch import nn

from course_lib import data, generate, losses, metrics, optim, prompting, zoo
from course_lib.claims.experiment import experiment
from course_lib.claims.lab import Lab
from course_lib.claims.record import Figures
from course_lib.experiments import family
from course_lib.experiments.judging import clearly_above, gap, names, percent
from course_lib.inputs import SourceTarget, TaskBatches, in_order
from course_lib.models.lstm_seq2seq import LstmEncoderDecoder, LstmSeq2Seq, LstmSeq2SeqConfig
from course_lib.tokenizers import Tokenizer
from course_lib.train import train

SIZES: dict[str, dict[str, int]] = {  # labels, steps: of the LSTM that is trained to summarise
    "smoke": {"tests": 12, "texts": 6, "stories": 12, "labels": 16, "steps": 2, "places": 20},
    "cpu": {"tests": 200, "texts": 100, "stories": 120, "labels": 2000, "steps": 200, "places": 400},
    "gpu": {"tests": 3000, "texts": 1000, "stories": 2000, "labels": 40_000, "steps": 6000, "places": 6000},
}
PROMPTED = {"cloze": "choice", "pronouns": "pronoun"}
SHARES = ("last word", "choice", "pronoun")
NEW = 24  # tokens that a summary is written with
HINTS = {"In short,": " In short,", "no hint": "", "TL;DR:": " TL;DR:"}
ROUGES = {"R-1": "rouge1", "R-2": "rouge2", "R-L": "rougeL"}
CONTEXTS = (1, 2, 4, 8, 16, 32, 64)


@torch.no_grad()
def word_perplexity(model: nn.Module, tokenizer: Tokenizer, texts: Sequence[str], length: int = 128) -> float:
    """Of the beginnings of texts, per word, so that models with other tokenizers can be compared."""
    total, words = 0.0, 0
    for text in texts:
        ids = tokenizer.encode(text, special=False).ids[:length]
        row = torch.tensor([[cast(int, tokenizer.vocab.bos), *ids]])
        total += losses.clm(model, {"ids": row}).item() * len(ids)
        words += len(tokenizer.decode(ids).split())
    return math.exp(total / words)


def _zero_shot(f: Figures) -> tuple[str, str]:
    models = names(f, "perplexity")
    small, large = models[0], models[-1]
    better = [measure for measure in SHARES if clearly_above(f, f"{measure}/{large}", f"{measure}/{small}")]
    better += ["perplexity"] if f[f"perplexity/{large}"].mean < f[f"perplexity/{small}"].mean else []
    whole = len(better) == len(SHARES) + 1 and len(models) >= 4
    verdict = "reproduced" if whole else "partly" if len(better) >= 2 else "not at this scale"
    said = ", ".join(
        f"{measure} {percent(f[f'{measure}/{small}'].mean)} to {percent(f[f'{measure}/{large}'].mean)}"
        for measure in SHARES
    )
    return verdict, (
        f"From {small} to {large}: {said}, perplexity a word {f[f'perplexity/{small}'].mean:.1f} to "
        f"{f[f'perplexity/{large}'].mean:.1f}. Clearly better in {', '.join(better) or 'none'}; sizes measured: "
        f"{len(models)}{'' if len(models) >= 4 else ', where the claim asks for four'}."
    )


@experiment(
    "gpt2-zero-shot",
    rule="""Last word said freely, the same among three choices, pronoun, perplexity a word, without training, over the
    shipped GPTs of one recipe. With at least four sizes, reproduced if the largest is clearly better than the smallest
    in all four (shares: the 95% interval of the paired difference lies above zero; the perplexity: lower in the mean);
    partly if in at least two, with any number of sizes; otherwise not at this scale.""",
    judge=_zero_shot,
    config={
        "sizes": family.only(SIZES, "tests", "texts"),
        "seeds": "of the test rows",
        "checkpoints": family.shipped(*family.GPTS),
    },
)
def zero_shot(lab: Lab, seed: int) -> dict[str, float]:
    """The four measures of every shipped size."""
    size = SIZES[lab.plan.scale]
    tasks = {name: data.task(f"world/{name}", split="test", n=size["tests"], seed=seed) for name in PROMPTED}
    texts = data.corpus("world", split="validation", n=size["texts"], seed=seed)["text"]
    values: dict[str, float] = {}
    for name in family.shipped(*family.GPTS):
        model, tokenizer, _ = zoo.load(name)
        said = prompting.complete(model, tokenizer, tasks["cloze"]["text"], stop=["."], max_new_tokens=8)
        values[f"last word/{name}"] = metrics.exact_match(said, tasks["cloze"]["answer"])
        for task, measure in PROMPTED.items():
            found = prompting.evaluate(model, tokenizer, tasks[task], prompting.world_template(task))
            values[f"{measure}/{name}"] = found.score
        values[f"perplexity/{name}"] = word_perplexity(model, tokenizer, list(texts))
    return values


def continued(model: nn.Module, tokenizer: Tokenizer, prompts: Sequence[str]) -> list[str]:
    """The first sentence that a language model writes behind each prompt, greedily."""
    said: list[str] = []
    for start in range(0, len(prompts), 100):
        rows = tokenizer.ids(list(prompts[start : start + 100]), special=False)
        first = cast(int, tokenizer.vocab.bos)
        ids, keep = generate.left_pad([[first, *row] for row in rows], tokenizer.vocab.pad or 0)
        length: dict[str, Any] = {"max_new_tokens": NEW, "min_new_tokens": NEW, "eos": tokenizer.vocab.eos}
        out = generate.generate(model, ids, keep=keep, **length)[:, ids.shape[1] :]
        said += [tokenizer.decode(row).split(".")[0].strip() + "." for row in out.tolist()]
    return said


def lstm_summaries(stories: Sequence[str], size: dict[str, int], seed: int, device: str) -> list[str]:
    """What an attentional LSTM writes to the stories once it has been trained on others and their summaries."""
    _, tokenizer, _ = zoo.load("t5-mini")  # its tokenizer marks a text's beginning and end
    start, end = cast(int, tokenizer.vocab.cls), cast(int, tokenizer.vocab.sep)
    torch.manual_seed(seed)
    options: dict[str, Any] = {"width": 64, "cells": 128, "dropout": 0.0, "start": start}
    model = LstmSeq2Seq(LstmEncoderDecoder(LstmSeq2SeqConfig(tokenizer.vocab.size, **options)))
    nn.init.normal_(model.stack.embed.weight)  # the start that lesson 02's comparison found it needs
    frame = SourceTarget(tokenizer, zoo.load("gpt-mini").model.stack.config)
    items = data.task("world/summaries", n=size["labels"], seed=seed)
    rows = frame.rows({"text": item["text"], "target": item["target"].removeprefix("In short, ")} for item in items)
    steps = size["steps"]
    schedule = optim.stable(steps, warmup=max(1, steps // 10), decay=0.5)
    optimizer = optim.adamw(model, 6e-3, betas=(0.9, 0.98), weight_decay=0.0)
    batches = TaskBatches(frame, rows, 16, seed)
    list(train(model, batches, losses.seq2seq, optimizer, schedule, steps=steps, device=device))
    model.cpu().eval()
    said = [""] * len(stories)
    for numbers, batch in in_order(frame, frame.rows({"text": story, "target": ""} for story in stories), 100):
        out, _ = model.greedy(batch["ids"], keep=batch["keep"], max_new_tokens=2 * NEW, eos=end)
        for i, ids in zip(numbers, out.tolist(), strict=True):
            said[i] = tokenizer.decode(ids)
    return said


def _tldr(f: Figures) -> tuple[str, str]:
    hint, none, lead = ("mean/In short,", "mean/no hint", "mean/Lead-3")
    helps = gap(f, hint, none).mean >= 5 and clearly_above(f, hint, none)
    below = clearly_above(f, lead, hint)
    verdict = "reproduced" if helps and below else "partly" if helps or below else "not at this scale"
    said = ", ".join(f"{name} {f[f'mean/{name}'].mean:.1f}" for name in names(f, "mean"))
    return verdict, (
        f"Mean of R-1, R-2, R-L: {said}. The hint brings {gap(f, hint, none).mean:+.1f} points; against Lead-3 "
        f"{gap(f, hint, lead).mean:+.1f}."
    )


@experiment(
    "gpt2-tldr",
    rule="""Reproduced if the hint lifts the mean of the three ROUGEs by 5 points or more and stays below Lead-3, means
    over seeds, with the 95% intervals of both differences on their side of zero; partly if one of the two; otherwise
    not at this scale.""",
    judge=_tldr,
    config={
        "sizes": family.only(SIZES, "stories", "labels", "steps"),
        "seeds": "of the stories, and of the LSTM's training",
        "checkpoints": family.shipped("gpt-mini"),
        "departures": "greedy, 24 tokens, the first sentence counts; In short, is the town's TL;DR:; the trained "
        "sequence-to-sequence model is an LSTM with attention (64 wide, 128 cells) on other stories",
    },
    tried=(
        "The same with TL;DR:, which the town has never written: far below no hint at all. What helps is not that "
        "there is a hint, but that such texts stood in what was read.",
    ),
)
def tldr(lab: Lab, seed: int) -> dict[str, float]:
    """ROUGE with each hint, of sentences taken from the story, and of an LSTM trained to summarise."""
    size = SIZES[lab.plan.scale]
    model, tokenizer, _ = zoo.load("gpt-mini")
    room = model.stack.config.position.length - NEW - 8  # what the positions leave for the story
    rows = data.task("world/summaries", split="test", n=size["stories"], seed=seed)
    rows = [row for row in rows if len(tokenizer.encode(row["text"]).ids) <= room]
    stories = [row["text"] for row in rows]
    wanted = [row["target"].removeprefix("In short, ") for row in rows]
    sentences, rng = [re.split(r"(?<=[.?!]) ", story) for story in stories], random.Random(seed)
    written = {name: continued(model, tokenizer, [story + hint for story in stories]) for name, hint in HINTS.items()}
    written["Lead-3"] = [" ".join(some[:3]) for some in sentences]
    written["Random-3"] = [" ".join(rng.sample(some, min(3, len(some)))) for some in sentences]
    written["Seq2Seq+Attn"] = lstm_summaries(stories, size, seed, lab.device)
    values: dict[str, float] = {}
    for name, said in written.items():
        found = {short: 100 * metrics.rouge(said, wanted, kind=kind) for short, kind in ROUGES.items()}
        values |= {f"{short}/{name}": score for short, score in found.items()}
        values[f"mean/{name}"] = sum(found.values()) / len(found)
    return values


def _sharpens(f: Figures) -> tuple[str, str]:
    surprise, entropy = ([f[f"{what}/{n}"].mean for n in CONTEXTS] for what in ("surprise", "entropy"))
    falls = all(b < a for a, b in pairwise(surprise))
    ends = [clearly_above(f, f"{what}/{CONTEXTS[0]}", f"{what}/{CONTEXTS[-1]}") for what in ("surprise", "entropy")]
    verdict = "reproduced" if falls and all(ends) else "partly" if all(ends) else "not at this scale"
    return verdict, (
        f"From {CONTEXTS[0]} to {CONTEXTS[-1]} tokens of context the mean surprise goes from {surprise[0]:.1f} to "
        f"{surprise[-1]:.1f} bits, {'lower' if falls else 'not lower'} with every doubling, and the entropy from "
        f"{entropy[0]:.1f} to {entropy[-1]:.1f}."
    )


@experiment(
    "lm-sharpens",
    rule="""Places of held-out documents, each predicted from the last 1, 2, 4, ... 64 tokens only. Reproduced if with
    every doubling of the context the mean surprise of the token that really comes falls (means over seeds), and
    surprise and entropy are lower with the longest context than with the shortest (95% intervals of the differences
    above zero); partly if only the latter; otherwise not at this scale.""",
    judge=_sharpens,
    config={
        "sizes": family.only(SIZES, "texts", "places"),
        "seeds": "of the documents",
        "checkpoints": family.shipped("gpt-mini"),
    },
)
def sharpens(lab: Lab, seed: int) -> dict[str, float]:
    """Mean surprise and entropy in bits, for each length of the context."""
    size = SIZES[lab.plan.scale]
    model, tokenizer, _ = zoo.load("gpt-mini")
    texts = data.corpus("world", split="validation", n=size["texts"], seed=seed)["text"]
    longest = CONTEXTS[-1]
    streams = [ids for ids in tokenizer.ids(list(texts), special=False) if len(ids) > longest + 1]
    places = [(ids, t) for ids in streams for t in range(longest, len(ids), 5)][: size["places"]]
    targets = torch.tensor([ids[t] for ids, t in places])
    values: dict[str, float] = {"places": len(places)}
    for length in CONTEXTS:
        rows = torch.tensor([[cast(int, tokenizer.vocab.bos), *ids[t - length : t]] for ids, t in places])
        with torch.no_grad():
            logits = torch.cat([model(rows[i : i + 100])[:, -1] for i in range(0, len(rows), 100)])
        log_p = logits.log_softmax(-1) / math.log(2)  # N V, in bits
        values[f"surprise/{length}"] = -log_p.gather(-1, targets[:, None]).mean().item()
        values[f"entropy/{length}"] = -(log_p.exp2() * log_p).sum(-1).mean().item()
    return values
