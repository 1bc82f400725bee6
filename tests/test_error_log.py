"""The distinct error log and the chain of handlers that leads to it."""

from __future__ import annotations

import io
import logging
import os
import re
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from container.common.error_texts import error_text
from container.common.loggers import report
from container.error_handlers import LoggingErrorHandler, Throttle, chain_error_handlers, fallback_stream
from container.errors import (
    AeronEvent,
    AgentInterrupted,
    AgentTermination,
    Category,
    ClusterError,
    ClusterEvent,
    ClusterTermination,
    ContainerError,
    MarkFileError,
)
from container.files.error_log import (
    CountedErrorHandler,
    DistinctErrorLog,
    ErrorRecord,
    format_error_log,
    read_error_log,
)
from container.service.service_counters import ServiceCounters
from container.testing.memory.manual_time import ManualClock
from container.testing.memory.memory_transport import MemoryDriver
from tests.limits import LIMIT_S

NOW_MS = 1_700_000_000_000
MS = 1_000_000
RETRY_NS = 1_000 * MS
HEAD = struct.Struct("<iiqq")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(epoch_ms=NOW_MS)


@pytest.fixture
def region() -> bytearray:
    return bytearray(64 * 1024)


@pytest.fixture
def log(region: bytearray, clock: ManualClock) -> Iterator[DistinctErrorLog]:
    error_log = DistinctErrorLog(region, clock)
    yield error_log
    error_log.close()


def caught(raiser: Callable[[], object]) -> BaseException:
    try:
        raiser()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def fail(message: str = "boom") -> None:
    raise ClusterError(message)


def fail_elsewhere() -> None:
    raise ClusterError("boom")


def fail_with_cause(cause: str) -> None:
    try:
        raise ValueError(cause)
    except ValueError as error:
        raise ClusterError("boom") from error


# --- records


def test_record_has_the_layout_of_upstream(log: DistinctErrorLog, region: bytearray, clock: ManualClock) -> None:
    assert log.record(ClusterEvent("first")) == 1
    clock.advance(5 * MS)
    assert log.record(ClusterEvent("a second one")) == 1
    text = b"container.errors.ClusterEvent: WARN - first"
    assert region[:24] == HEAD.pack(24 + len(text), 1, NOW_MS, NOW_MS)
    assert region[24 : 24 + len(text)] == text
    second = -(-(24 + len(text)) // 8) * 8
    text = b"container.errors.ClusterEvent: WARN - a second one"
    assert region[second : second + 24] == HEAD.pack(24 + len(text), 1, NOW_MS + 5, NOW_MS + 5)
    assert region[second + 24 : second + 24 + len(text)] == text
    assert not any(region[second + 24 + len(text) :])


def test_each_record_is_read_with_its_own_times(log: DistinctErrorLog, region: bytearray, clock: ManualClock) -> None:
    for text in ("one", "another", "a third"):
        log.record(ClusterEvent(text))
        clock.advance(5 * MS)
    log.record(ClusterEvent("another"))
    times = [
        (record.first_observation_ms - NOW_MS, record.last_observation_ms - NOW_MS) for record in read_error_log(region)
    ]
    assert times == [(0, 0), (5, 15), (10, 10)]


def test_a_log_that_is_closed_while_a_text_is_made_records_nothing(
    log: DistinctErrorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(error: BaseException, *, has_message: bool) -> str:
        log.close()
        return error_text(error, has_message=has_message)

    monkeypatch.setattr("container.files.error_log.error_text", make)
    assert log.record(ClusterEvent("late")) == 0


@pytest.mark.parametrize("time_ms", [2**62, -(2**62)])
def test_a_time_that_is_none_is_shown_as_a_number(time_ms: int) -> None:
    text = format_error_log([ErrorRecord(1, time_ms, time_ms, "boom")])
    assert f"{time_ms} ms" in text


def test_s59_same_error_is_counted_and_not_added(log: DistinctErrorLog, region: bytearray, clock: ManualClock) -> None:
    for count in range(1, 4):
        assert log.record(caught(fail)) == count
        clock.advance(1_000 * MS)
    (record,) = read_error_log(region)
    assert record.observation_count == 3
    assert (record.first_observation_ms, record.last_observation_ms) == (NOW_MS, NOW_MS + 2_000)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (fail, lambda: fail("another message")),
        (fail, fail_elsewhere),
        (lambda: int("x"), lambda: [][0]),
        (lambda: fail_with_cause("one"), lambda: fail_with_cause("other")),
    ],
    ids=["message", "stack", "type", "cause"],
)
def test_s59_errors_that_differ_are_two(
    log: DistinctErrorLog, region: bytearray, one: Callable[[], object], other: Callable[[], object]
) -> None:
    assert log.record(caught(one)) == 1
    assert log.record(caught(other)) == 1
    assert log.record(caught(one)) == 2
    assert [record.observation_count for record in read_error_log(region)] == [2, 1]


def test_text_is_type_category_and_message_then_the_stack(log: DistinctErrorLog, region: bytearray) -> None:
    log.record(caught(fail))
    (record,) = read_error_log(region)
    lines = record.text.splitlines()
    assert lines[0] == "container.errors.ClusterError: ERROR - boom"
    assert lines[1] == "Traceback (most recent call last):"
    assert "in fail" in record.text
    assert lines[-1] == "container.errors.ClusterError: boom"


def test_causes_are_in_the_text() -> None:
    text = error_text(caught(lambda: fail_with_cause("the reason")))
    assert "ValueError: the reason" in text
    assert "direct cause of the following exception" in text


def test_members_of_a_group_are_in_the_text() -> None:
    group = ExceptionGroup("several", [ClusterError("one"), ValueError("other")])
    assert "ValueError: other" in error_text(caught(lambda: _raise(group)))


def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("event", [AeronEvent("x"), ClusterEvent("x", category=Category.ERROR)])
def test_event_carries_no_stack(event: ContainerError) -> None:
    assert error_text(caught(lambda: _raise(event))) == (
        f"container.errors.{type(event).__name__}: {event.category.value} - x"
    )


def test_error_that_was_never_raised_has_no_stack() -> None:
    assert error_text(KeyError("x")) == "KeyError: 'x'"


def test_error_whose_text_can_not_be_made_is_recorded_all_the_same() -> None:
    class UnprintableError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert "UnprintableError: <its text could not be made: RuntimeError>" in error_text(UnprintableError())


def test_text_is_ascii(log: DistinctErrorLog, region: bytearray) -> None:
    log.record(ClusterEvent("größe \U0001f4a5"))
    assert read_error_log(region)[0].text.endswith(r"gr\xf6\xdfe \U0001f4a5")


def test_error_with_an_endless_recursion_is_recorded(log: DistinctErrorLog) -> None:
    def recurse() -> None:
        recurse()

    assert log.record(caught(recurse)) == 1


def test_full_log_records_nothing_more_but_still_counts(clock: ManualClock) -> None:
    region = bytearray(128)
    log = DistinctErrorLog(region, clock)
    assert log.record(ClusterEvent("a" * 40)) == 1
    assert log.record(ClusterEvent("b" * 40)) == 0
    assert log.record(ClusterEvent("a" * 40)) == 2
    assert [record.observation_count for record in read_error_log(region)] == [2]
    log.close()


@pytest.mark.parametrize(("slack", "recorded"), [(0, 1), (23, 1), (-1, 0)])
def test_record_may_fill_the_log_to_its_last_byte(clock: ManualClock, slack: int, recorded: int) -> None:
    event = ClusterEvent("x" * 30)
    log = DistinctErrorLog(bytearray(24 + len(error_text(event)) + slack), clock)
    assert log.record(event) == recorded
    assert log.record(ClusterEvent("x" * 31)) == 0
    log.close()


def test_log_without_any_room_records_nothing(clock: ManualClock) -> None:
    log = DistinctErrorLog(bytearray(0), clock)
    assert log.record(ClusterEvent("x")) == 0
    log.close()


def test_closed_log_records_nothing_and_gives_the_region_back(region: bytearray, log: DistinctErrorLog) -> None:
    log.close()
    log.close()
    assert log.is_closed
    assert log.record(ClusterEvent("x")) == 0
    region.clear()  # a region that were still held could not change its size


def test_region_must_be_aligned_and_writable(region: bytearray) -> None:
    with pytest.raises(ValueError, match="multiple of 8"):
        DistinctErrorLog(memoryview(region)[1:])
    with pytest.raises(BufferError):
        DistinctErrorLog(bytes(64))
    region.clear()


def test_log_is_initialised_once(log: DistinctErrorLog, region: bytearray) -> None:
    with pytest.raises(TypeError, match="takes exactly one argument"):
        log.__init__(region)


def test_threads_count_every_observation(log: DistinctErrorLog, region: bytearray) -> None:
    errors = [ClusterEvent(f"event {number}") for number in range(10)]

    def work() -> None:
        for _ in range(100):
            for error in errors:
                log.record(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    records = read_error_log(region)
    assert [record.observation_count for record in records] == [400] * 10


# --- reading


def test_errors_since_a_time_are_those_observed_since(
    log: DistinctErrorLog, region: bytearray, clock: ManualClock
) -> None:
    log.record(ClusterEvent("old"))
    log.record(ClusterEvent("again"))
    clock.advance(1_000 * MS)
    log.record(ClusterEvent("again"))
    assert [record.text[-5:] for record in read_error_log(region, NOW_MS + 1)] == ["again"]
    assert len(read_error_log(region, NOW_MS)) == 2


def test_unaligned_bytes_can_be_read(log: DistinctErrorLog, region: bytearray) -> None:
    log.record(ClusterEvent("x"))
    moved = memoryview(b"12345" + bytes(region))[5:]
    assert read_error_log(moved) == read_error_log(region)


@pytest.mark.parametrize("length", [-1, 1, 23, 65, 2**31 - 1])
def test_record_of_an_impossible_length_ends_the_list(length: int) -> None:
    good = HEAD.pack(32, 1, 7, 6) + b"readable"
    bad = HEAD.pack(length, 1, 7, 6).ljust(64, b"x")
    assert read_error_log(good + bad[:64]) == [ErrorRecord(1, 6, 7, "readable")]


@given(st.binary(max_size=200), st.integers(-1, 250))
def test_any_bytes_can_be_read(content: bytes, length: int) -> None:
    good = HEAD.pack(32, 1, 7, 6) + b"readable"
    found = read_error_log(good + HEAD.pack(length, 1, 7, 6) + content)
    assert found[0] == ErrorRecord(1, 6, 7, "readable")
    assert (len(found) > 1) == (HEAD.size <= length <= HEAD.size + len(content))
    assert sum(len(record.text) for record in found[1:]) <= len(content)


@given(st.lists(st.text(max_size=60), max_size=20, unique=True))
def test_what_is_recorded_is_read(texts: list[str]) -> None:
    region = bytearray(32 * 1024)
    log = DistinctErrorLog(region)
    for text in texts:
        assert log.record(ClusterEvent(text)) == 1
    expected = [error_text(ClusterEvent(text)).encode("ascii", "backslashreplace").decode() for text in texts]
    assert [record.text for record in read_error_log(region)] == expected
    log.close()


def test_saved_log_reads_as_upstreams_tools_print_it() -> None:
    text = format_error_log([ErrorRecord(3, NOW_MS, NOW_MS + 1_500, "boom")])
    lines = text.splitlines()
    assert lines[0] == ""
    assert lines[1].startswith("3 observations from 2023-11-1")
    assert lines[1].endswith(" for:")
    assert lines[2:] == ["boom", "", "1 distinct errors observed."]


# --- handlers


class Recorder:
    """A handler that keeps what it gets, and raises what it is told to."""

    def __init__(self, failure: BaseException | None = None) -> None:
        self.errors: list[BaseException] = []
        self.failure = failure

    def __call__(self, error: BaseException) -> None:
        self.errors.append(error)
        if self.failure is not None:
            raise self.failure


class Delegating(Recorder):
    """A delegating handler that hands on all errors except ValueError."""

    handler: Any

    def next(self, error_handler: Any) -> None:
        self.handler = error_handler

    def on_error(self, error: BaseException) -> None:
        self(error)
        if not isinstance(error, ValueError):
            self.handler(error)


def test_user_handler_gets_each_error_after_it_was_recorded(log: DistinctErrorLog, region: bytearray) -> None:
    recorded: list[int] = []
    handler = chain_error_handlers(
        LoggingErrorHandler(log, None), lambda _error: recorded.append(len(read_error_log(region))), None
    )
    handler(ClusterEvent("x"))
    handler(ClusterEvent("y"))
    assert recorded == [1, 2]


def test_delegating_handler_decides_what_is_recorded(log: DistinctErrorLog, region: bytearray) -> None:
    user, delegating = Recorder(), Delegating()
    handler = chain_error_handlers(LoggingErrorHandler(log, None), user, delegating)
    dropped, kept = ValueError("dropped"), KeyError("kept")
    handler(dropped)
    handler(kept)
    assert delegating.errors == [dropped, kept]
    assert user.errors == [kept]
    assert [record.text for record in read_error_log(region)] == ["KeyError: 'kept'"]


def test_user_handler_that_fails_is_recorded_with_the_error_it_was_given(
    log: DistinctErrorLog, region: bytearray
) -> None:
    handler = chain_error_handlers(LoggingErrorHandler(log, None), Recorder(RuntimeError("handler broke")), None)
    handler(caught(fail))
    first, second = read_error_log(region)
    assert "boom" in first.text
    assert "RuntimeError: handler broke" in second.text


def test_delegating_handler_that_fails_loses_no_trace(log: DistinctErrorLog, region: bytearray) -> None:
    delegating = Delegating(RuntimeError("delegate broke"))
    handler = chain_error_handlers(LoggingErrorHandler(log, None), None, delegating)
    handler(caught(fail))
    (record,) = read_error_log(region)
    assert "RuntimeError: delegate broke" in record.text


def test_error_for_which_there_is_no_room_goes_to_the_fallback(clock: ManualClock) -> None:
    stream = io.StringIO()
    log = DistinctErrorLog(bytearray(32), clock)
    handler = LoggingErrorHandler(log, stream)
    handler(ClusterEvent("lost"))
    assert stream.getvalue() == "error log is full\ncontainer.errors.ClusterEvent: WARN - lost\n"
    log.close()
    handler(ClusterEvent("late"))
    assert stream.getvalue().endswith("error log is closed\ncontainer.errors.ClusterEvent: WARN - late\n")


def test_fallback_that_is_switched_off_prints_nothing(clock: ManualClock, capsys: pytest.CaptureFixture[str]) -> None:
    log = DistinctErrorLog(bytearray(0), clock)
    LoggingErrorHandler(log, fallback_stream("no_op"))(ClusterEvent("lost"))
    log.close()
    assert capsys.readouterr() == ("", "")


def test_fallback_is_the_stream_of_that_name(capsys: pytest.CaptureFixture[str]) -> None:
    print("e", file=fallback_stream("stderr"))
    print("o", file=fallback_stream("stdout"))
    assert capsys.readouterr() == ("o\n", "e\n")


def test_logging_tells_of_the_first_and_each_tenfold_observation(
    log: DistinctErrorLog, caplog: pytest.LogCaptureFixture
) -> None:
    handler = LoggingErrorHandler(log, None)
    for _ in range(1_000):
        handler(ClusterEvent("again"))
    assert [record.getMessage() for record in caplog.records] == [
        "again",
        "again (observed 10 times)",
        "again (observed 100 times)",
        "again (observed 1000 times)",
    ]
    assert all(record.exc_info is None for record in caplog.records)


def test_a_logged_error_begins_with_its_type_and_an_event_with_its_text(
    log: DistinctErrorLog, caplog: pytest.LogCaptureFixture
) -> None:
    handler = LoggingErrorHandler(log, None)
    for error in (KeyError("price"), ClusterError("lost"), ValueError(), ClusterEvent("closed")):
        handler(error)
    assert [record.getMessage() for record in caplog.records] == [
        "KeyError: 'price'",
        "container.errors.ClusterError: lost",
        "ValueError",
        "closed",
    ]


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (ClusterEvent("x"), logging.WARNING),
        (ClusterError("x"), logging.ERROR),
        (ClusterError("x", category=Category.FATAL), logging.CRITICAL),
        (ValueError("x"), logging.ERROR),
    ],
)
def test_level_follows_the_category(
    log: DistinctErrorLog, caplog: pytest.LogCaptureFixture, error: Exception, level: int
) -> None:
    LoggingErrorHandler(log, None)(error)
    assert [record.levelno for record in caplog.records] == [level]


class Time:
    """A monotonic clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_ns = 5_000_000_000

    def __call__(self) -> int:
        return self.now_ns


def test_errors_without_room_are_bounded_and_those_left_out_are_told(clock: ManualClock) -> None:
    stream, time = io.StringIO(), Time()
    log = DistinctErrorLog(bytearray(0), clock)
    handler = LoggingErrorHandler(log, stream, nano_time=time)
    count = 20_000
    for number in range(count):
        handler(caught(lambda number=number: fail(f"{number}" + "x" * 1_000)))  # type: ignore[misc]
    printed = stream.getvalue().count("error log is full")
    assert 10 < printed < 200
    assert len(stream.getvalue()) < 128 * 1024
    time.now_ns += 60_000_000_000
    handler(ClusterEvent("later"))
    assert (
        f"\n{count - printed:,} errors left out: too many in too short a time\nerror log is full\n" in stream.getvalue()
    )
    assert stream.getvalue().endswith("WARN - later\n")
    log.close()


def test_what_was_left_out_is_told_at_the_end(caplog: pytest.LogCaptureFixture, clock: ManualClock) -> None:
    log = DistinctErrorLog(bytearray(1024 * 1024), clock)
    full, stream = DistinctErrorLog(bytearray(0), clock), io.StringIO()
    logged, printed = (
        LoggingErrorHandler(log, None, nano_time=Time()),
        LoggingErrorHandler(full, stream, nano_time=Time()),
    )
    for number in range(1_000):
        name = "".join(chr(ord("a") + int(digit)) for digit in str(number))
        logged(ClusterEvent(name))
        printed(ClusterEvent(name))
    recorded = len(caplog.records)
    for handler in (logged, printed, logged, printed):
        handler.close()
    assert caplog.records[-1].getMessage() == f"{1_000 - recorded:,} errors left out here: too many in too short a time"
    assert len(caplog.records) == recorded + 1
    lines = stream.getvalue().splitlines()
    printed_count = sum(": WARN - " in line for line in lines)
    assert lines[-1] == f"{1_000 - printed_count:,} errors left out: too many in too short a time"
    full.close()
    log.close()


def test_logging_is_bounded_whatever_the_errors_are(caplog: pytest.LogCaptureFixture) -> None:
    log, time = DistinctErrorLog(bytearray(16 * 1024 * 1024)), Time()
    handler = LoggingErrorHandler(log, None, nano_time=time)
    for number in range(2_000):
        handler(type(f"Error{number}", (Exception,), {})("x" * 100_000))
    assert sum(len(record.getMessage()) for record in caplog.records) < 128 * 1024
    before = len(caplog.records)
    time.now_ns += 1_000_000_000
    handler(ClusterEvent("again"))
    assert [record.getMessage() for record in caplog.records[before:]] == [
        f"{2_000 - before:,} errors left out here: too many in too short a time",
        "again",
    ]


def test_room_comes_back_with_time_and_never_beyond_the_first() -> None:
    time = Time()
    throttle = Throttle(time)
    assert throttle.has_room()
    throttle.take(80 * 1024)  # 16 KiB more than there is
    assert not throttle.has_room()
    time.now_ns += 2_000_000_000
    assert not throttle.has_room()
    time.now_ns += 1_000_000
    assert throttle.has_room()
    assert throttle.take_left_out() == 2
    assert throttle.take_left_out() == 0
    time.now_ns += 3_600_000_000_000
    assert throttle.has_room()
    throttle.take(64 * 1024)
    assert not throttle.has_room()


# --- what an exception may do to whoever handles it


class Hostile(type):
    """The type of exceptions that raise wherever they are touched."""

    def __getattribute__(cls, name: str) -> Any:
        if name in ("__name__", "__qualname__", "__module__"):
            raise type.__getattribute__(cls, "failure")
        return type.__getattribute__(cls, name)


def hostile_error(failure: type[BaseException]) -> BaseException:
    def refuse(*_arguments: object) -> Any:
        raise failure

    touched = property(refuse)
    members = dict.fromkeys(
        ("__traceback__", "__cause__", "__context__", "__suppress_context__", "__notes__", "__class__", "category"),
        touched,
    )
    kind = Hostile("HostileError", (Exception,), members | {"__str__": refuse, "__repr__": refuse, "failure": failure})
    return caught(lambda: _raise(kind()))


FAILURES = [SystemExit, KeyboardInterrupt, RecursionError, MemoryError, AgentTermination]


@pytest.mark.parametrize("failure", FAILURES)
def test_a_hostile_exception_is_recorded_logged_and_handed_on(
    log: DistinctErrorLog, region: bytearray, caplog: pytest.LogCaptureFixture, failure: type[BaseException]
) -> None:
    error, user = hostile_error(failure), Recorder()
    chain_error_handlers(LoggingErrorHandler(log, None), user, None)(error)
    assert len(user.errors) == 1
    assert user.errors[0] is error
    (record,) = read_error_log(region)
    assert "HostileError" in record.text
    assert "its text could not be made" in record.text
    assert "in _raise" in record.text
    assert len(caplog.records) == 1
    counter = ServiceCounters(MemoryDriver().connect(), 0, 0).add_error_counter()
    CountedErrorHandler(counter, user)(error)
    assert counter.value == 1


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("is_delegating", [False, True])
def test_a_handler_of_the_user_may_raise_anything(
    log: DistinctErrorLog, region: bytearray, failure: type[BaseException], is_delegating: bool
) -> None:
    broken = failure("handler broke")
    user = Recorder(broken)
    delegating = Delegating(broken) if is_delegating else None
    chain_error_handlers(LoggingErrorHandler(log, None), None if is_delegating else user, delegating)(caught(fail))
    texts = [record.text for record in read_error_log(region)]
    assert "handler broke" in texts[-1]
    assert len(texts) == 1 if is_delegating else "boom" in texts[0]


class RaisingHandler(logging.Handler):
    """A handler of the user's for `logging` that raises, and has others print that."""

    failure: BaseException = RuntimeError("handler")

    def emit(self, record: logging.LogRecord) -> None:
        del record
        raise self.failure


@pytest.fixture
def raising_handler() -> Iterator[RaisingHandler]:
    handler = RaisingHandler()
    logging.getLogger("container").addHandler(handler)
    yield handler
    logging.getLogger("container").removeHandler(handler)


@pytest.mark.parametrize("failure", FAILURES)
def test_a_handler_of_logging_may_raise_anything(
    log: DistinctErrorLog, region: bytearray, raising_handler: RaisingHandler, failure: type[BaseException]
) -> None:
    raising_handler.failure = failure("handler")
    LoggingErrorHandler(log, None)(ClusterEvent("x"))
    assert len(read_error_log(region)) == 1
    report("info", "said by every run")
    report("warning", "a wait that lasts")


class Broken(io.StringIO):
    """A stream on a full disk, or one that was closed."""

    def __init__(self, failure: BaseException) -> None:
        super().__init__()
        self.failure = failure

    def write(self, text: str) -> int:
        del text
        raise self.failure


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), ValueError("closed"), SystemExit()])
def test_a_fallback_that_can_not_be_written_costs_nothing_but_the_text(
    clock: ManualClock, failure: BaseException
) -> None:
    log = DistinctErrorLog(bytearray(0), clock)
    handler = LoggingErrorHandler(log, Broken(failure))
    for _ in range(3):
        handler(ClusterEvent("x"))
    handler.close()
    log.close()


def test_an_error_log_that_can_not_be_written_leads_to_the_fallback(clock: ManualClock) -> None:
    class FailingFile:
        error_buffer_length = 1_000_000
        attempts = 0

        def write_errors(self, offset: int, data: bytes) -> None:
            self.attempts += 1
            raise OSError(28, "No space left on device")

    file, stream = FailingFile(), io.StringIO()
    log = DistinctErrorLog(file, clock)  # type: ignore[arg-type]
    handler = LoggingErrorHandler(log, stream)
    handler(ClusterEvent("x"))
    reason = "cannot be written: [Errno 28] No space left on device"
    assert stream.getvalue() == f"error log {reason}\ncontainer.errors.ClusterEvent: WARN - x\n"
    for number in range(10):
        handler(ClusterEvent("y" * number))
    assert file.attempts == 1
    clock.advance(RETRY_NS - 1 * MS)
    assert (log.record(ClusterEvent("z")), file.attempts) == (0, 1)
    clock.advance(1 * MS)
    assert (log.record(ClusterEvent("z")), file.attempts) == (0, 2)
    clock.set_epoch_ms(clock.now_ms - 1)
    assert (log.record(ClusterEvent("z")), file.attempts) == (0, 3), "a clock that was set back keeps nothing out"
    log.close()
    clock.advance(RETRY_NS)
    assert (log.record(ClusterEvent("z")), file.attempts) == (0, 3)


def test_an_error_log_that_is_another_owners_by_now_is_not_tried_again(clock: ManualClock) -> None:
    class LostFile:
        error_buffer_length = 1_000_000
        attempts = 0

        def write_errors(self, offset: int, data: bytes) -> None:
            self.attempts += 1
            raise MarkFileError("another process has taken it over")

    file = LostFile()
    log = DistinctErrorLog(file, clock)  # type: ignore[arg-type]
    for _attempt in range(3):
        assert log.record(ClusterEvent("x")) == 0
        clock.advance(10 * RETRY_NS)
    assert file.attempts == 1


def test_a_full_standard_error_and_none_at_all_leave_the_handlers_going() -> None:
    code = """
import sys
from container.error_handlers import LoggingErrorHandler, fallback_stream
from container.files.error_log import DistinctErrorLog
from container.errors import ClusterEvent
from container.common.loggers import log_to_stderr, report
modes = {
    "none": lambda: (setattr(sys, "stderr", None), setattr(sys, "stdout", None)),
    "closed": lambda: (sys.stderr.close(), sys.stdout.close()),
    "full": lambda: (setattr(sys, "stderr", open("/dev/full", "w")), setattr(sys, "stdout", sys.stderr)),
}
done = open(int(sys.argv[2]), "w")
modes[sys.argv[1]]()
log_to_stderr("debug")
for region in (bytearray(0), bytearray(4096)):
    for stream in ("stderr", "stdout"):
        handler = LoggingErrorHandler(DistinctErrorLog(region), fallback_stream(stream))
        for number in range(2_000):
            handler(ClusterEvent("x" * number))
report("info", "ended")
report("error", "ended")
done.write("done")
done.flush()
import os
os._exit(0)
"""
    for mode in ("none", "closed", "full"):
        reader, writer = os.pipe()
        command = [sys.executable, "-c", code, mode, str(writer)]
        result = subprocess.run(command, pass_fds=(writer,), capture_output=True, timeout=LIMIT_S, check=False)
        os.close(writer)
        said = os.read(reader, 100)
        os.close(reader)
        assert (result.returncode, said) == (0, b"done"), (mode, result.stderr)


# --- errors without bounds


def test_a_message_of_megabytes_is_recorded_with_both_ends(log: DistinctErrorLog, region: bytearray) -> None:
    assert log.record(caught(lambda: fail("begin" + "x" * 5_000_000 + "end"))) == 1
    (record,) = read_error_log(region)
    assert len(record.text) < 20_000
    assert "begin" in record.text
    assert "characters left out" in record.text
    assert record.text.endswith("end")


def test_a_chain_of_thousands_of_causes_is_recorded_with_both_ends(log: DistinctErrorLog, region: bytearray) -> None:
    error: BaseException = ValueError("root")
    for number in range(90):
        error = _caused(f"cause {number}", error)
    log.record(error)
    (record,) = read_error_log(region)
    assert "ValueError: root" in record.text
    assert "ValueError: cause 89" in record.text
    assert "... 83 exceptions of the chain left out ..." in record.text
    for number in range(5_000):
        error = _caused(f"cause {number}", error)
    assert len(error_text(error)) < 20_000


def _caused(text: str, cause: BaseException) -> BaseException:
    error = ValueError(text)
    error.__cause__ = cause
    return error


def test_a_chain_that_is_a_circle_ends() -> None:
    one = _caused("one", ValueError("other"))
    assert one.__cause__ is not None
    one.__cause__.__cause__ = one
    assert error_text(one).count("ValueError: other") == 1


def test_a_traceback_of_a_thousand_frames_is_recorded_with_both_ends() -> None:
    def descend(depth: int) -> None:
        if depth == 0:
            raise ValueError("the end")
        descend(depth - 1)

    text = error_text(caught(lambda: descend(800)))
    assert "in caught" in text
    assert text.endswith("ValueError: the end")
    assert "frames left out ..." in text
    assert text.count("  File ") == 40


def test_a_group_of_thousands_of_members_is_recorded_in_part() -> None:
    text = error_text(ExceptionGroup("many", [ValueError(f"member {number}") for number in range(3_000)]))
    assert "ValueError: member 7" in text
    assert "2992 members left out" in text
    assert len(text) < 20_000


def test_further_messages_of_one_place_count_as_one_error(log: DistinctErrorLog, region: bytearray) -> None:
    for number in range(5_000):
        assert log.record(caught(lambda number=number: fail(f"position {number}"))) >= 1  # type: ignore[misc]
    records = read_error_log(region)
    assert len(records) == 21
    assert "position 19" in records[19].text
    assert records[20].observation_count == 4_980
    assert records[20].text.startswith("another than the 20 recorded messages of container.errors.ClusterError: ERROR")
    assert "in fail" in records[20].text
    assert "position" not in records[20].text.replace("fail(f", "")[:200]
    assert log.record(caught(lambda: fail("position 3"))) >= 1
    assert log.record(caught(fail_elsewhere)) == 1, "there is room for other errors"


def fail_with(message: str) -> BaseException:
    return caught(lambda: fail(message))


def test_a_recorded_message_counts_as_itself_when_there_were_further_ones(
    log: DistinctErrorLog, region: bytearray
) -> None:
    for number in range(22):
        log.record(fail_with(f"position {number}"))
    assert log.record(fail_with("position 3")) == 2
    assert log.record(fail_with("position 21")) == 3
    assert [record.observation_count for record in read_error_log(region)] == [1, 1, 1, 2, *[1] * 16, 3]


def test_a_further_message_that_is_counted_is_not_made_a_text(
    log: DistinctErrorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(21):
        log.record(fail_with(f"position {number}"))
    monkeypatch.setattr("container.files.error_log.error_text", lambda *_, **__: pytest.fail("a text was made"))
    assert log.record(fail_with("position 99")) == 2


def test_an_error_that_another_thread_records_while_its_text_is_made_is_one(
    log: DistinctErrorLog, region: bytearray, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(error: BaseException, *, has_message: bool) -> str:
        monkeypatch.undo()
        threading.Thread(target=log.record, args=(error,)).start()
        while not region[0]:
            threading.Event().wait(0.001)  # until the other has recorded it
        return error_text(error, has_message=has_message)

    monkeypatch.setattr("container.files.error_log.error_text", make)
    assert log.record(ClusterEvent("seen twice")) == 2
    assert [record.observation_count for record in read_error_log(region)] == [2]


def test_further_events_that_differ_by_numbers_count_as_one(log: DistinctErrorLog, region: bytearray) -> None:
    for number in range(5_000):
        log.record(ClusterEvent(f"unknown session close: clusterSessionId={number} logPosition={number * 96}"))
    log.record(ClusterEvent("another one"))
    assert len(read_error_log(region)) == 22


def test_further_events_that_differ_by_what_others_sent_count_as_one(log: DistinctErrorLog, region: bytearray) -> None:
    for number in range(5_000):
        name = "".join(chr(ord("a") + int(digit)) for digit in str(number))
        log.record(ClusterEvent(f"CatchupPosition of member 1: no log can be sent to '{name}': it takes host:port"))
    log.record(ClusterEvent("another one"))
    assert len(read_error_log(region)) == 22


def test_an_error_for_which_there_is_no_room_is_not_even_made_a_text(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = DistinctErrorLog(bytearray(64), clock)
    assert log.record(caught(fail)) == 0
    made: list[object] = []

    def make(error: BaseException, *, has_message: bool) -> str:
        made.append((error, has_message))
        return ""

    monkeypatch.setattr("container.files.error_log.error_text", make)
    for number in range(100):
        assert log.record(caught(lambda number=number: fail(f"{number}"))) == 0  # type: ignore[misc]
    assert made == []
    log.close()


# --- without messages


def fail_to_book() -> None:
    try:
        int("payload one")
    except ValueError as error:
        error.add_note("payload two")
        raise RuntimeError("payload three") from error


def test_messages_are_left_out_of_log_logger_and_fallback(
    region: bytearray, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    stream = io.StringIO()
    log = DistinctErrorLog(region, clock, has_messages=False)
    handler = LoggingErrorHandler(log, stream, has_messages=False)
    error = caught(fail_to_book)
    handler(error)
    handler(BaseExceptionGroup("payload four", [error]))
    handler(caught(lambda: _raise(AgentTermination("failed to start: payload five"))))
    handler(_with_cause(AgentTermination("failed to start: payload six"), error))
    log.close()
    handler(error)
    text = "\n".join(record.text for record in read_error_log(region))
    for told in (text, caplog.text, stream.getvalue()):
        assert (
            re.search(
                "payload (one|two|three|four|six)",
                "\n".join(
                    line
                    for line in told.splitlines()
                    if not line.startswith("    ")  # source
                ),
            )
            is None
        )
        assert "RuntimeError: <its message is left out>" in told
        assert "in fail_to_book" in told
    assert "failed to start: payload five" in text, "the container's own"


def _with_cause(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def test_without_messages_events_keep_theirs_and_errors_of_one_place_are_one(
    region: bytearray, clock: ManualClock
) -> None:
    log = DistinctErrorLog(region, clock, has_messages=False)
    log.record(ClusterEvent("told"))
    for number in range(3):
        log.record(caught(lambda number=number: fail(f"payload {number}")))  # type: ignore[misc]
    event, error = read_error_log(region)
    assert event.text.endswith("told")
    assert error.observation_count == 3
    log.close()


@pytest.mark.parametrize(
    ("error", "count", "handed_on"),
    [
        (ValueError("x"), 1, True),
        (ClusterEvent("x"), 1, True),
        (AgentTermination("x"), 0, True),
        (ClusterTermination(is_expected=False), 0, True),
        (ClusterTermination(is_expected=True), 0, False),
        (AgentInterrupted("interrupted"), 0, False),
    ],
)
def test_only_errors_are_counted_and_an_end_that_was_asked_for_is_not_even_reported(
    error: BaseException, count: int, handed_on: bool
) -> None:
    counter = ServiceCounters(MemoryDriver().connect(), 0, 0).add_error_counter()
    chain = Recorder()
    CountedErrorHandler(counter, chain)(error)
    assert counter.value == count
    assert bool(chain.errors) is handed_on


# --- source lines


def raised_in(file_name: str) -> BaseException:
    """An exception whose traceback says that it was raised in line 2 of this file."""
    names: dict[str, Any] = {}
    exec(compile("def fail():\n    raise ValueError('x')\n", file_name, "exec"), names)
    return caught(names["fail"])


def text_within(limit_s: float, error: BaseException) -> str:
    texts: list[str] = []
    thread = threading.Thread(target=lambda: texts.append(error_text(error)), daemon=True)
    thread.start()
    thread.join(limit_s)
    assert texts, f"the text of an error is not made after {limit_s} s"
    return texts[0]


def test_lines_come_from_regular_files(tmp_path: Path) -> None:
    path = tmp_path / "service.py"
    path.write_text("def fail():\n    raise_it('größe')\n", encoding="utf-8")
    assert "    raise_it('größe')\n" in error_text(raised_in(str(path)))
    path.write_bytes(b"\n\xff\xfe\n")
    assert "\n    raise_it('größe')\n" in error_text(raised_in(str(path))), "it was read once"
    path.with_name("other.py").write_bytes(b"\n \xff\xfe\xff\n")
    assert "\n    \ufffd\ufffd\ufffd\n" in error_text(raised_in(str(path.with_name("other.py"))))


@pytest.mark.parametrize("kind", ["pipe", "device", "directory", "nothing", "long", "relative"])
def test_a_source_that_is_no_regular_file_is_left_out_and_not_waited_for(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "service.py"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "directory":
        path.mkdir()
    elif kind == "long":
        with path.open("wb") as file:
            file.truncate(2**40)
    elif kind == "relative":  # linecache looks in the directories of sys.path, too
        os.mkfifo(path)
        monkeypatch.syspath_prepend(str(tmp_path))
        path = Path("service.py")
    text = text_within(10, raised_in(str(path)))
    assert f'  File "{path}", line 2, in fail\nValueError: x' in text


def test_lines_that_python_has_already_are_shown() -> None:
    import linecache

    linecache.cache["<cell 7>"] = (20, None, ["one\n", "    two\n"], "<cell 7>")
    try:
        assert 'File "<cell 7>", line 2, in fail\n    two\n' in error_text(raised_in("<cell 7>"))
    finally:
        del linecache.cache["<cell 7>"]


# --- why an error is not recorded


class LostFile:
    """A mark file whose disk, or whose owner, is another one by now."""

    error_buffer_length = 1_000_000

    def __init__(self, failure: BaseException) -> None:
        self.failure: BaseException | None = failure

    def write_errors(self, offset: int, data: bytes) -> None:
        del offset, data
        if self.failure is not None:
            raise self.failure


def test_a_lost_mark_file_is_not_said_to_be_full(clock: ManualClock) -> None:
    failure = MarkFileError("mark file /x is not this container's any more: pid 7 has taken it over")
    stream = io.StringIO()
    log = DistinctErrorLog(LostFile(failure), clock)  # type: ignore[arg-type]
    handler = LoggingErrorHandler(log, stream)
    handler(ClusterEvent("one"))
    handler(ClusterEvent("another"))
    log.close()
    handler(ClusterEvent("late"))
    assert stream.getvalue() == (
        f"error log cannot be written: {failure}\ncontainer.errors.ClusterEvent: WARN - one\n"
        f"error log cannot be written: {failure}\ncontainer.errors.ClusterEvent: WARN - another\n"
        "error log is closed\ncontainer.errors.ClusterEvent: WARN - late\n"
    )


def test_a_mark_file_that_is_lost_after_the_first_observation_says_so(clock: ManualClock) -> None:
    file, stream = LostFile(OSError(5, "Input/output error")), io.StringIO()
    failure, file.failure = file.failure, None
    log = DistinctErrorLog(file, clock)  # type: ignore[arg-type]
    handler = LoggingErrorHandler(log, stream)
    handler(ClusterEvent("x"))
    file.failure = failure
    handler(ClusterEvent("x"))
    assert stream.getvalue().startswith("error log cannot be written: [Errno 5] Input/output error\n")
    file.failure = None
    assert log.record(ClusterEvent("x")) == 2
    assert log.refusal is None
    log.close()


# --- first observations


def test_a_flood_of_one_client_hides_no_error_of_another_kind(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    time, stream = Time(), io.StringIO()
    log, full = DistinctErrorLog(bytearray(16 * 1024 * 1024), clock), DistinctErrorLog(bytearray(0), clock)
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", records.append)
    logging.getLogger("container").addHandler(handler)

    def parse(depth: int, text: str) -> None:
        if depth > 0:
            parse(depth - 1, text)
        else:
            fail(text)

    try:
        for handlers in (
            LoggingErrorHandler(log, None, nano_time=time),
            LoggingErrorHandler(full, stream, nano_time=time),
        ):
            for number in range(2_000):  # distinct by depth and by message
                handlers(caught(lambda number=number: parse(number % 100, "x" * number)))  # type: ignore[misc]
            handlers(caught(fail_elsewhere))
            handlers(MemoryError("no memory"))
            handlers.close()
    finally:
        logging.getLogger("container").removeHandler(handler)
        log.close()
        full.close()
    lines = [record.getMessage() for record in records]
    assert [line for line in lines if "boom" in line] != []
    assert "MemoryError: no memory" in "\n".join(lines) + "\n".join(str(record.exc_text) for record in records)
    assert "fail_elsewhere" in "\n".join(lines)
    assert "errors left out here" in lines[-1]
    printed = stream.getvalue()
    assert "fail_elsewhere" in printed
    assert "MemoryError: no memory" in printed
    assert "errors left out" in printed.splitlines()[-1]
    assert len(printed) < 128 * 1024


@pytest.mark.parametrize(
    "text",
    [
        "a message of {0} bytes to session {0} at logPosition={0} is dropped: 9 bytes fit aeron:ipc?alias={1}",
        "failed to connect session response publication: cannot add publication aeron:ipc?alias={1} stream {0}",
    ],
)
def test_clients_that_choose_what_their_errors_say_hide_no_error_of_another_kind(clock: ManualClock, text: str) -> None:
    time, stream = Time(), io.StringIO()
    handler = LoggingErrorHandler(DistinctErrorLog(bytearray(0), clock), stream, nano_time=time)
    for number in range(2_000):
        name = "".join(chr(ord("a") + int(digit)) for digit in str(number))
        handler(ClusterEvent(text.format(number, name)))
    handler(caught(fail_elsewhere))
    assert "fail_elsewhere" in stream.getvalue()


def test_524_distinct_errors_at_once_leave_room_for_the_525th(log: DistinctErrorLog) -> None:
    time, stream = Time(), io.StringIO()
    handler = LoggingErrorHandler(DistinctErrorLog(bytearray(0)), stream, nano_time=time)
    for number in range(524):
        handler(type(f"Error{number}", (Exception,), {})("x" * 10_000))
    handler(ValueError("the one that counts"))
    handler.close()
    for number in range(524):
        assert f"Error{number}:" in stream.getvalue()
    assert stream.getvalue().splitlines()[-1].startswith("ValueError: the one that counts")
    assert len(stream.getvalue()) < 128 * 1024


def test_errors_of_ever_new_kinds_are_bounded_per_second(clock: ManualClock) -> None:
    time, stream = Time(), io.StringIO()
    handler = LoggingErrorHandler(DistinctErrorLog(bytearray(0), clock), stream, nano_time=time)
    lengths = []
    for second in range(10):
        before = len(stream.getvalue())
        for number in range(1_000):
            time.now_ns += 1_000_000
            handler(type(f"Error{second}x{number}", (Exception,), {})("x" * 10_000))
        lengths.append(len(stream.getvalue()) - before)
    assert max(lengths[2:]) < 20 * 1024
    assert min(lengths[2:]) > 8 * 1024
    handler.close()
    printed = stream.getvalue().count("Error")
    told = sum(
        int(line.split()[0].replace(",", "")) for line in stream.getvalue().splitlines() if "left out: too many" in line
    )
    assert printed + told == 10_000
