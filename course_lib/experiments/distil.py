"""The claim of lesson 13: half the layers, taught by all of them."""

import time
from dataclasses import asdict, dataclass
from functools import partial
from statistics import mean, median
from typing import Any

import torch
from torch import nn

from course_lib import cost, data, distill, heads, losses, optim, zoo
from course_lib.claims.experiment import experiment
from course_lib.claims.lab import Lab
from course_lib.claims.record import Figures, figure
from course_lib.experiments import family
from course_lib.experiments.judging import gap, percent, points
from course_lib.finetune import finetune
from course_lib.losses import Batch, Loss
from course_lib.models.bert import bert_base
from course_lib.models.distilbert import distilbert_base
from course_lib.stack import Stack
from course_lib.train import train

TEACHER = "bert-mini"
ROWS, LENGTH = 16, 64
TASKS = ("entities", "pos")


@dataclass(frozen=True)
class Size:
    """steps: of teaching. few, many: documents taught on; aside: kept for measuring. entities, pos: labels."""

    steps: int
    few: int
    many: int
    aside: int
    entities: int
    pos: int
    tests: int
    epochs: int


SIZES = {
    "smoke": Size(2, 12, 40, 10, 12, 12, 10, 1),
    "cpu": Size(100, 40, 1600, 200, 96, 64, 400, 6),
    "gpu": Size(5000, 200, 20_000, 300, 240, 100, 1000, 6),
}
SOFT = partial(distill.distilbert, hard=0.0, cosine=0.0)
ARMS: dict[str, list[tuple[Loss, float, float]]] = {  # loss, share of the steps, learning rate
    "no teacher": [(losses.mlm, 1.0, 2e-3)],
    "distilled": [(distill.distilbert, 1.0, 2e-3)],
    "layer by layer": [(distill.tinybert, 0.5, 1e-3), (SOFT, 0.5, 2e-3)],
}


class School:
    """One seed's teacher, texts and tasks."""

    def __init__(self, lab: Lab, seed: int) -> None:
        self.lab, self.seed, self.size = lab, seed, SIZES[lab.plan.scale]
        self.teacher, self.tokenizer, _ = zoo.load(TEACHER)
        self.teacher.to(lab.device).eval()
        size = self.size
        texts = list(data.corpus("world", n=size.aside + size.many, seed=seed)["text"])
        taught = {"few": texts[size.aside : size.aside + size.few], "many": texts[size.aside :]}
        self.stores = {name: data.encode_corpus(some, self.tokenizer) for name, some in taught.items()}
        aside = self.batches(data.encode_corpus(texts[: size.aside], self.tokenizer), 50)
        self.aside: list[Batch] = [aside[step] for step in range(aside.steps)]

    def batches(self, store: Any, rows: int) -> data.MaskedBatches:
        """Rows of masked documents, the masks drawn anew each time."""
        return data.MaskedBatches(store, self.tokenizer, length=LENGTH, rows=rows, seed=self.seed)

    def begin(self, *, fresh: bool = False) -> nn.Module:
        """A student of half the layers: cut out of the teacher, or with random weights."""
        torch.manual_seed(self.seed)
        student = distill.student(self.teacher)
        return (heads.MLM(Stack(student.stack.config)) if fresh else student).to(self.lab.device)

    def teach(self, arm: str, documents: str = "many", *, fresh: bool = False) -> nn.Module:
        """A student, taught; only `losses.mlm` does without the teacher."""
        student, batches = self.begin(fresh=fresh), self.batches(self.stores[documents], ROWS)
        for loss, share, lr in ARMS[arm]:
            model = student if loss is losses.mlm else distill.Distilled(student, self.teacher)
            steps = max(1, round(share * self.size.steps))
            schedule, optimizer = optim.linear(steps, warmup=steps // 10), optim.adamw(model, lr)
            for _ in train(model, batches, loss, optimizer, schedule, steps=steps, device=self.lab.device):
                pass
        return student.eval()

    @torch.no_grad()
    def filled(self, model: Any) -> float:
        """Share of masked words of the documents kept aside that a model says."""
        right = []
        for batch in self.aside:
            ids, keep, at = (batch[name].to(self.lab.device) for name in ("ids", "keep", "at"))
            said = model.eval()(ids, keep=keep, at=at)
            logits = said[0] if isinstance(said, tuple) else said
            right.append(logits.argmax(-1).cpu() == batch["labels"][batch["at"]])
        return float(torch.cat(right).float().mean())

    def worth(self, model: Any) -> dict[str, float]:
        """What a pretrained model is worth: its gaps, its scores when tuned on each task, and their mean."""
        values = {"masked words": self.filled(model)}
        options: dict[str, Any] = {"lr": 3e-3, "epochs": self.size.epochs, "batch": 16, "max_length": LENGTH}
        for name in TASKS:
            counts = {"train": getattr(self.size, name), "test": self.size.tests}
            task = {part: data.task(f"world/{name}", split=part, n=n, seed=self.seed) for part, n in counts.items()}
            result = finetune(model.stack, task, self.tokenizer, seed=self.seed, device=self.lab.device, **options)
            values[name] = result.score
        return values | {"score": mean(values[name] for name in TASKS)}

    @torch.no_grad()
    def milliseconds(self, model: Any, passes: int = 30) -> float:
        """Processor time of a forward pass over one text, the median of some."""
        ids, taken = self.aside[0]["ids"][:1].to(self.lab.device), []
        for _ in range(passes):
            begin = time.process_time()
            model.stack(ids)
            taken.append(1000 * (time.process_time() - begin))
        return median(taken)


def _distilbert(f: Figures) -> tuple[str, str]:
    fewer = 1 - f["parameters/DistilBERT"].mean / f["parameters/BERT-base"].mean
    ratio = figure([a / b for a, b in zip(f["score/distilled"].seeds, f["score/teacher"].seeds, strict=True)])
    taught = gap(f, "score/distilled", "score/no teacher")
    held = {
        "size": 0.38 <= fewer <= 0.42,
        "kept": ratio.interval is not None and ratio.interval[0] >= 0.95,
        "taught": taught.interval is not None and taught.interval[0] > 0,
    }
    verdict = (
        "reproduced" if all(held.values())
        else "partly" if held["size"] and sum(held.values()) == 2
        else "not at this scale"
    )  # fmt: skip
    words = ", ".join(
        f"{name} {percent(f[f'masked words/{name}'].mean)}" for name in ("teacher", "cut, untrained", *ARMS)
    )
    half = (ratio.interval[1] - ratio.interval[0]) / 2 if ratio.interval else 0.0
    faster = f["milliseconds/student"].mean / f["milliseconds/teacher"].mean
    return verdict, (
        f"DistilBERT has {percent(fewer)} fewer weights than BERT-base; our student keeps {100 * ratio.mean:.1f}% ± "
        f"{100 * half:.1f} of its teacher's score. Its score minus that of the same student without a teacher "
        f"{points(taught)}, minus the untrained cut's {points(gap(f, 'score/distilled', 'score/cut, untrained'))}. "
        f"Masked words right: {words}. A forward pass takes {percent(faster)} of the teacher's time."
    )


@experiment(
    "distilbert",
    rule="""Scores are means of two tasks, tuned from few labels. Size: by count, DistilBERT has 38 to 42% fewer
    weights than BERT-base. Kept: the 95% interval of the distilled student's score over its teacher's, seed by seed,
    lies at 95% or above. Taught: the distilled student is ahead of the same student without a teacher, with the 95%
    interval of the paired difference above zero. Reproduced if all three hold; partly if size and one of the others;
    otherwise not at this scale.""",
    judge=_distilbert,
    config={
        "sizes": {scale: asdict(size) for scale, size in SIZES.items()},
        "tasks": TASKS,
        "checkpoints": family.shipped(TEACHER),
    },
)
def distilbert(lab: Lab, seed: int) -> dict[str, float]:
    """Gaps filled and scores of the teacher, of students taught in several ways, and of one not taught at all."""
    school = School(lab, seed)
    values: dict[str, float] = {}
    students: dict[str, Any] = {"teacher": school.teacher, "cut, untrained": school.begin()}
    students |= {arm: school.teach(arm) for arm in ARMS}
    students["distilled, random start"] = school.teach("distilled", fresh=True)
    for name, model in students.items():
        values |= {f"{what}/{name}": value for what, value in school.worth(model).items()}
    for arm in ("no teacher", "distilled"):
        values[f"masked words, few documents/{arm}"] = school.filled(school.teach(arm, "few"))
    for name, model in (("teacher", school.teacher), ("student", students["cut, untrained"])):
        values[f"parameters/{name}"] = cost.parameters(model.stack.config)
        values[f"operations/{name}"] = cost.forward_flops(model.stack.config, LENGTH, outputs=1)
        values[f"milliseconds/{name}"] = school.milliseconds(model)
    values["parameters/BERT-base"] = cost.parameters(bert_base())
    return values | {"parameters/DistilBERT": cost.parameters(distilbert_base())}
