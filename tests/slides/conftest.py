"""The real decks as pages, in a Chromium without a network."""

import pytest

from tools.notebooks import build
from tools.slides import decks, page


@pytest.fixture(scope="session")
def stored():
    """Deck's name -> its notebook."""
    return {path.stem: build.read(path) for path in decks()}


@pytest.fixture(scope="session")
def pages(stored, tmp_path_factory):
    """Deck's name -> its HTML file, in a folder with a space."""
    folder = tmp_path_factory.mktemp("the slides")
    result = {}
    for name, notebook in stored.items():
        result[name] = folder / f"{name}.html"
        result[name].write_text(page.html(notebook), "utf-8")
    return result
