"""Public weights in and out: a folder in the Hugging Face layout becomes a model of this course,
and back; a folder of sentence-transformers becomes an encoder of texts.

The tables stand in `families/`, one file a family; this file only applies them, strictly in both
directions. Pickled weights are never opened."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from course_lib import families, hub
from course_lib.data.embedders import SentenceEncoder
from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError
from course_lib.families.rules import Values, convert, convert_back
from course_lib.families.sentence import Dense, Normalize, Sentence
from course_lib.files import atomic_write, read_json, write_json
from course_lib.model import heads
from course_lib.model.config import StackConfig
from course_lib.vocab import Vocab

POOLS: dict[str, heads.Pool] = {"cls": "first", "mean": "mean", "max": "max", "lasttoken": "last"}
ACTIVATIONS = {
    f"{kind.__module__}.{kind.__name__}": kind
    for kind in (nn.Identity, nn.Tanh, nn.ReLU, nn.GELU, nn.SiLU)
}


def load_pretrained(
    source: str | Path, *, architecture: str | None = None, **build: Any
) -> nn.Module:
    """A model of this course with the weights of a folder in the Hugging Face layout, or of the
    hub's "OWNER/NAME", in eval mode. architecture: the public class to read it as, by default the
    one that config.json names. build: options for the head, such as classes=3. A classifier's or
    tagger's `class_names` are config.json's, if it names them."""
    folder = hub.pretrained(source)
    values, theirs = read_json(folder / "config.json"), read_weights(folder)
    try:
        family = families.family(str(values.get("model_type")))
        name = architecture or (values.get("architectures") or [""])[0]
        if name not in family.architectures:
            known = ", ".join(family.architectures)
            raise CourseError(
                f"{folder}: {name!r} is no architecture of {family.model_type}; choose one of"
                f" {known}."
            )
        config, theirs = family.read_config(values), family.bare(theirs)
        # one matrix of each layer
        least = config.width * config.hidden * (1 if config.shared else config.layers)
        if least > (there := sum(map(torch.numel, theirs.values()))):  # before it is built
            raise CourseError(
                f"{folder}: config.json asks for {least:,} weights and more; its files hold"
                f" {there:,}."
            )
        model = family.architectures[name].build(
            config, values | build | {"weights": frozenset(theirs)}
        )
    except KeyError as error:
        raise CourseError(
            f"{folder}/config.json has no field {error}, which its model needs."
        ) from None
    except (TypeError, AttributeError) as error:
        raise CourseError(
            f"{folder}/config.json has a field of another kind than its model needs ({error})."
        ) from None
    load_strictly(model, convert(theirs, family.all_rules(name, model), model), str(folder))
    if isinstance(model, heads.Classifier | heads.TokenClassifier) and "classes" not in build:
        names = [str(values["id2label"][n]) for n in sorted(values.get("id2label") or {}, key=int)]
        model.class_names = (
            None if names == [f"LABEL_{n}" for n in range(len(names))] else tuple(names)
        )
    return model.eval()


def whole_architecture(folder: Path) -> str | None:
    """The public class that leaves nothing of a BERT behind: published files name the masked LM,
    and hold the next-sentence head with its trained pooler too. None: the class that config.json
    names."""
    values = read_json(folder / "config.json")
    family = families.family(str(values.get("model_type")))
    named = (values.get("architectures") or [""])[0]
    if getattr(family.architectures.get(named), "head", None) is not heads.MLM:
        return None
    there = family.bare(read_weights(folder)).keys()
    for name, made in family.architectures.items():
        if made.head is heads.Pretraining and not callable(made.rules):
            return (
                name
                if {rule.theirs for rule in made.rules if rule.ours is not None} <= there
                else None
            )
    return None


def load_strictly(model: nn.Module, weights: Mapping[str, Tensor], where: str) -> None:
    """Load every weight or none, and say which weight of what file does not fit."""
    own = model.state_dict()
    if missing := sorted(own.keys() - weights.keys()):
        raise CourseError(f"{where}: the weight {missing[0]} is missing ({len(missing)} in all).")
    if extra := sorted(weights.keys() - own.keys()):
        raise CourseError(
            f"{where}: the weight {extra[0]} has no place in this model ({len(extra)} in all)."
        )
    for name, tensor in weights.items():
        if own[name].shape != tensor.shape:
            said = f"but the configuration says {list(own[name].shape)}"
            raise CourseError(f"{where}: {name} has shape {list(tensor.shape)}, {said}.")
        if own[name].is_floating_point() != tensor.is_floating_point() or not bool(
            tensor.isfinite().all()
        ):
            raise CourseError(
                f"{where}: {name} holds {tensor.dtype} numbers, or some that are not finite."
            )
    model.load_state_dict(dict(weights))


def save_pretrained(
    model: nn.Module,
    folder: str | Path,
    *,
    model_type: str | None = None,
    architecture: str | None = None,
    tokenizer: Tokenizer | None = None,
) -> None:
    """Write a folder that transformers' `from_pretrained` loads to the same outputs. model_type,
    architecture: "bert", "BertForMaskedLM"; by default those of this configuration and head.
    tokenizer: written too; config.json then says which tokens begin, end and fill a text, which
    transformers' `generate` needs."""
    from safetensors.torch import save

    family = families.family_of(model) if model_type is None else families.family(model_type)
    architecture = architecture or families.public_class(model, family)
    if architecture not in family.architectures:
        what = architecture or type(model).__name__
        raise CourseError(f"Nothing is known of {what!r} in the family {family.model_type!r}.")
    config: StackConfig = model.stack.config  # type: ignore[assignment, union-attr]
    if not families.expresses(family, config):
        raise CourseError(
            f"{family.model_type} cannot express this configuration; without model_type one is"
            " found."
        )
    values = family.write_config(config) | family.architectures[architecture].write(model)
    values |= {"model_type": family.model_type, "architectures": [architecture]}
    values |= _token_ids(values, None if tokenizer is None else tokenizer.vocab)
    if (out := getattr(model, "out", None)) is not None:
        names = getattr(model, "class_names", None) or [
            f"LABEL_{n}" for n in range(out.out_features)
        ]
        values |= {
            "id2label": dict(enumerate(names)),
            "label2id": {name: n for n, name in enumerate(names)},
        }
    named = family.prefixed(architecture, model)
    weights = convert_back(model.state_dict(), family.all_rules(architecture, model), model)
    with atomic_write(Path(folder) / "model.safetensors", "wb") as file:
        file.write(save({named(n): t for n, t in weights.items()}, metadata={"format": "pt"}))
    write_json(Path(folder) / "config.json", values)
    if tokenizer is not None:
        tokenizer.save(Path(folder), segments=config.embed.segments > 1)


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder's safetensors files, in float32."""
    import psutil
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    files = sorted(folder.glob("*.safetensors"))
    size, free = (
        n / 1e9
        for n in (sum(file.stat().st_size for file in files), psutil.virtual_memory().available)
    )
    if not files:
        raise CourseError(
            f"{folder} holds no safetensors file; pickled weights are not opened, so convert them"
            " first."
        )
    if 2 * size > free:  # the file's tensors and the model's
        raise CourseError(
            f"{folder}: {size:.1f} GB of weights need twice as much memory; {free:.1f} GB are free."
        )
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


def _token_ids(values: Values, vocab: Vocab | None) -> dict[str, int | None]:
    """What transformers would otherwise fill in from the published vocabulary, whose ids may not
    even exist here.
    """
    if vocab is None:
        defaults = {"gpt2": ("bos", "eos"), "openai-gpt": ("bos", "eos")}.get(
            values["model_type"], ()
        )
        return {f"{role}_token_id": None for role in defaults}
    ids = {role: getattr(vocab, role) for role in ("bos", "eos", "pad")}
    # a text ends where the tokenizer's frame does; no end is forced on it
    if "decoder_start_token_id" in values:
        ids["eos"] = vocab.sep if vocab.eos is None else vocab.eos
        ids["bos"] = vocab.cls if vocab.bos is None else vocab.bos
        ids |= {"forced_eos": None, "forced_bos": None}
    return {
        f"{role}_token_id": number
        for role, number in ids.items()
        if role != "pad" or number is not None
    }


def load_sentence(source: str | Path) -> SentenceEncoder:
    """A folder of sentence-transformers, or "OWNER/NAME@REVISION" of the hub, in eval mode, with
    equal vectors: what would change them and is not known here is refused, never ignored."""
    folder = hub.pretrained(source)
    modules = read_json(folder / "modules.json")
    kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    body, pooling, *tops = (folder / module["path"] for module in modules)
    if kinds[:2] != ["Transformer", "Pooling"] or set(kinds[2:]) - {"Dense", "Normalize"}:
        reads = "the course reads Transformer, Pooling, then Dense and Normalize"
        raise CourseError(f"{folder}/modules.json lists {', '.join(kinds)}; {reads}.")
    stack: Any = load_pretrained(body).stack
    top = [
        _dense(place) if kind == "Dense" else Normalize()
        for kind, place in zip(kinds[2:], tops, strict=True)
    ]
    model = Sentence(stack, _pool(pooling / "config.json"), top).eval()
    asked = _settings(folder / "config_sentence_transformers.json")
    prompt = asked.get("prompts", {}).get(asked.get("default_prompt_name"), "")
    return SentenceEncoder(model, Tokenizer.load(body), _max_length(body), prompt)


def _pool(path: Path) -> heads.Pool:
    values = read_json(path)
    # of older files
    flags = [name for name in values if name.startswith("pooling_mode_") and values[name]]
    said = (
        values.get("pooling_mode")
        or [re.sub("pooling_mode_|_tokens?$", "", flag) for flag in flags]
        or "mean"
    )
    modes = [said] if isinstance(said, str) else said
    if len(modes) != 1 or modes[0] not in POOLS or not values.get("include_prompt", True):
        raise CourseError(
            f"{path}: pooling {' + '.join(modes)}, or without the prompt's tokens, is not the"
            " course's."
        )
    return POOLS[modes[0]]


def _dense(place: Path) -> Dense:
    values = read_json(place / "config.json")
    activation = ACTIVATIONS.get(
        values.get("activation_function", "torch.nn.modules.activation.Tanh")
    )
    names = {values.get("module_input_name"), values.get("module_output_name")} - {
        None,
        "sentence_embedding",
    }
    if activation is None or values.get("use_residual") or names:
        asks = "a residual, other inputs than the sentence's vector, or another activation"
        raise CourseError(f"{place}/config.json asks for {asks} than {', '.join(ACTIVATIONS)}.")
    layer = Dense(
        values["in_features"],
        values["out_features"],
        bias=values.get("bias", True),
        activation=activation,
    )
    load_strictly(layer, read_weights(place), str(place))
    return layer


def _max_length(place: Path) -> int | None:
    """The longest text in tokens: older folders say it beside the stack, newer ones in the
    tokenizer's settings.
    """
    values = _settings(place / "sentence_bert_config.json")
    if values.get("do_lower_case"):
        raise CourseError(
            f"{place} asks for lower case before the tokenizer; the course leaves that to it."
        )
    most = values.get("max_seq_length") or _settings(place / "tokenizer_config.json").get(
        "model_max_length"
    )
    # transformers writes 1e30 for "no limit"
    return None if most is None or most > 1_000_000 else int(most)


def _settings(path: Path) -> dict[str, Any]:
    return dict(read_json(path)) if path.exists() else {}
