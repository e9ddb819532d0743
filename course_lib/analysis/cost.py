"""What a transformer costs, from its configuration alone, and how the loss falls with the cost.

A FLOP is one addition or one multiplication; 1e9 bytes are a gigabyte.

    # GPT-3 (Brown et al. 2020, table D.1: 3.64E+03)
    >>> round(petaflop_days(training_flops(174.6e9, 300e9)), 1)
    3637.5
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from course_lib.errors import CourseError
from course_lib.model.config import StackConfig, Window
from course_lib.model.heads import LM
from course_lib.model.transformer import Transformer

PETAFLOP_DAY = 1e15 * 86400


class _Unfilled(TorchFunctionMode):
    """Leave weights without random values; the meta device would pretend to draw them, slowly."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # The functions of torch.nn.init pass all their arguments by name.
        if getattr(func, "__module__", "") == "torch.nn.init":
            return kwargs["tensor"]
        return func(*args, **kwargs)


def parameters(model: StackConfig | Callable[[], nn.Module]) -> int:
    """How many weights a model has, shared ones once, without memory for them.

    Args:
        model: a configuration, for a language model whose token vectors are the output matrix; or
            a function that builds a model: `lambda: heads.MLM(Transformer(config))`.
    """
    with torch.device("meta"), _Unfilled():
        built = LM(Transformer(model)) if isinstance(model, StackConfig) else model()
    return sum(weight.numel() for weight in built.parameters())


def training_flops(parameters: float, tokens: float, *, per_parameter: float = 6.0) -> float:
    """6 N D: each token passes each weight once forward and twice backward.

    A pass is a multiplication and an addition (Kaplan et al. 2020, section 2.1; Brown et al. 2020,
    appendix D).

    Args:
        parameters: N, the number of weights.
        tokens: D, the number of tokens of the whole training.
        per_parameter: operations for each weight and token: 6 for training, 2 for the forward pass
            alone, 3 if a token passes only half of the weights, as in an encoder-decoder.
    """
    return per_parameter * parameters * tokens


def petaflop_days(flops: float) -> float:
    """FLOPs in petaflop/s-days, the unit of GPT-3's table D.1: 8.64e19 operations each."""
    return flops / PETAFLOP_DAY


def forward_flops(
    config: StackConfig, length: int, *, outputs: int | None = None, memory: int = 0
) -> int:
    """Operations of one forward pass over one text. Only matrix products are counted.

    Args:
        config: the stack's configuration. In a causal stack a token attends to itself and to the
            tokens before it.
        length: the length of the text in tokens.
        outputs: the number of positions with logits; by default all of them.
        memory: the length of the source, for a stack with cross-attention.

    Raises:
        CourseError: if memory is given without cross-attention, or missing with it.
    """
    if config.cross != (memory > 0):
        raise CourseError(
            "memory is the source's length: give it for a stack with cross-attention, and only"
            " there."
        )
    inner = config.heads * config.dh

    # A product of a token's vector with a matrix takes 2 operations for each weight.
    attention_weights = 4 * config.width * inner  # q, k, v and out
    matrices = 3 if config.gated else 2
    feed_forward_weights = matrices * config.width * config.hidden
    layer = 2 * length * (attention_weights + feed_forward_weights)
    if config.cross:
        # q and out of every token, k and v of every token of the source, attention between them
        layer += 4 * config.width * inner * (length + memory) + 4 * length * memory * inner

    # Attention: q k and the weighted sum of v take 2 operations for each number and token seen.
    seen = sum(_seen(config, number, length) for number in range(config.layers))
    attention = 4 * length * seen * inner

    # Token vectors may be narrower than the stack (ALBERT); then a matrix widens them.
    narrow = config.embed.width or config.width
    widened = 2 * length * narrow * config.width if narrow != config.width else 0
    rows = length if outputs is None else outputs
    scores = 2 * rows * narrow * config.embed.vocab
    return round(config.layers * layer + attention) + widened + scores


def _seen(config: StackConfig, layer: int, length: int) -> float:
    """The mean number of positions that a token of this layer attends to, itself included."""
    pattern = config.pattern(layer)
    reach = min(pattern.size if isinstance(pattern, Window) else length, length - 1)
    # On each side the first token lacks all `reach` neighbours, the next one fewer, and so on.
    one_side = reach - reach * (reach + 1) / (2 * length)
    return 1 + one_side if config.causal else 1 + 2 * one_side


def kv_cache_bytes(config: StackConfig, length: int) -> int:
    """Keys and values of a text of `length` tokens in every layer, in half precision."""
    return 2 * 2 * config.layers * length * config.heads * config.dh


def training_bytes(parameters: float, *, trained: float | None = None) -> float:
    """Weights, gradients and Adam's state in mixed precision, without activations.

    A trained weight takes 16 bytes: weight and gradient in half precision (2 + 2), a copy in single
    precision, mean and variance (4 + 4 + 4). A frozen one takes 2 (Rajbhandari et al. 2020, section
    3.1).

    Args:
        parameters: the number of all weights, LoRA's included.
        trained: the number of trained weights; by default all of them.
    """
    if trained is None:
        trained = parameters
    return 2 * parameters + 14 * trained


@dataclass(frozen=True)
class Accelerator:
    """A GPU by its data sheet.

    Attributes:
        name: the name in tables.
        flops: dense operations in half precision for each second.
        memory: bytes.
        watts: the largest power.
    """

    name: str
    flops: float
    memory: float
    watts: float


DEVICES = {
    "V100": Accelerator("V100", 125e12, 32e9, 300),
    "A100": Accelerator("A100", 312e12, 80e9, 400),
    "H100": Accelerator("H100", 989e12, 80e9, 700),
    "H200": Accelerator("H200", 989e12, 141e9, 700),
}


@dataclass(frozen=True)
class Bill:
    """What a computation takes: days with all devices at work, and sums over the devices."""

    days: float
    device_hours: float
    kwh: float
    money: float
    kg_co2: float


def bill(
    flops: float,
    on: Accelerator,
    *,
    devices: int = 1,
    utilisation: float = 0.4,
    price: float = 2.0,
    overhead: float = 1.1,
    grid: float = 400.0,
) -> Bill:
    """What a computation takes.

    Args:
        flops: the number of operations.
        on: the device.
        devices: the number of devices that work at once.
        utilisation: the share of the peak rate. Large trainings reach 0.3 to 0.5.
        price: the price of one device for one hour.
        overhead: the building's electricity divided by that of the devices (PUE).
        grid: grams of CO2 for each kilowatt hour.
    """
    hours = flops / (on.flops * utilisation) / 3600
    kwh = hours * on.watts / 1000 * overhead
    return Bill(hours / devices / 24, hours, kwh, hours * price, kwh * grid / 1000)


@dataclass(frozen=True)
class PowerLaw:
    """L(x) = (scale / x) ** exponent.

    Attributes:
        scale: the size at which the loss would be 1.
        exponent: how fast the loss falls.
        interval: the 95% confidence interval of the exponent.
        residuals: log L - log L(x) of each measurement.
    """

    scale: float
    exponent: float
    interval: tuple[float, float]
    residuals: tuple[float, ...]

    def __call__(self, x: float) -> float:
        return float((self.scale / x) ** self.exponent)


def fit_power_law(x: Sequence[float], loss: Sequence[float]) -> PowerLaw:
    """The power law with the least squared error in log loss (Kaplan et al. 2020, section 3).

    It is a linear regression. The interval, by Student's t, is honest for independent errors of
    equal relative size.

    Args:
        x: sizes: parameters, tokens or operations.
        loss: at each size.

    Raises:
        CourseError: if there are too few measurements, or the loss does not fall.
    """
    from scipy.stats import linregress, t

    if len(x) != len(loss) or len(x) < 3 or len(set(x)) < 2 or not min(*x, *loss) > 0:
        raise CourseError(
            "A power law takes 3 measurements at 2 different sizes, a loss for each, all above 0."
        )
    log_x = np.log(x)
    log_loss = np.log(loss)
    line = linregress(log_x, log_loss)
    if not line.slope < 0:
        raise CourseError(
            "The loss does not fall with size, so there is no power law; look at the measurements."
        )
    exponent = -line.slope
    half = t.ppf(0.975, len(x) - 2) * line.stderr  # half the width of the interval
    return PowerLaw(
        scale=float(np.exp(line.intercept / exponent)),
        exponent=float(exponent),
        interval=(float(exponent - half), float(exponent + half)),
        residuals=tuple((log_loss - line.intercept - line.slope * log_x).tolist()),
    )


@dataclass(frozen=True)
class LawWithFloor:
    """L(x) = floor + (scale / x) ** exponent.

    Attributes:
        floor: the irreducible loss, which no size removes (Henighan et al. 2020, equation 1.1). For
            text it is the entropy of the text itself.
        scale: the size at which the loss would be 1 above the floor.
        exponent: how fast the loss falls towards the floor.
    """

    floor: float
    scale: float
    exponent: float

    def __call__(self, x: float) -> float:
        return float(self.floor + (self.scale / x) ** self.exponent)


def fit_law_with_floor(x: Sequence[float], loss: Sequence[float]) -> LawWithFloor:
    """The power law with an irreducible loss that has the least squared error in log loss.

    For each floor the rest is a straight line between log(loss - floor) and log x. So only the
    floor is searched, between 0 and just below the lowest loss.

    Args:
        x: sizes: parameters, tokens or operations.
        loss: at each size.

    Raises:
        CourseError: if there are too few measurements, or the loss does not fall.
    """
    if len(set(x)) < 4:
        raise CourseError(
            "A power law with an irreducible loss has three numbers to find; measure at least 4"
            " different sizes."
        )
    without = fit_power_law(x, loss)
    best = LawWithFloor(0.0, without.scale, without.exponent)
    log_x = np.log(x)
    log_loss = np.log(loss)
    lowest_error = float(np.square(without.residuals).sum())
    for floor in np.linspace(0, min(loss), 2000, endpoint=False)[1:]:
        slope, intercept = np.polyfit(log_x, np.log(np.array(loss) - floor), 1)
        fitted = floor + np.exp(intercept + slope * log_x)
        error = float(np.square(np.log(fitted) - log_loss).sum())
        if error < lowest_error and slope < 0:
            lowest_error = error
            best = LawWithFloor(float(floor), float(np.exp(-intercept / slope)), float(-slope))
    return best


def frontier(compute: Sequence[float], loss: Sequence[float]) -> list[int]:
    """The indices of the measurements on the compute frontier, by compute.

    No other measurement has a lower loss at equal or less compute (Kaplan et al. 2020, figure 1).

    >>> frontier(compute=[1, 2, 3], loss=[5.0, 6.0, 4.0])
    [0, 2]
    """
    best = float("inf")
    unbeaten = []
    for i in sorted(range(len(loss)), key=lambda i: (compute[i], loss[i])):
        if loss[i] < best:
            best = loss[i]
            unbeaten.append(i)
    return unbeaten
