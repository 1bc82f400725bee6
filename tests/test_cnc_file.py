"""Reading a driver's counters and errors, and mark files, from bytes laid out as upstream describes them."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from container.files.cnc_file import (
    MARK_FILE_ACTIVATING,
    CncFile,
    FileFormatError,
    mark_terminated,
    read_mark_file,
)

TO_DRIVER, TO_CLIENTS, COUNTERS_MAX, ERROR_LOG = 1024, 512, 4, 256
METADATA_START = 128 + TO_DRIVER + TO_CLIENTS
VALUES_START = METADATA_START + 512 * COUNTERS_MAX
ERRORS_START = VALUES_START + 128 * COUNTERS_MAX
VERSION = 2 << 8


def error_record(text: bytes, count: int = 1) -> bytes:
    """A record with first and last observation at 5 and 6 ms, padded to 8 bytes."""
    record = struct.pack("<iiqq", 24 + len(text), count, 6, 5) + text
    return record + bytes(-len(record) % 8)


def cnc_content(version: int = VERSION) -> bytes:
    """A CnC file with four counters: a cluster's, a reclaimed, one with too long a label, an unused."""
    content = bytearray(ERRORS_START + ERROR_LOG)
    lengths = (TO_DRIVER, TO_CLIENTS, 512 * COUNTERS_MAX, 128 * COUNTERS_MAX, ERROR_LOG)
    struct.pack_into("<6iqqqi", content, 0, version, *lengths, 10**10, 1234, 77, 4096)
    for counter_id, state, type_id, key, label, length in (
        (0, 1, 203, struct.pack("<iq", 5, -6), b"Cluster commit-pos: - clusterId=5", 33),
        (1, -1, 203, b"", b"gone", 4),
        (2, 1, 9, b"", b"x" * 380, 9999),
    ):
        start = METADATA_START + 512 * counter_id
        struct.pack_into("<ii", content, start, state, type_id)
        content[start + 16 : start + 16 + len(key)] = key
        struct.pack_into("<i", content, start + 128, length)
        content[start + 132 : start + 132 + len(label)] = label
        struct.pack_into("<qqqq", content, VALUES_START + 128 * counter_id, counter_id * 100 - 1, 11, 12, 13)
    errors = error_record(b"first", 3) + error_record(b"second one")
    content[ERRORS_START : ERRORS_START + len(errors)] = errors
    return bytes(content)


def write(path: Path, content: bytes) -> Path:
    """Write a file and return its path."""
    path.write_bytes(content)
    return path


def test_allocated_counters_are_read_in_order(tmp_path: Path) -> None:
    cnc_file = CncFile(write(tmp_path / "cnc.dat", cnc_content()))
    commit_position, other = cnc_file.counters()
    assert (commit_position.counter_id, commit_position.type_id, commit_position.value) == (0, 203, -1)
    assert commit_position.label == "Cluster commit-pos: - clusterId=5"
    assert (commit_position.key_int32(0), commit_position.key_int64(4)) == (5, -6)
    assert (commit_position.registration_id, commit_position.owner_id, commit_position.reference_id) == (
        11,
        12,
        13,
    )
    assert (other.counter_id, other.value, other.label) == (2, 199, "x" * 380)
    cnc_file.close()


def test_the_drivers_errors_and_metadata_are_read(tmp_path: Path) -> None:
    cnc_file = CncFile(write(tmp_path / "cnc.dat", cnc_content()))
    assert [(record.observation_count, record.text) for record in cnc_file.errors()] == [
        (3, "first"),
        (1, "second one"),
    ]
    assert (cnc_file.errors()[0].first_observation_ms, cnc_file.errors()[0].last_observation_ms) == (5, 6)
    assert (cnc_file.client_liveness_timeout_ns, cnc_file.start_timestamp_ms) == (10**10, 1234)
    assert (cnc_file.pid, cnc_file.file_page_size) == (77, 4096)
    cnc_file.close()
    cnc_file.close()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "has 0 bytes; its driver may still be starting"),
        (bytes(100), "has 100 bytes; its driver may still be starting"),
        (cnc_content(version=0), "has version 0; its driver may still be starting"),
        (cnc_content(version=1 << 16), "has major version 1, expected 0"),
        (cnc_content()[:-1], "fewer than its metadata says"),
    ],
)
def test_a_file_that_is_not_ready_or_foreign_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = write(tmp_path / "cnc.dat", content)
    with pytest.raises(FileFormatError, match=reason):
        CncFile(path)
    assert CncFile.open_ready(tmp_path) is None


def test_a_missing_file_is_not_ready(tmp_path: Path) -> None:
    assert CncFile.open_ready(tmp_path) is None


def mark_content(schema_id: int, activity_timestamp_ms: int) -> bytes:
    """A mark file of the archive (100) or the cluster (110) with one error."""
    content = bytearray(8192 + 4096)
    struct.pack_into("<HHHH", content, 0, 128, 200, schema_id, 2)
    struct.pack_into("<i4xqqq", content, 8, 768, activity_timestamp_ms, 222, 77)
    struct.pack_into("<ii", content, 8 + {100: 44, 110: 64}[schema_id], 8192, 4096)
    record = error_record(b"an error")
    content[8192 : 8192 + len(record)] = record
    return bytes(content)


@pytest.mark.parametrize("schema_id", [100, 110])
def test_a_mark_file_tells_when_it_may_be_taken(tmp_path: Path, schema_id: int) -> None:
    path = write(tmp_path / "mark.dat", mark_content(schema_id, 1_000_000))
    status = read_mark_file(path)
    assert status.is_active
    assert (status.version, status.pid, status.start_timestamp_ms) == (768, 77, 222)
    assert [record.text for record in status.errors] == ["an error"]
    assert [status.takeable_in_ms(now) for now in (1_000_000, 1_009_999, 1_010_000, 2_000_000)] == [
        10_000,
        1,
        0,
        0,
    ]


def test_a_terminated_mark_file_may_be_taken_at_once(tmp_path: Path) -> None:
    path = write(tmp_path / "mark.dat", mark_content(110, 1_000_000))
    mark_terminated(path)
    status = read_mark_file(path)
    assert status.activity_timestamp_ms == -1
    assert not status.is_active
    assert status.takeable_in_ms(1_000_001) == 0
    assert status.pid == 77


def test_a_mark_file_left_in_activation_is_never_free(tmp_path: Path) -> None:
    path = write(tmp_path / "mark.dat", mark_content(110, MARK_FILE_ACTIVATING))
    assert not read_mark_file(path).is_active
    with pytest.raises(FileFormatError, match="being activated by pid 77; if that process is dead, delete the file"):
        read_mark_file(path).takeable_in_ms(2**62)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "has 0 bytes"),
        (bytes(200), "has template 0 of schema 0, expected 200 of"),
        (mark_content(110, 0)[:100], "has 100 bytes, fewer than the header"),
    ],
)
def test_what_is_no_mark_file_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = write(tmp_path / "mark.dat", content)
    with pytest.raises(FileFormatError, match=reason):
        read_mark_file(path)


def test_no_interrupt_is_lost_where_a_file_is_dropped() -> None:
    """Python swallows what is raised in a ``__del__``: Ctrl-C, too, if it comes right there."""
    assert not hasattr(CncFile, "__del__")
