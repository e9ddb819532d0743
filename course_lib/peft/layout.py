"""How a method's weights are stored in a folder of the library `peft`, as `folders.py` needs it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from course_lib.families.weight_tables import Converted

Places = Mapping[str, Converted]  # public name -> the weights of our model that it is


@dataclass
class Stored:
    """A folder that is being read.

    Args:
        model: ours, that equals the adapter's base.
        config: the folder's adapter_config.json.
        weights: the folder's tensors by their public names. A method takes out those that are its
            own; what is left are whole weights of the base.
        places: of the public weights in the model.
    """

    model: nn.Module
    config: Mapping[str, Any]
    weights: dict[str, Tensor]
    places: Places


@dataclass(frozen=True)
class Layout:
    """A method's form in such a folder.

    Args:
        prefix: stands in front of the names of all weights of the base.
        holder: the class of a module that the method puts into a model.
        added: the classes whose weights `write` writes.
        read: takes a method's tensors out of the folder and checks them; gives a function that then
            puts them into the model, so that a folder is read whole or not at all.
        write: gives the entries of adapter_config.json, and tensors by their full names.
    """

    prefix: str
    holder: type[nn.Module]
    added: tuple[type[nn.Module], ...]
    read: Callable[[Stored], Callable[[], None]]
    write: Callable[[nn.Module, Places], tuple[dict[str, Any], dict[str, Tensor]]]

    def is_in(self, model: nn.Module) -> bool:
        """Whether the method has changed this model."""
        return any(isinstance(module, self.holder) for module in model.modules())
