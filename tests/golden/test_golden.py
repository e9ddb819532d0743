"""The library still gives the values of golden.json (see collect.py)."""

import json

import pytest

from tests.golden import collect


@pytest.mark.parametrize("group", collect.GROUPS)
def test_values_are_as_they_were(group: str) -> None:
    expected = json.loads(collect.GOLDEN.read_text(encoding="utf-8"))[group]
    odd = collect.differences(expected, collect.compute(group))
    assert not odd, f"{group}: {len(odd)} values differ\n  " + "\n  ".join(odd[:40])
