"""A deck as PDF: one page a slide with all its steps, tagged for screen readers, with an outline
and a title.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from course_lib.files import atomic_write

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SHOW = ".forEach(e => { e.removeAttribute('aria-hidden'); e.removeAttribute('hidden'); })"


def write(browser: Browser, page: Path, pdf: Path) -> None:
    """Print the deck's HTML file into `pdf`."""
    tab = browser.new_page(viewport={"width": 1280, "height": 720})
    tab.set_default_timeout(600_000)
    try:
        tab.goto(f"{page.resolve().as_uri()}?print-pdf&pdfSeparateFragments=false")
        tab.wait_for_selector(".pdf-page")
        tab.wait_for_function("[...document.images].every(image => image.complete)")
        # reveal.js hides all slides but the first from screen readers; on paper all are there.
        tab.evaluate("document.querySelectorAll('.pdf-page section, .pdf-page section *')" + SHOW)
        made = tab.pdf(prefer_css_page_size=True, print_background=True, tagged=True, outline=True)
    finally:
        tab.close()
    with atomic_write(pdf, "wb") as file:
        file.write(made)
