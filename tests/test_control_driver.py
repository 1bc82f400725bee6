"""Control sessions over a real media driver: connects, revoked responses, rejected images, clients that do not read."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator

import pytest

from container.aeron import AeronClient, MediaDriver
from container.archive.client.aeron_archive import AeronArchive
from container.archive.client.archive_client_context import ArchiveClientContext
from container.codecs import messages as codecs
from container.errors import ArchiveError
from container.testing.memory import transport_probe as seam
from container.testing.memory.memory_transport import SteppingIdleStrategy
from container.testing.processes.endpoints import PortReservation
from container.transport.streams import Image, Publication, Subscription
from tests.control_world import ARCHIVE_ID, CONTROL_CHANNEL, CONTROL_STREAM_ID, VERSION, ControlWorld
from tests.limits import LIMIT_S

RESPONSE_STREAM_ID = 20
_SESSION_IDS = itertools.count(9000)
CONNECT_TIMEOUT_MS = 1000


@pytest.fixture(scope="module")
def driver() -> Iterator[MediaDriver]:
    with MediaDriver.launch_embedded(
        publication_linger_timeout_ns=50_000_000,
        image_liveness_timeout_ns=500_000_000,
        timer_interval_ns=20_000_000,
    ) as driver:
        yield driver


class DriverWorld(ControlWorld):
    """The archive's side over a driver, and clients of it that are invoked with it."""

    def __init__(self, driver: MediaDriver) -> None:
        self.aeron_dir = driver.aeron_dir
        self.clients: list[AeronClient] = []
        self.begin(self.client_of_driver(), connect_timeout_ms=CONNECT_TIMEOUT_MS)

    def client_of_driver(self) -> AeronClient:
        self.clients.append(AeronClient(self.aeron_dir, use_invoker=True))
        return self.clients[-1]

    def turn(self) -> None:
        self.work()
        for client in self.clients:
            seam.invoke(client)
        os.sched_yield()

    def until[T](self, predicate: Callable[[], T]) -> T:
        deadline = time.monotonic() + LIMIT_S
        while not (result := predicate()):
            assert time.monotonic() < deadline, f"did not happen within {LIMIT_S:g} s; reported: {self.texts()}"
            self.turn()
        return result

    def archive_client(self, response_channel: str) -> AeronArchive:
        context = ArchiveClientContext(
            control_channel=CONTROL_CHANNEL,
            control_stream_id=CONTROL_STREAM_ID,
            response_channel=response_channel,
            client_name="test",
        )
        return AeronArchive.connect(
            context,
            client=self.client_of_driver(),
            idle_strategy=SteppingIdleStrategy(self.turn, max_idles=10_000_000),
        )


@pytest.fixture
def world(driver: MediaDriver) -> Iterator[DriverWorld]:
    world = DriverWorld(driver)
    yield world
    for client in world.clients:
        client.close()


class Raw:
    """A client that is connected, up to the keep-alive, and does no more."""

    def __init__(self, world: DriverWorld, publication: Publication | None = None, stream_id: int = 20) -> None:
        client = world.client_of_driver()
        channel = f"aeron:ipc?term-length=64k|session-id={next(_SESSION_IDS)}"
        self.world = world
        self.responses: Subscription = seam.add_subscription(client, channel, stream_id)
        self.publication = publication or seam.add_publication(client, CONTROL_CHANNEL, CONTROL_STREAM_ID, True)
        self.send(
            "AuthConnectRequest",
            correlation_id=1,
            response_stream_id=stream_id,
            version=VERSION,
            response_channel=channel,
            encoded_credentials=b"",
            client_info="raw",
        )
        [message, *_] = world.until(lambda: seam.poll(self.responses, 1))
        self.control_session_id: int = codecs.decode("archive", message[0])[1]["relevant_id"]
        self.session = world.sessions[self.control_session_id]
        self.send("KeepAliveRequest", control_session_id=self.control_session_id, correlation_id=-1)
        world.until(lambda: self.session.state == "ACTIVE")

    def send(self, name: str, **fields: int | bytes | str) -> None:
        data = codecs.encode("archive", name, **fields)
        self.world.until(lambda: seam.offer(self.publication, data) > 0)

    def image(self) -> Image:
        image = seam.image(self.responses)
        assert image is not None
        return image


@pytest.fixture
def port() -> Iterator[int]:
    ports = PortReservation()
    yield ports.take()
    ports.close()


@pytest.mark.parametrize("channel", ["aeron:ipc", "aeron:udp?endpoint=localhost:{port}"])
def test_conformance_1_our_client_connects_over_ipc_and_udp(world: DriverWorld, channel: str, port: int) -> None:
    archive = world.archive_client(channel.format(port=port))
    assert archive.archive_id == ARCHIVE_ID
    [session] = world.sessions.values()
    world.until(lambda: session.state == "ACTIVE")
    counters = seam.counters(world.seam_client)
    [(counter_id, record)] = [
        (counter_id, record)
        for counter_id in range(seam.counter_capacity(counters))
        if (record := seam.counter_record(counters, counter_id))["state"] == 1 and record["type_id"] == 113
    ]
    assert record["value"] == archive.control_session_id
    assert record["label"].startswith("control-session: name=test ")
    reference_id = seam.reference_id(counters, counter_id)
    assert reference_id > 0
    labels = [seam.counter_record(counters, each) for each in range(seam.counter_capacity(counters))]
    assert any(each["registration_id"] == reference_id for each in labels), "of the publication's own counters"
    world.answers["on_get_stop_position"] = lambda session, request, recording_id: session.send_error(
        request.correlation_id, "e" * 100_000, 5
    )
    with pytest.raises(ArchiveError, match="eeee") as raised:
        archive.get_stop_position(1)
    assert raised.value.code == 5
    archive.close()
    world.until(lambda: not world.sessions)
    assert world.ended[0].abort_reason == "session closed"
    assert world.errors == []
    world.until(lambda: not world.counters())


def test_conformance_12_a_close_revokes_what_was_not_read(world: DriverWorld) -> None:
    raw = Raw(world)
    image = raw.image()
    for _ in range(10):
        raw.session.send_ok(5)
    raw.send("CloseSessionRequest", control_session_id=raw.control_session_id)
    world.until(lambda: seam.is_closed(image))
    assert world.errors == []
    assert seam.is_connected(raw.publication)


def test_conformance_10_a_client_that_does_not_read_is_rejected_with_all_that_share_its_image(
    world: DriverWorld,
) -> None:
    raw = Raw(world)
    sharing = Raw(world, raw.publication, stream_id=21)
    other = Raw(world, stream_id=22)
    while raw.session.send_descriptor(1, bytes(1000)):
        pass

    def is_over() -> bool:
        seam.poll(sharing.responses, 10)
        seam.poll(other.responses, 10)
        return raw.session.is_done and sharing.session.is_done

    world.until(is_over)
    reason = f"failed to send response for more than connectTimeoutMs={CONNECT_TIMEOUT_MS}"
    assert raw.session.abort_reason == reason
    assert (sharing.session.abort_reason or "").startswith("control request publication image unavailable")
    world.until(lambda: not seam.is_connected(raw.publication))
    assert [text.endswith(f"terminated: {reason}") for text in world.texts()] == [True]
    assert other.session.state == "ACTIVE"
    assert seam.is_connected(other.publication)


def test_conformance_11_a_client_that_is_gone(world: DriverWorld) -> None:
    raw = Raw(world)
    raw.responses.close()
    raw.publication.close()
    world.until(lambda: not world.sessions)
    assert world.errors == []
    world.until(lambda: not world.counters())


def counters_with(world: DriverWorld, text: str) -> list[str]:
    """Labels with this text of the driver's counters, such as those of a publication."""
    counters = seam.counters(world.seam_client)
    records = (seam.counter_record(counters, each) for each in range(seam.counter_capacity(counters)))
    return [each["label"] for each in records if each["state"] == 1 and text in each["label"]]


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_a_session_that_ends_before_the_driver_has_answered_leaves_nothing(world: DriverWorld, turns: int) -> None:
    raw = Raw(world)
    before = world.counters()
    channel = f"aeron:ipc?session-id={next(_SESSION_IDS)}"
    raw.send(
        "AuthConnectRequest",
        correlation_id=2,
        response_stream_id=RESPONSE_STREAM_ID,
        version=VERSION,
        response_channel=channel,
        encoded_credentials=b"",
        client_info="leaves",
    )
    world.until(lambda: len(world.sessions) == 2)
    for _ in range(turns):
        world.turn()
    session = world.sessions.pop(raw.control_session_id + 1)
    assert turns or session.state == "INIT"
    session.abort("session closed")
    session.close()
    mark = seam.next_correlation_id(world.seam_client)
    added = world.until(lambda: seam.add_counter(world.seam_client, 1000 + mark % 1000, b"", "the driver has answered"))
    world.until(lambda: world.counters() == before and not counters_with(world, channel.partition("?")[2]))
    added.close()
    assert world.errors == []


def test_a_response_channel_that_the_driver_refuses(world: DriverWorld) -> None:
    raw = Raw(world)
    raw.send(
        "AuthConnectRequest",
        correlation_id=2,
        response_stream_id=RESPONSE_STREAM_ID,
        version=VERSION,
        response_channel="aeron:udp?endpoint=no-such-host.invalid:1|interface=300.0.0.1",
        encoded_credentials=b"",
        client_info="",
    )
    world.until(lambda: world.ended)
    assert (world.ended[0].abort_reason or "").startswith("failed with exception: ")
    assert len(world.texts()) >= 2
