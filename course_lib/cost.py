"""What a transformer costs, from its configuration alone: parameters, operations, memory, time, energy, money.

All are pure functions of numbers; nothing is measured and no weight is made. A FLOP is one addition or one
multiplication; bytes are bytes (1e9 to a gigabyte); seconds are seconds.

    >>> petaflop_days(training_flops(174.6e9, 300e9))      # GPT-3 (Brown et al. 2020, table D.1: 3.64E+03)
    3637.5
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import nn

from course_lib.config import StackConfig
from course_lib.errors import CourseError
from course_lib.heads import LM
from course_lib.stack import Stack

PETAFLOP_DAY = 1e15 * 86400


def parameters(model: StackConfig | Callable[[], nn.Module]) -> int:
    """How many weights a model has, shared ones once; counted on the meta device, so that any size takes no memory.

    Args:
        model: a configuration, for its stack with the token vectors as output matrix; or what builds the model,
            `lambda: heads.MLM(Stack(config))`.
    """
    with torch.device("meta"):
        if not isinstance(model, StackConfig):
            return _count(model())
        built = LM(Stack(replace(model, layers=1)))  # all layers are alike, and 96 take their time
    return _count(built) + (0 if model.shared else model.layers - 1) * _count(built.stack.blocks)


def training_flops(parameters: float, tokens: float, *, per_parameter: float = 6.0) -> float:
    """6 N D: each token passes each weight once forward, a multiplication and an addition, and twice backward
    (Kaplan et al. 2020, section 2.1; Brown et al. 2020, appendix D).

    Args:
        parameters: N, of which all serve every token. tokens: D, seen in training, repetitions included.
        per_parameter: 3 where a token passes only half of the weights, as in an encoder-decoder (T5).
    """
    _positive(parameters=parameters, tokens=tokens, per_parameter=per_parameter)
    return per_parameter * parameters * tokens


def inference_flops(parameters: float, tokens: float = 1.0) -> float:
    """2 N for each token read or written: the forward third of `training_flops`."""
    return training_flops(parameters, tokens, per_parameter=2.0)


def petaflop_days(flops: float) -> float:
    """In petaflop/s-days, 8.64e19 operations each: the unit of GPT-3's table D.1."""
    return flops / PETAFLOP_DAY


def forward_flops(config: StackConfig, length: int, *, outputs: int | None = None, memory: int = 0) -> int:
    """Operations of one forward pass over one text, counted from its matrix products; training takes three times that.

    What 2 N leaves out, the products inside attention that grow with the length, is in; norms, activations, softmax,
    position schemes and what a head has beside the output matrix are not. A causal token counts what it may see.

    Args:
        length: T, tokens of the text.
        outputs: at so many positions the vocabulary's scores are computed; at all by default.
        memory: tokens of the source that a stack with cross-attention reads (as a first decoding pass does).
    """
    _positive(length=length)
    if config.cross != (memory > 0):
        raise CourseError("memory is the source's length: give it for a stack with cross-attention, and only there.")
    inner, tokens = config.heads * config.dh, length
    seen = (length + 1) / 2 if config.causal else length  # mean number of positions that a token attends to
    weights = 4 * config.width * inner + (3 if config.gated else 2) * config.width * config.hidden
    layer = 2 * tokens * weights + 4 * tokens * seen * inner
    if config.cross:  # q and out of every token, k and v of every token of the source, attention between them
        layer += 4 * config.width * inner * (tokens + memory) + 4 * tokens * memory * inner
    narrow = config.embed.width or config.width
    widened = 2 * tokens * narrow * config.width if narrow != config.width else 0
    scores = 2 * (tokens if outputs is None else outputs) * narrow * config.embed.vocab
    return round(config.layers * layer) + widened + scores


def kv_cache_bytes(config: StackConfig, length: int, *, batch: int = 1, each: int = 2) -> int:
    """Keys and values of `length` tokens in every layer, `batch` texts. each: bytes a number, 2 in half precision."""
    _positive(length=length, batch=batch, each=each)
    return 2 * config.layers * batch * length * config.heads * config.dh * each


def training_bytes(parameters: float, *, trained: float | None = None) -> float:
    """Weights, gradients and Adam's state in mixed precision (Rajbhandari et al. 2020, section 3.1), no activations.

    16 bytes a trained weight: half precision weight and gradient (2 + 2), single precision copy, mean and variance
    (4 + 4 + 4). A frozen one takes 2.

    Args:
        trained: how many weights are trained, all by default; LoRA's are in `parameters` too.
    """
    trained = parameters if trained is None else trained
    _positive(parameters=parameters)
    if not 0 <= trained <= parameters:
        raise CourseError(f"{trained:,.0f} of {parameters:,.0f} parameters cannot be trained; give at most all.")
    return 2 * parameters + 14 * trained


def activation_bytes(config: StackConfig, length: int, *, batch: int = 1, fused: bool = False) -> int:
    """What the blocks keep for the backward pass in half precision (Korthikanti et al. 2022, equation 1).

    For a feed-forward of four times the width that is T B D L (34 + 5 H T / D). The output scores are not in it.

    Args:
        fused: attention that never stores its T x T weights (FlashAttention) saves the term that grows with T squared.
    """
    _positive(length=length, batch=batch)
    inner, width = config.heads * config.dh, config.width
    attention = 3 * width + 8 * inner + (0 if fused else 5 * config.heads * length)
    feed_forward = 3 * width + (8 if config.gated else 4) * config.hidden
    return config.layers * length * batch * (attention + feed_forward + 4 * width)


@dataclass(frozen=True)
class Device:
    """An accelerator by its maker's data sheet. flops: dense half precision matrix products a second; memory: bytes;
    bandwidth: bytes a second; watts: at full load."""

    name: str
    flops: float
    memory: float
    bandwidth: float
    watts: float


DEVICES = {
    device.name: device
    for device in (
        Device("V100", 125e12, 32e9, 0.9e12, 300),
        Device("A100", 312e12, 80e9, 2.039e12, 400),
        Device("H100", 989e12, 80e9, 3.35e12, 700),
        Device("H200", 989e12, 141e9, 4.8e12, 700),
    )
}


def device(name: str) -> Device:
    """One of `DEVICES`.

    Raises:
        CourseError: no such device.
    """
    if name not in DEVICES:
        raise CourseError(f"There is no device {name!r}; there are {', '.join(DEVICES)}, or make a cost.Device.")
    return DEVICES[name]


@dataclass(frozen=True)
class Bill:
    """What a computation takes. days: with all devices at work. device_hours: summed over them. kwh: electricity of the
    devices and the building. money: rent. kg_co2: of the electricity."""

    days: float
    device_hours: float
    kwh: float
    money: float
    kg_co2: float


def bill(
    flops: float,
    on: Device,
    *,
    devices: int = 1,
    utilisation: float = 0.4,
    price: float = 2.0,
    overhead: float = 1.1,
    grid: float = 400.0,
) -> Bill:
    """Time, energy, money and carbon of a computation; every assumption is an argument.

    Args:
        flops: of the whole (`training_flops`). devices: that share it.
        utilisation: share of the peak rate that is reached; large trainings reach 0.3 to 0.5.
        price: of one device for one hour. overhead: electricity of the building over that of the devices (PUE).
        grid: grams of CO2 a kilowatt hour.
    """
    _positive(flops=flops, devices=devices, utilisation=utilisation)
    if utilisation > 1 or overhead < 1 or price < 0 or grid < 0:
        raise CourseError(
            f"A bill needs utilisation up to 1, overhead from 1, price and grid from 0; got {utilisation}, {overhead}, "
            f"{price} and {grid}."
        )
    hours = flops / (on.flops * utilisation) / 3600
    kwh = hours * on.watts / 1000 * overhead
    return Bill(hours / devices / 24, hours, kwh, hours * price, kwh * grid / 1000)


def devices_needed(bytes_needed: float, on: Device) -> int:
    """The fewest devices whose memories hold so many bytes together."""
    _positive(bytes_needed=bytes_needed)
    return int(-(-bytes_needed // on.memory))


def step_seconds(
    config: StackConfig, on: Device, *, length: int, batch: int = 1, devices: int = 1, each: int = 2
) -> float:
    """The least time in which `batch` texts of `length` tokens each get one more token, by the device's two limits.

    Every weight and every cached key and value must arrive once from memory; every row must be computed. The longer of
    both counts: a small batch waits for memory, a large one for arithmetic. Perfectly shared among the devices.
    """
    _positive(devices=devices)
    weights = parameters(config)
    arriving = weights * each + kv_cache_bytes(config, length, batch=batch, each=each)
    attention = 4 * config.layers * length * config.heads * config.dh
    computing = batch * (inference_flops(weights) + attention)
    return max(arriving / on.bandwidth, computing / on.flops) / devices


def _count(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise CourseError(f"{name} is {value}; it must be above 0.")
