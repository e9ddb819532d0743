"""NF4: store a weight as one of 16 levels, in 4 bits (QLoRA, Dettmers et al. 2023).

A block of 64 weights is divided by its largest absolute value. Each result is rounded to the
nearest level. A block of three, for the example:

    weights                       0.5      -1.0     0.1
    divided by the maximum 1.0    0.5      -1.0     0.1
    nearest level                 0.4407   -1.0     0.0796
    number of the level           12       0        8         stored in 4 bits

The levels are quantiles of the normal distribution. Trained weights are about normal, so each level
is used about equally often. One level is 0, 7 are below it and 8 above (section 3, appendix E).

The maxima need memory too. So they are quantised in the same way (double quantisation): their mean
is subtracted, and blocks of 256 maxima share one scale. Together a weight takes 4.127 bits:

    what                   in blocks of    stored as          bits for each weight
    weights                64              a level            4
    maxima of the blocks   256             FP8 (E4M3)         8 / 64
    maxima of the maxima                   float32            32 / (64 * 256)
"""

from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.model import kernels

BLOCK = 64  # weights in a block
OUTER = 256  # maxima of blocks in a block of the second quantisation
FP8 = torch.float8_e4m3fn
FP8_MAX = 448.0  # the largest FP8 number
TINY = torch.finfo(torch.float32).tiny  # so that a block of zeros is not divided by 0


class NF4(NamedTuple):
    """A quantised tensor of N values. If N is no multiple of 64, the last block is padded."""

    codes: Tensor  # uint8[N / 2], the numbers of two levels in each byte
    scales: Tensor  # float8[N / 64], the quantised maxima of the blocks
    steps: Tensor  # float32[N / 64 / 256], the maxima of the maxima, divided by FP8_MAX
    mean: Tensor  # float32[1], the mean of the maxima

    @property
    def bits(self) -> int:
        """The size of all four tensors in bits."""
        return sum(8 * part.numel() * part.element_size() for part in self)


def quantise(x: Tensor) -> NF4:
    """Quantise a float tensor of any shape. The shape is not stored.

    Args:
        x: the tensor.
    """
    # 1. The weights: the nearest level of each, relative to the maximum of its block.
    blocks = _blocks(x.detach().float().flatten(), BLOCK)  # N/64 64
    largest = blocks.abs().amax(dim=1)  # N/64
    relative = blocks / largest.clamp(min=TINY)[:, None]
    table = levels().to(x.device)
    borders = (table[1:] + table[:-1]) / 2  # halfway between two levels
    level = torch.bucketize(relative, borders).to(torch.uint8)
    codes = level[:, 0::2] * 16 + level[:, 1::2]  # two in a byte

    # 2. The maxima of the blocks, relative to the maximum of their own block.
    mean = largest.mean()
    outer = _blocks(largest - mean, OUTER)  # N/64/256 256
    steps = outer.abs().amax(dim=1) / FP8_MAX
    scales = (outer / steps.clamp(min=TINY)[:, None]).to(FP8)
    return NF4(codes.flatten(), scales.flatten()[: len(largest)], steps, mean[None])


def dequantise(q: NF4, shape: torch.Size | tuple[int, ...]) -> Tensor:
    """The float32 tensor that a quantised one stands for.

    Args:
        q: the quantised tensor.
        shape: the shape of the tensor that was quantised.
    """
    largest = _blocks(q.scales.float(), OUTER) * q.steps[:, None] + q.mean
    largest = largest.flatten()[: len(q.scales)].clamp(min=0.0)  # N/64
    relative = F.embedding(q.codes.int(), _pairs(q.codes.device))  # N/2 2
    values = relative.view(-1, BLOCK) * largest[:, None]  # N/64 64
    size = torch.Size(shape).numel()  # without the padding of the last block
    return values.flatten()[:size].view(shape)


class QuantisedLinear(nn.Module):
    """A Linear whose weight is stored in NF4.

    The float matrix exists only during the multiplication. The weight cannot be trained, but
    gradients pass through it to earlier layers.
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
        """The float32 matrix, computed from the codes at every call."""
        parts = NF4(self.codes, self.scales, self.steps, self.mean)
        return dequantise(parts, (self.out_features, self.in_features))

    def forward(self, x: Float[Tensor, "*T I"]) -> Float[Tensor, "*T O"]:
        # The backward pass needs the matrix again. The first way recomputes it there; the plain
        # formula keeps it in memory.
        if kernels.use_linear_recomputed():
            y = kernels.linear_recomputed(x, self)
        else:
            y = F.linear(x, self.weight.to(x.dtype))
        return y if self.bias is None else y + self.bias.to(y.dtype)


def levels() -> Float[Tensor, "16"]:
    """The 16 levels, from -1 to 1. They equal appendix E's table to the last bit.

    Known departure: equation 4 gives other values. The paper's released code and its table have
    evenly spaced probabilities on each side of 0, up to the mean of 1 - 1/30 and 1 - 1/32.
    """
    below = _quantiles(7)
    above = _quantiles(8)
    return torch.cat((-below, below.new_zeros(1), above.flip(0))) / above[0]


def _quantiles(count: int) -> Float[Tensor, " count"]:
    """Quantiles of the normal distribution above its median, largest first."""
    largest = 0.9677083  # the mean of 1 - 1/30 and 1 - 1/32, as it is rounded in the released code
    probabilities = torch.linspace(largest, 0.5, count + 1)[:-1].double()
    return torch.special.ndtri(probabilities).float()


@cache
def _pairs(device: torch.device) -> Float[Tensor, "256 2"]:
    """The two levels for each of the 256 values of a byte: a lookup table for `dequantise`."""
    return torch.cartesian_prod(levels(), levels()).to(device)


def _blocks(x: Tensor, size: int) -> Tensor:
    """[N] -> [ceil(N / size), size], padded with zeros."""
    return F.pad(x, (0, -len(x) % size)).view(-1, size)
