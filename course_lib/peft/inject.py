"""Find Linears of a model by a pattern of their names, and replace them.

    inject(model, "blocks.*.attn.[qv]", lambda linear: LoRALinear(linear, rank=8, alpha=8))

replaces "stack.blocks.0.attn.q", "stack.blocks.0.attn.v", "stack.blocks.1.attn.q" and so on. Each
method of this folder begins with such a call, and ends with `freeze`.
"""

import fnmatch
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

from course_lib.errors import CourseError
from course_lib.peft.nf4 import QuantisedLinear

Base = nn.Linear | QuantisedLinear  # what a method replaces or wraps
Model = TypeVar("Model", bound=nn.Module)


class Added(nn.Module):
    """Base class of what a method adds to a model. `freeze` leaves only these weights trainable."""


def freeze(model: nn.Module) -> None:
    """Freeze all weights except those in `Added` modules: also embeddings, norms and biases."""
    model.requires_grad_(False)
    for module in model.modules():
        if isinstance(module, Added):
            module.requires_grad_(True)


def inject(model: nn.Module, pattern: str, wrap: Callable[[Base], nn.Module]) -> list[str]:
    """Replace every Linear whose name matches a pattern by `wrap(linear)`.

    Args:
        model: the model, changed in place.
        pattern: a shell-style pattern for the last parts of a name:
            "blocks.*.attn.[qv]"          queries and values of all layers
            "decoder.blocks.*.cross.*"    the whole cross-attention
            "blocks.*.*.*"                every Linear in the blocks
        wrap: (Linear, perhaps quantised) -> the module that replaces it.

    Returns:
        The names of the replaced Linears.

    Raises:
        CourseError: no name matches.
    """
    parts = pattern.count(".") + 1
    linears = {name: module for name, module in model.named_modules() if isinstance(module, Base)}
    # "blocks.*.attn.q" has four parts, so only the last four of each name are compared:
    # "encoder.blocks.0.attn.q" -> "blocks.0.attn.q".
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
    """Device and dtype for new weights that work with this Linear; float32 if it is quantised."""
    if isinstance(base, QuantisedLinear):
        return {"device": base.codes.device, "dtype": torch.float32}
    return {"device": base.weight.device, "dtype": base.weight.dtype}
