"""How many parameters a model trains, and how much memory that takes.

    peft.count(peft.lora(bert_base)).trainable        294912, of 110 million

A quantised weight needs 4 bits, a trained one 16 bytes: itself, its gradient, Adam's two moments.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from course_lib.peft.nf4 import QuantisedLinear


@dataclass(frozen=True)
class Count:
    """The parameters and the memory of a training, without activations.

    Attributes:
        trainable: the number of trained parameters.
        total: the number of all parameters. A quantised weight counts as one.
        weights: the bytes of all weights as they are stored.
        bytes: `weights`, and the gradients and Adam's two moments of the trained parameters.
    """

    trainable: int
    total: int
    weights: int
    bytes: int

    @property
    def share(self) -> float:
        """The share of the parameters that is trained."""
        return self.trainable / self.total


def count(model: nn.Module) -> Count:
    """Count a model's parameters and bytes.

    Args:
        model: the model. On the meta device it needs no memory itself, however large it is.
    """
    parameters = list(model.parameters())
    trained = [weight for weight in parameters if weight.requires_grad]
    quantised = [module for module in model.modules() if isinstance(module, QuantisedLinear)]
    # A quantised weight is no parameter. Its codes and their scales are buffers.
    buffers: list[Tensor] = []
    for module in quantised:
        buffers += module.buffers()

    total = sum(weight.numel() for weight in parameters)
    total += sum(module.in_features * module.out_features for module in quantised)
    stored = sum(tensor.nbytes for tensor in parameters + buffers)
    # A gradient and Adam's two moments for each trained weight.
    training = 3 * sum(weight.nbytes for weight in trained)
    return Count(
        trainable=sum(weight.numel() for weight in trained),
        total=total,
        weights=stored,
        bytes=stored + training,
    )
