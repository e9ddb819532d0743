"""Files that hold the trained weights alone: megabytes beside a base of gigabytes."""

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.files import atomic_write


def save(model: nn.Module, path: str | Path) -> None:
    """Write every trainable weight, and nothing else, to one safetensors file.

    Raises:
        CourseError: nothing is trainable, or the file cannot be written.
    """
    with atomic_write(path, "wb") as file:
        file.write(to_bytes({name: weight.detach().contiguous() for name, weight in trained(model).items()}))


@torch.no_grad()
def load(model: nn.Module, path: str | Path) -> None:
    """Read what `save` wrote into a model prepared by the same method with the same sizes. All or nothing.

    Raises:
        CourseError: no such file, a damaged one, or weights of another method, place or size.
    """
    weights, own = read(Path(path)), trained(model)
    different = sorted(weights.keys() ^ own.keys())
    if different:
        side = "the file has" if different[0] in weights else "the model trains"
        raise CourseError(
            f"{path} does not fit this model: only {side} {different[0]} ({len(different)} such weights); prepare the "
            "model by the method and pattern that the file was saved with."
        )
    for name, weight in own.items():
        if weight.shape != weights[name].shape:
            raise CourseError(
                f"{path}: {name} has shape {list(weights[name].shape)}, but the model's is {list(weight.shape)}; was "
                "it trained with another rank, width or length?"
            )
    for name, weight in own.items():
        weight.copy_(weights[name])


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """The trainable weights by name, a tied one once.

    Raises:
        CourseError: there are none.
    """
    found = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    if not found:
        raise CourseError("The model has no trainable weight; put one in first (peft.lora and the like).")
    return found


def read(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file.

    Raises:
        CourseError: no such file, or a damaged one.
    """
    try:
        return from_bytes(path.read_bytes())
    except OSError as error:
        raise CourseError(f"{path} cannot be read: {error.strerror or error}.") from None
    except SafetensorError as error:
        raise CourseError(f"{path} is no safetensors file, or a damaged one ({error}); fetch it again.") from None
