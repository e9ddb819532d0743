"""docs/evidence.md says what the records say."""

from dataclasses import replace
from pathlib import Path

import pytest

from classroom import records
from classroom.records import evidence, record
from classroom.records.figures import figure
from classroom.records.record import write
from course_lib.errors import CourseError

NAME = "in-context-learning"


def test_a_number_follows_its_record(tmp_path: Path) -> None:
    found = record(NAME)
    assert found is not None
    changed = found.figures | {"width 64/0 shots": figure([0.111, 0.113])}
    write(replace(found, figures=changed), tmp_path)
    assert "11.2 ± 1.3% without an example" in evidence.markdown(tmp_path)


def test_a_claim_without_a_record_is_not_measured_yet(tmp_path: Path) -> None:
    text = evidence.markdown(tmp_path)
    assert f"| `{NAME}` |" not in text
    planned = text.split("Planned, not measured yet:")[1].split("\n")[0]
    assert f"`{NAME}`" in planned


def test_a_difference_is_paired_by_seed(tmp_path: Path) -> None:
    found = record(NAME)
    assert found is not None
    figures = found.figures | {"a": figure([1.0, 2.0]), "b": figure([0.5, 1.5])}
    write(replace(found, figures=figures), tmp_path)
    shown = evidence.ours(NAME, "a", "b", scale=1, folder=tmp_path)
    assert shown == "0.5"  # the same with every seed, so without an interval


def test_a_curve_has_the_means_and_the_ends_of_their_intervals(tmp_path: Path) -> None:
    found = record(NAME)
    assert found is not None
    one = figure([1.0, 2.0, 3.0])
    write(replace(found, figures={"a": one, "b": figure([4.0])}), tmp_path)
    line, band = records.curve(NAME, {8: "a", 16: "b"}, folder=tmp_path)
    assert one.interval is not None and line == ([8, 16], [2.0, 4.0])
    assert band == ([one.interval[0], 4.0], [one.interval[1], 4.0])
    with pytest.raises(CourseError, match="no figure 'c'"):
        records.curve(NAME, {8: "c"}, folder=tmp_path)
