"""Quantise a model's Linears to 4 bits, as the frozen base of QLoRA."""

from course_lib.peft.inject import Model, freeze, inject
from course_lib.peft.nf4 import QuantisedLinear


def quantise_model(model: Model, pattern: str = "blocks.*.*.*") -> Model:
    """Quantise every Linear that matches the pattern to NF4, and freeze the whole model.

    Embeddings, norms, biases and all Linears that do not match keep their numbers, but are frozen,
    too. `lora(quantise_model(model))` is QLoRA (Dettmers et al. 2023) without its paged optimizers.

    Args:
        model: the model, changed in place.
        pattern: a shell-style pattern for the last parts of the Linears' names. The default matches
            all Linears of the blocks, as in the paper: "stack.blocks.0.attn.q",
            "stack.blocks.0.ff.up", "decoder.blocks.3.cross.out", ... It does not match
            "pooler.dense".
    """
    inject(model, pattern, QuantisedLinear)
    freeze(model)
    return model
