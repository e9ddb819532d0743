"""Training mode and evaluation mode."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(model: nn.Module | list[nn.Module]) -> Iterator[None]:
    """A `with` block without dropout. Afterwards each module is in its earlier mode again.

    Args:
        model: the model, or `list(model.modules())`. With the list, a caller that enters the block
            at every token does not collect the modules each time.
    """
    modules = model if isinstance(model, list) else model.modules()
    training = [module for module in modules if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True
