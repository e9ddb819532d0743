"""The batch that every parity test runs on."""

import pytest
import torch


@pytest.fixture
def batch() -> dict[str, torch.Tensor]:
    """Three rows of 11, 7 and 1 real tokens, padded on the right."""
    rng = torch.Generator().manual_seed(1)
    ids = torch.randint(5, 60, (3, 11), generator=rng)
    keep = torch.arange(11) < torch.tensor([[11], [7], [1]])
    segments = (torch.arange(11) > 3).long().expand(3, 11) * keep
    return {"ids": ids * keep, "keep": keep, "segments": segments}
