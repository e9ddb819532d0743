"""LayerNorm and RMSNorm. They keep the size of hidden states the same from layer to layer:

LayerNorm   (x - mean(x)) / sqrt(var(x) + eps) * weight + bias     (Ba et al. 2016)
RMSNorm     x / sqrt(mean(x^2) + eps) * weight                     (Zhang & Sennrich 2019)
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.model import kernels
from course_lib.model.config import StackConfig


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight: without the mean and the bias of LayerNorm.

    Args:
        width: D.
        eps: added under the root, so that nothing is divided by 0.
    """

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*T D"]) -> Float[Tensor, "*T D"]:
        if kernels.use_rms_norm(x, self.weight):
            return kernels.rms_norm(x, self.weight, self.eps)

        # In float32 even if x is bfloat16, whose squares have too few digits.
        mean_square = x.float().square().mean(-1, keepdim=True)  # *T 1
        scale = torch.rsqrt(mean_square + self.eps)
        return self.weight * (x * scale).to(x.dtype)


def norm(config: StackConfig, width: int | None = None) -> nn.Module:
    """A new LayerNorm or RMSNorm, as the config says.

    Args:
        config: the configuration of the stack.
        width: width of the vectors, by default D.
    """
    width = width or config.width
    if config.rms:
        return RMSNorm(width, config.eps)
    return nn.LayerNorm(width, config.eps, bias=config.bias)
