"""The claim of lesson 14: learning from all tokens, at equal operations."""

from collections import Counter
from dataclasses import replace
from functools import cache, partial
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from course_lib.analysis import cost, probing
from course_lib.data.tokenizers import Tokenizer, train_wordpiece
from course_lib.families import electra
from course_lib.model import heads, initialization, transformer
from course_lib.model.config import StackConfig
from course_lib.objectives import losses, seeded_generator
from course_lib.training import optim
from course_lib.training.finetune import finetune
from experiments.lessons import Lab, Plan, experiment, fit, given, small_models, town
from experiments.recipes.documents import Recipe, RecipeBatches

# commonest words; rows a batch; width; sentences that are learned from
COMMON, ROWS, WIDTH, LABELS = 500, 32, 64, 60
# of pretraining and of fine-tuning
RATES = given("settings")["electra-efficiency"]["learning rates"]
OBJECTIVES: dict[str, tuple[Literal["mlm", "electra"], losses.Loss]] = {
    "MLM": ("mlm", losses.mlm),
    "ELECTRA": ("electra", losses.electra),
    "ELECTRA 15%": ("electra", partial(losses.electra, chosen_only=True)),
}


class LabelledCorpus(NamedTuple):
    """Sentences to read, and others with the relation of every word to its governor."""

    tokenizer: Tokenizer
    read: list[str]
    labelled: list[dict[str, Any]]
    relations: list[str]


@cache
def known(plan: Plan) -> LabelledCorpus:
    """The town's sentences of 5 to 30 words that are all among the commonest."""
    documents, kept = given("electra")["sizes"][plan.scale]
    rows = probing.sentences(town(small_models.WORLD).documents(documents))
    lower = [[word.lower() for word in row["tokens"]] for row in rows]
    common = {
        word for word, _ in Counter(word for words in lower for word in words).most_common(COMMON)
    }
    simple = [
        i for i, words in enumerate(lower) if 5 <= len(words) <= 30 and common.issuperset(words)
    ]
    order = [simple[i] for i in torch.randperm(len(simple), generator=seeded_generator(0)).tolist()]
    relations = sorted({relation for row in rows for relation in row["deprels"]})
    parsed = [(rows[i]["tokens"], rows[i]["deprels"]) for i in order[:kept]]
    labelled = [
        {"tokens": words, "labels": [*map(relations.index, found)]} for words, found in parsed
    ]
    texts = [" ".join(rows[i]["tokens"]) for i in order]
    return LabelledCorpus(train_wordpiece(texts, 4000), texts[kept:], labelled, relations)


def batches(plan: Plan, objective: Literal["mlm", "electra"], seed: int) -> RecipeBatches:
    """A sentence a row; masked 80/10/10, for ELECTRA 100/0/0."""
    tokenizer, read, *_ = known(plan)
    recipe = Recipe(objective, rows=ROWS, pairs=0.0, length=64, pool=8)
    return RecipeBatches(lambda i: [read[i % len(read)]], tokenizer, recipe, seed=seed)


def body(vocab: int) -> StackConfig:
    """The discriminator."""
    config = electra.electra(vocab, width=WIDTH, layers=2, heads=4, length=64, dropout=0.0)
    return replace(config, init_std=0.8 * WIDTH**-0.5)


def fresh(plan: Plan, name: str, seed: int) -> tuple[nn.Module, transformer.Transformer]:
    """A model to train, and the body in it that is kept: the same for all objectives of a seed."""
    config = body(known(plan).tokenizer.vocab.size)
    torch.manual_seed(seed)
    stack = transformer.Transformer(config)
    initialization.mimetic(stack)
    if name == "MLM":
        return heads.MLM(stack), stack
    writer = heads.MLM(transformer.Transformer(electra.generator(config)))
    electra.share_embedding(stack, writer.stack)
    return electra.Electra(writer, heads.RTD(stack)), stack


def steps(plan: Plan) -> dict[str, int]:
    """What each objective gets for the operations of ELECTRA's steps, its generator's included."""
    batch = batches(plan, "electra", 0)[0]
    length, hidden = (
        round(batch[name].sum().item() / ROWS) for name in ("attention_mask", "loss_mask")
    )
    config = body(known(plan).tokenizer.vocab.size)
    writer = electra.generator(config)
    fills = cost.forward_flops(config, length, outputs=hidden) + 2 * hidden * WIDTH**2
    writes = cost.forward_flops(writer, length, outputs=hidden) + 2 * hidden * writer.width * WIDTH
    detects = cost.forward_flops(config, length, outputs=0) + 2 * length * (WIDTH**2 + WIDTH)
    count = max(2, 4 * plan.steps // 15)
    return {"MLM": count * (writes + detects) // fills, "ELECTRA": count, "ELECTRA 15%": count}


def score(plan: Plan, stack: transformer.Transformer, seed: int, lr: float) -> float:
    """Share of the words of new sentences that get their right relation, after fine-tuning on a
    few.
    """
    tokenizer, _, labelled, relations = known(plan)
    tests = 4 * len(labelled) // 7
    mine = torch.randperm(len(labelled) - tests, generator=seeded_generator(seed, 1)).tolist()[
        :LABELS
    ]
    task = {"train": [labelled[i] for i in mine], "test": labelled[-tests:]}
    options: dict[str, Any] = {
        "classes": relations,
        "metric": "accuracy",
        "seed": seed,
        "batch": 16,
        "lr": lr,
    }
    return finetune(stack, task, tokenizer, epochs=6, **options).score


@experiment("electra-efficiency")
def electra_efficiency(lab: Lab, seed: int) -> dict[str, float]:
    """Share of words right without pretraining, and after each objective's."""
    body, (_, lr) = fresh(lab.plan, "MLM", seed)[1], RATES["no pretraining"]
    values: dict[str, float] = {"no pretraining": score(lab.plan, body, seed, lr)}
    for name, (objective, loss) in OBJECTIVES.items():
        (model, stack), count, (of_steps, lr) = (
            fresh(lab.plan, name, seed),
            steps(lab.plan)[name],
            RATES[name],
        )
        schedule = optim.wsd(count, warmup=count // 10)
        fit(
            model,
            batches(lab.plan, objective, seed),
            loss,
            count,
            of_steps,
            schedule,
            betas=(0.9, 0.98),
        )
        values[f"full budget/{name}"] = score(lab.plan, stack, seed, lr)
    return values
