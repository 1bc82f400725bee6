"""Describes the latest snapshot of a member from its files: no archive and no media driver need to run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from container.codecs.messages import decode
from container.common.semantic_version import format_version
from container.errors import CodecError, RecordingError
from container.files.recording_log import RecordingLogEntry
from container.operate.answers import Answer, NoFactsError, named, text
from container.operate.facts import (
    ConsensusModuleSnapshot,
    PendingMessages,
    ServiceSnapshot,
    SnapshotSession,
    SnapshotTimer,
)
from container.operate.log_frames import RawMessage, read_messages
from container.operate.places import find_cluster_dir
from container.operate.recording_logs import latest_snapshot, read_log
from container.recordings.member import PERMISSIVE, open_member

_BEGIN, _END = 0, 2
_CONSENSUS_MODULE, _SERVICE = 1, 2
_TIME_UNITS = ("MILLIS", "MICROS", "NANOS")
_CLOSE_REASONS = ("CLIENT_ACTION", "SERVICE_ACTION", "TIMEOUT")
_NEEDED = {
    "SnapshotMarker": ("type_id", "mark"),
    "ClusterSession": ("cluster_session_id", "response_stream_id", "response_channel"),
    "ClientSession": ("cluster_session_id", "response_stream_id", "response_channel"),
    "Timer": ("correlation_id", "deadline"),
    "PendingMessageTracker": ("service_id", "next_service_session_id"),
}
"""The fields that a message of a snapshot must have."""
_BEFORE_FIRST_SESSION_ID = -(2**63)


def describe_consensus_module(path: Path) -> Answer:
    """Answer what the latest snapshot of a consensus module holds."""
    entry, messages = _latest(path, -1)
    marker: dict[str, Any] | None = None
    module: dict[str, Any] = {}
    sessions: list[SnapshotSession] = []
    timers: list[SnapshotTimer] = []
    trackers: list[dict[str, Any]] = []
    counts: list[int] = []
    for raw, name, fields in messages:
        if name == "SnapshotMarker":
            _check_marker(entry, fields, _CONSENSUS_MODULE, is_begun=marker is not None)
            if fields["mark"] == _END:
                return Answer(_module_snapshot(entry, raw, fields, module, sessions, timers, trackers, counts))
            marker = fields
        elif name == "ConsensusModule":
            module = fields
        elif name == "ClusterSession":
            sessions.append(_session(fields))
        elif name == "Timer":
            timers.append(SnapshotTimer(correlation_id=fields["correlation_id"], deadline=fields["deadline"]))
        elif name == "PendingMessageTracker":
            trackers.append(fields)
            counts.append(0)
        elif name == "SessionMessageHeader" and counts:
            counts[-1] += 1
    raise _is_cut(entry)


def _module_snapshot(
    entry: RecordingLogEntry,
    raw: RawMessage,
    marker: dict[str, Any],
    module: dict[str, Any],
    sessions: list[SnapshotSession],
    timers: list[SnapshotTimer],
    trackers: list[dict[str, Any]],
    counts: list[int],
) -> ConsensusModuleSnapshot:
    return ConsensusModuleSnapshot(
        recording_id=entry.recording_id,
        log_position=entry.log_position,
        leadership_term_id=entry.leadership_term_id,
        length=raw.log_position,
        time_unit=_time_unit(marker),
        app_version=_app_version(marker),
        next_session_id=module.get("next_session_id"),
        next_service_session_id=module.get("next_service_session_id"),
        log_service_session_id=_session_id(module.get("log_service_session_id")),
        pending_message_capacity=module.get("pending_message_capacity") or 0,
        sessions=sessions,
        timers=timers,
        pending=[
            PendingMessages(
                service_id=each["service_id"],
                next_service_session_id=each["next_service_session_id"],
                log_service_session_id=_session_id(each.get("log_service_session_id")),
                pending_message_capacity=each.get("pending_message_capacity") or 0,
                message_count=count,
            )
            for each, count in zip(trackers, counts, strict=True)
        ],
    )


def describe_service(path: Path, service_id: int) -> Answer:
    """Answer what the latest snapshot of a service holds; its own state is opaque, and is measured alone."""
    entry, messages = _latest(path, service_id)
    marker: dict[str, Any] | None = None
    sessions: list[SnapshotSession] = []
    count = length = 0
    is_whole = False
    for raw, name, fields in messages:
        if is_whole:
            count += 1
            length += len(raw.data)
        elif name == "SnapshotMarker":
            _check_marker(entry, fields, _SERVICE, is_begun=marker is not None)
            is_whole = fields["mark"] == _END
            marker = fields
        elif name == "ClientSession":
            sessions.append(_session(fields))
    if not is_whole or marker is None:
        raise _is_cut(entry)
    return Answer(
        ServiceSnapshot(
            service_id=service_id,
            recording_id=entry.recording_id,
            log_position=entry.log_position,
            leadership_term_id=entry.leadership_term_id,
            time_unit=_time_unit(marker),
            app_version=_app_version(marker),
            sessions=sessions,
            state_message_count=count,
            state_length=length,
        )
    )


def _latest(path: Path, service_id: int) -> tuple[RecordingLogEntry, Iterator[tuple[RawMessage, str, dict[str, Any]]]]:
    cluster_dir = find_cluster_dir(path)
    snapshot = latest_snapshot(read_log(cluster_dir))
    if not snapshot:
        raise NoFactsError(f"the member of {cluster_dir} has no valid snapshot")
    entry = next((each for each in snapshot if each.service_id == service_id), None)
    if entry is None:
        services = ", ".join(str(each.service_id) for each in snapshot[1:]) or "none"
        raise NoFactsError(f"the latest snapshot has none of service {service_id}, but of these services: {services}")
    return entry, _decoded(path, entry)


def _decoded(path: Path, entry: RecordingLogEntry) -> Iterator[tuple[RawMessage, str, dict[str, Any]]]:
    """The messages of a snapshot with their names and fields; what is not the cluster's has no name."""
    try:
        member = open_member(path)
        found = [each for each in member.recordings(PERMISSIVE) if each.recording_id == entry.recording_id]
        if not found:
            raise NoFactsError(f"the archive of {member.archive_dir} has no recording {entry.recording_id}")
        descriptor = found[0]
        end = member.recorded_position(descriptor)
        for raw in read_messages(Path(member.archive_dir), descriptor, descriptor.start_position, end):
            name, fields = "", dict[str, Any]()
            with suppress(CodecError):  # a service's own state, or of a later release
                name, fields = decode("cluster", raw.data)
            missing = [each for each in _NEEDED.get(name, ()) if fields.get(each) is None]
            if missing:
                raise NoFactsError(
                    f"the {name} at position {raw.begin_position} of recording {entry.recording_id} has no "
                    f"{', '.join(missing)}"
                )
            yield raw, name, fields
    except RecordingError as error:
        raise NoFactsError(str(error)) from error


def _check_marker(entry: RecordingLogEntry, fields: dict[str, Any], kind: int, *, is_begun: bool) -> None:
    if fields["type_id"] != kind:
        raise NoFactsError(f"recording {entry.recording_id} is a snapshot of type {fields['type_id']}, expected {kind}")
    if (fields["mark"] == _BEGIN) == is_begun:
        raise NoFactsError(
            f"the snapshot of recording {entry.recording_id} has no order: a marker is where none may be"
        )


def _is_cut(entry: RecordingLogEntry) -> NoFactsError:
    return NoFactsError(f"the snapshot of recording {entry.recording_id} ends before its end marker")


def _session(fields: dict[str, Any]) -> SnapshotSession:
    reason = fields.get("close_reason")
    principal = fields.get("encoded_principal")
    return SnapshotSession(
        cluster_session_id=fields["cluster_session_id"],
        correlation_id=fields.get("correlation_id"),
        opened_log_position=fields.get("opened_log_position"),
        close_reason=None if reason is None else named(_CLOSE_REASONS, reason),
        response_stream_id=fields["response_stream_id"],
        response_channel=text(fields["response_channel"]),
        principal=None if principal is None else bytes(principal).hex(),
    )


def _session_id(value: int | None) -> int:
    """The id of a service's message; that before the first one is what the schema has for null."""
    return _BEFORE_FIRST_SESSION_ID if value is None else value


def _time_unit(marker: dict[str, Any]) -> str | None:
    unit = marker.get("time_unit")
    return None if unit is None else named(_TIME_UNITS, unit)


def _app_version(marker: dict[str, Any]) -> str | None:
    version = marker.get("app_version")
    return None if version is None or version < 0 else format_version(version)
