"""A claim's rule applied to plain numbers."""

from collections.abc import Mapping, Sequence

from classroom.records import ledger, rules
from classroom.records.figures import figure


def judge(name: str, values: Mapping[str, float | Sequence[float]]) -> rules.Judgement:
    """values: by the figures' names in the record, one or some of several seeds; a single seed has
    no interval.
    """
    found = ledger.claim(name)
    seeds = {
        key: [value] if isinstance(value, float | int) else list(value)
        for key, value in values.items()
    }
    return rules.judge(
        found.rule,
        {key: figure(some, exact=found.kind != "measured") for key, some in seeds.items()},
    )
