"""The claims of lesson 20: parameter-efficient fine-tuning against fine-tuning everything."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any, cast

import torch
from torch import nn

from course_lib import cost, data, heads, losses, objectives, peft, probes, zoo
from course_lib.claims.experiment import experiment
from course_lib.claims.lab import Lab
from course_lib.claims.record import Figure, Figures, difference
from course_lib.corrupt import generator
from course_lib.data.batches import pad
from course_lib.experiments import family
from course_lib.experiments.judging import clearly_above, gap, names, percent, points
from course_lib.finetune import Result, finetune, predict
from course_lib.models.gpt import gpt3
from course_lib.peft import nf4
from course_lib.stack import Stack

BODY = "bert-mini"
NEAR, CLEAR = 0.03, 0.02  # "within three points", and a gap that is clearly smaller


@dataclass(frozen=True)
class Size:
    """labels, few: training rows. documents: on which is measured what is forgotten. epochs: with all labels."""

    labels: int
    few: int
    tests: int
    documents: int
    epochs: int


SIZES = {"smoke": Size(16, 8, 16, 8, 1), "cpu": Size(240, 48, 600, 100, 4), "gpu": Size(1000, 48, 2000, 200, 4)}
RANKS, WIDTHS, LENGTHS = (1, 4, 16), (1, 4, 8, 16), (1, 4, 8, 16)


def qlora(body: Stack) -> nn.Module:
    """LoRA beside matrices in four bits."""
    return peft.lora(peft.quantise(body), rank=4)


METHODS: dict[str, dict[str, Any]] = {
    "everything": {"lr": 2e-3},
    "head only": {"frozen": True, "lr": 3e-2},
    "BitFit": {"peft": peft.bitfit, "lr": 4e-2},
    "prompt": {"peft": partial(peft.prompt, length=8), "lr": 3e-2},
    "prefix": {"peft": partial(peft.prefix, length=8), "lr": 3e-2},
    "adapters": {"peft": partial(peft.adapters, width=8), "lr": 2e-2},
    "LoRA": {"peft": partial(peft.lora, rank=4), "lr": 2e-2},
    "QLoRA": {"peft": qlora, "lr": 2e-2},
}
FIVE = ("BitFit", "prompt", "prefix", "adapters", "LoRA")
CONFIG = {
    "task": "entities",
    "sizes": {scale: asdict(size) for scale, size in SIZES.items()},
    "learning rates": {name: options["lr"] for name, options in METHODS.items()},
    "checkpoints": family.shipped(BODY),
}


class Desk:
    """One seed's rows, and the shipped body to tune on them."""

    def __init__(self, lab: Lab, seed: int) -> None:
        self.lab, self.seed, self.size = lab, seed, SIZES[lab.plan.scale]
        self.model, self.tokenizer, _ = zoo.load(BODY)
        self.task = self.rows("entities")
        some = self.task["train"].select(range(self.size.few))
        self.few = self.task | {"train": some, "validation": some}  # scored on the very rows it learns, too

    def rows(self, task: str) -> dict[str, Any]:
        """Training and test rows of a task of the town."""
        counts = {"train": self.size.labels, "test": self.size.tests}
        return {split: data.task(f"world/{task}", split=split, n=n, seed=self.seed) for split, n in counts.items()}

    def tune(
        self, method: dict[str, Any], task: dict[str, Any] | None = None, times: int = 1, body: Any = None
    ) -> Result:
        """Fine-tune a copy of a body, by default the shipped one on all labels, for `times` as many epochs."""
        options: dict[str, Any] = {"batch": 16, "max_length": 96, "seed": self.seed, "device": self.lab.device}
        epochs = times * self.size.epochs
        return finetune(body or self.model, task or self.task, self.tokenizer, epochs=epochs, **options, **method)

    @cached_property
    def documents(self) -> list[losses.Batch]:
        """Held-out documents with masks, always the same."""
        texts = data.corpus("world", split="validation", n=self.size.documents, seed=self.seed)["text"]
        rows, rng = [ids[:96] for ids in self.tokenizer.ids(list(texts))], generator(self.seed, 1)
        padded = [pad(rows[i : i + 25], self.tokenizer.vocab.pad or 0) for i in range(0, len(rows), 25)]
        return [objectives.masked(batch["ids"], batch["keep"], rng, vocab=self.tokenizer.vocab) for batch in padded]

    def documents_loss(self, body: Stack) -> float:
        """Masked-LM loss of a body under the head that it was pretrained with."""
        model = heads.MLM(body)
        model.head = self.model.head
        return probes.mean_loss(model.to(self.lab.device), losses.mlm, self.documents)


def body_of(result: Result) -> Stack:
    """The tuned body, without its head."""
    return cast(Stack, result.model.stack)


def compared(lab: Lab, seed: int, figures: Sequence[str], methods: Sequence[str]) -> dict[str, float]:
    """These figures of these methods, of the comparison that all claims read: each method on all labels and on few."""

    def make() -> dict[str, float]:
        desk, values = Desk(lab, seed), {}
        values["documents/pretrained"] = desk.documents_loss(desk.model.stack)
        for name, method in METHODS.items():
            many, few = desk.tune(method), desk.tune(method, desk.few, times=3)
            size = peft.count(many.model)
            values |= {
                f"all labels/{name}": many.score,
                f"few labels/{name}": few.score,
                f"few labels, their own rows/{name}": few.validation[-1],
                f"trained/{name}": peft.count(body_of(many)).trainable,
                f"bytes/{name}": size.bytes,
                f"documents/{name}": desk.documents_loss(body_of(many)),
            }
        return values

    values = lab.kept("peft", [seed, lab.plan.scale, CONFIG], make)
    return {f"{figure}/{name}": values[f"{figure}/{name}"] for figure in figures for name in methods}


def ahead(f: Figures, name: str, labels: str = "all labels") -> Figure:
    """How far a method's score is above full fine-tuning's."""
    return gap(f, f"{labels}/{name}", f"{labels}/everything")


def _lora(f: Figures) -> tuple[str, str]:
    lead = ahead(f, "LoRA")
    holds = [lead.mean >= -NEAR, clearly_above(f, "all labels/LoRA", "all labels/prefix")]
    ranks = ", ".join(f"rank {rank} {percent(f[f'by rank/{rank}'].mean)}" for rank in RANKS)
    return "reproduced" if all(holds) else "partly" if any(holds) else "not at this scale", (
        f"LoRA minus everything trained {points(lead)}, minus a prefix of as many weights "
        f"{points(gap(f, 'all labels/LoRA', 'all labels/prefix'))}; {ranks}. On GPT-3 rank 4 trains "
        f"{f['GPT-3/times fewer trained'].mean:,.0f} times fewer weights and takes "
        f"{f['GPT-3/times less memory'].mean:.1f} times less memory."
    )


@experiment(
    "lora",
    rule="""Means over seeds. Reproduced if LoRA is within 3 points of full fine-tuning, and ahead of the prefix, which
    has exactly as many weights here, with the 95% interval of the difference above zero; partly if one of the two.
    Ranks, the counts at GPT-3's size and what merging changes are recorded and not judged.""",
    judge=_lora,
    config=CONFIG,
)
def lora(lab: Lab, seed: int) -> dict[str, float]:
    """Scores of LoRA, prefix and everything, LoRA by rank; what merging changes; GPT-3 by count."""
    desk, values = Desk(lab, seed), compared(lab, seed, ("all labels", "trained"), ("everything", "prefix", "LoRA"))
    for rank in RANKS:
        result = desk.tune({"peft": partial(peft.lora, rank=rank), "lr": METHODS["LoRA"]["lr"]})
        values[f"by rank/{rank}"] = result.score
    body, ids = body_of(result), desk.documents[0]["ids"].to(lab.device)
    with torch.no_grad():
        beside = body(ids)
        peft.merge(body)
        values["merged, greatest difference"] = float((body(ids) - beside).abs().max())
    with torch.device("meta"):
        giant = peft.count(peft.lora(Stack(gpt3()), rank=4))
    memory = cost.training_bytes(giant.total) / cost.training_bytes(giant.total, trained=giant.trainable)
    values["GPT-3/times fewer trained"] = giant.total / giant.trainable
    return values | {"GPT-3/times less memory": memory}


def _adapters(f: Figures) -> tuple[str, str]:
    few = [width for width in WIDTHS if f[f"share trained/width {width}"].mean <= 0.05]
    best = max(few, key=lambda width: f[f"score/width {width}"].mean)
    lead = gap(f, f"score/width {best}", "all labels/everything")
    changed = max(f["changed at the start"].seeds)
    same = changed < 0.05
    verdict = (
        "reproduced" if lead.mean >= -NEAR and same else "partly" if lead.mean >= -2 * NEAR else "not at this scale"
    )
    said = ", ".join(
        f"width {w} ({percent(f[f'share trained/width {w}'].mean)} trained) {percent(f[f'score/width {w}'].mean)}"
        for w in WIDTHS
    )
    return verdict, (
        f"Everything trained reaches {percent(f['all labels/everything'].mean)}; {said}. The best of them minus "
        f"everything {points(lead)}. Fresh adapters change the body's output by {percent(changed)} at most."
    )


@experiment(
    "adapters",
    rule="""Means over seeds. Reproduced if at some width with at most 5% of the weights trained the score is within 3
    points of full fine-tuning, and the fresh adapters change the body's output by less than 5% with every seed; partly
    if it is within 6 points; otherwise not at this scale.""",
    judge=_adapters,
    config=CONFIG,
)
def adapters(lab: Lab, seed: int) -> dict[str, float]:
    """Score and share of trained weights by width; how much fresh adapters change the output."""
    desk, values = Desk(lab, seed), compared(lab, seed, ("all labels",), ("everything",))
    for width in WIDTHS:
        result = desk.tune(METHODS["adapters"] | {"peft": partial(peft.adapters, width=width)})
        values[f"score/width {width}"] = result.score
        values[f"share trained/width {width}"] = peft.count(body_of(result)).share
    torch.manual_seed(seed)
    ids, body = desk.documents[0]["ids"], desk.model.stack.cpu().eval()
    with torch.no_grad():
        before, after = body(ids), peft.adapters(deepcopy(body), width=8)(ids)
    return values | {"changed at the start": float((after - before).norm() / before.norm())}


def _prefix(f: Figures) -> tuple[str, str]:
    leads = {labels: ahead(f, "prefix", labels) for labels in ("all labels", "few labels")}
    holds = [each.mean >= -NEAR for each in leads.values()]
    said = ", ".join(f"with {labels} {points(each)}" for labels, each in leads.items())
    return "reproduced" if all(holds) else "partly" if any(holds) else "not at this scale", (
        f"The prefix minus everything trained: {said}; it trains {f['trained/prefix'].mean:,.0f} of "
        f"{f['trained/everything'].mean:,.0f} weights."
    )


@experiment(
    "prefix-tuning",
    rule="""Means over seeds. Reproduced if the prefix is within 3 points of full fine-tuning with all labels and with
    few; partly if with one of the two.""",
    judge=_prefix,
    config=CONFIG,
    tried=[
        "Seed 0, F1 with all labels, beside the rule's 65% (everything trained: 78%): three times as many epochs, 69%; "
        "a prefix that begins as the keys and values of eight real words, 71%, at a third of the learning rate 64%. "
        "Its random start is a part of the reason, its short training another; neither is all of it."
    ],
)
def prefix_tuning(lab: Lab, seed: int) -> dict[str, float]:
    """Scores of the prefix and of everything, with all labels and with few."""
    return compared(lab, seed, ("all labels", "few labels", "trained"), ("everything", "prefix"))


def _prompt(f: Figures) -> tuple[str, str]:
    lead = gap(f, "all labels/prompt", "all labels/prefix")
    thrift = f["trained/prefix"].mean / f["trained/prompt"].mean
    thrifty = lead.mean >= -NEAR and thrift > 1
    sizes = names(f, "by size, everything")
    gaps = [gap(f, f"by size, everything/{size}", f"by size, prompt/{size}") for size in sizes]
    closing = difference(gaps[0], gaps[-1])
    closes = closing.interval is not None and closing.interval[0] > 0
    said = ", ".join(f"{size} {100 * each.mean:.0f}" for size, each in zip(sizes, gaps, strict=True))
    lengths = ", ".join(f"{length}: {percent(f[f'by length/{length}'].mean)}" for length in LENGTHS)
    return "reproduced" if thrifty and closes else "partly" if thrifty or closes else "not at this scale", (
        f"A prompt has {thrift:.0f} times fewer weights than the prefix; its score minus the prefix's {points(lead)}. "
        f"By length {lengths}. Points behind full fine-tuning by layers and width: {said}; from the smallest body to "
        f"the largest the gap closes by {points(closing)}."
    )


@experiment(
    "prompt-tuning",
    rule="""Means over seeds. Two halves: the prompt, with fewer weights, is within 3 points of the prefix; and of the
    family's four bodies, pretrained alike, the largest has a smaller gap between prompt and full fine-tuning than the
    smallest, with the 95% interval of the difference above zero. Reproduced if both hold, partly if one does.""",
    judge=_prompt,
    needs=lambda plan, seed: [family.size_arm(plan, seed, *size) for size in family.sizes(plan)],
    config=CONFIG,
    tried=[
        "The largest body, 2 x 144, learned its words badly: perplexity 113, the others have 26 to 27 (bert-size, "
        "the same arms), and no method does well on it. From the smallest to the best one, 2 x 96, the gap grows by 12 "
        "points: of these small bodies the larger profit more from being tuned whole."
    ],
)
def prompt_tuning(lab: Lab, seed: int) -> dict[str, float]:
    """Scores by the prompt's length, and by the size of the body, prompt against everything."""
    desk, plan = Desk(lab, seed), lab.plan
    values = compared(lab, seed, ("all labels", "trained"), ("everything", "prefix", "prompt"))
    for length in LENGTHS:
        method = METHODS["prompt"] | {"peft": partial(peft.prompt, length=length)}
        values[f"by length/{length}"] = desk.tune(method).score
    for layers, width in family.sizes(plan):
        desk.model, desk.tokenizer, _ = lab.model(family.size_arm(plan, seed, layers, width))
        for name in ("everything", "prompt"):
            values[f"by size, {name}/{layers} x {width}"] = desk.tune(METHODS[name]).score
    return values


def _qlora(f: Figures) -> tuple[str, str]:
    share = f["bytes/QLoRA"].mean / f["bytes/LoRA"].mean
    lead = gap(f, "all labels/QLoRA", "all labels/LoRA")
    verdict = "not at this scale" if share >= 1 else "reproduced" if lead.mean >= -NEAR else "partly"
    return verdict, (
        f"QLoRA takes {percent(share)} of LoRA's memory for weights, gradients and Adam, "
        f"{f['bits a weight'].mean:.3f} bits a quantised weight; its score minus LoRA's {points(lead)}."
    )


@experiment(
    "qlora",
    rule="""Reproduced if QLoRA takes less memory than LoRA and is within 3 points of it (mean over seeds); partly if
    it only takes less memory.""",
    judge=_qlora,
    config=CONFIG,
)
def qlora_memory(lab: Lab, seed: int) -> dict[str, float]:
    """Memory and scores of LoRA with and without the quantised base; bits a weight, counted."""
    matrix = zoo.load(BODY).model.stack.blocks[0].ff.up.weight
    values = compared(lab, seed, ("all labels", "few labels", "bytes"), ("everything", "LoRA", "QLoRA"))
    return values | {"bits a weight": nf4.quantise(matrix).bits / matrix.numel()}


def _overfits(f: Figures) -> tuple[str, str]:
    gaps = {name: gap(f, f"few labels, their own rows/{name}", f"few labels/{name}") for name in METHODS}
    less = {name: difference(gaps["everything"], gaps[name]) for name in FIVE}
    smaller = [name for name in FIVE if less[name].mean >= CLEAR]
    clear = [name for name in smaller if (less[name].interval or (0, 0))[0] > 0]
    said = ", ".join(f"{name} {100 * each.mean:.0f}" for name, each in gaps.items())
    verdict = "reproduced" if len(smaller) == len(FIVE) else "partly" if smaller else "not at this scale"
    return verdict, (
        f"Training minus test score with few labels, in points: {said}. Two points or more below full fine-tuning: "
        f"{', '.join(smaller) or 'none'}; of these with an interval above zero: {', '.join(clear) or 'none'}."
    )


@experiment(
    "peft-overfits-less",
    rule="""Means over seeds. Reproduced if with few labels the gap between training and test score is 2 points or more
    smaller than that of full fine-tuning for each of the five methods from BitFit to LoRA; partly if for at least
    one.""",
    judge=_overfits,
    config=CONFIG,
    tried=[
        "Seed 0, a third of the epochs: training minus test score is 23 points for everything trained, 14 for LoRA, 27 "
        "for the prompt. How far a method overfits hangs on the steps it gets as much as on its number of weights."
    ],
)
def overfits_less(lab: Lab, seed: int) -> dict[str, float]:
    """Scores on the few rows that were trained on, and on new ones, of every method."""
    return compared(lab, seed, ("few labels", "few labels, their own rows"), tuple(METHODS))


def _forgets(f: Figures) -> tuple[str, str]:
    rise = {name: gap(f, f"documents/{name}", "documents/pretrained") for name in ("everything", "LoRA")}
    lost = {name: gap(f, "first task/before", f"first task/then {name}") for name in ("everything", "LoRA")}
    holds = [rise["everything"].mean >= 0.2, lost["everything"].mean >= CLEAR]
    less = clearly_above(f, "documents/everything", "documents/LoRA") and clearly_above(
        f, "first task/then LoRA", "first task/then everything"
    )
    verdict = "reproduced" if all(holds) and less else "partly" if any(holds) else "not at this scale"
    out = gap(f, "first task/LoRA taken out", "first task/before")
    documents = ", ".join(f"{name} {each.mean:+.2f} nats" for name, each in rise.items())
    scores = ", ".join(f"{name} {100 * each.mean:.0f} points" for name, each in lost.items())
    return verdict, (
        f"Masked-LM loss on documents: {documents}. Lost of the first task: {scores}; with LoRA's update taken out "
        f"again it changes by {100 * out.mean:+.1f}."
    )


@experiment(
    "catastrophic-forgetting",
    rule="""Means over seeds. Reproduced if full fine-tuning raises the loss on documents by 0.2 or more and lowers the
    first task's score by 2 points or more, and LoRA does less of both, with 95% intervals of the differences above
    zero; partly if full fine-tuning does one of the two; otherwise not at this scale.""",
    judge=_forgets,
    config=CONFIG | {"first task": "pos"},
)
def forgetting(lab: Lab, seed: int) -> dict[str, float]:
    """Loss on documents after each method, and the first task's score before and after the second task."""
    desk, values = Desk(lab, seed), compared(lab, seed, ("documents",), ("pretrained", *METHODS))
    rows = desk.rows("pos")
    first = desk.tune(METHODS["everything"], rows)

    def again(body: Stack) -> float:
        """The first task's score with this body under the first task's head."""
        model = deepcopy(first.model)
        model.stack = body
        said = predict(replace(first, model=model), rows["test"])
        return replace(first, predictions=said).by(first.metric)

    values["first task/before"] = first.score
    for name in ("everything", "LoRA"):
        second = desk.tune(METHODS[name], body=body_of(first))
        values |= {f"first task/then {name}": again(body_of(second)), f"second task/{name}": second.score}
    for name, weight in body_of(second).named_parameters():
        weight.data *= not name.endswith("lora.b")
    return values | {"first task/LoRA taken out": again(body_of(second))}
