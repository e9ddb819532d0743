"""The drawn house is the one that stands, and what docs/architecture.md says of it is so."""

import copy
import re

from tools import house
from tools.notebooks import ROOT

TEXT = (ROOT / "docs" / "architecture.md").read_text("utf-8")
KINDS = ("family", "lesson", "exercise", "claim", "data format", "checkpoint", "command")


def test_the_picture_shows_what_stands():
    """Rooms and imports; lines of code may change without a new picture."""
    assert house.drawn() == house.structure(), "python -m tools.house"


def test_arrows_point_down_and_a_circle_stands_in_one_row():
    imports = [["a", "b", "c"], ["b", "c"], ["c"], ["d"]]
    assert house.rows(imports) == [["a", "d"], ["b"], ["c"]] and house.arrows(imports) == [("a", "b"), ("b", "c")]
    assert house.rows([["a", "b"], ["b", "a", "c"], ["c"]]) == [["a", "b"], ["c"]]


def test_a_stale_picture_is_seen(tmp_path, monkeypatch):
    other = copy.deepcopy(house.structure())
    other["classroom"].append(["cellar", "town"])
    monkeypatch.setattr(house, "structure", lambda: other)
    monkeypatch.setattr(house, "rooms", lambda package: {name: ROOT / "tools" for name, *_ in other[package]})
    monkeypatch.setattr(house, "PICTURE", tmp_path / "picture.svg")
    house.main()
    assert house.drawn(tmp_path / "picture.svg") == other != house.drawn()


def test_every_room_is_explained():
    for package, imports in house.structure().items():
        said = re.findall(rf"^\| `{package}/(\w+)(?:/|\.py)`", TEXT, re.MULTILINE)
        assert sorted(said) == sorted(name for name, *_ in imports), package


def test_each_kind_of_change_names_files():
    """tests/notebooks/test_links.py holds that they exist; a name may have a star."""
    rows = dict(re.findall(r"^\| an? (?:model )?([a-z ]+?) \| (.*) \|$", TEXT, re.MULTILINE))
    assert set(KINDS) <= set(rows)
    assert {kind for kind, where in rows.items() if len(re.findall(r"`[^`]*/[^`]*`", where)) < 2} == set()
