"""Small enough to hold in the head: lines and files of every part, as `wc -l` counts them; rooms one can overlook."""

import pytest

from tools import house
from tools.notebooks import ROOT

LINES = [
    ("course_lib", 12_500),
    ("classroom", 12_100),  # with whole-model drawings and nbgrader's gradebook, which came later
    ("experiments", 6_095),  # with the five tasks of one text-to-text model, which came later
    ("experiments/bench", 1_194),  # with the GPU's measurement, nanoGPT as a peer and the roofline, which came later
    ("experiments/real", 940),  # came later, with a budget of its own
    ("tools", 2_600),  # with the students' copies, which came later
    ("tests", 18_375),  # with quizzes, figures in prose, copies, gradebook, a fuzzer of doors, which came later
]
MODULES = 15  # in one folder; more ask for rooms in it
MANY = {"experiments/lessons"}  # a file a lesson


@pytest.mark.parametrize(("part", "most"), LINES)
def test_lines(part, most):
    apart = [room for room, _ in LINES if room.startswith(f"{part}/")]
    assert house.size(ROOT / part)[1] - sum(house.size(ROOT / room)[1] for room in apart) <= most


def test_files():
    assert house.size(ROOT / "course_lib")[0] <= 75


def test_no_room_is_crowded():
    folders = {path.parent for package in house.PACKAGES for path in (ROOT / package).rglob("*.py")}
    counts = {str(f.relative_to(ROOT)): len({*f.glob("*.py")} - {f / "__init__.py"}) for f in folders}
    assert {name: count for name, count in counts.items() if count > MODULES and name not in MANY} == {}


def test_the_library_has_rooms_and_four_files():
    names = {path.stem for path in (ROOT / "course_lib").glob("*.py")}
    assert names == {"__init__", "__main__", "errors", "files"}
