"""The batch that every parity test runs on, and how much of generation's grids a quick run
takes.
"""

import random

import pytest
import torch

GRIDS = "test_generate.py"
SAMPLE = 40  # points of the grids that a slow run takes beside the quick ones


@pytest.fixture
def batch() -> dict[str, torch.Tensor]:
    """Three rows of 11, 7 and 1 real tokens, padded on the right."""
    rng = torch.Generator().manual_seed(1)
    ids = torch.randint(5, 60, (3, 11), generator=rng)
    attention_mask = torch.arange(11) < torch.tensor([[11], [7], [1]])
    segments = (torch.arange(11) > 3).long().expand(3, 11) * attention_mask
    return {"ids": ids * attention_mask, "attention_mask": attention_mask, "segments": segments}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of generation's grids a quick run takes points at random until every value of every parameter
    has come up in each test. Of the others a slow run takes a sample, and the nightly one all."""
    grid = [item for item in items if item.path.name == GRIDS and hasattr(item, "callspec")]
    random.Random(0).shuffle(grid)
    seen: set[tuple[str, str, str]] = set()
    left_out = 0
    for item in grid:
        test = f"{item.path.name}::{item.originalname}"  # type: ignore[attr-defined]
        values = {(test, name, str(value)) for name, value in item.callspec.params.items()}  # type: ignore[attr-defined]
        if values <= seen:
            item.add_marker(pytest.mark.slow)
            left_out += 1
            if left_out > SAMPLE:
                item.add_marker(pytest.mark.nightly)
        seen |= values
