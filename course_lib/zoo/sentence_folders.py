"""A folder of sentence-transformers becomes an encoder of texts.

Every field of its files is obeyed, known to be harmless (sentence_folders.toml), or refused.
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
PACKAGE = "sentence_transformers."  # whose classes are read; others are code of the folder's own
POOLS: dict[str, Pool] = {"cls": "first", "mean": "mean", "max": "max", "lasttoken": "last"}
ACTIVATIONS = {
    f"{kind.__module__}.{kind.__name__}": kind
    for kind in (nn.Identity, nn.Tanh, nn.ReLU, nn.GELU, nn.SiLU)
}
# The settings beside the stack; older folders name the file after its family.
BESIDE_STACK = [
    f"sentence_{name}_config.json" for name in ("bert", "roberta", "distilbert", "albert")
]


def load_sentence(source: str | Path) -> SentenceEncoder:
    """An encoder in eval mode, with the vectors that sentence-transformers gives.

    Args:
        source: a folder, or "OWNER/NAME@REVISION" of the hub.

    Raises:
        CourseError: if the folder asks for something that the course does not know.
    """
    folder = hub.pretrained(source)
    modules = _modules(folder)
    kinds = [kind for kind, _ in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or set(kinds[2:]) - {"Dense", "Normalize"}:
        raise CourseError(
            f"{folder}/modules.json lists {', '.join(kinds)}; the course reads Transformer,"
            " Pooling, then Dense and Normalize."
        )
    (_, body), (_, pooling), *tops = modules
    stack: Any = load_body(body)
    top = [_dense(place) if kind == "Dense" else _normalize(place) for kind, place in tops]
    model = Sentence(stack, _pool(pooling / "config.json"), top).eval()
    tokenizer = Tokenizer.load(body)
    max_length = _beside_stack(body, tokenizer)
    prompt, similarity = _settings(folder / "config_sentence_transformers.json")
    return SentenceEncoder(model, tokenizer, max_length, prompt, similarity)


@contextmanager
def _checked(path: Path, owner: str) -> Iterator[Config]:
    """The fields of a file; none if it is not there.

    Those that the block does not read are checked at its end.

    Raises:
        CourseError: one of them is not known.
    """
    config = Config(read_json(path) if path.is_file() else {})
    yield config
    try:
        KNOWN.check(config, owner, subject="the vectors")
    except CourseError as error:
        raise CourseError(f"{path}: {error}") from None


def _modules(folder: Path) -> list[tuple[str, Path]]:
    """The modules of a folder: the class of each, and its place."""
    modules = []
    for number, fields in enumerate(read_json(folder / "modules.json")):
        module = Config(fields)
        package, _, kind = str(module["type"]).rpartition(".")
        place = folder / module["path"]
        if not f"{package}.".startswith(PACKAGE) or not place.resolve().is_relative_to(
            folder.resolve()
        ):
            raise CourseError(
                f"{folder}/modules.json: module {number} is {module['type']} in"
                f" {module['path'] or 'the folder itself'}, which is code or a place of its own."
            )
        KNOWN.check(module, "module", subject="the vectors")
        modules.append((kind, place))
    return modules


def _pool(path: Path) -> Pool:
    with _checked(path, "pooling") as values:
        modes = values.get("pooling_mode")
        # Older files have a flag for each.
        flags = [name for name in values if name.startswith("pooling_mode_") and values[name]]
        if not modes:
            modes = [re.sub("pooling_mode_|_tokens?$", "", flag) for flag in flags] or "mean"
    if isinstance(modes, str):
        modes = [modes]
    if len(modes) != 1 or modes[0] not in POOLS:
        raise CourseError(f"{path}: pooling {' + '.join(modes)} is not the course's.")
    return POOLS[modes[0]]


def _dense(folder: Path) -> Dense:
    path = folder / "config.json"
    with _checked(path, "dense") as values:
        name = values.get("activation_function", "torch.nn.modules.activation.Tanh")
        if name not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise CourseError(
                f"{path}: the activation {name} is not one of the course's ({known})."
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
    with _checked(folder / "config.json", "normalize"):
        return Normalize()


def _beside_stack(folder: Path, tokenizer: Tokenizer) -> int | None:
    """The longest text in tokens; None: no limit. The tokenizer learns whether case counts.

    Older folders say the length beside the stack, newer ones in the tokenizer's settings.
    """
    there = [folder / name for name in BESIDE_STACK if (folder / name).is_file()]
    with _checked(there[0] if there else folder / BESIDE_STACK[0], "transformer") as values:
        if values.get("do_lower_case"):
            own = tokenizer.backend.normalizer
            steps = [normalizers.Lowercase(), *([own] if own is not None else [])]
            tokenizer.backend.normalizer = normalizers.Sequence(steps)
        length = values.get("max_seq_length")
    return int(length) if length else tokenizer.max_length


def _settings(path: Path) -> tuple[str, str]:
    """The prompt before every text, and how vectors are compared."""
    with _checked(path, "settings") as values:
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
