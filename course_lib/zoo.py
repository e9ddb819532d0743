"""The shipped checkpoints: small models pretrained on the generated world, with what each was made from.

    model, tokenizer, card = zoo.load("bert-mini")

Each is a folder of data/checkpoints with model.safetensors (half precision), config.json, tokenizer.json and
card.json (recipe, scores, learning curve); manifest.json beside them has every file's SHA-256. Models that read words
have a vocabulary.json in place of the tokenizer.

    name                                            model
    bert-mini; roberta-mini, distilbert-mini        heads.Pretraining; heads.MLM
    electra-mini, electra-mini-generator            heads.RTD, heads.MLM
    gpt-nano, gpt-tiny, gpt-mini, gpt-small         heads.LM
    bart-mini, t5-mini                              seq2seq.Seq2SeqLM
    sbert-mini                                      models.sentence.Sentence (SentenceEncoder(model, tokenizer) embeds)
    elmo-mini                                       models.elmo.BiLM; its "tokenizer" is its elmo.Vocabulary
    word2vec-mini, glove-mini                       models.static.WordVectors; there is no tokenizer (None)
"""

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from course_lib import heads, hub
from course_lib.checkpoint import tied
from course_lib.config import from_dict, to_dict
from course_lib.errors import CourseError
from course_lib.files import atomic_write, read_json, write_json
from course_lib.hf import load_pretrained, load_strictly
from course_lib.models import elmo
from course_lib.models.sentence import Sentence
from course_lib.models.static import WordVectors
from course_lib.seq2seq import EncoderDecoder, Seq2SeqLM
from course_lib.stack import Stack
from course_lib.tokenizers import Tokenizer

FOLDER = Path(__file__).resolve().parents[1] / "data" / "checkpoints"
FILES = ("model.safetensors", "config.json", "tokenizer.json", "card.json")
MAX_BYTES = 6_000_000
WORDS = "vocabulary.json"  # in place of tokenizer.json
HEADS = {"LM": heads.LM, "MLM": heads.MLM, "Pretraining": heads.Pretraining, "RTD": heads.RTD}


@dataclass(frozen=True)
class Kind:
    """How a kind of model is told in config.json. build: a model from these values; tell: the values of a model."""

    build: Callable[[dict[str, Any]], Any]
    tell: Callable[[Any], dict[str, Any]]


def _on_a_stack(head: Callable[[Stack], nn.Module]) -> Kind:
    return Kind(lambda v: head(Stack(from_dict(v["stack"]))), lambda m: {"stack": to_dict(m.stack.config)})


def _seq2seq(values: dict[str, Any]) -> Seq2SeqLM:
    body = EncoderDecoder(from_dict(values["stack"]), start=values["start"])
    return Seq2SeqLM(body, **{name: values[name] for name in ("tied", "scaled", "bias")})


KINDS = {
    **{name: _on_a_stack(head) for name, head in HEADS.items()},
    "Seq2SeqLM": Kind(
        _seq2seq,
        lambda m: {
            "stack": to_dict(m.stack.config), "start": m.stack.start, "tied": m.head is None, "scaled": m.scaled,
            "bias": m.bias is not None,
        },
    ),
    "Sentence": Kind(
        lambda v: Sentence(Stack(from_dict(v["stack"])), v["pool"]),
        lambda m: {"stack": to_dict(m.stack.config), "pool": m.pool},
    ),
    "BiLM": Kind(lambda v: elmo.model(elmo.from_dict(v["elmo"])), lambda m: {"elmo": asdict(m.elmo.config)}),
    "WordVectors": Kind(lambda v: None, lambda m: {"words": len(m), "width": m.matrix.shape[1]}),
}  # fmt: skip


class Loaded(NamedTuple):
    """A checkpoint, ready to use. model: a module in eval mode, float32, or `WordVectors`. tokenizer: `Tokenizer`, but
    ELMo's `Vocabulary` and none for static vectors. card: recipe, seed, data, steps, scores, curve."""

    model: Any
    tokenizer: Any
    card: dict[str, Any]


def names(folder: str | Path = FOLDER) -> list[str]:
    """The checkpoints there are."""
    return sorted(_manifest(Path(folder)))


def entry(name: str, folder: str | Path = FOLDER) -> dict[str, Any]:
    """A checkpoint's entry in the manifest: what the card says but its curve, and the SHA-256 of its `files`."""
    return _known(name, Path(folder))


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
    place, entry = folder / name, _known(name, folder)["files"]
    files = [WORDS if file == "tokenizer.json" and WORDS in entry else file for file in FILES]
    content = {file: _checked(place / file, entry.get(file)) for file in files}
    values = read_json(place / "config.json")
    if values.get("head") not in KINDS:
        raise CourseError(f"{place}: the head {values.get('head')!r} is not one of {', '.join(KINDS)}.")
    try:
        weights = {key: value.float() for key, value in from_bytes(content["model.safetensors"]).items()}
    except SafetensorError as error:
        raise CourseError(f"{place / 'model.safetensors'} is damaged ({error}). {_REMEDY}") from error
    known: Any = read_json(place / WORDS) if WORDS in files else Tokenizer.load(place)
    details = dict(read_json(place / "card.json"))
    if values["head"] == "WordVectors":
        return Loaded(WordVectors(known["words"], weights["vectors"], known["counts"]), None, details)
    model = KINDS[values["head"]].build(values)
    weights |= {name: weights[twin] for name, twin in tied(model).items() if twin in weights and name not in weights}
    load_strictly(model, weights, f"{name}/model.safetensors")
    return Loaded(model.eval(), elmo.Vocabulary(known["words"]) if WORDS in files else known, details)


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


def export(name: str, model: Any, tokenizer: Any, card: dict[str, Any], folder: str | Path = FOLDER) -> Path:
    """Write a checkpoint in half precision and enter it in the manifest.

    Args:
        model: one of the `KINDS`. tokenizer: a `Tokenizer`, or an `elmo.Vocabulary`; None with `WordVectors`.
        card: recipe, seed, data, steps, scores, curve.

    Returns: its folder.

    Raises:
        CourseError: a file over 6 MB, another kind of model, weights that half precision cannot hold.
    """
    folder = Path(folder)
    place = folder / name
    head = type(model).__name__
    if head not in KINDS:
        raise CourseError(f"The zoo holds {', '.join(KINDS)}; this model is a {head}.")
    state = {"vectors": model.matrix} if head == "WordVectors" else model.state_dict()
    twins = {} if head == "WordVectors" else tied(model)
    data = to_bytes({key: _half(key, value) for key, value in state.items() if key not in twins})
    if len(data) > MAX_BYTES:
        raise CourseError(f"{name} takes {len(data):,} bytes in half precision; {MAX_BYTES:,} is the most a file may.")
    with atomic_write(place / "model.safetensors", "wb") as file:
        file.write(data)
    write_json(place / "config.json", {"head": head, **KINDS[head].tell(model)})
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
    entries[name] = summary | {"files": {file: _entry((place / file).read_bytes()) for file in files}}
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
