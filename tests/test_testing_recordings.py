"""Reading recording logs and recordings from files that are laid out by hand."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from container.errors import ContainerError
from container.testing.processes.recordings import (
    SnapshotEntry,
    latest_snapshot,
    read_snapshot_entries,
    recorded_messages,
)

TERM, SNAPSHOT, STANDBY_SNAPSHOT, INVALID = 0, 1, 2, -(2**31)


def entry(recording_id: int, position: int, service_id: int, kind: int, endpoint: bytes = b"") -> bytes:
    """An entry of a recording log, padded to a multiple of 64 bytes."""
    fixed = struct.pack("<qqqqqii", recording_id, 3, 64, position, 7, service_id, kind)
    if kind == STANDBY_SNAPSHOT:
        fixed += struct.pack("<i", len(endpoint)) + endpoint
    return fixed.ljust((len(fixed) + 63) // 64 * 64, b"\xff")


def frame(payload: bytes, flags: int = 0xC0, kind: int = 1) -> bytes:
    """A frame of a recording, aligned to 32 bytes."""
    whole = struct.pack("<iBBH24x", 32 + len(payload), 0, flags, kind) + payload
    return whole.ljust((len(whole) + 31) // 32 * 32, b"\0")


def test_valid_snapshots_are_found_among_other_entries(tmp_path: Path) -> None:
    entries = [
        entry(0, -1, -1, TERM),
        entry(4, 128, 0, SNAPSHOT),
        entry(5, 128, -1, SNAPSHOT),
        entry(6, 256, 0, STANDBY_SNAPSHOT, b"localhost:12345678901234567890"),
        entry(7, 512, 0, SNAPSHOT | INVALID),
        entry(8, 512, 0, -1),
        entry(9, 384, 0, SNAPSHOT),
    ]
    (tmp_path / "recording.log").write_bytes(b"".join(entries))
    assert read_snapshot_entries(tmp_path) == [
        SnapshotEntry(4, 3, 128, 0),
        SnapshotEntry(5, 3, 128, -1),
        SnapshotEntry(9, 3, 384, 0),
    ]
    assert latest_snapshot(tmp_path).recording_id == 9
    assert latest_snapshot(tmp_path, -1).recording_id == 5
    with pytest.raises(ContainerError, match="has no snapshot of service_id=1"):
        latest_snapshot(tmp_path, 1)


def test_messages_are_put_together_over_frames_and_segments(tmp_path: Path) -> None:
    first = frame(b"whole") + frame(b"a", 0x80) + frame(b"", 0, kind=0) + frame(b"b", 0)
    (tmp_path / "2-0.rec").write_bytes(first)
    (tmp_path / "2-65536.rec").write_bytes(frame(b"c", 0x40) + frame(b"") + bytes(64) + frame(b"never written"))
    (tmp_path / "22-0.rec").write_bytes(frame(b"of another recording"))
    assert recorded_messages(tmp_path, 2) == [b"whole", b"abc", b""]
    with pytest.raises(ContainerError, match="no segment of recording_id=3"):
        recorded_messages(tmp_path, 3)
