"""Collect the outputs of a model's submodules while it runs."""

import fnmatch
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from torch import Tensor, nn

from course_lib.errors import CourseError


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


def _matches(name: str, pattern: str) -> bool:
    """Whether a name matches. A * matches one part of a name, never a dot."""
    return name.count(".") == pattern.count(".") and fnmatch.fnmatchcase(name, pattern)
