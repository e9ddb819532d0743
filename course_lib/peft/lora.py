"""LoRA: a trained low-rank update is added to a frozen matrix. DoRA also trains each row's length.

    y = W x + (alpha / r) up down x

    W       [O I], frozen: 768 * 768 = 589,824 weights
    down    [r I], trained: with rank r = 8, 6,144 weights
    up      [O r], trained: 6,144 weights, zero at first

`merge` adds up @ down to W, so the tuned model is as fast as its base. Letters: I inputs, O
outputs, r rank. The papers' A is `down` here, and their B is `up`.
"""

import math
from collections.abc import Mapping
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.peft.inject import Added, Base, Model, freeze, inject, placement, put
from course_lib.peft.nf4 import QuantisedLinear


class LoRA(Added):
    """The update (alpha / r) up down dropout(x), added to W x (Hu et al. 2021, section 4.1).

    `up` starts at zero, so the model starts with the outputs of its frozen base.

    Args:
        inputs: the Linear's input width I.
        outputs: the Linear's output width O.
        rank: the rank r of the update.
        alpha: scales the update by alpha / r. With a constant alpha, the learning rate need not
            change with the rank.
        dropout: the probability of dropping an input of the update.
        options: device and dtype of the new weights.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        rank: int,
        alpha: float,
        dropout: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__()
        self.rank = rank
        self.alpha = alpha
        self.dropout = nn.Dropout(dropout)
        self.down = nn.Parameter(torch.empty(rank, inputs, **options))
        self.up = nn.Parameter(torch.zeros(outputs, rank, **options))
        # Uniform between -1 / sqrt(I) and 1 / sqrt(I), as in the paper's code. Its text says
        # Gaussian.
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    @property
    def delta(self) -> Float[Tensor, "O I"]:
        """The matrix that the update adds to W."""
        return self.alpha / self.rank * (self.up @ self.down)

    def forward(self, x: Float[Tensor, "*T I"]) -> Float[Tensor, "*T O"]:
        hidden = F.linear(self.dropout(x), self.down)  # *T r
        return self.alpha / self.rank * F.linear(hidden, self.up)


class LoRALinear(nn.Module):
    """A Linear, plus a LoRA update of its output.

    Args:
        base: the Linear. The caller freezes it.
        rank: the rank r of the update.
        alpha: scales the update by alpha / r.
        dropout: the probability of dropping an input of the update.
    """

    def __init__(self, base: Base, rank: int, alpha: float, dropout: float = 0.0) -> None:
        super().__init__()
        self.base = base
        self.lora = LoRA(
            base.in_features, base.out_features, rank, alpha, dropout, **placement(base)
        )

    def forward(self, x: Float[Tensor, "*T I"]) -> Float[Tensor, "*T O"]:
        return self.base(x) + self.lora(x)

    def merge(self) -> None:
        """Add the update to the base's matrix, in place."""
        cast(nn.Parameter, self.base.weight).add_(self.lora.delta)

    def unmerge(self) -> None:
        """Subtract the update from the base's matrix again, up to rounding."""
        cast(nn.Parameter, self.base.weight).sub_(self.lora.delta)


class Magnitude(Added):
    """The trained length of each row of a matrix: m in DoRA's formula."""

    def __init__(self, lengths: Float[Tensor, " O"]) -> None:
        super().__init__()
        self.weight = nn.Parameter(lengths.detach().clone())


class DoRALinear(LoRALinear):
    """m (W + delta) / ||W + delta|| x + bias, row by row (Liu et al. 2024, equation 5).

    LoRA changes the direction of each row, `magnitude` its length. Known departure: with dropout,
    only the update reads the dropped input, as LoRA's does.
    """

    merged_scale: Tensor | None  # what `merge` multiplied the rows by, for `unmerge`

    def __init__(self, base: Base, rank: int, alpha: float, dropout: float = 0.0) -> None:
        super().__init__(base, rank, alpha, dropout)
        self.magnitude = Magnitude(self._row_lengths().to(**placement(base)))
        self.register_buffer("merged_scale", None, persistent=False)

    def forward(self, x: Float[Tensor, "*T I"]) -> Float[Tensor, "*T O"]:
        y = self.base(x)
        without_bias = y if self.base.bias is None else y - self.base.bias
        scale = self.scale().to(y.dtype)
        # This is scale (W x + update) + bias, written as what it adds to y. At first scale is 1, so
        # the outputs are the base's to the last bit.
        return y + (scale - 1) * without_bias + scale * self.lora(x)

    def scale(self) -> Float[Tensor, " O"]:
        """m / ||W + delta||, the factor of each row."""
        return self.magnitude.weight / self._row_lengths()

    @torch.no_grad()  # the paper's section 4.3: a constant in the backward pass
    def _row_lengths(self) -> Float[Tensor, " O"]:
        """||W + delta||, row by row."""
        return torch.linalg.vector_norm(self.base.weight + self.lora.delta, dim=1)

    def merge(self) -> None:
        """Replace the base's matrix W by m (W + delta) / ||W + delta||."""
        self.merged_scale = self.scale()
        super().merge()
        cast(nn.Parameter, self.base.weight).mul_(self.merged_scale[:, None])

    def unmerge(self) -> None:
        """Restore the base's matrix W, up to rounding."""
        assert self.merged_scale is not None
        cast(nn.Parameter, self.base.weight).div_(self.merged_scale[:, None])
        self.merged_scale = None
        super().unmerge()


def lora(
    model: Model,
    pattern: str = "blocks.*.attn.[qv]",
    *,
    rank: int = 8,
    alpha: float | None = None,
    dropout: float = 0.0,
) -> Model:
    """Freeze the model and add a trained update to every Linear that matches the pattern.

    Args:
        model: the model, changed in place.
        pattern: a shell-style pattern for the last parts of the Linears' names. By default the
            queries and values, which the paper found to be the best two of the four matrices of
            attention (section 7.1). "blocks.*.*.*" is every Linear of the blocks.
        rank: the rank of every update.
        alpha: scales every update by alpha / rank. By default alpha is the rank.
        dropout: the probability of dropping an input of an update.
    """
    return _inject_updates(model, LoRALinear, pattern, rank, alpha, dropout)


def dora(
    model: Model,
    pattern: str = "blocks.*.attn.[qv]",
    *,
    rank: int = 8,
    alpha: float | None = None,
    dropout: float = 0.0,
) -> Model:
    """`lora`, with a trained length for each row (Liu et al. 2024).

    Args:
        model: the model, changed in place.
        pattern: a shell-style pattern for the last parts of the Linears' names. By default the
            queries and values.
        rank: the rank of every update.
        alpha: scales every update by alpha / rank. By default alpha is the rank.
        dropout: the probability of dropping an input of an update.
    """
    return _inject_updates(model, DoRALinear, pattern, rank, alpha, dropout)


def _inject_updates(
    model: Model,
    kind: type[LoRALinear],
    pattern: str,
    rank: int,
    alpha: float | None,
    dropout: float,
) -> Model:
    if alpha is None:
        alpha = rank
    inject(model, pattern, lambda linear: kind(linear, rank, alpha, dropout))
    freeze(model)  # all but the updates
    return model


@torch.no_grad()
def merge(model: nn.Module) -> dict[str, LoRALinear]:
    """Add every update to its matrix and remove the update, so the model is as fast as its base.

    Returns:
        The removed layers by name, for `unmerge`.

    Raises:
        CourseError: there is no update, or the matrices are quantised.
    """
    layers = {
        name: module for name, module in model.named_modules() if isinstance(module, LoRALinear)
    }
    if not layers:
        raise CourseError("The model has no LoRA updates to merge.")
    if any(isinstance(layer.base, QuantisedLinear) for layer in layers.values()):
        raise CourseError(
            "The 16 levels of NF4 cannot take an update in; load it into the unquantised model."
        )
    for name, layer in layers.items():
        layer.merge()
        put(model, name, layer.base)
    return layers


@torch.no_grad()
def unmerge(model: nn.Module, layers: Mapping[str, LoRALinear]) -> None:
    """Undo `merge`, up to rounding.

    Args:
        model: the merged model, changed in place.
        layers: what `merge` returned.
    """
    for name, layer in layers.items():
        layer.unmerge()
        put(model, name, layer.train(layer.base.training))
