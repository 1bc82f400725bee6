"""Reads the archive of a node, running or not, and changes nothing in it. Upstream: ArchiveTool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from container.common.aeron_defaults import FRAME_ALIGNMENT
from container.errors import RecordingError
from container.files.catalog import NULL_POSITION, STATE_DELETED, RecordingDescriptor, read_entries
from container.operate.answers import Answer, NoFactsError, known, named
from container.operate.facts import Frame, Recording, Recordings, Verification, VerifiedRecording
from container.operate.log_frames import frame_border, read_frames
from container.operate.marks import state_of
from container.operate.places import find_archive_dir
from container.recordings import live
from container.recordings.member import file_names, recorded_position, segment_positions

CHECKSUMS = {"none": 0, "crc32": 1, "crc32c": 2}
_STATES = ("INVALID", "VALID", "DELETED")


def _entries(archive_dir: Path, recording_ids: list[int] | None) -> list[tuple[int, RecordingDescriptor]]:
    try:
        found = list(read_entries(archive_dir, recording_ids or None))
    except RecordingError as error:
        raise NoFactsError(str(error)) from error
    missing = set(recording_ids or ()) - {descriptor.recording_id for _, descriptor in found}
    if missing:
        names = ", ".join(str(each) for each in sorted(missing))
        raise NoFactsError(f"the archive of {archive_dir} has no recording {names}")
    return found


def show(path: Path, recording_ids: list[int] | None = None, stream_id: int | None = None) -> Answer:
    """Answer what recordings an archive has, or those of some ids or of a stream."""
    archive_dir = find_archive_dir(path)
    mark = live.read_archive_mark(archive_dir)
    counters = live.recorded_positions(archive_dir)
    names = _names(archive_dir)
    found = [
        _recording(archive_dir, state, descriptor, counters, names)
        for state, descriptor in _entries(archive_dir, recording_ids)
        if stream_id is None or descriptor.stream_id == stream_id
    ]
    return Answer(
        Recordings(
            archive_dir=str(archive_dir),
            archive="unknown" if mark is None else state_of(mark.activity_timestamp_ms),
            pid=None if mark is None else mark.pid,
            archive_id=live.archive_id_of(mark),
            start_timestamp_ms=None if mark is None else mark.start_timestamp_ms,
            activity_timestamp_ms=None if mark is None or not mark.is_active else mark.activity_timestamp_ms,
            aeron_directory="" if mark is None else mark.aeron_dir,
            recordings=found,
        )
    )


def _names(archive_dir: Path) -> list[str]:
    try:
        return file_names(archive_dir)
    except RecordingError as error:
        raise NoFactsError(str(error)) from error


def _recording(
    archive_dir: Path,
    state: int,
    descriptor: RecordingDescriptor,
    counters: Mapping[int, int],
    names: list[str],
) -> Recording:
    segments = segment_positions(archive_dir, descriptor, names)
    recorded = None
    if state != STATE_DELETED:
        with suppress(RecordingError):  # `archive verify` says what is wrong
            recorded = recorded_position(archive_dir, descriptor, counters, segments)
    return Recording(
        recording_id=descriptor.recording_id,
        state=named(_STATES, state),
        control_session_id=descriptor.control_session_id,
        correlation_id=descriptor.correlation_id,
        start_timestamp_ms=descriptor.start_timestamp,
        stop_timestamp_ms=known(descriptor.stop_timestamp),
        start_position=descriptor.start_position,
        stop_position=known(descriptor.stop_position),
        recorded_position=recorded,
        initial_term_id=descriptor.initial_term_id,
        segment_file_length=descriptor.segment_file_length,
        term_buffer_length=descriptor.term_buffer_length,
        mtu_length=descriptor.mtu_length,
        session_id=descriptor.session_id,
        stream_id=descriptor.stream_id,
        segment_count=len(segments),
        stripped_channel=descriptor.stripped_channel,
        original_channel=descriptor.original_channel,
        source_identity=descriptor.source_identity,
    )


# Verifying.


def verify(path: Path, recording_ids: list[int] | None, is_last_segment_only: bool, checksum: str) -> Answer:
    """Answer whether recordings are what the catalog says, 1 when one is not; nothing is changed.

    Upstream's tool writes the end that it finds, and whether a recording is valid, into the catalog.
    """
    archive_dir = find_archive_dir(path)
    counters = live.recorded_positions(archive_dir)
    names = _names(archive_dir)
    found = [
        _verified(archive_dir, descriptor, counters, names, is_last_segment_only, CHECKSUMS[checksum])
        for state, descriptor in _entries(archive_dir, recording_ids)
        if state != STATE_DELETED
    ]
    is_intact = all(each.is_intact for each in found)
    return Answer(
        Verification(archive_dir=str(archive_dir), is_intact=is_intact, recordings=found), 0 if is_intact else 1
    )


def _verified(
    archive_dir: Path,
    descriptor: RecordingDescriptor,
    counters: Mapping[int, int],
    names: list[str],
    is_last_segment_only: bool,
    checksum: int,
) -> VerifiedRecording:
    problems = _wrong_positions(descriptor)
    begin = end = descriptor.start_position
    count = 0
    if not problems:
        try:
            segments = segment_positions(archive_dir, descriptor, names)
            stop = recorded_position(archive_dir, descriptor, counters, segments)
            if is_last_segment_only and segments:
                begin = end = max(begin, segments[-1])
            for frame in read_frames(archive_dir, descriptor, begin, stop, checksum):
                end = frame.end
                count += 1
            if end < stop:
                problems.append(f"the last whole frame ends at {end}, and the recording at {stop}")
            problems += _wrong_segments(descriptor, segments, stop)
        except RecordingError as error:
            problems.append(str(error))
        except ValueError as error:
            problems.append(f"its descriptor is impossible: {error}")
    return VerifiedRecording(
        recording_id=descriptor.recording_id,
        is_intact=not problems,
        verified_from=begin,
        verified_to=end,
        frame_count=count,
        problems=problems,
    )


def _wrong_positions(descriptor: RecordingDescriptor) -> list[str]:
    start, stop = descriptor.start_position, descriptor.stop_position
    problems = []
    if start < 0 or start % FRAME_ALIGNMENT:
        problems.append(f"it starts at {start}, which is not a multiple of {FRAME_ALIGNMENT} from 0 on")
    if stop != NULL_POSITION and (stop < start or stop % FRAME_ALIGNMENT):
        problems.append(f"it stops at {stop}, which is not a multiple of {FRAME_ALIGNMENT} from its start {start} on")
    for name in ("term_buffer_length", "segment_file_length"):
        length = getattr(descriptor, name)
        if length <= 0 or length & (length - 1):
            problems.append(f"its {name} is {length}, which is not a power of two")
    return problems


def _wrong_segments(descriptor: RecordingDescriptor, segments: list[int], stop: int) -> list[str]:
    """Segment files that are missing between the first and the last one."""
    if not segments:
        return []
    length = descriptor.segment_file_length
    expected = set(range(segments[0], max(segments[-1], stop - 1) + 1, length))
    missing = sorted(expected - set(segments))
    return [f"the segment file at {position} is missing" for position in missing]


def dump(
    path: Path, recording_ids: list[int] | None, begin: int | None, limit: int | None, checksum: str
) -> Iterator[Frame]:
    """Yield the frames of recordings from a position on, at most ``limit`` of each."""
    archive_dir = find_archive_dir(path)
    counters = live.recorded_positions(archive_dir)
    names = _names(archive_dir)
    for state, descriptor in _entries(archive_dir, recording_ids):
        if state == STATE_DELETED:
            continue  # upstream's tool stops at the first one that was purged
        try:
            yield from _dumped(archive_dir, descriptor, counters, names, begin, limit, CHECKSUMS[checksum])
        except (RecordingError, ValueError) as error:
            raise NoFactsError(str(error)) from error


def _dumped(
    archive_dir: Path,
    descriptor: RecordingDescriptor,
    counters: Mapping[int, int],
    names: list[str],
    begin: int | None,
    limit: int | None,
    checksum: int,
) -> Iterator[Frame]:
    segments = segment_positions(archive_dir, descriptor, names)
    end = recorded_position(archive_dir, descriptor, counters, segments)
    first = descriptor.start_position if begin is None else max(begin, descriptor.start_position)
    count = 0
    for frame in read_frames(archive_dir, descriptor, frame_border(descriptor, first), end, checksum):
        if frame.end <= first:
            continue
        if limit is not None and count >= limit:
            return
        count += 1
        yield Frame(
            recording_id=descriptor.recording_id,
            position=frame.position,
            frame_length=frame.length,
            type="DATA" if frame.is_data else "PAD",
            flags=frame.flags,
            term_id=frame.term_id,
            term_offset=frame.term_offset,
            session_id=frame.session_id,
            stream_id=frame.stream_id,
            reserved_value=frame.reserved_value,
            payload=None if frame.payload is None else frame.payload.hex(),
        )
