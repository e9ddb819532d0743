"""The experiments of the claims, one file a lesson. What they are all made of is imported from
here.
"""

from classroom.course import papers
from lab.engine import probes, small_models
from lab.engine.arms import Arm, sentences, town
from lab.engine.experiment import experiment, given, settings
from lab.engine.lab import Lab, Made, Plan, Tuning, fit, linear_config, task_rows, windows

MILLION, BILLION = 1e6, 1e9

__all__ = [
    "BILLION",
    "MILLION",
    "Arm",
    "Lab",
    "Made",
    "Plan",
    "Tuning",
    "experiment",
    "fit",
    "given",
    "linear_config",
    "papers",
    "probes",
    "sentences",
    "settings",
    "small_models",
    "task_rows",
    "town",
    "windows",
]
