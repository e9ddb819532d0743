"""NF4 with double quantisation: a weight in 4.127 bits (Dettmers et al. 2023, section 3 and
appendix E).

    weights           blocks of 64   the block's largest is 1, then the nearest of 16 levels
    their maxima      blocks of 256  less their mean; the block's largest is 1, in FP8 (E4M3)
    maxima of these                  in float32

These take 4, 8 / 64 and 32 / (64 * 256) bits a weight.

The 16 levels are quantiles of the normal distribution: what trained weights look like falls into
each about equally often. One of them is 0, so there are 7 below it and 8 above."""

from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.model import kernels

BLOCK, OUTER = 64, 256
FP8 = torch.float8_e4m3fn
FP8_MAX = 448.0


def levels() -> Float[Tensor, "16"]:
    """The 16 values, from -1 to 1: appendix E's table to the last bit. As in the released code, on
    each side of 0 evenly spaced probabilities, in float32, up to the mean of 1 - 1/30 and 1 - 1/32;
    equation 4 gives others."""
    spaced = (torch.linspace(0.9677083, 0.5, n + 1)[:-1].double() for n in (7, 8))
    below, above = (torch.special.ndtri(side).float() for side in spaced)
    return torch.cat((-below, below.new_zeros(1), above.flip(0))) / above[0]


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
    blocks = _blocks(x.detach().float().flatten(), BLOCK)
    largest = blocks.abs().amax(dim=1)  # N/64
    relative = blocks / largest.clamp(min=torch.finfo(torch.float32).tiny)[:, None]
    table = levels().to(x.device)
    level = torch.bucketize(relative, (table[1:] + table[:-1]) / 2).to(torch.uint8)
    codes = level[:, 0::2] * 16 + level[:, 1::2]

    mean = largest.mean()
    outer = _blocks(largest - mean, OUTER)
    steps = outer.abs().amax(dim=1) / FP8_MAX
    scales = (outer / steps.clamp(min=torch.finfo(torch.float32).tiny)[:, None]).to(FP8)
    return NF4(codes.flatten(), scales.flatten()[: len(largest)], steps, mean[None])


def dequantise(q: NF4, shape: torch.Size | tuple[int, ...]) -> Tensor:
    """The float32 tensor of this shape that the codes stand for."""
    largest = _blocks(q.scales.float(), OUTER) * q.steps[:, None] + q.mean
    largest = largest.flatten()[: len(q.scales)].clamp(min=0.0)
    values = F.embedding(q.codes.int(), _pairs(q.codes.device)).view(-1, BLOCK) * largest[:, None]
    size = torch.Size(shape).numel()
    return values.flatten()[:size].view(shape)


@cache
def _pairs(device: torch.device) -> Float[Tensor, "256 2"]:
    """The two values that each byte of `NF4.codes` stands for."""
    return torch.cartesian_prod(levels(), levels()).to(device)


class QuantisedLinear(nn.Module):
    """A Linear whose weight is kept in NF4 and made a float matrix for the moment it is multiplied
    with. It cannot be trained; the gradient passes through it to what lies before."""

    codes: Tensor
    scales: Tensor
    steps: Tensor
    mean: Tensor
    bias: nn.Parameter | None

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        for name, part in quantise(linear.weight)._asdict().items():
            self.register_buffer(name, part)
        self.bias = linear.bias

    @property
    def weight(self) -> Float[Tensor, "O I"]:
        """The matrix that the codes stand for, in float32, made anew at every call."""
        parts = NF4(self.codes, self.scales, self.steps, self.mean)
        return dequantise(parts, (self.out_features, self.in_features))

    def forward(self, x: Float[Tensor, "*T I"]) -> Float[Tensor, "*T O"]:
        if kernels.use_linear_again():
            y = kernels.linear_again(x, self)
        else:
            y = F.linear(x, self.weight.to(x.dtype))
        return y if self.bias is None else y + self.bias.to(y.dtype)


def _blocks(x: Tensor, size: int) -> Tensor:
    """[N] -> [ceil(N / size), size], padded with zeros."""
    return F.pad(x, (0, -len(x) % size)).view(-1, size)
