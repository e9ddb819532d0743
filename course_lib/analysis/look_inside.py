"""Collect the outputs of a model's submodules while it runs, or switch its heads off."""

import fnmatch
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.model.attention import Attention


@contextmanager
def capture(model: nn.Module, *patterns: str, detach: bool = True) -> Iterator[dict[str, Tensor]]:
    """Collect the outputs of every submodule whose name matches, as name -> Tensor.

    Args:
        model: the model. Inside the context every call replaces the outputs of the call before.
        patterns: shell-style names, without "stack.": "blocks.*.attn.probs" (attention weights
            [B, H, Tq, Tk]), "blocks.*" (hidden states after each block).
        detach: False keeps the gradient, for a loss on the outputs.

    Raises:
        CourseError: if no part has such a name.
    """
    parts = [(name.removeprefix("stack."), module) for name, module in model.named_modules()]
    outputs: dict[str, Tensor] = {}

    def keep(name: str, module: nn.Module, inputs: object, output: Tensor) -> None:
        outputs[name] = output.detach() if detach else output

    with ExitStack() as hooks:
        for pattern in patterns:
            matching = [(name, module) for name, module in parts if _matches(name, pattern)]
            if not matching:
                examples = ", ".join(name for name, _ in parts[1:12])  # 0 is the model itself
                raise CourseError(
                    f"No part of the model is called {pattern!r}; it has {examples}, ..."
                )
            for name, module in matching:
                handle = module.register_forward_hook(partial(keep, name))
                hooks.callback(handle.remove)  # at the end of the context, also after an error
        yield outputs


@contextmanager
def without_heads(model: nn.Module, heads: Iterable[tuple[int, int]]) -> Iterator[None]:
    """Inside the context, the output of these attention heads is zero (ablation).

    Args:
        model: an encoder or a decoder.
        heads: pairs (layer, head), both counted from 0.

    Raises:
        CourseError: if the model has no such head.
    """
    parts = {name.removeprefix("stack."): module for name, module in model.named_modules()}
    kept: dict[int, Tensor] = {}  # for each layer, 0 where the head is switched off
    for layer, head in heads:
        attn = parts.get(f"blocks.{layer}.attn")
        if not isinstance(attn, Attention) or not 0 <= head < attn.heads:
            raise CourseError(f"The model has no head ({layer}, {head}); both count from 0.")
        weight = next(attn.out.parameters())
        ones = weight.new_ones(attn.heads * attn.dh)
        kept.setdefault(layer, ones)[head * attn.dh : (head + 1) * attn.dh] = 0

    def zero(keep: Tensor, module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (inputs[0] * keep, *inputs[1:])

    with ExitStack() as hooks:
        for layer, keep in kept.items():
            out = parts[f"blocks.{layer}.attn"].out
            hooks.callback(out.register_forward_pre_hook(partial(zero, keep)).remove)
        yield


def _matches(name: str, pattern: str) -> bool:
    """Whether a name matches. A * matches one part of a name, never a dot."""
    return name.count(".") == pattern.count(".") and fnmatch.fnmatchcase(name, pattern)
