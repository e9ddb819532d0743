"""Building, checking and running a notebook, on a toy; each proof is also seen to fail."""

import queue
import re

import pytest
from jupyter_core.utils import run_sync

from course_lib.errors import CourseError
from tests.notebooks import toy
from tools.notebooks import build, execute, page, run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The toy, built once, in a path with a space."""
    folder = tmp_path_factory.mktemp("a path")
    path = toy.write(folder / "notebooks" / "50_toy.ipynb")
    build.build(path)
    return path


@pytest.fixture
def copy(built, tmp_path):
    path = tmp_path / built.name
    path.write_bytes(built.read_bytes())
    return path


def _output(path, piece):
    cell = next(c for c in build.read(path).cells if piece in c.source)
    return "".join(
        o.get("text", "") or o.get("data", {}).get("text/plain", "") for o in cell.outputs
    )


def test_two_builds_give_the_same_bytes(copy):
    before = copy.read_bytes()
    build.build(copy)
    assert copy.read_bytes() == before


def test_the_stored_form(built):
    """The network is cut."""
    assert build.is_scrubbed(built) and _output(built, "socket") == "cut\n"
    assert (
        _output(built, "object()") == "<object at 0x...>"
        and _output(built, "clear_output") == "seen in the end\n"
    )
    assert all(c.execution_count for c in build.read(built).cells if c.cell_type == "code")


def test_the_network_is_cut_where_the_system_cannot(copy, monkeypatch):
    monkeypatch.setattr(execute, "cut_prefix", tuple)
    assert "cut" in str(
        next(c.outputs for c in build.rebuild(copy)[0].cells if "socket" in c.source)
    )


def test_an_error_is_refused_and_the_file_stays(tmp_path):
    path = toy.write(tmp_path / "51_bad.ipynb", [toy.code("print('before')"), toy.code("1 / 0")])
    before = path.read_bytes()
    with pytest.raises(CourseError, match="ZeroDivisionError: division by zero"):
        build.build(path)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == [path.name]


def test_no_notebook_is_one_sentence(tmp_path):
    for content in (
        "{}{",
        "{}",
        "[]",
        "3",
        '{"nbformat": 4, "metadata": {}, "cells": 3}',
        "[" * 9**5,
    ):
        (tmp_path / "x.ipynb").write_text(content)
        with pytest.raises(CourseError, match="is not a Jupyter notebook"):
            build.read(tmp_path / "x.ipynb")
    with pytest.raises(CourseError, match="There is no notebook"):
        build.read(tmp_path / "y.ipynb")


def test_run_gives_a_notebook_and_a_page_that_stands_alone(copy, tmp_path, monkeypatch):
    """It needs no port: where another program is first, a kernel may neither answer nor end."""
    monkeypatch.setattr("jupyter_client.connect.socket", None)
    executed, web = run.run(
        copy, {"SCALE": "smoke", "SEED": 7}, tmp_path / "out folder", progress=False
    )
    assert _output(executed, "print(SCALE") == "smoke sum 45 mean 7.123456\n"
    text = web.read_text("utf-8")
    assert page.fetched(text) == []
    assert page.fetched(text + "<img src='https://example.org/a.png'>") == [
        "https://example.org/a.png"
    ]
    assert 'alt="A line that rises faster and faster"' in text
    assert text.count("<math") == 1 and not re.search(r"\\mathrm", text)


def test_run_refuses_what_the_lesson_does_not_know_and_names_the_cell_that_failed(copy, tmp_path):
    with pytest.raises(CourseError, match="no parameter SCLAE; it has SCALE, SEED"):
        run.run(copy, {"SCLAE": "smoke"}, tmp_path, progress=False)
    with pytest.raises(CourseError, match="SCALE=huge is not a scale; choose one of smoke"):
        run.run(copy, {"SCALE": "huge"}, tmp_path, progress=False)
    made = [toy.code('SCALE = "lesson"', "parameters"), toy.code("1 / 0")]
    with pytest.raises(CourseError, match="ZeroDivisionError"):
        run.run(
            toy.write(tmp_path / "52_bad.ipynb", made),
            {"SCALE": "smoke"},
            tmp_path / "out",
            progress=False,
        )


def test_a_reply_whose_signal_was_lost_is_found(monkeypatch):
    """A poll that the signal would have ended waits for its whole time; the reply lies there all
    the while.
    """
    polls = iter([None, {"msg_id": "a"}])

    async def one(self, timeout):
        if timeout <= 1 and (found := next(polls)):
            return found
        raise queue.Empty

    monkeypatch.setattr(execute.AsyncZMQSocketChannel, "get_msg", one)
    assert run_sync(object.__new__(execute.PatientChannel).get_msg)(timeout=1800) == {"msg_id": "a"}
