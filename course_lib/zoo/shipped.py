"""The shipped checkpoints: small pretrained models, with what each was made from.

    model, tokenizer, card = zoo.load("bert-mini")

Each is a folder of data/checkpoints; manifest.json beside them has every file's SHA-256. `names()`
lists them, docs/checkpoints.md says how they were made."""

import hashlib
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

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
from course_lib.zoo import folders

FOLDER = DATA / "checkpoints"
FILES = ("model.safetensors", "config.json", "tokenizer.json", "card.json")
MAX_BYTES = 12_000_000
WORDS = "vocabulary.json"  # in place of tokenizer.json
_REMEDY = "Fetch it again (git checkout data/checkpoints), or make it anew: make checkpoints."
HEADS = ("LM", "MLM", "Pretraining", "RTD", "Seq2SeqLM", "Sentence", "BiLM", "WordVectors")


def _build(values: dict[str, Any]) -> Any:
    if values["head"] == "BiLM":
        return elmo.model(
            elmo.ElmoConfig(
                **values["elmo"] | {"filters": tuple(map(tuple, values["elmo"]["filters"]))}
            )
        )
    stack = from_dict(values["stack"])
    if values["head"] == "Seq2SeqLM":
        encoder = from_dict(values["encoder"]) if "encoder" in values else None
        body = EncoderDecoder(stack, encoder=encoder, start=values["start"])
        return Seq2SeqLM(body, **{name: values[name] for name in ("tied", "scaled", "bias")})
    if values["head"] == "Sentence":
        return Sentence(Transformer(stack), values["pool"])
    return getattr(heads, values["head"])(Transformer(stack))


def _tell(model: Any) -> dict[str, Any]:
    told: dict[str, Any] = {"head": type(model).__name__}
    if isinstance(model, WordVectors):
        return told | {"words": len(model), "width": model.matrix.shape[1]}
    if isinstance(model, elmo.BiLM):
        return told | {"elmo": asdict(model.elmo.config)}
    told["stack"] = to_dict(model.stack.config)
    if isinstance(model, Sentence):
        told["pool"] = model.pool
    if isinstance(model, Seq2SeqLM):
        if (encoder := model.stack.encoder.config) != encoder_config(model.stack.config):
            told["encoder"] = to_dict(encoder)
        told |= {"start": model.stack.start, "tied": model.head is None, "scaled": model.scaled}
        told["bias"] = model.bias is not None
    return told


class Loaded(NamedTuple):
    """A checkpoint, ready to use: a module in eval mode, float32, and its `Tokenizer`; but ELMo's
    `Vocabulary`, and `WordVectors` with none. card: recipe, seed, data, steps, scores, curve."""

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
    """Load a shipped checkpoint, one of `names()`, after checking every file of it; none is
    half-loaded.
    """
    wanted, place = entry(name, folder)["files"], Path(folder) / str(name)
    files = [WORDS if file == "tokenizer.json" and WORDS in wanted else file for file in FILES]
    content = {file: _checked(place / file, wanted[file]) for file in files}
    values = read_json(place / "config.json")
    weights = {
        key: value.float() for key, value in from_bytes(content["model.safetensors"]).items()
    }
    known: Any = read_json(place / WORDS) if WORDS in files else Tokenizer.load(place)
    details = dict(read_json(place / "card.json"))
    if values["head"] == "WordVectors":
        return Loaded(
            WordVectors(known["words"], weights["vectors"], known["counts"]), None, details
        )
    model = _build(values)
    weights |= {
        name: weights[twin]
        for name, twin in tied(model).items()
        if twin in weights and name not in weights
    }
    folders.load_strictly(model, weights, f"{name}/model.safetensors")
    return _pair(
        model.eval(), elmo.Vocabulary(known["words"]) if WORDS in files else known, details
    )


def open_model(source: str | Path) -> Loaded:
    """A model with its tokenizer: a folder in the Hugging Face layout or of `export`, a shipped
    checkpoint by its name, or a model of the hub, "hub:" in front or not. A published BERT keeps
    its pooler and next-sentence head."""
    path = Path(source).expanduser()
    if (path.parent / "manifest.json").exists() and path.name in names(path.parent):
        return load(path.name, folder=path.parent)
    if str(source).startswith(hub.PREFIX) or (path / "config.json").exists():
        folder = hub.pretrained(source)
    elif str(source) in (shipped := names()) or not hub.is_repository(source):
        return load(str(source))
    else:
        try:
            folder = hub.pretrained(source)
        except CourseError as error:
            raise CourseError(
                f"There is no checkpoint {source!r}; there are {', '.join(shipped)}. {error}"
            ) from error
    model = folders.load_pretrained(folder, architecture=folders.whole_architecture(folder))
    return _pair(model, Tokenizer.load(folder), {"name": str(source)})


def _pair(model: Any, tokenizer: Any, told: dict[str, Any]) -> Loaded:
    """Both; the model's stacks know its tokens, so that `finetune` refuses another's."""
    tokens = (
        tuple(tokenizer.tokens(range(len(tokenizer)))) if isinstance(tokenizer, Tokenizer) else ()
    )
    for part in model.modules():
        if isinstance(part, Transformer):
            part.vocabulary = tokens
    return Loaded(model, tokenizer, told)


def export(
    name: str, model: Any, tokenizer: Any, card: dict[str, Any], folder: str | Path = FOLDER
) -> Path:
    """Write a checkpoint in half precision and enter it in the manifest. model: one of the `HEADS`.
    tokenizer: a `Tokenizer`, or an `elmo.Vocabulary`; None with `WordVectors`. card: recipe, seed,
    data, steps, scores, curve."""
    folder, head = Path(folder), type(model).__name__
    place = folder / name
    if head not in HEADS:
        raise CourseError(f"Checkpoints hold {', '.join(HEADS)}; this model is a {head}.")
    state = {"vectors": model.matrix} if head == "WordVectors" else model.state_dict()
    twins = {} if head == "WordVectors" else tied(model)
    data = to_bytes({key: _half(key, value) for key, value in state.items() if key not in twins})
    if len(data) > MAX_BYTES:
        raise CourseError(
            f"{name} takes {len(data):,} bytes in half precision; {MAX_BYTES:,} is the most a file"
            " may."
        )
    with atomic_write(place / "model.safetensors", "wb") as file:
        file.write(data)
    write_json(place / "config.json", _tell(model))
    files = list(FILES)
    if isinstance(tokenizer, Tokenizer):
        tokenizer.save(place / "tokenizer.json")
    else:
        files[files.index("tokenizer.json")] = WORDS
        known = model if tokenizer is None else tokenizer
        write_json(place / WORDS, {"words": known.words, "counts": getattr(known, "counts", None)})
    write_json(place / "card.json", card)
    entries = _manifest(folder) if (folder / "manifest.json").exists() else {}
    summary = {key: value for key, value in card.items() if key not in ("name", "curve")}
    entries[name] = summary | {
        "files": {file: _entry((place / file).read_bytes()) for file in files}
    }
    write_json(folder / "manifest.json", dict(sorted(entries.items())))
    return place


def facts(name: str) -> list[tuple[str, str]]:
    """What a checkpoint or a folder is made of: names and values."""
    body, _, details = open_model(name)  # static word vectors are a table and no module
    weights = [body.matrix] if hasattr(body, "matrix") else body.parameters()
    config = getattr(getattr(body, "stack", None), "config", None)
    found = [("head", type(body).__name__), ("parameters", f"{sum(p.numel() for p in weights):,}")]
    found += (
        [(key, str(value)) for key, value in flatten(config).items()] if config is not None else []
    )
    return found + [
        (key, str(details[key])) for key in ("data", "steps", "tokens", "scores") if key in details
    ]


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    if not path.exists():
        raise CourseError(f"There are no checkpoints in {folder} (no manifest.json). {_REMEDY}")
    return dict(read_json(path))


def _checked(path: Path, entry: dict[str, Any]) -> bytes:
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
    return {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def _half(name: str, value: Tensor) -> Tensor:
    half = (
        value.detach().cpu().to(torch.float16)
        if value.is_floating_point()
        else value.detach().cpu()
    )
    if not torch.isfinite(half).all():
        raise CourseError(
            f"The weight {name} holds numbers too large for half precision, or none at all."
        )
    return half.contiguous()
