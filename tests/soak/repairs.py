"""What an operator does for a member whose files keep it from starting, and damage that makes them so."""

from __future__ import annotations

import random
import re
import struct
from pathlib import Path

from container.common.aeron_defaults import LOG_STREAM_ID
from container.files.catalog import NULL_POSITION, read_catalog
from container.testing.processes.local_cluster import LocalMember
from container.testing.processes.recordings import latest_snapshot, recorded_messages

_TOOL = "io.aeron.archive.ArchiveTool"
_TOOL_LIMIT_S = 60.0
_TORN = re.compile(r"incomplete last fragment straddling page boundary in file: .*?(\d+)-\d+\.rec$", re.MULTILINE)

_FRAME_HEADER_LENGTH = 32
_FRAME_LENGTH = struct.Struct("<i")
_PAGE_LENGTH = 4096
#: Ways to damage a frame of a recording.
DAMAGES = ("header zeroed", "length zeroed", "file cut")


def torn_recording(errors: str) -> int | None:
    """The recording for whose last frame Java's archive refused to start, by what it printed; None when there is none.

    It does so after a write that a full disk or a death cut short at a page: what is missing was never announced.
    """
    found = _TORN.search(errors)
    return None if found is None else int(found[1])


def truncate_torn_recording(member: LocalMember, recording_id: int) -> None:
    """Let ArchiveTool cut off the last frame of a recording, while the member's archive is down.

    Raises:
        AssertionError: it does not do so.
    """
    arguments = [str(member.node.archive_dir), "verify", str(recording_id)]
    tool = member.node.start_java_client(_TOOL, arguments, name="archive-tool")
    tool.write_line("y")
    assert tool.wait(_TOOL_LIMIT_S) == 0, tool.tail()
    assert f"(recordingId={recording_id}) OK" in tool.output(), tool.tail()


def tear_log(member: LocalMember) -> Path | None:
    """Begin a frame after the end of a member's log, as a write that was cut short at a page; returns the file.

    None where the recording of the log was stopped: no write to it can be cut short then.
    """
    logs = [
        descriptor.recording_id
        for descriptor in read_catalog(member.node.archive_dir)
        if (descriptor.stream_id, descriptor.stop_position) == (LOG_STREAM_ID, NULL_POSITION)
    ]
    if not logs:
        return None
    segments = member.node.archive_dir.glob(f"{logs[-1]}-*.rec")
    path = max(segments, key=lambda path: int(path.stem.partition("-")[2]))
    tear_file(path)
    return path


def tear_file(path: Path) -> None:
    """Begin a frame after the last one of a segment file, of which only the part on its first page was written."""
    content = path.read_bytes()
    offset = previous = 0
    while (length := _FRAME_LENGTH.unpack_from(content, offset)[0]) > 0:
        previous, offset = offset, offset + (length + _FRAME_HEADER_LENGTH - 1 & -_FRAME_HEADER_LENGTH)
    header = content[previous + _FRAME_LENGTH.size : previous + _FRAME_HEADER_LENGTH]
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(_FRAME_LENGTH.pack(2 * _PAGE_LENGTH) + header)


def damage_snapshot(member: LocalMember, choice: random.Random) -> str:
    """Damage a frame of the latest snapshot of a member's service, while the member is down; returns what was done."""
    recording_id = latest_snapshot(member.node.cluster_dir).recording_id
    messages = recorded_messages(member.node.archive_dir, recording_id)
    damage = choice.choice(DAMAGES)
    message = messages[choice.randrange(1, len(messages))]
    path = member.node.archive_dir / f"{recording_id}-0.rec"
    damage_frame(path, path.read_bytes().index(message) - _FRAME_HEADER_LENGTH, damage)
    return f"{damage} at message {messages.index(message)} of {len(messages)} of {path.name}"


def damage_frame(path: Path, offset: int, damage: str) -> None:
    """Damage the frame of a recording that begins at an offset of one of its files."""
    with path.open("r+b") as file:
        file.seek(offset)
        if damage == "file cut":
            file.truncate(offset)
        else:
            file.write(bytes(_FRAME_HEADER_LENGTH if damage == "header zeroed" else 4))
