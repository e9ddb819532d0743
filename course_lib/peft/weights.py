"""Save and load only the weights that were trained, in one small safetensors file.

    peft.save(model, "mine.safetensors")                  LoRA's updates and a new head, 1 MB
    peft.load(peft.lora(base), "mine.safetensors")        into a base that was prepared alike

The names in the file are our own. folders.py writes the layout of the library `peft`.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.files import atomic_write


def save(model: nn.Module, path: str | Path) -> None:
    """Write every trainable weight, and nothing else, to one safetensors file."""
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    write_tensors(trained, Path(path))


@torch.no_grad()
def load(model: nn.Module, path: str | Path) -> None:
    """Load the weights that `save` wrote.

    Args:
        model: a model that was prepared by the same method, pattern and sizes.
        path: the file.

    Raises:
        CourseError: the file does not fit. The model is then unchanged.
    """
    stored = read_tensors(Path(path))
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    stored_shapes = {name: tensor.shape for name, tensor in stored.items()}
    trained_shapes = {name: weight.shape for name, weight in trained.items()}
    if stored_shapes != trained_shapes:
        raise CourseError(
            f"{path} does not fit this model; prepare it by the method, pattern and sizes that the"
            " file was saved with."
        )
    for name, weight in trained.items():
        weight.copy_(stored[name])


def write_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write a safetensors file. After an error the old file, if any, is still there."""
    # safetensors refuses a tensor that is a view with gaps, such as a transposed one.
    contiguous = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    with atomic_write(path, "wb") as file:
        # "pt" is PyTorch: transformers and peft write the same entry.
        file.write(to_bytes(contiguous, metadata={"format": "pt"}))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file.

    Raises:
        CourseError: if it cannot be read.
    """
    try:
        return from_bytes(path.read_bytes())
    except OSError as error:
        raise CourseError(f"{path} cannot be read: {error.strerror or error}.") from None
    except SafetensorError as error:
        raise CourseError(
            f"{path} is no safetensors file, or a damaged one ({error}); fetch it again."
        ) from None
