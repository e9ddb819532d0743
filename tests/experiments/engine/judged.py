"""A claim's rule applied to plain numbers."""

from collections.abc import Mapping, Sequence

from classroom.records.record import Verdict, figure
from experiments.engine.experiment import find


def judge(name: str, values: Mapping[str, float | Sequence[float]]) -> tuple[Verdict, str]:
    """values: by the figures' names in the record, one or some of several seeds; a single seed has no interval."""
    found = find(name)
    seeds = {key: [value] if isinstance(value, float | int) else list(value) for key, value in values.items()}
    return found.verdict({key: figure(some, exact=found.claim.kind != "measured") for key, some in seeds.items()})
