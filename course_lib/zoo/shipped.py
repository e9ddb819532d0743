"""The shipped checkpoints: small pretrained models, with what each was made from.

    model, tokenizer, card = zoo.load("bert-mini")

Each is a folder of data/checkpoints; manifest.json beside them has every file's SHA-256. `names()`
lists them, docs/checkpoints.md says how they were made.
"""

import hashlib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from course_lib import hub
from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError
from course_lib.families import elmo
from course_lib.families.sentence import Sentence
from course_lib.families.word_vectors import WordVectors
from course_lib.files import DATA, atomic_write, read_json, write_json
from course_lib.model import heads
from course_lib.model.config import flatten, from_dict, to_dict
from course_lib.model.seq2seq import EncoderDecoder, Seq2SeqLM, encoder_config
from course_lib.model.tied import tied
from course_lib.model.transformer import Transformer
from course_lib.zoo.folders import load_pretrained, whole_architecture
from course_lib.zoo.weights import load_strictly

FOLDER = DATA / "checkpoints"
FILES = ("model.safetensors", "config.json", "tokenizer.json", "card.json")
MAX_BYTES = 12_000_000
WORDS = "vocabulary.json"  # in place of tokenizer.json
_REMEDY = "Fetch it again (git checkout data/checkpoints), or make it anew: make checkpoints."
STACK_HEADS: dict[str, Callable[[Transformer], nn.Module]] = {
    "LM": heads.LM,
    "MLM": heads.MLM,
    "Pretraining": heads.Pretraining,
    "RTD": heads.RTD,
}
HEADS = (*STACK_HEADS, "Seq2SeqLM", "Sentence", "BiLM", "WordVectors")


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


def entry(name: str, folder: str | Path = FOLDER) -> dict[str, Any]:
    """What the manifest says: what the card does but its curve, and the SHA-256 of its `files`."""
    entries = _manifest(Path(folder))
    if name not in entries:
        raise CourseError(
            f"There is no checkpoint {name!r}; there are {', '.join(sorted(entries)) or 'none'}."
        )
    return dict(entries[name])


def card(name: str, folder: str | Path = FOLDER) -> dict[str, Any]:
    """What a checkpoint was made from and what it scores, without loading the model."""
    entry(name, folder)
    return dict(read_json(Path(folder) / name / "card.json"))


def load(name: str, *, folder: str | Path = FOLDER) -> Loaded:
    """Load a shipped checkpoint, one of `names()`, after checking every file of it.

    Raises:
        CourseError: if there is no such checkpoint, or a file is not the one in the manifest.
    """
    entries = entry(name, folder)["files"]
    place = Path(folder) / name
    has_words = WORDS in entries
    content = {file: _checked(place / file, entries[file]) for file in _files(has_words)}
    values = read_json(place / "config.json")
    details = dict(read_json(place / "card.json"))
    weights = {
        key: value.float() for key, value in from_bytes(content["model.safetensors"]).items()
    }
    if values["head"] == "WordVectors":
        known = read_json(place / WORDS)
        vectors = WordVectors(known["words"], weights["vectors"], known["counts"])
        return Loaded(vectors, None, details)

    model = _build(values)
    for further_name, first_name in tied(model).items():  # tied tensors are stored once
        if first_name in weights:
            weights.setdefault(further_name, weights[first_name])
    load_strictly(model, weights, f"{name}/model.safetensors")
    tokenizer: Any
    if has_words:
        tokenizer = elmo.Vocabulary(read_json(place / WORDS)["words"])
    else:
        tokenizer = Tokenizer.load(place)
    _tell_tokens(model, tokenizer)
    return Loaded(model.eval(), tokenizer, details)


def open_model(source: str | Path) -> Loaded:
    """A model with its tokenizer.

    Args:
        source: a folder in the Hugging Face layout or of `export`, a shipped checkpoint by its
            name, or a model of the hub, "hub:" in front or not. A published BERT keeps its pooler
            and next-sentence head.

    Raises:
        CourseError: if there is none.
    """
    path = Path(source).expanduser()
    if (path.parent / "manifest.json").exists() and path.name in names(path.parent):
        return load(path.name, folder=path.parent)
    if str(source).startswith(hub.PREFIX) or (path / "config.json").exists():
        folder = hub.pretrained(source)
    elif str(source) in names() or not hub.is_repository(source):
        return load(str(source))
    else:
        try:
            folder = hub.pretrained(source)
        except CourseError as error:
            raise CourseError(
                f"There is no checkpoint {source!r}; there are {', '.join(names())}. {error}"
            ) from error
    model = load_pretrained(folder, architecture=whole_architecture(folder))
    tokenizer = Tokenizer.load(folder)
    _tell_tokens(model, tokenizer)
    return Loaded(model, tokenizer, {"name": str(source)})


def export(
    name: str, model: Any, tokenizer: Any, card: dict[str, Any], folder: str | Path = FOLDER
) -> Path:
    """Write a checkpoint in half precision and enter it in the manifest.

    Args:
        name: of the checkpoint.
        model: one of the `HEADS`.
        tokenizer: a `Tokenizer`, or an `elmo.Vocabulary`; None with `WordVectors`.
        card: recipe, seed, data, steps, scores, curve.
        folder: of all checkpoints.

    Returns:
        The checkpoint's folder.

    Raises:
        CourseError: if the model has another head, is too large, or has weights that half precision
            cannot hold.
    """
    folder = Path(folder)
    place = folder / name
    head = type(model).__name__
    if head not in HEADS:
        raise CourseError(f"Checkpoints hold {', '.join(HEADS)}; this model is a {head}.")
    data = to_bytes(_half_weights(model))
    if len(data) > MAX_BYTES:
        raise CourseError(
            f"{name} takes {len(data):,} bytes in half precision; {MAX_BYTES:,} is the most a file"
            " may."
        )
    with atomic_write(place / "model.safetensors", "wb") as file:
        file.write(data)
    write_json(place / "config.json", _config_values(model))
    has_words = not isinstance(tokenizer, Tokenizer)
    if has_words:
        known = model if tokenizer is None else tokenizer
        write_json(place / WORDS, {"words": known.words, "counts": getattr(known, "counts", None)})
    else:
        tokenizer.save(place / "tokenizer.json")
    write_json(place / "card.json", card)

    manifest = _manifest(folder) if (folder / "manifest.json").exists() else {}
    summary = {key: value for key, value in card.items() if key not in ("name", "curve")}
    files = {file: _entry((place / file).read_bytes()) for file in _files(has_words)}
    manifest[name] = summary | {"files": files}
    write_json(folder / "manifest.json", dict(sorted(manifest.items())))
    return place


def facts(name: str) -> list[tuple[str, str]]:
    """What a checkpoint or a folder is made of: names and values."""
    model, _, details = open_model(name)
    # Static word vectors are a table and no module.
    weights = [model.matrix] if isinstance(model, WordVectors) else model.parameters()
    rows = [
        ("head", type(model).__name__),
        ("parameters", f"{sum(weight.numel() for weight in weights):,}"),
    ]
    config = getattr(getattr(model, "stack", None), "config", None)
    if config is not None:
        rows += [(key, str(value)) for key, value in flatten(config).items()]
    for key in ("data", "steps", "tokens", "scores"):
        if key in details:
            rows.append((key, str(details[key])))
    return rows


def _build(values: dict[str, Any]) -> Any:
    """The model of a config.json of ours, with random weights."""
    head = values["head"]
    if head == "BiLM":
        filters = tuple(tuple(pair) for pair in values["elmo"]["filters"])  # JSON has lists
        return elmo.model(elmo.ElmoConfig(**values["elmo"] | {"filters": filters}))
    stack = from_dict(values["stack"])
    if head == "Seq2SeqLM":
        encoder = from_dict(values["encoder"]) if "encoder" in values else None
        body = EncoderDecoder(stack, encoder=encoder, start=values["start"])
        return Seq2SeqLM(body, tied=values["tied"], scaled=values["scaled"], bias=values["bias"])
    if head == "Sentence":
        return Sentence(Transformer(stack), values["pool"])
    return STACK_HEADS[head](Transformer(stack))


def _config_values(model: Any) -> dict[str, Any]:
    """The configuration from which `_build` makes the model again."""
    values: dict[str, Any] = {"head": type(model).__name__}
    if isinstance(model, WordVectors):
        return values | {"words": len(model), "width": model.matrix.shape[1]}
    if isinstance(model, elmo.BiLM):
        return values | {"elmo": asdict(model.elmo.config)}
    values["stack"] = to_dict(model.stack.config)
    if isinstance(model, Sentence):
        values["pool"] = model.pool
    if isinstance(model, Seq2SeqLM):
        encoder = model.stack.encoder.config
        if encoder != encoder_config(model.stack.config):
            values["encoder"] = to_dict(encoder)
        values["start"] = model.stack.start
        values["tied"] = model.head is None
        values["scaled"] = model.scaled
        values["bias"] = model.bias is not None
    return values


def _tell_tokens(model: nn.Module, tokenizer: Any) -> None:
    """Tell the model's stacks its tokens, so that `finetune` can refuse another tokenizer."""
    tokens: tuple[str, ...] = ()
    if isinstance(tokenizer, Tokenizer):
        tokens = tuple(tokenizer.tokens(range(len(tokenizer))))
    for module in model.modules():
        if isinstance(module, Transformer):
            module.vocabulary = tokens


def _files(has_words: bool) -> list[str]:
    """The names of a checkpoint's files."""
    return [WORDS if has_words and file == "tokenizer.json" else file for file in FILES]


def _half_weights(model: Any) -> dict[str, Tensor]:
    """A model's weights in half precision, tied ones once."""
    if isinstance(model, WordVectors):
        return {"vectors": _half("vectors", model.matrix)}
    twins = tied(model)
    state = model.state_dict()
    return {key: _half(key, value) for key, value in state.items() if key not in twins}


def _manifest(folder: Path) -> dict[str, Any]:
    """Checkpoint -> its entry."""
    path = folder / "manifest.json"
    if not path.exists():
        raise CourseError(f"There are no checkpoints in {folder} (no manifest.json). {_REMEDY}")
    return dict(read_json(path))


def _checked(path: Path, entry: dict[str, Any]) -> bytes:
    """A file's content, if it is the one in the manifest."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CourseError(f"{path} cannot be read ({error.strerror}). {_REMEDY}") from error
    if _entry(content) != entry:
        raise CourseError(
            f"{path} is not the file in the manifest: its SHA-256 is another. {_REMEDY}"
        )
    return content


def _entry(content: bytes) -> dict[str, Any]:
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
