"""The claims of lesson 18: sizes, what a language model can do without training, and what its hints
are worth.
"""

import math
import random
import re
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import nn

from classroom.town.templates import world_template
from course_lib import data, generation, zoo
from course_lib.analysis import cost, metrics
from course_lib.data import tokenizers
from course_lib.data.inputs import SourceTarget, TaskBatches
from course_lib.families.gpt import GPT2_SIZES, gpt, gpt2
from course_lib.generation import prompting
from course_lib.objectives import losses
from course_lib.training import optim
from experiments.lessons import (
    MILLION,
    Lab,
    experiment,
    fit,
    given,
    probes,
    published,
    small_models,
)

SIZES: dict[str, dict[str, int]] = given("gpt2")["sizes"]
PROMPTED = {"cloze": "choice", "pronouns": "pronoun"}
NEW = 24  # tokens that a summary is written with
HINTS = {"In short,": " In short,", "no hint": "", "TL;DR:": " TL;DR:"}
ROUGES = ("rouge1", "rouge2", "rougeL")
CONTEXTS = (1, 2, 4, 8, 16, 32, 64)


@torch.no_grad()
def word_perplexity(
    model: nn.Module, tokenizer: tokenizers.Tokenizer, texts: Sequence[str]
) -> float:
    """Of the beginnings of texts, per word, so that models with other tokenizers can be
    compared.
    """
    total, words = 0.0, 0
    for text in texts:
        ids = tokenizer.encode(text, special=False).ids[:128]
        row = torch.tensor([[cast(int, tokenizer.vocab.bos), *ids]])
        total += losses.clm(model, {"ids": row}).item() * len(ids)
        words += len(tokenizer.decode(ids).split())
    return math.exp(total / words)


@experiment("gpt2-zero-shot")
def zero_shot(lab: Lab, seed: int) -> dict[str, float]:
    """The four measures of every shipped size."""
    size = SIZES[lab.plan.scale]
    tasks = {
        name: data.task(f"world/{name}", split="test", n=size["tests"], seed=seed)
        for name in PROMPTED
    }
    texts = data.corpus("world", split="validation", n=size["texts"], seed=seed)["text"]
    values: dict[str, float] = {}
    for name in small_models.GPTS:
        model, tokenizer, _ = zoo.load(name)
        said = prompting.complete(
            model, tokenizer, tasks["cloze"]["text"], stop=["."], max_new_tokens=8
        )
        values[f"last word/{name}"] = metrics.exact_match(said, tasks["cloze"]["answer"])
        for task, measure in PROMPTED.items():
            answers = prompting.answer(model, tokenizer, tasks[task], world_template(task))
            values[f"{measure}/{name}"] = metrics.accuracy(answers.predictions, answers.truth)
        values[f"perplexity/{name}"] = word_perplexity(model, tokenizer, list(texts))
    return values


def continued(
    model: nn.Module, tokenizer: tokenizers.Tokenizer, prompts: Sequence[str]
) -> list[str]:
    """The first sentence that a language model writes behind each prompt, greedily."""
    said: list[str] = []
    for start in range(0, len(prompts), 100):
        rows = tokenizer.ids(list(prompts[start : start + 100]), special=False)
        first = cast(int, tokenizer.vocab.bos)
        ids, attention_mask = generation.left_pad(
            [[first, *row] for row in rows], tokenizer.vocab.pad or 0
        )
        length: dict[str, Any] = {
            "max_new_tokens": NEW,
            "min_new_tokens": NEW,
            "eos": tokenizer.vocab.eos,
        }
        out = generation.generate(model, ids, attention_mask=attention_mask, **length)[
            :, ids.shape[1] :
        ]
        said += [tokenizer.decode(row).split(".")[0].strip() + "." for row in out.tolist()]
    return said


def lstm_summaries(
    stories: Sequence[str], size: dict[str, int], seed: int, device: str
) -> list[str]:
    """What an attentional LSTM writes to the stories once it has been trained on others and their
    summaries.
    """
    _, tokenizer, _ = zoo.load("t5-mini")  # its tokenizer marks a text's beginning and end
    torch.manual_seed(seed)
    start = cast(int, tokenizer.vocab.cls)
    model = small_models.attentional_lstm(tokenizer.vocab.size, width=64, cells=128, start=start)
    frame = SourceTarget(tokenizer, zoo.load("gpt-mini").model.stack.config)
    items = data.task("world/summaries", n=size["labels"], seed=seed)
    rows = frame.rows(
        {"text": item["text"], "target": item["target"].removeprefix("In short, ")}
        for item in items
    )
    steps = size["steps"]
    schedule = optim.wsd(steps, warmup=max(1, steps // 10), decay=0.5)
    batches = TaskBatches(frame, rows, 16, seed)
    fit(
        model,
        batches,
        losses.seq2seq,
        steps,
        6e-3,
        schedule,
        betas=(0.9, 0.98),
        weight_decay=0.0,
        device=device,
    )
    sources = frame.rows({"text": story, "target": ""} for story in stories)
    return probes.answers(model, frame, sources, most=2 * NEW)


@experiment("gpt2-tldr")
def tldr(lab: Lab, seed: int) -> dict[str, float]:
    """Mean of three ROUGEs: with each hint, of sentences taken from the story, of an LSTM trained
    to summarise.
    """
    size = SIZES[lab.plan.scale]
    model, tokenizer, _ = zoo.load("gpt-mini")
    room = model.stack.config.position.length - NEW - 8  # what the positions leave for the story
    rows = data.task("world/summaries", split="test", n=size["stories"], seed=seed)
    rows = [row for row in rows if len(tokenizer.encode(row["text"]).ids) <= room]
    stories = [row["text"] for row in rows]
    wanted = [row["target"].removeprefix("In short, ") for row in rows]
    sentences, rng = [re.split(r"(?<=[.?!]) ", story) for story in stories], random.Random(seed)
    written = {
        name: continued(model, tokenizer, [story + hint for story in stories])
        for name, hint in HINTS.items()
    }
    written["Lead-3"] = [" ".join(some[:3]) for some in sentences]
    written["Random-3"] = [" ".join(rng.sample(some, min(3, len(some)))) for some in sentences]
    written["Seq2Seq+Attn"] = lstm_summaries(stories, size, seed, lab.device)
    scores = {
        name: [100 * metrics.rouge(said, wanted, kind=kind) for kind in ROUGES]
        for name, said in written.items()
    }
    return {f"mean/{name}": sum(three) / len(three) for name, three in scores.items()}


@experiment("lm-sharpens")
def sharpens(lab: Lab, seed: int) -> dict[str, float]:
    """Mean surprise and entropy in bits, for each length of the context."""
    size = SIZES[lab.plan.scale]
    model, tokenizer, _ = zoo.load("gpt-mini")
    texts = data.corpus("world", split="validation", n=size["texts"], seed=seed)["text"]
    streams = [
        ids for ids in tokenizer.ids(list(texts), special=False) if len(ids) > CONTEXTS[-1] + 1
    ]
    places = [(ids, t) for ids in streams for t in range(CONTEXTS[-1], len(ids), 5)][
        : size["places"]
    ]
    targets = torch.tensor([ids[t] for ids, t in places])
    values: dict[str, float] = {"places": len(places)}
    for length in CONTEXTS:
        rows = torch.tensor(
            [[cast(int, tokenizer.vocab.bos), *ids[t - length : t]] for ids, t in places]
        )
        with torch.no_grad():
            logits = torch.cat([model(rows[i : i + 100])[:, -1] for i in range(0, len(rows), 100)])
        log_p = logits.log_softmax(-1) / math.log(2)  # N V, in bits
        values[f"surprise/{length}"] = -log_p.gather(-1, targets[:, None]).mean().item()
        values[f"entropy/{length}"] = -(log_p.exp2() * log_p).sum(-1).mean().item()
    return values


@experiment("gpt2-sizes")
def gpt2_sizes(lab: Lab, seed: int) -> dict[str, float]:
    """Counted on the meta device: ours, transformers', and with 40,478 tokens and a context of
    512.
    """
    from transformers import GPT2Config, GPT2LMHeadModel

    values: dict[str, float] = {}
    labels = {
        row["layers"]: row["millions"] * MILLION
        for row in published("18_gpt2")["gpt2-sizes"]["rows"]
    }
    for size, (layers, width, heads) in GPT2_SIZES.items():
        theirs = partial(GPT2LMHeadModel, GPT2Config(n_layer=layers, n_embd=width, n_head=heads))
        old = gpt(40_478, width=width, layers=layers, heads=heads, length=512)
        values |= {
            f"label/{size}": labels[layers],
            f"counted/{size}": cost.parameters(gpt2(size)),
            f"transformers/{size}": cost.parameters(theirs),
            f"with GPT-1's tables/{size}": cost.parameters(old),
        }
    return values
