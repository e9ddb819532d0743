"""Lessons are tests: pytest finds their cells through `tools.notebooks.stored`, on top of nbval."""

from pathlib import Path

import pytest


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Hand notebooks to the plugin; other files are pytest's own."""
    if file_path.suffix != ".ipynb":
        return None
    from tools.notebooks import stored

    return stored.collect(file_path, parent)
