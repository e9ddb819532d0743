"""The settings of transformers' `generate` in a public folder: which of them ours lacks.

`generate` takes its settings from its caller and reads no file. transformers takes a folder's
generation_config.json as defaults, or the same fields of an old config.json. So a folder can ask
for what the course does not do. A warning says so. The rule stands in `known_fields`, the tables in
generation_config.toml.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from course_lib.errors import CourseError, CourseWarning
from course_lib.files import read_json
from course_lib.known_fields import Config, KnownFields
from course_lib.model import heads
from course_lib.model.seq2seq import Seq2SeqLM

FILE = "generation_config.json"
KNOWN = KnownFields(Path(__file__).with_suffix(".toml"))
DIFFERS = KNOWN.table("any", "differs")  # field -> what transformers does with it


def warn_of_settings(folder: Path, model: nn.Module, model_config: Mapping[str, Any]) -> None:
    """Name the settings with which transformers' `generate` may write another text than ours.

    Args:
        folder: in the Hugging Face layout.
        model: as loaded from it; one that writes no text is passed over.
        model_config: the fields of the folder's config.json.

    Raises:
        CourseError: if generation_config.json cannot be read.
    """
    if not isinstance(model, heads.LM | Seq2SeqLM):
        return
    if (folder / FILE).is_file():
        path = folder / FILE
        fields = read_json(path)
        if not isinstance(fields, dict):
            raise CourseError(f"{path} holds no fields; restore it or delete it.")
    else:
        path = folder / "config.json"
        fields = {name: model_config[name] for name in DIFFERS.keys() & model_config.keys()}
    settings = Config(_without_known_tokens(fields, model, model_config))
    differing = KNOWN.differing(settings, "any")
    if differing:
        listed = [
            f"{name} {value!r} ({DIFFERS.get(name, 'the course does not know this field')})"
            for name, value in sorted(differing.items())
        ]
        warnings.warn(
            f"{path} has settings that transformers' generate follows and the course's does not,"
            f" so their texts may differ: {'; '.join(listed)}.",
            CourseWarning,
            stacklevel=3,
        )


def _without_known_tokens(
    fields: Mapping[str, Any], model: nn.Module, model_config: Mapping[str, Any]
) -> dict[str, Any]:
    """The fields but the first and the last token of a text, where ours are the same.

    The first one is the model's; a causal model has none. The last one is the tokenizer's, which
    belongs to config.json. So a config.json that names no last token is no contradiction.
    """
    kept = dict(fields)
    start = model.stack.start if isinstance(model, Seq2SeqLM) else None
    if start is None or kept.get("decoder_start_token_id") == start:
        kept.pop("decoder_start_token_id", None)

    end = kept.get("eos_token_id")
    ends = end if isinstance(end, list) else [end]
    if len(ends) == 1 and model_config.get("eos_token_id") in (None, end, ends[0]):
        kept.pop("eos_token_id", None)
    return kept
