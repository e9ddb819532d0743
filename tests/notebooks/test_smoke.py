"""Every lesson runs at smoke scale with another seed, as `make run` does, into a page that stands alone."""

import pytest

from tools.notebooks import lessons, page
from tools.notebooks.run import run

pytestmark = pytest.mark.notebooks


@pytest.mark.parametrize("path", lessons(), ids=lambda path: path.stem)
def test_smoke(path, tmp_path):
    executed, web = run(path, {"SCALE": "smoke", "SEED": 1, "OUT": str(tmp_path)}, tmp_path / "build", progress=False)
    assert executed.stat().st_size > 10_000
    assert page.fetched(web.read_text("utf-8")) == []
