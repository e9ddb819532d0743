"""What a model does and costs: a look inside (`capture`), probes, evaluation, metrics, costs, retrieval."""

import fnmatch
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from course_lib.errors import CourseError


@contextmanager
def capture(model: nn.Module, *patterns: str, detach: bool = True) -> Iterator[dict[str, Tensor]]:
    """Collect the outputs of every submodule whose name matches, as name -> Tensor (the latest call's). patterns:
    shell-style names, without "stack.": "blocks.*.attn.probs" (attention weights [B, H, Tq, Tk]), "blocks.*" (hidden
    states after each block). detach: False keeps the gradient, for a loss on what is seen."""
    parts = [(name.removeprefix("stack."), module) for name, module in model.named_modules()]
    seen: dict[str, Tensor] = {}
    handles = []
    try:
        for pattern in patterns:
            depth = pattern.count(".")
            found = [(n, m) for n, m in parts if n.count(".") == depth and fnmatch.fnmatchcase(n, pattern)]
            if not found:
                some = ", ".join(name for name, _ in parts[1:12])
                raise CourseError(f"No part of the model is called {pattern!r}; it has {some}, ...")
            for name, module in found:

                def keep(module: nn.Module, inputs: object, output: Tensor, name: str = name) -> None:
                    seen[name] = output.detach() if detach else output

                handles.append(module.register_forward_hook(keep))
        yield seen
    finally:
        for handle in handles:
            handle.remove()
