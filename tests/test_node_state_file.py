"""The node state file: upstream's format and tests, damage, and crashes at every call."""

from __future__ import annotations

import errno
import struct
from contextlib import suppress
from pathlib import Path

import pytest

from container.errors import ClusterError, RecordingError
from container.files.names import NODE_STATE_NAME
from container.files.node_state_file import NodeStateFile
from container.storage.file_storage import FileStorage
from container.storage.storage_seam import CREATE, Storage
from container.testing.simulation.disk import SimulatedDisk, SimulatedStorage
from tests.crashes import check_power_cuts, kills

DIRECTORY = "/member"
PATH = f"{DIRECTORY}/{NODE_STATE_NAME}"
LENGTH = 1 << 20
HEADER = struct.pack("<i4x", 768)
FOOTER = struct.pack("<HHHHi4x", 0, 304, 112, 10, 16)


def new_storage() -> Storage:
    storage = SimulatedDisk().process()
    storage.make_directory(DIRECTORY)
    return storage


def take(storage: Storage, *, create: bool = True, directory: str = DIRECTORY) -> NodeStateFile:
    return NodeStateFile.open(storage, directory, create=create)


def put(storage: Storage, content: bytes) -> None:
    file = storage.open_file(PATH, CREATE)
    file.set_length(0)
    file.write(content, 0)
    file.close()


def content_of(storage: Storage) -> bytes:
    return storage.open_file(PATH, 0).read(2 * LENGTH, 0)


def candidate(term_id: int, timestamp: int, log_position: int, *, schema_id: int = 112) -> bytes:
    return struct.pack("<HHHHi4xqqq", 24, 301, schema_id, 10, 40, term_id, timestamp, log_position)


def state(file: NodeStateFile) -> tuple[int, int, int]:
    return file.candidate_term_id, file.log_position, file.timestamp


# Upstream: NodeStateFileTest.java.


def test_without_a_file_there_is_an_error_unless_one_is_to_be_made() -> None:
    storage = new_storage()
    with pytest.raises(FileNotFoundError):
        take(storage, create=False)
    assert storage.list_directory(DIRECTORY) == []


def test_a_new_file_has_upstream_s_bytes_and_no_term() -> None:
    storage = new_storage()
    file = take(storage)
    assert state(file) == (-1, -1, -1)
    assert storage.list_directory(DIRECTORY) == [NODE_STATE_NAME]
    assert content_of(storage) == (HEADER + candidate(-1, -1, -1) + FOOTER).ljust(LENGTH, b"\0")


def test_a_term_is_there_when_the_file_is_opened_again() -> None:
    storage = new_storage()
    file = take(storage)
    file.update_candidate_term_id(832234, 8923423, 324234)
    assert state(file) == (832234, 8923423, 324234)
    file.close()
    file.close()
    assert state(take(storage, create=False)) == (832234, 8923423, 324234)
    assert content_of(storage)[8:64] == candidate(832234, 324234, 8923423) + FOOTER


def test_a_file_of_another_major_version_is_refused() -> None:
    storage = new_storage()
    put(storage, (struct.pack("<i4x", 0x01_03_00) + candidate(1, 2, 3) + FOOTER).ljust(LENGTH, b"\0"))
    with pytest.raises(RecordingError, match=r"node-state.dat, offset 0: the node state has version 1.3.0, only 0.x"):
        take(storage)


def test_a_proposal_counts_only_if_it_is_higher() -> None:
    storage = new_storage()
    file = take(storage)
    file.update_candidate_term_id(5, 10, 10)
    assert file.propose_max_candidate_term_id(6, 20, 20) == 6
    assert file.propose_max_candidate_term_id(5, 30, 30) == 6
    assert file.propose_max_candidate_term_id(6, 30, 30) == 6
    assert state(file) == (6, 20, 20)
    assert state(take(storage, create=False)) == (6, 20, 20)


def test_a_file_of_upstream_1_42_with_cluster_members_is_read_and_written() -> None:
    storage = new_storage()
    members = b"10001,localhost:20110,localhost:20220,localhost:20330,localhost:20440,localhost:8010"
    length = 16 + 16 + 4 + len(members)
    record = struct.pack("<HHHHi4xqiiI", 16, 303, 112, 10, length, 10001, 10002, 10003, len(members)) + members
    record = record.ljust((length + 7) // 8 * 8, b"\0")
    old = HEADER + candidate(982374, 9878967687234, 89723648762342) + record + FOOTER
    put(storage, old.ljust(LENGTH, b"\0"))
    file = take(storage, create=False)
    assert state(file) == (982374, 89723648762342, 9878967687234)
    assert file.propose_max_candidate_term_id(982474, 20, 30) == 982474
    assert state(take(storage, create=False)) == (982474, 20, 30)
    assert content_of(storage)[48 : len(old)] == old[48:]


# What upstream does not do.


def test_a_term_never_goes_back() -> None:
    file = take(new_storage())
    file.update_candidate_term_id(5, 10, 10)
    file.update_candidate_term_id(5, 11, 12)
    with pytest.raises(ClusterError, match="the candidate term cannot go back from 5 to 4: .* propose a higher term"):
        file.update_candidate_term_id(4, 20, 20)
    assert state(file) == (5, 11, 12)


def test_files_of_this_machine(tmp_path: Path) -> None:
    file = take(FileStorage(), directory=str(tmp_path))
    assert file.propose_max_candidate_term_id(7, 8, 9) == 7
    assert (tmp_path / NODE_STATE_NAME).stat().st_size == LENGTH
    assert repr(file) == f"<NodeStateFile {tmp_path}/{NODE_STATE_NAME} candidate_term_id=7>"
    file.close()
    with pytest.raises(OSError, match="file that is closed"):
        file.propose_max_candidate_term_id(8, 8, 9)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (
            b"",
            "the node state has 0 bytes, and all are zero: a crash came while upstream made it; take it from a backup",
        ),
        (bytes(LENGTH), "has 1048576 bytes, and all are zero"),
        (HEADER + candidate(1, 2, 3), "the node state ends at 48 without its footer: take it from a backup"),
        (HEADER + FOOTER, "offset 8: the node state has no candidate term"),
        (HEADER + candidate(1, 2, 3, schema_id=110) + FOOTER, "offset 8: a record of schema 110 where 112 is expected"),
        (HEADER + candidate(-2, 2, 3) + FOOTER, "offset 24: candidate term -2: must be -1 or more"),
        (HEADER + struct.pack("<HHHHi4x", 24, 301, 112, 10, 8) + FOOTER, "a record of 8 bytes with a block of 24"),
        (HEADER + struct.pack("<HHHHi4x", 0, 303, 112, 10, -8) + FOOTER, "a record of -8 bytes with a block of 0"),
        (HEADER + struct.pack("<HHHHi4x", 0, 303, 112, 10, 9999) + FOOTER, "a record of 9999 bytes with a block of 0"),
        (HEADER + struct.pack("<HHHHi4x8x", 8, 301, 112, 10, 24) + FOOTER, "a candidate term of 8 bytes, at least 24"),
        (HEADER + candidate(1, 2, 3) + bytes(1000), "offset 48: a record of schema 0 where 112 is expected"),
    ],
)
def test_a_damaged_or_foreign_file_is_refused_and_stays_as_it_is(content: bytes, text: str) -> None:
    storage = new_storage()
    put(storage, content)
    with pytest.raises(RecordingError) as caught:
        take(storage)
    assert text in str(caught.value)
    assert PATH in str(caught.value)
    assert content_of(storage) == content


def test_a_term_of_which_the_force_fails_does_not_count_and_the_next_goes_into_a_new_file() -> None:
    """A later force of the old one would say nothing: the system takes for written what the failed one has lost."""
    disk = SimulatedDisk()
    storage = disk.process()
    storage.make_directory(DIRECTORY)
    file = take(storage)
    file.update_candidate_term_id(3, 0, 0)
    for kind in ("force", "force", "rename", "force_directory", "force_directory"):
        disk.fail(kind, errno.EIO)
        with pytest.raises(OSError, match="Input/output error"):
            file.propose_max_candidate_term_id(4, 0, 0)
        assert file.candidate_term_id == 3
    assert file.propose_max_candidate_term_id(4, 5, 6) == 4
    assert storage.list_directory(DIRECTORY) == [NODE_STATE_NAME]
    assert content_of(storage) == (HEADER + candidate(4, 6, 5) + FOOTER).ljust(LENGTH, b"\0")
    assert file.propose_max_candidate_term_id(5, 7, 8) == 5
    assert state(take(storage)) == (5, 7, 8)
    file.close()


# Crashes.


def prepare(storage: Storage) -> None:
    storage.make_directory(DIRECTORY)
    storage.force_directory("/")


def test_a_cut_of_the_power_while_a_file_is_made_needs_nobody() -> None:
    def check(disk: SimulatedDisk) -> None:
        storage = disk.process()
        assert state(take(storage)) == (-1, -1, -1)
        assert storage.list_directory(DIRECTORY) == [NODE_STATE_NAME]

    assert check_power_cuts(prepare, take, check) > 5
    for disk in kills(prepare, take):
        check(disk)


def test_a_term_of_which_the_force_has_returned_survives_a_cut_of_the_power() -> None:
    returned, begun = -1, -1

    def act(storage: Storage) -> None:
        nonlocal returned, begun
        file = take(storage)
        for term_id in range(1, 6):
            begun = term_id
            returned = file.propose_max_candidate_term_id(term_id, 10 * term_id, 100 * term_id)

    def check(disk: SimulatedDisk) -> None:
        term_id, log_position, timestamp = state(take(disk.process()))
        assert returned <= term_id <= begun
        assert (log_position, timestamp) == ((10 * term_id, 100 * term_id) if term_id > 0 else (-1, -1))

    assert check_power_cuts(prepare, act, check) > 20


@pytest.mark.parametrize("kind", ["force", "force_directory"])
def test_a_term_after_a_force_that_failed_survives_a_cut_of_the_power(kind: str) -> None:
    returned, begun = -1, -1

    def act(storage: Storage) -> None:
        nonlocal returned, begun
        assert isinstance(storage, SimulatedStorage)
        file = take(storage)
        for term_id in range(1, 6):
            begun = term_id
            if term_id == 2:
                storage.disk.fail("force", errno.EIO)
                storage.disk.fail(kind, errno.EIO, after=int(kind == "force"))
            with suppress(OSError):
                returned = file.propose_max_candidate_term_id(term_id, 10 * term_id, 100 * term_id)

    def check(disk: SimulatedDisk) -> None:
        term_id, log_position, timestamp = state(take(disk.process()))
        assert returned <= term_id <= begun
        assert (log_position, timestamp) == ((10 * term_id, 100 * term_id) if term_id > 0 else (-1, -1))

    assert check_power_cuts(prepare, act, check) > 20
    assert returned == 5


def test_a_term_that_a_killed_process_left_unforced_is_forced_before_it_counts() -> None:
    seen: list[int] = []

    def act(storage: Storage) -> None:
        take(storage).close()
        file = storage.open_file(PATH, 0)
        file.write(candidate(9, 1, 1), len(HEADER))
        file.close()
        seen.append(take(storage).candidate_term_id)

    def check(disk: SimulatedDisk) -> None:
        assert take(disk.process()).candidate_term_id == 9 or not seen

    check_power_cuts(prepare, act, check)
    assert seen == [9]


def test_a_term_survives_a_kill_once_it_is_stored() -> None:
    for disk in kills(prepare, lambda storage: take(storage).update_candidate_term_id(4, 5, 6)):
        assert state(take(disk.process())) in ((-1, -1, -1), (4, 5, 6))


def test_a_term_whose_force_failed_is_on_the_disk_once_another_process_has_read_it() -> None:
    """The system takes for written what the failed force has lost: another force alone would do nothing."""
    disk = SimulatedDisk()
    storage = disk.process()
    prepare(storage)
    file = take(storage)
    file.update_candidate_term_id(3, 0, 0)
    disk.fail("force", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        file.update_candidate_term_id(4, 0, 0)
    term_id = take(disk.process()).candidate_term_id
    for state in disk.crash_states():
        assert take(state.process()).candidate_term_id == term_id
