"""Runs a service again over what a member recorded: the container's own agent, with the recording in place of a driver.

:func:`replay` yields what the service sends, its timers and the hashes of its state as rows, from the beginning of the
log or a recorded snapshot on. :func:`plan_replay` divides the log at its snapshots into segments that do not depend on
each other, and :func:`replay_segment` runs one of them, in any process that can read the member's files.

The service sees what it saw as a leader: every event of the log in its order, with the log's time. Only what is known
to be committed is replayed. Upstream: ClusteredServiceAgent.java, of which the container's agent keeps the rules.
"""

from __future__ import annotations

import logging
import struct
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from container.api import Role
from container.codecs.messages import decode, encode
from container.common import aeron_defaults
from container.common.error_texts import message_of
from container.common.object_path import load_object
from container.common.values import shown
from container.errors import AgentTermination, Category, ConfigurationError, ContainerError, RecordingError
from container.files.catalog import RecordingDescriptor
from container.files.directories import Directory
from container.recordings.arrow import import_pyarrow
from container.recordings.commit import end_texts
from container.recordings.member import PERMISSIVE, STRICT, Member, open_member, tolerates
from container.recordings.record_batches import BATCH_ROWS
from container.recordings.recording_ends import RecordingEnds
from container.recordings.remote import check_objects, checked
from container.recordings.snapshot_decoder import SnapshotDecoder
from container.recordings.views import Column, schema_of
from container.replay import transport
from container.service.agent_context import AgentContext
from container.service.service_agent import ServiceAgent
from container.service.service_handler import PythonServiceHandler, ServiceHandler
from container.settings.callback_errors import SKIP
from container.transport.duration_tracker import DurationTracker
from container.transport.idle_strategy import NoOpIdleStrategy

if TYPE_CHECKING:
    import pyarrow as pa

type ServiceSource = str | Callable[[], object]
"""A maker of a service: ``package.module:Name``, a class, or any callable without arguments."""

REPLAY_COLUMNS = (
    Column(
        "kind",
        "string",
        "EGRESS, SERVICE_MESSAGE, SCHEDULE_TIMER, CANCEL_TIMER, CLOSE_SESSION, STATE_HASH, ERROR or WARNING.",
    ),
    Column("log_position", "int64", "End in the log of the message that the service was called with."),
    Column("sequence", "int32", "Counts the rows of that message from 0, in the order in which the service made them."),
    Column("timestamp", "int64", "Cluster time of that message, in the cluster's time unit."),
    Column("cluster_session_id", "int64", "The client that an EGRESS goes to, or that CLOSE_SESSION asks to close."),
    Column("correlation_id", "int64", "The timer's id, chosen by the service."),
    Column("deadline", "int64", "When a scheduled timer is due, in the cluster's time unit."),
    Column("payload", "binary", "Message of the service, to a client (EGRESS) or to the cluster (SERVICE_MESSAGE)."),
    Column("state_hash", "string", "SHA-256 of the snapshot that the service writes at this log position."),
    Column("recorded_state_hash", "string", "The same of the snapshot that is recorded there; null where none is."),
    Column("error", "string", "Error that the service raised or the container reported."),
)
"""The columns of a replay's rows."""
ERROR_KIND, WARNING_KIND, STATE_HASH_KIND = "ERROR", "WARNING", "STATE_HASH"

_log = logging.getLogger(__name__)
_KINDS_BY_NAME = {column.name: column.type for column in REPLAY_COLUMNS}
_NULL_VALUE = -1
_MAX_POSITION = 2**63 - 1
_FRAGMENT_LIMIT = 256
# The default of a driver for IPC: what a service may send in one message of a snapshot follows from it.
_SNAPSHOT_TERM_LENGTH, _SNAPSHOT_MTU_LENGTH = 64 * 1024 * 1024, 1408
_RECOVERY_KEY = struct.Struct("<qqqii")
_MAX_SERVICE_ID = 9
_ACTION_SNAPSHOT = 2
_READ_END = 1
_MARK_END = 2


def replay_schema() -> pa.Schema:
    """Return the Arrow schema of a replay's rows; each field has its meaning in its metadata, under ``b"comment"``.

    Raises:
        ImportError: pyarrow is not installed.
    """
    return schema_of(REPLAY_COLUMNS)


@dataclass(frozen=True, slots=True)
class RecordedSnapshot:
    """A snapshot of a service in a member's archive."""

    descriptor: RecordingDescriptor
    """The descriptor of the snapshot's recording."""
    end_position: int
    """Where its recording ends."""
    log_position: int
    """The log position that it represents."""
    leadership_term_id: int
    """The id of the leadership term at that position."""
    timestamp: int
    """The cluster time at that position, in the cluster's time unit."""


@dataclass(frozen=True, slots=True)
class ReplaySegment:
    """A part of the log that can be replayed by itself, anywhere where the member's files can be read."""

    member: Member
    """The member whose log is replayed."""
    service_id: int
    """The id of the service whose snapshots are used."""
    descriptor: RecordingDescriptor
    """Descriptor of the log."""
    begin_position: int
    """The log position at which the segment begins."""
    end_position: int
    """The log position at which the segment ends."""
    committed_position: int
    """Up to where the log was known to be committed when the plan was made."""
    begin_snapshot: RecordedSnapshot | None
    """The snapshot from which the service starts; ``None`` at the beginning of the log."""
    snapshots: tuple[RecordedSnapshot, ...] = ()
    """Those behind the beginning, with which the service's state can be compared."""
    hash_positions: tuple[int, ...] = ()
    """Where, besides the end and the log's own snapshots, the state is hashed."""


@dataclass(frozen=True, slots=True)
class TakenSnapshot:
    """A snapshot that a service took in a replay."""

    log_position: int
    """The log position that it represents."""
    leadership_term_id: int
    """The id of the leadership term at that position."""
    timestamp: int
    """The cluster time at that position, in the cluster's time unit."""
    messages: tuple[bytes, ...]
    """All of it: markers, sessions, and the service's own messages behind the end marker."""

    @property
    def state(self) -> tuple[bytes, ...]:
        """The service's own messages."""
        for index, message in enumerate(self.messages):
            name, fields = decode("cluster", message)
            if name == "SnapshotMarker" and fields["mark"] == _MARK_END:
                return self.messages[index + 1 :]
        return ()


def recorded_snapshots(member: Member, service_id: int = 0) -> list[RecordedSnapshot]:
    """Return the valid snapshots of a service that the member's archive has, by log position.

    Raises:
        RecordingError: the catalog or the recording log is damaged.
    """
    descriptors = {descriptor.recording_id: descriptor for descriptor in member.recordings()}
    ends = RecordingEnds(member, descriptors)
    found = {}
    for entry in member.recording_log():
        descriptor = descriptors.get(entry.recording_id)
        if entry.is_snapshot and entry.is_valid and entry.service_id == service_id and descriptor is not None:
            end, position = ends.of(descriptor), entry.log_position
            found[position] = RecordedSnapshot(descriptor, end, position, entry.leadership_term_id, entry.timestamp)
    return [found[position] for position in sorted(found)]


def plan_replay(
    member: Member,
    *,
    service_id: int = 0,
    begin_position: int | None = None,
    end_position: int | None = None,
    hash_positions: Sequence[int] = (),
    is_continuous: bool = False,
) -> list[ReplaySegment]:
    """Divide a member's log into segments between its recorded snapshots, in the order of the log.

    Args:
        member: whose recordings are replayed.
        service_id: whose snapshots to begin from and to compare with.
        begin_position: 0 for the beginning of the log, or the log position of a recorded snapshot; by default the
            earliest of these that there is.
        end_position: up to where, in log positions; by default as far as the log is committed. A warning gives both
            positions where more is recorded than is known to be committed, or less than its recording log shows.
        hash_positions: log positions at which the service's state is hashed, besides those of the snapshots and the
            end.
        is_continuous: make one segment of all, which begins from the first snapshot only.

    Raises:
        ConfigurationError: a position is out of range, or there is no snapshot at ``begin_position``.
        RecordingError: the log is not known, or the catalog or recording log is damaged.
    """
    if not 0 <= service_id <= _MAX_SERVICE_ID:
        raise ConfigurationError(f"service_id={service_id}: must be from 0 to {_MAX_SERVICE_ID}")
    log = member.log()
    descriptor, log_range = log.descriptor, log.log_range
    committed = log_range.committed_position
    end = committed if end_position is None else end_position
    if end_position is None:
        for text in end_texts(member, log).values():
            _log.warning("%s", text)
    snapshots = recorded_snapshots(member, service_id)
    starts = {one.log_position: one for one in snapshots if log_range.start_position <= one.log_position <= committed}
    begins = sorted(starts) if log_range.start_position > 0 else sorted({0, *starts})
    if not begins:
        raise ConfigurationError(
            f"the log of {member.path} begins at {log_range.start_position} and service {service_id} has no snapshot "
            "behind that: there is nothing that a replay could begin from"
        )
    begin = begins[0] if begin_position is None else begin_position
    if begin not in begins:
        raise ConfigurationError(
            f"begin_position={begin}: a replay can begin at {', '.join(map(str, begins))}, where the log begins or a "
            f"snapshot of service {service_id} is recorded"
        )
    if not begin <= end <= committed:
        raise ConfigurationError(
            f"end_position={end}: must be from begin_position={begin} to {committed}, up to where the log is known to "
            "be committed"
        )
    outside = [position for position in hash_positions if not begin < position <= end]
    if outside:
        raise ConfigurationError(f"hash_positions: {outside[0]} is not behind {begin} and up to {end}")
    places, hashes = [one.log_position for one in snapshots], sorted(set(hash_positions))
    cuts = [begin] if is_continuous else [position for position in begins if begin <= position < end] or [begin]
    return [
        ReplaySegment(
            member,
            service_id,
            descriptor,
            lower,
            upper,
            committed,
            starts.get(lower),
            tuple(snapshots[bisect_right(places, lower) : bisect_right(places, upper)]),
            tuple(hashes[bisect_right(hashes, lower) : bisect_right(hashes, upper)]),
        )
        for lower, upper in pairwise([*cuts, end])
    ]


def replay(
    path: str | Path | Member,
    service: ServiceSource,
    *,
    archive_dir: str | Path | None = None,
    recording_id: int | None = None,
    committed: str | int | None = None,
    mode: str = STRICT,
    batch_rows: int = BATCH_ROWS,
    report_progress: Callable[[int], object] | None = None,
    **plan: Any,
) -> Iterator[pa.RecordBatch]:
    """Run a service over a member's log without a break, and yield what it does as rows in the order of the log.

    Args:
        path: of the member, with ``archive_dir``, ``recording_id`` and ``committed`` as
            :func:`~container.recordings.open_member` takes them; or a member that is open.
        service: as :func:`replay_segment` takes it, with ``mode``, ``batch_rows`` and ``report_progress``.
        plan: the other arguments of :func:`plan_replay`, such as ``begin_position``.

    Raises:
        as those do.
    """
    member = path
    if not isinstance(member, Member):
        member = open_member(member, archive_dir=archive_dir, recording_id=recording_id, committed=committed)
    for segment in plan_replay(member, is_continuous=True, **plan):
        yield from replay_segment(segment, service, mode=mode, batch_rows=batch_rows, report_progress=report_progress)


def end_of_log(path: str | Path, *, committed: str | int | None = None) -> int:
    """Return up to which log position a member's log is committed now; with the arguments of ``open_member``.

    Raises:
        as :func:`~container.recordings.open_member` does; RecordingError: the log is not known, or damaged.
    """
    return open_member(path, committed=committed).log().log_range.committed_position


def plan_of_all(
    path: str | Path, *, service_id: int, end_position: int, committed: str | int | None = None
) -> tuple[ReplaySegment, ReplaySegment | None]:
    """Return one segment from the beginning up to a log position, and one from the latest snapshot before that; None if
    the first begins there.

    Raises:
        as :func:`~container.recordings.open_member` and :func:`plan_replay` do.
    """
    member = open_member(path, committed=committed)
    (whole,) = plan_replay(member, service_id=service_id, end_position=end_position, is_continuous=True)
    latest = max((each.log_position for each in whole.snapshots), default=whole.begin_position)
    if latest == whole.begin_position:
        return whole, None
    (last,) = plan_replay(
        member, service_id=service_id, begin_position=latest, end_position=end_position, is_continuous=True
    )
    return whole, last


def find_service(source: ServiceSource) -> Callable[[], object]:
    """Return the function that makes a service.

    Raises:
        ConfigurationError: it cannot be found, or is an instance, which cannot start again with a fresh state.
    """
    make: Callable[[], object] = load_object(source, "service") if isinstance(source, str) else source
    if not callable(make):
        raise ConfigurationError(
            f"service={shown(source)}: must be a class or a function that makes one, not a service"
        )
    return make


def make_service(source: ServiceSource) -> object:
    """Return a new service.

    Raises:
        ConfigurationError: it cannot be found or made, or is an instance, which cannot start again with a fresh state.
    """
    make = find_service(source)
    try:
        service: object = make()
    except Exception as error:
        raise ConfigurationError(f"service={shown(source)} cannot be made: {_text_of(error)}") from error
    return service


def replay_segment(
    segment: ReplaySegment,
    service: ServiceSource,
    *,
    mode: str = STRICT,
    batch_rows: int = BATCH_ROWS,
    report_progress: Callable[[int], object] | None = None,
    on_snapshot: Callable[[TakenSnapshot], object] | None = None,
    on_error: Callable[[BaseException], object] | None = None,
) -> Generator[pa.RecordBatch, None, None]:
    """Run a service over one segment and yield what it does as rows, in the order of the log.

    The service is the leader's, and its role never changes; its background work is called as well. Consume the iterator
    on one thread.

    Args:
        segment: a segment of :func:`plan_replay`.
        service: a class, a function without arguments, or ``package.module:Name`` of either.
        mode: the effect of an exception of the service, once it is a row with its log position: ``strict`` ends the
            segment, ``permissive`` continues behind the message, as the container does. A service that cannot start, or
            ends itself, ends the segment in either mode.
        batch_rows: maximum number of rows in a batch; it also ends at 16 MiB of payload.
        report_progress: called with the log position after each duty cycle, some tens of messages.
        on_snapshot: called with each snapshot that the service takes; its row then ends a batch.
        on_error: called with each exception that becomes an ERROR row, while it still has its traceback.

    Raises:
        ConfigurationError: the mode is unknown, or the service cannot be made.
        RecordingUnavailableError: a file cannot be opened or read.
        RecordingError: the recordings are damaged; in mode permissive that is the last row instead.
    """
    if mode not in (STRICT, PERMISSIVE):
        raise ConfigurationError(f"mode={mode!r} is unknown, use one of {STRICT}, {PERMISSIVE}")
    run = _Run(segment, make_service(service), mode, batch_rows, report_progress, on_snapshot, on_error=on_error)
    try:
        yield from run.batches()
    finally:
        run.close()


def load_state(
    segment: ReplaySegment, service: ServiceSource, snapshot: TakenSnapshot | RecordedSnapshot
) -> tuple[bytes, ...]:
    """Have a new service start from a snapshot, take one of its own immediately, and return the state in that.

    The snapshot is one of ``segment``, or one that any service took in a replay of it.

    Raises:
        RecordingError: the recording of the snapshot is damaged.
        ContainerError: the service cannot load the snapshot; the text has what it raised.
    """
    position = snapshot.log_position
    here = replace(segment, begin_position=position, end_position=position, hash_positions=())
    taken: list[TakenSnapshot] = []
    run = _Run(here, make_service(service), STRICT, BATCH_ROWS, None, taken.append, snapshot)
    try:
        rows = [row for batch in run.batches() for row in batch.to_pylist()]
    finally:
        run.close()
    if not taken:
        errors = [row["error"] for row in rows if row["kind"] == ERROR_KIND]
        raise ContainerError(errors[0] if errors else "it took no snapshot")
    return taken[0].state


class _Run:
    """One agent over one segment."""

    def __init__(
        self,
        segment: ReplaySegment,
        service: Any,
        mode: str,
        batch_rows: int,
        report_progress: Callable[[int], object] | None,
        on_snapshot: Callable[[TakenSnapshot], object] | None = None,
        start: TakenSnapshot | RecordedSnapshot | None = None,
        on_error: Callable[[BaseException], object] | None = None,
    ) -> None:
        self._segment = segment
        self._tell_error = on_error
        self._on_snapshot = on_snapshot
        self._report_progress = report_progress
        self._is_strict = mode == STRICT
        self._is_ended = False
        self._damage: RecordingError | None = None
        self._schema = replay_schema()
        self._arrow = import_pyarrow()
        self._rows = transport.ReplayRows(_KINDS_BY_NAME, batch_rows)
        archive_dir = checked(segment.member.archive, segment.committed_position)
        self._log = transport.ReplayImage(
            archive_dir,
            segment.descriptor.layout(),
            begin=segment.begin_position,
            end=segment.committed_position,
            is_log=True,
        )
        begin = start or segment.begin_snapshot
        self._state: transport.ReplayImage | transport.MessagesImage | None = None
        if isinstance(begin, TakenSnapshot):
            self._state = transport.MessagesImage(begin.messages)
        elif begin is not None:
            first = begin.descriptor.start_position
            layout = begin.descriptor.layout()
            archive_dir = checked(segment.member.archive)
            self._state = transport.ReplayImage(archive_dir, layout, begin=first, end=begin.end_position, is_log=False)
        recovery_key = _recovery_key(segment, begin)
        self._client = transport.ReplayClient(self._rows, self._log, _join_log(segment), recovery_key, 0)
        handler = service if isinstance(service, ServiceHandler) else PythonServiceHandler(service)
        self._agent = ServiceAgent(self._context(handler))
        self._rows.begin(self._agent.cluster)

    def _context(self, handler: ServiceHandler) -> AgentContext:
        service_id = self._segment.service_id
        return AgentContext(
            client=self._client,
            clock=self._client.clock,
            service_handler=handler,
            idle_strategy=NoOpIdleStrategy(),
            mark_file=transport.ReplayMarkFile(),
            snapshot_store=transport.ReplaySnapshotStore(
                self._rows, self._recorded, self._state, None if self._on_snapshot is None else self._on_taken
            ),
            on_error=self._on_error,
            record_event=self._on_error,
            callback_error_policy=SKIP,
            service_id=service_id,
            service_name=f"replay-{service_id}",
            # Where a batch of messages ends depends on when a log is polled: here each has one, and so its position.
            log_fragment_limit=1 if transport.takes_batches(handler) else _FRAGMENT_LIMIT,
            app_version_validator=lambda _own, _logged: True,
            duty_cycle_tracker=self._tracker(),
            snapshot_duration_tracker=self._tracker(),
        )

    def _tracker(self) -> DurationTracker:
        return DurationTracker(self._client.new_counter(), self._client.new_counter(), _MAX_POSITION)

    def _recorded(self, log_position: int) -> tuple[int, int, str | None]:
        """How large a message of the snapshot at a position may be, and the hash of the one that is recorded there."""
        segment = self._segment
        known = segment.begin_snapshot
        for one in segment.snapshots:
            if one.log_position == log_position:
                layout = one.descriptor
                archive = checked(segment.member.archive)
                return layout.term_buffer_length, layout.mtu_length, _recorded_hash(archive, one)
            known = known or one
        if known is None:
            return _SNAPSHOT_TERM_LENGTH, _SNAPSHOT_MTU_LENGTH, None
        return known.descriptor.term_buffer_length, known.descriptor.mtu_length, None

    def _on_taken(self, messages: list[bytes]) -> None:
        cluster, (_, marker) = self._agent.cluster, decode("cluster", messages[0])
        assert self._on_snapshot is not None
        self._on_snapshot(
            TakenSnapshot(cluster.log_position, marker["leadership_term_id"], cluster.time, tuple(messages))
        )

    def _on_error(self, error: BaseException) -> None:
        if isinstance(error, RecordingError):
            self._damage = self._damage or error
        else:
            self._put_error(error)

    def _put_error(self, error: BaseException) -> None:
        is_warning = getattr(error, "category", None) is Category.WARN
        if self._tell_error is not None and not is_warning:
            self._tell_error(error)
        text = _text_of(error)
        if error.__cause__ is not None:
            text += f" ({_text_of(error.__cause__)})"
        self._rows.put_error(WARNING_KIND if is_warning else ERROR_KIND, text)
        self._is_ended |= self._is_strict and not is_warning

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the service's actions from the beginning to the end."""
        segment = self._segment
        try:
            self._agent.on_start()
        except AgentTermination as error:
            cause = _cause_of(error)
            if isinstance(cause, RecordingError):
                yield from self._damaged(cause)
            else:
                self._on_error(cause)
            self._is_ended = True
        for position in sorted({*segment.hash_positions, segment.end_position}):
            self._client.commit(position)
            yield from self._advance()
            if not self._is_ended and self._rows.hash_position != position:
                self._log.inject(_snapshot_request(position, self._agent.cluster.time), position)
                yield from self._advance()
        try:
            self._check_what_was_read()
        except RecordingError as error:
            yield from self._damaged(error)
        yield from self._taken(is_end=True)

    def _check_what_was_read(self) -> None:
        """Raise RecordingUnavailableError when an object of a shipped place is not what was shipped."""
        segment, archive = self._segment, self._segment.member.archive
        check_objects(archive, segment.descriptor.recording_id, segment.begin_position, segment.committed_position)
        for one in (segment.begin_snapshot, *segment.snapshots):
            if one is not None:
                check_objects(archive, one.descriptor.recording_id, one.descriptor.start_position, one.end_position)

    def _advance(self) -> Iterator[pa.RecordBatch]:
        """Duty cycles of the agent, until it has all that it may have."""
        while not (self._is_ended or self._log.is_drained):
            hashed = self._rows.hash_position
            self._client.clock.advance()
            try:
                self._agent.do_work()
            except AgentTermination as error:
                _cause_of(error)
                self._on_error(error)
                self._is_ended = True
            except Exception as error:
                self._on_error(error)
            if self._damage is not None:
                yield from self._damaged(self._damage)
            if self._report_progress is not None:
                self._report_progress(self._agent.cluster.log_position)
            # So that of two services that are compared neither is more than a snapshot ahead.
            yield from self._taken(is_end=self._on_snapshot is not None and self._rows.hash_position != hashed)

    def _damaged(self, error: RecordingError) -> Iterator[pa.RecordBatch]:
        try:
            self._check_what_was_read()
        except RecordingError as changed:
            error = changed
        if self._is_strict or not tolerates(PERMISSIVE, error):
            yield from self._taken(is_end=True)
            raise error
        self._put_error(error)
        self._is_ended = True

    def _taken(self, is_end: bool = False) -> Iterator[pa.RecordBatch]:
        for _, arrays in self._rows.take(is_end):
            columns = [arrays[column.name] for column in REPLAY_COLUMNS]
            yield self._arrow.RecordBatch.from_arrays(columns, schema=self._schema)

    def close(self) -> None:
        """End the service, and close the files; messages that it still sends become no rows."""
        self._rows.close()
        try:
            self._agent.close()
        finally:
            self._log.close()
            if self._state is not None:
                self._state.close()


def _cause_of(end: AgentTermination) -> BaseException:
    """The error that has ended an agent. Ctrl-C is the user's and not a fault of the service: it is raised."""
    if isinstance(end.__cause__, KeyboardInterrupt):
        raise end.__cause__ from None
    return end.__cause__ or end


def _text_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {message_of(error)}"


def _recorded_hash(archive_dir: Directory, snapshot: RecordedSnapshot) -> str:
    """The hash of the state in a recorded snapshot."""
    decoder = SnapshotDecoder(
        archive_dir,
        snapshot.descriptor.layout(),
        {"item": "string", "payload": "binary"},
        batch_rows=BATCH_ROWS,
        end=snapshot.end_position,
        is_consensus_module=False,
        log_position=snapshot.log_position,
    )
    state_hash, result = transport.StateHash(), 0
    try:
        while result != _READ_END:
            result = decoder.decode_items()
            if result < 0:
                raise decoder.failure_error()
            columns = decoder.take()
            for item, payload in zip(columns["item"], columns["payload"], strict=True):
                if item.as_py() == "SERVICE_DATA":
                    state_hash.update(payload.as_py())
    finally:
        decoder.close()
    return state_hash.hexdigest()


def _recovery_key(segment: ReplaySegment, snapshot: RecordedSnapshot | TakenSnapshot | None) -> bytes:
    """The key of the counter in which a consensus module says where a service begins."""
    service_count = segment.service_id + 1
    if snapshot is None:
        fields = (_NULL_VALUE, segment.begin_position, 0)
    else:
        fields = (snapshot.leadership_term_id, snapshot.log_position, snapshot.timestamp)
    return _RECOVERY_KEY.pack(*fields, 0, service_count) + bytes(8 * service_count)


def _join_log(segment: ReplaySegment) -> bytes:
    return encode(
        "cluster",
        "JoinLog",
        log_position=segment.begin_position,
        max_log_position=_MAX_POSITION,
        member_id=segment.member.member_id or 0,
        log_session_id=0,
        log_stream_id=aeron_defaults.LOG_STREAM_ID,
        is_startup=0,
        role=Role.LEADER,
        is_standby=0,
        log_channel="aeron:ipc",
    )


def _snapshot_request(position: int, timestamp: int) -> bytes:
    """The message of the log that has services take a snapshot."""
    return encode(
        "cluster",
        "ClusterActionRequest",
        leadership_term_id=0,
        log_position=position,
        timestamp=timestamp,
        action=_ACTION_SNAPSHOT,
        flags=0,
    )
