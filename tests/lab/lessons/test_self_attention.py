"""Where two costs are even, read from a few lengths."""

import pytest

from lab.lessons.self_attention import even


@pytest.mark.parametrize("lengths", [[10, 100, 1000], [10, 100, 200, 400]])
def test_even_where_the_ratio_is_one(lengths: list[int]) -> None:
    ratios = [(n / 150) ** 0.5 for n in lengths]  # 1 at 150
    assert even(lengths, ratios) == pytest.approx(150)


def test_even_beyond_the_last_length() -> None:
    assert even([10, 20], [0.1, 0.2]) == pytest.approx(100)
