"""Names and config fields that the commands need before torch is imported.

A field that is made by `setting` is also an option of the config's command:

    steps: int = setting(1000, "Updates in all.", at_least=1)    # pretrain --steps 1000
"""

from dataclasses import field
from typing import Any, Literal

# The names of `optim.SCHEDULES` and of `optim.OPTIMIZERS`.
ScheduleName = Literal["constant", "linear", "cosine", "wsd"]
OptimizerName = Literal["adamw", "muon"]
# The names of `objectives.SPAN_SAMPLERS`.
MaskUnit = Literal["tokens", "words", "spans", "ngrams"]
Precision = Literal["fp32", "bf16", "auto"]


def setting(
    default: Any,
    help: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    flag: str | None = None,
) -> Any:
    """A field of a config dataclass that a command takes as an option.

    Args:
        default: the field's value if none is given.
        help: what it means, in one or two sentences; `--help` shows it.
        at_least: the smallest value that the command takes.
        at_most: the largest.
        flag: the option's name, where it is not the field's; "--on/--off" for a bool.
    """
    about = {"help": help, "at_least": at_least, "at_most": at_most, "flag": flag}
    return field(default=default, metadata=about)
