"""The lessons' claims are whole, and a mistake in a claims.yaml is one sentence."""

import json
from pathlib import Path

import pytest

from classroom import course, records
from classroom.records import ledger
from course_lib.errors import CourseError

GOOD = """
- {id: gelu, kind: exact, says: it is smooth, shows: the identities,
   rule: &r {statements: [{says: b, equal: [a, 1]}]}}
- {id: gelu-converges, kind: measured, says: it is better, shows: curves, rule: *r,
   paper: {A: 1}}
"""


def test_the_ledger_is_read() -> None:
    found = ledger.read()
    lessons = [claim.lesson for claim in found.values()]
    assert set(lessons) <= set(course.names()) and lessons == sorted(lessons)
    assert records.claim("relative-beats-absolute").paper["base absolute"]["en-de"] == 26.5
    assert records.claim("rope-decay").kind == "computed"
    assert "attention-scaling" in [claim.id for claim in records.of_lesson("01")]
    assert records.of_lesson("01") == records.of_lesson("01_self_attention")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        *json.loads(Path(__file__).with_name("mistakes.json").read_text()),
        (GOOD, "", r"must be a list of claims"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    path = tmp_path / "claims.yaml"
    assert old in GOOD
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(CourseError, match=sentence) as error:
        ledger.read_file(path, "08_gpt1")
    assert "\n" not in str(error.value)


def test_what_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="cannot be read"):
        ledger.read_file(tmp_path / "none.yaml", "08_gpt1")
    with pytest.raises(
        CourseError, match="There is no claim 'gelu-convergs'; did you mean gelu-converges"
    ):
        records.claim("gelu-convergs")
    with pytest.raises(CourseError, match="There is no lesson '99'"):
        records.of_lesson("99")
