"""The claims of lesson 10: systems on the suite, continuations, answer spans, frozen against tuned,
the recipe.
"""

from collections.abc import Iterable
from dataclasses import replace
from itertools import product

import torch
from torch import Tensor

from course_lib import zoo
from course_lib.analysis import probing
from course_lib.families.elmo import split
from experiments.lessons import (
    Arm,
    Lab,
    Plan,
    Tuning,
    averaged,
    experiment,
    given,
    small_models,
    suite,
)
from experiments.town import views

SYSTEMS = ("BiLSTM+ELMo+Attn", "GPT", "BERT", "bert-mini")
SCRATCH = {"BERT": "from scratch", "bert-mini": "bert-mini's shape, from scratch"}
TASKS, WAYS, FROZEN = (
    given("settings")["frozen-or-tuned"][name] for name in ("labels", "trained", "L-BFGS steps")
)
SWEEP_TASK, RATES, EPOCHS, *_ = given("settings")["finetuning-recipe"].values()


def _systems(plan: Plan, seed: int) -> dict[str, Tuning]:
    """How each system is tuned; the last is a shipped checkpoint."""
    makers = (small_models.elmo_arm, small_models.causal_arm, small_models.bert_arm)
    sources: list[Arm | str] = [*(make(plan, seed) for make in makers), "bert-mini"]
    tuned = {name: Tuning(source, "", seed) for name, source in zip(SYSTEMS, sources, strict=True)}
    # its BiLSTM starts from nothing
    return tuned | {SYSTEMS[0]: replace(tuned[SYSTEMS[0]], frozen=True, lr=2e-3)}


def _counted(lab: Lab, task: str, seed: int) -> float:
    """A linear model of counted words and pairs of neighbours."""
    what, size = views.view(task), given("suite")["sizes"][lab.plan.scale]
    train, test = what.rows(size["labels"], "train", seed), what.rows(size["tests"], "test", seed)
    return views.bag_of_words(what, train, test)


suite(
    "bert-glue",
    lambda plan, seed: (
        _systems(plan, seed)
        | {SCRATCH["bert-mini"]: Tuning("bert-mini", "", seed, pretrained=False)}
    ),
    also={"counted words": _counted},
)


@experiment("bert-swag")
def bert_swag(lab: Lab, seed: int) -> dict[str, float]:
    """Accuracy of each system at choosing the continuation."""
    systems = _systems(lab.plan, seed) | {"gpt-mini": Tuning("gpt-mini", "", seed)}
    return {
        name: lab.score(replace(system, task="continuation")) for name, system in systems.items()
    }


@experiment("bert-squad")
def bert_squad(lab: Lab, seed: int) -> dict[str, float]:
    """Exact match and F1, pretrained and from scratch."""
    values: dict[str, float] = {}
    for name, scratch in SCRATCH.items():
        source = small_models.bert_arm(lab.plan, seed) if name == "BERT" else name
        for start, pretrained in ((scratch, False), (name, True)):
            tuning = Tuning(source, "questions", seed, pretrained=pretrained)
            values |= {
                f"exact match/{start}": lab.score(tuning),
                f"F1/{start}": lab.score(tuning, "token_f1"),
            }
    return values


def _read_off(plan: Plan, task: str, seed: int, labels: int, steps: int) -> float:
    """A linear model's score on bert-mini as it is: on the vectors of all layers, side by side, of
    each word; of two texts, on distance and product of their mean vectors."""
    encoder, tokenizer, _ = zoo.load("bert-mini")

    def vectors(texts: Iterable[list[str]]) -> list[Tensor]:
        return [
            layers.transpose(0, 1).flatten(1)
            for layers in probing.word_layers(encoder, tokenizer, [*texts])
        ]

    def read(rows: views.Rows) -> Tensor:
        if what.kind == "tagging":
            return torch.cat(vectors(row["tokens"] for row in rows))
        a, b = (
            torch.stack([w.mean(0) for w in vectors(split(row[x]) for row in rows)])
            for x in ("text", "pair")
        )
        return torch.cat([(a - b).abs(), a * b], dim=1)

    what = views.view(task)
    train, test = what.rows(labels, "train", seed), what.rows(2 * plan.tests, "test", seed)
    return views.probed(what, read(train), read(test), train, test, steps)


@experiment("frozen-or-tuned")
def frozen_or_tuned(lab: Lab, seed: int) -> dict[str, float]:
    """ELMo and BERT, frozen and tuned, by task and on average; frozen BERT's linear model half as
    long, too.
    """
    values: dict[str, float] = {}
    for task, labels in TASKS.items():
        labels = lab.plan.labels if lab.plan.scale == "smoke" else labels
        for way, rates in WAYS.items():
            source, frozen = f"{way.split()[0].lower()}-mini", "frozen" in way
            tuning = Tuning(
                source, task, seed, frozen=frozen, labels=labels, tests=2 * lab.plan.tests
            )
            values[f"{way}/{task}"] = lab.score(
                replace(tuning, lr=rates[task][0], epochs=rates[task][1])
            )
        for way, steps in FROZEN.items():
            values[f"{way}/{task}"] = _read_off(lab.plan, task, seed, labels, steps)
    return averaged(values, TASKS)


@experiment("finetuning-recipe")
def finetuning_recipe(lab: Lab, seed: int) -> dict[str, float]:
    """Score at every learning rate and number of epochs."""
    tuning = Tuning("bert-mini", SWEEP_TASK, seed, tests=2 * lab.plan.tests)
    grid = product(EPOCHS, RATES)
    return {
        f"{lr:g}/{epochs} epochs": lab.score(replace(tuning, lr=lr, epochs=epochs))
        for epochs, lr in grid
    }
