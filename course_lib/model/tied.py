"""Tied tensors: one tensor under several names, such as token vectors and output matrix."""

from torch import nn


def tied(model: nn.Module) -> dict[str, str]:
    """Each further name of a tied tensor -> its first name.

    >>> model = nn.ModuleDict({"embed": nn.Embedding(5, 2), "head": nn.Linear(2, 5, bias=False)})
    >>> model["head"].weight = model["embed"].weight
    >>> tied(model)
    {'head.weight': 'embed.weight'}
    """
    tensors = [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]
    first_names: dict[int, str] = {}  # id of the tensor -> name
    further_names = {}
    for name, tensor in tensors:
        first = first_names.setdefault(id(tensor), name)
        if first != name:
            further_names[name] = first
    return further_names
