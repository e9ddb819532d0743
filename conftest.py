"""Lessons are tests: pytest finds their cells through `tools.notebooks.stored`, on top of nbval.

At the end of a run it also says how long each part of the tests took.
"""

from collections import Counter
from pathlib import Path

import pytest

TOOK: Counter[str] = Counter()
collect_ignore = ["notebooks/homework"]  # masters are stored without outputs; tests/homework executes them


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Hand notebooks to the plugin; other files are pytest's own."""
    if file_path.suffix != ".ipynb":
        return None
    from tools.notebooks import stored

    return stored.collect(file_path, parent)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add a test's seconds to those of its part: a lesson, or a folder of tests."""
    path = Path(report.nodeid.partition("::")[0])
    TOOK[str(path if path.suffix == ".ipynb" else path.parent)] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line a part, the longest first."""
    if sum(TOOK.values()) > 60:
        terminalreporter.section("seconds by part")
        for part, seconds in TOOK.most_common():
            terminalreporter.write_line(f"{seconds:7.0f}  {part}")
