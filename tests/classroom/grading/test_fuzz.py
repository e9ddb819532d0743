"""Submissions and answers that nobody thought of, a hundred, and five hundred each night: each gets
a row, a page and a reason.
"""

import csv
import io
import json
import os
import zipfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from classroom.grading import collect, report, score, session
from tests.classroom.grading.conftest import grading

pytestmark = pytest.mark.slow
EXAMPLES = 500 if os.environ.get("COURSE_NIGHTLY") else 100

texts = st.text(st.characters(exclude_categories=()), max_size=30) | st.sampled_from(
    ["\ud83d", "=1", "\x1b[2J\n"]
)
leaves = st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | texts
anything = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4)
)
sources = (
    st.sampled_from(["def attention(q):\n  pass", "\n" * 3000, "x" * 200_000])
    | st.lists(texts)
    | anything
)
ids = (
    st.sampled_from(["setup", "q1-make_mask", "q1-attention-hidden", "q7-written", "\ud800"])
    | texts
)
tags = (
    st.fixed_dictionaries({"nbgrader": st.fixed_dictionaries({"grade_id": ids}) | anything})
    | anything
)
kinds = st.sampled_from(["code", "markdown"]) | anything
cells = st.fixed_dictionaries(
    {}, optional={"cell_type": kinds, "source": sources, "metadata": tags}
)
ours = (
    st.just({"course_homework": {"assignment": "hw1"}})
    | st.fixed_dictionaries({"kernelspec": anything})
    | anything
)
notebooks = st.fixed_dictionaries(
    {"cells": st.lists(cells | anything, max_size=5) | anything, "metadata": ours}
)
files = st.binary(max_size=300) | (anything | notebooks | notebooks | notebooks).map(
    lambda x: json.dumps(x).encode()
)
names = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1, max_size=40
)
suffixes = st.sampled_from([".ipynb", ".ipynb", ".zip", "", ".json"])
outputs = st.lists(
    anything | st.dictionaries(st.sampled_from(["data", "text", "output_type"]), anything)
)
answers = st.dictionaries(
    st.sampled_from(["value", "error", "type", "text", "line", "argument"]),
    anything | st.sampled_from(["changed", "raised", "missing", "stub"]),
)


@st.composite
def zips(draw):
    """A zip file, whole or damaged."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", draw(st.sampled_from([0, 8, 12, 14]))) as archive:
        for number, data in enumerate(draw(st.lists(files, max_size=3))):
            archive.writestr(f"{number}{draw(suffixes)}", data)
    raw = bytearray(made.getvalue())
    for place in draw(st.lists(st.integers(0, len(raw) - 1), max_size=4)):
        raw[place] ^= 255
    return bytes(raw[draw(st.integers(0, 20)) :])


class Hostile:
    """In the place of the box: whatever comes next."""

    restarts, spent, saw_hidden = 0, 0.0, False

    def __init__(self, drawn):
        self.run = lambda source: (
            drawn.draw(outputs),
            drawn.draw(st.sampled_from(["", "", "ended"])),
        )
        self.function = lambda name: lambda *args: session.value_of(drawn.draw(answers), len(args))
        self.close = self.renew = lambda: None


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(names, suffixes, files | zips()), min_size=1, max_size=3), st.data())
def test_whatever_is_handed_in(tmp_path_factory, hw1, monkeypatch, handed_in, data):
    folder = tmp_path_factory.mktemp("in")
    for name, suffix, raw in handed_in:
        (folder / f"x{name}{suffix}").write_bytes(raw)
    monkeypatch.setattr(score, "Session", lambda *given: Hostile(data))
    entries = collect.collect(folder)
    records = [
        score.grade(collect.read(entry, *who, hw1), grading("hw1"))
        for entry, who in entries.items()
    ]
    report.write([json.loads(json.dumps(record)) for record in records], hw1, out := folder / "out")
    rows = list(csv.DictReader(io.StringIO((out / "grades.csv").read_text("utf-8-sig"))))
    assert len(rows) == len(entries) == len(list((out / "feedback").iterdir()))
    assert all(
        row["status"] == "graded" or (row["notes"] and row["status"] != "grader failed")
        for row in rows
    )
