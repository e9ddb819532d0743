"""Where a text repeats a pair of tokens."""

import pytest
import torch

from course_lib.analysis.copy_probe import looked_at_alike, repeated_pairs


@pytest.mark.parametrize(
    ("ids", "places"),
    [
        ([1, 2, 3, 4], []),
        ([1, 2, 1, 2], [(2, 1)]),
        ([1, 2, 1, 2, 9, 1, 2], [(2, 1), (5, 3)]),  # the last occurrence, not the first
        ([7, 7, 7, 7], []),  # what comes after t must stand before t
        ([], []),
    ],
)
def test_repeated_pairs(ids: list[int], places: list[tuple[int, int]]) -> None:
    t, s = repeated_pairs(torch.tensor(ids))
    assert list(zip(t.tolist(), s.tolist(), strict=True)) == places
    assert all(ids[later + 1] == ids[earlier] for later, earlier in places)


def test_looked_at_alike_takes_neither_start_nor_key_nor_query() -> None:
    weights = torch.full((6, 6), 0.5)
    weights[5] = torch.tensor([0.30, 0.10, 0.28, 0.30, 0.02, 0.30])
    queries = torch.tensor([5, 4])
    keys = torch.tensor([3, 1])
    assert looked_at_alike(weights, queries, keys).tolist() == [2, 2]
