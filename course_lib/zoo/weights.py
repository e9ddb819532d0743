"""Find and read safetensors files, and load them into a model: all of the weights or none."""

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor, nn

from course_lib.errors import CourseError, CourseWarning
from course_lib.files import read_json
from course_lib.memory import free_bytes

GIGABYTE = 1e9
ONE_FILE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PART = re.compile(r"model-\d{5}-of-(\d{5})\.safetensors")
PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack")


def read_weights(folder: Path) -> dict[str, Tensor]:
    """A folder's weights in float32, from the files that transformers would read.

    Pickled weights are never opened. A warning names the files of weights that are not read.

    Raises:
        CourseError: if there is no such file, one is missing or damaged, or the memory is too
            small.
    """
    from safetensors.torch import load_file

    files = weight_files(folder)
    _warn_of_others(folder, files)
    _check_memory(folder, sum(file.stat().st_size for file in files))
    weights: dict[str, Tensor] = {}
    for file in files:
        with _readable(file):
            weights |= load_file(file)
    return {
        name: tensor.float() if tensor.is_floating_point() else tensor
        for name, tensor in weights.items()
    }


def weight_names(folder: Path) -> set[str]:
    """The names of a folder's weights, without reading the weights."""
    from safetensors import safe_open

    names: set[str] = set()
    for file in weight_files(folder):
        with _readable(file), safe_open(file, framework="pt") as tensors:
            names |= set(tensors.keys())
    return names


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that hold a folder's weights: one, or the parts of one.

    transformers takes model.safetensors before the parts that an index lists. Parts without an
    index say by their names how many there are.

    Raises:
        CourseError: if there is none, or a part is missing.
    """
    if (folder / ONE_FILE).is_file():
        return [folder / ONE_FILE]
    if (folder / INDEX).is_file():
        parts = _listed(folder / INDEX)
    else:
        parts = _numbered(folder)
    if not parts:
        raise CourseError(_no_weights(folder))
    absent = [name for name in parts if not (folder / name).is_file()]
    if absent:
        raise CourseError(
            f"{folder} lacks {absent[0]}, one of the {len(parts)} parts of its weights; download it"
            " again."
        )
    return [folder / name for name in parts]


def _listed(index: Path) -> list[str]:
    """The file names that an index lists."""
    try:
        parts = sorted(set(read_json(index)["weight_map"].values()))
        are_names = all(Path(part).name == part for part in parts)
    except (KeyError, TypeError, AttributeError):
        are_names = False
    if not are_names:
        raise CourseError(f"{index} does not say which file holds which weight; download it again.")
    return parts


def _numbered(folder: Path) -> list[str]:
    """The names of all parts, by the count in the names of those that are there.

    A folder with model-00002-of-00003.safetensors needs three parts.
    """
    numbers = [PART.fullmatch(file.name) for file in sorted(folder.glob("*.safetensors"))]
    counts = [number[1] for number in numbers if number is not None]
    if not counts:
        return []
    count = counts[0]
    return [f"model-{number:05}-of-{count}.safetensors" for number in range(1, int(count) + 1)]


def _no_weights(folder: Path) -> str:
    """The error message for a folder without readable weights."""
    others = sorted(file.name for file in folder.glob("*.safetensors"))
    if others:
        return (
            f"{folder} has no {ONE_FILE}, but {', '.join(others)}; call the one that you want"
            f" {ONE_FILE}."
        )
    pickled = sorted(file.name for kind in PICKLED for file in folder.glob(kind))
    if pickled:
        return (
            f"{folder} holds no safetensors file; pickled weights are not opened, because they can"
            f" run code ({pickled[0]}). If you trust where they come from, open them with"
            " transformers' from_pretrained and write them anew with its save_pretrained."
        )
    return f"{folder} holds no weights: no {ONE_FILE} and no {INDEX}."


def _warn_of_others(folder: Path, read: list[Path]) -> None:
    """Warn of weight files that are not read."""
    others = sorted({file.name for file in folder.glob("*.safetensors")} - {f.name for f in read})
    if others:
        rest = " and the other parts" if len(read) > 1 else ""
        warnings.warn(
            f"{folder}: read {read[0].name}{rest}, but not {', '.join(others)}.",
            CourseWarning,
            stacklevel=4,
        )


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    """Turn errors of reading a file into a `CourseError`."""
    from safetensors import SafetensorError

    try:
        yield
    except (SafetensorError, OSError) as error:
        raise CourseError(f"{file} cannot be read ({error}); it is damaged or cut short.") from None


def load_strictly(model: nn.Module, weights: Mapping[str, Tensor], source: str) -> None:
    """Load every weight or none.

    Args:
        model: the model to load into.
        weights: the weights by the model's own names.
        source: the file or folder, for error messages.

    Raises:
        CourseError: if a weight is missing, unknown, of another shape or kind, or not finite.
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
        # A float must not fill an integer or boolean tensor, nor the other way round.
        is_same_kind = places[name].is_floating_point() == tensor.is_floating_point()
        if not is_same_kind or not bool(tensor.isfinite().all()):
            raise CourseError(
                f"{source}: {name} holds {tensor.dtype} numbers, or some that are not finite."
            )
    model.load_state_dict(dict(weights))


def _check_memory(folder: Path, size: int) -> None:
    """Refuse weights that do not fit into memory twice: as read, and in the model."""
    free = free_bytes()
    if 2 * size > free:
        raise CourseError(
            f"{folder}: {size / GIGABYTE:.1f} GB of weights need twice as much memory;"
            f" {free / GIGABYTE:.1f} GB are free."
        )
