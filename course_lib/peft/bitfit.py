"""BitFit: train the biases only."""

from course_lib.peft.inject import Model, freeze


def bitfit(model: Model) -> Model:
    """Freeze all weights but the biases, in place (Ben Zaken et al. 2022)."""
    freeze(model)
    for name, weight in model.named_parameters():
        weight.requires_grad_(name.split(".")[-1] == "bias")
    return model
