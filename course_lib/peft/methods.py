"""Change a model by name: find Linears by a pattern, put LoRA or adapters in their place, train
only what is new.
"""

import fnmatch
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.peft.nf4 import QuantisedLinear

Base = nn.Linear | QuantisedLinear
Model = TypeVar("Model", bound=nn.Module)


class Added(nn.Module):
    """Weights that a method adds to a frozen model. `freeze` leaves exactly these trainable."""


def freeze(model: nn.Module) -> None:
    """No weight is trained any more, except what a method has added."""
    model.requires_grad_(False)
    for module in model.modules():
        if isinstance(module, Added):
            module.requires_grad_(True)


def inject(model: nn.Module, pattern: str, wrap: Callable[[Base], nn.Module]) -> list[str]:
    """Put `wrap(linear)` in the place of every Linear whose name ends as the pattern says; returns
    the names.

    pattern: shell-style, part by part from the end of the name: "blocks.*.attn.[qv]" finds queries
    and values in every stack of the model, "decoder.blocks.*.cross.*" all of the cross-attention,
    "blocks.*.*.*" every Linear of the blocks."""
    length = pattern.count(".") + 1
    linears = {name: module for name, module in model.named_modules() if isinstance(module, Base)}
    endings = {name: ".".join(name.split(".")[-length:]) for name in linears}
    found = [name for name, ending in endings.items() if fnmatch.fnmatchcase(ending, pattern)]
    if not found:
        some = ", ".join(sorted(set(endings.values()))[:6]) or "none at all"
        raise CourseError(f"No Linear of the model is called {pattern!r}; it has {some}.")
    for name in found:
        put(model, name, wrap(linears[name]).train(linears[name].training))
    return found


def put(model: nn.Module, name: str, module: nn.Module) -> None:
    """Let `module` stand where `name` says."""
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, module)


def where(base: Base) -> dict[str, Any]:
    """Device and precision of what is added to this Linear; float32 where it is quantised."""
    if isinstance(base, QuantisedLinear):
        return {"device": base.codes.device, "dtype": torch.float32}
    return {"device": base.weight.device, "dtype": base.weight.dtype}


class LoRA(Added):
    """(alpha / r) B A dropout(x), to add to W x (Hu et al. 2021, section 4.1). b is zero at first.
    alpha: the update's strength, constant when r changes, so that the learning rate need not."""

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
        self.rank, self.alpha, self.dropout = rank, alpha, nn.Dropout(dropout)
        self.a = nn.Parameter(torch.empty(rank, inputs, **options))
        self.b = nn.Parameter(torch.zeros(outputs, rank, **options))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))  # the paper's code; its text says Gaussian

    @property
    def delta(self) -> Float[Tensor, "O I"]:
        """What the update adds to the matrix."""
        return self.alpha / self.rank * (self.b @ self.a)

    def forward(self, x: Float[Tensor, "*T I"]) -> Float[Tensor, "*T O"]:
        return self.alpha / self.rank * F.linear(F.linear(self.dropout(x), self.a), self.b)


class LoRALinear(nn.Module):
    """A Linear with an update beside it."""

    def __init__(self, base: Base, rank: int, alpha: float, dropout: float = 0.0) -> None:
        super().__init__()
        self.base, self.lora = (
            base,
            LoRA(base.in_features, base.out_features, rank, alpha, dropout, **where(base)),
        )

    def forward(self, x: Float[Tensor, "*T I"]) -> Float[Tensor, "*T O"]:
        return self.base(x) + self.lora(x)


def lora(
    model: Model,
    pattern: str = "blocks.*.attn.[qv]",
    *,
    rank: int = 8,
    alpha: float | None = None,
    dropout: float = 0.0,
) -> Model:
    """Freeze the model and put an update of rank r beside every Linear that the pattern finds (as
    `inject` reads it; queries and values were found to be the best two, section 7.1). alpha: by
    default r."""
    inject(
        model,
        pattern,
        lambda linear: LoRALinear(linear, rank, rank if alpha is None else alpha, dropout),
    )
    freeze(model)
    return model


@torch.no_grad()
def merge(model: nn.Module) -> dict[str, LoRALinear]:
    """Add every update to its matrix: the model has its first names again, and no more to compute
    than before. Returns what was taken out, by name, for `unmerge`."""
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
        cast(nn.Parameter, layer.base.weight).add_(layer.lora.delta)
        put(model, name, layer.base)
    return layers


@torch.no_grad()
def unmerge(model: nn.Module, layers: Mapping[str, LoRALinear]) -> None:
    """Take the updates out of the matrices again and put them beside: the reverse of `merge`, up to
    rounding.
    """
    for name, layer in layers.items():
        cast(nn.Parameter, layer.base.weight).sub_(layer.lora.delta)
        put(model, name, layer.train(layer.base.training))


def quantise(model: Model, pattern: str = "blocks.*.*.*") -> Model:
    """Keep the weights of every Linear that the pattern finds in NF4, in place; `lora` then makes
    it QLoRA, but for the paged optimizers. By default all Linears of the blocks, as Dettmers et al.
    2023 have it."""
    inject(model, pattern, lambda linear: QuantisedLinear(cast(nn.Linear, linear)))
    freeze(model)
    return model


class Adapter(Added):
    """h + up(act(down(h))): D to `width` m and back (Houlsby et al. 2019, figure 2). 2 D m + D + m
    parameters. std: of the initial weights, near the identity: section 3.6 sees no harm below it,
    and much above."""

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
    """A Linear whose output goes through an adapter."""

    def __init__(self, base: Base, width: int) -> None:
        super().__init__()
        self.base, self.adapter = base, Adapter(base.out_features, width, **where(base))

    def forward(self, x: Float[Tensor, "*T I"]) -> Float[Tensor, "*T D"]:
        return self.adapter(self.base(x))


def adapters(model: Model, width: int = 64) -> Model:
    """Freeze the model and put an adapter after the attention and the feed-forward of every block,
    before the residual. Known departures: dropout acts after the adapter instead of before it; the
    norms are not trained along."""
    for place in ("blocks.*.attn.out", "blocks.*.ff.down"):
        inject(model, place, lambda linear: AdaptedLinear(linear, width))
    freeze(model)
    return model


def bitfit(model: Model) -> Model:
    """Train the biases only (Ben Zaken et al. 2022)."""
    freeze(model)
    for name, weight in model.named_parameters():
        weight.requires_grad_(name.split(".")[-1] == "bias")
    return model


@dataclass(frozen=True)
class Count:
    """What training a model takes, without activations. trainable, total: numbers of parameters; a
    quantised weight counts as one. weights: bytes of all as they are stored. bytes: these, and of
    the trained weights the gradients and Adam's two moments."""

    trainable: int
    total: int
    weights: int
    bytes: int

    @property
    def share(self) -> float:
        """Trained parameters out of all."""
        return self.trainable / self.total


def count(model: nn.Module) -> Count:
    """Count parameters and bytes. Also of a model on the meta device, which takes no memory
    itself.
    """
    own = list(model.parameters())
    trained = [weight for weight in own if weight.requires_grad]
    quantised = [module for module in model.modules() if isinstance(module, QuantisedLinear)]
    codes = [part for module in quantised for part in module.buffers()]
    weights = sum(part.nbytes for part in own + codes)
    return Count(
        trainable=sum(weight.numel() for weight in trained),
        total=sum(weight.numel() for weight in own)
        + sum(m.in_features * m.out_features for m in quantised),
        weights=weights,
        bytes=weights + 3 * sum(weight.nbytes for weight in trained),
    )
