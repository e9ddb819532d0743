"""The claims of lesson 20: the methods compared, a quantised base, and what is forgotten."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, cast

from course_lib import data, peft, zoo
from course_lib.analysis import evaluation
from course_lib.model import heads, transformer
from course_lib.objectives import collate, losses, seeded_generator
from course_lib.peft import nf4
from course_lib.training.finetune import FinetuneConfig, Result, finetune, predict
from lab.lessons import Lab, experiment, given, settings, task_rows
from lab.real import peft_methods
from lab.real.baselines import linear

BODY = "bert-mini"
GIVEN = given("peft")
SIZES: dict[str, dict[str, int]] = GIVEN["sizes"]
RATES: dict[str, list[float]] = GIVEN["rates"]  # of each method, tried on validation rows
WORDS: str = GIVEN["words"]  # what prompt and prefix begin with
IDS = zoo.load(BODY).tokenizer.ids([WORDS])[0][1:-1]
QUANTISED = ("everything", "LoRA", "QLoRA")  # what the claim of QLoRA compares
METHODS: dict[str, dict[str, Any]] = {
    "everything": {},
    "head only": {"frozen": True},
    "BitFit": {"peft": peft.bitfit},
    "prompt": {"peft": partial(peft.prompt, length=len(IDS), words=IDS)},
    "prefix": {"peft": partial(peft.prefix, words=IDS)},
    "adapters": {"peft": partial(peft.adapters, width=8)},
    "LoRA": {"peft": partial(peft.lora, rank=4)},
    "QLoRA": {"peft": lambda body: peft.lora(peft.quantise_model(body), rank=4)},
}


class Setup:
    """One seed's rows, and the shipped body to tune on them."""

    def __init__(self, lab: Lab, seed: int) -> None:
        self.lab, self.seed, self.size = lab, seed, SIZES[lab.plan.scale]
        self.model, self.tokenizer, _ = zoo.load(BODY)
        self.task = self.rows("entities")
        some = self.task["train"].select(range(self.size["few"]))
        self.few = self.task | {"train": some}

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

        follows = [self.seed, self.lab.plan.scale, settings("qlora"), method, few, name]
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
            collate.pad(rows[i : i + 25], vocab.padding_id).values()
            for i in range(0, len(rows), 25)
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
    """These figures of these methods, of the comparison that both claims read."""

    def make() -> dict[str, float]:
        setup, values = Setup(lab, seed), {}
        values["documents/pretrained"] = setup.documents_loss(setup.model.stack)
        for name in METHODS:
            tuned = setup.tune(name)
            values |= {
                f"all labels/{name}": tuned.score,
                f"bytes/{name}": peft.count(tuned.model).bytes,
                f"documents/{name}": setup.documents_loss(body_of(tuned)),
            }
        for name in QUANTISED:
            values[f"few labels/{name}"] = setup.tune(name, few=True).score
        return values

    values = lab.kept("peft", [seed, lab.plan.scale, settings("qlora")], make)
    return {
        f"{figure}/{name}": values[f"{figure}/{name}"] for figure in figures for name in methods
    }


@experiment("qlora")
def qlora_memory(lab: Lab, seed: int) -> dict[str, float]:
    """Memory and scores of LoRA with and without the quantised base; bits a weight, counted."""
    matrix = zoo.load(BODY).model.stack.blocks[0].ff.up.weight
    values = compared(lab, seed, ("all labels", "few labels", "bytes"), QUANTISED)
    return values | {"bits a weight": nf4.quantise(matrix).bits / matrix.numel()}


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


ENGLISH: dict[str, dict[str, Any]] = GIVEN["english"]  # by claim


def setting_of(claim: str, task: str) -> peft_methods.Setting:
    """How the methods are trained on a task of a claim on real English."""
    return peft_methods.Setting(**ENGLISH[claim]["tasks"][task])


@experiment("peft-methods")
def methods_compared(lab: Lab, seed: int) -> dict[str, float]:
    """Scores of all methods on two tasks, and how many weights each trains in the body."""
    size = ENGLISH["peft-methods"]["sizes"][lab.plan.scale]
    tasks = {
        "sentiment": peft_methods.sentiment(seed, size["labels"]),
        "tags": peft_methods.tags(lab.public_data, seed, size["labels"]),
    }
    values: dict[str, float] = {}
    for name, task in tasks.items():
        setting = setting_of("peft-methods", name)
        penalty = ENGLISH["peft-methods"]["penalties"][name]
        values[f"{name}/most frequent"] = peft_methods.most_frequent(task)
        values[f"{name}/linear"] = linear("accuracy")(task["train"], task["test"], penalty, seed)
        for method in peft_methods.METHODS:
            tuned = peft_methods.tune(size["model"], method, task, setting, seed, lab.device)
            values[f"{name}/{method}"] = tuned.score
            values[f"weights/{method}"] = peft_methods.trained_weights(tuned)
    return values


@experiment("forgetting")
def text_forgotten(lab: Lab, seed: int) -> dict[str, float]:
    """Each method's score on tags, and the masked-word loss on texts before and after it."""
    size = ENGLISH["forgetting"]["sizes"][lab.plan.scale]
    task = peft_methods.tags(lab.public_data, seed, size["labels"])
    setting = setting_of("forgetting", "tags")
    model, tokenizer, _ = zoo.load(size["model"])
    texts = peft_methods.masked_texts(tokenizer, size["texts"])

    def text_loss(body: Any) -> float:
        """Of a body under the head that it was pretrained with."""
        whole = heads.MLM(body)
        whole.head = model.head
        return evaluation.mean_loss(whole.to(lab.device), losses.mlm, texts)

    values = {"text/pretrained": text_loss(model.stack)}
    for method in peft_methods.METHODS:
        tuned = peft_methods.tune(size["model"], method, task, setting, seed, lab.device)
        values[f"tags/{method}"] = tuned.score
        values[f"text/{method}"] = text_loss(body_of(tuned))
    return values
