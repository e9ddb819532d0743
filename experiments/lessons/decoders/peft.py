"""The claims of lesson 20: parameter-efficient fine-tuning against fine-tuning everything."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, cast

import torch

from course_lib import data, peft, zoo
from course_lib.analysis import cost, evaluation
from course_lib.families.gpt import gpt3
from course_lib.model import heads, transformer
from course_lib.objectives import collate, losses, seeded_generator
from course_lib.peft import nf4
from course_lib.training.finetune import FinetuneConfig, Result, finetune, predict
from experiments.lessons import Lab, experiment, given, settings, small_models, task_rows

BODY = "bert-mini"
SIZES, RATES, WORDS = given("peft").values()
IDS = zoo.load(BODY).tokenizer.ids([WORDS])[0][1:-1]
RANKS, WIDTHS, LENGTHS = (1, 4, 16), (1, 4, 8, 16), (1, 4, 8, 16)

METHODS: dict[str, dict[str, Any]] = {
    "everything": {},
    "head only": {"frozen": True},
    "BitFit": {"peft": peft.bitfit},
    "prompt": {"peft": partial(peft.prompt, length=len(IDS), words=IDS)},
    "prefix": {"peft": partial(peft.prefix, words=IDS)},
    "adapters": {"peft": partial(peft.adapters, width=8)},
    "LoRA": {"peft": partial(peft.lora, rank=4)},
    "QLoRA": {"peft": lambda body: peft.lora(peft.quantise(body), rank=4)},
}


class Setup:
    """One seed's rows, and the shipped body to tune on them."""

    def __init__(self, lab: Lab, seed: int) -> None:
        self.lab, self.seed, self.size = lab, seed, SIZES[lab.plan.scale]
        self.model, self.tokenizer, _ = zoo.load(BODY)
        self.task = self.rows("entities")
        some = self.task["train"].select(range(self.size["few"]))
        # scored on the very rows it learns, too
        self.few = self.task | {"train": some, "validation": some}

    def rows(self, task: str) -> dict[str, Any]:
        """Training and test rows of a task of the town."""
        return task_rows(task, self.seed, train=self.size["labels"], test=self.size["tests"])

    def tune(
        self, method: str, few: bool = False, body: Any = None, name: str = BODY, **changes: Any
    ) -> Result:
        """Fine-tune a copy of a body, by default the shipped one, on all labels, or on few for
        three times the epochs, at the learning rate that is best on validation rows. name: of the
        body that the rate is chosen with. changes: `task` and `peft`, in place of the method's."""
        options: dict[str, Any] = {
            "batch": 16,
            "max_length": 96,
            "seed": self.seed,
            "device": self.lab.device,
        }
        options |= {"epochs": (3 if few else 1) * self.size["epochs"]} | METHODS[method]
        wrap = options.pop("peft", None)
        task, start = self.few if few else self.task, body or self.model

        def tried() -> dict[str, float]:
            chosen = task_rows("entities", self.seed, validation=self.size["chosen"])["validation"]
            rows = {"train": task["train"], "test": chosen}
            return {
                f"{lr:g}": finetune(
                    start, rows, self.tokenizer, FinetuneConfig(lr=lr, **options), peft=wrap
                ).score
                for lr in RATES[method]
            }

        follows = [self.seed, self.lab.plan.scale, settings("lora"), method, few, name]
        scores = self.lab.kept("peft-rates", follows, tried)
        lr = float(max(scores, key=scores.__getitem__))
        return finetune(
            start,
            changes.get("task", task),
            self.tokenizer,
            FinetuneConfig(lr=lr, **options),
            peft=changes.get("peft", wrap),
        )

    @cached_property
    def documents(self) -> list[losses.Batch]:
        """Held-out documents with masks, always the same."""
        texts = data.corpus("world", split="validation", n=self.size["documents"], seed=self.seed)[
            "text"
        ]
        rows, rng = (
            [ids[:96] for ids in self.tokenizer.ids(list(texts))],
            seeded_generator(self.seed, 1),
        )
        vocab = self.tokenizer.vocab
        padded = [
            collate.pad(rows[i : i + 25], vocab.pad or 0).values() for i in range(0, len(rows), 25)
        ]
        return [
            collate.masked(ids, attention_mask, rng, vocab=vocab) for ids, attention_mask in padded
        ]

    def documents_loss(self, body: transformer.Transformer) -> float:
        """Masked-LM loss of a body under the head that it was pretrained with."""
        model = heads.MLM(body)
        model.head = self.model.head
        return evaluation.mean_loss(model.to(self.lab.device), losses.mlm, self.documents)


def body_of(result: Result) -> transformer.Transformer:
    """The tuned body, without its head."""
    return cast(transformer.Transformer, result.model.stack)


def compared(
    lab: Lab, seed: int, figures: Sequence[str], methods: Sequence[str]
) -> dict[str, float]:
    """These figures of these methods, of the comparison that all claims read: each method on all
    labels and on few.
    """

    def make() -> dict[str, float]:
        setup, values = Setup(lab, seed), {}
        values["documents/pretrained"] = setup.documents_loss(setup.model.stack)
        for name in METHODS:
            many, few = setup.tune(name), setup.tune(name, few=True)
            values |= {
                f"all labels/{name}": many.score,
                f"few labels/{name}": few.score,
                f"few labels, their own rows/{name}": few.validation[-1],
                f"trained/{name}": peft.count(body_of(many)).trainable,
                f"bytes/{name}": peft.count(many.model).bytes,
                f"documents/{name}": setup.documents_loss(body_of(many)),
            }
        return values

    values = lab.kept("peft", [seed, lab.plan.scale, settings("lora")], make)
    return {
        f"{figure}/{name}": values[f"{figure}/{name}"] for figure in figures for name in methods
    }


@experiment("lora")
def lora(lab: Lab, seed: int) -> dict[str, float]:
    """Scores of LoRA, prefix and everything, LoRA by rank; what merging changes; GPT-3 by count."""
    setup = Setup(lab, seed)
    values = compared(
        lab, seed, ("all labels", "trained"), ("everything", "head only", "prefix", "LoRA")
    )
    for rank in RANKS:
        result = setup.tune("LoRA", peft=partial(peft.lora, rank=rank))
        values[f"by rank/{rank}"] = result.score
    body, ids = body_of(result), setup.documents[0]["ids"].to(lab.device)
    with torch.no_grad():
        beside = body(ids)
        peft.merge(body)
        values["merged, greatest difference"] = float((body(ids) - beside).abs().max())
    with torch.device("meta"):
        giant = peft.count(peft.lora(transformer.Transformer(gpt3()), rank=4))
    memory = cost.training_bytes(giant.total) / cost.training_bytes(
        giant.total, trained=giant.trainable
    )
    values["GPT-3/times fewer trained"] = giant.total / giant.trainable
    return values | {"GPT-3/times less memory": memory}


@experiment("adapters")
def adapters(lab: Lab, seed: int) -> dict[str, float]:
    """Score and share of trained weights by width; how much fresh adapters change the output."""
    setup, values = (
        Setup(lab, seed),
        compared(lab, seed, ("all labels",), ("everything", "head only")),
    )
    for width in WIDTHS:
        result = setup.tune("adapters", peft=partial(peft.adapters, width=width))
        values[f"score/width {width}"] = result.score
        values[f"share trained/width {width}"] = peft.count(body_of(result)).share
    torch.manual_seed(seed)
    ids, body = setup.documents[0]["ids"], setup.model.stack.cpu().eval()
    with torch.no_grad():
        before, after = body(ids), peft.adapters(deepcopy(body), width=8)(ids)
    return values | {"changed at the start": float((after - before).norm() / before.norm())}


@experiment("prefix-tuning")
def prefix_tuning(lab: Lab, seed: int) -> dict[str, float]:
    """Scores of the prefix and of everything, with all labels and with few."""
    return compared(
        lab, seed, ("all labels", "few labels", "trained"), ("everything", "head only", "prefix")
    )


@experiment("prompt-tuning")
def prompt_tuning(lab: Lab, seed: int) -> dict[str, float]:
    """Scores by the prompt's length, and by the size of the body, prompt against everything."""
    setup, plan = Setup(lab, seed), lab.plan
    values = compared(lab, seed, ("all labels", "trained"), ("everything", "prefix", "prompt"))
    for length in LENGTHS:
        values[f"by length/{length}"] = setup.tune(
            "prompt", peft=partial(peft.prompt, length=length, words=IDS)
        ).score
    for layers, width in small_models.sizes(plan):
        setup.model, setup.tokenizer, _ = lab.model(
            small_models.size_arm(plan, seed, layers, width)
        )
        for name in ("everything", "prompt"):
            values[f"by size, {name}/{layers} x {width}"] = setup.tune(
                name, name=f"{layers} x {width}"
            ).score
    return values


@experiment("qlora")
def qlora_memory(lab: Lab, seed: int) -> dict[str, float]:
    """Memory and scores of LoRA with and without the quantised base; bits a weight, counted."""
    matrix = zoo.load(BODY).model.stack.blocks[0].ff.up.weight
    values = compared(
        lab, seed, ("all labels", "few labels", "bytes"), ("everything", "LoRA", "QLoRA")
    )
    return values | {"bits a weight": nf4.quantise(matrix).bits / matrix.numel()}


@experiment("peft-overfits-less")
def overfits_less(lab: Lab, seed: int) -> dict[str, float]:
    """Scores on the few rows that were trained on, and on new ones, of every method."""
    return compared(lab, seed, ("few labels", "few labels, their own rows"), tuple(METHODS))


@experiment("catastrophic-forgetting")
def forgetting(lab: Lab, seed: int) -> dict[str, float]:
    """Loss on documents after each method, and the first task's score before and after the second
    task.
    """
    setup, values = Setup(lab, seed), compared(lab, seed, ("documents",), ("pretrained", *METHODS))
    rows = setup.rows("pos")
    first = setup.tune("everything", task=rows)

    def again(body: transformer.Transformer) -> float:
        """The first task's score with this body under the first task's head."""
        model = deepcopy(first.model)
        model.stack = body
        said = predict(replace(first, model=model), rows["test"])
        return replace(first, predictions=said).by(first.metric)

    values["first task/before"] = first.score
    for name in ("everything", "LoRA"):
        second = setup.tune(name, body=body_of(first))
        values[f"first task/then {name}"] = again(body_of(second))
    return values
