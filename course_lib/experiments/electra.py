"""The claim of lesson 14: learning from all tokens, at equal operations."""

from collections import Counter
from copy import deepcopy
from dataclasses import replace
from functools import cache, partial
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from course_lib import cost, heads, inside, losses, optim
from course_lib.claims.arms import town
from course_lib.claims.experiment import experiment
from course_lib.claims.lab import Lab, Plan
from course_lib.claims.record import Figures
from course_lib.config import StackConfig
from course_lib.corrupt import generator
from course_lib.electra import Electra
from course_lib.experiments import family
from course_lib.experiments.judging import clearly_above, gap, points
from course_lib.finetune import finetune
from course_lib.initial import mimetic
from course_lib.losses import Loss
from course_lib.models import electra
from course_lib.recipes import DocumentBatches, Recipe
from course_lib.stack import Stack
from course_lib.tokenizers import Tokenizer, train_wordpiece
from course_lib.train import train

Objective = Literal["mlm", "electra"]

COMMON, DOCUMENTS, KEPT = 500, 5000, 700  # commonest words, documents, sentences with labels
ROWS, WIDTH, LABELS = 32, 64, 60
OBJECTIVES: dict[str, tuple[Objective, Loss]] = {
    "MLM": ("mlm", losses.mlm),
    "ELECTRA": ("electra", losses.electra),
    "ELECTRA 15%": ("electra", partial(losses.electra, chosen_only=True)),
}


class Text(NamedTuple):
    """Sentences to read, and others with the relation of every word to its governor."""

    tokenizer: Tokenizer
    read: list[str]
    labelled: list[dict[str, Any]]
    relations: list[str]


@cache
def text(smoke: bool) -> Text:
    """The town's sentences of 5 to 30 words that are all among the commonest."""
    rows = inside.sentences(town(family.WORLD).documents(600 if smoke else DOCUMENTS))
    lower = [[word.lower() for word in row["tokens"]] for row in rows]
    common = {word for word, _ in Counter(word for words in lower for word in words).most_common(COMMON)}
    simple = [i for i, words in enumerate(lower) if 5 <= len(words) <= 30 and common.issuperset(words)]
    order = [simple[i] for i in torch.randperm(len(simple), generator=generator(0)).tolist()]
    kept = 60 if smoke else KEPT
    relations = sorted({relation for row in rows for relation in row["deprels"]})
    labelled = [
        {"tokens": rows[i]["tokens"], "labels": [relations.index(r) for r in rows[i]["deprels"]]} for i in order[:kept]
    ]
    texts = [" ".join(rows[i]["tokens"]) for i in order]
    return Text(train_wordpiece(texts, 4000), texts[kept:], labelled, relations)


def known(plan: Plan) -> Text:
    """The sentences of a plan's scale."""
    return text(plan.scale == "smoke")


def batches(plan: Plan, objective: Objective, seed: int) -> DocumentBatches:
    """A sentence a row; masked 80/10/10, for ELECTRA 100/0/0."""
    tokenizer, read, *_ = known(plan)
    recipe = Recipe(objective, rows=ROWS, pairs=0.0, length=64, pool=8)
    return DocumentBatches(lambda i: [read[i % len(read)]], tokenizer, recipe, seed=seed)


def body(vocab: int) -> StackConfig:
    """The discriminator."""
    config = electra.electra(vocab, width=WIDTH, layers=2, heads=4, length=64, dropout=0.0)
    return replace(config, init_std=0.8 * WIDTH**-0.5)


def fresh(plan: Plan, name: str, seed: int) -> tuple[nn.Module, Stack]:
    """A model to train, and the body in it that is kept: the same for all objectives of a seed."""
    config = body(known(plan).tokenizer.vocab.size)
    torch.manual_seed(seed)
    stack = Stack(config)
    mimetic(stack)
    if name == "MLM":
        return heads.MLM(stack), stack
    writer = heads.MLM(Stack(electra.generator(config)))
    electra.share_embedding(stack, writer.stack)
    return Electra(writer, heads.RTD(stack)), stack


def steps(plan: Plan) -> dict[str, int]:
    """What each objective gets for the operations of ELECTRA's steps, its generator's included."""
    batch = batches(plan, "electra", 0)[0]
    length, hidden = (round(batch[name].sum().item() / ROWS) for name in ("keep", "at"))
    config = body(known(plan).tokenizer.vocab.size)
    writer = electra.generator(config)
    fills = cost.forward_flops(config, length, outputs=hidden) + 2 * hidden * WIDTH**2
    writes = cost.forward_flops(writer, length, outputs=hidden) + 2 * hidden * writer.width * WIDTH
    detects = cost.forward_flops(config, length, outputs=0) + 2 * length * (WIDTH**2 + WIDTH)
    count = max(2, 4 * plan.steps // 15)
    return {"MLM": count * (writes + detects) // fills, "ELECTRA": count, "ELECTRA 15%": count}


def bodies(plan: Plan, name: str, seed: int) -> dict[str, Stack]:
    """An objective's body at half of the budget and at its end."""
    model, stack = fresh(plan, name, seed)
    (objective, loss), count = OBJECTIVES[name], steps(plan)[name]
    found, optimizer = {}, optim.adamw(model, 1e-3, betas=(0.9, 0.98))
    schedule = optim.stable(count, warmup=count // 10)
    for step in train(model, batches(plan, objective, seed), loss, optimizer, schedule, steps=count):
        if step.step == count // 2:
            found["half the budget"] = deepcopy(stack).eval()
    return found | {"full budget": stack.eval()}


def score(plan: Plan, stack: Stack, seed: int) -> float:
    """Share of the words of new sentences that get their right relation, after fine-tuning on a few."""
    tokenizer, _, labelled, relations = known(plan)
    tests = 4 * len(labelled) // 7
    mine = torch.randperm(len(labelled) - tests, generator=generator(seed, 1)).tolist()[:LABELS]
    task = {"train": [labelled[i] for i in mine], "test": labelled[-tests:]}
    options: dict[str, Any] = {"classes": relations, "metric": "accuracy", "seed": seed, "batch": 16, "lr": 3e-3}
    return finetune(stack, task, tokenizer, epochs=6, **options).score


def _efficiency(f: Figures) -> tuple[str, str]:
    others = ("MLM", "ELECTRA 15%")
    ahead = [clearly_above(f, "full budget/ELECTRA", f"full budget/{other}") for other in others]
    verdict = "reproduced" if all(ahead) else "partly" if any(ahead) else "not at this scale"
    over = [f"{points(gap(f, 'full budget/ELECTRA', f'full budget/{other}'))} over {other}" for other in others]
    return verdict, f"Words right at the full budget: ELECTRA {', '.join(over)}."


@experiment(
    "electra-efficiency",
    rule="""Three objectives, the same bodies at the start, the same sentences, equal FLOPs, the generator's included;
    then the body is fine-tuned. ELECTRA is clearly ahead of another if the 95% interval of the difference of their
    scores at the full budget, paired by seed, lies above zero. Reproduced if it is clearly ahead of MLM and of
    ELECTRA 15%, partly if of one of them, otherwise not at this scale.""",
    judge=_efficiency,
    config={
        "text": f"the town's sentences all of whose words are among the {COMMON} commonest",
        "model": f"2 layers of {WIDTH}; ELECTRA's steps are 4/15 of the plan's: the lesson's own size",
        "task": f"each word's relation to its governor, learned from {LABELS} sentences",
    },
)
def electra_efficiency(lab: Lab, seed: int) -> dict[str, float]:
    """Share of words right without pretraining, at half and at the full budget; steps that it buys."""
    values: dict[str, float] = {"no pretraining": score(lab.plan, fresh(lab.plan, "MLM", seed)[1], seed)}
    for name in OBJECTIVES:
        for when, stack in bodies(lab.plan, name, seed).items():
            values[f"{when}/{name}"] = score(lab.plan, stack, seed)
    return values | {f"steps/{name}": count for name, count in steps(lab.plan).items()}
