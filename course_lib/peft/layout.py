"""What folders.py must know of a method to read and write its folders of the library `peft`.

    adapter_config.json          {"peft_type": "LORA", "r": 8, "lora_alpha": 16, ...}
    adapter_model.safetensors    {"base_model.model.transformer.h.0.attn.c_attn.lora_A.weight": ...}

The names of the tensors are those of the public base model, here GPT-2, with the method's own
ending. Each method has a `Layout`: LoRA in lora_layout.py, prompts and prefixes in front_layout.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from course_lib.families.weight_tables import Converted

# A family's table for one model: public name of a weight -> our names for it, and the conversion.
# For example "transformer.h.0.attn.c_attn.weight" -> "stack.blocks.0.attn.q.weight", k and v.
Rows = Mapping[str, Converted]


@dataclass
class AdapterFiles:
    """The content of a folder that is being loaded.

    Attributes:
        model: our model, which equals the adapter's base.
        config: adapter_config.json.
        weights: public name -> tensor. `Layout.read` removes the method's own tensors. Those that
            remain are whole weights of the base, such as a trained head.
        rows: the table of the model's weights.
    """

    model: nn.Module
    config: Mapping[str, Any]
    weights: dict[str, Tensor]
    rows: Rows


@dataclass(frozen=True)
class Layout:
    """How one method is stored.

    Attributes:
        prefix: what the names of all tensors in the file begin with: "base_model.model.".
        module: the class of our module that shows that a model has the method: `LoRALinear`.
        added: the classes of ours whose weights `write` returns. Other trained weights are written
            by folders.py.
        read: removes and checks the method's tensors. It returns a function that puts them into
            the model. So the model stays as it is if anything in the folder does not fit.
        write: (model, its rows) -> the method's entries of adapter_config.json, and its tensors by
            their names in the file.
    """

    prefix: str
    module: type[nn.Module]
    added: tuple[type[nn.Module], ...]
    read: Callable[[AdapterFiles], Callable[[], None]]
    write: Callable[[nn.Module, Rows], tuple[dict[str, Any], dict[str, Tensor]]]

    def is_in(self, model: nn.Module) -> bool:
        """Whether a model has the method."""
        return any(isinstance(module, self.module) for module in model.modules())
