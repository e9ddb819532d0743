"""Tensors of safetensors files, and how they get into a model: all of them or none."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.memory import free_bytes

GIGABYTE = 1e9


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder's safetensors files, in float32. Pickled weights are never opened.

    Raises:
        CourseError: if there is no such file, one is damaged, or the memory is too small.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise CourseError(
            f"{folder} holds no safetensors file; pickled weights are not opened, so convert them"
            " first."
        )
    _check_memory(folder, sum(file.stat().st_size for file in files))
    weights: dict[str, Tensor] = {}
    for file in files:
        try:
            weights |= load_file(file)
        except (SafetensorError, OSError) as error:
            raise CourseError(
                f"{file} cannot be read ({error}); it is damaged or cut short."
            ) from None
    return {
        name: tensor.float() if tensor.is_floating_point() else tensor
        for name, tensor in weights.items()
    }


def load_strictly(model: nn.Module, weights: Mapping[str, Tensor], source: str) -> None:
    """Load every weight or none.

    Args:
        model: gets the weights.
        weights: by the names that the model has for them.
        source: the file or folder, for the message.

    Raises:
        CourseError: if a weight is missing, too many, of another shape or kind, or not finite.
    """
    places = model.state_dict()
    missing = sorted(places.keys() - weights.keys())
    if missing:
        raise CourseError(f"{source}: the weight {missing[0]} is missing ({len(missing)} in all).")
    extra = sorted(weights.keys() - places.keys())
    if extra:
        raise CourseError(
            f"{source}: the weight {extra[0]} has no place in this model ({len(extra)} in all)."
        )
    for name, tensor in weights.items():
        if places[name].shape != tensor.shape:
            raise CourseError(
                f"{source}: {name} has shape {list(tensor.shape)}, but the configuration says"
                f" {list(places[name].shape)}."
            )
        # Booleans and whole numbers stand where ours do, floats where ours do.
        is_same_kind = places[name].is_floating_point() == tensor.is_floating_point()
        if not is_same_kind or not bool(tensor.isfinite().all()):
            raise CourseError(
                f"{source}: {name} holds {tensor.dtype} numbers, or some that are not finite."
            )
    model.load_state_dict(dict(weights))


def _check_memory(folder: Path, size: int) -> None:
    """A `CourseError` if there is no room for the files' tensors and for the model's."""
    free = free_bytes()
    if 2 * size > free:
        raise CourseError(
            f"{folder}: {size / GIGABYTE:.1f} GB of weights need twice as much memory;"
            f" {free / GIGABYTE:.1f} GB are free."
        )
