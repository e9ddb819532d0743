"""What a model does and costs: a look inside (`capture`), probes, evaluation, metrics, costs,
retrieval.
"""

import fnmatch
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from torch import Tensor, nn

from course_lib.errors import CourseError


@contextmanager
def capture(model: nn.Module, *patterns: str, detach: bool = True) -> Iterator[dict[str, Tensor]]:
    """Collect the outputs of every submodule whose name matches, as name -> Tensor (the latest
    call's). patterns: shell-style names, without "stack.": "blocks.*.attn.probs" (attention weights
    [B, H, Tq, Tk]), "blocks.*" (hidden states after each block). detach: False keeps the gradient,
    for a loss on what is seen."""
    parts = [(name.removeprefix("stack."), module) for name, module in model.named_modules()]
    seen: dict[str, Tensor] = {}

    def keep(name: str, module: nn.Module, inputs: object, output: Tensor) -> None:
        seen[name] = output.detach() if detach else output

    with ExitStack() as hooks:
        for pattern in patterns:
            depth = pattern.count(".")
            found = [
                (n, m)
                for n, m in parts
                if n.count(".") == depth and fnmatch.fnmatchcase(n, pattern)
            ]
            if not found:
                some = ", ".join(name for name, _ in parts[1:12])
                raise CourseError(f"No part of the model is called {pattern!r}; it has {some}, ...")
            for name, module in found:
                hooks.callback(module.register_forward_hook(partial(keep, name)).remove)
        yield seen
