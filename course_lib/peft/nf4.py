"""NF4 with double quantisation: a weight in 4.127 bits (Dettmers et al. 2023).

    numbers                 in blocks of    kept as                     bits a weight
    weights                 64              nearest of 16 levels        4
    their blocks' maxima    256             FP8 (E4M3)                  8 / 64
    maxima of these                         float32                     32 / (64 * 256)

Before they are rounded, weights are divided by their block's maximum. The maxima lose their mean,
and are divided by the maximum of their own block.

The 16 levels are quantiles of the normal distribution. Trained weights are about normal, so each
level is used about equally often. One level is 0, 7 are below it and 8 above. (Section 3 and
appendix E.)
"""

from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.model import kernels

BLOCK = 64  # weights that share a maximum
OUTER = 256  # maxima that share one
FP8 = torch.float8_e4m3fn
FP8_MAX = 448.0  # the largest number that it holds
TINY = torch.finfo(torch.float32).tiny  # so that a block of zeros is not divided by 0


def levels() -> Float[Tensor, "16"]:
    """The 16 values, from -1 to 1: appendix E's table to the last bit.

    Known departure, that of the released code: probabilities are evenly spaced on each side of 0,
    up to the mean of 1 - 1/30 and 1 - 1/32. Equation 4 gives other values.
    """
    below = _quantiles(7)
    above = _quantiles(8)
    return torch.cat((-below, below.new_zeros(1), above.flip(0))) / above[0]


def _quantiles(count: int) -> Float[Tensor, " count"]:
    """The normal distribution at evenly spaced probabilities above one half, largest first."""
    probabilities = torch.linspace(0.9677083, 0.5, count + 1)[:-1].double()
    return torch.special.ndtri(probabilities).float()


class NF4(NamedTuple):
    """A quantised tensor of N values. The last block of each is padded."""

    codes: Tensor  # uint8[N / 2], two levels a byte
    scales: Tensor  # float8[N / 64]
    steps: Tensor  # float32[N / 64 / 256]
    mean: Tensor  # float32[1]

    @property
    def bits(self) -> int:
        """Bits in all."""
        return sum(8 * part.numel() * part.element_size() for part in self)


def quantise(x: Tensor) -> NF4:
    """Any float tensor to NF4. Its shape is not kept."""
    # 1. The weights: a level of each, relative to the largest of its block.
    blocks = _blocks(x.detach().float().flatten(), BLOCK)  # N/64 64
    largest = blocks.abs().amax(dim=1)  # N/64
    relative = blocks / largest.clamp(min=TINY)[:, None]
    table = levels().to(x.device)
    borders = (table[1:] + table[:-1]) / 2  # between two levels
    level = torch.bucketize(relative, borders).to(torch.uint8)
    codes = level[:, 0::2] * 16 + level[:, 1::2]  # two in a byte

    # 2. The blocks' maxima, in the same way.
    mean = largest.mean()
    outer = _blocks(largest - mean, OUTER)  # N/64/256 256
    steps = outer.abs().amax(dim=1) / FP8_MAX
    scales = (outer / steps.clamp(min=TINY)[:, None]).to(FP8)
    return NF4(codes.flatten(), scales.flatten()[: len(largest)], steps, mean[None])


def dequantise(q: NF4, shape: torch.Size | tuple[int, ...]) -> Tensor:
    """The float32 tensor of this shape that the codes stand for."""
    largest = _blocks(q.scales.float(), OUTER) * q.steps[:, None] + q.mean
    largest = largest.flatten()[: len(q.scales)].clamp(min=0.0)  # N/64
    relative = F.embedding(q.codes.int(), _pairs(q.codes.device))  # N/2 2
    values = relative.view(-1, BLOCK) * largest[:, None]  # N/64 64
    size = torch.Size(shape).numel()  # without the padding of the last block
    return values.flatten()[:size].view(shape)


@cache
def _pairs(device: torch.device) -> Float[Tensor, "256 2"]:
    """The two values that each byte of `NF4.codes` stands for."""
    return torch.cartesian_prod(levels(), levels()).to(device)


class QuantisedLinear(nn.Module):
    """A Linear whose weight is kept in NF4.

    It is made a float matrix only for the moment of the multiplication. The weight cannot be
    trained, but the gradient passes through it to what lies before.
    """

    codes: Tensor
    scales: Tensor
    steps: Tensor
    mean: Tensor
    bias: nn.Parameter | None

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        for name, part in quantise(linear.weight)._asdict().items():
            self.register_buffer(name, part)
        self.bias = linear.bias

    @property
    def weight(self) -> Float[Tensor, "O I"]:
        """The matrix that the codes stand for, in float32, made anew at every call."""
        parts = NF4(self.codes, self.scales, self.steps, self.mean)
        return dequantise(parts, (self.out_features, self.in_features))

    def forward(self, x: Float[Tensor, "*T I"]) -> Float[Tensor, "*T O"]:
        if kernels.use_linear_recomputed():
            y = kernels.linear_recomputed(x, self)
        else:
            y = F.linear(x, self.weight.to(x.dtype))
        return y if self.bias is None else y + self.bias.to(y.dtype)


def _blocks(x: Tensor, size: int) -> Tensor:
    """[N] -> [ceil(N / size), size], padded with zeros."""
    return F.pad(x, (0, -len(x) % size)).view(-1, size)
