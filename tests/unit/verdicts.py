"""What the tests of the claims' rules share: figures in, the verdict out, and a reason that can be read."""

from collections.abc import Mapping, Sequence

from course_lib.claims import Figures
from course_lib.claims.experiment import find
from course_lib.claims.record import figure

YES, PARTLY, NO = "reproduced", "partly", "not at this scale"
Values = dict[str, list[float]]


def around(value: float, noise: float = 0.01) -> list[float]:
    """Three seeds that scatter a little."""
    return [value - noise, value, value + noise]


def made(values: Mapping[str, float | Sequence[float]]) -> Figures:
    """Figures of these seeds; of a claim without chance, of one number each."""
    return {
        name: figure([value], exact=True) if isinstance(value, int | float) else figure(list(value))
        for name, value in values.items()
    }


def judged(claim: str, values: Mapping[str, float | Sequence[float]]) -> str:
    """The verdict of the claim's rule on these figures."""
    test = find(claim)
    assert test is not None
    verdict, why = test.verdict(made(values))
    assert why.endswith("."), why
    assert "nan" not in why, why
    return verdict
