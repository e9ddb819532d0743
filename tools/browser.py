"""The system's own Chromium, without a network but for this machine: prints decks, and opens pages
in tests.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

from course_lib.errors import CourseError

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


def chromium() -> str | None:
    """Where Chromium is: the environment's CHROMIUM, else the first on the path; None where there
    is none.
    """
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


@contextlib.contextmanager
def opened() -> Iterator[Browser]:
    """A headless browser.

    Raises:
        CourseError: there is no Chromium, or no playwright to drive it, or it does not start.
    """
    found = chromium()
    if found is None:
        raise CourseError(
            "There is no Chromium on this machine (Debian, Ubuntu: apt install chromium)."
        )
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        raise CourseError("playwright is missing; `make ready` installs it.") from None
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(
                executable_path=found, headless=True, args=list(FLAGS)
            )
        except Error as error:
            raise CourseError(
                f"Chromium ({found}) did not start: {error.message.splitlines()[0]}"
            ) from None
        try:
            yield browser
        finally:
            browser.close()
