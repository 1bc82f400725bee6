"""The simulated disk: what a kill and a cut of the power leave, drawn and enumerated; faults by script."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from itertools import product

import pytest

from container.storage.storage_seam import CREATE, EXCLUSIVE, READ_ONLY, Storage, StorageFile
from container.testing.simulation.disk import SimulatedDisk, SimulatedStorage
from container.testing.simulation.virtual_time import Draws
from tests.test_storage import fails

SECTOR, PAGE = 512, 4096
SEEDS = 300
OLD, NEW = b"o" * SECTOR, b"n" * SECTOR

type Prepare = Callable[[SimulatedDisk], None]


def forced(storage: Storage, path: str, content: bytes) -> StorageFile:
    """A file whose content and name are on the disk."""
    file = storage.open_file(path, CREATE)
    file.write(content, 0)
    file.force(with_metadata=False)
    storage.force_directory("/")
    return file


def survivors(prepare: Prepare) -> set[tuple[tuple[str, bytes | None], ...]]:
    """All that cuts of the power leave over many seeds: exactly what the enumeration says is possible."""
    drawn = set()
    for seed in range(SEEDS):
        disk = SimulatedDisk()
        prepare(disk)
        disk.cut_power(Draws(seed))
        drawn.add(without_root(disk))
    disk = SimulatedDisk()
    prepare(disk)
    states = [without_root(each) for each in disk.crash_states()]
    assert len(states) == len(set(states)), "each state comes once"
    assert drawn == set(states)
    return drawn


def without_root(disk: SimulatedDisk) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((path, content) for path, content in disk.contents().items() if path != "/")


def contents_drawn(prepare: Prepare, path: str = "/file") -> set[bytes | None]:
    """The states of one file over many seeds, where there are too many states to list."""
    found = set()
    for seed in range(SEEDS):
        disk = SimulatedDisk()
        prepare(disk)
        disk.cut_power(Draws(seed))
        found.add(disk.contents().get(path))
    return found


def contents(prepare: Prepare, path: str = "/file") -> set[bytes | None]:
    """The state of one file; None when it is gone."""
    return {dict(state).get(path) for state in survivors(prepare)}


def test_what_was_forced_survives() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        forced(disk.process(), "/file", b"content").close()

    assert contents(prepare) == {b"content"}


def test_what_is_forced_can_be_looked_at() -> None:
    disk = SimulatedDisk()
    file = forced(disk.process(), "/file", b"content")
    assert (disk.forced("/file", 0, 100), disk.forced("/file", 4, 2), disk.forced("/other", 0, 9)) == (
        b"content",
        b"en",
        b"",
    )
    file.write(b"CON", 0)
    file.write(b"more", 600)
    assert disk.forced("/file", 0, 604) == b"content"
    file.force(with_metadata=False)
    assert disk.forced("/file", 0, 604) == b"CONtent" + bytes(593) + b"more"
    assert disk.forced("/file", 700, 4) == b""


def test_sectors_survive_in_any_subset_and_each_is_whole() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        forced(disk.process(), "/file", 3 * OLD).write(3 * NEW, 0)

    assert contents(prepare) == {b"".join(parts) for parts in product([OLD, NEW], repeat=3)}


def test_of_several_writes_any_may_be_the_last_that_survives() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        file = forced(disk.process(), "/file", bytes(SECTOR))
        file.write(b"first", 0)
        file.write(b"second", 10)

    first = b"first".ljust(SECTOR, b"\0")
    assert contents(prepare) == {bytes(SECTOR), first, first[:10] + b"second" + first[16:]}


def test_a_force_covers_what_came_before_it_only() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        file = forced(disk.process(), "/file", OLD)
        file.write(b"1", 0)
        file.write(b"2", 0)
        file.force(with_metadata=True)
        file.write(b"3", 0)

    assert contents(prepare) == {digit + OLD[1:] for digit in (b"2", b"3")}


def test_length_and_data_survive_apart() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        forced(disk.process(), "/file", OLD).write(2 * NEW, SECTOR)

    rest = {b"".join(parts) for parts in product([bytes(SECTOR), NEW], repeat=2)}
    assert contents(prepare) == {OLD} | {OLD + each for each in rest}


def test_a_long_write_extends_page_by_page() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        file = forced(disk.process(), "/file", b"x" * 5_000)
        file.write(b"x" * PAGE, 6_000)

    found = {None if content is None else len(content) for content in contents_drawn(prepare)}
    assert found == {5_000, 2 * PAGE, 6_000 + PAGE}


def test_what_was_cut_may_be_back_and_what_is_behind_the_end_is_zero() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        file = forced(disk.process(), "/file", 2 * OLD)
        file.set_length(100)
        file.set_length(SECTOR)

    half = OLD[:100].ljust(SECTOR, b"\0")
    assert contents(prepare) == {
        *(each[:length] for each in (OLD, half) for length in (100, SECTOR)),
        *(each + other for each in (OLD, half) for other in (OLD, bytes(SECTOR))),
    }


def test_a_cut_brings_to_the_disk_what_a_failed_force_did_not() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        file = forced(disk.process(), "/file", 2 * PAGE * b"o")
        file.write(bytes(PAGE), PAGE)
        disk.fail("force", errno.EIO)
        fails(errno.EIO, file.force, False)
        again = disk.process().open_file("/file", 0)
        again.set_length(PAGE)
        again.set_length(2 * PAGE)
        again.force(with_metadata=False)

    assert contents(prepare) == {PAGE * b"o" + bytes(PAGE)}


def test_data_beyond_a_lost_length_does_not_come_back() -> None:
    disk = SimulatedDisk()
    forced(disk.process(), "/file", OLD).write(NEW, SECTOR)
    for state in disk.crash_states():
        file = state.process().open_file("/file", 0)
        if file.length() == SECTOR:
            file.set_length(2 * SECTOR)
            assert file.read(SECTOR, SECTOR) == bytes(SECTOR)


def test_stores_through_a_map_are_written_and_not_forced() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        file = forced(disk.process(), "/file", bytes(3 * PAGE))
        view = file.map_range(PAGE - 8, 2 * PAGE)
        with memoryview(view) as memory:
            memory[0:8] = b"boundary"
            memory[8:16] = b"forced!!"
            view.force(8, 8)
            memory[8:16] = b"unforced"
        file.close()

    found = {content and (content[PAGE - 8 : PAGE], content[PAGE : PAGE + 8]) for content in contents(prepare)}
    assert found == {(near, far) for near in (bytes(8), b"boundary") for far in (b"forced!!", b"unforced")}


def test_a_closed_map_has_written_what_was_stored() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        file = forced(disk.process(), "/file", OLD)
        view = file.map_range(0, SECTOR)
        with memoryview(view) as memory:
            memory[:] = NEW
        view.close()

    assert contents(prepare) == {OLD, NEW}


def test_a_force_of_a_map_does_not_force_the_length() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        file = forced(disk.process(), "/file", b"")
        file.set_length(SECTOR)
        file.map_range(0, SECTOR).force(0, SECTOR)

    assert contents(prepare) == {b"", bytes(SECTOR)}


def test_forcing_a_file_does_not_force_its_name() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        file = disk.process().open_file("/file", CREATE)
        file.write(OLD, 0)
        file.force(with_metadata=True)

    assert contents(prepare) == {None, OLD}


def test_forcing_a_name_does_not_force_the_file() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        storage = disk.process()
        storage.open_file("/file", CREATE).write(OLD, 0)
        storage.force_directory("/")

    assert contents(prepare) == {b"", OLD, bytes(SECTOR)}


def test_a_rename_is_whole_but_may_come_before_the_content() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        storage = disk.process()
        forced(storage, "/file", OLD)
        storage.open_file("/new", CREATE | EXCLUSIVE).write(NEW, 0)
        storage.rename("/new", "/file")

    possible = {b"", bytes(SECTOR), NEW}
    assert survivors(prepare) == {
        (("/file", OLD),),
        *((("/file", OLD), ("/new", each)) for each in possible),
        *((("/file", each),) for each in possible),
    }


def test_names_are_lost_in_any_subset() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        storage = disk.process()
        forced(storage, "/a", b"")
        storage.open_file("/b", CREATE)
        storage.unlink("/a")

    assert survivors(prepare) == {tuple((name, b"") for name in names) for names in (["/a"], ["/a", "/b"], ["/b"], [])}


def test_all_names_survive_in_half_of_the_cuts() -> None:
    whole = 0
    for seed in range(SEEDS):
        disk = SimulatedDisk()
        storage = disk.process()
        names = [f"/{number:02}" for number in range(20)]
        for name in names:
            storage.open_file(name, CREATE)
        disk.cut_power(Draws(seed))
        whole += len(disk.contents()) == 21
    assert 0.4 * SEEDS < whole < 0.6 * SEEDS


def test_a_file_is_lost_with_its_directory() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        storage = disk.process()
        storage.make_directory("/directory")
        storage.open_file("/directory/file", CREATE)
        storage.force_directory("/directory")

    assert survivors(prepare) == {(), (("/directory", None), ("/directory/file", b""))}


def test_an_unlinked_file_that_comes_back_has_its_content() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        storage = disk.process()
        file = forced(storage, "/file", OLD)
        storage.unlink("/file")
        file.write(NEW, 0)

    assert contents(prepare) == {None, OLD, NEW}


def test_a_kill_loses_nothing_and_a_cut_of_the_power_after_it_may() -> None:
    disk = SimulatedDisk()
    storage = disk.process()
    file = storage.open_file("/file", CREATE)
    file.write(NEW, 0)
    view = file.map_range(0, SECTOR)
    with memoryview(view) as memory:
        memory[:5] = b"store"
        storage.kill(Draws(1))
        memory[:5] = b"after"
    expected = b"store" + NEW[5:]
    assert disk.contents() == {"/": None, "/file": expected}
    assert {dict(without_root(each)).get("/file") for each in disk.crash_states()} == {
        None, b"", bytes(SECTOR), NEW, expected,
    }  # fmt: skip
    assert disk.process().open_file("/file", 0).read(5, 0) == b"store"


def test_the_machine_boots_when_the_power_comes_back_and_not_when_a_process_is_killed() -> None:
    disk, other = SimulatedDisk(stream=1), SimulatedDisk(stream=2)
    first = disk.process()
    boot_id = first.boot_id()
    assert boot_id != other.process().boot_id()
    first.kill(Draws(1))
    with pytest.raises(OSError, match="is dead"):
        first.boot_id()
    assert disk.process().boot_id() == boot_id
    assert [state.process().boot_id() != boot_id for state in disk.crash_states()] == [True]
    assert disk.process().boot_id() == boot_id
    boot_ids = {boot_id}
    for seed in range(3):
        disk.cut_power(Draws(seed))
        boot_ids.add(disk.process().boot_id())
    assert len(boot_ids) == disk.boot_count == 4


def test_a_dead_process_has_no_effect() -> None:
    disk = SimulatedDisk()
    storage, other = disk.process(), disk.process()
    file = storage.open_file("/file", CREATE)
    file.write(OLD, 0)
    view = file.map_range(0, SECTOR)
    living = other.open_file("/file", 0).map_range(0, SECTOR)
    storage.kill(Draws(1))
    storage.kill(Draws(1))
    assert (storage.is_dead, other.is_dead, disk.crash_count) == (True, False, 1)
    with memoryview(view) as memory, memoryview(living) as shared:
        memory[:4] = b"dead"
        shared[4:10] = b"living"
        assert other.open_file("/file", 0).read(10, 0) == b"ooooliving"
    for call in (
        lambda: file.length(),
        lambda: file.read(1, 0),
        lambda: file.write(b"x", 0),
        lambda: file.set_length(0),
        lambda: file.reserve(PAGE),
        lambda: file.force(True),
        lambda: file.map_range(0, 1),
        lambda: view.force(0, 1),
        lambda: storage.open_file("/other", CREATE),
        lambda: storage.unlink("/file"),
        lambda: storage.rename("/file", "/other"),
        lambda: storage.make_directory("/directory"),
        lambda: storage.force_directory("/"),
        lambda: storage.exists("/"),
        lambda: storage.length_of("/file"),
        lambda: storage.list_directory("/"),
        lambda: storage.usable_space("/"),
    ):
        with pytest.raises(OSError, match="is dead"):
            call()
    view.close()
    file.close()
    assert list(disk.contents()) == ["/", "/file"]
    disk.cut_power(Draws(1))
    assert other.is_dead


def killed_while_writing(seed: int, offset: int, length: int, *, longest_write: int = 0, calls: int = 1) -> bytes:
    """Content of a file of three pages, of which the last call before the kill never returned."""
    disk = SimulatedDisk()
    storage = disk.process()
    file = forced(storage, "/file", b"o" * (3 * PAGE))

    def on_latency(kind: str, length: int) -> None:
        nonlocal calls
        calls -= kind == "write"
        if calls == 0:
            storage.kill(Draws(seed))

    disk.on_latency, disk.longest_write = on_latency, longest_write
    with pytest.raises(OSError, match="is dead"):
        file.write(b"n" * length, offset)
    content = disk.contents()["/file"]
    assert content is not None
    return content


def test_a_write_in_progress_is_cut_at_a_page() -> None:
    found = {killed_while_writing(seed, 100, 2 * PAGE) for seed in range(100)}
    ends = (100, PAGE, 2 * PAGE, 2 * PAGE + 100)
    assert found == {(b"o" * 100 + b"n" * (end - 100)).ljust(3 * PAGE, b"o") for end in ends}


def test_a_long_write_is_done_in_parts() -> None:
    found = {killed_while_writing(seed, 0, 3_000, longest_write=1_500, calls=2).count(b"n") for seed in range(50)}
    assert found == {1_024, 2_048}


def test_a_part_of_a_long_write_ends_with_a_sector() -> None:
    disk = SimulatedDisk()
    disk.longest_write = SECTOR
    file = forced(disk.process(), "/file", b"o" * (3 * SECTOR))
    file.write(b"n" * (2 * SECTOR), 300)
    contents = {each.contents()["/file"] for each in disk.crash_states()}
    sectors = {content[begin : begin + SECTOR] for content in contents if content for begin in range(0, 1536, SECTOR)}
    assert sectors == {b"o" * 512, b"o" * 300 + b"n" * 212, b"n" * 512, b"n" * 300 + b"o" * 212}


def test_a_force_in_progress_does_not_cover_what_is_written_meanwhile() -> None:
    disk = SimulatedDisk()
    file = forced(disk.process(), "/file", OLD)
    file.write(b"1", 0)

    def on_latency(kind: str, length: int) -> None:
        assert (kind, length) == ("force", SECTOR)
        disk.on_latency = None
        file.write(b"2", 0)

    disk.on_latency = on_latency
    file.force(with_metadata=False)
    assert {each.contents()["/file"] for each in disk.crash_states()} == {b"1" + OLD[1:], b"2" + OLD[1:]}


def test_a_force_of_a_directory_in_progress_does_not_cover_what_changes_meanwhile() -> None:
    disk = SimulatedDisk()
    storage = disk.process()
    storage.open_file("/first", CREATE)

    def on_latency(kind: str, length: int) -> None:
        assert kind == "force_directory"
        disk.on_latency = None
        storage.open_file("/second", CREATE)

    disk.on_latency = on_latency
    storage.force_directory("/")
    assert {len(each.contents()) for each in disk.crash_states()} == {2, 3}
    assert all("/first" in each.contents() for each in disk.crash_states())


def test_power_that_is_cut_while_writing_leaves_some_sectors() -> None:
    found = set()
    for seed in range(SEEDS):
        disk = SimulatedDisk()
        file = forced(disk.process(), "/file", 2 * OLD)
        disk.on_latency = lambda kind, length, disk=disk, seed=seed: disk.cut_power(Draws(seed))
        with pytest.raises(OSError, match="is dead"):
            file.write(2 * NEW, 0)
        found.add(disk.contents()["/file"])
    assert found == {OLD + OLD, OLD + NEW, NEW + OLD, NEW + NEW}


def test_a_process_that_dies_in_a_call_has_not_done_it() -> None:
    def die(storage: SimulatedStorage) -> Callable[[str, int], None]:
        return lambda kind, length: storage.kill(Draws(1))

    acts: list[Callable[[Storage, StorageFile], object]] = [
        lambda _, file: file.set_length(0),
        lambda _, file: file.force(True),
        lambda _, file: file.map_range(0, 1),
        lambda _, file: file.read(1, 0),
        lambda storage, _: storage.open_file("/other", CREATE),
        lambda storage, _: storage.rename("/file", "/other"),
        lambda storage, _: storage.unlink("/file"),
        lambda storage, _: storage.force_directory("/"),
    ]
    for act in acts:
        disk = SimulatedDisk()
        storage = disk.process()
        file = storage.open_file("/file", CREATE)
        file.write(OLD, 0)
        disk.on_latency = die(storage)
        with pytest.raises(OSError, match="is dead"):
            act(storage, file)
        assert disk.contents() == {"/": None, "/file": OLD}
        assert len(list(disk.crash_states())) == 4


def test_equal_seeds_lose_the_same_and_others_are_left_alone() -> None:
    def run(seed: int, *, others: int = 0, stream: int = 0) -> dict[str, bytes | None]:
        disk = SimulatedDisk(stream=stream)
        storage = disk.process()
        for number in range(others):
            forced(storage, f"/other-{number}", OLD).write(NEW, 0)
        forced(storage, "/file", 40 * OLD).write(40 * NEW, 0)
        disk.cut_power(Draws(seed))
        return disk.contents()

    for seed in range(20):
        assert run(seed) == run(seed)
        assert run(seed)["/file"] == run(seed, others=3)["/file"]
    assert [run(seed) for seed in range(20)] != [run(seed, stream=1) for seed in range(20)]
    assert len({run(seed)["/file"] for seed in range(20)}) > 5


def test_crash_states_leave_the_disk_as_it_is_and_are_limited() -> None:
    disk = SimulatedDisk(capacity=100 * PAGE)
    storage = disk.process()
    file = forced(storage, "/file", 12 * OLD)
    file.write(12 * NEW, 0)
    assert len(list(disk.crash_states())) == 4096
    file.write(NEW, 12 * SECTOR)
    with pytest.raises(ValueError, match=r"16384 combinations of 14 sectors.*more than 4096: look at a shorter run"):
        list(disk.crash_states())
    assert len(list(disk.crash_states(limit=16384))) == 3 * 4096
    assert file.read(PAGE, 0) == 8 * NEW
    assert not storage.is_dead
    states = disk.crash_states(limit=16384)
    assert next(states).process().usable_space("/") == 98 * PAGE


# --- two protocols that replace a file


def naive(storage: Storage) -> None:
    storage.open_file("/state.new", CREATE).write(2 * NEW, 0)
    storage.rename("/state.new", "/state")


def right(storage: Storage) -> None:
    file = storage.open_file("/state.new", CREATE)
    file.write(2 * NEW, 0)
    file.force(with_metadata=False)
    storage.rename("/state.new", "/state")
    storage.force_directory("/")


def states_of(replace: Callable[[Storage], None]) -> Iterator[tuple[bool, bytes | None]]:
    """Each content that a cut of the power before or in any call, or (True) at the end, may leave."""
    disk = SimulatedDisk()
    storage = disk.process()
    forced(storage, "/state", 2 * OLD)
    found: list[SimulatedDisk] = []
    disk.on_latency = lambda kind, length: found.extend(disk.crash_states())
    replace(storage)
    disk.on_latency = None
    for is_done, states in ((False, found), (True, disk.crash_states())):
        for each in states:
            yield is_done, each.contents().get("/state")


def test_the_enumeration_finds_what_is_wrong_with_a_naive_protocol() -> None:
    broken = {content for _, content in states_of(naive)} - {2 * OLD, 2 * NEW}
    assert broken == {b"", bytes(2 * SECTOR), NEW + bytes(SECTOR), bytes(SECTOR) + NEW}
    assert (True, 2 * OLD) in set(states_of(naive)), "and what was done may be lost"


def test_the_enumeration_finds_nothing_in_the_right_protocol() -> None:
    found = set(states_of(right))
    assert found == {(False, 2 * OLD), (False, 2 * NEW), (True, 2 * NEW)}


# --- faults


def test_the_next_call_fails_by_script() -> None:
    disk = SimulatedDisk()
    storage = disk.process()
    file = forced(storage, "/file", b"content")
    calls: dict[str, Callable[[], object]] = {
        "open": lambda: storage.open_file("/file", READ_ONLY),
        "look": lambda: storage.exists("/file"),
        "read": lambda: file.read(1, 0),
        "write": lambda: file.write(b"x", 0),
        "extend": lambda: file.set_length(10),
        "map": lambda: file.map_range(0, 1),
        "rename": lambda: storage.rename("/file", "/other"),
        "make_directory": lambda: storage.make_directory("/directory"),
        "unlink": lambda: storage.unlink("/file"),
    }
    before = disk.contents()
    for kind, call in calls.items():
        disk.fail(kind, errno.EIO)
        fails(errno.EIO, call)
    assert disk.contents() == before
    disk.fail("read", errno.EIO, after=1)
    assert file.read(1, 0) == b"c"
    fails(errno.EIO, file.read, 1, 0)
    for call in calls.values():
        if call is not calls["unlink"]:
            call()
    with pytest.raises(ValueError, match="no calls of kind 'sync': give one of look, open"):
        disk.fail("sync", errno.EIO)


def test_a_write_fails_after_some_of_it() -> None:
    disk = SimulatedDisk()
    file = disk.process().open_file("/file", CREATE)
    disk.fail("write", errno.ENOSPC, written=100)
    error = fails(errno.ENOSPC, file.write, NEW, 7)
    assert "cannot write 512 bytes at 7, 100 of them are written: No space left on device" in str(error)
    assert file.read(SECTOR, 0) == bytes(7) + NEW[:100]


def test_a_write_that_fails_ends_with_a_sector_where_it_is_to() -> None:
    disk = SimulatedDisk()
    file = disk.process().open_file("/file", CREATE)
    for written, stored in ((100, 0), (SECTOR, SECTOR - 7), (2 * SECTOR, 2 * SECTOR)):
        disk.fail("write", errno.ENOSPC, written=written, whole_sectors=True)
        error = fails(errno.ENOSPC, file.write, NEW * 2, 7)
        assert f"cannot write 1024 bytes at 7, {stored} of them are written" in str(error)


def test_what_a_failed_force_lost_is_not_forced_later() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        storage = disk.process()
        file = forced(storage, "/file", 10 * OLD)
        file.write(NEW, 0)
        disk.fail("force", errno.EIO)
        fails(errno.EIO, file.force, False)
        assert "failed before" in str(fails(errno.EIO, file.force, False))
        again = storage.open_file("/file", 0)
        again.write(NEW, 8 * SECTOR)  # in another page
        again.force(with_metadata=True)

    assert contents(prepare) == {each + 7 * OLD + NEW + OLD for each in (OLD, NEW)}


@pytest.mark.parametrize("again_written", [b"N", b"n"])
def test_what_is_written_again_after_a_failed_force_can_be_forced(again_written: bytes) -> None:
    def prepare(disk: SimulatedDisk) -> None:
        storage = disk.process()
        file = forced(storage, "/file", OLD)
        file.write(NEW, 0)
        disk.fail("force", errno.EIO)
        fails(errno.EIO, file.force, False)
        again = storage.open_file("/file", 0)
        again.write(again_written, 0)
        again.force(with_metadata=False)

    assert contents(prepare) == {again_written + NEW[1:]}


def test_a_force_of_a_directory_that_failed_is_not_trusted() -> None:
    disk = SimulatedDisk()
    storage = disk.process()
    storage.open_file("/file", CREATE)
    disk.fail("force_directory", errno.EIO)
    fails(errno.EIO, storage.force_directory, "/")
    assert "failed before" in str(fails(errno.EIO, storage.force_directory, "/"))
    assert len(list(disk.crash_states())) == 2


def test_a_name_is_on_the_disk_once_it_is_written_again_after_a_force_of_its_directory_that_failed() -> None:
    disk = SimulatedDisk()
    storage = disk.process()

    def put(content: bytes) -> None:
        file = storage.open_file("/new", CREATE)
        file.write(content, 0)
        file.force(True)
        storage.rename("/new", "/file")

    put(b"one")
    storage.force_directory("/")
    put(b"two")
    disk.fail("force_directory", errno.EIO)
    fails(errno.EIO, storage.force_directory, "/")
    storage.retry_directory("/")
    storage.force_directory("/")
    assert {state.contents()["/file"] for state in disk.crash_states()} == {b"one", b"two"}
    put(b"three")
    storage.force_directory("/")
    assert [state.contents() for state in disk.crash_states()] == [{"/": None, "/file": b"three"}]


def test_rot_flips_bits_wherever_they_are() -> None:
    disk = SimulatedDisk()
    storage = disk.process()
    file = forced(storage, "/file", OLD)
    file.write(b"n", 0)
    disk.rot("/file", 0, 0x01)
    disk.rot("/file", 1, 0x80)
    assert file.read(2, 0) == bytes([ord("n") ^ 1, ord("o") ^ 0x80])
    found = {(each.contents()["/file"] or b"")[:2] for each in disk.crash_states()}
    assert found == {bytes([ord(letter) ^ 1, ord("o") ^ 0x80]) for letter in "on"}
    with pytest.raises(ValueError, match="cannot rot byte 512"):
        disk.rot("/file", SECTOR)
    fails(errno.ENOENT, disk.rot, "/none", 0)


def test_space_is_what_files_with_a_name_take() -> None:
    disk = SimulatedDisk(capacity=10 * PAGE)
    storage = disk.process()
    file = forced(storage, "/file", b"x" * (3 * PAGE))
    file.set_length(100 * PAGE)
    assert storage.usable_space("/") == 7 * PAGE
    storage.open_file("/new", CREATE).reserve(2 * PAGE)
    storage.rename("/new", "/file")
    assert storage.usable_space("/") == 8 * PAGE
    disk.cut_power(Draws(3))
    assert disk.process().usable_space("/") in (5 * PAGE, 7 * PAGE, 8 * PAGE, 10 * PAGE)


def test_a_long_sparse_file_takes_no_memory() -> None:
    disk = SimulatedDisk()
    file = disk.process().open_file("/segment", CREATE)
    file.set_length(1 << 30)
    file.write(b"end", (1 << 30) - 3)
    assert file.read(3, (1 << 30) - 3) == b"end"
    file.set_length(1 << 31)
    fails(errno.EFBIG, file.set_length, (1 << 31) + 1)
    fails(errno.EFBIG, file.write, b"x", 1 << 31)
