"""Each failure of a run in a few lines, in one file, which is printed behind all parts of the run."""

from __future__ import annotations

from pathlib import Path

import pytest

VARIABLE = "RUN_FAILURES"
_LINES_MAX = 40


class FailuresPlugin:
    """Appends the end of each failure's report to a file that all parts of a run share."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def _add(self, name: str, text: str) -> None:
        lines = text.splitlines()[-_LINES_MAX:]
        with self._file.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write("\n".join([f"--- {name}", *lines, ""]))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test, or its beginning or end, that failed."""
        if report.failed:
            self._add(f"{report.nodeid} ({report.when})", report.longreprtext)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that cannot be read."""
        if report.failed:
            self._add(report.nodeid, report.longreprtext)
