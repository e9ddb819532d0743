"""Quantise a model's Linears to 4 bits (nf4.py), as the frozen base of QLoRA."""

from typing import cast

from torch import nn

from course_lib.peft.inject import Model, freeze, inject
from course_lib.peft.nf4 import QuantisedLinear


def quantise(model: Model, pattern: str = "blocks.*.*.*") -> Model:
    """Quantise every Linear that matches the pattern to NF4, and freeze the model.

    `lora(quantise(model))` is QLoRA (Dettmers et al. 2023) without its paged optimizers.

    Args:
        model: the model, changed in place.
        pattern: the names of the Linears, as in `inject`. By default all Linears of the blocks, as
            in the paper.
    """
    inject(model, pattern, lambda linear: QuantisedLinear(cast(nn.Linear, linear)))
    freeze(model)
    return model
