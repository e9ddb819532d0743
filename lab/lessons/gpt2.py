"""The claims of lesson 18: sizes, what a language model does without training, what it expects."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import nn

from classroom.town.templates import world_template
from course_lib import data, zoo
from course_lib.analysis import cost, metrics
from course_lib.data import tokenizers
from course_lib.families.gpt import GPT2_SIZES, gpt, gpt2
from course_lib.generation import prompting
from course_lib.objectives import losses
from lab.lessons import (
    MILLION,
    Lab,
    experiment,
    given,
    papers,
    small_models,
)
from lab.real import ngrams, zero_shot
from lab.real.parts import part

SIZES: dict[str, dict[str, int]] = given("gpt2")["sizes"]
ZERO_SHOT: dict[str, Any] = given("gpt2")["zero shot"]
PROMPTED = {"cloze": "choice", "pronouns": "pronoun"}
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
def gpt2_zero_shot(lab: Lab, seed: int) -> dict[str, float]:
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
        row["layers"]: row["millions"] * MILLION for row in papers("18_gpt2")["gpt2-sizes"]["rows"]
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


@experiment("zero-shot")
def without_training(lab: Lab, seed: int) -> dict[str, float]:
    """Accuracy of gpt-english on three tasks with two choices, and of counts of words.

    A seed is a part of the rows. That of a pilot, 100 and above, is of other rows.
    """
    size = ZERO_SHOT["sizes"][lab.plan.scale]
    parts = size["parts"]
    is_pilot = seed >= 100
    model, tokenizer, _ = zoo.load("gpt-english")
    counts = ngrams.english(lab.public_data("english"))

    archive = lab.public_data("blimp") / "BLiMP.zip"
    files = ZERO_SHOT["schemas"]["pilot" if is_pilot else "test"]
    schemas = [
        choice
        for file in files
        for choice in zero_shot.schemas(lab.public_data("winograd_family") / file)
    ]
    choices = {
        "grammar": zero_shot.minimal_pairs(archive, seed, parts, size["pairs"]),
        "pronouns": part(schemas, seed, parts),
    }
    values: dict[str, float] = {}
    for task, some in choices.items():
        answers = zero_shot.counted(counts, some)
        answers["gpt-english"] = zero_shot.likelihoods(model, tokenizer, some)
        labels = [choice.label for choice in some]
        values[f"{task}/rows"] = len(some)
        for name, rows in answers.items():
            values[f"{task}/{name}"] = zero_shot.accuracy(rows, labels)

    reviews = zero_shot.reviews(lab.public_data("sst2"), "validation" if is_pilot else "test")
    some_reviews = part(reviews, seed, parts)
    texts = [text for text, _ in some_reviews]
    labels = [label for _, label in some_reviews]
    asked = zero_shot.Sentiment(ZERO_SHOT["prompt"], tuple(ZERO_SHOT["answers"]))
    values["sentiment/rows"] = len(texts)
    values["sentiment/most frequent label"] = max(labels.count(0), labels.count(1)) / len(labels)
    near = zero_shot.associations(counts, asked.answers, texts)
    values["sentiment/neighbours"] = zero_shot.accuracy(near, labels)
    rows = zero_shot.sentiments(model, tokenizer, asked, texts)
    return values | {"sentiment/gpt-english": zero_shot.accuracy(rows, labels)}
