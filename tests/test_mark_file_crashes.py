"""Mark files on the simulated disk: faults, two starts at once, and a crash at every call."""

from __future__ import annotations

import errno
import re
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from container.archive.server.archive_mark_file import LINK_FILE_NAME, MARK_FILE_NAME, ArchiveMarkFile, ensure_link_file
from container.errors import ClusterEvent, MarkFileError
from container.files.cluster_mark_file import ClusterMarkFile, mark_file_name
from container.files.error_log import DistinctErrorLog
from container.testing.simulation.disk import SimulatedDisk
from container.testing.simulation.virtual_time import Draws
from tests.mark_file_world import (
    DEAD_MS,
    DIRECTORY,
    JAVA,
    LENGTH,
    NOW_MS,
    PID,
    PROCESS_ID,
    READY,
    START,
    TIMESTAMP,
    World,
    left_file,
    new_disk,
    on_disk,
)
from tests.test_cluster_mark_file import left_file as cluster_file

CLAIMED = 2**63 - 1


def test_t20_a_new_file_shows_a_live_owner_from_its_first_bytes_on() -> None:
    seen = []
    disk = new_disk()

    def look(_kind: str, _length: int) -> None:
        content = disk.contents().get(f"{DIRECTORY}/{MARK_FILE_NAME}")
        if content:
            seen.append(struct.unpack_from("<q", content, 16)[0])

    disk.on_latency = look
    world = on_disk(disk)
    world.take()
    assert len(seen) >= 3
    assert set(seen) == {NOW_MS}


def test_a_full_disk_leaves_no_new_file() -> None:
    disk = new_disk(capacity=64 * 1024)
    world = on_disk(disk)
    with pytest.raises(MarkFileError, match=f"cannot be created with {LENGTH} bytes: No space left on device"):
        world.take()
    assert world.names() == []


@pytest.mark.parametrize("kind", ["force", "force_directory"])
def test_a_file_that_cannot_be_forced_is_an_error_and_free(kind: str) -> None:
    disk = new_disk()
    world = on_disk(disk)
    disk.fail(kind, errno.EIO)
    with pytest.raises(MarkFileError, match=f"{MARK_FILE_NAME} cannot be written to its disk: Input/output error"):
        world.take()
    assert world.header()[TIMESTAMP] == -1
    on_disk(disk).take()


def test_a_full_disk_leaves_the_file_of_the_last_owner_as_it_was() -> None:
    disk = new_disk(capacity=64 * 1024)
    world = on_disk(disk)
    world.put(left_file()[:9_000])
    with pytest.raises(MarkFileError, match=f"cannot be opened with {LENGTH} bytes: No space left on device"):
        world.take()
    assert world.content() == left_file()[:9_000]


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EIO])
def test_links_and_saved_errors_do_with_a_file_system_that_forces_no_directories(code: int) -> None:
    disk = new_disk()
    on_disk(disk).put(cluster_file(errors=("boom",)), mark_file_name(0))

    def link() -> None:
        ensure_link_file(disk.process(), DIRECTORY, "/marks")

    def save() -> None:
        world = on_disk(disk)
        ClusterMarkFile(f"{DIRECTORY}/{mark_file_name(0)}", clock=world.clock, storage=world.storage)

    for use, text in (
        (link, "cannot be written: Input/output error"),
        (save, "cannot be saved to .*: Input/output error"),
    ):
        disk.fail("force_directory", code)
        if code == errno.EIO:
            with pytest.raises(MarkFileError, match=text):
                use()
        else:
            use()
    assert len(on_disk(disk).names()) == (1 if code == errno.EIO else 3)


# --- two starts at once, and crashes, at every call


def calls_of(disk: SimulatedDisk, run: Callable[[], object]) -> int:
    """How many calls of the disk it makes."""
    count = 0

    def note(_kind: str, _length: int) -> None:
        nonlocal count
        count += 1

    disk.on_latency = note
    run()
    disk.on_latency = None
    return count


def at_call(disk: SimulatedDisk, number: int, act: Callable[[], object]) -> None:
    """Act once, right before the call of this number has its effect."""
    left = number

    def note(_kind: str, _length: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            disk.on_latency = None
            act()

    disk.on_latency = note


def prepared(content: bytes | None) -> SimulatedDisk:
    disk = new_disk()
    if content is not None:
        on_disk(disk).put(content)
    return disk


FOUND: dict[str, bytes | None] = {
    "new": None,
    "taken": left_file(errors=("an old error",)),
}


def start(world: World, process_id: int, taken: list[ArchiveMarkFile]) -> None:
    """Take the file, unless another start is in the way."""
    try:
        taken.append(world.take(process_id=process_id))
    except MarkFileError as error:
        if not re.search("active mark file|concurrent|too short|has taken it over", str(error)):
            raise


@pytest.mark.parametrize("found", FOUND)
def test_of_two_starts_at_once_one_gets_the_file(found: str) -> None:
    disk = prepared(FOUND[found])
    count = calls_of(disk, on_disk(disk).take)
    assert count >= 5
    for number in range(count):
        disk = prepared(FOUND[found])
        first, second = on_disk(disk), on_disk(disk)
        taken: list[ArchiveMarkFile] = []

        at_call(disk, number, partial(start, second, 2, taken))
        start(first, 1, taken)
        assert len(taken) == 1
        taken[0].signal_ready()
        assert first.header()[START : PROCESS_ID + 1] == taken[0].owner


@pytest.mark.parametrize("found", FOUND)
def test_a_start_that_stands_still_for_long_does_not_take_the_file_back(found: str) -> None:
    """Such as by SIGSTOP: whoever has started there since stays the owner, and it alone."""
    disk = prepared(FOUND[found])
    count = calls_of(disk, on_disk(disk).take)
    for number in range(count):
        disk = prepared(FOUND[found])
        first, second = on_disk(disk), on_disk(disk, NOW_MS + DEAD_MS)
        others: list[ArchiveMarkFile] = []
        taken: list[ArchiveMarkFile] = []

        def start_another(second: World = second, others: list[ArchiveMarkFile] = others) -> None:
            start(second, 2, others)
            for each in others:
                each.signal_ready()

        at_call(disk, number, start_another)
        start(first, 1, taken)
        for each in taken:
            if others:
                with pytest.raises(MarkFileError, match="has taken it over|cut short"):
                    each.signal_ready()
            else:
                each.signal_ready()
        (owner,) = others or taken
        owner.refresh(NOW_MS + DEAD_MS)
        assert first.header()[START : PROCESS_ID + 1] == owner.owner, number


def after_crash(disk: SimulatedDisk, now_ms: int = NOW_MS + DEAD_MS) -> ArchiveMarkFile | None:
    """The next start, once the file is stale; None when it must be deleted by hand, which the error says."""
    world = on_disk(disk, now_ms)
    try:
        return world.take()
    except MarkFileError as error:
        if not re.search("(too short|was killed).*delete (it|the file)", str(error)):
            raise
    return None


def kills(content: bytes | None, run: Callable[[World], object]) -> Iterator[SimulatedDisk]:
    """The disk after a kill right before each call."""
    disk = prepared(content)
    count = calls_of(disk, lambda: run(on_disk(disk)))
    for number in range(count):
        disk = prepared(content)
        world = on_disk(disk)
        storage: Any = world.storage
        at_call(disk, number, partial(storage.kill, Draws(number)))
        with pytest.raises((MarkFileError, OSError)):
            run(world)
        yield disk


def cuts(content: bytes | None, run: Callable[[World], object]) -> Iterator[SimulatedDisk]:
    """Each disk that a cut of the power at any call can leave."""
    disk = prepared(content)
    left: list[SimulatedDisk] = []
    disk.on_latency = lambda _kind, _length: left.extend(disk.crash_states())
    run(on_disk(disk))
    yield from left


CRASHES = {"kill": kills, "power": cuts}


@pytest.mark.parametrize("crash", CRASHES)
def test_a_crash_in_a_first_start_is_over_after_10_s_or_named(crash: str) -> None:
    taken = [after_crash(disk) for disk in CRASHES[crash](None, lambda world: world.take())]
    assert {mark_file.former_owner for mark_file in taken if mark_file is not None} == {None}
    # Deleted by hand: an empty file that was just created, or whose length or content the power cut has lost.
    assert sum(mark_file is not None for mark_file in taken) > len(taken) // 3
    if crash == "kill":
        assert taken.count(None) <= 1
    disk = prepared(None)
    on_disk(disk).take()
    assert [after_crash(left) is not None for left in disk.crash_states()] == [True]


@pytest.mark.parametrize("crash", CRASHES)
def test_a_crash_in_a_start_hides_neither_the_former_owner_nor_its_errors(crash: str) -> None:
    states = 0
    for disk in CRASHES[crash](FOUND["taken"], lambda world: world.take().refresh(NOW_MS + 1_000)):
        states += 1
        mark_file = after_crash(disk)
        world = on_disk(disk)
        if mark_file is not None:
            assert mark_file.former_owner == JAVA
        kept = [name for name in world.names() if b"an old error" in world.content(name)]
        assert kept, "saved, or still in the mark file"
    assert states > 10


@pytest.mark.parametrize("crash", CRASHES)
def test_a_start_that_was_ready_is_the_former_owner_after_any_crash(crash: str) -> None:
    disk = prepared(FOUND["taken"])
    on_disk(disk).take().signal_ready()
    content = on_disk(disk).content()
    former = set()
    for left in CRASHES[crash](content, lambda world: take_later(world).signal_ready()):
        mark_file = after_crash(left, NOW_MS + 10 * DEAD_MS)
        if mark_file is not None:
            former.add(mark_file.former_owner)
    assert former == {(NOW_MS, PID), (NOW_MS + 2 * DEAD_MS, 2)}


def take_later(world: World) -> ArchiveMarkFile:
    world.wait(2 * DEAD_MS)
    return world.take(process_id=2)


def test_once_it_is_ready_a_power_cut_leaves_it_so() -> None:
    disk = prepared(None)
    mark_file = on_disk(disk).take()
    mark_file.signal_ready()
    states = list(disk.crash_states())
    assert len(states) == 1
    assert on_disk(states[0]).header()[:5] == (READY, 0, NOW_MS, NOW_MS, PID)


@pytest.mark.parametrize("old", [None, b"/old"])
def test_a_power_cut_leaves_the_old_link_or_the_new_one(old: bytes | None) -> None:
    disk = new_disk()
    world = on_disk(disk)
    if old is not None:
        world.put(old, LINK_FILE_NAME)
    left: list[SimulatedDisk] = []
    disk.on_latency = lambda _kind, _length: left.extend(disk.crash_states())
    ensure_link_file(world.storage, DIRECTORY, "/marks")
    found = {each.contents().get(f"{DIRECTORY}/{LINK_FILE_NAME}") for each in left}
    assert found == {old, b"/marks"}
    for each in left:
        ensure_link_file(each.process(), DIRECTORY, "/marks")
    disk.on_latency = None
    assert [each.contents()[f"{DIRECTORY}/{LINK_FILE_NAME}"] for each in disk.crash_states()] == [b"/marks"]


# --- the cluster's mark file does the same


def test_the_clusters_mark_file_lives_on_a_simulated_disk() -> None:
    disk = new_disk()
    world = on_disk(disk)
    path = f"{DIRECTORY}/{mark_file_name(0)}"
    mark_file = ClusterMarkFile(path, clock=world.clock, storage=world.storage)
    mark_file.signal_ready()
    mark_file.update_activity_timestamp(NOW_MS + 1)
    with pytest.raises(MarkFileError, match="active mark file detected"):
        ClusterMarkFile(path, clock=world.clock, storage=disk.process())
    assert DistinctErrorLog(mark_file).record(ClusterEvent("boom")) == 1
    disk.cut_power(Draws(3))
    world = on_disk(disk, NOW_MS + 20_000)
    again = ClusterMarkFile(path, clock=world.clock, storage=world.storage)
    assert again.version == 768
    again.signal_failed_start()
    assert struct.unpack_from("<iiq", world.content(mark_file_name(0)), 8) == (-1, 2, -1)


def test_a_kill_in_the_first_start_of_a_member_leaves_no_term_that_it_stood_for() -> None:
    path = f"{DIRECTORY}/{mark_file_name(0)}"

    def run(world: World) -> ClusterMarkFile:
        return ClusterMarkFile(path, clock=world.clock, storage=world.storage, is_of_consensus_module=True)

    found: list[int | None] = []
    for disk in kills(None, run):
        try:
            found.append(run(on_disk(disk, NOW_MS + DEAD_MS)).candidate_term_id)
        except MarkFileError as error:
            if "has 0 bytes" not in str(error):
                raise
            found.append(None)
    assert len(found) >= 3
    assert found[0] == -1  # no file yet
    assert found.count(None) <= 1
    assert set(found) <= {-1, None}


@pytest.mark.parametrize("kind", ["archive", "member"])
def test_a_kill_that_leaves_a_claim_leaves_the_former_name_as_well(kind: str) -> None:
    """By that a node, which knows that this owner is dead, knows whose claim it is."""
    is_archive = kind == "archive"
    name = MARK_FILE_NAME if is_archive else mark_file_name(0)
    content = left_file(errors=("an old error",)) if is_archive else cluster_file(errors=("an old error",))

    def run(world: World) -> object:
        if is_archive:
            return world.take()
        return ClusterMarkFile(f"{DIRECTORY}/{name}", clock=world.clock, storage=world.storage)

    def found() -> SimulatedDisk:
        disk = new_disk()
        on_disk(disk).put(content, name)
        return disk

    claims = 0
    disk = found()
    for number in range(calls_of(disk, partial(run, on_disk(disk)))):
        disk = found()
        world = on_disk(disk)
        storage: Any = world.storage
        at_call(disk, number, partial(storage.kill, Draws(number)))
        with pytest.raises((MarkFileError, OSError)):
            run(world)
        left = on_disk(disk).content(name)
        if struct.unpack_from("<q", left, 16)[0] == CLAIMED:
            claims += 1
            assert left[24:40] == content[24:40]
    assert claims > 0


def test_a_member_that_took_a_file_over_sees_that_it_is_claimed() -> None:
    world = on_disk(new_disk())
    world.put(cluster_file(), mark_file_name(0))
    path = f"{DIRECTORY}/{mark_file_name(0)}"
    mark_file = ClusterMarkFile(path, clock=world.clock, storage=world.storage)
    mark_file.update_activity_timestamp(NOW_MS)
    world.storage.open_file(path, 0).write(struct.pack("<q", 2**63 - 1), 16)
    with pytest.raises(MarkFileError, match="another process takes it over right now"):
        mark_file.update_activity_timestamp(NOW_MS + 1_000)
