"""One rule for every field of a config.json: it is obeyed, known to be harmless, or refused.

A field is obeyed if the family reads it while the model is built; `Config` remembers that. The
harmless ones stand in config_json.toml, each with the reason.
"""

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError

# Families whose tables are those of another one too.
SAME_FIELDS = {"megatron-bert": "bert", "openai-gpt": "gpt2", "blenderbot": "bart"}


class Config(Mapping[str, Any]):
    """The fields of a config.json. It remembers which of them were read."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return self._fields[name]

    def __contains__(self, name: object) -> bool:
        return name in self._fields  # asking whether a field is there is not reading it

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def unread(self) -> dict[str, Any]:
        """The fields that nobody has read. One that is null or empty says nothing."""
        return {
            name: value
            for name, value in self._fields.items()
            if name not in self.read and not _is_empty(value)
        }


def renamed(fields: Mapping[str, Any], model_type: str) -> dict[str, Any]:
    """The fields by the names that the family reads: `hidden_size` is a GPT-2's `n_embd`.

    Raises:
        CourseError: a field stands there under both names, with two values.
    """
    result = dict(fields)
    for alias, name in _table(model_type, "alias").items():
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
    """Refuse the first field that was not read and is not known to be harmless.

    Args:
        config: what the model was built from.
        model_type: whose tables hold.

    Raises:
        CourseError: with the field, and what to do.
    """
    known = harmless(model_type)
    only = _table(model_type, "only")
    for name, value in config.unread().items():
        if name in known:
            continue
        if name not in only:
            raise CourseError(
                f"{name} is {value!r}, and the course does not know what that changes in a"
                f" {model_type}; if it is only a note, delete the field."
            )
        allowed = only[name] if isinstance(only[name], list) else [only[name]]
        if value not in allowed:
            raise CourseError(
                "Only models as published are read:"
                f" {name} {' or '.join(str(choice) for choice in allowed)}, not {value}."
            )


def harmless(model_type: str) -> dict[str, str]:
    """The fields that change nothing, each with its reason."""
    reasons: dict[str, str] = {}
    for table in _tables_of(model_type, "harmless"):
        for reason, names in table.items():
            reasons |= dict.fromkeys(names, reason)
    return reasons


def _table(model_type: str, part: str) -> dict[str, Any]:
    """The entries of all tables that hold for a family; its own ones win."""
    entries: dict[str, Any] = {}
    for table in _tables_of(model_type, part):
        entries |= table
    return entries


def _tables_of(model_type: str, part: str) -> list[dict[str, Any]]:
    """The table for all families, then the relative's, then the family's own."""
    names = ("any", SAME_FIELDS.get(model_type), model_type)
    return [_tables().get(name, {}).get(part, {}) for name in names]


@cache
def _tables() -> dict[Any, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, list | dict | str) and not value)
