"""What the container reports to `logging`, and the command's set-up of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from container.common.loggers import report

ROOT = Path(__file__).resolve().parents[1]
HEAD = "import logging, sys\nfrom container.common.loggers import log_to_stderr, report\n"
LINE = re.compile(r"(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ")


def said(code: str) -> str:
    """What a process of its own writes to standard error, without the times, which are checked."""
    command = [sys.executable, "-c", HEAD + code]
    result = subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert len(LINE.findall(result.stderr)) == result.stderr.count("\n")
    return LINE.sub("", result.stderr)


def test_the_command_logs_from_its_level_on() -> None:
    code = "log_to_stderr('warning'); report('info', 'unheard'); report('warning', '%s: %d', 'heard', 1)"
    assert said(code) == "WARNING container: heard: 1\n"


def test_a_service_finds_the_command_s_set_up() -> None:
    code = (
        "log_to_stderr('info')\n"
        "logging.basicConfig(level='DEBUG', format='mine')\n"
        "logging.getLogger('service').info('heard')\n"
        "logging.getLogger('service').debug('unheard')"
    )
    assert said(code) == "INFO service: heard\n"


def test_without_logging_set_up_nobody_hears_infos() -> None:
    assert said("report('info', 'unheard')") == ""


@pytest.mark.parametrize("stream", ["None", "open('/dev/null')", "closed"])
def test_nothing_is_raised_when_standard_error_cannot_be_written(stream: str) -> None:
    code = (
        f"closed = open('/dev/null', 'w'); closed.close(); sys.stderr = {stream}\n"
        "log_to_stderr('info'); report('info', 'lost'); sys.stderr = sys.__stderr__"
    )
    assert said(code) == ""


def test_a_record_names_its_caller(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "container"):
        report("info", "said %s", "here")
    assert [(record.module, record.getMessage()) for record in caplog.records] == [("test_loggers", "said here")]
