"""Threads side by side: what they may share stays whole, with the GIL as without; and that modules declare it."""

from __future__ import annotations

import asyncio
import random
import struct
import subprocess
import sys
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

import container
from container.aeron import AeronClient, MediaDriver
from container.api import ClientSession, ClusteredService, Header, MessageBuffer, SessionMessages
from container.client import AsyncAeronCluster
from container.errors import ClosedError
from container.testing.memory import transport_probe as probe
from container.testing.memory.scripted_member import ScriptedMember
from tests.aeron_session import Stream, connect
from tests.limits import LIMIT_S
from tests.test_build import load_setup
from tests.threaded_members import PatientMember, ThreadedMembers

PACKAGE = Path(container.__file__).parent
MODULES = sorted(
    ".".join(["container", *path.relative_to(PACKAGE).with_suffix("").parts]) for path in PACKAGE.rglob("*.pyx")
)
THREADS = 4
CLOSED = -4
KEPT = 37
"""How many messages a thread keeps while more come."""

# The state of the interpreter's lock after each import; a module that does not declare anything switches it on.
IMPORTS = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(getattr(sys, "_is_gil_enabled", lambda: True)())
"""
LOADS = """
import sys, threading
from container.aeron import MediaDriver, library_path, library_version
results, start = [], threading.Barrier(8)
def load():
    start.wait()
    results.append((library_version(), library_path()))
def launch():
    start.wait()
    with MediaDriver.launch_embedded() as driver:
        results.append((library_version(), library_path()))
threads = [threading.Thread(target=load) for _ in range(4)] + [threading.Thread(target=launch) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(results), len(set(results)))
"""


def run_python(program: str, *arguments: str) -> str:
    """What a program prints in a Python of its own, which must end well and without a warning."""
    command = [sys.executable, "-W", "error", "-c", program, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.strip()


def together[T](actions: Sequence[Callable[[], T]]) -> list[T]:
    """Do each action in a thread of its own, all at once; what they return, or the first error."""
    start = threading.Barrier(len(actions))

    def run(action: Callable[[], T]) -> T:
        start.wait(LIMIT_S)
        return action()

    with ThreadPoolExecutor(len(actions)) as pool:
        return [future.result(LIMIT_S) for future in [pool.submit(run, action) for action in actions]]


def payload_of(index: int) -> bytes:
    """A message that no other is like, of a length that changes."""
    return struct.pack("<q", index) + bytes([index % 251]) * (index * 7 % 300)


class Handing(ClusteredService):
    """Hands each message to a thread, or to all of them, as itself or as a view."""

    def __init__(self, queues: Sequence[SimpleQueue[Any]]) -> None:
        self.queues = queues
        self.count = 0

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        index, self.count = self.count, self.count + 1
        kept = buffer if index % 2 else memoryview(buffer)
        for queue in self.queues if index % 5 == 0 else [self.queues[index % len(self.queues)]]:
            if index % 3:
                queue.put((index, kept, header, header.position))


class HandingBatches(ClusteredService):
    """Hands each batch to all threads: as itself, or its columns, or views of these."""

    def __init__(self, queues: Sequence[SimpleQueue[Any]]) -> None:
        self.queues = queues
        self.count = 0
        self.batches = 0

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        raise AssertionError("it takes batches")

    def on_session_messages(self, messages: SessionMessages) -> None:
        columns: Any = (messages.offsets, messages.payloads)
        if self.batches % 3:
            for queue in self.queues:
                # Each its own view: threads that slice the same one release it under each other without the GIL.
                views = tuple(memoryview(column) for column in columns)
                queue.put((self.count, len(messages), views if self.batches % 2 else columns))
        if self.batches % 7 == 0:
            for queue in self.queues:
                queue.put((self.count, len(messages), (messages,)))
        self.count += len(messages)
        self.batches += 1


def check_message(index: int, kept: Any, header: Header, position: int) -> int:
    assert bytes(kept) == payload_of(index)
    assert header.position == position
    return 1


def check_batch(first: int, count: int, kept: Any) -> int:
    offsets, payloads = (kept[0].offsets, kept[0].payloads) if len(kept) == 1 else kept
    assert len(offsets) == count + 1
    for index in range(count):
        assert bytes(payloads[offsets[index] : offsets[index + 1]]) == payload_of(first + index)
    return count


def keep(queue: SimpleQueue[Any], check: Callable[..., int]) -> int:
    """Look at what comes, keep it for a while, look again and let go; how much was seen the second time."""
    kept: deque[Any] = deque()
    checked = 0
    while (item := queue.get(timeout=LIMIT_S)) is not None:
        check(*item)
        kept.append(item)
        if len(kept) > KEPT:
            checked += check(*kept.popleft())
    return checked + sum(check(*item) for item in kept)


def play(service: Any, count: int, after: Callable[[], None] = lambda: None) -> ScriptedMember:
    """Give a service so many messages, a few at a time."""
    try:
        member = ScriptedMember(service, log_term_length=4 * 1024 * 1024).lead()
        member.cm.open_session(1)
        for first in range(0, count, 100):
            for index in range(first, min(count, first + 100)):
                member.cm.session_message(1, payload_of(index))
            member.commit()
        assert member.errors == []
        return member
    finally:
        after()


def test_every_compiled_module_declares_that_it_needs_no_gil() -> None:
    build = load_setup()
    assert build.RELEASE.directives["freethreading_compatible"] is True
    assert build.DEBUG.directives["freethreading_compatible"] is True
    assert len(MODULES) > 30
    # On a build with the GIL both are True; on one without, no import may switch it on, nor warn of that.
    assert run_python(IMPORTS, *MODULES) == run_python(IMPORTS)


@pytest.mark.parametrize(
    ("make", "check", "count"),
    [(Handing, check_message, 12_000), (HandingBatches, check_batch, 12_000)],
    ids=["messages", "batches"],
)
def test_what_other_threads_keep_does_not_change_while_the_agent_goes_on(
    make: Callable[..., Any], check: Callable[..., int], count: int
) -> None:
    queues: list[SimpleQueue[Any]] = [SimpleQueue() for _ in range(THREADS)]
    service = make(queues)

    def end() -> None:
        for queue in queues:
            queue.put(None)

    def agent() -> int:
        play(service, count, end)
        return 0

    keepers: list[Callable[[], int]] = [partial(keep, queue, check) for queue in queues]
    checked = together([agent, *keepers])
    assert service.count == count
    assert min(checked[1:]) > 0
    if make is Handing:
        handed = [index for index in range(count) if index % 3]
        assert sum(checked) == sum(THREADS if index % 5 == 0 else 1 for index in handed)


def test_agents_in_threads_of_their_own_do_not_disturb_each_other() -> None:
    class Digesting(ClusteredService):
        """What the messages and their positions come to."""

        def __init__(self) -> None:
            self.digest = 0
            self.kept: list[MessageBuffer] = []

        def on_session_message(
            self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
        ) -> None:
            self.digest = zlib.crc32(buffer, zlib.crc32(b"%d" % header.position, self.digest))
            assert session is not None
            session.offer(buffer)
            if header.position % 7 == 0:
                self.kept.append(buffer)

    def digest() -> tuple[int, list[bytes]]:
        service = Digesting()
        play(service, 4_000)
        return service.digest, [bytes(buffer) for buffer in service.kept]

    alone = digest()
    assert together([digest] * THREADS) == [alone] * THREADS


@pytest.fixture
def media_driver() -> Iterator[MediaDriver]:
    with MediaDriver.launch_embedded(
        term_buffer_length=64 * 1024, publication_linger_timeout_ns=50_000_000, timer_interval_ns=20_000_000
    ) as driver:
        yield driver


@pytest.mark.parametrize("use_invoker", [True, False])
def test_clients_of_one_driver_in_threads_of_their_own(media_driver: MediaDriver, use_invoker: bool) -> None:
    def converse(number: int) -> list[bytes]:
        rng = random.Random(number)
        received = []
        for turn in range(3):
            with AeronClient(media_driver.aeron_dir, use_invoker=use_invoker) as client:
                stream = connect(client, stream_id=3000 + 10 * number + turn)
                for _ in range(200):
                    message = rng.randbytes(rng.randrange(1_000))
                    stream.offer(message)
                    received += stream.receive(1)
                    assert received[-1] == message
        return received

    results = together([partial(converse, number) for number in range(THREADS)])
    assert [len(received) for received in results] == [600] * THREADS


def test_embedded_drivers_and_their_clients_come_and_go_in_threads() -> None:
    def come_and_go(number: int) -> int:
        for turn in range(3):
            with (
                MediaDriver.launch_embedded(timer_interval_ns=20_000_000) as driver,
                AeronClient(driver.aeron_dir) as client,
            ):
                assert connect(client, stream_id=10 * number + turn).image.session_id
        return number

    assert together([partial(come_and_go, number) for number in range(THREADS)]) == list(range(THREADS))


def close_in_use(client: AeronClient, stream: Stream, resources_first: bool, after: int) -> list[int]:
    """One thread sends, claims and counts, one receives and conducts, one asks; one closes it all meanwhile."""
    counter = probe.add_counter(client, 5001, b"key", "of a test")
    closed = threading.Event()
    sent = threading.Semaphore(0)

    def send() -> int:
        while (result := probe.offer(stream.publication, b"message")) != CLOSED:
            with suppress(ClosedError):
                probe.try_claim(stream.publication, b"claimed")
            probe.increment_counter(counter)
            sent.release()
        return result

    def receive() -> int:
        while not probe.is_closed(stream.image):
            probe.poll(stream.image)
            probe.poll(stream.subscription)
            probe.poll_blocks(stream.image)
            probe.invoke(client)
        return 0

    def ask() -> int:
        counters = probe.counters(client)
        while not closed.is_set():
            assert probe.image_count(stream.subscription) in (0, 1)
            assert probe.image(stream.subscription) in (stream.image, None)
            assert probe.take_new_image(stream.subscription) is None
            probe.available_window(stream.publication)
            probe.active_transport_count(stream.image)
            probe.is_connected(stream.publication)
            assert counter.value >= -1
            probe.counter_record(counters, counter.counter_id)
            client.is_closed()
        return 0

    def close() -> int:
        for _ in range(after):
            assert sent.acquire(timeout=LIMIT_S)
        for resource in (stream.publication, counter, stream.subscription) if resources_first else ():
            resource.close()
        client.close()
        closed.set()
        return 0

    return together([send, receive, ask, close])


@pytest.mark.parametrize("use_invoker", [True, False], ids=["invoker", "own thread"])
@pytest.mark.parametrize("resources_first", [False, True], ids=["client", "resources"])
def test_another_thread_may_close_what_threads_are_using(
    media_driver: MediaDriver, use_invoker: bool, resources_first: bool
) -> None:
    for turn in range(20):
        client = AeronClient(media_driver.aeron_dir, use_invoker=use_invoker)
        stream = connect(client, stream_id=5000 + turn)
        assert close_in_use(client, stream, resources_first, 1 + 37 * turn % 90) == [CLOSED, 0, 0, 0]
        assert client.is_closed()


def test_the_library_is_loaded_once_by_threads_that_want_it_at_the_same_time() -> None:
    for _ in range(3):
        assert run_python(LOADS) == "8 1"


def test_an_asyncio_client_loses_nothing_between_its_thread_and_the_loop() -> None:
    count = 5_000

    async def scenario(aeron_dir: str) -> list[bytes]:
        settings: dict[str, Any] = {"aeron_dir": aeron_dir, "message_timeout": LIMIT_S}
        settings |= {"ingress_channel": "aeron:ipc", "egress_channel": "aeron:ipc?alias=egress"}
        async with asyncio.timeout(LIMIT_S), AsyncAeronCluster.connect(**settings) as client:

            async def send() -> None:
                for index in range(count):
                    await client.send(payload_of(index))
                    assert client.max_message_length > 0

            sending = asyncio.create_task(send())
            received = [(await client.receive()).payload for _ in range(count)]
            await sending
            return received

    with ThreadedMembers() as members:
        members.member(0, "aeron:ipc", PatientMember.echo)
        assert asyncio.run(scenario(members.aeron_dir)) == [payload_of(index) for index in range(count)]


def test_partitions_of_a_recording_are_read_by_threads(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="rows of recordings are Arrow's, and pyarrow has no build for this Python")
    from container.recordings import open_member, plan, read_partition
    from tests.recordings_world import World

    rng = random.Random(1)
    world = World(tmp_path / "member")
    for _ in range(3):
        world.append_some(rng, 400, world.begin_term())
    partitions = plan([open_member(world.close().base_dir)], "messages")
    assert len(partitions) > THREADS

    def rows() -> list[list[dict[str, Any]]]:
        return [
            [row for batch in read_partition(partition, batch_rows=64) for row in batch.to_pylist()]
            for partition in partitions
        ]

    alone = rows()
    assert together([rows] * THREADS) == [alone] * THREADS


def test_a_recording_is_replayed_by_threads(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="rows of replays are Arrow's, and pyarrow has no build for this Python")
    from tests.replay_world import replayed, write_tally

    tally = write_tally(tmp_path / "member")
    alone = replayed(tally.base_dir)
    assert together([partial(replayed, tally.base_dir)] * THREADS) == [alone] * THREADS
