"""A member's directories: where its archive and its recording log are, and how far its log goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any

from container.common.aeron_defaults import (
    CONSENSUS_MODULE_SNAPSHOT_STREAM_ID,
    LOG_STREAM_ID,
    SERVICE_SNAPSHOT_STREAM_ID,
)
from container.errors import ConfigurationError, RecordingError, RecordingUnavailableError
from container.files.catalog import NULL_POSITION, POSITION_MAX, RecordingDescriptor, read_catalog
from container.files.directories import Directory, RemoteDirectory, path_in
from container.files.names import CATALOG_NAME, RECORDING_LOG_NAME
from container.files.open_errors import is_there, unreadable
from container.files.recording_log import RecordingLogEntry, committed_position, read_recording_log
from container.files.segments import segment_file_name, segment_position
from container.recordings import commit, live
from container.recordings.message_reader import MessageReader
from container.recordings.remote import (
    StorageOptions,
    StoredDirectory,
    expand,
    file_state,
    is_url,
    local_path,
    parse_storage_options,
    place_of,
    resolve,
)
from container.recordings.shipped import ShippedManifest

SNAPSHOT_STREAM_IDS = (SERVICE_SNAPSHOT_STREAM_ID, CONSENSUS_MODULE_SNAPSHOT_STREAM_ID)
"""The streams of snapshots by default (``aeron.cluster.snapshot.stream.id``,
``aeron.cluster.consensus.module.snapshot.stream.id``)."""
STRICT, PERMISSIVE, AUDIT = "strict", "permissive", "audit"
MODES = (STRICT, PERMISSIVE, AUDIT)


def tolerates(mode: str, error: RecordingError) -> bool:
    """Whether reading continues after an error: in mode permissive only after damage that was read, in an audit always.

    A file that cannot be opened or read now may be whole. Leaving it out would turn a moment's trouble into a permanent
    gap.
    """
    return mode == AUDIT or (mode == PERMISSIVE and not isinstance(error, RecordingUnavailableError))


# Where logs end whose end only their last segment file says, by that file: its state, the descriptor, and the end. A
# stream looks each second; without this it would walk up to a whole segment each time.
_known_ends: dict[str, tuple[tuple[object, ...], RecordingDescriptor, tuple[int, int | None, int | None]]] = {}
_POSITION_DIGITS = len(str(POSITION_MAX))
_KNOWN_ENDS_MAX = 256

# Mark files may lie in a directory of their own.
_CLUSTER_FILES = (RECORDING_LOG_NAME, "node-state.dat", "cluster-mark.lnk")


@dataclass(frozen=True, slots=True)
class LogRange:
    """How far a member's log goes, in log positions."""

    start_position: int
    """Where the log begins: 0, or later when its first segments were removed."""
    recorded_position: int
    """The position up to which it is recorded. An election may still remove what is not committed."""
    committed_position: int
    """Up to where it is committed, not more than is recorded: by a counter, by the majority of the members, or as
    given to :func:`open_member`."""


@dataclass(frozen=True, slots=True)
class Log:
    """A member's log as its files and counters have it at one moment; each file was read once."""

    descriptor: RecordingDescriptor
    log_range: LogRange
    terms: list[RecordingLogEntry]
    """Its valid terms in the recording log, in the order of the file."""
    segment_positions: list[int]
    """Where its segment files begin, in ascending order."""
    failure: RecordingError | None
    """Why the recording log could not be read to its end, in mode permissive: what follows there is not known."""
    known_position: int
    """Up to where this member's own counters and recording log show that the log is committed."""
    has_counter: bool
    """Whether the member runs, and its commit position could be read; or what there is was shipped: all committed."""
    is_running: bool
    """Whether the consensus module's mark file is that of a running one (of the archive, when there is no other)."""
    committed_by: str = commit.KNOWN
    """The source of the commit position: one of the words of :mod:`container.recordings.commit`."""
    lost_position: int | None = None
    """Up to where its recording log shows that it was recorded, where that is more than there is of it."""
    torn_position: int | None = None
    """Where a last frame ends that is not counted as recorded: perhaps not all of it was written."""
    damaged_position: int | None = None
    """Where damage begins behind which nothing can be read, so that nobody knows where the log ends."""

    def loss(self, archive_dir: Directory) -> RecordingError | None:
        """Return the error for the end of the log that is missing; ``None`` when the recording log names none."""
        if self.lost_position is None:
            return None
        end = self.log_range.recorded_position
        found = self.descriptor
        base = segment_position(found.start_position, end, found.term_buffer_length, found.segment_file_length)
        return RecordingError(
            f"the log ends at log position {end}, and by its recording log it was recorded and committed to "
            f"{self.lost_position}: what lies between is lost here. Another member of the cluster has it",
            file=path_in(archive_dir, segment_file_name(found.recording_id, base)),
            offset=end - base,
            log_position=end,
        )


@dataclass(frozen=True, slots=True)
class Member:
    """One member's files, for reading. It holds paths and URLs only, and can be sent to another process."""

    path: str
    """The path it was opened with."""
    cluster_dir: str | None
    """The directory of the recording log; ``None`` when only an archive was given."""
    archive_dir: str
    """The directory of the archive, or its URL."""
    member_id: int | None
    """The member's id; ``None`` if it is not known."""
    recording_id: int | None = None
    """The recording to take for the log; ``None`` to find it."""
    _: KW_ONLY
    committed: commit.Committed = None
    """The rule for the committed part; see :func:`open_member`."""
    others: tuple[Member, ...] = ()
    """The other members of its cluster that were named with it."""
    is_voter: bool = True
    """Whether it counts for a majority of them: a copy does not."""
    is_unnamed: bool = False
    """Whether its files have no id, and ``member_id`` is what the rows of one query say."""
    storage: StorageOptions | None = None
    """Options for the file systems of URLs."""

    is_missing: bool = False
    """Whether nothing was found under ``path``: it has no log, and still counts for the majority."""

    @property
    def archive(self) -> Directory:
        """The directory object that opens the files of its archive, here."""
        return resolve(self.archive_dir, self.storage)

    @property
    def cluster(self) -> Directory | None:
        """The directory object that opens the files of its cluster directory, here; ``None`` without one."""
        return None if self.cluster_dir is None else resolve(self.cluster_dir, self.storage)

    def shipped(self) -> ShippedManifest | None:
        """Return the newest manifest of the place to which it was shipped; ``None`` where it is read at its own.

        From then on the place is read as this manifest describes it.

        Raises:
            RecordingError: the place cannot be read, or the manifest is damaged.
        """
        archive = self.archive
        if not isinstance(archive, StoredDirectory) or archive.manifest is None:
            return None
        return archive.look()

    def seen_manifest(self) -> ShippedManifest | None:
        """Return the manifest that was read last, of any age in this process; ``None`` as for :meth:`shipped`."""
        archive = self.archive
        return archive.manifest if isinstance(archive, StoredDirectory) else None

    def cluster_id(self) -> int | None:
        """Return the id of its cluster, by the mark file or the manifest; ``None`` where neither says it."""
        shipped = self.shipped()
        if shipped is not None:
            return shipped.cluster_id
        mark = None if self.cluster is None else live.read_cluster_mark(self.cluster)
        return None if mark is None else mark.cluster_id

    def recordings(self, mode: str = STRICT) -> list[RecordingDescriptor]:
        """Return the valid recordings of the archive's catalog; in mode permissive those before any damage.

        Where a member was shipped, those that were, and the log begins and ends as it does there.

        Raises:
            RecordingError: there is no catalog, it cannot be read, its version is unknown, or it is damaged.
        """
        return self._recordings(self.shipped(), mode)

    def _recordings(self, shipped: ShippedManifest | None, mode: str) -> list[RecordingDescriptor]:
        found = _collect(read_catalog(self.archive), mode)
        if shipped is None:
            return found
        # The copy of the catalog may be newer than the copies of recordings.
        start, end = shipped.start_position, shipped.end_position
        snapshots = {piece.recording_id for piece in shipped.snapshots}
        return [
            replace(one, start_position=start, stop_position=end) if one.recording_id == shipped.recording_id else one
            for one in found
            if one.recording_id == shipped.recording_id or one.recording_id in snapshots
        ]

    def recording_log(self, mode: str = STRICT) -> list[RecordingLogEntry]:
        """Return the entries of the recording log in the order of the file; none when there is no recording log.

        Raises:
            RecordingError: it cannot be read, or is damaged; in mode permissive the entries before the damage are
                returned.
        """
        if self.cluster_dir is None:
            return []
        self.shipped()
        try:
            return _collect(self.logged_entries(), mode)
        except FileNotFoundError:
            return []

    def logged_entries(self) -> Iterator[RecordingLogEntry]:
        """Yield the entries of the recording log; not those of terms and snapshots behind the end of what was shipped.

        Raises:
            FileNotFoundError: there is no recording log.
            RecordingError: as :meth:`recording_log`; the entries before the damage have been yielded.
        """
        cluster = self.cluster
        assert cluster is not None
        shipped = self.seen_manifest()
        end = POSITION_MAX if shipped is None else shipped.end_position
        for entry in read_recording_log(cluster):
            if entry.term_base_log_position <= end and (entry.is_term or entry.log_position <= end):
                yield entry

    def log_recording_id(self) -> int:
        """Return the id of the recording that holds the cluster's log.

        Raises:
            RecordingError: the member has no log, or several and no recording log that says which one is in use.
        """
        return self.log_descriptor().recording_id

    def log_descriptor(self, mode: str = STRICT) -> RecordingDescriptor:
        """Return what the catalog says of the cluster's log.

        Raises:
            as :meth:`log_recording_id`.
        """
        shipped = self.shipped()
        entries, _ = self._entries(mode)
        return self._log_descriptor(self._recordings(shipped, mode), entries)

    def log_range(self, mode: str = STRICT) -> LogRange:
        """Return how far the log goes now; on a running member it grows.

        A part of the last segment that cannot be read counts as recorded: reading it raises the error.

        Raises:
            RecordingError: the log is not known, or what the catalog says of it is impossible.
        """
        return self.log(mode).log_range

    def log(self, mode: str = STRICT) -> Log:
        """Return what is known of the log now; the commit position may need the files of the other members.

        Raises:
            RecordingError: the log is not known, or what the catalog says of it is impossible.
        """
        own = self.own_log(mode)
        position, basis = commit.resolve(self, own)
        return replace(own, log_range=replace(own.log_range, committed_position=position), committed_by=basis)

    def own_log(self, mode: str = STRICT) -> Log:
        """Return what this member's own files and counters say of the log.

        Raises:
            as :meth:`log`.
        """
        archive_dir, cluster_dir = self.archive, self.cluster
        # All files that a manifest names are there, and files copied beside it later only know more.
        shipped = self.shipped()
        # In this order: what is committed at the first moment is recorded at the second, and a recording that has no
        # counter any more has its end in the catalog.
        counter = live.committed_position(cluster_dir, archive_dir)
        is_running = live.is_running(cluster_dir, archive_dir)
        entries, failure = self._entries(mode)
        counters = live.recorded_positions(archive_dir)
        descriptor = self._log_descriptor(self._recordings(shipped, mode), entries)
        segments = segment_positions(archive_dir, descriptor)
        recorded, torn, damaged = recorded_end(archive_dir, descriptor, counters, segments)
        start = descriptor.start_position
        known = min(recorded, max(start, committed_position(entries), NULL_POSITION if counter is None else counter))
        terms = [
            entry
            for entry in entries
            if entry.is_term and entry.is_valid and entry.recording_id == descriptor.recording_id
        ]
        # Count this member's own terms and snapshots: a standby snapshot may be of a log that the member does not have
        # yet.
        shown = committed_position(entry for entry in entries if entry.is_term or entry.is_snapshot) if terms else start
        # A backup's recording log has what the leader's has: its log may never have come so far.
        is_lost = recorded < shown and not is_running and shipped is None and not live.is_backup(cluster_dir)
        if shipped is not None:
            known = recorded
        return Log(
            descriptor,
            LogRange(start, recorded, known),
            terms,
            segments,
            failure,
            known,
            counter is not None or shipped is not None,
            is_running,
            lost_position=shown if is_lost else None,
            torn_position=None if is_running else torn,  # That of a running one is being written.
            damaged_position=damaged,
        )

    def recorded_position(self, descriptor: RecordingDescriptor) -> int:
        """Return where a recording of this member ends now, whatever its descriptor said when it was read.

        Raises:
            RecordingError: what the catalog says of it is impossible, or it cannot be read.
        """
        archive_dir = self.archive
        counters = live.recorded_positions(archive_dir)
        for again in self.recordings(PERMISSIVE):
            if again.recording_id == descriptor.recording_id:
                descriptor = again
                break
        return recorded_position(archive_dir, descriptor, counters, segment_positions(archive_dir, descriptor))

    def _entries(self, mode: str) -> tuple[list[RecordingLogEntry], RecordingError | None]:
        """The recording log; in mode permissive what comes before damage, and why it could not be read further."""
        entries: list[RecordingLogEntry] = []
        if self.cluster_dir is not None:
            try:
                entries.extend(self.logged_entries())
            except FileNotFoundError:
                pass
            except RecordingError as error:
                if not tolerates(mode, error):
                    raise
                return entries, error
        return entries, None

    def _log_descriptor(
        self, recordings: Sequence[RecordingDescriptor], entries: Sequence[RecordingLogEntry]
    ) -> RecordingDescriptor:
        recording_id = self.recording_id
        if recording_id is None and (shipped := self.seen_manifest()) is not None:
            recording_id = shipped.recording_id
        if recording_id is None:
            recording_id = self._logged_recording_id(entries)
        if recording_id is None:
            recording_id = self._only_log(recordings)
        for descriptor in recordings:
            if descriptor.recording_id == recording_id:
                return descriptor
        raise RecordingError(f"the catalog has no recording {recording_id}", file=path_in(self.archive, CATALOG_NAME))

    def _logged_recording_id(self, entries: Sequence[RecordingLogEntry]) -> int | None:
        """The log's recording by the terms of the recording log."""
        found = {entry.recording_id for entry in entries if entry.is_term and entry.is_valid}
        found.discard(-1)
        if len(found) > 1:
            raise RecordingError(
                f"terms of several recordings {sorted(found)}: choose one with recording_id",
                file=path_in(self.cluster or "", RECORDING_LOG_NAME),
            )
        return found.pop() if found else None

    def _only_log(self, recordings: Sequence[RecordingDescriptor]) -> int:
        found = [descriptor.recording_id for descriptor in recordings if descriptor.stream_id == LOG_STREAM_ID]
        if len(found) == 1:
            return found[0]
        file = path_in(self.archive, CATALOG_NAME)
        if not found:
            raise RecordingError(
                f"no recording of stream {LOG_STREAM_ID}, which is a log's: is this the archive of a cluster? "
                "If the log has another stream, choose it with recording_id",
                file=file,
            )
        raise RecordingError(f"several logs, recordings {found}: choose one with recording_id", file=file)


def _collect[T](items: Iterator[T], mode: str) -> list[T]:
    collected = []
    try:
        for item in items:
            collected.append(item)
    except RecordingError as error:
        if not tolerates(mode, error) or not collected:
            raise
    return collected


def recorded_position(
    archive_dir: Directory, descriptor: RecordingDescriptor, counters: Mapping[int, int], segments: Sequence[int]
) -> int:
    """Return where a recording ends; see :func:`recorded_end`."""
    return recorded_end(archive_dir, descriptor, counters, segments)[0]


def recorded_end(
    archive_dir: Directory, descriptor: RecordingDescriptor, counters: Mapping[int, int], segments: Sequence[int]
) -> tuple[int, int | None, int | None]:
    """Return where a recording ends: by the catalog, by a running archive's counter, or by its last frame.

    The second is where a frame ends that begins there and is left out, because in its last page is nothing; the third
    where damage begins behind which there is no frame, so that it ends somewhere before the first; ``None`` without.

    A counter (of those by recording id) is believed when the recording has that much room: its files begin at
    ``segments``, and the archive makes the next one before it counts on.

    Raises:
        RecordingError: what the catalog says of it is impossible.
        RecordingUnavailableError: the last segment file cannot be read.
    """
    with closing(MessageReader(archive_dir, **descriptor.layout())) as reader:
        start, stop = descriptor.start_position, descriptor.stop_position
        if stop != NULL_POSITION:
            if not start <= stop <= POSITION_MAX or stop % 32:
                raise RecordingError(
                    f"stop_position={stop} of recording {descriptor.recording_id} is impossible, it must be a multiple "
                    f"of 32 from {start}, where it starts, to 2^61; the archive's own tool finds the true one: "
                    "ArchiveTool verify",
                    file=path_in(archive_dir, CATALOG_NAME),
                )
            return stop, None, None
        if not segments:
            return start, None, None
        end = segments[-1] + descriptor.segment_file_length
        counter = counters.get(descriptor.recording_id)
        if counter is not None and start <= counter <= end:
            return counter, None, None
        name = segment_file_name(descriptor.recording_id, segments[-1])
        path = path_in(archive_dir, name)
        before = file_state(archive_dir, name)
        known = _known_ends.get(path)
        if known is not None and known[:2] == (before, descriptor):
            return known[2]
        position = reader.find_end(max(segments[-1], start), end)
        failed = reader.failure_error().log_position if reader.last_failure else None
        damaged = failed if failed is not None and failed < position and reader.torn_position < 0 else None
        found = position, None if reader.torn_position < 0 else reader.torn_position, damaged
        if before is not None and before == file_state(archive_dir, name) and position < end:
            if len(_known_ends) >= _KNOWN_ENDS_MAX:
                _known_ends.clear()
            _known_ends[path] = (before, descriptor, found)
        return found


def file_names(archive_dir: Directory) -> list[str]:
    """Return the names of an archive's files, in no order.

    Raises:
        RecordingError: the directory cannot be read.
    """
    if isinstance(archive_dir, RemoteDirectory):
        return archive_dir.names()
    try:
        return [path.name for path in Path(archive_dir).iterdir()]
    except OSError as error:
        raise unreadable("the directory", str(archive_dir), error) from error


def segment_positions(
    archive_dir: Directory, descriptor: RecordingDescriptor, names: Iterable[str] | None = None
) -> list[int]:
    """Return where the segment files of a recording begin, those that are there, in ascending order.

    Pass the ``names`` of the files to ask for many recordings and read the directory once.

    Raises:
        RecordingError: the directory cannot be read.
    """
    first = descriptor.start_position & -descriptor.term_buffer_length
    positions = []
    for name in file_names(archive_dir) if names is None else names:
        text = name.removeprefix(f"{descriptor.recording_id}-").removesuffix(".rec")
        if not (text.isascii() and text.isdecimal()) or len(text) > _POSITION_DIGITS:
            continue
        position = int(text)
        if not first <= position <= POSITION_MAX or name != segment_file_name(descriptor.recording_id, position):
            continue
        if (position - first) & (descriptor.segment_file_length - 1) == 0:
            positions.append(position)
    return sorted(positions)


def open_member(
    path: str | Path,
    *,
    archive_dir: str | Path | None = None,
    member_id: int | None = None,
    recording_id: int | None = None,
    committed: str | int | None = None,
    storage_options: str | Mapping[str, Any] | StorageOptions | None = None,
) -> Member:
    """Find a member's files.

    Args:
        path: a member's base directory, which has the two others below it; its cluster directory, beside which or
            below which the archive is looked for; its archive directory alone; or a place to which it was shipped. It
            may be a URL of any file system that fsspec knows, and a pattern that one directory matches.
        archive_dir: where the archive is, when it is elsewhere.
        member_id: overrides what the cluster's mark file says.
        recording_id: the recording of the log, for an archive that has several.
        committed: what counts as committed while no counter of a running member says it: ``recorded``, all that is
            recorded; ``known``, what closed terms and snapshots show; or a log position. By default all that is
            recorded if no other member ever led the log, as then it may have none, and else what is known; of
            several members (:func:`open_members`) what their majority has recorded.
        storage_options: what fsspec passes to the file system of a URL beside its own configuration, as a mapping or
            a JSON object.

    Raises:
        ConfigurationError: ``committed`` is not one of these, ``storage_options`` is not a JSON object, or the URL
            names an unknown file system.
        ImportError: the package of a URL's file system is not installed.
        RecordingUnavailableError: there is no such directory, it cannot be read, or it has no archive.
        RecordingError: it has several archives or cluster directories.
    """
    chosen = commit.parse_committed("committed", committed)
    storage = parse_storage_options("storage_options", storage_options)
    matching = expand(str(path), storage)
    if len(matching) > 1:
        raise ConfigurationError(f"path={str(path)!r} matches {len(matching)} directories, one is wanted: {matching}")
    place = place_of(matching[0], storage)
    shipped = None if place is None else place.look()
    try:
        if place is not None and shipped is not None:
            cluster_dir = str(place) if shipped.metadata_object(RECORDING_LOG_NAME) is not None else None
            archive = str(place)
        elif archive_dir is not None and is_url(str(archive_dir)) != (place is not None):
            raise ConfigurationError(
                f"archive_dir={str(archive_dir)!r} and path={matching[0]!r}: give two paths or two URLs"
            )
        elif place is not None:
            cluster_dir, archive = _find_remote(place, None if archive_dir is None else str(archive_dir))
        else:
            local = Path(local_path(matching[0]) or matching[0])
            found, known = _find_directories(local, None if archive_dir is None else Path(archive_dir))
            cluster_dir, archive = None if found is None else str(found), str(known)
    except OSError as error:
        raise unreadable("the path", error.filename, error) from error
    member = Member(matching[0], cluster_dir, archive, member_id, recording_id, committed=chosen, storage=storage)
    return member if member_id is not None else replace(member, member_id=_member_id(member, shipped))


def _member_id(member: Member, shipped: ShippedManifest | None) -> int | None:
    if shipped is not None:
        return shipped.member_id
    mark = None if member.cluster is None else live.read_cluster_mark(member.cluster)
    return mark.owner_id if mark is not None and mark.owner_id >= 0 else None


def open_members(
    paths: str | Path | Sequence[str | Path],
    *,
    archive_dir: str | Path | None = None,
    recording_id: int | None = None,
    committed: str | int | None = None,
    storage_options: str | Mapping[str, Any] | StorageOptions | None = None,
) -> list[Member]:
    """Find the files of one member or several of a cluster, as :func:`open_member` does.

    Several are taken for all members of their cluster: what their majority has recorded is committed. Name all of them,
    or give a pattern that all of their directories match.

    Raises:
        ConfigurationError: no path is given, ``archive_dir`` with several, or two paths are of one member.
        RecordingError: as :func:`open_member`.
    """
    named = [paths] if isinstance(paths, str | Path) else list(paths)
    if not named:
        raise ConfigurationError("path is empty: name the directory of at least one member")
    storage = parse_storage_options("storage_options", storage_options)
    several = [one for path in named for one in expand(str(path), storage)]
    if archive_dir is not None and len(several) > 1:
        raise ConfigurationError(f"archive_dir={str(archive_dir)!r} cannot belong to {len(several)} members")
    return commit.with_others(
        [
            open_member(
                path,
                archive_dir=archive_dir,
                recording_id=recording_id,
                committed=committed,
                storage_options=storage,
            )
            for path in several
        ]
    )


def _find_remote(place: StoredDirectory, archive_dir: str | None) -> tuple[str | None, str]:
    """The URLs of the cluster directory, if there is one, and of the archive, as :func:`_find_directories`."""
    url, storage = str(place), place.storage
    is_archive = CATALOG_NAME in place.names()
    cluster = _only(url, _search_remote([url], storage, _CLUSTER_FILES), "cluster directory", "path")
    archive = archive_dir
    if archive is None:
        places = [url] if cluster is None or is_archive else [url, cluster, cluster.rpartition("/")[0]]
        archive = _only(url, _search_remote(places, storage, (CATALOG_NAME,)), "archive", "archive_dir")
    if archive is None or CATALOG_NAME not in file_names(resolve(archive, storage)):
        raise RecordingUnavailableError(
            f"there is no {CATALOG_NAME} here, below, or beside, and no manifest of what was shipped: give its "
            "directory, or name that with archive_dir",
            file=archive or url,
        )
    return cluster, archive


def _search_remote(places: Sequence[str], storage: StorageOptions | None, names: Sequence[str]) -> list[str]:
    """For each URL: itself if it has one of the files, else the directories right below that have one."""
    found: list[str] = []
    for place in places:
        directory = resolve(place, storage)
        assert isinstance(directory, StoredDirectory)
        below = [f"{place}/{name}" for name in directory.directory_names()]
        for url in [place] if not set(names).isdisjoint(directory.names()) else below:
            if not set(names).isdisjoint(file_names(resolve(url, storage))):
                found.append(url)
    return list(dict.fromkeys(found))


def _find_directories(directory: Path, archive_dir: Path | None) -> tuple[Path | None, Path]:
    """The cluster directory, if there is one, and the archive's. Raises OSError when one may not be looked into."""
    if not (is_there(directory) and directory.is_dir()):
        raise RecordingUnavailableError("is not a directory", file=str(directory))
    is_archive = is_there(directory / CATALOG_NAME)
    cluster = _only(directory, _search([directory], _CLUSTER_FILES, is_archive), "cluster directory", "path")
    archive = archive_dir
    if archive is None:
        places = [directory] if cluster is None else [directory, cluster, cluster.parent]
        archive = _only(directory, _search(places, (CATALOG_NAME,)), "archive", "archive_dir")
    if archive is None or not is_there(archive / CATALOG_NAME):
        raise RecordingUnavailableError(
            f"there is no {CATALOG_NAME} here, below, or beside: give its directory, or name that with archive_dir",
            file=str(archive or directory),
        )
    return cluster, archive


def _search(places: Sequence[Path], names: Sequence[str], may_have_none: bool = False) -> list[Path]:
    """For each place: itself if it has one of the files, else the directories right below that have one.

    Raises OSError when there is none, and one that may not be looked into might be it.
    """
    found: list[Path] = []
    denied: list[OSError] = []

    def has_one(directory: Path) -> bool:
        try:
            return any(is_there(directory / name) for name in names)
        except OSError as error:
            denied.append(error)
            return False

    for place in places:
        if has_one(place):
            found.append(place)
            continue
        try:
            found += [entry for entry in sorted(place.iterdir()) if entry.is_dir() and has_one(entry)]
        except OSError as error:
            denied.append(error)
    if denied and not found and not may_have_none:
        raise denied[0]
    return list(dict.fromkeys(place.resolve() for place in found))


def _only[T: (str, Path)](directory: T, found: Sequence[T], what: str, setting: str) -> T | None:
    if len(found) > 1:
        names = ", ".join(str(path) for path in found)
        raise RecordingError(
            f"several directories look like its {what}: {names}; choose one with {setting}", file=str(directory)
        )
    return found[0] if found else None
