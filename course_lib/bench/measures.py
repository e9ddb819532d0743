"""What is measured, of whom, and what is aimed at: the core (FINDINGS' targets), every family, and growth."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from course_lib.bench import contenders as c
from course_lib.bench import families as f
from course_lib.bench.contenders import Plan

PARTS = ("core", "families", "growth")


@dataclass(frozen=True)
class Measure:
    """One figure of several contenders. better: +1 more is better, -1 less is. against: what ours is divided by.

    targets: contender -> [(compared with, least, aim), ...], as ratios. figures: name -> (unit, better), where a
    contender gives several figures at once; then `unit` and `better` are theirs.
    """

    unit: str
    better: int
    contenders: Mapping[str, Callable[[Plan], Any]]
    against: str = "transformers"
    targets: dict[str, list[tuple[str, float, float]]] = field(default_factory=dict)
    figures: dict[str, tuple[str, int]] = field(default_factory=dict)
    part: str = "core"


def measures() -> dict[str, Measure]:
    """Everything that is measured. Targets are FINDINGS': least, aim."""
    lesson = "import course_lib.heads, course_lib.train, course_lib.generate, course_lib.trace, course_lib.hf"
    found = {
        f"training GPT {size}": Measure(
            "tokens/s",
            +1,
            {
                "transformers": c.loop_gpt(size),
                "Trainer": c.trainer_gpt(size),
                "course fp32": c.train_gpt(size, "fp32"),
                "course bf16": c.train_gpt(size, "bf16"),
            },
            targets={"course bf16": [("transformers", *loop), ("Trainer", *trainer)]},
        )
        for size, loop, trainer in (("S", (1.35, 1.6), (1.5, 1.8)), ("M", (1.9, 2.3), (2.0, 2.4)))
    }
    found["training BERT M"] = Measure(
        "tokens/s",
        +1,
        {
            "transformers": c.loop_bert("M"),
            "course fp32": c.train_bert("M", "fp32"),
            "course bf16": c.train_bert("M", "bf16"),
        },
        targets={"course fp32": [("transformers", 1.7, 1.9)], "course bf16": [("transformers", 2.5, 3.0)]},
    )
    for batch, fp32, bf16 in ((1, (1.0, 1.2), (1.0, 1.2)), (16, (1.1, 1.2), (2.0, 2.5))):
        found[f"generation, batch {batch}"] = Measure(
            "tokens/s",
            +1,
            {
                "transformers": c.generate_theirs(batch, bf16=False),
                "transformers bf16": c.generate_theirs(batch, bf16=True),
                "course fp32": c.generate_ours(batch, bf16=False),
                "course bf16": c.generate_ours(batch, bf16=True),
            },
            targets={"course fp32": [("transformers", *fp32)], "course bf16": [("transformers", *bf16)]},
        )
    found["peak memory, training GPT M"] = Measure(
        "MiB",
        -1,
        {
            "transformers": c.peak_memory(c.loop_gpt("M"), "transformers"),
            "course fp32": c.peak_memory(c.train_gpt("M", "fp32"), "course_lib.train"),
            "course bf16": c.peak_memory(c.train_gpt("M", "bf16"), "course_lib.train"),
        },
        targets={"course bf16": [("transformers", 0.85, 0.6)]},
    )
    found["import"] = Measure(
        "CPU s",
        -1,
        {
            "torch": c.importing("import torch"),
            "course_lib": c.importing(lesson),
            "transformers": c.importing("from transformers import BertModel, GPT2LMHeadModel"),
        },
        against="torch",
        targets={"course_lib": [("torch", 1.3, 1.1)]},
    )
    for name, family in f.FAMILIES.items():
        sides = {"transformers": f.public(name), "course fp32": f.course(name, "fp32")}
        figures = {figure: f.UNITS[figure] for figure in family.figures()}
        found[name] = Measure("", 0, sides | {"course bf16": f.course(name, "bf16")}, figures=figures, part="families")
    for axis in f.AXES:
        grown = {"transformers": f.growth(axis, ours=False), "course fp32": f.growth(axis, ours=True)}
        found[f"growth with {axis}"] = Measure("", 0, grown, figures=f.growth_units(axis), part="growth")
    return found
