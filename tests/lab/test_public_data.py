"""The miniature of the public data sets is read by the library as the published files are."""

from pathlib import Path

from course_lib import data
from tests.lab import public_data


def test_the_library_reads_the_miniature(tmp_path: Path) -> None:
    public = public_data.write(tmp_path)
    questions = data.task(str(public / "xquad_en" / "xquad.en.json"))
    assert all(row["answer"] in row["pair"] for row in questions)
    graded = data.task(str(public / "stsb_en"), split="test")
    assert graded[0]["label"] == public_data.written("tasks/similarity", split="test")[0]["score"]
    assert len(data.corpus(str(public / "english"), split="train")) > 1
