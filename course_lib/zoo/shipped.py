"""The shipped checkpoints: small pretrained models, with what each was made from.

    model, tokenizer, card = zoo.load("bert-mini")

Each is a folder of data/checkpoints; manifest.json beside them has every file's SHA-256. `names()`
lists them, docs/checkpoints.md says how they were made.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from course_lib import hub, public_models
from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError
from course_lib.families.word_vectors import WordVectors
from course_lib.files import (
    DATA,
    atomic_folder,
    expand_home,
    finish_save,
    locked,
    read_json,
    write_json,
)
from course_lib.model.config import flatten
from course_lib.model.transformer import Transformer
from course_lib.zoo.folders import load_pretrained, whole_architecture
from course_lib.zoo.kinds import KINDS

FOLDER = DATA / "checkpoints"
FILES = ("model.safetensors", "config.json", "tokenizer.json", "card.json")
WORDS = "vocabulary.json"  # in place of tokenizer.json
_REMEDY = "Fetch it again (git checkout data/checkpoints), or make it anew: make checkpoints."


class Loaded(NamedTuple):
    """A checkpoint, ready to use.

    Args:
        model: a module in eval mode, float32; or `WordVectors`.
        tokenizer: a `Tokenizer`; ELMo's `Vocabulary`; None for `WordVectors`.
        card: recipe, seed, data, steps, scores, curve.
    """

    model: Any
    tokenizer: Any
    card: dict[str, Any]


def names(folder: str | Path = FOLDER) -> list[str]:
    """The checkpoints there are."""
    return sorted(_manifest(Path(folder)))


def manifest_entry(name: str, folder: str | Path = FOLDER) -> dict[str, Any]:
    """What the manifest says: what the card does but its curve, and the SHA-256 of its `files`."""
    entries = _manifest(Path(folder))
    if name not in entries:
        raise CourseError(
            f"There is no checkpoint {name!r}; there are {', '.join(sorted(entries)) or 'none'}."
        )
    return dict(entries[name])


def card(name: str, folder: str | Path = FOLDER) -> dict[str, Any]:
    """What a checkpoint was made from and what it scores, without loading the model."""
    manifest_entry(name, folder)
    return dict(read_json(Path(folder) / name / "card.json"))


def load(name: str, *, folder: str | Path = FOLDER) -> Loaded:
    """Load a shipped checkpoint, one of `names()`, after checking every file of it.

    Raises:
        CourseError: if there is no such checkpoint, or a file is not the one in the manifest.
    """
    file_digests = manifest_entry(name, folder)["files"]
    place = Path(folder) / name
    content = {file: _checked(place / file, digest) for file, digest in file_digests.items()}
    config = json.loads(content["config.json"])
    kind = KINDS[config["head"]]

    words = json.loads(content[WORDS]) if WORDS in content else {}
    model = kind.build(config, words)
    weights = from_bytes(content["model.safetensors"])
    weights = {key: value.float() for key, value in weights.items()}
    kind.fill(model, weights, f"{name}/model.safetensors")

    tokenizer: Any
    if "tokenizer.json" in content:
        tokenizer = Tokenizer.from_json(content["tokenizer.json"].decode())
        _tell_tokens(model, tokenizer)
    else:
        tokenizer = kind.vocabulary(words)
    return Loaded(model, tokenizer, json.loads(content["card.json"]))


def open_model(source: str | Path) -> Loaded:
    """A model with its tokenizer.

    Args:
        source: a folder in the Hugging Face layout or of `export`, a shipped checkpoint by its
            name, a public model by its short name ("minilm"), or a model of the hub, "hub:" in
            front or not. A published BERT keeps its pooler and next-sentence head.

    Raises:
        CourseError: if there is none.
    """
    path = expand_home(source)
    finish_save(path)
    finish_save(path.parent)
    # The folder of a checkpoint, with its manifest beside it
    if (path.parent / "manifest.json").exists() and path.name in names(path.parent):
        return load(path.name, folder=path.parent)

    # A public folder, a public model's short name, or a name that says it is of the hub
    is_public = str(source) in public_models.MODELS or str(source).startswith(hub.PREFIX)
    if (path / "config.json").exists() or is_public:
        return _open_public(hub.pretrained(source), str(source))

    # The name of a shipped checkpoint. Whatever cannot be of the hub either, `load` refuses.
    known = names() if (FOLDER / "manifest.json").exists() else []
    if str(source) in known or not hub.is_repository(source):
        return load(str(source))

    # A name of the hub without "hub:"
    try:
        folder = hub.pretrained(source)
    except CourseError as error:
        raise CourseError(
            f"There is no checkpoint {source!r}; there are {', '.join(known) or 'none'}. {error}"
        ) from error
    return _open_public(folder, str(source))


def export(
    name: str, model: Any, tokenizer: Any, about: dict[str, Any], folder: str | Path = FOLDER
) -> Path:
    """Write a checkpoint in half precision and enter it in the manifest.

    Args:
        name: the name of the checkpoint.
        model: of a class in `KINDS`.
        tokenizer: a `Tokenizer`, or an `elmo.Vocabulary`; None with `WordVectors`.
        about: the card: recipe, seed, data, steps, scores, curve.
        folder: the folder of all checkpoints.

    Returns:
        The checkpoint's folder.

    Raises:
        CourseError: if the model is of another class or has weights that half precision cannot
            hold.
    """
    folder = Path(folder)
    head = type(model).__name__
    if head not in KINDS:
        raise CourseError(f"Checkpoints hold {', '.join(KINDS)}; this model is a {head}.")
    kind = KINDS[head]
    data = to_bytes({key: _half(key, value) for key, value in kind.weights(model).items()})
    has_words = not isinstance(tokenizer, Tokenizer)
    summary = {key: value for key, value in about.items() if key not in ("name", "curve")}
    files = [WORDS if has_words and file == "tokenizer.json" else file for file in FILES]

    # The checkpoint and its entry appear together. Nobody else may change the manifest meanwhile.
    with locked(folder, wait=True), atomic_folder(folder) as new:
        place = new / name
        place.mkdir()
        (place / "model.safetensors").write_bytes(data)
        write_json(place / "config.json", {"head": head} | kind.describe(model))
        if has_words:
            known = model if tokenizer is None else tokenizer
            words = {"words": known.words, "counts": getattr(known, "counts", None)}
            write_json(place / WORDS, words)
        else:
            tokenizer.save(place / "tokenizer.json")
        write_json(place / "card.json", about)

        manifest = _manifest(folder) if (folder / "manifest.json").exists() else {}
        file_digests = {file: _digest((place / file).read_bytes()) for file in files}
        manifest[name] = summary | {"files": file_digests}
        write_json(new / "manifest.json", dict(sorted(manifest.items())))
    return folder / name


def facts(name: str) -> dict[str, Any]:
    """What a checkpoint or a folder is made of: its class, parameters, configuration and data."""
    model, _, details = open_model(name)
    # Static word vectors are a table and no module.
    weights = [model.matrix] if isinstance(model, WordVectors) else model.parameters()
    values: dict[str, Any] = {
        "head": type(model).__name__,
        "parameters": sum(weight.numel() for weight in weights),
    }
    config = getattr(getattr(model, "stack", None), "config", None)
    if config is not None:
        values |= flatten(config)
    for key in ("data", "steps", "tokens", "scores"):
        if key in details:
            values[key] = details[key]
    return values


def _open_public(folder: Path, name: str) -> Loaded:
    """A model in the Hugging Face layout."""
    model = load_pretrained(folder, architecture=whole_architecture(folder))
    tokenizer = Tokenizer.load(folder)
    _tell_tokens(model, tokenizer)
    return Loaded(model, tokenizer, {"name": name})


def _tell_tokens(model: nn.Module, tokenizer: Tokenizer) -> None:
    """Tell the model's stacks its tokens, so that `finetune` can refuse another tokenizer."""
    tokens = tuple(tokenizer.tokens(range(len(tokenizer))))
    for module in model.modules():
        if isinstance(module, Transformer):
            module.vocabulary = tokens


def _manifest(folder: Path) -> dict[str, Any]:
    """Checkpoint -> its entry."""
    finish_save(folder)
    path = folder / "manifest.json"
    if not path.exists():
        raise CourseError(f"There are no checkpoints in {folder} (no manifest.json). {_REMEDY}")
    return dict(read_json(path))


def _checked(path: Path, digest: dict[str, Any]) -> bytes:
    """A file's content, if it is the one in the manifest."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CourseError(f"{path} cannot be read ({error.strerror}). {_REMEDY}") from error
    if _digest(content) != digest:
        raise CourseError(
            f"{path} is not the file in the manifest: its SHA-256 is another. {_REMEDY}"
        )
    return content


def _digest(content: bytes) -> dict[str, Any]:
    """What the manifest says of a file."""
    return {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def _half(name: str, value: Tensor) -> Tensor:
    """A tensor in half precision; a `CourseError` if that cannot hold it."""
    half = value.detach().cpu()
    if half.is_floating_point():
        half = half.to(torch.float16)
    if not torch.isfinite(half).all():
        raise CourseError(
            f"The weight {name} holds numbers too large for half precision, or none at all."
        )
    return half.contiguous()
