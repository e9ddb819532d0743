"""A room's `__init__.py` lists its files (docs/architecture.md)."""

import ast
import re

import pytest

from tools.lock import ROOT

ROOMS = sorted(
    path.parent
    for package in ("course_lib", "classroom")
    for path in (ROOT / package).glob("*/**/__init__.py")
    if "lessons" not in path.parts
)


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.relative_to(ROOT).as_posix())
def test_every_file_of_a_room_is_named_and_every_name_is_a_file(room):
    text = ast.get_docstring(ast.parse((room / "__init__.py").read_text("utf-8"))) or ""
    files = {path.name for path in room.glob("*.py") if not path.stem.startswith("__")}
    named = set(re.findall(r"(?<![\w/])\w+\.py\b", text))
    assert named == files
