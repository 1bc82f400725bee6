"""The segment files of a recording: their names, and where they begin."""

from __future__ import annotations


def segment_file_name(recording_id: int, segment_position: int) -> str:
    """The name of a segment file: recording id and the position where the segment begins."""
    return f"{recording_id}-{segment_position}.rec"


def segment_position(start_position: int, position: int, term_length: int, segment_length: int) -> int:
    """Where the segment with a position begins: segments are counted from the term in which the recording starts.

    Lengths are powers of two (bytes). Upstream: AeronArchive.segmentFileBasePosition.
    """
    first = start_position - (start_position & (term_length - 1))
    return first + ((position - first) & ~(segment_length - 1))
