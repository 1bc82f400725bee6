"""A callback that the container cannot call is refused at the start, in every way in which a callback can be given."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from container.api import ClusteredService
from container.common.callbacks import takes
from container.context import Context
from container.errors import ConfigurationError
from container.service.service_handler import PythonServiceHandler, check_service
from container.testing import MemoryMember
from container.testing.memory.memory_stores import MemoryMarkFile, MemorySnapshotStore
from container.testing.memory.recording_service import RecordingService
from container.testing.memory.scripted_member import ScriptedMember
from tests.cython_module import compile_module

ROOT = Path(__file__).parents[1]

COUNTS = {
    "on_start": 2,
    "on_session_open": 2,
    "on_session_close": 3,
    "on_session_message": 4,
    "on_timer_event": 2,
    "on_take_snapshot": 1,
    "on_role_change": 1,
    "on_new_leadership_term_event": 8,
    "on_terminate": 1,
    "do_background_work": 1,
    "on_session_messages": 1,
}


def with_callback(name: str, callback: object) -> Any:
    """A service one of whose callbacks is set on the instance."""
    service: Any = RecordingService()
    setattr(service, name, callback)
    return service


def with_method(name: str, method: object) -> Any:
    """A service one of whose callbacks is an attribute of its class."""
    return type("Odd", (RecordingService,), {name: method})()


def function(count: int, extra: str = "") -> Any:
    """A function with so many positional parameters, and what ``extra`` says."""
    parameters = ", ".join([*(f"p{index}" for index in range(count)), *filter(None, [extra])])
    return eval(f"lambda {parameters}: None")


class Called:
    """A callable object."""

    def __call__(self, first: object, second: object) -> None:
        pass


class Awaited:
    """A callable object that has to be awaited."""

    async def __call__(self, first: object, second: object) -> None:
        pass


@pytest.mark.parametrize("name", COUNTS)
def test_a_callback_with_too_few_or_too_many_parameters_is_refused(name: str) -> None:
    count = COUNTS[name]
    check_service(with_callback(name, function(count)))
    check_service(with_method(name, function(count + 1)))
    for wrong in (count - 1, count + 1):
        for service in (with_callback(name, function(wrong)), with_method(name, function(wrong + 1))):
            with pytest.raises(ConfigurationError) as caught:
                check_service(service)
            names = [f"p{index}" for index in range(wrong + 1)]
            shown = names[:wrong] if "Odd" not in str(caught.value) else names[1:]
            assert f".{name}({', '.join(shown)}) cannot be called" in str(caught.value)
            assert re.search(rf"expected {name}\((\w+, ){{{count - 1}}}\w+\)$", str(caught.value))


GOOD: list[Callable[[], Any]] = [
    lambda: with_callback("on_timer_event", function(2, "*more")),
    lambda: with_callback("on_timer_event", function(0, "*all")),
    lambda: with_callback("on_timer_event", function(2, "third=None")),
    lambda: with_callback("on_timer_event", function(2, "*, named=None")),
    lambda: with_callback("on_timer_event", function(2, "**named")),
    lambda: with_callback("on_timer_event", function(1, "second=None, third=None")),
    lambda: with_callback("on_timer_event", functools.partial(function(3), 1)),
    lambda: with_callback("on_timer_event", functools.partial(function(2, "*, named"), named=1)),
    lambda: with_callback("on_timer_event", Called()),
    lambda: with_callback("on_timer_event", RecordingService().on_timer_event),
    lambda: with_callback("on_timer_event", max),
    lambda: with_callback("on_timer_event", print),
    lambda: with_callback("on_timer_event", divmod),
    lambda: with_method("on_timer_event", staticmethod(function(2))),
    lambda: with_method("on_timer_event", classmethod(function(3))),
    lambda: with_method("on_timer_event", functools.partialmethod(function(4), 1)),
    lambda: with_method("on_timer_event", functools.wraps(function(9))(function(1, "*all"))),
    lambda: with_method("on_timer_event", functools.lru_cache(function(3))),
    lambda: with_method("on_timer_event", lambda self, first, /, second, *, named=None: None),
]


@pytest.mark.parametrize("index", range(len(GOOD)))
def test_a_callback_that_can_be_called_is_taken(index: int) -> None:
    service = GOOD[index]()
    check_service(service)
    assert isinstance(PythonServiceHandler(service).service, RecordingService)


BAD: list[tuple[Callable[[], Any], str]] = [
    (lambda: with_callback("on_timer_event", function(2, "*, named")), "(p0, p1, *, named)"),
    (lambda: with_callback("on_timer_event", function(0, "*, named=None")), "(*, named=None)"),
    (lambda: with_callback("on_timer_event", functools.partial(function(2), 1)), "(p1)"),
    (lambda: with_callback("on_timer_event", functools.partial(function(2), p1=1)), "(p0, *, p1=1)"),
    (lambda: with_callback("on_timer_event", functools.partial(Called(), 1)), "(second: 'object')"),
    (lambda: with_callback("on_session_message", Called()), "(first: 'object', second: 'object')"),
    (lambda: with_callback("on_timer_event", abs), ", /)"),
    (lambda: with_method("on_timer_event", staticmethod(function(3))), "(p0, p1, p2)"),
    (lambda: with_method("on_timer_event", classmethod(function(2))), "(p1)"),
    (lambda: with_method("on_timer_event", functools.partialmethod(function(2), 1)), "()"),
    (lambda: with_method("on_timer_event", functools.wraps(function(3))(function(1))), "()"),
    (lambda: with_method("on_timer_event", lambda self, first, /, *, named: None), "(first, /, *, named)"),
]


@pytest.mark.parametrize("index", range(len(BAD)))
def test_a_callback_that_can_not_be_called_is_refused_with_its_signature(index: int) -> None:
    make, signature = BAD[index]
    with pytest.raises(ConfigurationError) as caught:
        PythonServiceHandler(make())
    assert f"{signature} cannot be called with the arguments that the container passes" in str(caught.value)


def test_a_context_refuses_it_before_anything_of_the_log_is_read(tmp_path: Path) -> None:
    service = with_callback("on_session_message", function(3))
    client, mark_file = ScriptedMember().client, MemoryMarkFile()
    store = MemorySnapshotStore(client)
    context = Context(
        service, client=client, mark_file=mark_file, snapshot_store=store, cluster_dir=tmp_path, environ={}
    )
    with pytest.raises(ConfigurationError, match=r"on_session_message\(p0, p1, p2\) cannot be called"):
        context.conclude()


@pytest.mark.parametrize(
    "callback",
    [Awaited(), functools.partial(Awaited()), functools.partial(functools.partial(Awaited().__call__))],
)
def test_a_callable_object_that_must_be_awaited_is_refused(callback: object) -> None:
    with pytest.raises(ConfigurationError, match="on_timer_event is a coroutine function"):
        check_service(with_callback("on_timer_event", callback))


def test_a_generator_function_is_refused_as_a_call_runs_nothing_of_it() -> None:
    def generator(correlation_id: int, timestamp: int) -> Any:
        yield correlation_id

    for callback in (generator, functools.partial(generator)):
        with pytest.raises(ConfigurationError, match="on_timer_event is a generator function: a call of it runs none"):
            check_service(with_callback("on_timer_event", callback))


def test_the_check_agrees_with_a_call() -> None:
    shapes = [function(count, extra) for count in range(4) for extra in ("", "*more", "last=1", "*, named", "*, n=1")]
    for shape in shapes:
        bound = type("Holder", (), {"method": shape})().method if shape.__code__.co_argcount else shape
        for callback in (shape, bound, functools.partial(shape)):
            for count in range(5):
                try:
                    callback(*[None] * count)
                except TypeError:
                    assert not takes(callback, count), (callback, count)
                else:
                    assert takes(callback, count), (callback, count)


def test_a_service_whose_methods_are_compiled_is_taken(tmp_path: Path) -> None:
    source = """
from container.api import ClusteredService

class Compiled(ClusteredService):
    def on_session_message(self, session, timestamp, buffer, header):
        pass

class Wrong(ClusteredService):
    def on_session_message(self, session, timestamp, buffer):
        pass

cdef class Extension:
    def on_timer_event(self, correlation_id, timestamp):
        pass
"""
    module = compile_module("compiled_service", source, tmp_path)
    check_service(module.Compiled())
    check_service(with_callback("on_timer_event", module.Extension().on_timer_event))
    with pytest.raises(ConfigurationError, match=r"Wrong\.on_session_message\(session, timestamp, buffer\) cannot"):
        check_service(module.Wrong())


def test_a_method_spelled_nearly_as_a_callback_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    class Misspelled(RecordingService):
        def on_sesion_open(self, session: object, timestamp: int) -> None: ...

        def onTakeSnapshot(self, snapshot_publication: object) -> None: ...  # noqa: N802 - Java's spelling

        def on_order(self) -> None: ...

    for _ in range(2):
        check_service(Misspelled())
    assert [each.getMessage() for each in caplog.records] == [
        "Misspelled.onTakeSnapshot is never called: did you mean on_take_snapshot?",
        "Misspelled.on_sesion_open is never called: did you mean on_session_open?",
    ]


def test_a_method_near_a_callback_that_is_there_as_well_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Opening(RecordingService):
        def on_session_open(self, session: object, timestamp: int) -> None: ...

        def on_session_opened(self) -> None: ...

    check_service(Opening())
    assert not caplog.records


def test_a_method_near_a_callback_that_is_there_is_not_taken_for_another_one(caplog: pytest.LogCaptureFixture) -> None:
    class Message(RecordingService):
        def on_session_message(self, session: object, timestamp: int, buffer: object, header: object) -> None: ...

        def on_session_mesage(self) -> None: ...

    check_service(Message())
    assert not caplog.records, "on_session_messages is farther than on_session_message, which the class has"

    class Batch(Message):
        def on_sesion_messages(self) -> None: ...

    check_service(Batch())
    assert [each.getMessage() for each in caplog.records] == [
        "Batch.on_sesion_messages is never called: did you mean on_session_messages?"
    ]


def test_a_snapshot_without_a_callback_for_it_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Forgetful(ClusteredService):
        def on_session_message(self, session: object, timestamp: int, buffer: object, header: object) -> None: ...

    class Stateless(Forgetful):
        def on_take_snapshot(self, snapshot_publication: object) -> None: ...

    for kind in (Stateless, Forgetful):
        with MemoryMember(kind) as member:
            member.take_snapshot()
    (line,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert line.startswith("Forgetful has no on_take_snapshot: this snapshot holds no state, and a start from it")
