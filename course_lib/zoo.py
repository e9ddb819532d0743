"""The shipped checkpoints: small models pretrained on the generated world, with what each was made from.

    model, tokenizer, card = zoo.load("bert-mini")

Each is a folder of data/checkpoints with model.safetensors (half precision), config.json, tokenizer.json and
card.json (recipe, scores, learning curve); manifest.json beside them has every file's SHA-256.
"""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from course_lib import heads, hub
from course_lib.config import from_dict, to_dict
from course_lib.errors import CourseError
from course_lib.files import atomic_write, read_json, write_json
from course_lib.hf import load_pretrained, load_strictly
from course_lib.stack import Stack
from course_lib.tokenizers import Tokenizer

FOLDER = Path(__file__).resolve().parents[1] / "data" / "checkpoints"
FILES = ("model.safetensors", "config.json", "tokenizer.json", "card.json")
MAX_BYTES = 6_000_000
HEADS = {"LM": heads.LM, "MLM": heads.MLM, "Pretraining": heads.Pretraining}


class Loaded(NamedTuple):
    """A checkpoint, ready to use. model: in eval mode, float32. card: recipe, seed, data, steps, scores,
    curve."""

    model: nn.Module
    tokenizer: Tokenizer
    card: dict[str, Any]


def names(folder: str | Path = FOLDER) -> list[str]:
    """The checkpoints there are."""
    return sorted(_manifest(Path(folder)))


def card(name: str, folder: str | Path = FOLDER) -> dict[str, Any]:
    """What a checkpoint was made from and what it scores, without loading the model."""
    folder = Path(folder)
    _known(name, folder)
    return dict(read_json(folder / name / "card.json"))


def load(name: str, *, folder: str | Path = FOLDER) -> Loaded:
    """Load a shipped checkpoint after checking every file of it.

    Args:
        name: one of `names()`.

    Raises:
        CourseError: unknown name; a file that is missing, damaged or not the one in the manifest; weights
            that do not fit the configuration. No model is returned then, and none is half-loaded.
    """
    folder = Path(folder)
    entry = _known(name, folder)
    content = {file: _checked(folder / name / file, entry["files"].get(file)) for file in FILES}
    values = read_json(folder / name / "config.json")
    if values.get("head") not in HEADS:
        raise CourseError(f"{folder / name}: the head {values.get('head')!r} is not one of {', '.join(HEADS)}.")
    model = HEADS[values["head"]](Stack(from_dict(values["stack"])))
    try:
        weights = from_bytes(content["model.safetensors"])
    except SafetensorError as error:
        raise CourseError(f"{folder / name / 'model.safetensors'} is damaged ({error}). {_REMEDY}") from error
    load_strictly(model, {key: value.float() for key, value in weights.items()}, f"{name}/model.safetensors")
    return Loaded(model.eval(), Tokenizer.load(folder / name), dict(read_json(folder / name / "card.json")))


def open_model(source: str | Path) -> Loaded:
    """A model with its tokenizer: a folder in the Hugging Face layout, a shipped checkpoint by its name, or a model of
    the hub, "bert-base-uncased" or "OWNER/NAME@REVISION", with "hub:" in front or not.

    Raises:
        CourseError: it is none of them, it cannot be had, or it is damaged.
    """
    if hub.is_name(source) or (Path(source).expanduser() / "config.json").exists():
        folder = hub.pretrained(source)
    elif str(source) in (shipped := names()) or not hub.is_repository(source):
        return load(str(source))
    else:
        try:
            folder = hub.pretrained(source)
        except CourseError as error:
            raise CourseError(f"There is no checkpoint {source!r}; there are {', '.join(shipped)}. {error}") from error
    return Loaded(load_pretrained(folder), Tokenizer.load(folder), {"name": str(source)})


def export(
    name: str, model: nn.Module, tokenizer: Tokenizer, card: dict[str, Any], folder: str | Path = FOLDER
) -> Path:
    """Write a checkpoint in half precision and enter it in the manifest.

    Args:
        model: an `LM`, `MLM` or `Pretraining` head. card: recipe, seed, data, steps, scores, curve.

    Returns: its folder.

    Raises:
        CourseError: a file over 6 MB, another kind of model, weights that half precision cannot hold.
    """
    folder = Path(folder)
    place = folder / name
    head = type(model).__name__
    if head not in HEADS:
        raise CourseError(f"The zoo holds {', '.join(HEADS)}; this model is a {head}.")
    weights = {key: _half(key, value) for key, value in model.state_dict().items()}
    data = to_bytes(weights)
    if len(data) > MAX_BYTES:
        raise CourseError(f"{name} takes {len(data):,} bytes in half precision; {MAX_BYTES:,} is the most a file may.")
    stack = model.stack
    assert isinstance(stack, Stack)
    with atomic_write(place / "model.safetensors", "wb") as file:
        file.write(data)
    write_json(place / "config.json", {"head": head, "stack": to_dict(stack.config)})
    tokenizer.save(place / "tokenizer.json")
    write_json(place / "card.json", card)
    entries = _manifest(folder) if (folder / "manifest.json").exists() else {}
    summary = {key: value for key, value in card.items() if key not in ("name", "curve")}
    entries[name] = summary | {"files": {file: _entry((place / file).read_bytes()) for file in FILES}}
    write_json(folder / "manifest.json", dict(sorted(entries.items())))
    return place


_REMEDY = "Fetch it again (git checkout data/checkpoints), or make it anew: make checkpoints."


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    if not path.exists():
        raise CourseError(f"There are no checkpoints in {folder} (no manifest.json). {_REMEDY}")
    return dict(read_json(path))


def _known(name: str, folder: Path) -> dict[str, Any]:
    entries = _manifest(folder)
    if name not in entries:
        raise CourseError(f"There is no checkpoint {name!r}; there are {', '.join(sorted(entries)) or 'none'}.")
    return dict(entries[name])


def _checked(path: Path, entry: dict[str, Any] | None) -> bytes:
    """A file's bytes, if they are those of the manifest."""
    if entry is None:
        raise CourseError(f"The manifest does not say what {path} should be. {_REMEDY}")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CourseError(f"{path} cannot be read ({error.strerror}). {_REMEDY}") from error
    if len(content) != entry["bytes"]:
        raise CourseError(f"{path} has {len(content):,} bytes instead of {entry['bytes']:,}. {_REMEDY}")
    if _entry(content)["sha256"] != entry["sha256"]:
        raise CourseError(f"{path} is not the file in the manifest: its SHA-256 is another. {_REMEDY}")
    return content


def _entry(content: bytes) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def _half(name: str, value: Tensor) -> Tensor:
    half = value.detach().cpu().to(torch.float16) if value.is_floating_point() else value.detach().cpu()
    if not torch.isfinite(half).all():
        raise CourseError(f"The weight {name} holds numbers too large for half precision, or none at all.")
    return half.contiguous()
