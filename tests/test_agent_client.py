"""An agent whose Aeron client lets something happen just when it is asked for a listener, or fails at that."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from container.errors import ClusterTermination, MarkFileError, RegistrationError
from container.testing.memory import transport_probe as seam
from container.testing.memory.scripted_member import ScriptedMember
from tests.cython_module import compile_module

SOURCE = '''
from libc.stdint cimport int32_t, int64_t

from container.transport.counters cimport Counter, Counters
from container.transport.transport_seam cimport Client, ClientListener
from container.transport.streams cimport PendingAdd, Publication, Subscription


cdef class Between(Client):
    """Hands all to another client, and calls ``adding`` and ``removing`` before that has a listener, or has it not."""

    cdef Client client
    cdef object adding
    cdef object removing

    def __init__(self, Client client not None, adding, removing):
        self.client = client
        self.clock = client.clock
        self.client_name = client.client_name
        self.adding = adding
        self.removing = removing

    cdef int add_listener(self, ClientListener listener) except -1:
        self.adding()
        return self.client.add_listener(listener)

    cdef int remove_listener(self, ClientListener listener) except -1:
        self.removing()
        return self.client.remove_listener(listener)

    cdef int64_t client_id(self) noexcept:
        return self.client.client_id()

    cdef int64_t next_correlation_id(self) except? -1:
        return self.client.next_correlation_id()

    cdef int32_t next_session_id(self, int32_t stream_id) except? -1:
        return self.client.next_session_id(stream_id)

    cdef Publication add_publication(self, str channel, int32_t stream_id):
        return self.client.add_publication(channel, stream_id)

    cdef Publication add_exclusive_publication(self, str channel, int32_t stream_id):
        return self.client.add_exclusive_publication(channel, stream_id)

    cdef Subscription add_subscription(self, str channel, int32_t stream_id):
        return self.client.add_subscription(channel, stream_id)

    cdef Counter add_counter(self, int32_t type_id, bytes key, str label):
        return self.client.add_counter(type_id, key, label)

    cdef Counters counters(self):
        return self.client.counters()

    cdef bint is_invoker(self) noexcept nogil:
        return self.client.is_invoker()

    cdef int invoke(self) except -1:
        return self.client.invoke()

    cpdef bint is_closed(self) noexcept:
        return self.client.is_closed()

    cpdef int close(self) except -1:
        return self.client.close()

    cdef PendingAdd begin_add_publication(self, str channel, int32_t stream_id, bint is_exclusive):
        return self.client.begin_add_publication(channel, stream_id, is_exclusive)

    cdef PendingAdd begin_add_subscription(self, str channel, int32_t stream_id, bint queues_images):
        return self.client.begin_add_subscription(channel, stream_id, queues_images)
'''


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The compiled client."""
    return compile_module("client_between", SOURCE, tmp_path_factory.mktemp("client_between"))


def nothing() -> None:
    """Nothing happens."""


def member_with(
    module: ModuleType,
    *,
    adding: Callable[[ScriptedMember], object] | None = None,
    removing: Callable[[], object] = nothing,
) -> ScriptedMember:
    """A member that has not started, with such a client."""
    member = ScriptedMember()
    client = module.Between(member.client, nothing if adding is None else lambda: adding(member), removing)
    member.context.client = client
    member.agent = type(member.agent)(member.context)
    return member


def test_a_commit_counter_that_goes_just_before_the_agent_listens_is_noticed(module: ModuleType) -> None:
    def go(member: ScriptedMember) -> None:
        member.cm.remove_commit_counter()
        seam.invoke(member.client)  # which tells those that listen now

    member = member_with(module, adding=go)
    member.cm.start()
    member.agent.on_start()
    assert isinstance(member.terminated(1), ClusterTermination)
    assert [str(event) for event in member.events] == ["commit-pos counter unexpectedly closed, terminating"]


def test_a_client_that_fails_to_forget_the_listener_keeps_nothing_open(module: ModuleType) -> None:
    error = RegistrationError("the driver is gone")

    def fail() -> None:
        raise error

    member = member_with(module, removing=fail).lead()
    member.agent.close()
    assert member.errors == [error]
    assert member.mark_file.is_terminated
    assert member.is_context_closed
    assert member.service.of("on_terminate") == [()]


def test_a_mark_file_that_can_not_be_freed_and_a_context_that_can_not_be_closed_are_errors() -> None:
    errors = [MarkFileError("the disk is gone"), ValueError("the context")]

    def close() -> None:
        raise errors[1]

    member = ScriptedMember().lead()
    member.context.close = close
    member.mark_file.error = errors[0]
    member.agent.close()
    assert member.errors == errors
