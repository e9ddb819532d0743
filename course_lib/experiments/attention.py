"""The claims of lesson 01: what attention costs, why its scores are divided, what the causal mask hides."""

import math
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from course_lib.attention import Attention
from course_lib.claims.experiment import experiment
from course_lib.claims.lab import Lab
from course_lib.claims.record import Figures
from course_lib.config import EmbedConfig, NoPosition, StackConfig
from course_lib.corrupt import generator
from course_lib.stack import Stack

Layer = Callable[[Tensor], Tensor]
STATED = {"scores and mixing": (2, 1), "recurrence": (1, 2), "convolution": (1, 2)}  # slopes in n and in d
LENGTHS, WIDTHS = (64, 128, 256, 512, 1024), (32, 64, 128, 256, 512)
KERNEL = 3
WIDTH_RANGE = (4, 16, 64, 256, 1024)


class _SelfAttention(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        stack = StackConfig(EmbedConfig(1), d, 1, 1, d, position=NoPosition(), attention_dropout=0.0)
        self.attention = Attention(stack)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.attention(x, x)
        return out


def layers(d: int) -> dict[str, Layer]:
    """[B n d] -> [B n d]: what the paper's table counts as attention, and three whole layers."""
    conv, gru = nn.Conv1d(d, d, KERNEL, padding=KERNEL // 2), nn.GRU(d, d, batch_first=True)
    return {
        "scores and mixing": lambda x: F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None])[:, 0],
        "self-attention": _SelfAttention(d),
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


def slope(xs: tuple[int, ...], ys: list[float]) -> float:
    """Between the two largest points, on logarithmic axes."""
    return float(math.log(ys[-1] / ys[-2]) / math.log(xs[-1] / xs[-2]))


def trend(xs: tuple[int, ...], ys: list[float]) -> float:
    """Least-squares slope over all points, on logarithmic axes: for what is noisy."""
    points = [(math.log(x), math.log(y)) for x, y in zip(xs, ys, strict=True)]
    mx, my = (sum(axis) / len(points) for axis in zip(*points, strict=True))
    return float(sum((x - mx) * (y - my) for x, y in points) / sum((x - mx) ** 2 for x, _ in points))


def longest_chain(layer: Layer, n: int, d: int = 16) -> int:
    """Operations that must wait for one another: the longest path through the recorded graph."""

    @cache
    def ending_in(node: Any) -> int:
        return 1 + max((ending_in(before) for before, _ in node.next_functions if before), default=0)

    return ending_in(layer(torch.randn(1, n, d)).grad_fn)


def rounds(layer: Callable[[Tensor, int], Tensor], n: int, d: int, rng: torch.Generator) -> int:
    """Least number of rounds until the last output has a gradient at the first input."""
    x = torch.randn(1, n, d, dtype=torch.double, generator=rng).requires_grad_()
    y, count = layer(x, 0), 1
    while not torch.autograd.grad(y[0, -1].sum(), x, retain_graph=True)[0][0, 0].any():
        y, count = layer(y, count), count + 1
    return count


def one_round(d: int = 4) -> dict[str, Callable[[Tensor, int], Tensor]]:
    """Each position updated once from what its layer reaches: all, the state before, the k last ones."""
    attention, cell = _SelfAttention(d).double(), nn.GRUCell(d, d).double()
    wide = [nn.Conv1d(d, d, KERNEL, dilation=KERNEL**i).double() for i in range(5)]
    return {
        "self-attention": lambda x, i: attention(x),
        "recurrence": lambda x, i: cell(x.flatten(0, 1), F.pad(x, (0, 0, 1, -1)).flatten(0, 1)).view_as(x),
        "convolution": lambda x, i: wide[i](F.pad(x.mT, ((KERNEL - 1) * KERNEL**i, 0))).mT,
    }


def _complexity(f: Figures) -> tuple[str, str]:
    slopes = all(
        abs(value - stated) <= 0.1
        for layer, pair in STATED.items()
        for x, stated in zip("nd", pair, strict=True)
        for value in f[f"flops/{layer}/{x}"].seeds
    )
    waits = [name for name in ("self-attention", "recurrence", "convolution") if f[f"chain growth/{name}"].mean > 1]
    paths = {"self-attention": (1, 1), "recurrence": (26, 80), "convolution": (3, 4)}
    reach = all(
        value == expected
        for name, pair in paths.items()
        for n, expected in zip((27, 81), pair, strict=True)
        for value in f[f"rounds/{name}/{n}"].seeds
    )
    held = [slopes, waits == ["recurrence"], reach]
    verdict = "reproduced" if all(held) else "partly" if any(held) else "not at this scale"
    whole, clock = f["flops/self-attention/n"], f["time/self-attention/n"]
    return verdict, (
        f"Counted operations grow as the table says{'' if slopes else ' not everywhere'}; only {' and '.join(waits)} "
        f"takes longer chains for longer texts. The whole attention layer, its four matrices included, has slope "
        f"{whole.mean:.2f} in n at width 64 and 1,024 tokens, in time {clock.mean:.2f}."
    )


@experiment(
    "attention-complexity",
    rule="""Reproduced if, with every seed, the slopes of counted operations against length and width lie within 0.1
    of the table's for scores and mixing (2, 1), recurrence (1, 2) and convolution (1, 2); the longest chain of
    operations grows with the length for recurrence alone; and the first position reaches the last one in 1
    round, n - 1 rounds and log_k n rounds. Partly if one of the three holds. Slopes of time are recorded and
    not judged.""",
    judge=_complexity,
    config={"lengths": LENGTHS, "at width": 64, "widths": WIDTHS, "at length": 256, "kernel": KERNEL, "dilated": True},
)
def attention_complexity(lab: Lab, seed: int) -> dict[str, float]:
    """Slopes, chains, rounds and times of the three kinds of layer."""
    torch.manual_seed(seed)
    values: dict[str, float] = {}
    at_64 = layers(64)
    by_width = {d: layers(d) for d in WIDTHS}
    for name, layer in at_64.items():
        values[f"flops/{name}/n"] = slope(LENGTHS, [flops(layer, n, 64) for n in LENGTHS])
        values[f"flops/{name}/d"] = slope(WIDTHS, [flops(by_width[d][name], 256, d) for d in WIDTHS])
        values[f"time/{name}/n"] = trend(LENGTHS, [seconds(layer, n, 64) for n in LENGTHS])
        values[f"time/{name}/d"] = trend(WIDTHS, [seconds(by_width[d][name], 256, d) for d in WIDTHS])
    for name, layer in layers(16).items():
        if name != "scores and mixing":
            values[f"chain growth/{name}"] = longest_chain(layer, 32) / longest_chain(layer, 8)
    for name, step in one_round().items():
        for n in (27, 81):
            values[f"rounds/{name}/{n}"] = rounds(step, n, 4, generator(seed, n))
    return values


def saturation(d: int, divide: bool, rng: torch.Generator, rows: int = 8, n: int = 32) -> tuple[float, float]:
    """Entropy of attention weights over n keys of width d, and the size of the gradient at the scores."""
    q, k = torch.randn(2, rows, n, d, generator=rng)
    scores = (q @ k.mT * (d**-0.5 if divide else 1.0)).requires_grad_()
    weights = scores.softmax(-1)
    weights.backward(torch.randn(weights.shape, generator=rng))
    assert scores.grad is not None
    return torch.special.entr(weights).sum(-1).mean().item(), scores.grad.norm(dim=-1).mean().item()


def _scaling(f: Figures) -> tuple[str, str]:
    low, high = WIDTH_RANGE[0], WIDTH_RANGE[-1]
    change = {
        (kind, what): f[f"{what}/{kind}/{high}"].mean / f[f"{what}/{kind}/{low}"].mean - 1
        for kind in ("divided", "not divided")
        for what in ("entropy", "gradient")
    }
    falls = [change["not divided", what] < -0.5 for what in ("entropy", "gradient")]
    level = [abs(change["divided", what]) < 0.1 for what in ("entropy", "gradient")]
    verdict = "reproduced" if all(falls + level) else "partly" if any(falls) else "not at this scale"
    said = {key: f"{100 * value:+.0f}%" for key, value in change.items()}
    return verdict, (
        f"From width {low} to {high:,} without the division the entropy of the weights changes by "
        f"{said['not divided', 'entropy']} and the gradient at the scores by {said['not divided', 'gradient']}; "
        f"with it by {said['divided', 'entropy']} and {said['divided', 'gradient']}."
    )


@experiment(
    "attention-scaling",
    rule="""Reproduced if from width 4 to 1,024 entropy and gradient both fall by more than half without the
    division, and with it neither changes by more than a tenth. Partly if one of the two falls without it.""",
    judge=_scaling,
    config={"widths": WIDTH_RANGE, "keys": 32, "draws a seed": 8},
)
def attention_scaling(lab: Lab, seed: int) -> dict[str, float]:
    """Entropy and gradient at each width, with and without the division, mean of eight draws."""
    values: dict[str, float] = {}
    for d in WIDTH_RANGE:
        for kind in ("divided", "not divided"):
            draws = [saturation(d, kind == "divided", generator(seed, d, draw)) for draw in range(8)]
            values[f"entropy/{kind}/{d}"] = sum(e for e, _ in draws) / 8
            values[f"gradient/{kind}/{d}"] = sum(g for _, g in draws) / 8
    return values


@torch.no_grad()
def unchanged_cuts(stack: Stack, tokens: Tensor, others: Tensor) -> int:
    """At how many cuts t are all outputs before t bit-identical when every token from t on is replaced?"""
    length = tokens.shape[1]
    before = stack(tokens)
    return sum(
        torch.equal(before[:, :t], stack(torch.cat([tokens[:, :t], others[:, t:]], dim=1))[:, :t])
        for t in range(1, length)
    )


def _mask(f: Figures) -> tuple[str, str]:
    with_mask, without, cuts = (f[name].mean for name in ("unchanged, causal", "unchanged, no mask", "cuts"))
    verdict = "reproduced" if with_mask == cuts and without == 0 else "not at this scale"
    return verdict, (
        f"With the mask {with_mask:.0f} of {cuts:.0f} cuts leave every earlier output bit-identical, without it "
        f"{without:.0f}."
    )


@experiment(
    "causal-mask",
    rule="""Reproduced if with the mask replacing all tokens from t on leaves every output before t bit-identical,
    for every t, and without the mask for no t. Anything else contradicts it.""",
    judge=_mask,
    config={"layers": 4, "width": 64, "length": 24},
)
def causal_mask(lab: Lab, seed: int) -> dict[str, float]:
    """Cuts at which the past does not change, with the mask and without."""
    torch.manual_seed(seed)
    size: dict[str, Any] = {
        "width": 64,
        "layers": 4,
        "heads": 4,
        "hidden": 256,
        "dropout": 0.0,
        "attention_dropout": 0.0,
    }
    masked = Stack(StackConfig(EmbedConfig(100), causal=True, **size)).eval()
    unmasked = Stack(StackConfig(EmbedConfig(100), causal=False, **size)).eval()
    unmasked.load_state_dict(masked.state_dict())
    tokens, others = torch.randint(100, (2, 1, 24), generator=generator(seed))
    others = torch.where(others == tokens, (tokens + 1) % 100, others)
    return {
        "cuts": 23,
        "unchanged, causal": unchanged_cuts(masked, tokens, others),
        "unchanged, no mask": unchanged_cuts(unmasked, tokens, others),
    }
