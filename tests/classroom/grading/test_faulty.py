"""A whole class of broken, careless and hostile notebooks, graded two at a time: each to the end,
each with its reason.

Makers and expectations stand in faulty.py. Slow: the notebooks are really run, in real boxes; each
night all, else every third."""

import copy
import hashlib
import json

import nbformat
import pytest

from classroom.grading import box, collect, score
from classroom.grading.run import GradeConfig, grade
from tests.classroom.grading.conftest import sampled
from tests.classroom.grading.faulty import FULL, KINDS, cell
from tests.classroom.grading.test_class import table

WAY = box.sandbox()


def digests(folder):
    files = sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink())
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


@pytest.fixture(scope="module")
def graded(request, tmp_path_factory, solved):
    """(records by student, the folder of results) of the kinds that the tests of this run ask."""
    folder, out = tmp_path_factory.mktemp("submissions"), tmp_path_factory.mktemp("out")
    asked = {
        item.callspec.params.get("name")
        for item in request.session.items
        if hasattr(item, "callspec")
    }
    asked = (asked & KINDS.keys()) or KINDS.keys()
    for name, (maker, expect) in KINDS.items():
        if name not in asked or (expect.boxed and not WAY.boxed):
            continue
        notebook, place = copy.deepcopy(solved), folder / name
        if not maker(notebook, place):
            (folder / f"{name}.ipynb").write_text(json.dumps(notebook), "utf-8")
    before = digests(folder)
    limits = box.Limits(seconds=180, cell_seconds=10, memory_gb=3)
    config = GradeConfig(jobs=2, limits=limits, way=WAY, seed=3)
    records = {record["student"]: record for record in grade(folder, "hw1", out, config)}
    assert digests(folder) == before, "a submission has changed another"
    return records, out


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=sampled(n % 3)) for n, name in enumerate(KINDS)],
    ids=lambda name: name[:40].encode("ascii", "replace").decode(),
)
def test_each_kind(graded, name):
    records, out = graded
    expect = KINDS[name][1]
    if expect.boxed and not WAY.boxed:
        pytest.skip(WAY.why)
    record = records[name]
    assert record["status"] == expect.status, record["notes"]
    assert expect.notes in "; ".join(record["notes"])
    assert expect.shows in (out / "feedback" / f"{record['key']}.html").read_text("utf-8")
    earned = dict.fromkeys(FULL, 0.0)
    for test, found in record["tests"].items():
        earned[test.split("-")[0]] += found["points"]
    if expect.status == "graded":
        assert earned == {q: of - dict(expect.lost).get(q, 0) for q, of in FULL.items()}, record[
            "tests"
        ]
        assert "A sum has no order" in record["written"]["q7-written"] or name in (
            "old_format",
            "a_cell_of_no_kind",
        )
    else:
        assert not record["tests"]


@pytest.mark.slow
def test_nothing_hidden_and_nothing_live_in_any_feedback(graded, hw1):
    for path in (graded[1] / "feedback").iterdir():
        page = path.read_text("utf-8")
        assert (
            len(page) < 1_000_000
            and "<script" not in page
            and "Task(" not in page
            and "BEGIN HIDDEN" not in page
        )
        assert "default-src 'none'" in page


@pytest.mark.slow
def test_the_table_has_everybody(graded):
    records, out = graded
    rows = table(out / "grades.csv")
    assert len(rows) == len(records) and not any(row["student"].startswith("=") for row in rows)
    for row in rows:
        if row["status"] != "graded":
            assert row["total"] == "" and row["q1"] == ""  # never an honest-looking zero


@pytest.mark.slow
@pytest.mark.skipif(not WAY.boxed, reason=WAY.why)
def test_the_whole_time_is_limited(solved, hw1, tmp_path, monkeypatch):
    monkeypatch.setattr(box, "PATIENCE", 1)
    cell(notebook := copy.deepcopy(solved), "import time\ntime.sleep(1000)")
    record = one(notebook, hw1, tmp_path, box.Limits(seconds=60, cell_seconds=1000), WAY)
    assert record["status"] == "timed out" and "stopped after 60 seconds in all" in record["notes"]
    assert record["tests"]["q1-attention-hidden"]["passed"]  # what came before counts
    assert not record["tests"]["q5-rotate-hidden"]["passed"]


@pytest.mark.slow
def test_without_a_box(solved, hw1, tmp_path):
    """The plain subprocess of other systems: the same points, deaths included, and nothing left in
    its folder.
    """
    cell(
        notebook := copy.deepcopy(solved),
        "import os\nopen('left', 'w').write(os.getcwd())\nos._exit(3)",
    )
    record = one(notebook, hw1, tmp_path, box.Limits(), box.Sandbox("plain", "for this test"))
    assert all(test["passed"] for test in record["tests"].values())
    assert any("exit status 3" in note for note in record["notes"])


def one(notebook, hw1, folder, limits, way):
    """Grade one notebook in this process."""
    path, checks = folder / "one.ipynb", folder / "hw1_checks.json"
    path.write_text(nbformat.writes(notebook), "utf-8")
    checks.write_text(hw1.checks(), "utf-8")
    run = score.GradingRun(hw1, 5, limits, way, checks)
    return score.grade(collect.read(path, "one", "one", hw1), run)
