"""Decides what shipping copies: from what the member has and what the place has, without looking at either itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs

from container.errors import ConfigurationError, ContainerError, RecordingUnavailableError
from container.files.catalog import RecordingDescriptor
from container.files.segments import segment_file_name, segment_position
from container.recordings.identity import LogIdentity
from container.recordings.shipped import (
    ARCHIVE_DIRECTORY,
    METADATA_DIRECTORY,
    TAIL_DIRECTORY,
    Piece,
    Retired,
    ShippedManifest,
    ShippedObject,
    ShippedTerm,
    manifest_number,
)

RETIRED_FOR_MS = 3_600_000
"""How long an object stays that no manifest names any more: readers may be at it."""
MANIFESTS_KEPT = 10


@dataclass(frozen=True, slots=True)
class SnapshotFiles:
    """A recording of a snapshot that has ended, and where its segment files begin that are there."""

    descriptor: RecordingDescriptor
    segment_positions: Sequence[int]


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """The facts of a member at one moment."""

    cluster_id: int | None
    member_id: int | None
    time_unit: str | None
    descriptor: RecordingDescriptor
    """Descriptor of the log."""
    identity: LogIdentity
    segment_positions: Sequence[int]
    """Where the log's segment files begin that are there."""
    committed_position: int
    unknown_length: int
    """How much is recorded behind it, of which nothing shows that it is committed."""
    terms: Sequence[ShippedTerm]
    snapshots: Sequence[SnapshotFiles]
    """Files of the valid snapshots of the recording log."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A piece to copy into the place: bytes of one of the archive's files."""

    path: str
    recording_id: int
    position: int
    length: int
    file_name: str
    offset: int
    """Offset of its first byte in the file."""
    sha256: str | None = None
    """The hash in the manifest, where the object was lost."""

    @property
    def end(self) -> int:
        """The position behind its last byte."""
        return self.position + self.length

    def piece(self, sha256: str) -> Piece:
        """Its entry for a manifest."""
        return Piece(
            path=self.path,
            length=self.length,
            sha256=sha256,
            recording_id=self.recording_id,
            position=self.position,
        )


def check_same_member(place: str, manifest: ShippedManifest, source: SourceFacts) -> None:
    """Raise ConfigurationError unless the place is of this member and of this history of its log."""
    ours, theirs = (_member_name(one.cluster_id, one.member_id) for one in (source, manifest))
    pairs = ((source.cluster_id, manifest.cluster_id), (source.member_id, manifest.member_id))
    if any(None not in pair and pair[0] != pair[1] for pair in pairs):
        raise ConfigurationError(f"{place} is of {theirs}, this is {ours}: give each member a place of its own")
    there = LogIdentity(manifest.recording, manifest.first_term)
    is_other_term = None not in (there.first_term, source.identity.first_term) and (
        there.first_term != source.identity.first_term
    )
    if there.recording != source.identity.recording or is_other_term:
        raise ConfigurationError(
            f"{place} has another log of {theirs}: {there}; the member now has {source.identity}. It was wiped or "
            "replaced: give the new log a new place"
        )
    if manifest.segment_length != source.descriptor.segment_file_length:
        raise ConfigurationError(
            f"{place} has segments of {manifest.segment_length} bytes, the member's log has "
            f"{source.descriptor.segment_file_length}: give it a new place"
        )
    bases = {term.leadership_term_id: term.term_base_log_position for term in source.terms}
    for term in manifest.terms:
        base = bases.get(term.leadership_term_id, term.term_base_log_position)
        if base != term.term_base_log_position:
            raise ConfigurationError(
                f"{place} has leadership term {term.leadership_term_id} from log position "
                f"{term.term_base_log_position} on, the member now has it from {base} on: these are two histories. "
                "Was the member restored from a backup? Give it a new place"
            )


def _member_name(cluster_id: int | None, member_id: int | None) -> str:
    """How errors name a member."""
    member = "a member without id" if member_id is None else f"member {member_id}"
    return member if cluster_id is None else f"{member} of cluster {cluster_id}"


def plan_copies(
    place: str, manifest: ShippedManifest | None, source: SourceFacts, lengths: Mapping[str, int]
) -> list[Copy]:
    """Return what is missing in the place, in an order in which each prefix makes up a valid manifest.

    Args:
        place: its name, for errors.
        manifest: its newest one; None for a place that is new.
        source: what the member has.
        lengths: of all objects in the place, by path.

    Raises:
        ConfigurationError: the member has removed log that the place does not have.
        ContainerError: the place has lost an object that the member does not have any more.
    """
    copies = [] if manifest is None else list(_lost(place, manifest, source, lengths))
    copies += _segments(place, manifest, source)
    copies += _snapshots(manifest, source)
    tail = _tail(manifest, source, [copy for copy in copies if copy.recording_id == source.descriptor.recording_id])
    return copies if tail is None else [*copies, tail]


def _lost(place: str, manifest: ShippedManifest, source: SourceFacts, lengths: Mapping[str, int]) -> Iterator[Copy]:
    """Pieces that the manifest names and the place lacks, or has with another length."""
    wanted = {files.descriptor.recording_id: files for files in source.snapshots}
    log = SnapshotFiles(source.descriptor, source.segment_positions)
    for piece in [*manifest.log, *manifest.snapshots]:
        found = lengths.get(piece.path)
        if found == piece.length:
            continue
        files = log if piece.recording_id == manifest.recording_id else wanted.get(piece.recording_id)
        base = None if files is None else _base(files.descriptor, piece.position)
        if files is not None and base in files.segment_positions:
            yield _copy(piece.path, files.descriptor, piece.position, piece.end, piece.sha256)
        elif files is not None:
            state = "is missing" if found is None else f"has {found} bytes"
            raise ContainerError(
                f"{place}/{piece.path} {state}, its manifest says {piece.length}, and the member does not have it any "
                "more: bring the object back (another version of it, a backup), or begin a new place"
            )


def _base(descriptor: RecordingDescriptor, position: int) -> int:
    return segment_position(
        descriptor.start_position, position, descriptor.term_buffer_length, descriptor.segment_file_length
    )


def _copy(path: str, descriptor: RecordingDescriptor, begin: int, end: int, sha256: str | None = None) -> Copy:
    base = _base(descriptor, begin)
    name = segment_file_name(descriptor.recording_id, base)
    return Copy(path, descriptor.recording_id, begin, end - begin, name, begin - base, sha256)


def copy_of(piece: Piece, source: SourceFacts) -> Copy | None:
    """Where the member has a piece of the log; None where its file is not there any more."""
    copy = _copy(piece.path, source.descriptor, piece.position, piece.end, piece.sha256)
    return copy if piece.position - copy.offset in source.segment_positions else None


def archive_path(recording_id: int, position: int) -> str:
    """Where a segment file is."""
    return f"{ARCHIVE_DIRECTORY}/{segment_file_name(recording_id, position)}"


def tail_path(recording_id: int, begin: int, end: int) -> str:
    """Where a stretch of the segment is that is not full."""
    return f"{TAIL_DIRECTORY}/{recording_id}-{begin}-{end}.rec"


def _segments(place: str, manifest: ShippedManifest | None, source: SourceFacts) -> Iterator[Copy]:
    """The log's closed segments that the place has not as a whole, from the one on where it ends."""
    descriptor, length = source.descriptor, source.descriptor.segment_file_length
    start, here = descriptor.start_position, set(source.segment_positions)
    end = start if manifest is None else manifest.end_position
    if end >= source.committed_position:
        return
    if end < start:
        raise ConfigurationError(
            f"{place} ends at log position {end}, and the member's log begins at {start}: it has removed what lies "
            "between. Ship from another member into a place of its own, or begin a new place with this one"
        )
    base = _base(descriptor, end)
    while base < source.committed_position:
        if base not in here:
            raise RecordingUnavailableError(
                f"the segment file is not there, and the log is committed to {source.committed_position}",
                file=segment_file_name(descriptor.recording_id, base),
                log_position=base,
            )
        if base + length <= source.committed_position:
            yield _copy(archive_path(descriptor.recording_id, base), descriptor, base, base + length)
        base += length


def _tail(manifest: ShippedManifest | None, source: SourceFacts, segments: Sequence[Copy]) -> Copy | None:
    """The committed part of the last segment, which is not full, from where the place ends.

    Stretches before it that are no longer than it are copied again with it, as one: so there are few at any time, and
    each byte is copied a few times only, however often this looks.
    """
    descriptor = source.descriptor
    end = source.committed_position
    base = _base(descriptor, max(end, descriptor.start_position))
    shipped = descriptor.start_position if manifest is None else manifest.end_position
    if end <= max(shipped, descriptor.start_position):
        return None
    ends = [base, *(copy.end for copy in segments)]
    # Readers want a segment from its first byte on, also where the log begins behind it. Older releases left that out.
    if manifest is not None and manifest.log and manifest.log[0].position <= base:
        ends.append(shipped)
    begin = max(ends)
    if begin >= end:
        return None
    for piece in reversed([] if manifest is None else manifest.log):
        if piece.position < base or piece.end != begin or piece.length > end - begin:
            break
        begin = piece.position
    return _copy(tail_path(descriptor.recording_id, begin, end), descriptor, begin, end)


def _snapshots(manifest: ShippedManifest | None, source: SourceFacts) -> Iterator[Copy]:
    """Recordings of snapshots of which the place has none yet, where all their files are there."""
    known = set() if manifest is None else {piece.recording_id for piece in manifest.snapshots}
    for files in source.snapshots:
        descriptor = files.descriptor
        if descriptor.recording_id in known or descriptor.stop_position <= descriptor.start_position:
            continue
        first = _base(descriptor, descriptor.start_position)
        bases = range(first, descriptor.stop_position, descriptor.segment_file_length)
        if not set(bases) <= set(files.segment_positions):
            continue
        for base in bases:
            end = min(base + descriptor.segment_file_length, descriptor.stop_position)
            yield _copy(archive_path(descriptor.recording_id, base), descriptor, base, end)


def next_manifest(
    manifest: ShippedManifest | None,
    source: SourceFacts,
    pieces: Sequence[Piece],
    metadata: list[ShippedObject],
    now_ms: int,
) -> ShippedManifest:
    """Return the manifest that has the pieces as well; it retires what it does not name any more."""
    log = _merged([] if manifest is None else manifest.log, pieces, source.descriptor.recording_id)
    snapshots = _whole_snapshots([] if manifest is None else manifest.snapshots, pieces, source)
    start = source.descriptor.start_position if manifest is None else manifest.start_position
    end = log[-1].end if log else start
    terms = {} if manifest is None else {term.leadership_term_id: term for term in manifest.terms}
    terms |= {term.leadership_term_id: term for term in source.terms if term.term_base_log_position < end}
    fresh = ShippedManifest(
        cluster_id=source.cluster_id,
        member_id=source.member_id,
        time_unit=source.time_unit or (None if manifest is None else manifest.time_unit),
        recording_id=source.descriptor.recording_id,
        recording=source.identity.recording,
        first_term=source.identity.first_term or (None if manifest is None else manifest.first_term),
        start_position=start,
        end_position=end,
        segment_length=source.descriptor.segment_file_length,
        written_ms=now_ms,
        metadata=metadata,
        log=log,
        snapshots=snapshots,
        terms=[terms[term_id] for term_id in sorted(terms)],
    )
    named = names_of(fresh)
    before = [] if manifest is None else manifest.retired
    retired = {one.path: one for one in before if one.path not in named}
    if manifest is not None:
        for path in sorted(names_of(manifest) - named):
            retired.setdefault(path, Retired(path=path, since_ms=now_ms))
    return structs.replace(fresh, retired=list(retired.values()))


def _merged(old: Sequence[Piece], pieces: Sequence[Piece], recording_id: int) -> list[Piece]:
    """The log with new pieces in place of those that lie in them."""
    every = {(piece.position, -piece.end): piece for piece in [*old, *pieces] if piece.recording_id == recording_id}
    kept: list[Piece] = []
    for key in sorted(every):
        if not kept or every[key].end > kept[-1].end:
            kept.append(every[key])
    return kept


def _whole_snapshots(old: Sequence[Piece], pieces: Sequence[Piece], source: SourceFacts) -> list[Piece]:
    """Those that the member still has, and of new ones those that are complete."""
    wanted = {files.descriptor.recording_id: files.descriptor for files in source.snapshots}
    found: dict[tuple[int, int], Piece] = {}
    for piece in [*old, *pieces]:
        if piece.recording_id in wanted:
            found[piece.recording_id, piece.position] = piece
    ends: dict[int, int] = {}
    for piece in found.values():
        ends[piece.recording_id] = max(ends.get(piece.recording_id, 0), piece.end)
    return [found[key] for key in sorted(found) if ends[key[0]] == wanted[key[0]].stop_position]


def names_of(manifest: ShippedManifest) -> set[str]:
    """The paths of all objects that a manifest names."""
    return {one.path for one in [*manifest.metadata, *manifest.log, *manifest.snapshots]}


def orphans(number: int, manifest: ShippedManifest, source: SourceFacts, lengths: Mapping[str, int]) -> Iterator[str]:
    """The objects that no manifest names and nobody will need: what killed runs and lost races have left."""
    known = names_of(manifest) | {one.path for one in manifest.retired}
    wanted = {files.descriptor.recording_id for files in source.snapshots}
    for path in lengths:
        if path in known:
            continue
        directory, _, name = path.partition("/")
        parts = name.removesuffix(".rec").split("-")
        numbers = [int(part) for part in parts if part.isascii() and part.isdecimal()]
        is_ours = len(numbers) == len(parts)
        if directory == METADATA_DIRECTORY:
            if parts[0].isdecimal() and int(parts[0]) <= number:
                yield path
        elif directory == TAIL_DIRECTORY and is_ours and len(parts) == 3:
            if numbers[2] <= manifest.end_position:
                yield path
        elif (
            directory == ARCHIVE_DIRECTORY
            and is_ours
            and len(parts) == 2
            and numbers[0] != manifest.recording_id
            and numbers[0] not in wanted
        ):
            yield path


def old_manifests(number: int, lengths: Mapping[str, int]) -> list[str]:
    """The manifests that are too old to be of use, once that of this number is there."""
    return [
        path for path in lengths if (found := manifest_number(path)) is not None and found <= number - MANIFESTS_KEPT
    ]


def foreign_object(lengths: Mapping[str, int]) -> str | None:
    """Return an object that shows that a place without manifest is used for something else; None if it is free."""
    return next((path for path in sorted(lengths) if not path.startswith(f"{METADATA_DIRECTORY}/")), None)
