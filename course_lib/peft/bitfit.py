"""BitFit (Ben Zaken et al. 2022): train only the biases, about 0.1% of a BERT's weights."""

from course_lib.peft.inject import Model, freeze


def bitfit(model: Model) -> Model:
    """Freeze all weights of a model except its biases, in place."""
    freeze(model)  # all weights: a model without an adapter has no `Added` modules
    for name, weight in model.named_parameters():
        weight.requires_grad_(name.split(".")[-1] == "bias")
    return model
