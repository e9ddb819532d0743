"""The interval of a share."""

from collections.abc import Sequence
from math import sqrt


def percent(right: Sequence[bool]) -> tuple[float, float, float]:
    """The share of right answers in percent, (share, low, high) of its 95% interval.

    The interval is Wilson's (1927): it says what other questions of the same kind would give, and
    stays between 0 and 100.

    >>> percent([True] * 19 + [False] * 81)
    (19.0, 12.51..., 27.77...)
    """
    n = len(right)
    share = float(sum(right)) / n
    z = 1.96  # 95% of a normal distribution
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return 100 * share, max(0.0, 100 * (middle - half)), min(100.0, 100 * (middle + half))
