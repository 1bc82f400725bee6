"""A client whose thread does not conduct: busy, asleep or holding the GIL, it stays alive beside its callers."""

from __future__ import annotations

import ctypes
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from container.aeron import AeronClient, MediaDriver
from container.errors import DriverTimeoutError
from container.testing.memory import transport_probe as probe
from container.testing.processes.process import wait_until
from tests.aeron_session import IPC, connect, until
from tests.cython_module import compile_module
from tests.limits import LIMIT_S

LIVENESS_NS = 1_000_000_000
BUSY_S = 2.5
KEEPALIVE_MS = 100
_THREAD_NAME = "aeron-keepalive"

on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def launch() -> MediaDriver:
    return MediaDriver.launch_embedded(
        ipc_term_buffer_length=64 * 1024,
        client_liveness_timeout_ns=LIVENESS_NS,
        publication_linger_timeout_ns=50_000_000,
        timer_interval_ns=20_000_000,
    )


@pytest.fixture(scope="module")
def driver() -> Iterator[MediaDriver]:
    with launch() as driver:
        yield driver


# What wants the guard all the time, and somebody else who wants it once.
FAIRNESS = """
from libc.stdint cimport int64_t
from posix.unistd cimport usleep

from container.aeron.conductor_events cimport lock_mutex, pthread_mutex_t, pthread_mutex_unlock
from container.aeron.keepalive cimport Keepalive, begin_wait, end_wait, start_keepalive, stop_keepalive

cdef extern from "pthread.h" nogil:
    int pthread_mutex_init(pthread_mutex_t* mutex, void* attributes) noexcept

cdef pthread_mutex_t guard
cdef Keepalive keepalive
cdef int64_t own_turns = 0
cdef int64_t waiting = 0                        # at the end of a turn, at most


cdef int _turn(void* target) noexcept nogil:
    global waiting
    (<int64_t*> target)[0] += 1
    usleep(1000)
    waiting = max(waiting, keepalive.waiting)
    return 1                                    # there is always more to do


def turns_in_between(int64_t turns_before):
    cdef int64_t begin
    assert pthread_mutex_init(&guard, NULL) == 0
    assert start_keepalive(&keepalive, _turn, &own_turns, &guard, 1000, 1000) == 0
    with nogil:
        while own_turns < turns_before:
            usleep(100)
    begin_wait(&keepalive)
    begin = own_turns
    lock_mutex(&guard)
    end_wait(&keepalive)
    keepalive.turns += 1
    begin = own_turns - begin
    pthread_mutex_unlock(&guard)
    with nogil:
        stop_keepalive(&keepalive)
    return begin


def most_that_wait_at_the_end(int64_t turns_before):
    global own_turns, waiting
    own_turns = waiting = 0
    assert pthread_mutex_init(&guard, NULL) == 0
    assert start_keepalive(&keepalive, _turn, &own_turns, &guard, 1000, 1000) == 0
    with nogil:
        while own_turns < turns_before:
            usleep(100)
        stop_keepalive(&keepalive)
    return waiting
"""


def sleep(seconds: float) -> None:
    threading.Event().wait(seconds)


def hold_the_gil(seconds: float) -> None:
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


def keepalive_threads() -> list[Path]:
    names = Path("/proc/self/task").glob("*/comm")
    return [name.parent for name in names if name.read_text().strip() == _THREAD_NAME]


@pytest.mark.parametrize("be_busy", [sleep, hold_the_gil], ids=["sleeps", "holds the GIL"])
def test_a_handler_may_take_longer_than_the_liveness_timeout(
    driver: MediaDriver, be_busy: Callable[[float], None]
) -> None:
    errors: list[Exception] = []
    with AeronClient(driver.aeron_dir, keepalive_interval_ms=KEEPALIVE_MS, error_handler=errors.append) as client:
        stream = connect(client)
        stream.offer(b"first")
        assert [data for data, _ in probe.poll(stream.image, action=lambda *_: be_busy(BUSY_S))] == [b"first"]
        assert not client.is_closed()
        stream.offer(b"second")
        assert [data for data, _ in probe.poll(stream.image)] == [b"second"]
        for _ in range(10):
            probe.invoke(client)
        probe.add_publication(client, IPC, 1002)
        assert not client.is_closed()
    assert errors == []


def test_a_client_that_only_sends_stays_alive(driver: MediaDriver) -> None:
    with (
        AeronClient(driver.aeron_dir, keepalive_interval_ms=KEEPALIVE_MS) as receiver,
        AeronClient(driver.aeron_dir, keepalive_interval_ms=KEEPALIVE_MS) as sender,
    ):
        subscription = probe.add_subscription(receiver, IPC, 1001)
        publication = probe.add_publication(sender, IPC, 1001)
        image = until(receiver, lambda: probe.image(subscription, publication.session_id), "an image")
        end = time.monotonic() + BUSY_S
        while time.monotonic() < end:
            assert probe.offer(publication, b"x") > 0
            assert probe.poll(image)
            threading.Event().wait(0.01)
        assert not sender.is_closed()
        assert not receiver.is_closed()


def test_an_image_that_ends_during_a_handler_stays_readable(driver: MediaDriver) -> None:
    listener = probe.RecordingListener()
    with (
        AeronClient(driver.aeron_dir, keepalive_interval_ms=KEEPALIVE_MS) as client,
        AeronClient(driver.aeron_dir, use_invoker=False, keepalive_interval_ms=20) as publisher,
    ):
        publication = probe.add_publication(publisher, IPC, 1003, exclusive=True)
        counter = probe.add_counter(publisher, 1101)
        record = (counter.registration_id, counter.counter_id)
        probe.add_listener(client, listener)
        subscription = probe.add_subscription(client, IPC, 1003)
        image = until(client, lambda: probe.image(subscription), "an image")
        for _ in range(3):
            until(client, lambda: probe.offer(publication, b"message" * 100) > 0, "an offer to be taken")
        seen: list[bytes] = []

        def outlive_the_publisher(data: bytes, header: probe.HeaderFields) -> None:
            seen.append(data)
            publisher.close()
            # Nobody invokes the client here.
            wait_until(lambda: record in listener.unavailable, LIMIT_S, "the counter of the closed client to be gone")

        probe.poll(image, 1, action=outlive_the_publisher)
        while frames := probe.poll(image, 1):
            seen += [data for data, _ in frames]
        assert seen == [b"message" * 100] * 3
        # Neither does the last look at the image.
        wait_until(lambda: probe.is_closed(image), LIMIT_S, "the image to end")
        assert probe.image_count(subscription) == 0
        assert probe.is_end_of_stream(image)
        assert not client.is_closed()


@pytest.mark.parametrize("is_invoked", [True, False], ids=["by the next invoke", "by close"])
def test_what_went_wrong_meanwhile_is_reported_on_the_clients_thread(is_invoked: bool) -> None:
    errors: list[Exception] = []
    threads: list[threading.Thread] = []
    listener = probe.RecordingListener()

    def report(error: Exception) -> None:
        errors.append(error)
        threads.append(threading.current_thread())

    with launch() as mortal:
        client = AeronClient(mortal.aeron_dir, keepalive_interval_ms=20, error_handler=report)
        probe.add_listener(client, listener)
    with client:
        wait_until(client.is_closed, LIMIT_S, "the client to find that the driver is gone")
        wait_until(lambda: listener.close_count, LIMIT_S, "the listener to be told")
        assert errors == []
        if is_invoked:
            probe.invoke(client)
            assert len(errors) == 1
    assert [type(error) for error in errors] == [DriverTimeoutError]
    assert threads == [threading.current_thread()]


def test_what_the_error_handler_raises_comes_out_of_the_call_that_reports_it() -> None:
    def refuse(error: Exception) -> None:
        raise OSError(str(error))

    with launch() as mortal:
        client = AeronClient(mortal.aeron_dir, keepalive_interval_ms=20, error_handler=refuse)
    with client:
        wait_until(client.is_closed, LIMIT_S, "the client to find that the driver is gone")
        with pytest.raises(OSError, match="MediaDriver has been shutdown"):
            probe.invoke(client)


def test_adding_and_closing_go_on_beside_the_thread(driver: MediaDriver) -> None:
    """At the shortest interval the thread conducts between any two calls of this one."""
    with AeronClient(driver.aeron_dir, keepalive_interval_ms=1) as client:
        end = time.monotonic() + 2
        rounds = 0
        while time.monotonic() < end:
            stream = connect(client)
            stream.offer(b"message")
            threading.Event().wait(0.011)
            assert [data for data, _ in probe.poll(stream.subscription)] == [b"message"]
            image = stream.image
            stream.publication.close()
            wait_until(partial(probe.is_closed, image), LIMIT_S, "the image to end")
            stream.subscription.close()
            threading.Event().wait(0.011)
            rounds += 1
        assert rounds > 1
        assert not client.is_closed()


@on_linux
def test_the_thread_takes_no_signals_and_ends_with_its_client(driver: MediaDriver) -> None:
    before = keepalive_threads()
    with AeronClient(driver.aeron_dir, use_invoker=False):
        assert keepalive_threads() == before
    with AeronClient(driver.aeron_dir):
        wait_until(lambda: len(keepalive_threads()) == len(before) + 1, LIMIT_S, "the thread to have its name")
        (thread,) = set(keepalive_threads()) - set(before)
        status = dict(line.split(":\t", 1) for line in (thread / "status").read_text().splitlines())
        for number in (2, 10, 14, 15):  # SIGINT, SIGUSR1, SIGALRM, SIGTERM
            assert int(status["SigBlk"], 16) >> number - 1 & 1
    assert keepalive_threads() == before


@on_linux
def test_the_thread_sleeps_while_the_driver_is_invoked(tmp_path: Path) -> None:
    """It looks every 20 ms whether others run the turns; only while they do not it wakes each millisecond."""
    before = set(keepalive_threads())
    with MediaDriver.launch_embedded(str(tmp_path), threading="INVOKER") as driver:
        wait_until(lambda: len(keepalive_threads()) == len(before) + 1, LIMIT_S, "the thread to have its name")
        (thread,) = set(keepalive_threads()) - before

        def wake_ups() -> int:
            status = dict(line.split(":", 1) for line in (thread / "status").read_text().splitlines())
            return int(status["voluntary_ctxt_switches"])

        driver.invoke()
        begin, first = time.monotonic(), wake_ups()
        while time.monotonic() - begin < 1.0:
            driver.invoke()
        # Some 50 if nothing keeps this thread from invoking.
        assert wake_ups() - first < 400


def run(code: str, stack_length: int = 0) -> subprocess.CompletedProcess[str]:
    def limit_stacks() -> None:
        resource.setrlimit(resource.RLIMIT_STACK, (stack_length, resource.getrlimit(resource.RLIMIT_STACK)[1]))

    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        timeout=LIMIT_S,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit_stacks if stack_length else None,
    )


def test_a_process_ends_while_a_daemon_thread_is_in_a_call() -> None:
    result = run(
        "import threading\n"
        "from container.aeron import AeronClient, MediaDriver\n"
        "from container.testing.memory import transport_probe as probe\n"
        "driver = MediaDriver.launch_embedded()\n"
        "client = AeronClient(driver.aeron_dir, keepalive_interval_ms=1)\n"
        "publication = probe.add_publication(client, 'aeron:ipc', 1)\n"
        "subscription = probe.add_subscription(client, 'aeron:ipc', 1)\n"
        "while (image := probe.image(subscription)) is None: probe.invoke(client)\n"
        "while probe.offer(publication, b'x') < 0: probe.invoke(client)\n"
        "inside = threading.Event()\n"
        "def stay(*_): inside.set(); threading.Event().wait(3600)\n"
        "threading.Thread(target=lambda: probe.poll(image, action=stay), daemon=True).start()\n"
        "assert inside.wait(20)\n"
        "print('over')\n"
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "over\n", "")


@on_linux
def test_a_fork_leaves_the_thread_to_the_parent(driver: MediaDriver) -> None:
    result = run(
        "import os, threading\n"
        "from container.aeron import AeronClient\n"
        "from container.testing.memory import transport_probe as probe\n"
        f"client = AeronClient({driver.aeron_dir!r}, keepalive_interval_ms=20)\n"
        "publication = probe.add_publication(client, 'aeron:ipc', 1)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    publication.close(); client.close(); del publication, client\n"
        "    raise SystemExit(7)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7\n"
        f"threading.Event().wait({BUSY_S})\n"
        "probe.add_publication(client, 'aeron:ipc', 2)\n"
        "client.close()\n"
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@on_linux
def test_the_thread_makes_room_for_who_waits_however_much_there_is_to_do(tmp_path: Path) -> None:
    """A lock that is given back and taken again at once starved the loop of a node with thousands of streams."""
    module = compile_module("fairness", FAIRNESS, tmp_path)
    # On a busy machine a turn may come in each of its pauses; without room it took hundreds, up to a thousand.
    assert module.turns_in_between(5) < 100
    # Who ends it waits as well; a try may come between two turns, and then waits for none.
    assert max(module.most_that_wait_at_the_end(5) for _ in range(5)) == 1


def test_without_a_thread_a_client_does_not_start(driver: MediaDriver) -> None:
    stack_length = 256 * 1024 * 1024
    result = run(
        "import resource, os\n"
        "from pathlib import Path\n"
        "from container.aeron import AeronClient, load_library\n"
        "from container.errors import AeronError\n"
        "load_library()\n"
        "used = int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize()\n"
        f"limit = used + os.path.getsize({driver.aeron_dir + '/cnc.dat'!r}) + {stack_length // 2}\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "try:\n"
        f"    AeronClient({driver.aeron_dir!r})\n"
        "except AeronError as error:\n"
        "    print(error)\n",
        stack_length,
    )
    assert result.returncode == 0, result.stderr
    assert "no thread to keep it alive: Resource temporarily unavailable" in result.stdout
