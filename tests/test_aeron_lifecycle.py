"""The ends of the real transport: closing in any order, from handlers and threads, a dead driver, forks, leaks."""

from __future__ import annotations

import gc
import subprocess
import sys
import sysconfig
import threading
import weakref
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from container.aeron import AeronClient, MediaDriver
from container.aeron.resources import AeronCounter, AeronImage, AeronPublication, AeronSubscription
from container.errors import ClosedError, ConfigurationError
from container.testing.memory import transport_probe as probe
from tests.aeron_session import IPC, Stream, connect, until
from tests.limits import LIMIT_S
from tests.resources import mappings

TERM_LENGTH = 64 * 1024
CLOSED = -4


def launch() -> MediaDriver:
    return MediaDriver.launch_embedded(
        ipc_term_buffer_length=TERM_LENGTH,
        publication_linger_timeout_ns=50_000_000,
        timer_interval_ns=20_000_000,
    )


@pytest.fixture(scope="module")
def driver() -> Iterator[MediaDriver]:
    with launch() as driver:
        yield driver


@pytest.fixture(params=["invoker", "own thread"])
def client(driver: MediaDriver, request: pytest.FixtureRequest) -> Iterator[AeronClient]:
    with AeronClient(driver.aeron_dir, use_invoker=request.param == "invoker") as client:
        yield client


def use_everything(stream: Stream) -> None:
    """Call each method once; on closed objects each returns or raises ClosedError."""
    publication, subscription, image = stream.publication, stream.subscription, stream.image
    client = stream.client
    for call in (
        lambda: probe.offer(publication, b"x"),
        lambda: probe.offer(publication, b""),
        lambda: probe.offer_vectors(publication, [b"x", b"y"]),
        lambda: probe.offer_vectors(publication, []),
        lambda: probe.try_claim(publication, b"x"),
        lambda: probe.poll(image),
        lambda: probe.poll(image, limit_position=1 << 40),
        lambda: probe.poll(subscription),
        lambda: probe.image(subscription),
        lambda: probe.image(subscription, image.session_id),
        lambda: probe.image_at_index(subscription, 0),
        lambda: probe.image_count(subscription),
        lambda: probe.resolved_endpoint(subscription),
        lambda: probe.take_new_image(subscription),
        lambda: probe.poll_blocks(image),
        lambda: probe.active_transport_count(image),
        lambda: probe.available_window(publication),
        lambda: probe.end_of_stream_position(image),
        lambda: probe.is_end_of_stream(image),
        lambda: [probe.position(each) for each in (image, publication)],
        lambda: [probe.is_connected(each) for each in (subscription, publication)],
        lambda: [probe.is_closed(each) for each in (image, subscription, publication, client)],
        lambda: [repr(each) for each in (image, subscription, publication, client)],
        lambda: probe.invoke(client),
        lambda: probe.client_id(client),
        lambda: probe.nano_time(client),
        lambda: probe.counters(client).read(),
        lambda: probe.counter_record(probe.counters(client), 0),
        lambda: probe.remove_listener(client, probe.RecordingListener()),
    ):
        call()
    for refused in (
        lambda: probe.next_correlation_id(client),
        lambda: probe.next_session_id(client, 1001),
        lambda: probe.add_publication(client, IPC, 1001),
        lambda: probe.add_publication(client, IPC, 1001, exclusive=True),
        lambda: probe.add_subscription(client, IPC, 1001),
        lambda: probe.add_counter(client, 1101),
        lambda: probe.begin_add_counter(client, 1101),
        lambda: probe.begin_add_subscription(client, IPC, 1001, queues_images=True),
        lambda: probe.add_listener(client, probe.RecordingListener()),
    ):
        if client.is_closed():
            with pytest.raises(ClosedError, match="client of .* is closed"):
                refused()
        else:
            refused()


def assert_closed(stream: Stream) -> None:
    """Everything of a stream answers as closed."""
    assert probe.is_closed(stream.publication)
    assert probe.offer(stream.publication, b"x") == CLOSED
    assert probe.offer_vectors(stream.publication, [b"x"]) == CLOSED
    assert probe.try_claim(stream.publication, b"x") == CLOSED
    assert probe.position(stream.publication) == CLOSED
    assert probe.available_window(stream.publication) == CLOSED
    assert not probe.is_connected(stream.publication)
    assert probe.is_closed(stream.subscription)
    assert not probe.is_connected(stream.subscription)
    assert probe.image_count(stream.subscription) == 0
    assert probe.image(stream.subscription, stream.image.session_id) is None
    assert probe.poll(stream.subscription) == []
    assert probe.is_closed(stream.image)
    assert probe.poll(stream.image) == []
    assert probe.poll_blocks(stream.image) == b""
    assert probe.take_new_image(stream.subscription) is None
    assert probe.active_transport_count(stream.image) == 0
    assert stream.image.reject("it is closed") == 0
    for owner in (stream.publication, stream.subscription):
        with pytest.raises(ClosedError, match="destination"):
            probe.begin_add_destination(owner, "aeron:udp?endpoint=localhost:20124")


def test_what_is_closed_answers_so_and_can_be_closed_again(client: AeronClient) -> None:
    stream = connect(client)
    counter = probe.add_counter(client, 1101)
    stream.offer(b"1")
    stream.receive(1)
    stream.offer(b"2")
    for _ in range(2):
        stream.publication.close()
        stream.subscription.close()
        counter.close()
    assert_closed(stream)
    use_everything(stream)
    assert probe.position(stream.image) == 64
    assert counter.value == -1
    probe.set_counter(counter, 5)
    probe.increment_counter(counter)
    probe.propose_max_counter(counter, 9)
    assert counter.value == -1
    assert not client.is_closed()


def test_closing_the_client_closes_what_it_added(client: AeronClient) -> None:
    streams = [connect(client), connect(client, exclusive=True)]
    counter = probe.add_counter(client, 1101)
    counters = probe.counters(client)
    assert counters.read()
    client.close()
    client.close()
    for stream in streams:
        assert_closed(stream)
        use_everything(stream)
    assert counter.value == -1
    assert counters.read() == []
    assert probe.counter_capacity(counters) == 0
    for closable in (stream.publication, stream.subscription, counter, client):
        closable.close()


def test_an_image_keeps_what_it_said_last_when_its_client_is_closed(client: AeronClient) -> None:
    stream = connect(client)
    stream.offer(b"1")
    stream.offer(b"2")
    stream.receive(1)
    client.close()
    assert probe.position(stream.image) == 64
    # The publication was closed as well, which the image may have heard before it was given up.
    assert probe.end_of_stream_position(stream.image) in (128, (1 << 63) - 1)
    assert not probe.is_end_of_stream(stream.image)


def test_a_stream_can_be_subscribed_to_again_while_an_image_of_the_first_time_is_held(
    client: AeronClient,
) -> None:
    stream = connect(client)
    images = [stream.image]
    for number in range(10):
        stream.subscription.close()
        stream = connect(client, stream_id=stream.publication.stream_id)
        images.append(stream.image)
        stream.offer(b"%d" % number)
        until(client, lambda: stream.receive(1) == [b"%d" % number], "the latest message")  # noqa: B023
    assert len({id(image) for image in images}) == 11
    assert [probe.is_closed(image) for image in images] == [True] * 10 + [False]


def test_resources_are_closed_when_they_are_garbage(client: AeronClient) -> None:
    stream = connect(client)
    watcher = probe.RecordingListener()
    probe.add_listener(client, watcher)
    counter = probe.add_counter(client, 1101)
    gone = (counter.registration_id, counter.counter_id)
    del counter
    until(client, lambda: gone in watcher.unavailable, "the garbage counter to be unavailable")
    image, publication = stream.image, stream.publication
    del stream
    gc.collect()
    # An image keeps its subscription open.
    assert probe.offer(publication, b"x") > 0
    assert [data for data, _ in probe.poll(image)] == [b"x"]
    del image
    gc.collect()
    until(client, lambda: not probe.is_connected(publication), "the garbage subscription to be gone")


@pytest.mark.parametrize("kind", [AeronPublication, AeronSubscription, AeronImage, AeronCounter])
def test_only_a_client_makes_its_resources(kind: type) -> None:
    with pytest.raises(TypeError, match="only the package makes these objects"):
        kind()


def test_a_client_is_initialised_once(driver: MediaDriver) -> None:
    with AeronClient(driver.aeron_dir) as client:
        with pytest.raises(TypeError, match="takes exactly one argument"):
            client.__init__(driver.aeron_dir)
        assert not client.is_closed()


def test_a_client_that_is_not_closed_complains_and_is_closed(driver: MediaDriver) -> None:
    leaked: list[weakref.ref[AeronClient]] = []

    def leak() -> None:
        leaked.append(weakref.ref(AeronClient(driver.aeron_dir)))

    with pytest.warns(ResourceWarning, match="unclosed Aeron client of"):
        leak()
    assert leaked[0]() is None


# From handlers and other threads


@pytest.mark.parametrize("polled", ["image", "subscription"])
@pytest.mark.parametrize("closed", ["subscription", "publication", "client"])
def test_a_handler_may_close_what_it_is_called_from(client: AeronClient, polled: str, closed: str) -> None:
    stream = connect(client)
    for _ in range(5):
        stream.offer(b"message" * 100)
    received: list[bytes] = []

    def close(data: bytes, header: probe.HeaderFields) -> None:
        if not received:
            getattr(stream, closed).close()
            assert probe.is_closed(getattr(stream, closed))
            for _ in range(10):
                probe.invoke(client)
        received.append(data)

    source = stream.image if polled == "image" else stream.subscription
    probe.poll(source, 10, action=close)
    # The frames of the poll stay where they are until it is over.
    assert received == [b"message" * 100] * 5
    assert probe.is_closed(getattr(stream, closed))
    use_everything(stream)


@pytest.mark.parametrize("closed", ["subscription", "publication", "client"])
def test_a_block_handler_may_close_what_it_is_called_from(client: AeronClient, closed: str) -> None:
    stream = connect(client, exclusive=True)
    for _ in range(5):
        stream.offer(b"message" * 100)

    def close(block: bytes) -> None:
        getattr(stream, closed).close()
        assert probe.is_closed(getattr(stream, closed))
        for _ in range(10):
            probe.invoke(client)

    handler = probe.CollectingBlocks(close)
    assert probe.poll_blocks(stream.image, 1 << 20, handler) == 5 * 736
    assert handler.blocks[0][0].count(b"message" * 100) == 5
    assert probe.is_closed(getattr(stream, closed))
    use_everything(stream)


def test_images_that_nobody_takes_are_forgotten_with_their_subscription(client: AeronClient) -> None:
    for number in range(50):
        adding = probe.begin_add_subscription(client, IPC, 1050, queues_images=True)
        subscription = until(client, partial(probe.poll_add, adding), "a subscription")
        assert isinstance(subscription, AeronSubscription)
        publication = probe.add_publication(client, IPC, 1050, exclusive=True)
        if number % 2:
            until(client, partial(probe.image, subscription), "an image")
        subscription.close()
        publication.close()
        assert probe.take_new_image(subscription) is None


def test_a_handler_may_drop_the_last_reference_to_the_subscription(client: AeronClient) -> None:
    stream = connect(client)
    stream.offer(b"message")
    sources = [stream.image]
    del stream

    def drop(data: bytes, header: probe.HeaderFields) -> None:
        sources.clear()
        gc.collect()
        probe.invoke(client)

    assert [data for data, _ in probe.poll(sources[0], action=drop)] == [b"message"]


def test_a_poll_survives_the_end_of_another_image_while_its_handler_invokes_the_client(
    client: AeronClient,
) -> None:
    stream = connect(client, exclusive=True)
    other = probe.add_publication(client, IPC, stream.publication.stream_id, exclusive=True)
    until(client, lambda: probe.image_count(stream.subscription) == 2, "the second image")
    for _ in range(5):
        stream.offer(b"message" * 100)

    def end_the_other(data: bytes, header: probe.HeaderFields) -> None:
        other.close()
        # What C's own poll of a subscription walks along is freed by this.
        until(client, lambda: probe.image_count(stream.subscription) == 1, "the second image to be gone")
        for _ in range(100):
            assert probe.is_connected(stream.subscription)
            probe.invoke(client)

    polls = [probe.poll(stream.subscription, 10, action=end_the_other) for _ in range(2)]
    assert [data for poll in polls for data, _ in poll] == [b"message" * 100] * 5


@pytest.mark.parametrize("use_invoker", [True, False], ids=["invoker", "own thread"])
def test_an_error_handler_may_close_the_client(use_invoker: bool) -> None:
    clients: list[AeronClient] = []

    def close(error: Exception) -> None:
        clients[0].close()

    with launch() as driver:
        client = AeronClient(driver.aeron_dir, use_invoker=use_invoker, keepalive_interval_ms=10, error_handler=close)
        clients.append(client)
        stream = connect(client)
    with client:
        until(client, client.is_closed, "the client to be closed by its error handler")
        assert_closed(stream)
        use_everything(stream)
    assert mappings_left(driver.aeron_dir) == 0


def test_another_thread_may_close_the_client_during_an_add() -> None:
    found = ""
    # On a busy machine the close may come before the add has begun: a later one does not.
    for delay_s in (0.02, 0.2, 2.0, 10.0):
        with launch() as driver:
            client = AeronClient(driver.aeron_dir, keepalive_interval_ms=3_600_000)
        # The driver is gone and the client has not noticed: an add waits for an answer.
        closer = threading.Timer(delay_s, client.close)
        closer.start()
        with client, pytest.raises(ClosedError, match=r"cannot add ") as caught:
            probe.add_subscription(client, IPC, 1001)
        closer.join(LIMIT_S)
        assert not closer.is_alive()
        found = str(caught.value)
        if "was closed meanwhile" in found:
            break
    assert "was closed meanwhile" in found


def test_two_clients_of_a_process_have_nothing_in_common(driver: MediaDriver) -> None:
    with AeronClient(driver.aeron_dir) as one, AeronClient(driver.aeron_dir, use_invoker=False) as other:
        assert probe.is_invoker(one)
        assert not probe.is_invoker(other)
        assert probe.client_id(one) != probe.client_id(other)
        publication = probe.add_publication(one, IPC, 1010)
        subscription = probe.add_subscription(other, IPC, 1010)
        image = until(one, lambda: probe.image(subscription), "an image")
        until(one, lambda: probe.offer(publication, b"across") > 0, "an offer to be taken")
        ((data, _),) = until(one, lambda: probe.poll(image), "the message")
        assert data == b"across"
        one.close()
        assert probe.is_closed(publication)
        assert not probe.is_closed(subscription)
        until(other, lambda: probe.is_closed(image), "the image to be closed")


# A dead driver


@pytest.mark.parametrize("use_invoker", [True, False], ids=["invoker", "own thread"])
def test_after_the_drivers_death_the_client_is_closed_and_every_call_is_safe(use_invoker: bool) -> None:
    errors: list[Exception] = []
    listener = probe.RecordingListener()
    with launch() as driver:
        client = AeronClient(
            driver.aeron_dir, use_invoker=use_invoker, keepalive_interval_ms=10, error_handler=errors.append
        )
        stream = connect(client)
        counter = probe.add_counter(client, 1101)
        probe.add_listener(client, listener)
        stream.offer(b"x")
        claim = probe.claim(stream.publication, 5)
        assert isinstance(claim, probe.OpenClaim)
    with client:
        until(client, client.is_closed, "the client to find that the driver is gone")
        until(client, lambda: listener.close_count, "the listener to be told")
        assert_closed(stream)
        use_everything(stream)
        claim.commit()
        probe.increment_counter(counter)
        assert counter.value == 1
        stream.publication.close()
        stream.subscription.close()
        counter.close()
        use_everything(stream)
    assert listener.close_count == 1
    until(client, lambda: errors, "the error to be reported")
    assert len(errors) == 1


def test_a_driver_that_stops_without_a_word_is_missed_after_the_driver_timeout(tmp_path: Path) -> None:
    code = (
        "import sys; from container.aeron import MediaDriver\n"
        f"driver = MediaDriver.launch_embedded({str(tmp_path / 'driver')!r})\n"
        "print('up', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    errors: list[Exception] = []
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        client = AeronClient(
            tmp_path / "driver", driver_timeout_ms=2000, keepalive_interval_ms=20, error_handler=errors.append
        )
        with client:
            stream = connect(client)
            process.kill()
            process.wait(LIMIT_S)
            assert not client.is_closed()
            until(client, client.is_closed, "the client to find that the driver is gone")
            assert_closed(stream)
            use_everything(stream)
        (error,) = errors
        assert "keepalive: age=" in str(error)
    finally:
        process.kill()
        process.communicate(timeout=LIMIT_S)


def test_a_client_whose_keepalive_interval_is_too_long_is_closed() -> None:
    errors: list[Exception] = []
    with (
        MediaDriver.launch_embedded(client_liveness_timeout_ns=100_000_000, timer_interval_ns=20_000_000) as driver,
        AeronClient(driver.aeron_dir, keepalive_interval_ms=3_600_000, error_handler=errors.append) as client,
        AeronClient(driver.aeron_dir, use_invoker=False, keepalive_interval_ms=20) as witness,
    ):
        stream = connect(client)
        listener = probe.RecordingListener()
        probe.add_listener(witness, listener)
        until(witness, lambda: listener.unavailable, "the driver to give the silent client up")
        until(client, client.is_closed, "the client to find that it was given up")
        use_everything(stream)
        assert not witness.is_closed()
    texts = ("service interval exceeded", "client timeout from driver", "heartbeat timestamp counter")
    assert errors
    assert all(any(text in str(error) for text in texts) for error in errors)


# Processes


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        timeout=LIMIT_S,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("use_invoker", [True, False])
def test_a_process_that_ends_without_closing_leaves_nothing_behind(use_invoker: bool) -> None:
    result = run(
        "from container.aeron import AeronClient, MediaDriver\n"
        "from tests.aeron_session import connect\n"
        "driver = MediaDriver.launch_embedded()\n"
        f"client = AeronClient(driver.aeron_dir, use_invoker={use_invoker})\n"
        "stream = connect(client)\n"
        "print(driver.aeron_dir)"
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert not Path(result.stdout.strip()).exists()


@pytest.mark.parametrize("use_invoker", [True, False])
def test_a_forked_child_neither_uses_nor_closes_its_parents_client(use_invoker: bool) -> None:
    result = run(
        "import gc, os, warnings\n"
        "from container.aeron import AeronClient, MediaDriver\n"
        "from container.testing.memory import transport_probe as probe\n"
        "from tests.aeron_session import connect\n"
        "warnings.simplefilter('ignore', DeprecationWarning)\n"
        "driver = MediaDriver.launch_embedded()\n"
        f"client = AeronClient(driver.aeron_dir, use_invoker={use_invoker})\n"
        "stream = connect(client)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try:\n"
        "        probe.add_subscription(client, 'aeron:ipc', 5)\n"
        "    except Exception as error:\n"
        "        print(error, flush=True)\n"
        "    stream.publication.close(); client.close(); driver.close()\n"
        "    del stream, client, driver; gc.collect()\n"
        "    raise SystemExit(7)\n"
        "_, status = os.waitpid(child, 0)\n"
        "stream.offer(b'still here')\n"
        "print(os.waitstatus_to_exitcode(status), stream.receive(1))\n"
        "client.close(); driver.close()"
    )
    assert (result.returncode, result.stderr) == (0, "")
    refused, survived = result.stdout.splitlines()
    assert "cannot be used in its forked child, process " in refused
    assert "Make a new one in the child, or start the child by spawn instead of fork" in refused
    assert survived == "7 [b'still here']"


@pytest.mark.filterwarnings("ignore:unclosed Aeron client:ResourceWarning")
@pytest.mark.parametrize("with_stream", [False, True])
def test_a_client_in_a_cycle_of_garbage_is_closed(driver: MediaDriver, *, with_stream: bool) -> None:
    """The collector empties what the client knows its resources by before it comes to the client."""
    client = AeronClient(driver.aeron_dir)
    gone = weakref.ref(client)
    cycle: list[object] = [client]
    if with_stream:
        cycle.append(connect(client))
    cycle.append(cycle)
    del client, cycle
    gc.collect()
    assert gone() is None


def mappings_left(aeron_dir: str) -> int:
    """How many of a driver's files are mapped; without the GIL a client's object keeps the counters to the end."""
    without_gil = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    return mappings(aeron_dir) - (mappings(f"{aeron_dir}/cnc.dat") if without_gil else 0)


def usage() -> tuple[int, int, int]:
    """Open files, mappings of Aeron's files, and threads of this process."""
    files, threads = (len(list(Path("/proc/self", name).iterdir())) for name in ("fd", "task"))
    return files, mappings("/aeron-embedded-"), threads


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts files and mappings in /proc")
def test_two_hundred_clients_leave_no_file_mapping_or_thread(driver: MediaDriver) -> None:
    def cycle(number: int) -> None:
        client = AeronClient(driver.aeron_dir, use_invoker=number % 5 != 0)
        stream = connect(client)
        stream.offer(b"x")
        assert stream.receive(1) == [b"x"]
        probe.add_counter(client, 1101).close()
        if number % 3 == 0:
            stream.subscription.close()
            stream.publication.close()
        client.close()

    with AeronClient(driver.aeron_dir) as patient:
        # The driver, in this process too, unmaps the logs of a client that is gone some time later.
        def settled() -> tuple[int, int, int]:
            gc.collect()
            until(patient, lambda: mappings(".logbuffer") == 0, "the driver to free all logs")
            return usage()

        cycle(0)
        before = settled()
        for number in range(200):
            cycle(number)
        assert settled() == before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts files and mappings in /proc")
def test_twenty_drivers_leave_no_file_mapping_thread_or_directory() -> None:
    def come_and_go() -> None:
        with launch() as driver, AeronClient(driver.aeron_dir) as client:
            connect(client)
        assert not Path(driver.aeron_dir).exists()

    gc.collect()
    before = usage()
    for _ in range(20):
        come_and_go()
    assert usage() == before


def test_a_failed_start_leaves_nothing(driver: MediaDriver) -> None:
    before = usage() if sys.platform.startswith("linux") else None
    for _ in range(10):
        with pytest.raises(ConfigurationError):
            AeronClient(driver.aeron_dir, "n" * 101)
    # The driver, in this process too, may let go of what earlier tests closed.
    assert before is None or all(now <= then for now, then in zip(usage(), before, strict=True))
