"""Adapters (Houlsby et al. 2019): small bottlenecks inside a frozen model.

    h + up(act(down(h)))        (figure 2), h what attention or the feed-forward gives, before the residual is added

Houlsby: after both. Pfeiffer et al. (2021): after the feed-forward only, half of the parameters for about the score.
"""

from collections.abc import Sequence
from typing import Literal, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.config import Activation
from course_lib.errors import CourseError
from course_lib.layers import ACTIVATIONS, RMSNorm
from course_lib.peft.inject import Added, Base, freeze, inject, where

Model = TypeVar("Model", bound=nn.Module)
Place = Literal["attn", "cross", "ff"]
PATTERNS: dict[Place, str] = {"attn": "blocks.*.attn.out", "cross": "blocks.*.cross.out", "ff": "blocks.*.ff.down"}
INIT_STD = 1e-2  # near the identity: section 3.6 sees no harm below it, and much above


class Adapter(Added):
    """h + up(act(down(h))): D to `width` and back. 2 D m + D + m parameters for a width of m."""

    def __init__(
        self, outer: int, width: int, activation: Activation = "gelu", *, std: float = INIT_STD,
        device: torch.device | None = None, dtype: torch.dtype | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.down = nn.Linear(outer, width, device=device, dtype=dtype)
        self.up = nn.Linear(width, outer, device=device, dtype=dtype)
        self.activation = ACTIVATIONS[activation]
        for linear in (self.down, self.up):
            nn.init.trunc_normal_(linear.weight, std=std, a=-2 * std, b=2 * std)
            nn.init.zeros_(linear.bias)

    def forward(self, h: Float[Tensor, "*T D"]) -> Float[Tensor, "*T D"]:
        out: Tensor = h + self.up(self.activation(self.down(h)))
        return out


class AdaptedLinear(nn.Module):
    """A Linear whose output goes through an adapter."""

    def __init__(self, base: nn.Module, adapter: Adapter) -> None:
        super().__init__()
        self.base, self.adapter = base, adapter

    def forward(self, x: Float[Tensor, "*T I"]) -> Float[Tensor, "*T D"]:
        out: Tensor = self.adapter(self.base(x))
        return out


def adapters(
    model: Model, width: int = 64, *, after: Sequence[Place] = ("attn", "ff"), activation: Activation = "gelu",
    norms: bool = False,
) -> Model:  # fmt: skip
    """Freeze the model and put an adapter after the named parts of every block.

    Args:
        model: changed in place, and returned. width: of the bottleneck.
        after: ("attn", "ff") is Houlsby's placement, ("ff",) Pfeiffer's; "cross" for decoders with cross-attention.
        norms: also train the norms' weights and biases, as Houlsby et al. do (section 2.1). They are the base's.

    Known departure: dropout acts after the adapter instead of before it.

    Raises:
        CourseError: a width below one, an unknown place, a model without such blocks.
    """
    if width < 1:
        raise CourseError(f"width is {width}; an adapter's bottleneck needs at least 1.")
    if unknown := [place for place in after if place not in PATTERNS]:
        raise CourseError(f"An adapter cannot stand after {unknown[0]!r}; there are {', '.join(PATTERNS)}.")

    def adapted(linear: Base) -> nn.Module:
        device, dtype = where(linear)
        return AdaptedLinear(linear, Adapter(linear.out_features, width, activation, device=device, dtype=dtype))

    for place in after:
        inject(model, PATTERNS[place], adapted)
    freeze(model)
    if norms:
        for module in model.modules():
            if isinstance(module, nn.LayerNorm | RMSNorm):
                module.requires_grad_(True)
    return model
