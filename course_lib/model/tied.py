"""Tensors that a model has under several names: the token table that is the output matrix too."""

from torch import nn


def tied(model: nn.Module) -> dict[str, str]:
    """A dict from each further name of a tied tensor to its first name."""
    tensors = [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]
    first_names: dict[int, str] = {}  # by the tensor's identity
    further_names = {}
    for name, tensor in tensors:
        first = first_names.setdefault(id(tensor), name)
        if first != name:
            further_names[name] = first
    return further_names
