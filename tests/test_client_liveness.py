"""Clients of a cluster whose thread is busy, asleep or holds the GIL: they live on; and what ended one is said."""

from __future__ import annotations

import asyncio
import ctypes
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from container.aeron import AeronClient
from container.client import AeronCluster, AsyncAeronCluster, AsyncConnect, ClientContext, ClientState, SessionPool
from container.errors import ClosedError, ContainerError
from container.testing.processes.process import wait_until
from tests.client_world import Collecting
from tests.limits import LIMIT_S
from tests.threaded_members import PatientMember, ThreadedMembers

LIVENESS_NS = 1_000_000_000
BUSY_S = 2.5
ENDED_BY_THE_DRIVER = "its Aeron client is closed: MediaDriver has been shutdown"


@pytest.fixture
def members() -> Iterator[ThreadedMembers]:
    with ThreadedMembers(client_liveness_timeout_ns=LIVENESS_NS) as members:
        yield members


@pytest.fixture
def member(members: ThreadedMembers) -> PatientMember:
    return members.member(0, "aeron:ipc", PatientMember.echo)


def sleep(seconds: float) -> None:
    threading.Event().wait(seconds)


def hold_the_gil(seconds: float) -> None:
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


def poll_until(client: AeronCluster, predicate: Callable[[], object], what: str) -> None:
    def is_done() -> bool:
        if not client.is_closed:
            client.poll_egress()
        return bool(predicate())

    wait_until(is_done, LIMIT_S, what)


def repeat(action: Callable[[], object]) -> None:
    """Until it raises."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        action()


@pytest.mark.parametrize("be_busy", [sleep, hold_the_gil], ids=["sleeps", "holds the GIL"])
def test_a_client_outlives_what_keeps_its_thread_from_polling(
    members: ThreadedMembers, member: PatientMember, be_busy: Callable[[float], None]
) -> None:
    listener = Collecting()
    with AeronCluster.connect(**members.settings(listener=listener)) as client:
        be_busy(BUSY_S)
        assert client.send(b"still here") > 0
        poll_until(client, lambda: listener.messages, "the echo")
        assert listener.messages == [b"still here"]
        assert client.state == ClientState.CONNECTED


def test_a_client_that_only_sends_stays_alive(members: ThreadedMembers, member: PatientMember) -> None:
    listener = Collecting()
    with AeronCluster.connect(**members.settings(listener=listener)) as client:
        end = time.monotonic() + BUSY_S
        count = 0
        while time.monotonic() < end:
            assert client.offer(b"%d" % count) > 0
            count += 1
            sleep(0.01)
        poll_until(client, lambda: len(listener.messages) == count, "all echoes")
        assert client.state == ClientState.CONNECTED


@pytest.mark.parametrize("be_busy", [sleep, hold_the_gil], ids=["the loop sleeps", "the GIL is held"])
async def test_an_asyncio_client_outlives_what_keeps_its_loop_from_running(
    members: ThreadedMembers, member: PatientMember, be_busy: Callable[[float], None]
) -> None:
    async with asyncio.timeout(LIMIT_S), AsyncAeronCluster.connect(**members.settings()) as client:
        be_busy(BUSY_S)
        await client.send(b"still here")
        assert (await client.receive()).payload == b"still here"
        assert client.state == ClientState.CONNECTED


# Why a client was closed


def test_the_drivers_end_is_said_in_the_librarys_words(members: ThreadedMembers, member: PatientMember) -> None:
    with AeronCluster.connect(**members.settings()) as client:
        members.media_driver.close()
        poll_until(client, lambda: client.is_closed, "the client to find that the driver is gone")
        assert client.close_reason == ENDED_BY_THE_DRIVER
        with pytest.raises(ClosedError, match=f"the client is closed: {ENDED_BY_THE_DRIVER}"):
            client.send(b"x")


def test_the_drivers_end_is_said_by_a_send_that_waits(members: ThreadedMembers, member: PatientMember) -> None:
    with AeronCluster.connect(**members.settings(listener=Collecting())) as client:
        members.media_driver.close()
        with pytest.raises(ClosedError, match=ENDED_BY_THE_DRIVER):
            repeat(lambda: client.send(b"x"))


async def test_the_drivers_end_is_said_by_an_asyncio_client(members: ThreadedMembers, member: PatientMember) -> None:
    async with asyncio.timeout(LIMIT_S), AsyncAeronCluster.connect(**members.settings()) as client:
        await asyncio.to_thread(members.media_driver.close)
        with pytest.raises(ClosedError, match=ENDED_BY_THE_DRIVER):
            await client.receive()
        assert client.close_reason == ENDED_BY_THE_DRIVER


def test_an_error_handler_that_raises_does_not_hide_the_drivers_end(
    members: ThreadedMembers, member: PatientMember
) -> None:
    def refuse(error: ContainerError) -> None:
        raise OSError(str(error))

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context["exception"]))
        async with (
            asyncio.timeout(LIMIT_S),
            AsyncAeronCluster.connect(**members.settings(error_handler=refuse)) as client,
        ):
            await asyncio.to_thread(members.media_driver.close)
            with pytest.raises(ClosedError):
                await client.receive()
            assert client.close_reason == ENDED_BY_THE_DRIVER

    reported: list[BaseException] = []
    with AeronCluster.connect(**members.settings(error_handler=refuse)) as blocking:
        asyncio.run(scenario())
        assert [str(error) for error in reported] == ["MediaDriver has been shutdown"]
        with pytest.raises(OSError, match="MediaDriver has been shutdown"):
            poll_until(blocking, lambda: blocking.is_closed, "the client to find that the driver is gone")
        assert blocking.is_closed
        assert blocking.close_reason == ENDED_BY_THE_DRIVER


def test_the_drivers_end_loses_all_sessions_of_a_pool_with_its_text(
    members: ThreadedMembers, member: PatientMember
) -> None:
    with SessionPool.connect(**members.settings()) as pool:
        (session,) = pool.open_all(1)
        members.media_driver.close()
        wait_until(lambda: pool.poll() < 0 or pool.lost == 1, LIMIT_S, "the pool to find that the driver is gone")
        assert ENDED_BY_THE_DRIVER in str(session.error)


def test_the_drivers_end_ends_a_connect_at_once(members: ThreadedMembers) -> None:
    connecting = AsyncConnect(ClientContext(**members.settings()))
    for _ in range(10):
        assert connecting.poll() is None
    members.media_driver.close()
    with pytest.raises(ClosedError, match="cluster connect: its Aeron client is closed: MediaDriver has been shutdown"):
        repeat(connecting.poll)


def test_an_owner_that_closes_a_shared_client_is_named(members: ThreadedMembers, member: PatientMember) -> None:
    with AeronClient(members.aeron_dir) as shared:
        client = AeronCluster.connect(
            ClientContext(
                ingress_channel="aeron:ipc", egress_channel="aeron:ipc?alias=e", client=shared, message_timeout=LIMIT_S
            )
        )
        shared.close()
        assert shared.close_reason == "closed by its owner"
        client.poll_egress()
        assert client.close_reason == "its Aeron client is closed: closed by its owner"
