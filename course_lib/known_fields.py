"""One rule for every field of a public JSON file: it is obeyed, known to be harmless, or refused.

A field is obeyed if some code reads it; `Config` remembers that. The harmless ones stand in a file
of tables, each with the reason: families/config_json.toml, peft/adapter_config.toml,
zoo/generation_config.toml.
"""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError


class Config(Mapping[str, Any]):
    """The fields of a JSON file. It remembers which of them were read."""

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


class KnownFields:
    """The tables of a TOML file about the fields that no code reads.

    Each owner (a family or a method) has its own tables. The tables of "any" hold for all owners.
    [OWNER.harmless] maps a reason to its fields. [OWNER.only] maps a field to the one value, or the
    list of values, that it may have.

    Args:
        path: the TOML file.
        same: owner -> another owner whose tables hold for it, too.
    """

    def __init__(self, path: Path, same: Mapping[str, str] | None = None) -> None:
        self._tables: dict[Any, dict[str, Any]] = tomllib.loads(path.read_text("utf-8"))
        self._same = same or {}

    def check(self, config: Config, owner: str, subject: str) -> None:
        """Refuse the first field that was not read and is not known to be harmless.

        Args:
            config: the fields, after all code has read what it needs.
            owner: the owner of the tables.
            subject: what a field might change, such as "a bert", for the message.

        Raises:
            CourseError: if there is such a field. The message says what to do.
        """
        only = self.table(owner, "only")
        for name, value in self.differing(config, owner).items():
            if name not in only:
                raise CourseError(
                    f"{name} is {value!r}, and the course does not know what that changes in"
                    f" {subject}; if it is only a note, delete the field."
                )
            choices = " or ".join(str(choice) for choice in _as_list(only[name]))
            raise CourseError(f"Only models as published are read: {name} {choices}, not {value}.")

    def differing(self, config: Config, owner: str) -> dict[str, Any]:
        """The fields that may change a result: not read, not harmless, at no allowed value."""
        known = self.harmless(owner)
        only = self.table(owner, "only")
        return {
            name: value
            for name, value in config.unread().items()
            if name not in known and not (name in only and value in _as_list(only[name]))
        }

    def harmless(self, owner: str) -> dict[str, str]:
        """The fields that change nothing, each with its reason."""
        reasons: dict[str, str] = {}
        for table in self._tables_of(owner, "harmless"):
            for reason, names in table.items():
                reasons |= dict.fromkeys(names, reason)
        return reasons

    def table(self, owner: str, part: str) -> dict[str, Any]:
        """The merged entries of all tables that hold for an owner. Its own entries win."""
        entries: dict[str, Any] = {}
        for table in self._tables_of(owner, part):
            entries |= table
        return entries

    def _tables_of(self, owner: str, part: str) -> list[dict[str, Any]]:
        """The tables of "any", of the owner's relative and of the owner, in this order."""
        names = ("any", self._same.get(owner), owner)
        return [self._tables.get(name, {}).get(part, {}) for name in names]


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, list | dict | str) and not value)
