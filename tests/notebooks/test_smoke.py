"""Every lesson runs at smoke scale with another seed, as `make run` does, into a page that stands alone; and on a text
of 20 kB that has no documents."""

from pydoc_data.topics import topics

import pytest

from tools.notebooks import lessons, page
from tools.notebooks.execute import environment
from tools.notebooks.run import run

pytestmark = [pytest.mark.slow, pytest.mark.notebooks, pytest.mark.timeout(0)]


@pytest.fixture(scope="module")
def runs(background, tmp_path_factory):
    """Lesson -> its run, which takes its turn: two at a time."""
    out = tmp_path_factory.mktemp("smoke")
    (book := out / "book.txt").write_text(" ".join(" ".join(topics.values()).split())[:20_480], "utf-8")
    texts = {"town": "world", "book": str(book)}
    given = {kind: {"SCALE": "smoke", "SEED": 1, "OUT": str(out / kind), "DATA": texts[kind]} for kind in texts}
    work = [(path, kind) for kind in texts for path in lessons()]
    return {(path, kind): background.submit(smoke, path, given[kind], out / kind / "build") for path, kind in work}


def smoke(path, given, out):
    """In another process: one thread, as in all tests."""
    with environment(threads=1):
        return run(path, given, out, progress=False)


@pytest.mark.parametrize("kind", ["town", "book"])
@pytest.mark.parametrize("path", lessons(), ids=lambda path: path.stem)
def test_smoke(runs, path, kind):
    executed, web = runs[path, kind].result()
    assert executed.stat().st_size > 10_000
    assert page.fetched(web.read_text("utf-8")) == []
