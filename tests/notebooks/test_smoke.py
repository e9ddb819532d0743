"""Every lesson runs at smoke scale with another seed, as `make run` does, into a page that stands
alone; or on a text of 20 kB that has no documents. Each night it does both."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from course_lib import data
from tools.notebooks import lessons, page
from tools.notebooks.execute import environment
from tools.notebooks.run import run
from tools.notebooks.stored import BACKGROUND

pytestmark = [pytest.mark.slow, pytest.mark.notebooks, pytest.mark.timeout(0)]
RUNS, OUT = {}, Path(tempfile.gettempdir(), f"smoke-{os.getpid()}")


def in_background(item):
    """A lesson's run takes its turn in the background: two at a time, beside other tests."""
    path, kind = (item.callspec.params[name] for name in ("path", "kind"))
    (OUT / kind).mkdir(parents=True, exist_ok=True)
    (book := OUT / "book.txt").write_text(odd_text(), "utf-8")
    given = {
        "SCALE": "smoke",
        "SEED": 1,
        "OUT": str(OUT / kind),
        "DATA": "world" if kind == "town" else str(book),
    }
    RUNS[path, kind] = item.config.stash[BACKGROUND].submit(
        smoke, path, given, OUT / kind / "build"
    )


def odd_text():
    """20 kB without documents: one long line, double spaces and no full stops, no spaces at all,
    another script.
    """
    text = " ".join(" ".join(data.corpus("manual")["text"]).split())
    bare, script = (
        text[9_000:14_000].replace(".", ""),
        str.maketrans("abcdefghijklmnop", "的一是不了人我在有他这为之大来以"),
    )
    parts = (
        text[:9_000],
        bare.replace(" ", "  "),
        bare.replace(" ", "")[:2_000],
        text[16_000:20_480].translate(script),
    )
    return "\n".join(parts)


def smoke(path, given, out):
    with environment(threads=1):  # as in all tests
        return run(path, given, out, progress=False)


@pytest.fixture(scope="module", autouse=True)
def tidy():
    yield
    shutil.rmtree(OUT)


def cases():
    """Every lesson with both texts. `make test-all` takes one of the two, in turn."""
    kinds = ("town", "book")
    for number, path in enumerate(lessons()):
        for kind in kinds:
            is_sampled = kind == kinds[number % 2]
            marks = () if is_sampled else pytest.mark.nightly
            yield pytest.param(path, kind, marks=marks, id=f"{path.stem}-{kind}")


@pytest.mark.parametrize(("path", "kind"), cases())
def test_smoke(path, kind):
    executed, web = RUNS[path, kind].result()
    assert executed.stat().st_size > 10_000 and page.fetched(web.read_text("utf-8")) == []
