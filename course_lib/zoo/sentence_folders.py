"""Load a folder that sentence-transformers wrote as an encoder, which turns a text into a vector.

    all-MiniLM-L6-v2/
        modules.json                               Transformer, then Pooling, then Normalize
        config.json, model.safetensors             the Transformer, in the Hugging Face layout
        sentence_bert_config.json                  {"max_seq_length": 256, "do_lower_case": false}
        1_Pooling/config.json                      {"pooling_mode_mean_tokens": true, ...}
        config_sentence_transformers.json          prompts, and how vectors are compared

    encoder = load_sentence("all-MiniLM-L6-v2")
    encoder.embed(["A train was late."])           a vector of length 1, like the library's

Every field of these files is either used here, or listed as harmless in sentence_folders.toml, or
refused.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenizers import normalizers
from torch import nn

from course_lib import hub
from course_lib.data.embedders import SIMILARITIES, SentenceEncoder
from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError
from course_lib.families.sentence import Dense, Normalize, Sentence
from course_lib.files import read_json
from course_lib.known_fields import Config, KnownFields
from course_lib.model.config import Pool
from course_lib.zoo.folders import load_body
from course_lib.zoo.weights import load_strictly, read_weights

KNOWN = KnownFields(Path(__file__).with_suffix(".toml"))
# Modules of this package are read. Others are Python code in the folder, which is never run.
PACKAGE = "sentence_transformers."
# the library's name for a pooling -> ours
POOLS: dict[str, Pool] = {"cls": "first", "mean": "mean", "max": "max", "lasttoken": "last"}
ACTIVATIONS = {  # "torch.nn.modules.activation.Tanh" -> nn.Tanh
    f"{activation.__module__}.{activation.__name__}": activation
    for activation in (nn.Identity, nn.Tanh, nn.ReLU, nn.GELU, nn.SiLU)
}
# The settings of the Transformer module. Older folders name the file after the model's family.
TRANSFORMER_CONFIGS = [
    f"sentence_{name}_config.json" for name in ("bert", "roberta", "distilbert", "albert")
]


def load_sentence(source: str | Path) -> SentenceEncoder:
    """Load an encoder in eval mode. Its vectors equal those of sentence-transformers.

    Args:
        source: a folder, or "OWNER/NAME@REVISION" of the hub.

    Raises:
        CourseError: the folder has a module or a setting that the course does not know.
    """
    folder = hub.pretrained(source)
    modules = _modules(folder)
    kinds = [kind for kind, _ in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or set(kinds[2:]) - {"Dense", "Normalize"}:
        raise CourseError(
            f"{folder}/modules.json lists {', '.join(kinds)}; the course reads Transformer,"
            " Pooling, then Dense and Normalize."
        )
    (_, body_folder), (_, pooling_folder), *others = modules
    stack: Any = load_body(body_folder)
    top = [_dense(path) if kind == "Dense" else _normalize(path) for kind, path in others]
    model = Sentence(stack, _pool(pooling_folder / "config.json"), top).eval()
    tokenizer = Tokenizer.load(body_folder)
    max_length = _transformer_settings(body_folder, tokenizer)
    prompt, similarity = _settings(folder / "config_sentence_transformers.json")
    return SentenceEncoder(model, tokenizer, max_length, prompt, similarity)


@contextmanager
def _fields(path: Path, owner: str) -> Iterator[Config]:
    """The fields of a file; none if there is no file.

    At the end of the block, each field that was not read must be known to be harmless.

    Args:
        path: the JSON file.
        owner: whose tables of sentence_folders.toml are used, such as "pooling".

    Raises:
        CourseError: a field was not read, and is not known.
    """
    config = Config(read_json(path) if path.is_file() else {})
    yield config
    try:
        KNOWN.check(config, owner, subject="the vectors")
    except CourseError as error:
        raise CourseError(f"{path}: {error}") from None


def _modules(folder: Path) -> list[tuple[str, Path]]:
    """The class and the folder of each module: ("Pooling", FOLDER/1_Pooling)."""
    modules = []
    for number, fields in enumerate(read_json(folder / "modules.json")):
        module = Config(fields)
        package, _, kind = str(module["type"]).rpartition(".")
        path = folder / module["path"]
        is_inside = path.resolve().is_relative_to(folder.resolve())
        if not f"{package}.".startswith(PACKAGE) or not is_inside:
            raise CourseError(
                f"{folder}/modules.json: module {number} is {module['type']} in"
                f" {module['path'] or 'the folder itself'}, which is code or a place of its own."
            )
        KNOWN.check(module, "module", subject="the vectors")
        modules.append((kind, path))
    return modules


def _pool(path: Path) -> Pool:
    with _fields(path, "pooling") as values:
        modes = values.get("pooling_mode")
        # Older files have a flag for each pooling: {"pooling_mode_mean_tokens": true, ...}.
        flags = [name for name in values if name.startswith("pooling_mode_") and values[name]]
        if not modes:
            # pooling_mode_mean_tokens -> mean. Without any flag the library takes the mean.
            modes = [re.sub("pooling_mode_|_tokens?$", "", flag) for flag in flags] or "mean"
    if isinstance(modes, str):
        modes = [modes]
    if len(modes) != 1 or modes[0] not in POOLS:
        raise CourseError(
            f"{path}: pooling by {' + '.join(modes)} is not supported; {', '.join(POOLS)} are."
        )
    return POOLS[modes[0]]


def _dense(folder: Path) -> Dense:
    path = folder / "config.json"
    with _fields(path, "dense") as values:
        name = values.get("activation_function", "torch.nn.modules.activation.Tanh")
        if name not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise CourseError(
                f"{path}: the activation {name} is not supported; these are: {known}."
            )
        layer = Dense(
            values["in_features"],
            values["out_features"],
            bias=values.get("bias", True),
            activation=ACTIVATIONS[name],
        )
    load_strictly(layer, read_weights(folder), str(folder))
    return layer


def _normalize(folder: Path) -> Normalize:
    with _fields(folder / "config.json", "normalize"):
        return Normalize()


def _transformer_settings(folder: Path, tokenizer: Tokenizer) -> int | None:
    """Let the tokenizer lower the case if the settings say so, and return the maximum length.

    Newer folders have the maximum length only in the tokenizer's own settings.

    Returns:
        The number of tokens after which a text is cut; None for no limit.
    """
    present = [folder / name for name in TRANSFORMER_CONFIGS if (folder / name).is_file()]
    path = present[0] if present else folder / TRANSFORMER_CONFIGS[0]
    with _fields(path, "transformer") as values:
        if values.get("do_lower_case"):
            own = tokenizer.backend.normalizer
            steps = [normalizers.Lowercase(), *([own] if own is not None else [])]
            tokenizer.backend.normalizer = normalizers.Sequence(steps)
        length = values.get("max_seq_length")
    return int(length) if length else tokenizer.max_length


def _settings(path: Path) -> tuple[str, str]:
    """The prompt that is put before every text, and how vectors are compared ("cosine")."""
    with _fields(path, "settings") as values:
        name = values.get("default_prompt_name")
        prompts = values.get("prompts") or {}
        similarity = values.get("similarity_fn_name") or "cosine"
    if name is not None and name not in prompts:
        raise CourseError(f"{path}: there is no prompt {name!r}; there are {', '.join(prompts)}.")
    if similarity not in SIMILARITIES:
        raise CourseError(
            f"{path}: vectors are compared by {', '.join(SIMILARITIES)} here, not by {similarity}."
        )
    return prompts.get(name) or "", similarity
