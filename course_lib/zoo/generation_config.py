"""Warn of settings in a public folder that transformers' `generate` follows and ours does not.

    generation_config.json    {"num_beams": 4, "no_repeat_ngram_size": 3, "eos_token_id": 2}

transformers takes these as defaults (and the same fields of an old config.json). Our `generate`
reads no file: its caller says everything. So the two can write different texts, and a warning names
the fields that could cause it. generation_config.toml lists the fields that are harmless and those
that differ; known_fields.py explains such tables.
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
    """Warn if transformers' `generate` may write another text than ours with a folder's settings.

    Args:
        folder: a folder in the Hugging Face layout.
        model: the model that was loaded from it. Only a model that writes text is checked.
        model_config: the fields of the folder's config.json.

    Raises:
        CourseError: generation_config.json cannot be read.
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
            stacklevel=3,  # 3 calls up is the caller of `load_pretrained`
        )


def _without_known_tokens(
    fields: Mapping[str, Any], model: nn.Module, model_config: Mapping[str, Any]
) -> dict[str, Any]:
    """The fields without a text's first and last token, if `generate` uses the same ones.

    The first one is in the model (`stack.start`); a causal model has none. The last one is in the
    tokenizer. A config.json that names another last token shows that the tokenizer's differs.
    """
    kept = dict(fields)
    start = model.stack.start if isinstance(model, Seq2SeqLM) else None
    if start is None or kept.get("decoder_start_token_id") == start:
        kept.pop("decoder_start_token_id", None)

    end = kept.get("eos_token_id")
    ends = end if isinstance(end, list) else [end]  # some models have several
    if len(ends) == 1 and model_config.get("eos_token_id") in (None, end, ends[0]):
        kept.pop("eos_token_id", None)
    return kept
