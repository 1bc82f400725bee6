"""What a signal's handler raises is never lost, wherever the main thread is when the signal comes."""

from __future__ import annotations

import io
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from container.common import interruptions
from container.common.error_texts import category_of, error_text, facts_on, message_of
from container.common.line_printer import print_line
from container.common.log_events import log_event
from container.common.loggers import report
from container.error_handlers import LoggingErrorHandler
from container.files.error_log import DistinctErrorLog
from container.transport.clocks import SystemClock
from tests.limits import LIMIT_S


class Interrupting:
    """Whatever is done with it, a signal comes meanwhile."""

    def __init__(self, number: signal.Signals) -> None:
        self._number = number

    def come(self, *_arguments: object) -> Any:
        signal.raise_signal(self._number)


class Stream(io.StringIO):
    """A stream of a program's own, to which a write takes until a signal comes."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__()
        self._number = number

    def write(self, text: str) -> int:
        signal.raise_signal(self._number)
        return super().write(text)


class Unprintable(Exception):
    """Its text takes until a signal comes."""

    number = signal.SIGINT

    def __str__(self) -> str:
        signal.raise_signal(self.number)
        return "text"

    @property
    def category(self) -> object:
        """Likewise."""
        signal.raise_signal(self.number)
        return None


class Handler(logging.Handler):
    """A handler of logging to which a record takes until a signal comes."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__()
        self._number = number

    def emit(self, _record: logging.LogRecord) -> None:
        signal.raise_signal(self._number)


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("container")
    before = logger.handlers[:]
    yield logger
    logger.handlers[:] = before


def ended(_number: int, _frame: FrameType | None) -> None:
    """What many programs do at SIGTERM."""
    sys.exit(3)


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM])
def number(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler), signal.signal(signal.SIGTERM, ended)
    number: signal.Signals = request.param
    yield number
    signal.signal(signal.SIGINT, before[0])
    signal.signal(signal.SIGTERM, before[1])


def raised(call: Callable[[], object]) -> type[BaseException] | None:
    """What a call, or the main thread after it, is interrupted by."""
    try:
        call()
        for _ in range(1_000):  # the next code of the main thread
            pass
    except (KeyboardInterrupt, SystemExit) as error:
        return type(error)
    return None


def expected(number: signal.Signals) -> type[BaseException]:
    return KeyboardInterrupt if number == signal.SIGINT else SystemExit


def test_a_line_that_is_printed(number: signal.Signals) -> None:
    assert raised(lambda: print_line("line", Stream(number))) is expected(number)


def test_a_message_that_is_logged(number: signal.Signals, logger: logging.Logger) -> None:
    logger.addHandler(Handler(number))
    assert raised(lambda: report("warning", "message")) is expected(number)


def test_an_event_that_is_logged(number: signal.Signals, logger: logging.Logger) -> None:
    logger.addHandler(Handler(number))
    assert raised(lambda: log_event("test", "snapshot_failed")) is expected(number)


@pytest.mark.parametrize("read", [message_of, category_of, error_text])
def test_a_text_of_an_error(number: signal.Signals, read: Callable[[BaseException], object]) -> None:
    error = Unprintable()
    error.number = number
    assert raised(lambda: read(error)) is expected(number)


def test_an_error_that_is_handled(number: signal.Signals, logger: logging.Logger) -> None:
    logger.addHandler(Handler(number))
    handler = LoggingErrorHandler(DistinctErrorLog(bytearray(4096), SystemClock()), None)
    assert raised(lambda: handler(ValueError("error"))) is expected(number)


@pytest.mark.parametrize("failure", [SystemExit, KeyboardInterrupt])
def test_what_no_handler_of_a_signal_has_raised_stays_swallowed(
    number: signal.Signals, failure: type[BaseException]
) -> None:
    class Ending(io.StringIO):
        def write(self, _text: str) -> int:
            raise failure

    assert raised(lambda: print_line("line", Ending())) is None


def test_another_thread_is_not_interrupted(number: signal.Signals) -> None:
    done: list[object] = []

    def work() -> None:
        interruptions.keep(KeyboardInterrupt())  # without a traceback, as from C
        done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(LIMIT_S)
    assert done
    assert raised(lambda: None) is None


def test_facts_that_are_no_facts_stay_out() -> None:
    assert facts_on(ValueError()) == {}
