"""Folders of the sentence-transformers library, in and out: equal vectors on both sides.

modules.json lists the modules in order, each with its folder: a Transformer (the root, or 0_Transformer), a Pooling,
then Dense and Normalize layers. The stack is read and written by `course_lib.hf`. What would change the vectors and is
not known here is refused, never ignored. Written are the names that every version of the library has understood.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from course_lib import hf, hub
from course_lib.errors import CourseError
from course_lib.files import atomic_write, read_json, write_json
from course_lib.heads import Pool
from course_lib.models.sentence import Dense, Normalize, Sentence, SentenceEncoder
from course_lib.tokenizers import Tokenizer

POOLS: dict[str, Pool] = {"cls": "first", "mean": "mean", "max": "max", "lasttoken": "last"}
LEGACY = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
ACTIVATIONS = {
    "torch.nn.modules.linear.Identity": "identity",
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.GELU": "gelu",
    "torch.nn.modules.activation.SiLU": "silu",
}
MODULE = "sentence_transformers.models."


def load_sentence(source: str | Path) -> SentenceEncoder:
    """A sentence-transformers folder (theirs or ours), or "OWNER/NAME@REVISION" of the hub, in eval mode.

    Raises:
        CourseError: no such folder, a module, pooling or setting that is not the course's, pickled or unfitting
            weights.
    """
    folder = hub.pretrained(source)
    modules = read_json(folder / "modules.json")
    kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    places = [folder / module["path"] for module in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or set(kinds[2:]) - {"Dense", "Normalize"}:
        raise CourseError(
            f"{folder}/modules.json lists {', '.join(kinds)}; the course reads Transformer, Pooling, then Dense and "
            "Normalize."
        )
    stack: Any = hf.load_pretrained(places[0]).stack
    tokenizer = Tokenizer.load(places[0])
    top = [_dense(place) if kind == "Dense" else Normalize() for kind, place in zip(kinds[2:], places[2:], strict=True)]
    model = Sentence(stack, _pool(places[1] / "config.json"), top).eval()
    return SentenceEncoder(model, tokenizer, _max_length(places[0]), _prompt(folder))


def save_sentence(encoder: SentenceEncoder, folder: str | Path, *, model_type: str = "") -> None:
    """Write a folder that sentence-transformers loads to the same vectors.

    Args:
        model_type: the family of the stack, as for `hf.save_pretrained`; by default BERT, or Megatron-BERT where the
            norms stand before the sublayers.

    Raises:
        CourseError: a family or configuration that the public model cannot express.
    """
    folder, model = Path(folder), encoder.model
    model_type = model_type or ("bert" if model.stack.config.norm == "post" else "megatron-bert")
    family = hf.families().get(model_type)
    bodies = [] if family is None else [name for name, a in family.architectures.items() if not a.has_prefix]
    if family is None or not bodies:
        raise CourseError(f"The family {model_type!r} is not known, or has no public model without a head.")
    with torch.random.fork_rng(devices=[]):  # a pooler that the public class has is written, though nobody reads it
        body: Any = family.architectures[bodies[0]].build(model.stack.config, {})
    for weight in body.parameters():
        nn.init.zeros_(weight)
    body.stack = model.stack
    hf.save_pretrained(body, folder, model_type=model_type, architecture=bodies[0])
    encoder.tokenizer.save(folder)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": encoder.max_length, "do_lower_case": False})

    name = {ours: theirs for theirs, ours in POOLS.items()}[model.pool]
    pooling = {"word_embedding_dimension": model.stack.config.width}
    write_json(folder / "1_Pooling" / "config.json", pooling | {key: mode == name for key, mode in LEGACY.items()})
    modules = [("Transformer", ""), ("Pooling", "1_Pooling")]
    for layer in model.top:
        kind = type(layer).__name__
        modules.append((kind, f"{len(modules)}_{kind}"))
        if isinstance(layer, Dense):
            _save_dense(layer, folder / modules[-1][1])
        else:
            write_json(folder / modules[-1][1] / "config.json", {})
    prompt = {"prompts": {"text": encoder.prompt}, "default_prompt_name": "text"} if encoder.prompt else {}
    write_json(folder / "config_sentence_transformers.json", {"similarity_fn_name": "cosine"} | prompt)
    listed = [{"idx": n, "name": str(n), "path": path, "type": MODULE + kind} for n, (kind, path) in enumerate(modules)]
    write_json(folder / "modules.json", listed)  # last: a folder without it is no model


def _pool(path: Path) -> Pool:
    values = read_json(path)
    if "pooling_mode" in values:
        modes = [values["pooling_mode"]] if isinstance(values["pooling_mode"], str) else values["pooling_mode"]
    else:
        modes = [mode for key, mode in LEGACY.items() if values.get(key)] or ["mean"]
    if len(modes) != 1 or modes[0] not in POOLS:
        raise CourseError(f"{path}: pooling {' + '.join(modes)} is not one of the course's ({', '.join(POOLS)}).")
    if not values.get("include_prompt", True):
        raise CourseError(f"{path} leaves the prompt's tokens out of the pooling, which the course does not.")
    return POOLS[modes[0]]


def _dense(place: Path) -> Dense:
    values = read_json(place / "config.json")
    activation = ACTIVATIONS.get(values.get("activation_function", "torch.nn.modules.activation.Tanh"))
    names = {values.get("module_input_name"), values.get("module_output_name")} - {None, "sentence_embedding"}
    if activation is None or values.get("use_residual") or names:
        raise CourseError(
            f"{place}/config.json asks for a residual, for other inputs than the sentence's vector, or for an "
            f"activation that is none of {', '.join(ACTIVATIONS)}."
        )
    layer = Dense(values["in_features"], values["out_features"], bias=values.get("bias", True), activation=activation)
    hf.load_strictly(layer, hf._read_weights(place), str(place))
    return layer


def _save_dense(layer: Dense, place: Path) -> None:
    from safetensors.torch import save

    weights: dict[str, Tensor] = {name: value.contiguous() for name, value in layer.state_dict().items()}
    with atomic_write(place / "model.safetensors", "wb") as file:
        file.write(save(weights, metadata={"format": "pt"}))
    values = {
        "in_features": layer.linear.in_features,
        "out_features": layer.linear.out_features,
        "bias": layer.linear.bias is not None,
        "activation_function": {ours: theirs for theirs, ours in ACTIVATIONS.items()}[layer.name],
    }
    write_json(place / "config.json", values)


def _max_length(place: Path) -> int | None:
    """The longest text in tokens: older folders say it beside the stack, newer ones in the tokenizer's settings."""
    settings = place / "sentence_bert_config.json"
    values = read_json(settings) if settings.exists() else {}
    if values.get("do_lower_case"):
        raise CourseError(f"{settings} asks for lower case before the tokenizer; the course leaves that to it.")
    settings = place / "tokenizer_config.json"
    most = values.get("max_seq_length") or (read_json(settings) if settings.exists() else {}).get("model_max_length")
    return None if most is None or most > 1_000_000 else int(most)  # transformers writes 1e30 for "no limit"


def _prompt(folder: Path) -> str:
    settings = folder / "config_sentence_transformers.json"
    values = read_json(settings) if settings.exists() else {}
    name = values.get("default_prompt_name")
    return "" if name is None else str(values["prompts"][name])
