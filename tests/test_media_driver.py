"""The media driver: its directory and CnC file, whether it is alive, and the embedded one."""

from __future__ import annotations

import os
import re
import socket
import struct
import sys
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

from container.aeron import (
    AeronClient,
    MediaDriver,
    default_aeron_dir,
    read_cnc_file_page_size,
    wait_for_driver,
)
from container.common.closed_files import closed_to_others
from container.errors import AeronError, ConfigurationError, ContainerError, DriverTimeoutError
from container.testing.memory import transport_probe as probe
from container.testing.processes.endpoints import PortReservation
from tests.aeron_session import connect, until
from tests.file_rights import mode
from tests.forking import Child
from tests.limits import LIMIT_S

LIMIT_NS = 20_000_000_000
SHORT_NS = 20_000_000
HEADER = 32
PACKETS = 5
PACKET_LENGTH = 1_000
METADATA = struct.Struct("<6i3qi")
RING_LENGTH = 1024 + 768


def write_cnc_file(
    directory: Path,
    *,
    version: int = 0x0200,
    page_size: int = 4096,
    heartbeat_ms: int = 0,
    length: int | None = None,
) -> Path:
    """Write a CnC file with a ring buffer to the driver and no other buffers; it appears whole, or not at all."""
    data = bytearray(128 + RING_LENGTH)
    METADATA.pack_into(data, 0, version, RING_LENGTH, 0, 0, 0, 0, 10_000_000_000, 1, os.getpid(), page_size)
    struct.pack_into("<q", data, 128 + 1024 + 640, heartbeat_ms)
    path = directory / "cnc.dat"
    written = directory / "cnc.dat.new"
    written.write_bytes(data[:length])
    written.replace(path)
    return path


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_the_default_directory_is_the_users() -> None:
    assert re.fullmatch(r"/.*aeron-[^/]+", default_aeron_dir())


@pytest.mark.parametrize("threading_mode", ["SHARED", "SHARED_NETWORK", "DEDICATED"])
def test_an_embedded_driver_has_a_directory_that_goes_with_it(threading_mode: str) -> None:
    with MediaDriver.launch_embedded(threading=threading_mode) as driver:  # type: ignore[arg-type]
        assert Path(driver.aeron_dir, "cnc.dat").exists()
        assert driver.aeron_dir in repr(driver)
        wait_for_driver(driver.aeron_dir, LIMIT_NS)
        with AeronClient(driver.aeron_dir) as client:
            probe.add_publication(client, "aeron:ipc", 1).close()
    assert driver.is_closed
    assert "closed" in repr(driver)
    assert not Path(driver.aeron_dir).exists()
    driver.close()


def test_a_driver_in_invoker_mode_is_run_by_its_caller_and_else_by_a_thread_of_its_own() -> None:
    with MediaDriver.launch_embedded(threading="INVOKER") as driver, AeronClient(driver.aeron_dir) as client:
        until(client, lambda: driver.invoke() > 0, "a turn with work")
        # Nobody invokes it from here on.
        stream = connect(client, "aeron:ipc", exclusive=True)
        stream.offer(b"1")
        assert stream.receive(1) == [b"1"]
    assert driver.invoke() == 0


def test_a_driver_with_threads_is_not_to_be_invoked() -> None:
    with MediaDriver.launch_embedded() as driver, pytest.raises(ContainerError, match='threading="INVOKER"'):
        driver.invoke()


def test_many_threads_may_invoke_a_driver_and_one_may_close_it() -> None:
    driver = MediaDriver.launch_embedded(threading="INVOKER")
    begun = threading.Barrier(4)

    def invoke() -> None:
        begun.wait(LIMIT_S)
        while not driver.is_closed:
            driver.invoke()

    threads = [threading.Thread(target=invoke) for _ in range(3)]
    for each in threads:
        each.start()
    begun.wait(LIMIT_S)
    with AeronClient(driver.aeron_dir) as client:
        connect(client, "aeron:ipc").offer(b"1")
    driver.close()
    for each in threads:
        each.join(LIMIT_S)
        assert not each.is_alive()


def test_a_forked_child_may_close_a_driver_that_had_a_turn_of_its_own_thread_at_the_fork() -> None:
    """The child has the lock around that turn, and not the thread that would release it."""
    drivers = [MediaDriver.launch_embedded(threading="INVOKER") for _ in range(8)]
    try:
        for _ in range(20):
            with Child() as child:
                if child.fork():
                    for each in drivers:
                        each.close()
                    child.end("closed")
                assert child.outcome() == (0, ["closed"])
    finally:
        for each in drivers:
            each.close()


def test_two_drivers_run_side_by_side() -> None:
    with MediaDriver.launch_embedded() as one, MediaDriver.launch_embedded() as other:
        assert one.aeron_dir != other.aeron_dir
        with AeronClient(one.aeron_dir) as first, AeronClient(other.aeron_dir) as second:
            publication = probe.add_publication(first, "aeron:ipc", 1)
            subscription = probe.add_subscription(second, "aeron:ipc", 1)
            for client in (first, second) * 50:
                probe.invoke(client)
            assert not probe.is_connected(publication)
            assert probe.image(subscription) is None


def test_a_directory_of_the_callers_is_kept_when_asked_for(tmp_path: Path) -> None:
    directory = tmp_path / "driver"
    with MediaDriver.launch_embedded(directory, dir_delete_on_shutdown=False) as driver:
        assert driver.aeron_dir == str(directory)
    assert (directory / "cnc.dat").exists()
    with pytest.raises(DriverTimeoutError, match=f"the driver of {directory}/cnc.dat has been shut down"):
        wait_for_driver(directory, SHORT_NS)
    with MediaDriver.launch_embedded(directory):
        wait_for_driver(directory, LIMIT_NS)
    assert not directory.exists()


@pytest.mark.parametrize("is_found", [False, True])
@pytest.mark.usefixtures("open_umask")
def test_no_other_user_can_look_into_the_directory_at_any_moment(tmp_path: Path, is_found: bool) -> None:
    directory = tmp_path / "driver"
    if is_found:
        directory.mkdir(0o777)
    seen: set[int] = set()
    done = threading.Event()
    begun = threading.Barrier(2)

    def look() -> None:
        begun.wait(LIMIT_S)
        while not done.is_set():
            with suppress(FileNotFoundError):
                if (directory / "cnc.dat").exists():
                    seen.add(mode(directory))

    thread = threading.Thread(target=look)
    thread.start()
    begun.wait(LIMIT_S)
    try:
        with MediaDriver.launch_embedded(directory) as driver, AeronClient(driver.aeron_dir) as client:
            publication = probe.add_publication(client, "aeron:udp?endpoint=localhost:24325", 1)
            subscription = probe.add_subscription(client, "aeron:udp?endpoint=localhost:24325", 1)
            until(client, lambda: probe.image(subscription) is not None, "the image")
            assert publication.session_id
            modes = {str(path.relative_to(directory)): mode(path) for path in directory.rglob("*")}
    finally:
        done.set()
        thread.join(LIMIT_S)
    assert seen == {0o750}
    assert {name: modes[name] for name in ("cnc.dat", "loss-report.dat", "publications", "images")} == {
        "cnc.dat": 0o640,
        "loss-report.dat": 0o640,
        "publications": 0o700,
        "images": 0o700,
    }
    assert len(modes) == 6  # and a log buffer in each of the two, which only this user reaches


@pytest.mark.usefixtures("open_umask")
def test_the_umask_is_the_process_s_own_again_whoever_starts_a_driver_meanwhile() -> None:
    def launch() -> None:
        MediaDriver.launch_embedded().close()

    threads = [threading.Thread(target=launch) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(LIMIT_S)
        assert not each.is_alive()
    assert os.umask(0) == 0


@pytest.mark.usefixtures("open_umask")
def test_a_child_that_is_forked_while_a_driver_starts_has_its_parents_umask_and_may_start_one() -> None:
    with Child() as child, closed_to_others():
        if child.fork():
            before = os.umask(0)
            with MediaDriver.launch_embedded() as driver:
                found = mode(Path(driver.aeron_dir))
            child.end(f"{before:o} {found:o} {os.umask(0):o}")
        assert child.outcome() == (0, ["0 750 0"])
    assert os.umask(0) == 0


def test_a_second_driver_leaves_the_first_ones_directory_alone() -> None:
    with MediaDriver.launch_embedded() as driver:
        with pytest.raises(AeronError, match=rf"process {os.getpid()}, was alive \d+ ms ago"):
            MediaDriver.launch_embedded(driver.aeron_dir)
        with AeronClient(driver.aeron_dir) as client:
            assert probe.add_publication(client, "aeron:ipc", 1).session_id


def test_settings_reach_the_driver(tmp_path: Path) -> None:
    with (
        MediaDriver.launch_embedded(
            tmp_path / "driver",
            term_buffer_length=1 << 17,
            ipc_term_buffer_length=1 << 16,
            term_buffer_sparse_file=False,
            mtu_length=4096,
            ipc_mtu_length=2048,
            receiver_io_vector_capacity=8,
            network_publication_max_messages_per_send=2,
            client_liveness_timeout_ns=7_000_000_000,
            image_liveness_timeout_ns=8_000_000_000,
            publication_linger_timeout_ns=90_000_000,
            timer_interval_ns=100_000_000,
        ) as driver,
        AeronClient(driver.aeron_dir) as client,
    ):
        ipc = probe.add_publication(client, "aeron:ipc", 1)
        udp = probe.add_publication(client, "aeron:udp?endpoint=localhost:24325", 1)
        assert (ipc.term_buffer_length, udp.term_buffer_length) == (1 << 16, 1 << 17)
        assert (ipc.max_payload_length, udp.max_payload_length) == (2048 - HEADER, 4096 - HEADER)
        metadata = METADATA.unpack_from(Path(driver.aeron_dir, "cnc.dat").read_bytes())
        assert metadata[6] == 7_000_000_000


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each packet has a call of its own")
@pytest.mark.parametrize("most", [1, 2, 8])
def test_a_turn_takes_as_many_packets_of_a_socket_as_it_may(most: int) -> None:
    packets = PACKETS
    taken: list[int] = []
    with (
        MediaDriver.launch_embedded(threading="INVOKER", receiver_io_vector_capacity=most) as driver,
        AeronClient(driver.aeron_dir, use_invoker=True) as client,
        closing(PortReservation()) as ports,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        port = ports.take()
        subscription = probe.add_subscription(client, f"aeron:udp?endpoint=127.0.0.1:{port}", 1)
        deadline = time.monotonic() + LIMIT_S
        # The driver's own thread takes some where this one is kept from its turns for 20 ms.
        while max(taken, default=0) < min(most, packets):
            assert time.monotonic() < deadline, f"no turn took {min(most, packets)} packets within {LIMIT_S} s: {taken}"
            for _ in range(packets):
                sender.sendto(b"\xff" * PACKET_LENGTH, ("127.0.0.1", port))
            taken += [driver.invoke() // PACKET_LENGTH for _ in range(packets)]
        assert subscription.channel.endswith(f":{port}"), "it is kept open"
    assert max(taken) == min(most, packets)


def test_settings_that_the_driver_refuses_are_named(tmp_path: Path) -> None:
    with pytest.raises(AeronError, match="cannot start: client_liveness_timeout_ns=1 <= timer_interval_ns"):
        MediaDriver.launch_embedded(tmp_path / "driver", client_liveness_timeout_ns=1)
    with pytest.raises(AeronError, match="cannot start: .*100"):
        MediaDriver.launch_embedded(ipc_term_buffer_length=100)
    with pytest.raises(AeronError, match="cannot start: mtuLength must be .*=1"):
        MediaDriver.launch_embedded(mtu_length=1)
    with pytest.raises(AeronError, match="cannot start: mtuLength must be .*=1"):
        MediaDriver.launch_embedded(ipc_mtu_length=1)
    with pytest.raises(ConfigurationError, match="threading 'NONE' is not one of DEDICATED, SHARED_NETWORK"):
        MediaDriver.launch_embedded(threading="NONE")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"made by MediaDriver.launch_embedded\(\)"):
        MediaDriver()


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(AeronError, match=f"embedded media driver in {blocked}/driver: cannot start: "):
        MediaDriver.launch_embedded(blocked / "driver")


def test_a_driver_that_is_not_closed_complains_and_is_closed() -> None:
    directories = []

    def leak() -> None:
        directories.append(MediaDriver.launch_embedded().aeron_dir)

    with pytest.warns(ResourceWarning, match="unclosed media driver in"):
        leak()
    assert not Path(directories[0]).exists()


# The CnC file


def test_the_page_size_is_that_of_the_driver() -> None:
    with MediaDriver.launch_embedded() as driver:
        assert read_cnc_file_page_size(driver.aeron_dir, LIMIT_NS) == 4096


@pytest.mark.parametrize(("written", "read"), [(0, 4096), (4096, 4096), (2 << 20, 2 << 20), (1 << 30, 1 << 30)])
def test_a_page_size_is_read_and_zero_stands_for_the_least(tmp_path: Path, written: int, read: int) -> None:
    write_cnc_file(tmp_path, page_size=written)
    assert read_cnc_file_page_size(str(tmp_path), SHORT_NS) == read


@pytest.mark.parametrize("page_size", [-4096, 1, 2048, 4097, 12288, (1 << 30) + 4096])
def test_an_impossible_page_size_is_refused(tmp_path: Path, page_size: int) -> None:
    write_cnc_file(tmp_path, page_size=page_size)
    with pytest.raises(AeronError, match=rf"page size is {page_size}; allowed is a power of two from 4096"):
        read_cnc_file_page_size(tmp_path, SHORT_NS)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (None, "does not exist"),
        ({"length": 0}, "is only 0 bytes long"),
        ({"length": 127}, "is only 127 bytes long"),
        ({"version": 0}, "is not initialised"),
        ({"length": 128}, "is not complete"),
        ({"length": 128 + RING_LENGTH - 1}, "is not complete"),
    ],
)
def test_a_file_that_is_not_there_yet_is_waited_for(
    tmp_path: Path, settings: dict[str, int] | None, reason: str
) -> None:
    if settings is not None:
        write_cnc_file(tmp_path, **settings)
    with pytest.raises(DriverTimeoutError, match=f"no media driver within 20 ms: {tmp_path}/cnc.dat {reason}; "):
        read_cnc_file_page_size(tmp_path, SHORT_NS)
    timer = threading.Timer(0.01, lambda: write_cnc_file(tmp_path, page_size=8192))
    timer.start()
    assert read_cnc_file_page_size(tmp_path, LIMIT_NS) == 8192
    timer.join()


def test_a_file_of_another_major_version_is_refused_at_once(tmp_path: Path) -> None:
    write_cnc_file(tmp_path, version=0x010203)
    with pytest.raises(AeronError, match=r"has version 1\.2\.3, which is not compatible with 0\.2\.0"):
        wait_for_driver(tmp_path, LIMIT_NS)


@pytest.mark.parametrize(
    ("heartbeat_ms", "reason"),
    [
        (0, "has no heartbeat of a driver yet"),
        (-1, "the driver of .* has been shut down"),
        (1, r"the driver of .* died: its last heartbeat is \d+ ms old"),
    ],
)
def test_a_driver_without_a_heartbeat_is_not_alive(tmp_path: Path, heartbeat_ms: int, reason: str) -> None:
    write_cnc_file(tmp_path, heartbeat_ms=heartbeat_ms)
    with pytest.raises(DriverTimeoutError, match=reason):
        wait_for_driver(tmp_path, SHORT_NS)
    write_cnc_file(tmp_path, heartbeat_ms=now_ms())
    wait_for_driver(tmp_path, LIMIT_NS)
