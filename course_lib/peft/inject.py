"""Change a model by name: find Linears by a pattern, put something in their place, train only what is new."""

import difflib
import fnmatch
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import nn

from course_lib.errors import CourseError
from course_lib.peft.nf4 import QuantisedLinear

Base = nn.Linear | QuantisedLinear
Model = TypeVar("Model", bound=nn.Module)


class Added(nn.Module):
    """Weights that a method adds to a frozen model. `freeze` leaves exactly these trainable."""


def inject(model: nn.Module, pattern: str, wrap: Callable[[Base], nn.Module]) -> list[str]:
    """Put `wrap(linear)` in the place of every Linear whose name ends as the pattern says.

    Args:
        model: changed in place. pattern: shell-style, part by part from the end of the name: "blocks.*.attn.[qv]"
            finds queries and values in every stack of the model, "decoder.blocks.*.cross.*" all of the
            cross-attention, "blocks.*.*.*" every Linear of the blocks.
        wrap: gets the Linear (or `QuantisedLinear`) and returns what is called in its place. The rest of the model
            keeps its names; a module that holds the Linear as `base` gives it the name NAME.base.

    Returns: the names, in the model's order.

    Raises:
        CourseError: the pattern finds no Linear; the sentence lists names that are like it.
    """
    found = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, Base) and fnmatch.fnmatchcase(_ending(name, pattern), pattern)
    }
    if not found:
        raise CourseError(f"No Linear of the model is called {pattern!r}; {_near(model, pattern)}.")
    for name, linear in found.items():
        put(model, name, wrap(linear).train(linear.training))
    return list(found)


def put(model: nn.Module, name: str, module: nn.Module) -> None:
    """Let `module` stand where `name` says."""
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, module)


def where(base: Base) -> tuple[torch.device, torch.dtype]:
    """Device and precision of what is added to this Linear; float32 where it is quantised."""
    if isinstance(base, QuantisedLinear):
        return base.codes.device, torch.float32
    return base.weight.device, base.weight.dtype


def freeze(model: nn.Module) -> None:
    """No weight is trained any more, except what a method of this folder has added."""
    model.requires_grad_(False)
    for module in model.modules():
        if isinstance(module, Added):
            module.requires_grad_(True)


def bitfit(model: Model) -> Model:
    """Train the biases only (Ben Zaken et al. 2022). Returns the model.

    Raises:
        CourseError: a model without any (T5).
    """
    biases = [weight for name, weight in model.named_parameters() if re.search(r"(^|\.)bias$", name)]
    if not biases:
        raise CourseError("This model has no biases (StackConfig.bias is False), so BitFit has nothing to train.")
    freeze(model)
    for weight in biases:
        weight.requires_grad_(True)
    return model


@dataclass(frozen=True)
class Count:
    """What training a model takes, without activations.

    trainable, total: numbers of parameters; a quantised weight counts as one. weights, gradients, adam: bytes of all
    weights as they are stored, of the trained weights' gradients and of Adam's two moments for them.
    """

    trainable: int
    total: int
    weights: int
    gradients: int
    adam: int

    @property
    def share(self) -> float:
        """Trained parameters out of all."""
        return self.trainable / self.total

    @property
    def bytes(self) -> int:
        """Weights, gradients and optimizer together."""
        return self.weights + self.gradients + self.adam


def count(model: nn.Module) -> Count:
    """Count parameters and bytes. Also of a model on the meta device, which takes no memory itself.

    >>> count(nn.Linear(10, 2))
    Count(trainable=22, total=22, weights=88, gradients=88, adam=176)
    """
    own = list(model.parameters())
    quantised = [module for module in model.modules() if isinstance(module, QuantisedLinear)]
    gradients = sum(_bytes(weight) for weight in own if weight.requires_grad)
    return Count(
        trainable=sum(weight.numel() for weight in own if weight.requires_grad),
        total=sum(weight.numel() for weight in own) + sum(m.in_features * m.out_features for m in quantised),
        weights=sum(map(_bytes, own)) + sum(_bytes(part) for m in quantised for part in m.buffers()),
        gradients=gradients,
        adam=2 * gradients,
    )


def _bytes(x: torch.Tensor) -> int:
    return x.numel() * x.element_size()


def _ending(name: str, pattern: str) -> str:
    """As many parts of the name as the pattern has."""
    return ".".join(name.split(".")[-pattern.count(".") - 1 :])


def _near(model: nn.Module, pattern: str) -> str:
    names = [name for name, module in model.named_modules() if isinstance(module, Base)]
    general = list(dict.fromkeys(re.sub(r"\.\d+(?=\.|$)", ".*", _ending(name, pattern)) for name in names))
    close = difflib.get_close_matches(pattern, general, n=3, cutoff=0.5)
    if close:
        return f"near it are {', '.join(close)}"
    return f"it has {', '.join(general[:6])}" if general else "it has none at all"
