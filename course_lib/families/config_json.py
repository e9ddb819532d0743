"""Entries of a config.json with several names, and entries that no family reads.

A file with an entry that no code has read is refused, because it may change what the model
computes. config_json.toml lists the entries that are harmless.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError
from course_lib.known_fields import Config, KnownFields

# model_type -> the model_type whose tables also hold for it.
SAME_FIELDS = {"megatron-bert": "bert", "openai-gpt": "gpt2", "blenderbot": "bart"}
KNOWN = KnownFields(Path(__file__).with_suffix(".toml"), SAME_FIELDS)


def renamed(fields: Mapping[str, Any], model_type: str) -> dict[str, Any]:
    """The fields by the names that the family reads: a GPT-2's `hidden_size` becomes `n_embd`.

    Raises:
        CourseError: a field is given under both names, with two values.
    """
    result = dict(fields)
    for alias, name in KNOWN.table(model_type, "alias").items():
        value = result.pop(alias, None)
        if value is None:
            continue
        if result.get(name) not in (None, value):
            raise CourseError(
                f"{alias} is {value} and {name} is {result[name]}, but they are one field; correct"
                " the wrong one."
            )
        result[name] = value
    return result


def check_unread(config: Config, model_type: str) -> None:
    """Refuse a config.json with a field that no code has read, unless it is known to be harmless.

    Args:
        config: the config.json, after the model was built from it. It knows which fields were read.
        model_type: the family whose tables are used.

    Raises:
        CourseError: there is such a field. The error names the first one, and what to do.
    """
    KNOWN.check(config, model_type, subject=f"a {model_type}")
