"""What the fields of a config.json mean: their other names, and what no family reads.

The rule stands in `known_fields`, the tables in config_json.toml.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError
from course_lib.known_fields import Config, KnownFields

# Families whose tables are those of another one too.
SAME_FIELDS = {"megatron-bert": "bert", "openai-gpt": "gpt2", "blenderbot": "bart"}
KNOWN = KnownFields(Path(__file__).with_suffix(".toml"), SAME_FIELDS)


def renamed(fields: Mapping[str, Any], model_type: str) -> dict[str, Any]:
    """The fields by the names that the family reads: `hidden_size` is a GPT-2's `n_embd`.

    Raises:
        CourseError: a field stands there under both names, with two values.
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
    """Refuse the first field that no code of the family reads, and that is not harmless.

    Args:
        config: what the model was built from.
        model_type: whose tables hold.

    Raises:
        CourseError: with the field, and what to do.
    """
    KNOWN.check(config, model_type, subject=f"a {model_type}")
