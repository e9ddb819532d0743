"""NF4: store a weight as one of 16 levels, in 4 bits (QLoRA, Dettmers et al. 2023).

A block of 64 weights is divided by its largest absolute value, its maximum. Each result is rounded
to the nearest level. A block of three weights, for example:

    weights                       0.5      -1.0     0.1
    divided by the maximum 1.0    0.5      -1.0     0.1
    nearest level                 0.4407   -1.0     0.0796
    number of the level           12       0        8         stored in 4 bits

The levels are quantiles of the normal distribution. Trained weights are about normal, so each level
is used about equally often. One level is 0, 7 are below it and 8 above (section 3, appendix E).

The maxima need memory too, so they are quantised a second time (double quantisation), but to FP8,
a float of 8 bits, instead of levels. First the mean of all maxima is subtracted. Then blocks of 256
share one scale, so that the largest of them becomes 448, the largest number of FP8. Together a
weight takes 4.127 bits:

    what                        in blocks of    stored as      bits for each weight
    weights                     64              a level        4
    maxima, without their mean  256             FP8 (E4M3)     8 / 64
    scales of the maxima                        float32        32 / (64 * 256)

Shapes: N weights make N/64 blocks, and N/64/256 blocks of maxima, both rounded up.
"""

from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.model import kernels

BLOCK = 64  # weights in a block
MAXIMA_BLOCK = 256  # maxima that share one scale
FP8 = torch.float8_e4m3fn
FP8_MAX = 448.0  # the largest FP8 number
TINY = torch.finfo(torch.float32).tiny  # so that a block of zeros is not divided by 0


class NF4(NamedTuple):
    """A quantised tensor of N values. The last block of weights is padded with zeros to 64.

    The maximum of a block is `maxima * scales + mean`, with the scale of its 256 maxima.
    """

    codes: Tensor  # uint8[N/2]: the numbers of two levels in each byte, the first in the high bits
    maxima: Tensor  # float8[N/64]: (maximum of a block - mean) / scale
    scales: Tensor  # float32[N/64/256]: the largest |maximum - mean| of 256, divided by FP8_MAX
    mean: Tensor  # float32[1]: the mean of the maxima of all blocks

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
    blocks = _blocks(x.detach().float().flatten(), BLOCK)  # [N/64, 64]
    largest = blocks.abs().amax(dim=1)  # [N/64]
    relative = blocks / largest.clamp(min=TINY)[:, None]  # from -1 to 1
    table = levels().to(x.device)
    borders = (table[1:] + table[:-1]) / 2  # halfway between two levels
    level = torch.bucketize(relative, borders).to(torch.uint8)  # [N/64, 64], from 0 to 15
    codes = level[:, 0::2] * 16 + level[:, 1::2]  # [N/64, 32]: two in a byte

    # 2. The maxima of the blocks, without their mean, in FP8.
    mean = largest.mean()
    centred = _blocks(largest - mean, MAXIMA_BLOCK)  # [N/64/256, 256]
    scales = centred.abs().amax(dim=1) / FP8_MAX  # [N/64/256]
    maxima = (centred / scales.clamp(min=TINY)[:, None]).to(FP8)
    maxima = maxima.flatten()[: len(largest)]  # [N/64], without the padding
    return NF4(codes.flatten(), maxima, scales, mean[None])


def dequantise(q: NF4, shape: torch.Size | tuple[int, ...]) -> Tensor:
    """The float32 tensor that a quantised one stands for.

    Args:
        q: the quantised tensor.
        shape: the shape of the tensor that was quantised.
    """
    largest = _blocks(q.maxima.float(), MAXIMA_BLOCK) * q.scales[:, None] + q.mean
    largest = largest.flatten()[: len(q.maxima)]  # [N/64], without the padding
    # FP8's rounding can make a small maximum negative. The block would then change its signs.
    largest = largest.clamp(min=0.0)
    # Look each byte up in a table of all 256 pairs of levels.
    relative = F.embedding(q.codes.int(), _pairs(q.codes.device))  # [N/2, 2]
    values = relative.view(-1, BLOCK) * largest[:, None]  # [N/64, 64]
    size = torch.Size(shape).numel()  # without the padding of the last block
    return values.flatten()[:size].view(shape)


class QuantisedLinear(nn.Module):
    """A Linear whose weight is stored in NF4.

    The float matrix exists only during the multiplication. The weight cannot be trained, but
    gradients pass through it to earlier layers.

    Args:
        linear: the layer to quantise. Its bias is kept as it is.
    """

    in_features: int
    out_features: int
    # The four tensors of `NF4`, as buffers.
    codes: Tensor
    maxima: Tensor
    scales: Tensor
    mean: Tensor
    bias: nn.Parameter | None

    def __init__(self, linear: "nn.Linear | QuantisedLinear") -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        for name, part in quantise(linear.weight)._asdict().items():
            self.register_buffer(name, part)
        self.bias = linear.bias

    @property
    def weight(self) -> Float[Tensor, "O I"]:
        """The float32 matrix, computed from the codes at every call."""
        parts = NF4(self.codes, self.maxima, self.scales, self.mean)
        return dequantise(parts, (self.out_features, self.in_features))

    def forward(self, x: Float[Tensor, "*T I"]) -> Float[Tensor, "*T O"]:
        # The backward pass needs the matrix again. The kernel recomputes it there; the plain
        # formula keeps it in memory. The kernel is used unless COURSE_KERNELS=0 switches it off.
        if kernels.use_linear_recomputed():
            y = kernels.linear_recomputed(x, self)
        else:
            y = F.linear(x, self.weight.to(x.dtype))
        return y if self.bias is None else y + self.bias.to(y.dtype)


def levels() -> Float[Tensor, "16"]:
    """The 16 levels, from -1 to 1: 7 quantiles below 0, then 0, then 8 quantiles above it.

    The quantiles are the normal distribution's, at evenly spaced probabilities on each side. All
    are divided by the largest. The levels equal appendix E's table to the last bit.

    Known departure: equation 4 of the paper gives other values than its table and released code.
    """
    below = _quantiles(7)  # positive still, largest first
    above = _quantiles(8)
    return torch.cat((-below, below.new_zeros(1), above.flip(0))) / above[0]


def _quantiles(count: int) -> Float[Tensor, " count"]:
    """Quantiles of the normal distribution above its median, largest first.

    The probabilities fall from 0.9677 to 0.5 in even steps. The last, whose quantile is 0, is
    dropped.
    """
    largest = 0.9677083  # the mean of 1 - 1/30 and 1 - 1/32, as it is rounded in the released code
    # float32 on purpose: the released code rounds the probabilities so, and the levels' last bits
    # depend on it.
    probabilities = torch.linspace(largest, 0.5, count + 1)[:-1].double()
    return torch.special.ndtri(probabilities).float()  # ndtri: probability -> quantile


@cache
def _pairs(device: torch.device) -> Float[Tensor, "256 2"]:
    """The two levels for each of the 256 values of a byte: a lookup table for `dequantise`.

    Row 16 * i + j has levels i and j.
    """
    return torch.cartesian_prod(levels(), levels()).to(device)


def _blocks(x: Tensor, size: int) -> Tensor:
    """[N] -> [ceil(N / size), size], padded with zeros."""
    return F.pad(x, (0, -len(x) % size)).view(-1, size)
