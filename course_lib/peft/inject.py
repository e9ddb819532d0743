"""Find the Linears of a model by a pattern of their names, and replace them."""

import fnmatch
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

from course_lib.errors import CourseError
from course_lib.peft.nf4 import QuantisedLinear

Base = nn.Linear | QuantisedLinear
Model = TypeVar("Model", bound=nn.Module)


class Added(nn.Module):
    """Weights that a method adds to a frozen model. `freeze` leaves exactly these trainable."""


def freeze(model: nn.Module) -> None:
    """Freeze all weights but those that a method has added."""
    model.requires_grad_(False)
    for module in model.modules():
        if isinstance(module, Added):
            module.requires_grad_(True)


def inject(model: nn.Module, pattern: str, wrap: Callable[[Base], nn.Module]) -> list[str]:
    """Replace every Linear whose name ends as the pattern says by `wrap(linear)`.

    Args:
        model: the model, changed in place.
        pattern: a shell-style pattern for the last parts of a name. "blocks.*.attn.[qv]" finds
            queries and values in every stack of the model, "decoder.blocks.*.cross.*" all of the
            cross-attention, "blocks.*.*.*" every Linear of the blocks.
        wrap: gives the new module for a Linear.

    Returns:
        The names of the replaced Linears.

    Raises:
        CourseError: if no Linear's name ends so.
    """
    parts = pattern.count(".") + 1
    linears = {name: module for name, module in model.named_modules() if isinstance(module, Base)}
    # As many parts of each name as the pattern has: "encoder.blocks.0.attn.q" -> "blocks.0.attn.q"
    endings = {name: ".".join(name.split(".")[-parts:]) for name in linears}
    names = [name for name, ending in endings.items() if fnmatch.fnmatchcase(ending, pattern)]
    if not names:
        examples = ", ".join(sorted(set(endings.values()))[:6]) or "none at all"
        raise CourseError(f"No Linear of the model is called {pattern!r}; it has {examples}.")
    for name in names:
        linear = linears[name]
        put(model, name, wrap(linear).train(linear.training))
    return names


def put(model: nn.Module, name: str, module: nn.Module) -> None:
    """Replace the submodule of this name, such as "blocks.0.attn.q"."""
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, module)


def placement(base: Base) -> dict[str, Any]:
    """Device and dtype for new weights beside this Linear; float32 if it is quantised."""
    if isinstance(base, QuantisedLinear):
        return {"device": base.codes.device, "dtype": torch.float32}
    return {"device": base.weight.device, "dtype": base.weight.dtype}
