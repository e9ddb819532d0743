"""The claims of lesson 07: an LSTM that has read before it is taught, the labels that this saves,
another domain, and how far the weights move."""

from collections.abc import Mapping, Sequence
from functools import cache
from statistics import mean, stdev
from typing import Any, NamedTuple

import torch
from torch import nn

from classroom.town.lexicon import read_table
from course_lib import data, zoo
from course_lib.data.batches import pad
from course_lib.families.baselines import task_words, word_tokenizer
from course_lib.families.elmo import split
from course_lib.families.lstm import (
    LstmAutoencoder,
    LstmBody,
    LstmConfig,
    LstmLM,
    LstmTask,
    reconstruction,
)
from course_lib.objectives import losses
from course_lib.training.finetune import finetune, predict
from experiments.lessons import Lab, experiment, fit, given, small_models, town

STARTS = ("random", "LM", "autoencoder", "word vectors")
# what the names of their weights share
LAYERS = {"word vectors": "embed", "lower LSTM": "_l0", "upper LSTM": "_l1"}
WORDS = 60  # of a text, at most
SIZES: dict[str, dict[str, Any]] = given("transfer")["sizes"]


@cache
def reviews(domain: str, n: int, split: str, seed: int) -> list[dict[str, Any]]:
    """n labelled reviews of "food" or "film" whose opinion is meant as it is said."""
    rows = town(small_models.WORLD).task(f"sentiment-{domain}", 6 * n + 100, split, seed, gold=True)
    plain = [
        row
        for row in rows
        if set(row["gold"]["kinds"]) == {"plain"} and " than " not in row["text"]
    ]
    return [{"text": row["text"], "label": row["label"]} for row in plain[:n]]


@cache
def opinions() -> frozenset[str]:
    """The town's words of praise and blame."""
    return frozenset(
        row["word"] for row in read_table("opinions.tsv", ("word", "domain", "polarity"))
    )


def opinions_in(rows: Sequence[Mapping[str, Any]]) -> set[str]:
    """Those that stand in the rows."""
    return {word for row in rows for word in split(row["text"])} & opinions()


def moved(before: nn.Module, after: nn.Module, layers: Mapping[str, str]) -> dict[str, float]:
    """How far each layer's weights have moved, as a share of their length. layers: a layer -> what
    the names of its weights share. Rows of a table that were added on the way do not count."""
    old, new, change = before.state_dict(), after.state_dict(), {}
    for layer, part in layers.items():
        keys = [key for key in old if part in key]
        first = torch.cat([old[key].flatten() for key in keys])
        last = torch.cat([new[key][: len(old[key])].cpu().flatten() for key in keys])
        change[layer] = float((last - first).norm() / first.norm())
    return change


class Outcome(NamedTuple):
    """A classifier of food reviews: its accuracy on new reviews of each domain, and how far its
    layers have moved.
    """

    food: float
    film: float
    # the films by whether the labelled reviews hold all their words of praise and blame
    by_words: dict[str, float]
    moved: dict[str, float]


@cache
def pretrained(scale: str, seed: int, device: str) -> tuple[Any, dict[str, LstmBody]]:
    """A tokenizer of the town's reviews, and bodies that have learned to go on with them or to say
    them again.
    """
    size = SIZES[scale]
    texts = data.task("world/sentiment", n=size["texts"], seed=seed + 99)["text"]
    texts = [" ".join(split(text)[:WORDS]) for text in texts]
    tokenizer = word_tokenizer(task_words({"texts": [{"text": text} for text in texts]}))
    rows = sorted(tokenizer.ids(texts), key=len)  # of like length side by side
    batches = [pad(rows[i : i + 32], tokenizer.vocab.pad or 0) for i in range(0, len(rows), 32)]
    order = torch.randperm(len(batches), generator=torch.Generator().manual_seed(seed)).tolist()
    bodies = {}
    for name, head, loss in (
        ("LM", LstmLM, losses.clm),
        ("autoencoder", LstmAutoencoder, reconstruction),
    ):
        torch.manual_seed(seed)
        bodies[name] = LstmBody(
            LstmConfig(tokenizer.vocab.size, width=32, cells=64, layers=2, dropout=0.1)
        )
        fit(
            head(bodies[name]),
            [batches[i] for i in order],
            loss,
            size["steps"],
            1e-2,
            device=device,
        )
    torch.manual_seed(seed)
    words = LstmBody(bodies["LM"].lstm_config)
    words.embed.load_state_dict(bodies["LM"].embed.state_dict())
    # of "random" only the shape is used
    return tokenizer, bodies | {"word vectors": words, "random": bodies["LM"]}


@cache
def tuned(scale: str, seed: int, device: str, start: str, labels: int, run: int = 0) -> Outcome:
    """A classifier from one of `STARTS`; a run has labelled reviews, a first head and an order of
    its own.
    """
    size, (tokenizer, bodies) = SIZES[scale], pretrained(scale, seed, device)
    body, own = bodies[start], 10 * seed + run
    epochs = max(4 if size["updates"] > 4 else 1, round(size["updates"] * 16 / labels))
    foods, films = (reviews(domain, size["tests"], "test", seed) for domain in ("food", "film"))
    task = {"train": reviews("food", labels, "train", own), "test": foods}
    how: dict[str, Any] = {
        "pretrained": start != "random",
        "epochs": epochs,
        "lr": 1e-2,
        "seed": own,
    }
    result = finetune(
        body, task, tokenizer, classes=("bad", "good"), batch=16, device=device, **how
    )
    torch.manual_seed(own)  # as `finetune` does: the random start's first weights
    first = body if start != "random" else body.for_task("single", 2, pretrained=False).body
    assert isinstance(result.model, LstmTask)
    right = [said == row["label"] for said, row in zip(predict(result, films), films, strict=True)]
    seen, by_words = opinions_in(task["train"]), {}
    for name, kind in (("all words labelled", True), ("a word never labelled", False)):
        some = [
            hit
            for hit, row in zip(right, films, strict=True)
            if (opinions_in([row]) <= seen) is kind
        ]
        by_words[name] = mean(some) if some else 0.0
    return Outcome(result.score, mean(right), by_words, moved(first, result.model.body, LAYERS))


@experiment("pretraining-helps-lstm")
def pretraining_helps(lab: Lab, seed: int) -> dict[str, float]:
    """Mean accuracy and spread of each start."""
    size, values = SIZES[lab.plan.scale], dict[str, float]()
    for start in STARTS:
        scores = [
            tuned(lab.plan.scale, seed, lab.device, start, size["few"], run).food
            for run in range(size["runs"])
        ]
        values |= {f"accuracy/{start}": mean(scores), f"spread/{start}": stdev(scores)}
    return values


@experiment("finetuning-beats-scratch")
def finetuning_beats_scratch(lab: Lab, seed: int) -> dict[str, float]:
    """Accuracy of both starts at every number of labels."""
    where, amounts = (lab.plan.scale, seed, lab.device), SIZES[lab.plan.scale]["amounts"]
    return {f"{start}/{n}": tuned(*where, start, n).food for start in STARTS[:2] for n in amounts}


@experiment("domain-shift")
def domain_shift(lab: Lab, seed: int) -> dict[str, float]:
    """Accuracy of both starts on both domains; on films also by whether all words of praise and
    blame had labels.
    """
    labels = SIZES[lab.plan.scale]["amounts"][-1]
    out = {start: tuned(lab.plan.scale, seed, lab.device, start, labels) for start in STARTS[:2]}
    found = {
        f"{start}/{domain}": getattr(out[start], domain)
        for start in out
        for domain in ("food", "film")
    }
    return found | {
        f"{start}/film, {name}": share
        for start in out
        for name, share in out[start].by_words.items()
    }


@experiment("finetuning-stays-close")
def finetuning_stays_close(lab: Lab, seed: int) -> dict[str, float]:
    """Relative change of every layer, after fine-tuning with few labels."""
    size = SIZES[lab.plan.scale]
    found = {
        f"{s} start": tuned(lab.plan.scale, seed, lab.device, s, size["few"]).moved
        for s in ("LM", "random")
    }
    gpt, tokenizer, _ = zoo.load("gpt-mini")
    labelled, tests = (
        reviews("food", size["few"], "train", 10 * seed),
        reviews("food", size["tests"], "test", seed),
    )
    how: dict[str, Any] = {
        "epochs": 6 if size["updates"] > 4 else 1,
        "lr": 3e-3,
        "max_length": WORDS,
        "seed": seed,
    }
    how |= {"classes": ("bad", "good"), "batch": 16, "device": lab.device}
    stack: Any = finetune(
        gpt, {"train": labelled, "test": tests[:16]}, tokenizer, **how
    ).model.stack
    blocks = {f"block {i + 1}": f"blocks.{i}." for i in range(len(stack.blocks))}
    found["gpt-mini"] = moved(gpt.stack, stack, {"token vectors": "embed.tokens"} | blocks)
    return {
        f"{start}/{layer}": change
        for start, layers in found.items()
        for layer, change in layers.items()
    }
