"""Quantise a model's Linears to NF4, as the frozen base of QLoRA."""

from typing import cast

from torch import nn

from course_lib.peft.inject import Model, freeze, inject
from course_lib.peft.nf4 import QuantisedLinear


def quantise(model: Model, pattern: str = "blocks.*.*.*") -> Model:
    """Quantise every Linear that matches the pattern to NF4, in place, and freeze the model.

    `lora(quantise(model))` is QLoRA (Dettmers et al. 2023) without its paged optimizers. The
    default pattern matches all Linears of the blocks, as in the paper.
    """
    inject(model, pattern, lambda linear: QuantisedLinear(cast(nn.Linear, linear)))
    freeze(model)
    return model
