"""What a claim's experiment is: a rule, the function that applies it, and the function that measures."""

import hashlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from course_lib.claims.ledger import Claim, claim
from course_lib.claims.record import VERDICTS, Figures, Verdict
from course_lib.errors import CourseError

if TYPE_CHECKING:
    from course_lib.claims.arms import Arm
    from course_lib.claims.lab import Lab, Plan

MODULES = {  # lesson -> where its claims' experiments are
    "01_self_attention": ("attention",),
    "02_transformer": ("transformer",),
    "03_positions": ("positions",),
    "04_word_embeddings": ("words",),
    "05_tokenization": ("exact",),
    "06_elmo": ("elmo",),
    "07_transfer": ("transfer",),
    "08_gpt1": ("gpt1",),
    "09_bert": ("bert", "bert_arms"),
    "10_bert_finetuning": ("finetuning",),
    "11_inside_bert": ("inside",),
    "12_roberta": ("roberta",),
    "13_distilbert": ("distil",),
    "14_electra": ("electra",),
    "15_sbert": ("exact", "sbert"),
    "16_bart": ("exact", "bart"),
    "17_t5": ("exact", "t5"),
    "18_gpt2": ("computed", "gpt2"),
    "19_gpt3": ("computed", "gpt3"),
    "20_peft": ("peft",),
    "21_choosing": ("computed", "choosing"),
}
Measure = Callable[["Lab", int], dict[str, float]]  # lab, seed -> the figures' values with that seed
Judge = Callable[[Figures], tuple[str, str]]  # figures -> verdict and, in a sentence or two, why
Needs = Callable[["Plan", int], Sequence["Arm"]]

_FOUND: dict[str, "Experiment"] = {}


@dataclass(frozen=True)
class Experiment:
    """How one claim is tested.

    rule: when the verdict is which, in words. judge: the same as a function of the figures, and of nothing else.
    measure: one seed's values by name; the same names with every seed. needs: the pretraining arms that it asks the
    lab for, which are then trained beforehand, side by side. config: settings beside the plan's. tried: what was tried
    to find out why the claim does not show.
    """

    id: str
    rule: str
    judge: Judge
    measure: Measure
    needs: Needs
    config: dict[str, Any]
    tried: tuple[str, ...]

    @property
    def claim(self) -> Claim:
        """The ledger's row."""
        return claim(self.id)

    @property
    def rule_hash(self) -> str:
        """Of the rule's text and of its function: a record made under another rule is out of date."""
        source = " ".join(inspect.getsource(self.judge).split())
        return hashlib.sha256(f"{self.rule}\n{source}".encode()).hexdigest()[:12]

    def verdict(self, figures: Figures) -> tuple[Verdict, str]:
        """The rule applied."""
        verdict, why = self.judge(figures)
        if verdict not in VERDICTS:
            raise CourseError(f"The rule of {self.id} says {verdict!r}; a verdict is one of {', '.join(VERDICTS)}.")
        return cast(Verdict, verdict), why


def experiment(
    name: str,
    *,
    rule: str,
    judge: Judge,
    needs: Needs = lambda plan, seed: (),
    config: dict[str, Any] | None = None,
    tried: Sequence[str] = (),
) -> Callable[[Measure], Measure]:
    """Register the decorated function as the experiment of a claim."""

    def register(measure: Measure) -> Measure:
        _FOUND[name] = Experiment(name, " ".join(rule.split()), judge, measure, needs, config or {}, tuple(tried))
        return measure

    return register


def find(name: str) -> Experiment | None:
    """The experiment of a claim, None where none has been written yet.

    Raises:
        CourseError: no such claim.
    """
    for module in MODULES.get(claim(name).lesson, ()):
        import_module(f"course_lib.experiments.{module}")
    return _FOUND.get(name)
