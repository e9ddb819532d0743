"""A folder of sentence-transformers becomes an encoder of texts.

What would change its vectors and is not known here is refused, never ignored.
"""

import re
from pathlib import Path
from typing import Any

from torch import nn

from course_lib import hub
from course_lib.data.embedders import SentenceEncoder
from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError
from course_lib.families.sentence import Dense, Normalize, Sentence
from course_lib.files import read_json
from course_lib.model.config import Pool
from course_lib.zoo.folders import load_pretrained
from course_lib.zoo.weights import load_strictly, read_weights

POOLS: dict[str, Pool] = {"cls": "first", "mean": "mean", "max": "max", "lasttoken": "last"}
ACTIVATIONS = {
    f"{kind.__module__}.{kind.__name__}": kind
    for kind in (nn.Identity, nn.Tanh, nn.ReLU, nn.GELU, nn.SiLU)
}
NO_LIMIT = 1_000_000  # transformers writes 1e30 tokens


def load_sentence(source: str | Path) -> SentenceEncoder:
    """An encoder in eval mode, with the vectors that sentence-transformers gives.

    Args:
        source: a folder, or "OWNER/NAME@REVISION" of the hub.

    Raises:
        CourseError: if the folder asks for something that the course does not know.
    """
    folder = hub.pretrained(source)
    modules = read_json(folder / "modules.json")
    kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or set(kinds[2:]) - {"Dense", "Normalize"}:
        raise CourseError(
            f"{folder}/modules.json lists {', '.join(kinds)}; the course reads Transformer,"
            " Pooling, then Dense and Normalize."
        )
    body, pooling, *tops = (folder / module["path"] for module in modules)
    stack: Any = load_pretrained(body).stack
    top = [
        _dense(place) if kind == "Dense" else Normalize()
        for kind, place in zip(kinds[2:], tops, strict=True)
    ]
    model = Sentence(stack, _pool(pooling / "config.json"), top).eval()
    settings = _settings(folder / "config_sentence_transformers.json")
    prompt = settings.get("prompts", {}).get(settings.get("default_prompt_name"), "")
    return SentenceEncoder(model, Tokenizer.load(body), _max_length(body), prompt)


def _pool(path: Path) -> Pool:
    values = read_json(path)
    modes = values.get("pooling_mode")
    if not modes:  # older files have a flag for each
        flags = [name for name in values if name.startswith("pooling_mode_") and values[name]]
        modes = [re.sub("pooling_mode_|_tokens?$", "", flag) for flag in flags] or "mean"
    if isinstance(modes, str):
        modes = [modes]
    if len(modes) != 1 or modes[0] not in POOLS or not values.get("include_prompt", True):
        raise CourseError(
            f"{path}: pooling {' + '.join(modes)}, or without the prompt's tokens, is not the"
            " course's."
        )
    return POOLS[modes[0]]


def _dense(folder: Path) -> Dense:
    values = read_json(folder / "config.json")
    name = values.get("activation_function", "torch.nn.modules.activation.Tanh")
    activation = ACTIVATIONS.get(name)
    ends = {values.get("module_input_name"), values.get("module_output_name")}
    other_ends = ends - {None, "sentence_embedding"}
    if activation is None or values.get("use_residual") or other_ends:
        asks = "a residual, other inputs than the sentence's vector, or another activation"
        raise CourseError(f"{folder}/config.json asks for {asks} than {', '.join(ACTIVATIONS)}.")
    layer = Dense(
        values["in_features"],
        values["out_features"],
        bias=values.get("bias", True),
        activation=activation,
    )
    load_strictly(layer, read_weights(folder), str(folder))
    return layer


def _max_length(folder: Path) -> int | None:
    """The longest text in tokens; None: no limit.

    Older folders say it beside the stack, newer ones in the tokenizer's settings.
    """
    values = _settings(folder / "sentence_bert_config.json")
    if values.get("do_lower_case"):
        raise CourseError(
            f"{folder} asks for lower case before the tokenizer; the course leaves that to it."
        )
    length = values.get("max_seq_length")
    if not length:
        length = _settings(folder / "tokenizer_config.json").get("model_max_length")
    return None if length is None or length > NO_LIMIT else int(length)


def _settings(path: Path) -> dict[str, Any]:
    return dict(read_json(path)) if path.exists() else {}
