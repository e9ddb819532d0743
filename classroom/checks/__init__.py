"""The students' checks: `checks.softmax_attention(fn)` prints what is right or names the likely
mistake.

Each is an `Exercise`, declared in a module of a room; calling it returns a `CheckResult`, true if
the answer is right."""

import importlib
import pkgutil

from classroom.checks.base import CheckResult
from classroom.checks.exercise import Exercise

EXERCISES: dict[str, Exercise] = {}
for found in pkgutil.walk_packages(__path__, f"{__name__}."):
    declared = vars(importlib.import_module(found.name))
    EXERCISES |= {name: value for name, value in declared.items() if isinstance(value, Exercise)}
globals().update(EXERCISES)
__all__ = ["EXERCISES", "CheckResult", *EXERCISES]
