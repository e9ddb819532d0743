"""A model whose Linears are kept in NF4: the frozen base of QLoRA."""

from typing import cast

from torch import nn

from course_lib.peft.inject import Model, freeze, inject
from course_lib.peft.nf4 import QuantisedLinear


def quantise(model: Model, pattern: str = "blocks.*.*.*") -> Model:
    """Keep the weights of every Linear that the pattern finds in NF4, in place.

    `lora(quantise(model))` is QLoRA (Dettmers et al. 2023), but for the paged optimizers. By
    default it takes all Linears of the blocks, as the paper does.
    """
    inject(model, pattern, lambda linear: QuantisedLinear(cast(nn.Linear, linear)))
    freeze(model)
    return model
