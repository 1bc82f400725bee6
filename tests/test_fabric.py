"""Hosts on a simulated network: what arrives, when, what holds senders up, and what faults look like."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from container.aeron import AeronClient, MediaDriver
from container.client import AeronCluster, ClientContext
from container.errors import ClosedError, ConfigurationError, RegistrationError
from container.testing.memory import transport_probe as seam
from container.testing.memory.memory_transport import SteppingIdleStrategy
from container.testing.processes.endpoints import PortReservation
from container.testing.simulation.fabric import Fabric
from container.testing.simulation.scheduler import Scheduler
from container.testing.simulation.virtual_time import Draws, VirtualTime
from container.transport.counters import Counter
from container.transport.streams import Image, PendingAdd, Publication, Subscription
from container.transport.transport_seam import Client
from tests.aeron_session import until
from tests.client_world import Collecting
from tests.fabric_world import LATENCY, MS, FabricWorld, S, image_of, offer, read
from tests.ingress_member import OK, IngressMember
from tests.limits import LIMIT_S

TERM = 65_536
TO_B = "aeron:udp?endpoint=b:1"
MANUAL = "aeron:udp?control-mode=manual"


# What real drivers do, too


class RealWorld:
    """A media driver, with the names that the tests use of a simulated network."""

    any_port = "aeron:udp?endpoint=localhost:0"

    def __init__(self, aeron_dir: str, channel: str) -> None:
        self.client: Client = AeronClient(aeron_dir)
        self.channel = channel

    def publish(self, channel: str | None = None) -> Publication:
        return seam.add_publication(self.client, channel or self.channel, 1, exclusive=True)

    def subscribe(self, channel: str | None = None) -> Subscription:
        return seam.add_subscription(self.client, channel or self.channel, 1)

    def wait(self, condition: Callable[[], object]) -> None:
        assert isinstance(self.client, AeronClient)
        until(self.client, condition, "it")


class SimulatedWorld:
    """The same over a fabric."""

    any_port = "aeron:udp?endpoint=b:0"

    def __init__(self) -> None:
        self.world = FabricWorld()
        self.client: Client = self.world.clients["b"]
        self.channel = TO_B

    def publish(self, channel: str = TO_B) -> Publication:
        return self.world.publish("a", channel)

    def subscribe(self, channel: str = TO_B) -> Subscription:
        return self.world.subscribe("b", channel)

    def wait(self, condition: Callable[[], object]) -> None:
        def holds() -> object:
            for client in self.world.clients.values():
                seam.invoke(client)
            return condition()

        self.world.run_until(holds)


type AnyWorld = RealWorld | SimulatedWorld


@pytest.fixture(params=["simulated", "real"])
def either(request: pytest.FixtureRequest) -> Iterator[AnyWorld]:
    if request.param == "simulated":
        yield SimulatedWorld()
        return
    ports = PortReservation()
    with MediaDriver.launch_embedded(
        term_buffer_length=TERM,
        timer_interval_ns=20 * MS,
        image_liveness_timeout_ns=500 * MS,
        publication_linger_timeout_ns=500 * MS,
    ) as driver:
        world = RealWorld(str(driver.aeron_dir), f"aeron:udp?endpoint=localhost:{ports.take()}")
        yield world
        world.client.close()
    ports.close()


def joined(world: AnyWorld, subscription: Subscription) -> Image:
    world.wait(lambda: seam.image(subscription))
    image = seam.image(subscription)
    assert image is not None
    return image


def fill(world: AnyWorld, publication: Publication) -> None:
    """Offer a term, after which the publication is back pressured."""

    def is_full() -> bool:
        while seam.offer(publication, bytes(1000)) > 0:
            pass
        return seam.position(publication) >= TERM

    world.wait(is_full)
    assert seam.position(publication) == TERM
    assert seam.result_name(seam.offer(publication, bytes(1000))) == "BACK_PRESSURED"


def test_images_join_where_the_sender_or_the_receiver_is(either: AnyWorld) -> None:
    publication = either.publish()
    assert seam.result_name(seam.offer(publication, b"x")) == "NOT_CONNECTED"
    subscription = either.subscribe()
    either.wait(lambda: seam.is_connected(publication))
    assert joined(either, subscription).join_position == 0
    assert seam.offer(publication, b"x") == 64
    either.wait(lambda: read(subscription))
    assert joined(either, either.subscribe()).join_position == 64


def test_a_sender_is_a_window_ahead_of_the_receiver_and_the_publication_another(either: AnyWorld) -> None:
    publication, subscription = either.publish(), either.subscribe()
    either.wait(lambda: seam.is_connected(publication))
    joined(either, subscription)
    fill(either, publication)
    count = 0

    def has_arrived() -> bool:
        nonlocal count
        count += len(read(subscription))
        return count >= TERM // 1056

    either.wait(has_arrived)
    assert seam.is_connected(publication)
    assert count == TERM // 1056


def test_a_publication_is_not_connected_when_the_subscriber_has_gone(either: AnyWorld) -> None:
    publication, subscription = either.publish(), either.subscribe()
    either.wait(lambda: seam.is_connected(publication))
    joined(either, subscription)
    fill(either, publication)
    subscription.close()
    either.wait(lambda: not seam.is_connected(publication))
    assert seam.result_name(seam.offer(publication, b"x")) == "NOT_CONNECTED"
    # It joins where the sender is: what went to nobody is lost, what was not sent is not.
    assert joined(either, either.subscribe()).join_position == (TERM // 2) // 1056 * 1056
    either.wait(lambda: seam.is_connected(publication))


def test_an_image_ends_with_its_stream(either: AnyWorld) -> None:
    publication, subscription = either.publish(), either.subscribe()
    either.wait(lambda: seam.is_connected(publication))
    image = joined(either, subscription)
    seam.offer(publication, b"1")
    publication.close()
    either.wait(lambda: seam.end_of_stream_position(image) == 64)
    assert not seam.is_end_of_stream(image)
    assert read(image) == [b"1"]
    either.wait(lambda: seam.is_closed(image))
    assert seam.is_end_of_stream(image)
    assert not seam.is_connected(subscription)


def finish(world: AnyWorld, adding: PendingAdd) -> Publication | Subscription | Counter:
    done: list[Publication | Subscription | Counter] = []

    def is_done() -> bool:
        answer = seam.poll_add(adding)
        if answer is not None:
            done.append(answer)
        return answer is not None

    world.wait(is_done)
    return done[0]


def connected(world: AnyWorld) -> tuple[Publication, Image]:
    publication, subscription = world.publish(), world.subscribe()
    world.wait(lambda: seam.is_connected(publication))
    return publication, joined(world, subscription)


def test_blocks_are_what_has_arrived(either: AnyWorld) -> None:
    publication, image = connected(either)
    messages = [bytes([number]) * (100 * number) for number in range(1, 11)]
    for message in messages:
        assert seam.offer(publication, message) > 0
    block = b""

    def has_all() -> bool:
        nonlocal block
        block += seam.poll_blocks(image)
        return len(block) == seam.position(publication)

    either.wait(has_all)
    assert seam.position(image) == len(block)
    assert all(message in block for message in messages)


def test_an_image_says_where_it_comes_from(either: AnyWorld) -> None:
    _, image = connected(either)
    host, _, port = image.source_identity.rpartition(":")
    assert host in {"127.0.0.1", "a"}
    assert int(port) > 0
    assert joined(either, either.subscribe()).correlation_id == image.correlation_id
    either.wait(lambda: seam.active_transport_count(image) == 1)
    assert (image.term_buffer_length, image.mtu_length) == (TERM, 1408)


def test_an_image_of_a_revoked_stream_goes_with_what_is_not_read(either: AnyWorld) -> None:
    publication, image = connected(either)
    for message in (b"1", b"2"):
        assert seam.offer(publication, message) > 0
    either.wait(lambda: seam.poll_blocks(image, 64))
    publication.revoke()
    either.wait(lambda: seam.is_closed(image))
    assert (seam.position(image), seam.end_of_stream_position(image)) == (64, 128)
    assert not seam.is_end_of_stream(image)
    assert seam.poll_blocks(image) == b""
    assert seam.active_transport_count(image) == 0


def test_a_rejected_image_hears_nothing_and_goes(either: AnyWorld) -> None:
    publication, image = connected(either)
    image.reject("no reason")
    either.wait(lambda: seam.is_closed(image))
    either.wait(lambda: not seam.is_connected(publication))
    assert seam.position(image) == 0
    assert not seam.is_closed(publication)


def test_a_subscription_receives_where_its_destinations_are(either: AnyWorld) -> None:
    subscription = finish(either, seam.begin_add_subscription(either.client, MANUAL, 1, queues_images=True))
    assert isinstance(subscription, Subscription)
    assert seam.resolved_endpoint(subscription) == ""
    assert finish(either, seam.begin_add_destination(subscription, either.any_port)) is subscription
    either.wait(lambda: seam.resolved_endpoint(subscription))
    publication = either.publish(f"aeron:udp?endpoint={seam.resolved_endpoint(subscription)}")
    image = joined(either, subscription)
    assert seam.take_new_image(subscription) is image
    assert seam.take_new_image(subscription) is None
    either.wait(lambda: seam.is_connected(publication))
    either.wait(lambda: seam.offer(publication, b"x") > 0)  # its limit follows a moment later
    either.wait(lambda: seam.poll_blocks(image))
    assert finish(either, seam.begin_remove_destination(subscription, either.any_port)) is subscription
    either.wait(lambda: seam.is_closed(image))


LIVE, OTHER = "session-id=7", "session-id=8"


@pytest.mark.parametrize("is_closed", [False, True])
def test_an_image_stays_until_all_have_read_it_and_is_joined_until_then(either: AnyWorld, is_closed: bool) -> None:
    """As the log of a follower: a service that was busy joins it where the member is, whatever the leader has done.

    ``is_closed``: its publication is closed, else its port is; the image of a session without anything shows when.
    """
    manual = f"{MANUAL}|tags=1,2|rejoin=false"
    subscriptions = [either.subscribe(f"{manual}|{each}") for each in (LIVE, OTHER)]
    finish(either, seam.begin_add_destination(subscriptions[0], either.any_port))
    either.wait(lambda: seam.resolved_endpoint(subscriptions[0]))
    to = f"aeron:udp?endpoint={seam.resolved_endpoint(subscriptions[0])}"
    publications = [either.publish(f"{to}|{each}") for each in (LIVE, OTHER)]
    image, other = (joined(either, each) for each in subscriptions)
    either.wait(lambda: seam.is_connected(publications[0]))
    either.wait(lambda: seam.offer(publications[0], b"one") > 0)
    copy = either.subscribe(f"{manual}|{LIVE}")
    copied = joined(either, copy)
    either.wait(lambda: seam.poll_blocks(copied))  # as an archive: what is recorded has come
    if is_closed:
        for each in publications:
            each.close()
    else:
        finish(either, seam.begin_remove_destination(subscriptions[0], either.any_port))
    either.wait(lambda: seam.is_closed(other))
    late = either.subscribe(f"{manual}|{LIVE}")
    found = joined(either, late)
    assert (found.join_position, seam.is_closed(image)) == (0, False)
    assert read(found) == [b"one"]
    assert read(image) == [b"one"]
    either.wait(lambda: seam.is_closed(image) and seam.is_closed(found))
    assert seam.image(either.subscribe(f"{manual}|{LIVE}")) is None


def test_a_publication_sends_where_its_destinations_are(either: AnyWorld) -> None:
    publication, subscription = either.publish(MANUAL), either.subscribe()
    if isinstance(either, SimulatedWorld):
        seam.invoke(either.world.clients["a"])
    assert finish(either, seam.begin_add_destination(publication, either.channel)) is publication
    either.wait(lambda: seam.is_connected(publication))
    image = joined(either, subscription)
    assert finish(either, seam.begin_remove_destination(publication, either.channel)) is publication
    either.wait(lambda: seam.is_closed(image))


def test_a_destination_that_is_bound_is_refused(either: AnyWorld) -> None:
    taken = either.subscribe()
    subscription = either.subscribe(MANUAL)
    with pytest.raises(RegistrationError):
        finish(either, seam.begin_add_destination(subscription, "aeron:udp?endpoint=no.such.host.invalid:1"))
    assert not seam.is_closed(taken)


# What arrives, and when


def test_a_message_takes_the_latency() -> None:
    world = FabricWorld()
    publication, subscription = world.connected()
    assert offer(publication, b"x") == "ok"
    world.run(LATENCY - 1)
    assert read(subscription) == []
    world.run(2)
    assert read(subscription) == [b"x"]


def test_a_connection_takes_a_message_each_way() -> None:
    world = FabricWorld()
    subscription, publication = world.subscribe("b", TO_B), world.publish("a", TO_B)
    world.run(LATENCY + 1)
    assert seam.is_connected(subscription)
    assert not seam.is_connected(publication)
    world.run(LATENCY)
    assert seam.is_connected(publication)


def test_each_direction_has_its_own_latency() -> None:
    world = FabricWorld()
    world.fabric.link("b", "a", latency_ns=50 * MS, mean_latency_ns=50 * MS, both_ways=False)
    subscription, publication = world.subscribe("b", TO_B), world.publish("a", TO_B)
    assert world.run_until(lambda: seam.is_connected(subscription)) < 2 * MS
    assert 49 * MS < world.run_until(lambda: seam.is_connected(publication)) < 51 * MS


def receive(subscription: Subscription, joins: dict[int, list[Any]], limit: int) -> None:
    """Read frames of all images; those of one image follow one another without a gap."""
    for index in range(seam.image_count(subscription)):
        image = seam.image_at_index(subscription, index)
        assert image is not None
        frames = joins.setdefault(id(image), [image, image.join_position])
        for data, header in seam.poll(image, limit):
            begin = header["position"] - (header["frame_length"] + 31) // 32 * 32
            assert begin == frames[1] or begin % TERM == 0, "a gap, or a frame twice"
            assert header["session_id"] == image.session_id
            frames.append((begin, data))
            frames[1] = header["position"]


def with_faults(seed: int) -> tuple[int, int]:
    """Send to two hosts through losses, cuts and clogs; the digest of what happened, and how many frames came."""
    quick = {"image_liveness_ns": 300 * MS, "connection_timeout_ns": 150 * MS, "heartbeat_ns": 20 * MS}
    world = FabricWorld("abc", seed, latency_ns=MS // 10, mean_latency_ns=MS, status_ns=20 * MS, **quick)
    draws = Draws(seed + 1_000)
    for host in "bc":
        world.fabric.link("a", host, latency_ns=MS // 10, mean_latency_ns=MS, loss=draws.below(1, ord(host), 30) / 100)
    subscriptions = [world.subscribe(host, f"aeron:udp?endpoint={host}:1") for host in "bc"]
    publication = world.publish("a", MANUAL)
    for host in "bc":
        publication.add_destination(f"aeron:udp?endpoint={host}:1")
    sent: dict[int, bytes] = {}
    received: list[dict[int, list[Any]]] = [{}, {}]
    for step in range(600):
        length = draws.below(2, step, 4_000)
        position = publication.log.tail_position
        result = seam.offer(publication, length.to_bytes(4, "little") * (length // 4))
        if result > 0:
            for frame in publication.log.frames():
                if frame.position >= position:
                    sent[frame.position] = frame.payload
        for subscription, joins in zip(subscriptions, received, strict=True):
            if draws.happens(3, step * 2 + len(joins), 0.7):
                receive(subscription, joins, draws.below(4, step, 20))
        host = "bc"[draws.below(5, step, 2)]
        if draws.happens(6, step, 0.01):
            world.fabric.cut("a", host, both_ways=draws.happens(7, step, 0.5))
        elif draws.happens(8, step, 0.03):
            world.fabric.heal("a", host)
        elif draws.happens(9, step, 0.02):
            world.fabric.clog("a", host, world.time.now_ns + draws.below(10, step, 100 * MS))
        world.run(draws.below(11, step, 4 * MS))
    count = 0
    for joins in received:
        for _image, _end, *frames in joins.values():
            count += len(frames)
            for begin, data in frames:
                assert sent[begin] == data
    return world.trace.digest, count


@pytest.mark.parametrize("seed", range(25))
def test_what_arrives_is_what_was_sent_from_the_join_position_on(seed: int) -> None:
    assert with_faults(seed)[1] > 100


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("flow_control", ["max", "min"])
def test_all_has_arrived_a_while_after_the_last_fault(seed: int, flow_control: str) -> None:
    quick = {"image_liveness_ns": 300 * MS, "connection_timeout_ns": 150 * MS, "heartbeat_ns": 20 * MS}
    quick["status_ns"] = 20 * MS
    world, publication, subscriptions = two_receivers(f"{MANUAL}|fc={flow_control}", seed=seed, **quick)
    draws = Draws(seed)
    for host in "bc":
        world.fabric.link("a", host, latency_ns=MS // 10, mean_latency_ns=MS, loss=0.2)
    for step in range(300):
        seam.offer(publication, bytes(draws.below(1, step, 3_000)))
        host = "bc"[draws.below(2, step, 2)]
        if draws.happens(3, step, 0.02):
            world.fabric.cut("a", host)
        elif draws.happens(4, step, 0.05):
            world.fabric.heal("a", host)
        if draws.happens(5, step, 0.5):
            read(subscriptions[step % 2])
        world.run(draws.below(6, step, 3 * MS))
    world.fabric.partition(["abc"])
    for _ in range(100):
        world.run(20 * MS)
        for subscription in subscriptions:
            read(subscription)
    assert seam.is_connected(publication)
    ends = [seam.position(image_of(subscription)) for subscription in subscriptions]
    assert ends == [publication.log.tail_position] * 2


def test_the_same_seed_does_the_same_here_and_in_another_process() -> None:
    digests = [with_faults(seed)[0] for seed in (1, 2)]
    assert [with_faults(seed)[0] for seed in (1, 2)] == digests
    code = "from tests.test_fabric import with_faults\nprint(*[with_faults(seed)[0] for seed in (2, 1)])"
    root = Path(__file__).parents[1]
    environment = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": f"{root / 'src'}:{root}"}
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True, timeout=LIMIT_S
    )
    assert ended.stdout.split() == [str(digest) for digest in reversed(digests)]


def test_a_lost_message_arrives_a_round_trip_after_the_next() -> None:
    world = FabricWorld()
    publication, subscription = world.connected()
    world.run(10 * MS)
    world.fabric.cut("a", "b")
    offer(publication, b"1")
    world.run(5 * MS)
    world.fabric.heal("a", "b")
    offer(publication, b"2")
    world.run(2 * LATENCY)
    assert read(subscription) == []
    world.run(LATENCY + MS // 10)
    assert read(subscription) == [b"1", b"2"]


def test_the_last_message_is_sent_again_after_a_heartbeat() -> None:
    world = FabricWorld()
    publication, subscription = world.connected()
    world.fabric.cut("a", "b", both_ways=False)
    offer(publication, b"last")
    world.run(10 * MS)
    world.fabric.heal("a", "b")
    assert world.run_until(lambda: read(subscription) == [b"last"]) <= 104 * MS


def test_a_clog_delays_and_keeps_all() -> None:
    world = FabricWorld()
    publication, subscription = world.connected()
    end_ns = world.time.now_ns + 700 * MS
    offer(publication, b"0")
    world.fabric.clog("a", "b", end_ns)
    for index in range(1, 10):
        offer(publication, b"%d" % index)
        world.run(10 * MS)
    world.run(end_ns - world.time.now_ns - 1)
    assert read(subscription) == []
    world.run(5 * MS)
    assert read(subscription) == [b"%d" % index for index in range(10)]


# Windows and flow control


def test_reading_lets_the_sender_go_on() -> None:
    world = FabricWorld(receiver_window=8_192)
    publication, subscription = world.connected()
    while offer(publication, bytes(992)) == "ok":
        world.run(3 * MS)
    assert publication.log.tail_position == 8_192 + TERM // 2
    assert offer(publication, b"x") == "BACK_PRESSURED"
    assert len(read(subscription, 1)) == 1
    world.run(3 * MS)
    assert offer(publication, b"x") == "BACK_PRESSURED", "less than a quarter of the window is not told at once"
    assert len(read(subscription)) == 7
    world.run(LATENCY - 1)
    assert offer(publication, b"x") == "BACK_PRESSURED"
    world.run(2)
    assert offer(publication, b"x") == "ok"


def two_receivers(channel: str, **options: Any) -> tuple[FabricWorld, Any, list[Any]]:
    world = FabricWorld("abc", **options)
    publication = world.publish("a", channel)
    subscriptions = []
    for host in "bc":
        subscriptions.append(world.subscribe(host, f"aeron:udp?endpoint={host}:1"))
        publication.add_destination(f"aeron:udp?endpoint={host}:1")
    world.run(500 * MS)
    return world, publication, subscriptions


def send_and_read(world: FabricWorld, publication: Any, reader: Subscription, count: int) -> list[bytes]:
    found = []
    for index in range(count):
        while offer(publication, b"%06d" % index * 100) != "ok":
            world.run(2 * MS)
            found += read(reader)
    for _ in range(5):
        world.run(5 * MS)
        found += read(reader)
    return found


def test_a_slow_receiver_does_not_hold_the_sender_and_gets_all_when_it_reads_in_time() -> None:
    world, publication, (quick, slow) = two_receivers(MANUAL)
    assert len(send_and_read(world, publication, quick, 90)) == 90
    assert len(read(slow)) < 60, "what is beyond its window was dropped"
    world.run(500 * MS)
    assert len(read(slow)) > 30, "and was sent again"


def test_a_receiver_that_the_sender_has_left_behind_loses_its_image() -> None:
    world, publication, (quick, slow) = two_receivers(f"{MANUAL}|fc=max")
    image = image_of(slow)
    assert len(send_and_read(world, publication, quick, 1_000)) == 1_000
    assert publication.log.tail_position > 9 * TERM
    world.run(11 * S)
    assert not seam.is_closed(image), "it has not read what came"
    read(slow)
    world.run_until(lambda: seam.is_closed(image))
    assert seam.is_connected(publication)
    assert world.run_until(lambda: seam.is_connected(slow)) > 9 * S, "the same session comes back after a while"
    assert image_of(slow).join_position == publication.log.tail_position


def test_the_slowest_receiver_holds_a_sender_that_asks_for_it() -> None:
    world, publication, (quick, slow) = two_receivers(f"{MANUAL}|fc=min")
    while offer(publication, bytes(992)) == "ok":
        world.run(2 * MS)
        read(quick)
    assert publication.log.tail_position == TERM
    read(slow)
    world.run(5 * MS)
    assert offer(publication, b"x") == "ok"
    slow.close()
    world.run(5 * MS)
    sent = publication.log.tail_position
    assert len(send_and_read(world, publication, quick, 200)) >= 200
    assert publication.log.tail_position > sent + TERM


def test_a_destination_comes_and_goes() -> None:
    world = FabricWorld("abc")
    publication = world.publish("a", MANUAL)
    b, c = (world.subscribe(host, f"aeron:udp?endpoint={host}:1") for host in "bc")
    world.run(S)
    assert not seam.is_connected(publication)
    publication.add_destination("aeron:udp?endpoint=b:1")
    world.run(3 * MS)
    offer(publication, b"b only")
    world.run(3 * MS)
    publication.add_destination("aeron:udp?endpoint=c:1")
    world.run(3 * MS)
    assert image_of(c).join_position == 64
    publication.remove_destination("aeron:udp?endpoint=b:1")
    offer(publication, b"c only")
    world.run(3 * MS)
    assert (read(b), read(c)) == ([b"b only"], [b"c only"])


def test_a_subscription_receives_one_image_from_two_destinations() -> None:
    world = FabricWorld("abc")
    subscription = world.subscribe("b", f"{MANUAL}|session-id=7")
    subscription.add_destination("aeron:udp?endpoint=b:1")
    old = world.publish("a", "aeron:udp?endpoint=b:1|session-id=7")
    world.run(3 * MS)
    offer(old, b"1")
    world.run(3 * MS)
    subscription.add_destination("aeron:udp?endpoint=b:2")
    at_64 = "init-term-id=11|term-id=11|term-offset=64"
    live = world.publish("c", f"aeron:udp?endpoint=b:2|session-id=7|{at_64}")
    world.run(3 * MS)
    offer(live, b"2")
    world.run(3 * MS)
    old.close()
    world.run(S)
    assert seam.end_of_stream_position(image_of(subscription)) == 2**63 - 1, "the other goes on"
    subscription.remove_destination("aeron:udp?endpoint=b:1")
    assert seam.image_count(subscription) == 1
    assert read(subscription) == [b"1", b"2"]


def test_a_dynamic_destination_is_whoever_asks() -> None:
    world = FabricWorld("abc")
    publication = world.publish("a", "aeron:udp?control=a:9|control-mode=dynamic")
    subscriptions = [world.subscribe(host, "aeron:udp?control=a:9|control-mode=dynamic") for host in "bc"]
    world.run(200 * MS)
    offer(publication, b"x")
    world.run(5 * MS)
    assert [read(subscription) for subscription in subscriptions] == [[b"x"], [b"x"]]


# Faults


def test_images_and_connections_end_after_a_cut_and_come_back_elsewhere() -> None:
    world = FabricWorld()
    publication, subscription = world.connected()
    keeping = world.subscribe("b", f"{TO_B}|rejoin=false")
    offer(publication, b"1")
    world.run(5 * MS)
    assert read(subscription) == read(keeping) == [b"1"]
    world.fabric.cut("a", "b")
    assert 4 * S < world.run_until(lambda: not seam.is_connected(publication)) < 6 * S
    assert offer(publication, b"2") == "NOT_CONNECTED"
    assert seam.image_count(subscription) == 1
    world.run_until(lambda: seam.image_count(subscription) == 0)
    assert 9 * S < world.time.now_ns < 11 * S
    world.fabric.heal("a", "b")
    world.run_until(lambda: seam.is_connected(publication))
    assert image_of(subscription).join_position == 64
    assert seam.image_count(keeping) == 0


def test_messages_between_two_images_are_lost() -> None:
    world = FabricWorld()
    publication, subscription = world.connected()
    world.fabric.cut("a", "b")
    offer(publication, b"lost")
    world.run(21 * S)
    world.fabric.heal("a", "b")
    world.run(S)
    offer(publication, b"found")
    world.run(5 * MS)
    assert read(subscription) == [b"found"]


def test_a_stream_does_not_end_before_its_last_frame() -> None:
    world = FabricWorld()
    publication, subscription = world.connected()
    image = image_of(subscription)
    world.fabric.cut("b", "a", both_ways=False)
    while offer(publication, bytes(992)) == "ok":
        world.run(MS)
    world.run(6 * S)
    assert not seam.is_connected(publication)
    publication.close()
    world.run(S)
    assert len(read(subscription)) == 32
    assert seam.end_of_stream_position(image) == 2**63 - 1
    world.run_until(lambda: seam.is_closed(image))
    assert not seam.is_end_of_stream(image)


def test_a_short_cut_changes_nothing() -> None:
    world = FabricWorld()
    publication, subscription = world.connected()
    image = image_of(subscription)
    world.fabric.partition(["a", "b"])
    offer(publication, b"1")
    world.run(4 * S)
    world.fabric.partition(["ab"])
    world.run(S)
    assert read(subscription) == [b"1"]
    assert image_of(subscription) is image
    assert seam.is_connected(publication)


def test_a_host_that_dies_says_nothing_and_can_be_started_again() -> None:
    world = FabricWorld()
    publication, subscription = world.connected()
    world.drivers["a"].kill()
    world.run(S)
    assert seam.image_count(subscription) == 1
    assert world.run_until(lambda: seam.image_count(subscription) == 0) > 8 * S
    world.clients["a"] = world.fabric.host("a").connect()
    again = world.publish("a", TO_B)
    assert again.session_id != publication.session_id
    world.run_until(lambda: seam.is_connected(again))
    assert image_of(subscription).session_id == again.session_id


def test_a_severed_client_stays_until_its_driver_notices() -> None:
    world = FabricWorld()
    publication, subscription = world.connected()
    counter = seam.add_counter(world.clients["a"], 1000, b"", "left")
    seam.set_counter(counter, 5)
    read(subscription)
    world.fabric.sever(world.clients["a"])
    publication.close()
    counter.close()
    assert offer(publication, b"x") == "CLOSED"
    with pytest.raises(ClosedError):
        world.publish("a", TO_B)
    world.run(9 * S)
    assert seam.image_count(subscription) == 1
    record = seam.counter_record(world.drivers["a"].counters, counter.counter_id)
    assert (record["state"], record["value"]) == (1, 5)
    world.run_until(lambda: seam.image_count(subscription) == 0, 2 * S)
    assert seam.counter_record(world.drivers["a"].counters, counter.counter_id)["state"] == -1
    assert world.drivers["a"].open_resources() == []


def test_a_severed_subscriber_holds_its_publisher() -> None:
    world = FabricWorld(client_liveness_ns=3 * S)
    publication, _subscription = world.connected()
    world.fabric.sever(world.clients["b"])
    while offer(publication, bytes(992)) == "ok":
        world.run(MS)
    assert offer(publication, b"x") == "BACK_PRESSURED"
    world.run(3 * S)
    assert offer(publication, b"x") == "NOT_CONNECTED"


@pytest.mark.parametrize(("channel", "host"), [(TO_B, "b"), ("aeron:ipc", "a")])
def test_an_open_claim_of_a_severed_client_blocks_its_stream_and_becomes_padding(channel: str, host: str) -> None:
    world = FabricWorld()
    other = world.drivers["a"].connect()
    mine, theirs = (seam.add_publication(client, channel, 1) for client in (world.clients["a"], other))
    reader = world.drivers[host].connect()
    subscription = seam.add_subscription(reader, channel, 1)
    world.run(500 * MS)
    claim = seam.claim(mine, 4)
    assert isinstance(claim, seam.OpenClaim)
    world.fabric.sever(world.clients["a"])
    assert seam.offer(theirs, b"behind it") > 0
    world.run(14 * S)
    assert read(subscription) == []
    assert 0 < world.run_until(lambda: read(subscription) == [b"behind it"]) < 2 * S


def test_an_open_claim_ends_with_its_publication() -> None:
    world = FabricWorld()
    publication, subscription = world.connected()
    assert isinstance(seam.claim(publication, 4), seam.OpenClaim)
    world.fabric.sever(world.clients["a"])
    image = image_of(subscription)
    world.run_until(lambda: seam.end_of_stream_position(image) == 64)
    assert read(image) == []


# Inside a host


def test_ipc_and_spies_stay_inside_their_host() -> None:
    world = FabricWorld()
    publication, subscription = world.connected()
    spies = [world.subscribe(host, f"aeron-spy:{TO_B}") for host in "ab"]
    ipc = [world.subscribe(host, "aeron:ipc", 2) for host in "ab"]
    local = world.publish("a", "aeron:ipc", 2)
    assert offer(publication, b"udp") == offer(local, b"ipc") == "ok"
    assert [read(spy) for spy in spies] == [[b"udp"], []]
    assert [read(each) for each in ipc] == [[b"ipc"], []]
    world.run(5 * MS)
    assert read(subscription) == [b"udp"]


def test_a_spy_does_not_connect_a_publication_unless_it_says_so() -> None:
    world = FabricWorld()
    plain, simulating = world.publish("a", MANUAL), world.publish("a", f"{MANUAL}|ssc=true|tags=5")
    world.subscribe("a", f"aeron-spy:{MANUAL}")
    spy = world.subscribe("a", "aeron-spy:aeron:udp?tags=5")
    assert offer(plain, b"x") == "NOT_CONNECTED"
    count = 0
    for _ in range(300):
        count += offer(simulating, bytes(992)) == "ok"
        read(spy)
        world.run(10 * MS)
    assert count > 250
    while offer(simulating, bytes(992)) == "ok":
        pass
    assert offer(simulating, b"x") == "BACK_PRESSURED"


def test_a_spy_that_does_not_read_holds_its_publication() -> None:
    world = FabricWorld()
    publication, subscription = world.connected()
    spy = world.subscribe("a", f"aeron-spy:{TO_B}")
    for _ in range(100):
        offer(publication, bytes(992))
        world.run(3 * MS)
        read(subscription)
    assert publication.log.tail_position == TERM // 2
    assert len(read(spy)) == 32
    assert offer(publication, b"x") == "ok"


def test_udp_between_clients_of_one_host_goes_over_loopback() -> None:
    world = FabricWorld("a")
    subscription = world.subscribe("a", "aeron:udp?endpoint=localhost:1")
    publication = world.publish("a", "aeron:udp?endpoint=a:1")
    assert world.run_until(lambda: seam.is_connected(publication)) < MS
    offer(publication, b"x")
    world.run(MS)
    assert read(subscription) == [b"x"]


def test_a_subscription_attaches_to_an_endpoint_by_its_tag() -> None:
    world = FabricWorld()
    first = world.subscribe("b", f"{TO_B}|tags=3")
    second = world.subscribe("b", "aeron:udp?tags=3")
    publication = world.publish("a", TO_B)
    world.run(5 * MS)
    offer(publication, b"x")
    world.run(5 * MS)
    assert read(first) == read(second) == [b"x"]
    first.close()
    second.close()
    world.subscribe("b", TO_B)


def test_port_0_binds_a_free_port() -> None:
    world = FabricWorld()
    endpoints = []
    for host in "ba":
        subscription = world.subscribe("b", "aeron:udp?endpoint=b:0")
        endpoints.append(seam.resolved_endpoint(subscription))
        publication = world.publish(host, f"aeron:udp?endpoint={endpoints[-1]}")
        world.run(5 * MS)
        assert seam.is_connected(publication)
    assert len(set(endpoints)) == 2


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (lambda world: world.subscribe("a", TO_B), "cannot bind b:1: this is host 'a'"),
        (lambda world: world.publish("a", "aeron:udp?control=b:1|control-mode=dynamic"), "cannot bind b:1"),
        (lambda world: world.publish("a", f"{TO_B}|fc=tagged,g:1"), "flow control 'tagged' is not simulated"),
        (lambda world: world.publish("a", TO_B).add_destination(TO_B), "needs control-mode=manual"),
        (lambda world: world.publish("a", MANUAL).add_destination(MANUAL), "destination an endpoint"),
    ],
)
def test_what_a_host_refuses_is_named(act: Callable[[FabricWorld], object], text: str) -> None:
    with pytest.raises(RegistrationError, match=text):
        act(FabricWorld())


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (lambda fabric: fabric.host("a"), "host 'a' is up"),
        (lambda fabric: fabric.host("a:1"), "without a colon"),
        (lambda fabric: fabric.link("a", "b", latency_ns=2, mean_latency_ns=1), "mean_latency_ns=1"),
        (lambda fabric: fabric.link("a", "b", latency_ns=1, mean_latency_ns=1, loss=1.0), "loss=1.0"),
    ],
)
def test_what_the_fabric_refuses_is_named(act: Callable[[Fabric], object], text: str) -> None:
    world = FabricWorld()
    with pytest.raises(ConfigurationError, match=text):
        act(world.fabric)


@pytest.mark.parametrize(
    ("options", "text"),
    [({"receiver_window": -1}, "receiver_window is -1"), ({"linger_ns": 0}, "not positive")],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], text: str) -> None:
    draws = Draws(1)
    with pytest.raises(ConfigurationError, match=text):
        Fabric(Scheduler(VirtualTime(), draws), draws, **options)


def test_news_wake_a_host() -> None:
    world = FabricWorld()
    woken: list[int] = []
    driver = world.fabric.host("c", wake=lambda: woken.append(world.time.now_ns))
    seam.add_subscription(driver.connect(), "aeron:udp?endpoint=c:1", 1)
    publication = world.publish("a", "aeron:udp?endpoint=c:1")
    world.run_until(lambda: seam.is_connected(publication))
    assert len(woken) == 1
    offer(publication, b"x")
    world.run(5 * MS)
    assert len(woken) == 2


def test_what_is_read_wakes_a_host_whose_publication_waits_for_it_alone() -> None:
    world = FabricWorld()
    woken: list[int] = []
    driver = world.fabric.host("c", wake=lambda: woken.append(world.time.now_ns))
    publication = seam.add_publication(driver.connect(), TO_B, 1, exclusive=True)
    subscription = world.subscribe("b", TO_B)
    world.run_until(lambda: seam.is_connected(publication))
    world.run(50 * MS)
    woken.clear()
    for _ in range(20):
        assert seam.offer(publication, bytes(1000)) > 0
        world.run(10 * MS)
        assert read(subscription)
    world.run(50 * MS)
    assert woken == []
    for _ in range(3):  # what is sent makes room as well
        while offer(publication, bytes(1000)) != "BACK_PRESSURED":
            assert seam.position(publication) < 3 * TERM, "it is never held up"
        world.run(50 * MS)
    assert offer(publication, bytes(1000)) == "BACK_PRESSURED"
    woken.clear()
    while read(subscription):
        world.run(10 * MS)
    assert woken
    assert offer(publication, bytes(1000)) == "ok"


# The production client


def test_the_cluster_client_talks_to_a_member_on_another_host() -> None:
    world = FabricWorld("")
    members = world.fabric.host("node0")
    member = IngressMember(members, 0, "aeron:udp?endpoint=node0:9010")
    asked: list[dict[str, Any]] = []

    def on_connect(request: dict[str, Any]) -> None:
        if not asked:
            member.connect_egress(request)
        asked.append(request)

    member.hooks["SessionConnectRequest"] = on_connect

    def step() -> None:
        world.run(MS)
        members.conduct()
        if asked and member.egress is not None and seam.is_connected(member.egress) and asked[0]:
            member.session_event(asked[0]["correlation_id"], OK)
            asked[0] = {}

    listener = Collecting()
    client = AeronCluster.connect(
        ClientContext(
            ingress_channel="aeron:udp",
            ingress_endpoints="0=node0:9010",
            egress_channel="aeron:udp?endpoint=client:0",
            client=world.fabric.host("client").connect(),
            listener=listener,
            idle_strategy=SteppingIdleStrategy(step),
        )
    )
    begin_ns = world.time.now_ns
    client.send(b"question")
    while not member.payloads():
        step()
    member.message(b"answer")
    while not listener.messages:
        step()
        client.poll_egress()
    assert member.payloads() == [b"question"]
    assert listener.messages == [b"answer"]
    assert 2 * LATENCY <= world.time.now_ns - begin_ns < 6 * LATENCY
