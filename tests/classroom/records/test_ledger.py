"""data/claims.yaml is whole, and a mistake in a ledger is one sentence."""

from pathlib import Path

import pytest

from classroom import records
from classroom.records import ledger
from course_lib.errors import CourseError

GOOD = """
- {id: gelu, lesson: 08_gpt1, kind: exact, says: it is smooth, shows: the identities,
   rule: &r {statements: [{says: b, equal: [a, 1]}]}}
- {id: gelu-converges, lesson: 08_gpt1, kind: measured, says: it is better, shows: curves, rule: *r, paper: {A: 1}}
"""


def test_the_ledger_has_every_claim() -> None:
    found = ledger.read()
    assert len(found) == 80 and {claim.lesson for claim in found.values()} <= set(ledger.LESSONS)
    assert records.claim("bert-glue").paper["BERT-base"]["MNLI"] == "84.6/83.4"
    assert records.claim("gelu").kind == "exact"
    assert [claim.id for claim in records.of_lesson("01")] == [
        "attention-complexity",
        "attention-scaling",
        "causal-mask",
    ]
    assert records.of_lesson("01") == records.of_lesson("01_self_attention")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("id: gelu-converges", "id: gelu", r"the id 'gelu' stands twice"),
        ("id: gelu,", "id: Ge lu,", r"entry 1 \(Ge lu\): an id has small letters"),
        ("kind: exact", "kind: true", r"entry 1 \(gelu\): kind is True"),
        ("kind: exact", "kind: proven", r"kind is 'proven'; it must be one of exact, computed, measured"),
        ("lesson: 08_gpt1, kind: exact", "lesson: 08_gpt9, kind: exact", r"there is no lesson '08_gpt9'"),
        ("shows: the identities", "figures: the identities", r"entry 1 \(gelu\) lacks the key 'shows'"),
        ("paper: {A: 1}", "papers: {A: 1}", r"entry 2 \(gelu-converges\) has the unknown key 'papers'"),
        ("says: it is smooth", "says: ''", r"entry 1 \(gelu\): says is ''; it must be a text"),
        ("- {id: gelu,", "- gelu\n- {id: gelu2,", r"entry 1 is 'gelu'; it must have the keys"),
        ("{A: 1}}", "{A: 1}", r"claims.yaml, line \d+ is not YAML"),
        ("equal: [a, 1]", "equals: [a, 1]", r"entry 1 \(gelu\): .* must have `says` and one of more, same, range"),
        (GOOD, "", r"must be a list of claims"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    path = tmp_path / "claims.yaml"
    assert old in GOOD
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(CourseError, match=sentence) as error:
        ledger.read(path)
    assert "\n" not in str(error.value)


def test_what_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="cannot be read"):
        ledger.read(tmp_path / "none.yaml")
    with pytest.raises(CourseError, match="There is no claim 'gelu-convergs'; did you mean gelu-converges"):
        records.claim("gelu-convergs")
    with pytest.raises(CourseError, match="There is no lesson '99'"):
        records.of_lesson("99")
