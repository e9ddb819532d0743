"""The experiments of the claims, one file a lesson. What they are all made of is imported from here."""

from classroom.records.ledger import published
from classroom.records.record import Figures
from experiments.engine import judging as rule
from experiments.engine import probes, small_models
from experiments.engine.arms import Arm, sentences, town
from experiments.engine.experiment import experiment, given, settings, suite
from experiments.engine.lab import Lab, Made, Plan, Tuning, fit, task_rows, windows

__all__ = [
    "Arm", "Figures", "Lab", "Made", "Plan", "Tuning", "experiment", "fit", "given", "probes",
    "published", "rule", "sentences", "settings", "small_models", "suite", "task_rows", "town", "windows",
]  # fmt: skip
