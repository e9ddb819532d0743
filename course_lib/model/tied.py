"""Tensors that a model has under several names: the token table that is the output matrix too."""

from torch import nn


def tied(model: nn.Module) -> dict[str, str]:
    """The further names of tied tensors -> the first name."""
    first_name: dict[int, str] = {}
    twins = {}
    every = [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]
    for name, tensor in every:
        first = first_name.setdefault(id(tensor), name)
        if first != name:
            twins[name] = first
    return twins
