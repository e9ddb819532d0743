"""Scaling laws: how loss falls with size, data or compute, as a power law fitted to measurements (Kaplan et al. 2020).

law = fit([0.2e6, 0.4e6, 0.8e6, 1.6e6, 3.2e6], [4.1, 3.7, 3.4, 3.1, 2.9])
law.exponent, law.interval        # alpha and its 95% confidence interval
law(6.4e6)                        # what the law says of twice the size
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from course_lib.errors import CourseError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class PowerLaw:
    """L(x) = floor + (scale / x) ** exponent.

    scale: C, the x at which the part above the floor is 1. exponent: alpha. floor: what no size removes, the entropy of
    the text itself; 0 if it was not fitted. interval: of the exponent, at the level asked for. residuals: of each
    measurement log L - log L(x).
    """

    scale: float
    exponent: float
    floor: float
    interval: tuple[float, float]
    residuals: tuple[float, ...]

    def __call__(self, x: float) -> float:
        """The loss at x, in the unit of the losses."""
        if not x > 0:
            raise CourseError(f"A power law is asked at a size above 0, not at {x}.")
        return float(self.floor + (self.scale / x) ** self.exponent)

    def needed(self, loss: float) -> float:
        """The x at which the law has this loss.

        Raises:
            CourseError: the loss is at or below the floor.
        """
        if not loss > self.floor:
            raise CourseError(f"No size reaches the loss {loss}; the law's floor is {self.floor:.4g}.")
        return float(self.scale / (loss - self.floor) ** (1 / self.exponent))


def fit(x: Sequence[float], loss: Sequence[float], *, floor: bool = False, confidence: float = 0.95) -> PowerLaw:
    """The power law with the least squared error in log loss.

    Without a floor log L = alpha (log C - log x), a straight line: linear regression, the interval by Student's t. With
    one, the three parameters are searched for, and the interval is that of the curve straightened at the best point. It
    is honest for independent errors of equal relative size; seeds may repeat an x.

    Args:
        x: parameters, tokens or FLOPs, in any unit. loss: of each, in nats. floor: fit the irreducible part as well,
            which takes measurements over a wide range. confidence: level of the interval.

    Raises:
        CourseError: fewer measurements than parameters and one more, fewer different sizes than parameters, numbers
            that are not above 0, losses that do not fall.
    """
    sizes, losses = np.asarray(x, dtype=float), np.asarray(loss, dtype=float)
    free = 3 if floor else 2
    if sizes.shape != losses.shape or sizes.ndim != 1:
        raise CourseError(f"Each size needs one loss; there are {sizes.size} sizes and {losses.size} losses.")
    if not (np.isfinite(sizes).all() and np.isfinite(losses).all() and (sizes > 0).all() and (losses > 0).all()):
        raise CourseError("A power law is fitted to finite sizes and losses above 0; one of these is not.")
    if len(sizes) <= free or len(np.unique(sizes)) < free:
        raise CourseError(
            f"A power law {'with a floor ' if floor else ''}takes at least {free + 1} measurements at {free} different "
            f"sizes; there are {len(sizes)} at {len(np.unique(sizes))}."
        )
    if not 0 < confidence < 1:
        raise CourseError(f"The confidence is {confidence}; it lies between 0 and 1.")
    middle = float(np.log(sizes).mean())  # around it height and slope of a line do not hang together
    v, y = np.log(sizes) - middle, np.log(losses)
    slope, height = np.polyfit(v, y, 1)
    if slope >= 0:
        raise CourseError("The loss does not fall with size, so there is no power law; look at the measurements.")
    best = _with_floor(v, y, height, -slope) if floor else np.array([height, -slope])
    residuals = y - _log_loss(best, v)
    exponent = float(best[1])
    return PowerLaw(
        scale=float(np.exp(middle + best[0] / exponent)),
        exponent=exponent,
        floor=float(best[2]) if floor else 0.0,
        interval=_interval(_jacobian(best, v), residuals, exponent, confidence),
        residuals=tuple(map(float, residuals)),
    )


def _log_loss(parameters: Array, v: Array) -> Array:
    """log(floor + exp(height - exponent v)), v = log x less its mean; parameters: height, exponent, perhaps floor."""
    falling = np.exp(parameters[0] - parameters[1] * v)
    return np.asarray(np.log(falling + parameters[2:].sum()))


def _jacobian(parameters: Array, v: Array) -> Array:
    """How `_log_loss` changes with each parameter, [measurements, parameters]."""
    falling = np.exp(parameters[0] - parameters[1] * v)
    columns = [falling, -v * falling, np.ones_like(v)]
    return np.asarray(np.stack(columns[: len(parameters)], axis=1) / (falling + parameters[2:].sum())[:, None])


def _with_floor(v: Array, y: Array, height: float, exponent: float) -> Array:
    """Least squares from several floors between 0 and the least loss, of which the best counts."""
    from scipy.optimize import least_squares

    least = float(np.exp(y.min()))
    found = []
    for share in (0.0, 0.5, 0.9):
        begin = [np.log(np.exp(y.mean()) - share * least), exponent / (1 - share), share * least]
        found.append(
            least_squares(
                lambda p: _log_loss(p, v) - y,
                begin,
                jac=lambda p: _jacobian(p, v),
                bounds=([-np.inf, 1e-9, 0.0], [np.inf, np.inf, least]),
                x_scale="jac",
                xtol=1e-14,
                ftol=1e-14,
                gtol=1e-14,
            )
        )
    return np.asarray(min(found, key=lambda result: result.cost).x)


def _interval(jacobian: Array, residuals: Array, exponent: float, confidence: float) -> tuple[float, float]:
    from scipy.stats import t

    free = len(residuals) - jacobian.shape[1]
    variance = float(residuals @ residuals) / free * np.linalg.pinv(jacobian.T @ jacobian)[1, 1]
    half = float(t.ppf((1 + confidence) / 2, free) * np.sqrt(variance))
    return exponent - half, exponent + half


def frontier(compute: Sequence[float], loss: Sequence[float]) -> list[int]:
    """Numbers of the measurements that none beats at equal or less compute, by compute: the compute-optimal frontier.

    Of a curve of loss against FLOPs for each size, these are the points that a law of compute is fitted to (Kaplan et
    al. 2020, figure 1).
    """
    if len(compute) != len(loss) or len(loss) == 0:
        raise CourseError(f"Each compute needs one loss; there are {len(compute)} and {len(loss)}.")
    best, kept = np.inf, []
    for i in sorted(range(len(loss)), key=lambda i: (compute[i], loss[i])):
        if loss[i] < best:
            best = loss[i]
            kept.append(i)
    return kept
