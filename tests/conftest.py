"""What all tests share."""

import os
import sys

# Before torch is imported: tests leave the second core to others, and waiting threads do not spin.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest

from course_lib import __main__ as cli
from course_lib.errors import CourseError
from tools import browser as chromium


@pytest.fixture(scope="session")
def browser():
    """One Chromium for the whole run: playwright drives no second one beside it."""
    if chromium.chromium() is None:
        pytest.skip("no Chromium on this machine (Debian, Ubuntu: apt install chromium)")
    pytest.importorskip("playwright.sync_api")
    try:
        with chromium.opened() as running:
            yield running
    except CourseError as error:
        pytest.skip(str(error))


@pytest.fixture
def call(monkeypatch, capfd):
    """Run a command of the course as `main` does: (exit code, stdout, stderr)."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["course", *map(str, words)])
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
        return code, *capfd.readouterr()

    return run


@pytest.fixture
def tab(browser):
    """A fresh tab of it; `tab.asked` holds the addresses outside the file, `tab.said` its
    errors.
    """
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.set_default_timeout(600_000)
    page.asked, page.said = [], []
    inside = ("file:", "data:", "about:", "blob:")
    page.on("request", lambda r: page.asked.append(r.url) if not r.url.startswith(inside) else None)
    page.on(
        "console", lambda m: page.said.append(m.text) if m.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: page.said.append(str(error)))
    yield page
    page.close()
