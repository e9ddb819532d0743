"""Every lesson runs at smoke scale with another seed, as `make run` does, into a page that stands alone."""

import pytest

from tools.notebooks import lessons, page
from tools.notebooks.execute import environment
from tools.notebooks.run import run

pytestmark = [pytest.mark.slow, pytest.mark.notebooks, pytest.mark.timeout(0)]


@pytest.fixture(scope="module")
def runs(background, tmp_path_factory):
    """Lesson -> its run, which takes its turn: two at a time."""
    out = tmp_path_factory.mktemp("smoke")
    given = {"SCALE": "smoke", "SEED": 1, "OUT": str(out)}
    return {path: background.submit(smoke, path, given, out / "build") for path in lessons()}


def smoke(path, given, out):
    """In another process: one thread, as in all tests."""
    with environment(threads=1):
        return run(path, given, out, progress=False)


@pytest.mark.parametrize("path", lessons(), ids=lambda path: path.stem)
def test_smoke(runs, path):
    executed, web = runs[path].result()
    assert executed.stat().st_size > 10_000
    assert page.fetched(web.read_text("utf-8")) == []
