"""Lessons are tests (`tools.notebooks.stored`); at the end of a run the seconds that each part of
the tests took.
"""

from collections import Counter
from pathlib import Path

import pytest

TOOK: Counter[str] = Counter()
pytest_plugins = ["tools.notebooks.stored"]
# masters are stored without outputs; tests/classroom/grading executes them
collect_ignore = ["notebooks/homework"]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add a test's seconds to those of its folder."""
    TOOK[str(Path(report.nodeid.partition("::")[0]).parent)] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line a part, the longest first."""
    if sum(TOOK.values()) > 60:
        terminalreporter.section("seconds by part")
        for part, seconds in TOOK.most_common():
            terminalreporter.write_line(f"{seconds:7.0f}  {part}")
