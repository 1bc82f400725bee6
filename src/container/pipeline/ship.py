"""Copies a member's log and snapshots to a place that other hosts read: incremental, verified, and safe to kill.

An object is in the place whole or not at all, and is read back before a manifest names it. A manifest is created under
the next number, and fails to be where another shipper was faster: it is the one place where something is decided.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from uuid import uuid4

from msgspec import structs

from container.common.regular_files import open_regular, read_at, read_regular
from container.common.slow_answers import said_when_slow
from container.common.values import counted
from container.errors import ConfigurationError, ContainerError, RecordingError, RecordingUnavailableError
from container.files.catalog import NULL_POSITION, RecordingDescriptor, read_catalog
from container.files.directories import RemoteDirectory, SegmentReader
from container.files.names import CATALOG_NAME, RECORDING_LOG_NAME
from container.files.open_errors import unreadable
from container.files.recording_log import RecordingLogEntry, read_recording_log
from container.pipeline.ship_place import Place, is_passing, store_error_text
from container.pipeline.ship_plan import (
    RETIRED_FOR_MS,
    Copy,
    SnapshotFiles,
    SourceFacts,
    check_same_member,
    copy_of,
    foreign_object,
    next_manifest,
    old_manifests,
    orphans,
    plan_copies,
)
from container.recordings.cluster_time import known_time_unit
from container.recordings.commit import KNOWN
from container.recordings.identity import log_identity
from container.recordings.member import Log, Member, file_names, segment_positions
from container.recordings.shipped import (
    MANIFEST_LENGTH_MAX,
    METADATA_DIRECTORY,
    METADATA_NAMES,
    Piece,
    Retired,
    ShippedManifest,
    ShippedObject,
    ShippedTerm,
    encode_manifest,
    fault_of,
    manifest_path,
    newest_manifest,
    parse_manifest,
)

_log = logging.getLogger(__name__)

ATTEMPTS = 5
"""How often a request is made to a store that is in trouble, with 1, 2, 4 and 8 seconds between."""
PUBLISH_INTERVAL_S = 30.0
"""How long copies wait for a manifest that names them, in a pass with many."""
_CONFLICTS_MAX = 10
_CHANGES_MAX = 5
_METADATA_LENGTH_MAX = 2**31 - 1


class ShipStopped(ContainerError):
    """Shipping was asked to end."""


@dataclass(frozen=True, slots=True)
class Pass:
    """The result of a pass."""

    number: int
    """Number of the manifest that is now the newest."""
    end_position: int
    committed_position: int
    """The member's, when the pass began its last part; that of the place, where the member knows less."""
    unknown_length: int = 0
    """Bytes of log behind it that are not shipped: of a member that does not run, and not known to be committed."""
    copied_length: int = 0
    """Bytes that were written."""
    copied_count: int = 0
    taken_over_count: int = 0
    """Objects that a killed run had left, and that are whole."""


class _Changed(Exception):
    """The member's files changed while they were copied, or another shipper published: look again."""


class Shipper:
    """Ships one member to one place.

    Args:
        member: whose files are copied; what counts as committed while it does not run is as it was opened with,
            and by default what closed terms and snapshots show.
        place: where they are copied to.
        stop: set to end at the next object.
        on_publish: is called with what was done so far, after each manifest that names new copies.
    """

    def __init__(
        self,
        member: Member,
        place: Place,
        *,
        stop: threading.Event | None = None,
        on_publish: Callable[[Pass], None] = lambda found: None,
    ) -> None:
        self._member = member if member.committed is not None else replace(member, committed=KNOWN)
        self._place = place
        self._stop = threading.Event() if stop is None else stop
        self._on_publish = on_publish
        self._verified: tuple[object, ...] | None = None

    def run(self) -> Pass:
        """Copy what the place does not have, up to the commit position of this moment.

        Raises:
            ConfigurationError: the place is of another member or history, is used for something else, or does not
                refuse to create an object twice.
            ContainerError: an object is lost in the place and in the member, the store failed again and again, or
                others changed the place or the files whenever this looked.
            RecordingError: the member's files are damaged or cannot be read.
            ShipStopped: the stop was set.
        """
        changes = conflicts = 0
        done = Pass(0, 0, 0)
        while True:
            try:
                done, is_complete = self._part(done)
            except _Changed as change:
                conflicts += 1
                if conflicts > _CONFLICTS_MAX:
                    raise ContainerError(
                        f"{change}, {conflicts} times in a row: end all but one of the shippers of {self._place.name}"
                    ) from None
                continue
            except RecordingError as error:
                changes += 1
                if changes >= _CHANGES_MAX:
                    raise
                self._wait(1.0, f"{error}; a running member may be changing it: looking again in 1 s")
                continue
            conflicts = changes = 0
            if is_complete:
                return done

    def _part(self, done: Pass) -> tuple[Pass, bool]:
        """Copy for some time, and publish; whether that was all."""
        lengths = self._ask("list", self._place.lengths)
        number = newest_manifest(lengths)
        manifest = None if number is None else self._read_manifest(number)
        if number is None and (foreign := foreign_object(lengths)) is not None:
            raise ConfigurationError(
                f"{self._place.name} has {foreign} and no manifest: it is used for something else. Name an empty place"
            )
        source, files = self._source()
        if manifest is not None:
            check_same_member(self._place.name, manifest, source)
        if number is None or manifest is None:
            # The place is taken before anything is copied, so that two members never mix in it.
            self._check_creation()
            number, manifest = 1, next_manifest(None, source, [], self._put_metadata(1, None, files, {}), _now_ms())
            self._publish(number, manifest)
            lengths = self._ask("list", self._place.lengths)
        self._check_history(manifest, source)
        copies = plan_copies(self._place.name, manifest, source, lengths)
        pieces: list[Piece] = []
        limit = time.monotonic() + PUBLISH_INTERVAL_S
        for copy in copies:
            # A manifest names a snapshot when all of it is there: to break off in its middle is to begin it again.
            goes_on = pieces and copy.recording_id == pieces[-1].recording_id != source.descriptor.recording_id
            if self._stop.is_set() or (pieces and not goes_on and time.monotonic() > limit):
                break
            piece, is_new = self._ship(copy, lengths)
            pieces.append(piece)
            done = replace(
                done,
                copied_length=done.copied_length + (piece.length if is_new else 0),
                copied_count=done.copied_count + is_new,
                taken_over_count=done.taken_over_count + (not is_new),
            )
        number, manifest = self._advance(number, manifest, source, pieces, files, lengths)
        committed = max(source.committed_position, manifest.end_position)
        done = replace(
            done,
            number=number,
            end_position=manifest.end_position,
            committed_position=committed,
            unknown_length=max(0, source.committed_position + source.unknown_length - committed),
        )
        if pieces:
            self._on_publish(done)
        if self._stop.is_set():
            raise ShipStopped(f"stopped; {self._place.name} has the log up to {manifest.end_position}")
        return done, len(pieces) == len(copies)

    # The member.

    def _source(self) -> tuple[SourceFacts, dict[str, bytes]]:
        """The member's present facts, and the contents of the files that are copied as they are.

        The commit position is asked first: what is committed then stays, whatever is read later.
        """
        member = self._member
        log = member.log()
        archive_dir = Path(member.archive_dir)
        files = {}
        if member.cluster_dir is not None:
            files[RECORDING_LOG_NAME] = _read(Path(member.cluster_dir, RECORDING_LOG_NAME))
        files[CATALOG_NAME] = _read(archive_dir / CATALOG_NAME)
        contents = {name: content for name, content in files.items() if content is not None}
        entries, recordings = _parse(member.path, contents)
        descriptor = recordings.get(log.descriptor.recording_id)
        if descriptor is None or descriptor.start_timestamp != log.descriptor.start_timestamp:
            raise _Changed(f"the catalog of {member.path} lost its log while it was read")
        names = file_names(archive_dir)
        wanted = sorted({entry.recording_id for entry in entries if entry.is_valid_snapshot})
        by_recording = _names_by_recording(names, {descriptor.recording_id, *wanted})
        facts = SourceFacts(
            cluster_id=member.cluster_id(),
            member_id=member.member_id,
            time_unit=known_time_unit(member),
            descriptor=descriptor,
            identity=log_identity(archive_dir, descriptor),
            segment_positions=segment_positions(archive_dir, descriptor, by_recording[descriptor.recording_id]),
            committed_position=_committed(log),
            unknown_length=_unknown_length(log),
            terms=[
                ShippedTerm(
                    leadership_term_id=entry.leadership_term_id, term_base_log_position=entry.term_base_log_position
                )
                for entry in entries
                if entry.is_valid_term and entry.recording_id == descriptor.recording_id
            ],
            snapshots=[
                SnapshotFiles(found, segment_positions(archive_dir, found, by_recording[recording_id]))
                for recording_id in wanted
                if (found := recordings.get(recording_id)) is not None and found.stop_position != NULL_POSITION
            ],
        )
        return facts, contents

    def _check_history(self, manifest: ShippedManifest, source: SourceFacts) -> None:
        """Raise ConfigurationError when the member has other bytes where the place's log ends.

        Looked at once, and again after the member was behind the place or its catalog or recording log was written: a
        restore of an older state has all the names of the history that it leaves.
        """
        if source.committed_position < manifest.end_position or not manifest.log:
            self._verified = None
            return
        state = (
            _file_state(self._member.archive_dir, CATALOG_NAME),
            _file_state(self._member.cluster_dir, RECORDING_LOG_NAME),
            manifest.recording,
        )
        if self._verified == state:
            return
        last = manifest.log[-1]
        copy = copy_of(last, source)
        content = None if copy is None else self._read(copy)
        if content is not None and hashlib.sha256(content).hexdigest() != last.sha256:
            raise ConfigurationError(
                f"{self._place.name} has other bytes from log position {last.position} to {last.end} than "
                f"{self._member.path}: it was wiped and got its log again, with other session ids, or was restored "
                "from a backup, or one of both is damaged. `pipeline ship --check` examines the place, `archive "
                "verify` the member; when both are whole, give it a new place"
            )
        self._verified = state

    def _check_unchanged(self, source: SourceFacts, pieces: Sequence[Piece]) -> None:
        """Raise _Changed unless all that was copied of the log is still committed, and the log still the same."""
        log = self._member.log()
        before = source.descriptor
        is_same = (before.recording_id, before.start_timestamp) == (
            log.descriptor.recording_id,
            log.descriptor.start_timestamp,
        )
        end = max((piece.end for piece in pieces if piece.recording_id == before.recording_id), default=0)
        if not is_same or end > _committed(log):
            raise _Changed(f"the log of {self._member.path} was cut or replaced while it was copied")

    def _read(self, copy: Copy) -> bytes:
        path = Path(self._member.archive_dir, copy.file_name)
        try:
            file = open_regular(path)
            try:
                content = read_at(file, copy.offset, copy.length)
            finally:
                os.close(file)
        except OSError as error:
            raise unreadable("the segment file", path, error) from error
        if len(content) != copy.length:
            raise RecordingUnavailableError(
                f"the segment file ends after {len(content)} bytes of {copy.length}", file=str(path), offset=copy.offset
            )
        return content

    # The place.

    def _ship(self, copy: Copy, lengths: Mapping[str, int]) -> tuple[Piece, bool]:
        """Bring a piece into the place; whether it was written, and not there already."""
        content = self._read(copy)
        sha256 = hashlib.sha256(content).hexdigest()
        if copy.sha256 not in (None, sha256):
            raise ConfigurationError(
                f"{self._place.name}/{copy.path} was lost, and {self._member.path} now has other bytes at its place: "
                "begin a new place"
            )
        return copy.piece(sha256), self._put(copy.path, content, sha256, is_there=copy.path in lengths)

    def _put(self, path: str, content: bytes, sha256: str, *, is_there: bool = False) -> bool:
        """Have an object in the place, read back; whether it was written."""

        def is_whole() -> bool:
            return self._ask(f"read {path}", lambda: self._place.digest(path, len(content))) == sha256

        try:
            if not is_there:
                self._ask(f"write {path}", lambda: self._place.put(path, content, create=True))
        except FileExistsError:
            is_there = True
        if is_whole():
            return not is_there
        if is_there:
            # No manifest names it: they are written when their objects are whole.
            _log.warning("%s/%s is not whole, or damaged: it is written again", self._place.name, path)
            self._ask(f"write {path}", lambda: self._place.put(path, content, create=False))
            if is_whole():
                return True
        raise ContainerError(
            f"{self._place.name}/{path}: the store took {len(content)} bytes, and returns others: examine the store"
        )

    def _put_metadata(
        self, number: int, manifest: ShippedManifest | None, files: Mapping[str, bytes], lengths: Mapping[str, int]
    ) -> list[ShippedObject]:
        """Have the copies of the member's small files in the place; those that have not changed are named again."""
        found = []
        for name in METADATA_NAMES:
            if (content := files.get(name)) is None:
                continue
            sha256 = hashlib.sha256(content).hexdigest()
            known = None if manifest is None else manifest.metadata_object(name)
            if known is not None and known.sha256 == sha256 and lengths.get(known.path) == known.length:
                found.append(known)
                continue
            path = f"{METADATA_DIRECTORY}/{number:020}-{sha256[:16]}/{name}"
            self._put(path, content, sha256)
            found.append(ShippedObject(path=path, length=len(content), sha256=sha256))
        return found

    def _advance(
        self,
        number: int,
        manifest: ShippedManifest,
        source: SourceFacts,
        pieces: Sequence[Piece],
        files: Mapping[str, bytes],
        lengths: Mapping[str, int],
    ) -> tuple[int, ShippedManifest]:
        """Publish a manifest with the pieces, unless it would say nothing new."""
        now_ms = _now_ms()
        metadata = self._put_metadata(number + 1, manifest, files, lengths)
        fresh = next_manifest(manifest, source, pieces, metadata, now_ms)
        left = [Retired(path=path, since_ms=now_ms) for path in orphans(number, fresh, source, lengths)]
        expired = [one for one in fresh.retired if one.since_ms <= now_ms - RETIRED_FOR_MS]
        kept = [one for one in fresh.retired if one.since_ms > now_ms - RETIRED_FOR_MS]
        fresh = structs.replace(fresh, retired=[*kept, *left])
        if structs.replace(fresh, written_ms=manifest.written_ms) == manifest:
            return number, manifest
        self._check_unchanged(source, pieces)
        # Before the manifest that forgets them: what a kill leaves is removed again.
        self._ask("remove objects", lambda: self._place.remove(one.path for one in expired))
        self._publish(number + 1, fresh)
        self._ask("remove old manifests", lambda: self._place.remove(old_manifests(number + 1, lengths)))
        return number + 1, fresh

    def _publish(self, number: int, manifest: ShippedManifest) -> None:
        path, content = manifest_path(number), encode_manifest(manifest)
        if (fault := fault_of(manifest)) is not None:
            raise ContainerError(f"{self._place.name}/{path} is not written, it would contradict itself: {fault}")
        try:
            self._ask(f"write {path}", lambda: self._place.put(path, content, create=True))
        except FileExistsError:
            # Perhaps it is this one: a store may do what is asked for, and its answer be lost.
            if self._ask(f"read {path}", lambda: self._place.content(path, MANIFEST_LENGTH_MAX)) != content:
                raise _Changed(f"another shipper wrote {path} first") from None

    def _read_manifest(self, number: int) -> ShippedManifest:
        path = manifest_path(number)
        content = self._ask(f"read {path}", lambda: self._place.content(path, MANIFEST_LENGTH_MAX))
        if content is None:
            raise _Changed(f"another shipper removed {path}")
        return parse_manifest(content, f"{self._place.name}/{path}")

    def _check_creation(self) -> None:
        """Raise ConfigurationError when the store does not refuse to create an object that is there already."""
        path = f"{METADATA_DIRECTORY}/{0:020}-{uuid4().hex}/probe"
        try:
            # The first may be refused as well: when it was done, its answer was lost, and it was asked for again.
            for content in (b"1", b"2"):
                self._ask(f"write {path}", partial(self._place.put, path, content, create=True))
        except FileExistsError:
            return
        finally:
            self._ask(f"remove {path}", lambda: self._place.remove([path]))
        raise ConfigurationError(
            f"{self._place.name} is a store that does not refuse to create an object twice (for S3: If-None-Match), "
            "without which two shippers could overwrite each other: use another store"
        )

    def _ask[T](self, what: str, request: Callable[[], T]) -> T:
        """Make a request of the store, again and again for a while when it is in trouble."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with said_when_slow(_log, f"{self._place.name}: {what}"):
                    return request()
            except FileExistsError:
                raise
            except Exception as error:
                text = f"{self._place.name}: cannot {what}: {store_error_text(error)}"
                if not is_passing(error) or attempt == ATTEMPTS:
                    raise ContainerError(text) from error
                delay_s = 2.0 ** (attempt - 1)
                self._wait(delay_s, f"{text}; trying again in {delay_s:g} s, attempt {attempt + 1} of {ATTEMPTS}")
        raise AssertionError("the last attempt returns or raises")

    def _wait(self, delay_s: float, why: str) -> None:
        _log.warning("%s", why)
        if self._stop.wait(delay_s):
            raise ShipStopped(f"stopped while waiting for {self._place.name}; {why}")


def check_place(place: Place, report: Callable[[str], None] = lambda line: None) -> tuple[ShippedManifest, list[str]]:
    """Read all that the newest manifest of a place names; return the manifest and a sentence for each fault.

    Args:
        place: the place.
        report: is called with a line of progress every ten seconds.

    Raises:
        ConfigurationError: there is no manifest.
        RecordingError: the manifest is damaged.
        ContainerError: the store fails.
    """
    try:
        with said_when_slow(_log, f"{place.name}: list"):
            number = newest_manifest(place.lengths())
        if number is None:
            raise ConfigurationError(f"{place.name} has no manifest: nothing was shipped there")
        path = manifest_path(number)
        manifest = parse_manifest(place.content(path, MANIFEST_LENGTH_MAX) or b"", f"{place.name}/{path}")
        faults: list[str] = []
        next_s = time.monotonic() + 10
        every = [*manifest.metadata, *manifest.log, *manifest.snapshots]
        for index, one in enumerate(every):
            if time.monotonic() > next_s:
                report(f"{index} of {len(every)} objects checked, {counted(len(faults), 'fault')}")
                next_s = time.monotonic() + 10
            with said_when_slow(_log, f"{place.name}: read {one.path}"):
                if place.digest(one.path, one.length) == one.sha256:
                    continue
                found = place.length(one.path)
            if found is None:
                faults.append(f"{one.path} is missing")
            elif found != one.length:
                faults.append(f"{one.path} has {found} bytes, the manifest says {one.length}")
            else:
                faults.append(f"{one.path} has other bytes than were shipped: the store has damaged them")
    except (ContainerError, FileExistsError):
        raise
    except Exception as error:
        raise ContainerError(f"{place.name}: {store_error_text(error)}") from error
    return manifest, faults


def _committed(log: Log) -> int:
    """How far a log may be shipped: by the counter of a member that runs, or as the member was opened with."""
    position = log.log_range.committed_position
    return min(position, log.known_position) if log.has_counter else position


def _unknown_length(log: Log) -> int:
    """How much of a log is not shipped because its member does not run."""
    if log.committed_by != KNOWN or log.is_running:
        return 0
    return log.log_range.recorded_position - log.known_position


def _file_state(directory: str | None, name: str) -> tuple[int, int, int] | None:
    """Values that change when a file is replaced or overwritten; None without a file."""
    try:
        status = None if directory is None else Path(directory, name).stat()
    except FileNotFoundError:
        return None
    return None if status is None else (status.st_dev, status.st_ino, status.st_ctime_ns)


def _read(path: Path) -> bytes | None:
    try:
        return read_regular(path, _METADATA_LENGTH_MAX)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable("the file", path, error) from error


class _Contents(RemoteDirectory):
    """The very bytes that are copied, as the directory that they are of."""

    def __init__(self, name: str, contents: Mapping[str, bytes]) -> None:
        self._name = name
        self._contents = contents

    def __str__(self) -> str:
        return self._name

    def content(self, name: str) -> bytes:
        if name not in self._contents:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{self._name}/{name}")
        return self._contents[name]

    def names(self) -> list[str]:
        return list(self._contents)

    def segment_reader(self, recording_id: int) -> SegmentReader:
        raise RecordingUnavailableError("no segment files are here", file=self._name)


def _parse(name: str, contents: Mapping[str, bytes]) -> tuple[list[RecordingLogEntry], dict[int, RecordingDescriptor]]:
    """The entries of a recording log and the recordings of a catalog."""
    directory = _Contents(name, contents)
    entries = list(read_recording_log(directory)) if RECORDING_LOG_NAME in contents else []
    return entries, {found.recording_id: found for found in read_catalog(directory)}


def _names_by_recording(names: Iterable[str], recording_ids: Iterable[int]) -> dict[int, list[str]]:
    """An archive's file names, by the recordings that are asked for."""
    found: dict[str, list[str]] = {str(recording_id): [] for recording_id in recording_ids}
    for name in names:
        if (of_one := found.get(name.partition("-")[0])) is not None:
            of_one.append(name)
    return {int(recording_id): of_one for recording_id, of_one in found.items()}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
