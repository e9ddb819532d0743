"""Adapters: small trained networks inside the blocks of a frozen model (Houlsby et al. 2019).

    a block (without norms)     with adapters
    h = x + attn(x)             h = x + adapter(attn(x))
    y = h + ff(h)               y = h + adapter(ff(h))

An adapter maps its input to a few numbers and back, and adds the result to its input.
"""

from typing import Any

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.peft.inject import Added, Base, Model, freeze, inject, placement


class Adapter(Added):
    """h + up(gelu(down(h))): a bottleneck of width m with a residual (figure 2).

    It has 2 D m + D + m parameters.

    Args:
        outer: the width D of the hidden states.
        width: the width m of the bottleneck.
        std: the standard deviation of the initial weights. With a small one the adapter changes
            almost nothing at first. Larger values than the default do harm (section 3.6).
        options: device and dtype of the new weights.
    """

    def __init__(self, outer: int, width: int, *, std: float = 1e-2, **options: Any) -> None:
        super().__init__()
        self.down = nn.Linear(outer, width, **options)
        self.up = nn.Linear(width, outer, **options)
        for linear in (self.down, self.up):
            nn.init.trunc_normal_(linear.weight, std=std, a=-2 * std, b=2 * std)
            nn.init.zeros_(linear.bias)

    def forward(self, h: Float[Tensor, "*T D"]) -> Float[Tensor, "*T D"]:
        return h + self.up(F.gelu(self.down(h)))


class AdaptedLinear(nn.Module):
    """A Linear followed by an adapter."""

    def __init__(self, base: Base, width: int) -> None:
        super().__init__()
        self.base = base
        self.adapter = Adapter(base.out_features, width, **placement(base))

    def forward(self, x: Float[Tensor, "*T I"]) -> Float[Tensor, "*T D"]:
        return self.adapter(self.base(x))


def adapters(model: Model, width: int = 64) -> Model:
    """Freeze the model and put an adapter after each block's attention and feed-forward layer.

    The adapter acts before the block's residual is added. Known departures: dropout acts after the
    adapter instead of before it, and the norms stay frozen.

    Args:
        model: the model, changed in place.
        width: the width of the bottlenecks.
    """
    # The last Linear of the attention and of the feed-forward: the block adds what they return.
    for pattern in ("blocks.*.attn.out", "blocks.*.ff.down"):
        inject(model, pattern, lambda linear: AdaptedLinear(linear, width))
    freeze(model)
    return model
