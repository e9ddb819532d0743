"""The claims of lesson 01: what attention costs, and why its scores are divided."""

import math
import time
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from course_lib.model.attention import Attention
from course_lib.model.config import EmbedConfig, NoPosition, StackConfig
from course_lib.objectives import seeded_generator
from lab.lessons import Lab, experiment, given

Layer = Callable[[Tensor], Tensor]
# by length
ROUNDS = {
    "self-attention": {27: 1, 81: 1},
    "recurrence": {27: 26, 81: 80},
    "convolution": {27: 3, 81: 4},
}
COMPLEXITY = given("self_attention")["settings"]["attention-complexity"]
LENGTHS, WIDTHS, KERNEL = COMPLEXITY["lengths"], COMPLEXITY["widths"], COMPLEXITY["kernel"]
LABELS: list[int] = given("self_attention")["times"]["cpu"]["lengths"]
WIDTH_RANGE: list[int] = given("self_attention")["settings"]["attention-scaling"]["widths"]


def _attention(d: int) -> Attention:
    return Attention(StackConfig(EmbedConfig(1), d, 1, 1, d, position=NoPosition())).eval()


def layers(d: int) -> dict[str, Layer]:
    """[B n d] -> [B n d]: what the paper's table counts as attention, and three whole layers."""
    conv, gru, attention = (
        nn.Conv1d(d, d, KERNEL, padding=KERNEL // 2),
        nn.GRU(d, d, batch_first=True),
        _attention(d),
    )
    return {
        "scores and mixing": lambda x: F.scaled_dot_product_attention(
            x[:, None], x[:, None], x[:, None]
        )[:, 0],
        "self-attention": lambda x: attention(x, x),
        "recurrence": lambda x: gru(x)[0],
        "convolution": lambda x: conv(x.mT).mT,
    }


@torch.no_grad()
def flops(layer: Layer, n: int, d: int) -> int:
    """Floating-point operations of one pass, counted while it runs."""
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        layer(torch.zeros(1, n, d))
    return int(counter.get_total_flops())


@torch.no_grad()
def seconds(layer: Layer, n: int, d: int, repeats: int = 5) -> float:
    """The fastest of a few passes."""
    x, taken = torch.randn(1, n, d), []
    for _ in range(repeats):
        begin = time.perf_counter()
        layer(x)
        taken.append(time.perf_counter() - begin)
    return min(taken)


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Between the two largest points, on logarithmic axes."""
    return math.log(ys[-1] / ys[-2]) / math.log(xs[-1] / xs[-2])


def trend(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Least-squares slope over all points, on logarithmic axes: for what is noisy."""
    return float(np.polyfit(np.log(xs), np.log(ys), 1)[0])


def longest_chain(layer: Layer, n: int, d: int = 16) -> int:
    """Operations that must wait for one another: the longest path through the recorded graph."""

    @cache
    def ending_in(node: Any) -> int:
        return 1 + max(
            (ending_in(before) for before, _ in node.next_functions if before), default=0
        )

    return ending_in(layer(torch.randn(1, n, d)).grad_fn)


def rounds(layer: Callable[[Tensor, int], Tensor], n: int, d: int, rng: torch.Generator) -> int:
    """Least number of rounds until the last output has a gradient at the first input."""
    x = torch.randn(1, n, d, dtype=torch.double, generator=rng).requires_grad_()
    y, count = layer(x, 0), 1
    while not torch.autograd.grad(y[0, -1].sum(), x, retain_graph=True)[0][0, 0].any():
        y, count = layer(y, count), count + 1
    return count


def one_round(d: int = 4) -> dict[str, Callable[[Tensor, int], Tensor]]:
    """Each position updated once from what its layer reaches: all, the state before, the k last
    ones.
    """
    attention, cell = _attention(d).double(), nn.GRUCell(d, d).double()
    wide = [nn.Conv1d(d, d, KERNEL, dilation=KERNEL**i).double() for i in range(5)]
    return {
        "self-attention": lambda x, i: attention(x, x),
        "recurrence": lambda x, i: cell(
            x.flatten(0, 1), F.pad(x, (0, 0, 1, -1)).flatten(0, 1)
        ).view_as(x),
        "convolution": lambda x, i: wide[i](F.pad(x.mT, ((KERNEL - 1) * KERNEL**i, 0))).mT,
    }


@experiment("attention-complexity")
def attention_complexity(lab: Lab, seed: int) -> dict[str, float]:
    """Slopes, chains, rounds and times of the three kinds of layer."""
    torch.manual_seed(seed)
    values: dict[str, float] = {}
    at_64 = layers(64)
    by_width = {d: layers(d) for d in WIDTHS}
    for name, layer in at_64.items():
        values[f"flops/{name}/n"] = slope(LENGTHS, [flops(layer, n, 64) for n in LENGTHS])
        values[f"flops/{name}/d"] = slope(
            WIDTHS, [flops(by_width[d][name], 256, d) for d in WIDTHS]
        )
        values[f"time/{name}/n"] = trend(LENGTHS, [seconds(layer, n, 64) for n in LENGTHS])
        values[f"time/{name}/d"] = trend(
            WIDTHS, [seconds(by_width[d][name], 256, d) for d in WIDTHS]
        )
    narrow = layers(16)
    for name in ROUNDS:
        values[f"chain growth/{name}"] = longest_chain(narrow[name], 32) / longest_chain(
            narrow[name], 8
        )
    for name, step in one_round().items():
        values |= {
            f"rounds/{name}/{n}": rounds(step, n, 4, seeded_generator(seed, n))
            for n in ROUNDS[name]
        }
    return values


def saturation(
    d: int, divide: bool, rng: torch.Generator, rows: int = 8, n: int = 32
) -> tuple[float, float]:
    """Entropy of attention weights over n keys of width d, and the size of the gradient at the
    scores.
    """
    q, k = torch.randn(2, rows, n, d, generator=rng)
    scores = (q @ k.mT * (d**-0.5 if divide else 1.0)).requires_grad_()
    weights = scores.softmax(-1)
    weights.backward(torch.randn(weights.shape, generator=rng))
    assert scores.grad is not None
    return torch.special.entr(weights).sum(-1).mean().item(), scores.grad.norm(dim=-1).mean().item()


@experiment("attention-scaling")
def attention_scaling(lab: Lab, seed: int) -> dict[str, float]:
    """Entropy and gradient at each width, with and without the division, mean of eight draws."""
    values: dict[str, float] = {}
    for d, kind in product(WIDTH_RANGE, ("divided", "not divided")):
        draws = [
            saturation(d, kind == "divided", seeded_generator(seed, d, draw)) for draw in range(8)
        ]
        for what, found in zip(("entropy", "gradient"), zip(*draws, strict=True), strict=True):
            values[f"{what}/{kind}/{d}"] = sum(found) / 8
    return values


@torch.no_grad()
def cpu_seconds(layer: Layer, x: Tensor) -> float:
    """Processor time of one pass. Unlike the clock's, it leaves out the waits on a busy machine."""
    begin = time.process_time()
    layer(x)
    return time.process_time() - begin


def timed_in_turn(
    kinds: dict[str, Layer], n: int, d: int, repeats: int
) -> dict[str, NDArray[np.float64]]:
    """Times of several layers at one length, [repeats] each. They take turns, so that a change of
    the machine's speed meets all of them.
    """
    x = torch.randn(1, n, d)
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for repeat in range(repeats + 1):
        for name, layer in kinds.items():
            taken = cpu_seconds(layer, x)
            if repeat > 0:  # the first pass warms up
                times[name].append(taken)
    return {name: np.array(taken) for name, taken in times.items()}


@experiment("attention-time")
def attention_time(lab: Lab, seed: int) -> dict[str, float]:
    """Milliseconds by layer and length, how they grow at the long end, and where attention begins
    to cost more than a GRU.
    """
    torch.manual_seed(seed)
    size = given("self_attention")["times"][lab.plan.scale]
    every = layers(size["width"])
    kinds = {name: every[name] for name in ("self-attention", "recurrence")}
    values: dict[str, float] = {}
    ratios = []  # attention over GRU, by length
    medians: dict[str, list[float]] = {name: [] for name in kinds}
    for number, n in enumerate(size["lengths"]):
        times = timed_in_turn(kinds, n, size["width"], size["repeats"][number])
        for name, taken in times.items():
            medians[name].append(float(np.median(taken)))
        ratios.append(float(np.median(times["self-attention"] / times["recurrence"])))
    for number, label in enumerate(LABELS):
        for name in kinds:
            values[f"ms/{name}/{label}"] = 1000 * medians[name][number]
        values[f"attention over GRU/{label}"] = ratios[number]
    for name in kinds:
        values[f"power/{name}"] = trend(size["lengths"][-3:], medians[name][-3:])
    values["even at length"] = even(size["lengths"], ratios)
    return values


def even(lengths: Sequence[int], ratios: Sequence[float]) -> float:
    """The length at which a growing ratio is 1, on a straight line through logarithms of two
    neighbours; the last two if it is never reached.
    """
    above = [number for number, ratio in enumerate(ratios) if ratio >= 1 and number > 0]
    last = above[0] if above else len(ratios) - 1
    x, y = np.log(lengths[last - 1 : last + 1]), np.log(ratios[last - 1 : last + 1])
    return float(np.exp(x[0] - y[0] * (x[1] - x[0]) / (y[1] - y[0])))
