"""The shipped checkpoints: small pretrained models that come with the course.

    model, tokenizer, card = zoo.load("bert-mini")
    card["steps"], card["scores"]         how long it was trained, and how good it is

    data/checkpoints/
        manifest.json                     every checkpoint, with the SHA-256 of each of its files
        bert-mini/
            model.safetensors             the weights, in half precision
            config.json                   {"head": "MLM", "stack": {...}}: the class of the model
            tokenizer.json                or vocabulary.json, for word vectors and ELMo
            card.json                     recipe, seed, data, steps, scores, loss curve

This is a layout of our own. kinds.py says which classes it can hold; folders.py reads the layout of
Hugging Face. docs/checkpoints.md says how the checkpoints were made.
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
from course_lib.zoo.kinds import STORAGE

FOLDER = DATA / "checkpoints"
FILES = ("model.safetensors", "config.json", "tokenizer.json", "card.json")
WORDS = "vocabulary.json"  # instead of tokenizer.json, where the tokens are whole words
# The end of every error about a damaged file
_REMEDY = "Fetch it again (git checkout data/checkpoints), or make it anew: make checkpoints."


class Loaded(NamedTuple):
    """A model with its tokenizer and its card.

    Attributes:
        model: a module in eval mode with float32 weights, or `WordVectors`.
        tokenizer: a `Tokenizer`. ELMo has a `Vocabulary`, and `WordVectors` need None.
        card: recipe, seed, data, steps, scores and loss curve of a shipped checkpoint; of another
            model only its name.
    """

    model: Any
    tokenizer: Any
    card: dict[str, Any]


def names(folder: str | Path = FOLDER) -> list[str]:
    """The names of all checkpoints in the folder, sorted."""
    return sorted(_manifest(Path(folder)))


def manifest_entry(name: str, folder: str | Path = FOLDER) -> dict[str, Any]:
    """A checkpoint's entry in the manifest: its card without the loss curve, and `files`.

    `files` maps the name of each file to its SHA-256 and its size in bytes.

    Raises:
        CourseError: there is no such checkpoint.
    """
    entries = _manifest(Path(folder))
    if name not in entries:
        raise CourseError(
            f"There is no checkpoint {name!r}; there are {', '.join(sorted(entries)) or 'none'}."
        )
    return dict(entries[name])


def card(name: str, folder: str | Path = FOLDER) -> dict[str, Any]:
    """The card of a checkpoint (see `Loaded`), without loading the model.

    Raises:
        CourseError: there is no such checkpoint.
    """
    manifest_entry(name, folder)
    return dict(read_json(Path(folder) / name / "card.json"))


def load(name: str, *, folder: str | Path = FOLDER) -> Loaded:
    """Load a shipped checkpoint, after checking the SHA-256 of each of its files.

    Args:
        name: the checkpoint, one of `names()`.
        folder: the folder of all checkpoints.

    Raises:
        CourseError: there is no such checkpoint, or a file is not the one in the manifest.
    """
    digests = manifest_entry(name, folder)["files"]
    checkpoint = Path(folder) / name
    content = {file: _read_checked(checkpoint / file, digest) for file, digest in digests.items()}
    config = json.loads(content["config.json"])
    storage = STORAGE[config["head"]]

    words = json.loads(content[WORDS]) if WORDS in content else {}  # of word vectors and ELMo
    model = storage.build(config, words)
    weights = from_bytes(content["model.safetensors"])
    weights = {key: value.float() for key, value in weights.items()}
    storage.fill(model, weights, f"{name}/model.safetensors")

    tokenizer: Any
    if "tokenizer.json" in content:
        tokenizer = Tokenizer.from_json(content["tokenizer.json"].decode())
        _set_vocabulary(model, tokenizer)
    else:
        tokenizer = storage.vocabulary(words)
    return Loaded(model, tokenizer, json.loads(content["card.json"]))


def open_model(source: str | Path) -> Loaded:
    """Load any model with its tokenizer, wherever it is.

    Args:
        source: one of these:
            "bert-mini"                     a shipped checkpoint, by its name
            "build/checkpoints/my-model"    a checkpoint that `export` wrote
            "downloads/bert-base"           a folder in the Hugging Face layout
            "minilm"                        a public model, by its short name
            "hub:google-bert/bert-base"     a model of the hub; "hub:" may be left out

            A published BERT keeps its pooler and its head for next-sentence prediction.

    Raises:
        CourseError: there is no such model.
    """
    path = expand_home(source)
    finish_save(path)  # a save that was killed in its last step
    finish_save(path.parent)
    # The folder of a checkpoint: the manifest is in its parent.
    if (path.parent / "manifest.json").exists() and path.name in names(path.parent):
        return load(path.name, folder=path.parent)

    # A folder in the Hugging Face layout, a public model's short name, or a name with "hub:"
    is_public = str(source) in public_models.MODELS or str(source).startswith(hub.PREFIX)
    if (path / "config.json").exists() or is_public:
        return _open_public(hub.pretrained(source), str(source))

    # The name of a shipped checkpoint. What cannot be a name of the hub either comes here too: the
    # error of `load` lists the checkpoints.
    known = names() if (FOLDER / "manifest.json").exists() else []
    if str(source) in known or not hub.is_repository(source):
        return load(str(source))

    # A name of the hub without "hub:". The error lists the checkpoints, too.
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
    """Write a checkpoint in half precision, and add it to the manifest.

    Args:
        name: the name of the checkpoint. An older one of this name is replaced.
        model: a model whose class is in `STORAGE`.
        tokenizer: a `Tokenizer`, or an `elmo.Vocabulary`; None for `WordVectors`.
        about: the card (see `Loaded`).
        folder: the folder of all checkpoints.

    Returns:
        The checkpoint's folder.

    Raises:
        CourseError: the model is of another class, or has weights that half precision cannot hold.
    """
    folder = Path(folder)
    head = type(model).__name__
    if head not in STORAGE:
        raise CourseError(f"Checkpoints hold {', '.join(STORAGE)}; this model is a {head}.")
    storage = STORAGE[head]
    data = to_bytes({key: _half(key, value) for key, value in storage.weights(model).items()})
    has_words = not isinstance(tokenizer, Tokenizer)
    summary = {key: value for key, value in about.items() if key not in ("name", "curve")}
    files = [WORDS if has_words and file == "tokenizer.json" else file for file in FILES]

    # `atomic_folder` shows the checkpoint and its entry in the manifest together. The lock keeps
    # other exports from reading the manifest before this entry is in it.
    with locked(folder, wait=True), atomic_folder(folder) as new:
        checkpoint = new / name
        checkpoint.mkdir()
        (checkpoint / "model.safetensors").write_bytes(data)
        write_json(checkpoint / "config.json", {"head": head} | storage.describe(model))
        if has_words:
            vocabulary = model if tokenizer is None else tokenizer
            words = {"words": vocabulary.words, "counts": getattr(vocabulary, "counts", None)}
            write_json(checkpoint / WORDS, words)
        else:
            tokenizer.save(checkpoint / "tokenizer.json")
        write_json(checkpoint / "card.json", about)

        manifest = _manifest(folder) if (folder / "manifest.json").exists() else {}
        digests = {file: _digest((checkpoint / file).read_bytes()) for file in files}
        manifest[name] = summary | {"files": digests}
        write_json(new / "manifest.json", dict(sorted(manifest.items())))
    return folder / name


def facts(name: str) -> dict[str, Any]:
    """The facts that `python -m course_lib info` shows: class, size, configuration and training.

    "bert-english" gives {"head": "MLM", "parameters": 5347904, "embed.vocab": 8000, ...,
    "steps": 8500, ...}.

    Args:
        name: a model, as for `open_model`.
    """
    model, _, details = open_model(name)
    # `WordVectors` are no module: they have one matrix instead of parameters.
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
    model = load_pretrained(folder, architecture=whole_architecture(folder))
    tokenizer = Tokenizer.load(folder)
    _set_vocabulary(model, tokenizer)
    return Loaded(model, tokenizer, {"name": name})


def _set_vocabulary(model: nn.Module, tokenizer: Tokenizer) -> None:
    """Store the tokens in the model, so that `finetune` can refuse another model's tokenizer."""
    tokens = tuple(tokenizer.tokens(range(len(tokenizer))))
    for module in model.modules():
        if isinstance(module, Transformer):
            module.vocabulary = tokens


def _manifest(folder: Path) -> dict[str, Any]:
    """Checkpoint name -> its entry in the manifest."""
    finish_save(folder)  # a save that was killed in its last step
    path = folder / "manifest.json"
    if not path.exists():
        raise CourseError(f"There are no checkpoints in {folder} (no manifest.json). {_REMEDY}")
    return dict(read_json(path))


def _read_checked(path: Path, digest: dict[str, Any]) -> bytes:
    """Read a file, and refuse it if it is not the one in the manifest."""
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
    """A file's SHA-256 and size, as in the manifest."""
    return {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def _half(name: str, value: Tensor) -> Tensor:
    """A tensor in half precision. Integers and booleans stay as they are.

    Raises:
        CourseError: a number is above 65504, the largest in half precision, or not finite.
    """
    half = value.detach().cpu()
    if half.is_floating_point():
        half = half.to(torch.float16)
    # In half precision a number that is too large becomes infinite.
    if not torch.isfinite(half).all():
        raise CourseError(
            f"The weight {name} holds numbers too large for half precision, or none at all."
        )
    return half.contiguous()
