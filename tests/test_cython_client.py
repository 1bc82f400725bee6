"""A listener written in Cython outside of the package: built against the shipped .pxd files, called by real clients."""

from __future__ import annotations

from types import ModuleType

import pytest

from container.api import BACK_PRESSURED
from container.client import AsyncAeronCluster, EventCode, SessionPool
from container.errors import ClusterError, ConfigurationError
from tests import ingress_member
from tests.client_world import ENDPOINTS, MEMBER_0, Collecting, World, elect
from tests.cython_module import compile_module
from tests.ingress_member import IngressMember
from tests.test_session_pool import Gateway

SOURCE = '''
"""Answers each message in C, and keeps what else it is told."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.client.aeron_cluster cimport AeronCluster
from container.client.egress_handler cimport EgressHandler
from container.transport.frames cimport ACTION_ABORT, ACTION_CONTINUE, FrameHeader


cdef class Answering(EgressHandler):
    cdef public AeronCluster client
    cdef readonly list told
    cdef public int aborts

    def __init__(self):
        self.told = []

    cdef int on_message(
            self, int64_t cluster_session_id, int64_t timestamp, const uint8_t* data, size_t length,
            const FrameHeader* header) except -1:
        if length == 0:
            raise ValueError("an empty message")
        self.told.append((cluster_session_id, timestamp, data[:length], header.flags))
        if self.aborts > 0:
            self.aborts -= 1
            return ACTION_ABORT
        if self.client is not None:
            self.told.append(self.client.offer_message(data, length))
        return ACTION_CONTINUE

    cdef int on_session_event(
            self, int64_t correlation_id, int64_t cluster_session_id, int64_t leadership_term_id,
            int32_t leader_member_id, int32_t code, str detail) except -1:
        self.told.append((correlation_id, cluster_session_id, leadership_term_id, leader_member_id, code, detail))
        return 0

    cdef int on_new_leader(
            self, int64_t cluster_session_id, int64_t leadership_term_id, int32_t leader_member_id,
            str ingress_endpoints) except -1:
        self.told.append((cluster_session_id, leadership_term_id, leader_member_id, ingress_endpoints))
        return 0

    cdef int on_admin_response(
            self, int64_t cluster_session_id, int64_t correlation_id, int32_t request_type, int32_t response_code,
            str message, bytes payload) except -1:
        self.told.append((cluster_session_id, correlation_id, request_type, response_code, message, payload))
        return 0


cdef class Polling(EgressHandler):
    """A loop in C."""

    cdef readonly int received

    cdef int on_message(
            self, int64_t cluster_session_id, int64_t timestamp, const uint8_t* data, size_t length,
            const FrameHeader* header) except -1:
        self.received += 1
        return ACTION_CONTINUE

    def poll_until(self, AeronCluster client, int count):
        while self.received < count:
            client.idle(client.poll_egress())


cdef class Silent(EgressHandler):
    pass
'''


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The compiled listeners."""
    return compile_module("cython_listener", SOURCE, tmp_path_factory.mktemp("cython_listener"))


@pytest.fixture
def member(world: World) -> IngressMember:
    return IngressMember(world.driver, 0, MEMBER_0)


def test_a_listener_in_cython_gets_messages_and_answers_from_its_callback(
    module: ModuleType, world: World, member: IngressMember
) -> None:
    listener = module.Answering()
    client = world.connect(listener=listener)
    listener.client = client
    member.message(b"ping", timestamp=5)
    member.message(bytes(5000), timestamp=6)
    world.poll(client)
    first, position, second, next_position = listener.told
    assert first == (8, 5, b"ping", 0xC0)
    assert second[:3] == (8, 6, bytes(5000))
    assert next_position > position > 0
    assert member.payloads() == [b"ping", bytes(5000)]


def test_a_listener_in_cython_is_told_all(module: ModuleType, world: World, member: IngressMember) -> None:
    listener = module.Answering()
    client = world.connect(listener=listener)
    member.session_event(4, ingress_member.OK, "fine")
    member.send(
        "AdminResponse",
        cluster_session_id=8,
        correlation_id=5,
        request_type=0,
        response_code=2,
        message="no",
        payload=b"why",
    )
    world.poll(client)
    elect(world, member)
    world.poll(client, 20)
    assert listener.told == [
        (4, 8, 3, 0, EventCode.OK, "fine"),
        (8, 5, 0, 2, "no", b"why"),
        (8, 4, 1, ENDPOINTS),
    ]


def test_a_listener_in_cython_says_what_becomes_of_a_message(
    module: ModuleType, world: World, member: IngressMember
) -> None:
    listener = module.Answering()
    listener.aborts = 2
    client = world.connect(listener=listener)
    member.message(b"again")
    world.poll(client)
    assert [message[2] for message in listener.told] == [b"again"] * 3


def test_an_exception_in_cython_ends_the_poll(module: ModuleType, world: World, member: IngressMember) -> None:
    listener = module.Answering()
    client = world.connect(listener=listener)
    member.message(b"")
    member.message(b"next")
    with pytest.raises(ValueError, match="an empty message"):
        world.poll(client)
    world.poll(client)
    assert [message[2] for message in listener.told] == [b"next"]


def test_what_a_listener_in_cython_leaves_out_is_an_error_or_nothing(
    module: ModuleType, world: World, member: IngressMember
) -> None:
    client = world.connect(listener=module.Silent())
    member.session_event(4, ingress_member.OK)
    world.poll(client)
    member.message(b"unexpected")
    with pytest.raises(ConfigurationError, match="a message came from the cluster and Silent has no on_message"):
        world.poll(client)
    member.send_bytes(bytes.fromhex("0000 0100 ff00 0000"))
    with pytest.raises(ClusterError, match="expected cluster egress schemaId=111 actual=255"):
        world.poll(client)


def test_a_loop_in_cython_polls_and_idles(module: ModuleType, world: World, member: IngressMember) -> None:
    listener = module.Polling()
    client = world.connect(listener=listener)
    for _ in range(50):
        member.message(b"x")
    listener.poll_until(client, 50)
    assert listener.received == 50


def test_pooled_sessions_have_listeners_in_cython(module: ModuleType, world: World) -> None:
    member = Gateway(world.driver, 0, MEMBER_0)
    in_cython, in_python, polling = module.Answering(), Collecting(), module.Polling()
    with SessionPool.connect(world.context(listener=in_cython)) as pool:
        shared, own, third = pool.open(), pool.open(in_python), pool.open(polling)
        for _ in range(6):
            pool.poll()
        for session in (shared, own, third):
            member.message(b"m", session_id=session.cluster_session_id)
        for _ in range(6):
            pool.poll()
        assert shared.listener == in_cython
        assert [message[0] for message in in_cython.told] == [shared.cluster_session_id]
        assert in_python.messages == [b"m"]
        assert polling.received == 1
        assert shared.offer(b"x") > BACK_PRESSURED
        with pytest.raises(ConfigurationError, match="listener must be an EgressListener"):
            pool.open(print)  # type: ignore[arg-type]


def test_asyncio_takes_listeners_in_python_only(module: ModuleType, world: World) -> None:
    with pytest.raises(ConfigurationError, match="connect.. takes an EgressListener in Python, not <"):
        AsyncAeronCluster.connect(world.context(listener=module.Silent()))
