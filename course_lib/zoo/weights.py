"""Read the weights of a folder, and load them into a model: all of them or none.

    model.safetensors                     one file, or its parts:
    model-00001-of-00002.safetensors
    model-00002-of-00002.safetensors
    model.safetensors.index.json          {"weight_map": {"wte.weight": "model-00001-of-...", ...}}

A safetensors file holds nothing but named tensors. The older pickled files (pytorch_model.bin) can
run code when they are opened, so they are refused.
"""

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
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
    """Read a folder's weights, floats as float32, from the files that transformers would read.

    A warning names other files of weights in the folder, such as a backup.

    Raises:
        CourseError: there is no safetensors file, one is missing or damaged, or the memory is too
            small.
    """
    files = weight_files(folder)
    _warn_of_unread(folder, files)
    _check_memory(folder, sum(file.stat().st_size for file in files))
    weights: dict[str, Tensor] = {}
    for file in files:
        with _read_errors(file):
            weights |= load_file(file)
    return {
        name: tensor.float() if tensor.is_floating_point() else tensor
        for name, tensor in weights.items()
    }


def weight_names(folder: Path) -> set[str]:
    """The names of a folder's weights. The tensors themselves are not read."""
    names: set[str] = set()
    for file in weight_files(folder):
        with _read_errors(file), safe_open(file, framework="pt") as tensors:
            names |= set(tensors.keys())
    return names


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that hold a folder's weights, in transformers' order of preference.

    model.safetensors comes first, then the parts in the index, then parts without an index.

    Raises:
        CourseError: there is none, or a part is missing.
    """
    if (folder / ONE_FILE).is_file():
        return [folder / ONE_FILE]
    if (folder / INDEX).is_file():
        parts = _parts_in_index(folder / INDEX)
    else:
        parts = _parts_by_number(folder)
    if not parts:
        raise CourseError(_no_weights(folder))
    missing = [name for name in parts if not (folder / name).is_file()]
    if missing:
        raise CourseError(
            f"{folder} lacks {missing[0]}, one of the {len(parts)} parts of its weights; download"
            " it again."
        )
    return [folder / name for name in parts]


def _parts_in_index(index: Path) -> list[str]:
    try:
        parts = sorted(set(read_json(index)["weight_map"].values()))
        # A path such as "../other.safetensors" would leave the folder.
        are_names = all(Path(part).name == part for part in parts)
    except (KeyError, TypeError, AttributeError):
        are_names = False
    if not are_names:
        raise CourseError(f"{index} does not say which file holds which weight; download it again.")
    return parts


def _parts_by_number(folder: Path) -> list[str]:
    """The names that all parts must have, from the names of those in the folder.

    A folder with model-00002-of-00003.safetensors needs three parts, 00001 to 00003.
    """
    matches = [PART.fullmatch(file.name) for file in sorted(folder.glob("*.safetensors"))]
    counts = [match[1] for match in matches if match is not None]
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


def _warn_of_unread(folder: Path, files: list[Path]) -> None:
    """Warn of safetensors files that are not among the files to read."""
    unread = {file.name for file in folder.glob("*.safetensors")} - {file.name for file in files}
    if unread:
        rest = " and the other parts" if len(files) > 1 else ""
        warnings.warn(
            f"{folder}: read {files[0].name}{rest}, but not {', '.join(sorted(unread))}.",
            CourseWarning,
            stacklevel=4,  # 4 calls up is the caller of `load_pretrained`
        )


@contextmanager
def _read_errors(file: Path) -> Iterator[None]:
    """Raise errors of the block as a `CourseError` that names the file."""
    try:
        yield
    except (SafetensorError, OSError) as error:
        raise CourseError(f"{file} cannot be read ({error}); it is damaged or cut short.") from None


def load_strictly(model: nn.Module, weights: Mapping[str, Tensor], source: str) -> None:
    """Load every weight of a model, after checking all of them.

    Args:
        model: the model to load into.
        weights: the model's own name of a weight -> tensor.
        source: the file or folder, for error messages.

    Raises:
        CourseError: a weight is missing, unknown, of another shape or kind, or not finite. The
            model is then unchanged.
    """
    own = model.state_dict()
    missing = sorted(own.keys() - weights.keys())
    if missing:
        raise CourseError(f"{source}: the weight {missing[0]} is missing ({len(missing)} in all).")
    extra = sorted(weights.keys() - own.keys())
    if extra:
        raise CourseError(
            f"{source}: the weight {extra[0]} has no place in this model ({len(extra)} in all)."
        )
    for name, tensor in weights.items():
        if own[name].shape != tensor.shape:
            raise CourseError(
                f"{source}: {name} has shape {list(tensor.shape)}, but the configuration says"
                f" {list(own[name].shape)}."
            )
        # A float must not fill an integer or boolean tensor, nor the other way round.
        is_same_kind = own[name].is_floating_point() == tensor.is_floating_point()
        if not is_same_kind or not bool(tensor.isfinite().all()):
            raise CourseError(
                f"{source}: {name} holds {tensor.dtype} numbers, or some that are not finite."
            )
    model.load_state_dict(dict(weights))


def _check_memory(folder: Path, size: int) -> None:
    """Refuse weights that do not fit into memory twice: as the file's tensors and the model's."""
    free = free_bytes()
    if 2 * size > free:
        raise CourseError(
            f"{folder}: {size / GIGABYTE:.1f} GB of weights need twice as much memory;"
            f" {free / GIGABYTE:.1f} GB are free."
        )
