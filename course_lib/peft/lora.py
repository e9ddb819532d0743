"""LoRA (Hu et al. 2021): beside a frozen matrix W an update of low rank, W x + (alpha / r) B A x.

A is random and B zero, so training starts from the model as it is. Afterwards the update can be added to W, and the
model costs what it did before. QLoRA (Dettmers et al. 2023) is the same over a base in NF4.
"""

import math
from collections.abc import Mapping
from typing import TypeVar, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.peft.inject import Added, Base, freeze, inject, put, where
from course_lib.peft.nf4 import QuantisedLinear

Model = TypeVar("Model", bound=nn.Module)


class LoRA(Added):
    """The update alone: (alpha / r) B A dropout(x).

    Args:
        inputs, outputs: widths of the matrix beside which it stands. rank: r. alpha: the update's strength, constant
            when r changes, so that the learning rate need not. dropout: on what the update reads.
    """

    def __init__(
        self, inputs: int, outputs: int, rank: int, alpha: float, dropout: float = 0.0,
        *, device: torch.device | None = None, dtype: torch.dtype | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.rank, self.alpha = rank, alpha
        self.dropout = nn.Dropout(dropout)
        self.a = nn.Parameter(torch.empty(rank, inputs, device=device, dtype=dtype))
        self.b = nn.Parameter(torch.zeros(outputs, rank, device=device, dtype=dtype))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))  # the paper's code; its text says Gaussian

    @property
    def delta(self) -> Float[Tensor, "O I"]:
        """What the update adds to the matrix."""
        return self.alpha / self.rank * (self.b @ self.a)

    def forward(self, x: Float[Tensor, "*T I"]) -> Float[Tensor, "*T O"]:
        return self.alpha / self.rank * F.linear(F.linear(self.dropout(x), self.a), self.b)


class LoRALinear(nn.Module):
    """A Linear with an update beside it."""

    def __init__(self, base: Base, lora: LoRA) -> None:
        super().__init__()
        self.base, self.lora = base, lora

    def forward(self, x: Float[Tensor, "*T I"]) -> Float[Tensor, "*T O"]:
        out: Tensor = self.base(x) + self.lora(x)
        return out


def lora(
    model: Model, pattern: str = "blocks.*.attn.[qv]", *, rank: int = 8, alpha: float | None = None,
    dropout: float = 0.0,
) -> Model:  # fmt: skip
    """Freeze the model and put an update of rank r beside every Linear that the pattern finds.

    Args:
        model: changed in place, and returned. pattern: as `inject` reads it; by default queries and values, which the
            paper found to be the best two (section 7.1).
        alpha: by default r, which makes the factor alpha / r one.

    Raises:
        CourseError: nothing is found, the rank is below one or above that of a matrix.
    """

    def beside(linear: Base) -> nn.Module:
        full = min(linear.in_features, linear.out_features)
        if not 1 <= rank <= full:
            raise CourseError(f"rank is {rank}; beside a matrix of rank {full} it must lie between 1 and {full}.")
        return beside_linear(linear, rank, rank if alpha is None else alpha, dropout)

    inject(model, pattern, beside)
    freeze(model)
    return model


def beside_linear(linear: Base, rank: int, alpha: float, dropout: float = 0.0) -> LoRALinear:
    """A fresh update beside one Linear, on its device and in its precision (float32 beside a quantised one)."""
    device, dtype = where(linear)
    update = LoRA(linear.in_features, linear.out_features, rank, alpha, dropout, device=device, dtype=dtype)
    return LoRALinear(linear, update)


@torch.no_grad()
def merge(model: nn.Module) -> dict[str, LoRA]:
    """Add every update to its matrix: the model has its first names again, and no more to compute than before.

    Returns: the updates by the name of their Linear, for `unmerge`.

    Raises:
        CourseError: no updates, or a quantised base.
    """
    layers = {name: module for name, module in model.named_modules() if isinstance(module, LoRALinear)}
    if not layers:
        raise CourseError("The model has no LoRA updates to merge.")
    for name, layer in layers.items():
        if isinstance(layer.base, QuantisedLinear):
            raise CourseError(
                f"{name} has a base in NF4, whose 16 levels cannot take an update in; load the LoRA weights into the "
                "unquantised model and merge there."
            )
    for name, layer in layers.items():
        cast(nn.Parameter, layer.base.weight).add_(layer.lora.delta)
        put(model, name, layer.base)
    return {name: layer.lora for name, layer in layers.items()}


@torch.no_grad()
def unmerge(model: nn.Module, updates: Mapping[str, LoRA]) -> None:
    """Take the updates out of the matrices again and put them beside: the reverse of `merge`, up to rounding.

    Raises:
        CourseError: an update does not belong to a Linear of this model.
    """
    modules = dict(model.named_modules())
    for name, update in updates.items():
        base = modules.get(name)
        if not isinstance(base, nn.Linear) or base.weight.shape != (len(update.b), update.a.shape[1]):
            raise CourseError(f"{name} is no Linear into which this update was merged; is it another model's?")
    for name, update in updates.items():
        base = modules[name]
        assert isinstance(base, nn.Linear)
        base.weight -= update.delta
        put(model, name, LoRALinear(base, update).train(base.training))


def quantise(model: Model, pattern: str = "blocks.*.*.*") -> Model:
    """Keep the weights of every Linear that the pattern finds in NF4, in place; `lora` then makes it QLoRA.

    By default all Linears of the blocks, as in the paper; norms and token vectors stay as they are. Left out: paged
    optimizers.

    Raises:
        CourseError: nothing is found, or it is quantised already.
    """

    def in_nf4(linear: Base) -> nn.Module:
        if not isinstance(linear, nn.Linear):
            raise CourseError(f"What {pattern!r} finds is in NF4 already.")
        return QuantisedLinear(linear)

    inject(model, pattern, in_nf4)
    freeze(model)
    return model
