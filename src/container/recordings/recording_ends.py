"""Where many recordings of one archive end: its catalog, counters and directory are read once for all of them."""

from __future__ import annotations

from collections.abc import Collection

from container.errors import RecordingError
from container.files.catalog import NULL_POSITION, RecordingDescriptor, read_catalog
from container.recordings import live
from container.recordings.member import PERMISSIVE, Member, file_names, recorded_position, segment_positions, tolerates


class RecordingEnds:
    """Answers for an archive as it is when it is asked first; what cannot be read then is tried again when asked again.

    Args:
        member: whose archive it is.
        recording_ids: the recordings that will be asked for.
    """

    def __init__(self, member: Member, recording_ids: Collection[int]) -> None:
        self._recording_ids = frozenset(recording_ids)
        self._archive = member.archive
        self._counters: dict[int, int] = {}
        self._descriptors: dict[int, RecordingDescriptor] | None = None
        self._names: dict[int, list[str]] | None = None

    def of(self, descriptor: RecordingDescriptor) -> int:
        """Return where a recording ends now, in log positions, whatever its descriptor said when it was read.

        Raises:
            RecordingError: what the catalog says of it is impossible, or the catalog or directory cannot be read.
        """
        if self._descriptors is None:
            # In this order: a recording that has no counter any more has its end in the catalog.
            self._counters = live.recorded_positions(self._archive)
            self._descriptors = self._read_catalog()
        descriptor = self._descriptors.get(descriptor.recording_id, descriptor)
        segments: list[int] = []
        if descriptor.stop_position == NULL_POSITION:
            names = self._names_of(descriptor.recording_id)
            segments = segment_positions(self._archive, descriptor, names)
        return recorded_position(self._archive, descriptor, self._counters, segments)

    def _read_catalog(self) -> dict[int, RecordingDescriptor]:
        found: dict[int, RecordingDescriptor] = {}
        try:
            for one in read_catalog(self._archive, self._recording_ids):
                found[one.recording_id] = one
        except RecordingError as error:
            if not found or not tolerates(PERMISSIVE, error):
                raise  # what the catalog has before its damage is valid
        return found

    def _names_of(self, recording_id: int) -> list[str]:
        if self._names is None:
            names: dict[int, list[str]] = {}
            for name in file_names(self._archive):
                text = name.partition("-")[0]
                if text.isdecimal():
                    names.setdefault(int(text), []).append(name)
            self._names = names
        return self._names.get(recording_id, [])
