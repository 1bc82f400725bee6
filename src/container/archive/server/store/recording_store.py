"""One object over all that an archive has on the disk: catalog, recording positions and segment files.

Upstream: ArchiveConductor.java and DeleteSegmentsSession.java. Each call leaves the disk such that the next
:meth:`RecordingStore.open` finds every recording as it was before the call or as it is after it, wherever a crash ends
the call.
"""

from __future__ import annotations

import errno
import re
import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Literal

from container.archive import error_codes
from container.archive.server.store.catalog import Catalog
from container.archive.server.store.facts import Recovered
from container.archive.server.store.recording_positions import RecordingPositions
from container.archive.server.store.recovery import recover
from container.archive.server.store.segment_reader import SegmentReader
from container.archive.server.store.segment_writer import SegmentWriter
from container.common.aeron_defaults import FRAME_ALIGNMENT
from container.common.channel_uri import as_int32
from container.errors import ArchiveError, ArchiveEvent, RecordingError
from container.files.catalog import NULL_POSITION, POSITION_MAX, RecordingDescriptor
from container.files.segments import segment_file_name, segment_position
from container.storage.storage_seam import CREATE, NO_FOLLOW, READ_ONLY, Storage

_TERM_LENGTH_MIN = 1 << 16
_LENGTH_MAX = 1 << 30  # of terms and segments
_MTU_LENGTH_MAX = 1 << 16
_FRAME_HEADER = struct.Struct("<i4xiiii")  # frame length, term offset, session id, stream id, term id
_READ_LENGTH = 1 << 20
_ORPHAN_ID_MAX = 1 << 62  # ids enough are left behind it
_SEGMENT_NAME = re.compile(r"(\d+)-(\d+)\.rec(\.del)?")  # with .del: older versions meant to delete it

_MIGRATION_NAME = "archive.migration"
_MIGRATION = struct.Struct("<8s6qI")  # magic, ids, positions before, CRC-32 of all that
_MIGRATION_MAGIC = b"migrate1"


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The archive's settings for its files; lengths in bytes, checksums by kind."""

    archive_dir: str
    segment_file_length: int = 128 << 20
    file_sync_level: int = 0
    catalog_file_sync_level: int = 0
    catalog_capacity: int = 1 << 20
    low_storage_space_threshold: int = 128 << 20
    file_io_max_length: int = 1 << 20
    record_checksum: int = 0
    replay_checksum: int = 0
    torn_frame: Literal["refuse", "cut"] = "refuse"


class Deletion:
    """Segment files of a recording to delete, one by each call of ``delete_next_file``."""

    __slots__ = ("_ends_truncation", "_has_failed", "_names", "file_count", "last_position", "recording_id")

    def __init__(self, recording_id: int, files: list[tuple[int, str]], *, ends_truncation: bool = False) -> None:
        self.recording_id = recording_id
        self.file_count = len(files)
        self.last_position = max((position for position, _ in files), default=NULL_POSITION)
        """Where the last of the segments begins, -1 without one."""
        self._names = deque(name for _, name in files)
        self._ends_truncation = ends_truncation
        self._has_failed = False

    @property
    def is_done(self) -> bool:
        """Whether no file is left to be deleted."""
        return not self._names

    def __repr__(self) -> str:
        return f"<Deletion recording_id={self.recording_id} files={len(self._names)} of {self.file_count}>"


@dataclass(frozen=True, slots=True)
class _Migration:
    """Two recordings before the segments of the first become the second's."""

    source_id: int
    target_id: int
    source_start: int
    source_stop: int
    target_start: int
    target_stop: int

    def encoded(self) -> bytes:
        fields = (self.source_id, self.target_id, self.source_start, self.source_stop)
        head = _MIGRATION.pack(_MIGRATION_MAGIC, *fields, self.target_start, self.target_stop, 0)[:-4]
        return head + zlib.crc32(head).to_bytes(4, "little")

    @classmethod
    def decoded(cls, content: bytes, path: str) -> _Migration:
        if len(content) == _MIGRATION.size:
            magic, *fields, checksum = _MIGRATION.unpack(content)
            if magic == _MIGRATION_MAGIC and checksum == zlib.crc32(content[:-4]):
                return cls(*fields)
        raise RecordingError(
            "the note of a migration that a crash ended is damaged: move the segments of both recordings by hand, then "
            "remove it",
            file=path,
        )

    @property
    def is_in_front(self) -> bool:
        """Whether the source lies in front of the target."""
        return self.source_stop == self.target_start

    @property
    def seam(self) -> int:
        """Where the two meet."""
        return self.target_start if self.is_in_front else self.source_start


class RecordingStore:
    """The recordings on the disk, as an archive's conductor works with them; :meth:`open` makes one.

    Errors are ArchiveError, with upstream's code and text where upstream has one. ``catalog`` is open for reading; what
    changes it goes through the store.
    """

    def __init__(
        self,
        storage: Storage,
        settings: StoreSettings,
        catalog: Catalog,
        positions: RecordingPositions,
        report_error: Callable[[Exception], object],
    ) -> None:
        self.catalog = catalog
        self.recovered: list[Recovered] = []
        """The recordings that had no stop position when the store was opened, and what was found."""
        self._storage = storage
        self._settings = settings
        self._directory = settings.archive_dir
        self._positions = positions
        self._report_error = report_error
        self._writers: dict[int, SegmentWriter] = {}  # of active recordings
        self._deletions: dict[int, Deletion] = {}

    @classmethod
    def open(
        cls,
        storage: Storage,
        settings: StoreSettings,
        *,
        now_ms: int,
        former_owner: tuple[int, int] | None,
        owner: tuple[int, int],
        write_owner: Callable[[], object],
        report_error: Callable[[Exception], object],
        report_progress: Callable[[], object],
    ) -> RecordingStore:
        """Open the store, and repair first what a crash has left.

        Args:
            storage: the file system, or one that is simulated.
            settings: see :class:`StoreSettings`; the directory must be there.
            now_ms: epoch time, for the stop of recordings that a crash has ended.
            former_owner: start timestamp and process id in the mark file before this start, None without one.
            owner: the same of this process.
            write_owner: called to write the owner into the mark file, and to force it: not before, as positions that
                another archive has left are not believed, and a crash in between would make them another's.
            report_error: called with each error that does not stop anything.
            report_progress: called while files are read, forced and removed, so that the mark file stays live.

        Raises RecordingError for damage, OSError when the disk fails.
        """
        directory = settings.archive_dir
        positions = RecordingPositions.open(storage, directory, sync_level=settings.file_sync_level, owner=former_owner)
        catalog: Catalog | None = None
        try:
            positions.begin_recovery(owner)
            write_owner()
            catalog = Catalog.open(
                storage,
                directory,
                capacity=settings.catalog_capacity,
                sync_level=settings.catalog_file_sync_level,
                checksum=settings.record_checksum,
            )
            _finish_migration(storage, directory, catalog)
            recovered = recover(
                storage,
                directory,
                catalog,
                positions,
                now_ms=now_ms,
                torn_frame=settings.torn_frame,
                checksum=settings.record_checksum,
                report_progress=report_progress,
            )
            positions.begin_ownership(owner)
            store = cls(storage, settings, catalog, positions, report_error)
            store.recovered = recovered
            store._pass_over_orphans()
            store._delete_purged(report_progress)
        except BaseException:
            with suppress(OSError):
                positions.close()
            if catalog is not None:
                with suppress(OSError):
                    catalog.close()
            raise
        return store

    def close(self) -> None:
        """Close all files. Recordings that are active keep no stop position, which the next open finds.

        Raises OSError when one cannot be forced or closed; all are closed then as well.
        """
        self._close(self.catalog.close)

    def abandon(self) -> None:
        """Close all files as :meth:`close` does, but force and write nothing: they are another archive's by now."""
        self._close(self.catalog.abandon)

    def _close(self, close_catalog: Callable[[], object]) -> None:
        calls = [writer.close for writer in self._writers.values()]
        self._writers = {}
        error: OSError | None = None
        for call in [*calls, self._positions.close, close_catalog]:
            try:
                call()
            except OSError as failure:
                error = error or failure
        if error is not None:
            raise error

    def check_space(self) -> None:
        """Raise ArchiveError, code STORAGE_SPACE, when too little can be written for a recording to begin."""
        threshold = self._settings.low_storage_space_threshold
        with _as_archive_errors():
            usable_space = self._storage.usable_space(self._directory)
        if usable_space <= threshold:
            raise ArchiveError(
                f"low storage threshold={threshold} <= usableSpace={usable_space}", code=error_codes.STORAGE_SPACE
            )

    # Recording and reading.

    def start_recording(
        self,
        *,
        start_position: int,
        initial_term_id: int,
        term_buffer_length: int,
        mtu_length: int,
        session_id: int,
        stream_id: int,
        stripped_channel: str,
        original_channel: str,
        source_identity: str,
        now_ms: int,
    ) -> SegmentWriter:
        """Add a recording to the catalog, and return its writer, which you open; it has the recording's id."""
        descriptor = RecordingDescriptor(
            control_session_id=0,
            correlation_id=0,
            recording_id=self.catalog.next_recording_id,
            start_timestamp=now_ms,
            stop_timestamp=-1,
            start_position=start_position,
            stop_position=NULL_POSITION,
            initial_term_id=initial_term_id,
            segment_file_length=max(self._settings.segment_file_length, term_buffer_length),
            term_buffer_length=term_buffer_length,
            mtu_length=mtu_length,
            session_id=session_id,
            stream_id=stream_id,
            stripped_channel=stripped_channel,
            original_channel=original_channel,
            source_identity=source_identity,
        )
        with _as_archive_errors(error_codes.STORAGE_SPACE):
            writer = self._writer(descriptor, start_position)
            try:
                self.catalog.add(descriptor)
            except (OSError, ArchiveError):
                writer.place.close()
                raise
        self._writers[descriptor.recording_id] = writer
        return writer

    def check_extendable(self, recording_id: int) -> RecordingDescriptor:
        """Return what the catalog has of a recording that can be extended now.

        Raises ArchiveError for one that is active, or whose end is being deleted.
        """
        descriptor = self._usable(recording_id)
        if recording_id in self._writers:
            raise ArchiveError(f"cannot extend active recording {recording_id}", code=error_codes.ACTIVE_RECORDING)
        deletion = self._deletions.get(recording_id)
        if deletion is not None and deletion.last_position >= descriptor.stop_position:
            raise ArchiveError(f"cannot extend recording {recording_id} due to an outstanding delete operation")
        return descriptor

    def update_channel(self, recording_id: int, stripped_channel: str, original_channel: str) -> None:
        """Change the texts of a recording's channel in the catalog."""
        descriptor = self.known(recording_id)
        with _as_archive_errors():
            self.catalog.replace(
                replace(descriptor, stripped_channel=stripped_channel, original_channel=original_channel)
            )

    def extend_recording(
        self, recording_id: int, position: int, *, control_session_id: int, correlation_id: int, session_id: int
    ) -> SegmentWriter:
        """Make a stopped recording active again, and return its writer, which you open.

        Args:
            recording_id: of the recording.
            position: where the image joins; it must be the stop position.
            control_session_id: of the session that asked for it, as all the rest goes into the catalog.
            correlation_id: of its request.
            session_id: of the image.
        """
        descriptor = self.check_extendable(recording_id)
        if position != descriptor.stop_position or position == NULL_POSITION:
            raise ArchiveError(
                f"cannot extend recording {recording_id} image.joinPosition={position} != "
                f"rec.stopPosition={descriptor.stop_position}",
                code=error_codes.INVALID_EXTENSION,
            )
        with _as_archive_errors(error_codes.STORAGE_SPACE):
            self._finish_truncation(recording_id)
            # Another archive may have left bytes behind the end, which a recovery would take for frames.
            self._cut(descriptor, position)
        extended = replace(
            descriptor,
            control_session_id=control_session_id,
            correlation_id=correlation_id,
            session_id=session_id,
            stop_timestamp=-1,
            stop_position=NULL_POSITION,
        )
        with _as_archive_errors(error_codes.STORAGE_SPACE):
            writer = self._writer(extended, position)
            try:
                self.catalog.extend(recording_id, control_session_id, correlation_id, session_id)
            except (OSError, ArchiveError):
                # It may have no stop position now. Where it cannot get that back, the place stays for the next open.
                with suppress(OSError, ArchiveError):
                    self.catalog.set_stop(recording_id, position, descriptor.stop_timestamp)
                    writer.place.close()
                raise
        self._writers[recording_id] = writer
        return writer

    def _writer(self, descriptor: RecordingDescriptor, position: int) -> SegmentWriter:
        """Make a writer. Its place is taken before the catalog changes: no recording is without a known position."""
        place = self._positions.begin(descriptor, position)
        try:
            return SegmentWriter(
                self._storage,
                self._directory,
                descriptor,
                place,
                sync_level=self._settings.file_sync_level,
                checksum=self._settings.record_checksum,
                position=position,
            )
        except BaseException:
            place.close()
            raise

    def stop(self, writer: SegmentWriter, now_ms: int) -> None:
        """End a recording where its writer is, also where that failed or was never opened. May be called twice.

        Raises ArchiveError when the catalog cannot have the stop position: the next open finds it.
        """
        recording_id = writer.recording_id
        if self._writers.get(recording_id) is not writer:
            return
        del self._writers[recording_id]
        with _as_archive_errors():
            try:
                if writer.has_failed:
                    self._clear_tail(writer)
                self.catalog.set_stop(recording_id, writer.position, now_ms)
                writer.place.close()
            finally:
                writer.close()

    def _clear_tail(self, writer: SegmentWriter) -> None:
        try:
            writer.clear_tail()
        except OSError as error:
            self._report_error(error)
            try:  # the note is cleared before the recording continues, or at the next open
                self._positions.note_truncation(writer.recording_id, writer.position)
            except OSError as second_error:
                self._report_error(second_error)

    def is_active(self, recording_id: int) -> bool:
        """Whether a recording has a writer."""
        return recording_id in self._writers

    def recorded_position(self, recording_id: int) -> int:
        """How far a recording is written: where its writer is, or where it was stopped."""
        writer = self._writers.get(recording_id)
        return writer.position if writer is not None else self.known(recording_id).stop_position

    def open_reader(self, recording_id: int, position: int) -> SegmentReader:
        """Return a reader of a recording from a position on, which opens its files as it comes to them."""
        descriptor = self._usable(recording_id)
        return SegmentReader(
            self._storage,
            self._directory,
            descriptor,
            position,
            buffer_length=max(self._settings.file_io_max_length, descriptor.mtu_length),
            checksum=self._settings.replay_checksum,
        )

    def add_replica(self, source: RecordingDescriptor) -> int:
        """Add an empty recording to replicate one of another archive into, and return its id."""
        with _as_archive_errors():
            return self.catalog.add(_emptied(source))

    def replace_by_replica(self, recording_id: int, source: RecordingDescriptor) -> None:
        """Make an empty recording the target of a replication: it takes the source's parameters and texts.

        The segment that it has at its end goes, as nothing is in it: where the source begins elsewhere, a recovery
        would take it for the end, or for damage, and the copy could not continue past it.
        """
        descriptor = self.known(recording_id)
        if descriptor.start_position != descriptor.stop_position:
            raise ArchiveError(f"cannot replace recording {recording_id}: it is not empty")
        with _as_archive_errors():
            base = _base(descriptor, descriptor.stop_position)
            files = [name for position, name in self._files(recording_id) if position >= base]
            for name in files:
                self._storage.unlink(f"{self._directory}/{name}")
            if files and self._settings.file_sync_level > 0:
                self._storage.force_directory(self._directory)
            self.catalog.replace(replace(_emptied(source), recording_id=recording_id))

    # Cutting and deleting.

    def truncate(self, recording_id: int, position: int, *, lowest_replay_position: int | None = None) -> Deletion:
        """Cut the end of a stopped recording off.

        Args:
            recording_id: of the recording.
            position: its new stop position, where a frame begins. Nothing changes where none does.
            lowest_replay_position: of the replays of this recording, None without one.
        """
        descriptor = self._usable(recording_id)
        if lowest_replay_position is not None:
            raise ArchiveError(
                f"cannot truncate recording with active replay {recording_id}", code=error_codes.ACTIVE_RECORDING
            )
        if descriptor.stop_position == NULL_POSITION:
            raise ArchiveError("cannot truncate active recording", code=error_codes.ACTIVE_RECORDING)
        start, stop = descriptor.start_position, descriptor.stop_position
        if not start <= position <= stop or position % FRAME_ALIGNMENT != 0:
            raise ArchiveError(
                f"invalid position {position}: start={start} stop={stop} alignment={FRAME_ALIGNMENT}",
                code=error_codes.INVALID_POSITION,
            )
        self._check_no_deletion(recording_id)
        with _as_archive_errors():
            is_within = position not in (start, stop) and position != _base(descriptor, position)
            if is_within and not self._has_frame(descriptor, position):
                raise ArchiveError(f"{position} position not aligned to a data header")
            self._positions.note_truncation(recording_id, position)
            try:
                self.catalog.set_stop(recording_id, position, descriptor.stop_timestamp)
            except (OSError, ArchiveError):
                if self.catalog.stop_position(recording_id) != position:
                    self._positions.end_truncation(recording_id)
                raise
            self._cut(descriptor, position)
            return self._started(Deletion(recording_id, self._files_behind(descriptor, position), ends_truncation=True))

    def purge(self, recording_id: int, *, lowest_replay_position: int | None = None) -> Deletion:
        """Delete a stopped recording that nobody replays, with all its files."""
        descriptor = self.known(recording_id)
        if lowest_replay_position is not None:
            raise ArchiveError(
                f"cannot purge recording with active replay {recording_id}", code=error_codes.ACTIVE_RECORDING
            )
        if descriptor.stop_position == NULL_POSITION:
            raise ArchiveError(f"cannot purge active recording {recording_id}", code=error_codes.ACTIVE_RECORDING)
        self._check_no_deletion(recording_id)
        with _as_archive_errors():
            self.catalog.delete(recording_id)
            return self._started(Deletion(recording_id, self._files(recording_id), ends_truncation=True))

    def detach(self, recording_id: int, new_start_position: int, *, lowest_replay_position: int | None = None) -> None:
        """Let a recording begin at a later segment; the files in front of it stay."""
        self._check_detach(self._usable(recording_id), new_start_position, lowest_replay_position)
        with _as_archive_errors():
            self.catalog.set_start_position(recording_id, new_start_position)

    def delete_detached(self, recording_id: int) -> Deletion:
        """Delete the segments in front of a recording's beginning."""
        descriptor = self._usable(recording_id)
        self._check_no_deletion(recording_id)
        with _as_archive_errors():
            base = _base(descriptor, descriptor.start_position)
            return self._started(Deletion(recording_id, [each for each in self._files(recording_id) if each[0] < base]))

    def purge_segments(
        self, recording_id: int, new_start_position: int, *, lowest_replay_position: int | None = None
    ) -> Deletion:
        """Detach segments and delete them."""
        descriptor = self._usable(recording_id)
        self._check_detach(descriptor, new_start_position, lowest_replay_position)
        self._check_no_deletion(recording_id)
        with _as_archive_errors():
            self.catalog.set_start_position(recording_id, new_start_position)
            first = _base(descriptor, descriptor.start_position)
            files = [each for each in self._files(recording_id) if first <= each[0] < new_start_position]
            return self._started(Deletion(recording_id, files))

    def attach(self, recording_id: int) -> int:
        """Let a recording begin with detached segments that are there again, and return how many.

        Those behind the first that does not fit are attached when that raises.
        """
        descriptor = self._usable(recording_id)
        self._check_no_deletion(recording_id)
        start = position = descriptor.start_position
        count = 0
        with _as_archive_errors():
            try:
                while start == position and position >= descriptor.segment_file_length:
                    position -= descriptor.segment_file_length
                    path = self._path(recording_id, position)
                    if not self._storage.exists(path):
                        break
                    start = position + self._first_frame_offset(descriptor, position, path)
                    count += 1
            finally:
                if start < descriptor.start_position:
                    self.catalog.set_start_position(recording_id, start)
        return count

    def migrate(self, source_id: int, target_id: int) -> int:
        """Move all segments of a recording to another that it continues, or that continues it; return how many.

        The empty one that the source may end with is deleted, and the source is empty then.
        """
        source, target = self._usable(source_id), self._usable(target_id)
        if source.stop_position == NULL_POSITION:
            raise ArchiveError(f"recording {source_id} is still active")
        _check_same_stream(source, target)
        migration = _Migration(
            source_id,
            target_id,
            source.start_position,
            source.stop_position,
            target.start_position,
            target.stop_position,
        )
        if not migration.is_in_front and source.start_position != target.stop_position:
            raise ArchiveError(
                f"invalid migrate: src and dst are not contiguous srcStartPosition={source.start_position} "
                f"srcStopPosition={source.stop_position} dstStartPosition={target.start_position} "
                f"dstStopPosition={target.stop_position}"
            )
        _check_seam("src", source, migration.seam)
        _check_seam("dst", target, migration.seam)
        self._check_no_deletion(source_id)
        self._check_no_deletion(target_id)
        with _as_archive_errors():
            self._finish_truncation(source_id)
            self._finish_truncation(target_id)
            moved = _bases_to_move(source)
            for position in moved:
                for label, recording_id, must_be in (
                    ("missing src", source_id, True),
                    ("preexisting dst", target_id, False),
                ):
                    path = self._path(recording_id, position)
                    if self._storage.exists(path) != must_be:
                        raise ArchiveError(f"{label} segment file {path}")
            _note_migration(self._storage, self._directory, migration)
            _move(self._storage, self._directory, self.catalog, migration, source)
        return len(moved)

    def is_deleting(self, recording_id: int) -> bool:
        """Whether files of a recording are left to be deleted."""
        return recording_id in self._deletions

    def delete_next_file(self, deletion: Deletion) -> None:
        """Delete one file. Raise ArchiveError when that fails: the next call continues with the next file."""
        failure: ArchiveError | None = None
        if deletion._names:
            path = f"{self._directory}/{deletion._names.popleft()}"
            try:
                self._storage.unlink(path)
            except FileNotFoundError:
                pass
            except OSError as error:
                deletion._has_failed = True
                failure = ArchiveError(f"unable to delete segment file: {path}: {error.strerror}")
                failure.__cause__ = error
        if not deletion._names and self._deletions.get(deletion.recording_id) is deletion:
            del self._deletions[deletion.recording_id]
            with _as_archive_errors():
                self._finish(deletion)
        if failure is not None:
            raise failure

    def _started(self, deletion: Deletion) -> Deletion:
        if deletion.is_done:
            self._finish(deletion)
        else:
            self._deletions[deletion.recording_id] = deletion
        return deletion

    def _finish(self, deletion: Deletion) -> None:
        if self._settings.file_sync_level > 0:
            self._storage.force_directory(self._directory)
        if deletion._ends_truncation and not deletion._has_failed:
            self._positions.end_truncation(deletion.recording_id)

    def _finish_truncation(self, recording_id: int) -> None:
        """Finish what an earlier call could not, before the recording continues."""
        position = self._positions.truncations().get(recording_id)
        if position is None:
            return
        descriptor = self.known(recording_id)
        if descriptor.stop_position == position:
            self._cut(descriptor, position)
            for _, name in self._files_behind(descriptor, position):
                self._storage.unlink(f"{self._directory}/{name}")
            if self._settings.file_sync_level > 0:
                self._storage.force_directory(self._directory)
        self._positions.end_truncation(recording_id)

    def _cut(self, descriptor: RecordingDescriptor, position: int) -> None:
        """Zero the segment that a position lies in from there on; the length stays."""
        base = _base(descriptor, position)
        path = self._path(descriptor.recording_id, base)
        if not self._storage.exists(path):
            return
        file = self._storage.open_file(path, NO_FOLLOW)
        try:
            file.set_length(position - base)
            file.set_length(descriptor.segment_file_length)
            if self._settings.file_sync_level > 0:
                file.force(with_metadata=self._settings.file_sync_level > 1)
        finally:
            file.close()

    def _pass_over_orphans(self) -> None:
        """Give no recording an id that has segment files, as when the catalog was lost: it would write into them.

        Upstream's writes into them, and takes what lies behind for frames of the new recording.
        """
        first = self.catalog.next_recording_id
        names = _all_segment_files(self._storage, self._directory)
        orphans = {int(name[1]): name[0] for name in names if first <= int(name[1]) <= _ORPHAN_ID_MAX}
        if orphans:
            last = max(orphans)
            self.catalog.pass_over(last)
            self._report_error(
                ArchiveEvent(
                    f"the catalog does not know segment files that are there, such as {self._directory}/"
                    f"{orphans[last]}: the next recording is {last + 1}, not {first}, so that none is overwritten; put "
                    "back the catalog that knows them, or move them away"
                )
            )

    def _delete_purged(self, report_progress: Callable[[], object]) -> None:
        """Delete the files that a purge before this start did not come to."""
        deleted = set(self.catalog.deleted_ids())
        for name in _all_segment_files(self._storage, self._directory) if deleted else ():
            if int(name[1]) in deleted:
                try:
                    self._storage.unlink(f"{self._directory}/{name[0]}")
                except OSError as error:
                    self._report_error(error)
                report_progress()

    # Looking.

    def known(self, recording_id: int) -> RecordingDescriptor:
        """Return what the catalog has of a recording; raises ArchiveError, code UNKNOWN_RECORDING, without one."""
        descriptor = self.catalog.descriptor(recording_id)
        if descriptor is None:
            raise ArchiveError(f"unknown recording id: {recording_id}", code=error_codes.UNKNOWN_RECORDING)
        return descriptor

    def _usable(self, recording_id: int) -> RecordingDescriptor:
        """The descriptor of a recording whose lengths and start position are possible."""
        descriptor = self.known(recording_id)
        if not _is_possible(descriptor):
            raise ArchiveError(_impossible_text(descriptor))
        return descriptor

    def _check_no_deletion(self, recording_id: int) -> None:
        if recording_id in self._deletions:
            raise ArchiveError(f"another delete operation in progress for recording id: {recording_id}")

    def _check_detach(self, descriptor: RecordingDescriptor, position: int, lowest_replay_position: int | None) -> None:
        lower_bound = _base(descriptor, descriptor.start_position) + descriptor.segment_file_length
        if position != _base(descriptor, position):
            raise ArchiveError(f"invalid segment start: newStartPosition={position}")
        if position < lower_bound:
            raise ArchiveError(f"invalid detach: newStartPosition={position} lowerBound={lower_bound}")
        upper_bound = _base(descriptor, self.recorded_position(descriptor.recording_id))
        if position > upper_bound:
            raise ArchiveError(f"invalid detach: in use, newStartPosition={position} upperBound={upper_bound}")
        if lowest_replay_position is not None and position > _base(descriptor, lowest_replay_position):
            raise ArchiveError(
                f"invalid detach: replay in progress - newStartPosition={position} "
                f"upperBound={_base(descriptor, lowest_replay_position)}"
            )

    def _has_frame(self, descriptor: RecordingDescriptor, position: int) -> bool:
        reader = self.open_reader(descriptor.recording_id, position)
        try:
            return reader.is_frame(position)
        except RecordingError as error:
            raise ArchiveError(str(error)) from error
        finally:
            reader.close()

    def _first_frame_offset(self, descriptor: RecordingDescriptor, position: int, path: str) -> int:
        """Where in the first term of a segment its first frame begins, which must be one of this recording."""
        file = self._storage.open_file(path, READ_ONLY | NO_FOLLOW)
        try:
            file_length, segment_length = file.length(), descriptor.segment_file_length
            if file_length != segment_length:
                raise ArchiveError(f"fileLength={file_length} not equal to segmentLength={segment_length}")
            offset = 0
            while offset < descriptor.term_buffer_length:
                content = file.read(min(_READ_LENGTH, descriptor.term_buffer_length - offset), offset)
                zeros = len(content) - len(content.lstrip(b"\0"))
                if zeros < len(content):
                    offset += zeros // FRAME_ALIGNMENT * FRAME_ALIGNMENT
                    break
                offset += len(content)
            else:
                raise ArchiveError(f"fragment not found in first term of segment {path}")
            _, term_offset, _, stream_id, term_id = _FRAME_HEADER.unpack(file.read(_FRAME_HEADER.size, offset))
        finally:
            file.close()
        expected_id = as_int32(position // descriptor.term_buffer_length + descriptor.initial_term_id)
        if term_id != expected_id:
            raise ArchiveError(f"term id does not match: actual={term_id} expected={expected_id}")
        if stream_id != descriptor.stream_id:
            raise ArchiveError(f"stream id does not match: actual={stream_id} expected={descriptor.stream_id}")
        if term_offset != offset:
            raise ArchiveError(f"term offset does not match: actual={term_offset} expected={offset}")
        return offset

    def _files(self, recording_id: int) -> list[tuple[int, str]]:
        """Base and name of each segment file of a recording, in order."""
        return _segment_files(self._storage, self._directory, recording_id)

    def _files_behind(self, descriptor: RecordingDescriptor, position: int) -> list[tuple[int, str]]:
        """The files that a recording which ends at a position does not need."""
        files = self._files(descriptor.recording_id)
        if position == descriptor.start_position:
            return files
        base = _base(descriptor, position)
        return [each for each in files if each[0] > base or each[0] == base == position]

    def _path(self, recording_id: int, position: int) -> str:
        return f"{self._directory}/{segment_file_name(recording_id, position)}"

    def __repr__(self) -> str:
        return f"<RecordingStore {self._directory} active={len(self._writers)} deletions={len(self._deletions)}>"


def _is_possible(descriptor: RecordingDescriptor) -> bool:
    """Whether the lengths and the start position are those of a recording."""
    term_length, segment_length = descriptor.term_buffer_length, descriptor.segment_file_length
    start = descriptor.start_position
    return (
        all(each > 0 and each & (each - 1) == 0 for each in (term_length, segment_length))
        and _TERM_LENGTH_MIN <= term_length <= segment_length <= _LENGTH_MAX
        and FRAME_ALIGNMENT <= descriptor.mtu_length <= _MTU_LENGTH_MAX
        and 0 <= start <= POSITION_MAX
        and start % FRAME_ALIGNMENT == 0
    )


def _impossible_text(descriptor: RecordingDescriptor) -> str:
    return (
        f"recording {descriptor.recording_id} cannot have start position {descriptor.start_position}, term length "
        f"{descriptor.term_buffer_length}, segment length {descriptor.segment_file_length} and MTU "
        f"{descriptor.mtu_length}"
    )


def _base(descriptor: RecordingDescriptor, position: int) -> int:
    return segment_position(
        descriptor.start_position, position, descriptor.term_buffer_length, descriptor.segment_file_length
    )


def _emptied(source: RecordingDescriptor) -> RecordingDescriptor:
    return replace(
        source,
        control_session_id=0,
        correlation_id=0,
        start_timestamp=source.start_timestamp,
        stop_timestamp=source.start_timestamp,
        stop_position=source.start_position,
    )


def _all_segment_files(storage: Storage, directory: str) -> list[re.Match[str]]:
    """The names of segment files, with the recording's id and the base position as groups 1 and 2."""
    names = [_SEGMENT_NAME.fullmatch(name) for name in storage.list_directory(directory)]
    return [name for name in names if name is not None]


def _segment_files(storage: Storage, directory: str, recording_id: int) -> list[tuple[int, str]]:
    names = _all_segment_files(storage, directory)
    return sorted((int(name[2]), name[0]) for name in names if name[1] == str(recording_id))


# Migration.


def _bases_to_move(source: RecordingDescriptor) -> range:
    """Where the segments begin that have something in them; of a damaged catalog there may be more than memory has."""
    first, last = _base(source, source.start_position), _base(source, source.stop_position)
    return range(first, last if last == source.stop_position else last + 1, source.segment_file_length)


def _check_same_stream(source: RecordingDescriptor, target: RecordingDescriptor) -> None:
    for name, field in (
        ("SegmentFileLength", "segment_file_length"),
        ("TermBufferLength", "term_buffer_length"),
        ("InitialTermId", "initial_term_id"),
        ("StreamId", "stream_id"),
        ("MtuLength", "mtu_length"),
    ):
        of_source, of_target = getattr(source, field), getattr(target, field)
        if of_source != of_target:
            raise ArchiveError(f"invalid migrate: src{name}={of_source} dst{name}={of_target}")


def _check_seam(label: str, descriptor: RecordingDescriptor, seam: int) -> None:
    if _base(descriptor, seam) != seam:
        raise ArchiveError(
            f"invalid migrate: join position is not on segment boundary of {label} recording seamPosition={seam} "
            f"startPosition={descriptor.start_position} stopPosition={descriptor.stop_position} "
            f"termBufferLength={descriptor.term_buffer_length} segmentFileLength={descriptor.segment_file_length}"
        )


def _note_migration(storage: Storage, directory: str, migration: _Migration) -> None:
    """Note it on the disk: from here on it is finished, also after a crash."""
    path = f"{directory}/{_MIGRATION_NAME}"
    file = storage.open_file(f"{path}.new", CREATE | NO_FOLLOW)
    try:
        file.set_length(0)
        file.write(migration.encoded(), 0)
        file.force(with_metadata=False)
    finally:
        file.close()
    storage.rename(f"{path}.new", path)
    storage.force_directory(directory)


def _move(
    storage: Storage, directory: str, catalog: Catalog, migration: _Migration, source: RecordingDescriptor
) -> None:
    """Move what is not moved yet, change the catalog, and forget the note."""
    bases = _bases_to_move(replace(source, stop_position=migration.source_stop))
    for position, name in _segment_files(storage, directory, migration.source_id):
        if position in bases and name == segment_file_name(migration.source_id, position):
            storage.rename(f"{directory}/{name}", f"{directory}/{segment_file_name(migration.target_id, position)}")
    empty = f"{directory}/{segment_file_name(migration.source_id, migration.source_stop)}"
    if storage.exists(empty):
        storage.unlink(empty)
    storage.force_directory(directory)
    if migration.is_in_front:
        catalog.set_start_position(migration.target_id, migration.source_start)
    else:
        target = catalog.descriptor(migration.target_id)
        timestamp = -1 if target is None else target.stop_timestamp
        catalog.set_stop(migration.target_id, migration.source_stop, timestamp)
    catalog.set_stop(migration.source_id, migration.source_start, source.stop_timestamp)
    catalog.force()
    storage.unlink(f"{directory}/{_MIGRATION_NAME}")
    storage.force_directory(directory)


def _finish_migration(storage: Storage, directory: str, catalog: Catalog) -> None:
    """Finish a migration that a crash has ended, unless another archive has changed the recordings since."""
    path = f"{directory}/{_MIGRATION_NAME}"
    if not storage.exists(path):
        return
    file = storage.open_file(path, READ_ONLY | NO_FOLLOW)
    try:
        migration = _Migration.decoded(file.read(_MIGRATION.size + 1, 0), path)
    finally:
        file.close()
    source, target = catalog.descriptor(migration.source_id), catalog.descriptor(migration.target_id)
    if source is not None and target is not None and _is_as_noted(migration, source, target):
        for each in (source, target):
            if not _is_possible(each):
                raise RecordingError(_impossible_text(each), file=catalog.path)
        _move(storage, directory, catalog, migration, source)
    else:
        storage.unlink(path)


def _is_as_noted(migration: _Migration, source: RecordingDescriptor, target: RecordingDescriptor) -> bool:
    """Whether each of the two has its old or its new state."""
    start = migration.source_start if migration.is_in_front else migration.target_start
    stop = migration.target_stop if migration.is_in_front else migration.source_stop
    return (
        source.recording_id != target.recording_id
        and 0 <= migration.source_start <= migration.source_stop <= POSITION_MAX
        and source.start_position == migration.source_start
        and source.stop_position in (migration.source_stop, migration.source_start)
        and target.start_position in (migration.target_start, start)
        and target.stop_position in (migration.target_stop, stop)
    )


@contextmanager
def _as_archive_errors(full_disk_code: int = error_codes.GENERIC) -> Iterator[None]:
    """Raise an OSError as an ArchiveError. Code STORAGE_SPACE ends a cluster's node: it is for recordings alone."""
    try:
        yield
    except OSError as error:
        code = full_disk_code if error.errno == errno.ENOSPC else error_codes.GENERIC
        raise ArchiveError(str(error), code=code) from error
