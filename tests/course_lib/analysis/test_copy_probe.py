"""Where a text repeats a pair of tokens."""

import pytest
import torch

from course_lib.analysis.copy_probe import repeated_pairs


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
