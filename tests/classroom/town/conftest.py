"""One town for all tests of this folder, and its first documents."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from classroom.town import World
from classroom.town.lexicon import FOLDER
from tests.classroom.town.reader import Reader


@pytest.fixture(scope="session")
def world() -> World:
    return World(0)


@pytest.fixture(scope="session")
def again() -> World:
    """The same town once more."""
    return World(0)


@pytest.fixture(scope="session")
def reader(world: World) -> Reader:
    return Reader(world)


@pytest.fixture(scope="session")
def documents(world: World) -> list[dict[str, Any]]:
    return world.documents(1500)


@pytest.fixture(scope="session")
def held_out_documents(world: World) -> list[dict[str, Any]]:
    return world.documents(500, "test")


@pytest.fixture
def changed(tmp_path: Path) -> Callable[[str, str, str], Path]:
    """A copy of the tables in which a piece of one is another."""

    def change(table: str, old: str, new: str) -> Path:
        folder = Path(shutil.copytree(FOLDER, tmp_path / "world"))
        text = (folder / table).read_text("utf-8")
        assert old in text
        (folder / table).write_text(text.replace(old, new), "utf-8")
        return folder

    return change
