"""The distinct error log and the chain of handlers that leads to it."""

from __future__ import annotations

import io
import logging
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from container.error_handlers import LoggingErrorHandler, chain_error_handlers, fallback_stream
from container.error_log import (
    CountedErrorHandler,
    DistinctErrorLog,
    ErrorRecord,
    error_text,
    format_error_log,
    read_error_log,
)
from container.errors import (
    AeronEvent,
    AgentInterrupted,
    AgentTermination,
    Category,
    ClusterError,
    ClusterEvent,
    ClusterTermination,
    ContainerError,
)
from container.service_counters import ServiceCounters
from container.testing.manual_time import ManualClock
from container.testing.memory_transport import MemoryDriver

NOW_MS = 1_700_000_000_000
MS = 1_000_000
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
    with pytest.raises(TypeError, match="twice"):
        log.__init__(region)  # type: ignore[misc]


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

    def __init__(self, failure: Exception | None = None) -> None:
        self.errors: list[BaseException] = []
        self.failure = failure

    def __call__(self, error: BaseException) -> None:
        self.errors.append(error)
        if self.failure is not None:
            raise self.failure


class Delegating(Recorder):
    """A delegating handler that hands on what is no ValueError."""

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
