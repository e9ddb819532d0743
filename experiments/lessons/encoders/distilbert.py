"""The claim of lesson 13: half the layers, taught by all of them."""

from functools import partial
from statistics import mean
from typing import Any

import torch

from course_lib import data, zoo
from course_lib.analysis import cost
from course_lib.families import preset
from course_lib.model import heads, transformer
from course_lib.objectives import losses
from course_lib.training import distill
from course_lib.training.finetune import finetune
from experiments.lessons import Lab, experiment, fit, given, probes, task_rows

ROWS, LENGTH = 16, 64
TASKS = ("entities", "pos")
SIZES: dict[str, dict[str, int]] = given("distilbert")["sizes"]
SOFT = partial(distill.distilbert, hard=0.0, cosine=0.0)
# loss, share of the steps, learning rate
ARMS: dict[str, list[tuple[losses.Loss, float, float]]] = {
    "no teacher": [(losses.mlm, 1.0, 2e-3)],
    "distilled": [(distill.distilbert, 1.0, 2e-3)],
    "layer by layer": [(distill.tinybert, 0.5, 1e-3), (SOFT, 0.5, 2e-3)],
}


@torch.no_grad()
def filled(model: Any, kept: list[losses.Batch]) -> float:
    """Share of masked words of the documents kept aside that a model says."""
    right, device = [], next(model.parameters()).device
    for batch in kept:
        seen = {name: batch[name].to(device) for name in ("ids", "attention_mask", "loss_mask")}
        right.append(
            probes.word_logits(model, **seen).argmax(-1).cpu()
            == batch["labels"][batch["loss_mask"]]
        )
    return float(torch.cat(right).float().mean())


@torch.no_grad()
def apart(model: Any, teacher: Any, kept: list[losses.Batch]) -> float:
    """Mean divergence KL(teacher || model) in nats, at the masked words kept aside."""
    found = []
    for batch in kept:
        seen = {name: batch[name] for name in ("ids", "attention_mask", "loss_mask")}
        theirs, ours = (
            probes.word_logits(each.cpu(), **seen).log_softmax(-1) for each in (teacher, model)
        )
        found.append((theirs.exp() * (theirs - ours)).sum(-1))
    return float(torch.cat(found).mean())


@experiment("distilbert", tasks=TASKS)
def distilbert(lab: Lab, seed: int) -> dict[str, float]:
    """Scores of the teacher and of students taught with and without it; gaps they fill after many
    documents and few.
    """
    size = SIZES[lab.plan.scale]
    teacher, tokenizer, _ = zoo.load("bert-mini")
    aside, few, many = (size[name] for name in ("aside", "few", "many"))
    texts = list(data.corpus("world", n=aside + many, seed=seed)["text"])
    how: dict[str, Any] = {"length": LENGTH, "seed": seed}  # the masks are drawn anew each time
    source = data.CorruptedBatches(texts[:aside], tokenizer, rows=50, **how)
    kept = [source[step] for step in range(source.steps)]

    def taught(documents: list[str], arm: str, *, fresh: bool = False) -> Any:
        """A student of half the layers, cut out of the teacher or with random weights; "no teacher"
        does without it.
        """
        torch.manual_seed(seed)
        student = distill.student(teacher)
        student = heads.MLM(transformer.Transformer(student.stack.config)) if fresh else student
        batches = data.CorruptedBatches(documents, tokenizer, rows=ROWS, **how)
        for loss, share, rate in ARMS[arm]:
            model = student if loss is losses.mlm else distill.Distilled(student, teacher)
            fit(model, batches, loss, max(1, round(share * size["steps"])), rate, device=lab.device)
        return student

    tasks = {name: task_rows(name, seed, train=size[name], test=size["tests"]) for name in TASKS}
    options: dict[str, Any] = {
        "lr": 3e-3,
        "epochs": size["epochs"],
        "batch": 16,
        "max_length": LENGTH,
    }
    options |= {"seed": seed, "device": lab.device}
    students = {arm: taught(texts[aside:], arm) for arm in ARMS} | {
        "cut, untrained": distill.student(teacher)
    }
    students["distilled, random start"] = taught(texts[aside:], "distilled", fresh=True)
    values = {
        f"apart from the teacher/{arm}": apart(student, teacher, kept)
        for arm, student in students.items()
    }
    for name, model in {"teacher": teacher, **students}.items():
        values[f"masked words/{name}"] = filled(model, kept)
        scores = [
            finetune(model.stack, task, tokenizer, **options).score for task in tasks.values()
        ]
        values |= {f"{task}/{name}": score for task, score in zip(TASKS, scores, strict=True)}
        values[f"score/{name}"] = mean(scores)
    for arm in ("no teacher", "distilled"):
        values[f"masked words, few documents/{arm}"] = filled(
            taught(texts[aside : aside + few], arm), kept
        )
    papers = {"BERT-base": "bert-base", "DistilBERT": "distilbert-base"}
    return values | {
        f"parameters/{name}": cost.parameters(preset(config)) for name, config in papers.items()
    }
