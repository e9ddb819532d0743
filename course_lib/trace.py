"""Look inside a model without changing it: hooks that live as long as a `with` block."""

import fnmatch
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from course_lib.errors import CourseError


@contextmanager
def record(model: nn.Module, *patterns: str, detach: bool = True) -> Iterator[dict[str, Tensor]]:
    """Collect the outputs of every submodule whose name matches, as name -> Tensor (the latest call's).

    Args:
        model: any module. patterns: shell-style names such as "blocks.*.attn.probs" (attention weights
            [B, H, Tq, Tk]) or "blocks.*" (hidden states after each block); a model that holds a stack is
            searched with and without the "stack." prefix. detach: False keeps the gradient, for a loss on what is seen.

    Raises:
        CourseError: no submodule has such a name.

    >>> with record(model, "blocks.*.attn.probs") as seen:   # doctest: +SKIP
    ...     model(ids)
    >>> seen["blocks.0.attn.probs"].shape                    # doctest: +SKIP
    torch.Size([1, 4, 6, 6])
    """
    seen: dict[str, Tensor] = {}
    watched = [part for pattern in patterns for part in _find(model, pattern)]
    handles = [module.register_forward_hook(_keeper(seen, name, detach)) for name, module in watched]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _find(model: nn.Module, pattern: str) -> list[tuple[str, nn.Module]]:
    parts = [(name.removeprefix("stack."), module) for name, module in model.named_modules()]
    depth = pattern.count(".")
    found = [(n, m) for n, m in parts if n.count(".") == depth and fnmatch.fnmatchcase(n, pattern)]
    if not found:
        some = ", ".join(name for name, _ in parts[1:12])
        raise CourseError(f"No part of the model is called {pattern!r}; it has {some}, ...")
    return found


def _keeper(seen: dict[str, Tensor], name: str, detach: bool) -> Callable[[nn.Module, object, Tensor], None]:
    def hook(module: nn.Module, inputs: object, output: Tensor) -> None:
        seen[name] = output.detach() if detach else output

    return hook
