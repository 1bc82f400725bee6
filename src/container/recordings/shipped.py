"""The manifest of a shipped place: what ``aeron-cluster pipeline ship`` has copied of one member, for its readers.

A place is a directory or a prefix of an object store. Everything in it is written once and never changed:

``shipped/<20 digits>.json``
    A manifest. The highest number counts; older ones are removed later. One that is there is whole, and so is each
    object that it names.
``archive/<recording id>-<position>.rec``
    A segment file. That of the log has all its bytes; the last one of a snapshot ends where the recording stopped.
``tail/<recording id>-<position>-<end>.rec``
    A stretch of the log's segment that is not full yet. A later manifest names longer stretches, then the segment.
``metadata/<20 digits>-<digest>/<name>``
    A copy of the member's ``archive.catalog`` or ``recording.log``.

Objects that the newest manifest does not name any more stay for an hour: a reader that misses one reads the newest
manifest and looks again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from container.errors import RecordingError
from container.files.catalog import POSITION_MAX
from container.files.names import CATALOG_NAME, RECORDING_LOG_NAME

MANIFEST_DIRECTORY, ARCHIVE_DIRECTORY, TAIL_DIRECTORY, METADATA_DIRECTORY = "shipped", "archive", "tail", "metadata"
OBJECT_DIRECTORIES = (ARCHIVE_DIRECTORY, TAIL_DIRECTORY, METADATA_DIRECTORY)
METADATA_NAMES = (CATALOG_NAME, RECORDING_LOG_NAME)
"""Files copied besides recordings; a member without cluster directory has no recording log."""
MANIFEST_LENGTH_MAX = 1024**3

_VERSION = 1
_SEGMENT_LENGTH_MAX = 1024**3
_TIME_UNITS = (None, "MILLIS", "MICROS", "NANOS")
_NAME = re.compile(rf"{MANIFEST_DIRECTORY}/([0-9]{{20}})\.json")


class ShippedObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object of the place, and what is in it."""

    path: str
    """Relative to the place."""
    length: int
    sha256: str


class Piece(ShippedObject, frozen=True, kw_only=True):
    """A stretch of a recording: the bytes of one of its segment files, or of a part of one."""

    recording_id: int
    position: int
    """The log position of its first byte."""

    @property
    def end(self) -> int:
        """The log position behind its last byte."""
        return self.position + self.length


class ShippedTerm(msgspec.Struct, frozen=True, kw_only=True):
    """A leadership term by the recording log."""

    leadership_term_id: int
    term_base_log_position: int


class Retired(msgspec.Struct, frozen=True, kw_only=True):
    """An object that no manifest names from this one on, until it is removed."""

    path: str
    since_ms: int
    """Epoch milliseconds."""


class ShippedManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a place. All of the log in it is committed."""

    version: int = _VERSION
    cluster_id: int | None
    member_id: int | None
    time_unit: str | None
    """``MILLIS``, ``MICROS`` or ``NANOS``; None while nothing in the log says it."""
    recording_id: int
    """The recording that is the log."""
    recording: str
    """The same with the time when it was begun, as :class:`container.recordings.identity.LogIdentity` has it."""
    first_term: str | None
    """The message that begins the log, as LogIdentity has it."""
    start_position: int
    """Where the log begins in this place. It stays when the member purges its archive, so it may be before the start
    position of the catalog's copy: this one counts."""
    end_position: int
    """Where the log ends in this place: never behind the member's commit position when it was copied. The copies of
    catalog and recording log may know more."""
    segment_length: int
    """Bytes of a whole segment file of the log."""
    written_ms: int
    """Epoch milliseconds, when this manifest was written."""
    metadata: list[ShippedObject]
    """The copies of files; the name of each is the last part of its path."""
    log: list[Piece]
    """The log from ``start_position`` (or a little before, where the segment file begins) to ``end_position``, without
    a gap, in ascending order. A piece lies in one segment; a segment is one piece, or several while it is not full."""
    snapshots: list[Piece]
    """Recordings of snapshots, each whole, by recording id and position."""
    terms: list[ShippedTerm] = []
    """The log's leadership terms that begin before ``end_position``, as far as the recording log has them."""
    retired: list[Retired] = []

    def pieces(self, recording_id: int, begin: int, end: int) -> list[Piece]:
        """Return the pieces that hold a recording between two positions, in ascending order."""
        every = self.log if recording_id == self.recording_id else self.snapshots
        return [one for one in every if one.recording_id == recording_id and one.position < end and begin < one.end]

    def metadata_object(self, name: str) -> ShippedObject | None:
        """Return the copy of a file of :data:`METADATA_NAMES`; None when the member had none."""
        return next((one for one in self.metadata if one.path.endswith(f"/{name}")), None)


def manifest_path(number: int) -> str:
    """Return the path of a manifest, relative to the place."""
    return f"{MANIFEST_DIRECTORY}/{number:020}.json"


def manifest_number(path: str) -> int | None:
    """Return the number of the manifest that has a path relative to the place; None for any other object."""
    found = _NAME.fullmatch(path)
    return None if found is None else int(found[1])


def newest_manifest(paths: Iterable[str]) -> int | None:
    """Return the highest number of the manifests among paths relative to the place; None without any."""
    return max((number for path in paths if (number := manifest_number(path)) is not None), default=None)


def encode_manifest(manifest: ShippedManifest) -> bytes:
    """Return the content of a manifest's object."""
    return msgspec.json.encode(manifest) + b"\n"


def parse_manifest(content: bytes, path: str) -> ShippedManifest:
    """Return a manifest; ``path`` is where it was read, for errors.

    Raises:
        RecordingError: it is not a manifest, has an unknown version, or its pieces do not make up what it says.
    """
    try:
        version = msgspec.json.decode(content, type=_Version).version
        if version != _VERSION:
            raise RecordingError(
                f"the manifest has version {version}, this release knows {_VERSION}: read it with the release that "
                "ships there",
                file=path,
            )
        manifest = msgspec.json.decode(content, type=ShippedManifest)
    except msgspec.DecodeError as error:
        raise RecordingError(f"it is not a manifest of a shipped place: {error}", file=path) from None
    if (fault := fault_of(manifest)) is not None:
        raise RecordingError(f"the manifest contradicts itself: {fault}", file=path)
    return manifest


def fault_of(manifest: ShippedManifest) -> str | None:
    """Return what a manifest contradicts itself in; None when its pieces make up what it says."""
    if (fault := _fault_of_values(manifest)) is not None:
        return fault
    end: int | None = None
    length, first = manifest.segment_length, manifest.log[0].position if manifest.log else 0
    for piece in manifest.log:
        if piece.recording_id != manifest.recording_id or piece.length <= 0:
            return f"{piece.path} is not a piece of the log"
        if end is not None and piece.position != end:
            return f"the log has a gap or an overlap before {piece.path}, at log position {end}"
        end = piece.end
        if (piece.position - first) // length != (end - 1 - first) // length:
            return f"{piece.path} lies in several segments of {length} bytes"
    if manifest.log and manifest.log[0].position > manifest.start_position:
        return f"the log begins at {manifest.log[0].position}, and is said to begin at {manifest.start_position}"
    if (manifest.start_position if end is None else end) != manifest.end_position:
        return f"the log ends at {end}, and is said to end at {manifest.end_position}"
    return None


def _fault_of_values(manifest: ShippedManifest) -> str | None:
    """The first name or number that no shipper writes: a path may not lead out of the place, where it is read and
    removed."""
    objects: list[ShippedObject | Retired] = [*manifest.metadata, *manifest.log, *manifest.snapshots, *manifest.retired]
    for one in objects:
        directory, *names = one.path.split("/")
        if directory not in OBJECT_DIRECTORIES or not names or not {"", ".", ".."}.isdisjoint(names):
            return f"{one.path!r} is not a path of an object in it"
    if not re.fullmatch(rf"{manifest.recording_id}@-?[0-9]+", manifest.recording, re.ASCII):
        return f"recording {manifest.recording_id} is said to be {manifest.recording!r}"
    if manifest.time_unit not in _TIME_UNITS:
        return f"{manifest.time_unit!r} is not a unit of time"
    length = manifest.segment_length
    if not 0 < length <= _SEGMENT_LENGTH_MAX or length & (length - 1):
        return f"a segment cannot have {length} bytes"
    numbers = [manifest.recording_id, manifest.start_position, manifest.end_position]
    for piece in (*manifest.log, *manifest.snapshots):
        numbers += [piece.recording_id, piece.position, piece.length, piece.end]
    if not all(0 <= number <= POSITION_MAX for number in numbers):
        return f"it has a position, a length or a recording id that is not between 0 and {POSITION_MAX}"
    if len({(piece.recording_id, piece.position) for piece in manifest.snapshots}) != len(manifest.snapshots):
        return "a part of a snapshot is there twice"
    return None


class _Version(msgspec.Struct):
    version: int
