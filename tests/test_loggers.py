"""Loggers that load `logging` when there is something to say, and the command's set-up, which waits for that."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from container.loggers import info

ROOT = Path(__file__).resolve().parents[1]
HEAD = "import sys\nfrom container.loggers import info, log_to_stderr, logger\n"
LINE = re.compile(r"(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ")


def said(code: str) -> str:
    """What a process of its own writes to standard error, without the times, which are checked."""
    command = [sys.executable, "-c", HEAD + code]
    result = subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert len(LINE.findall(result.stderr)) == result.stderr.count("\n")
    return LINE.sub("", result.stderr)


def test_the_command_prints_what_logging_would_without_loading_it() -> None:
    code = "log_to_stderr('info'); info('%s: %d', 'one', 1); assert 'logging' not in sys.modules"
    assert said(code) == "INFO container: one: 1\n"
    assert said("import logging\n" + code.partition(" assert")[0]) == "INFO container: one: 1\n"


def test_whoever_imports_logging_finds_the_command_s_set_up() -> None:
    code = (
        "log_to_stderr('info')\n"
        "import logging\n"
        "logging.basicConfig(level='DEBUG', format='mine')\n"
        "logging.getLogger('service').info('heard')\n"
        "logging.getLogger('service').debug('not heard')\n"
        "info('and %s', 'this')\n"
        "assert not any(type(finder).__module__ == 'container.loggers' for finder in sys.meta_path)"
    )
    assert said(code) == "INFO service: heard\nINFO container: and this\n"


def test_a_warning_loads_logging_with_the_command_s_set_up() -> None:
    code = "log_to_stderr('warning'); info('unheard'); logger().warning('heard'); info('unheard')"
    assert said(code) == "WARNING container: heard\n"


def test_without_logging_in_a_program_nobody_listens() -> None:
    assert said("info('unheard'); assert 'logging' not in sys.modules") == ""


def test_an_import_that_was_interrupted_is_set_up_when_it_is_repeated() -> None:
    code = (
        "log_to_stderr('info')\n"
        "sys.modules['traceback'] = None\n"
        "try: import logging\n"
        "except ImportError: del sys.modules['traceback']\n"
        "logger('container.aeron').info('heard')"
    )
    assert said(code) == "INFO container.aeron: heard\n"


@pytest.mark.parametrize("stream", ["None", "open('/dev/null')", "closed"])
def test_nothing_is_raised_when_standard_error_can_not_be_written(stream: str) -> None:
    code = (
        f"closed = open('/dev/null', 'w'); closed.close(); sys.stderr = {stream}\n"
        "log_to_stderr('info'); info('lost'); sys.stderr = sys.__stderr__"
    )
    assert said(code) == ""


def test_a_record_names_its_caller(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "container"):
        info("said %s", "here")
    assert [(record.module, record.getMessage()) for record in caplog.records] == [("test_loggers", "said here")]
