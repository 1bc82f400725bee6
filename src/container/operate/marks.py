"""Reads the mark files of a node: who owns its directories, and whether they are alive."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path
from typing import Any

from container.codecs.messages import decode_as
from container.common.regular_files import open_regular, read_at
from container.common.semantic_version import format_version
from container.errors import CodecError, ContainerError
from container.files.cnc_file import MARK_FILE_ACTIVATING, MARK_FILE_LIVENESS_TIMEOUT_MS, MARK_FILE_TERMINATED
from container.files.error_log import ErrorRecord, read_error_log
from container.operate.answers import Answer, NoFactsError, known, text
from container.operate.facts import Description, MarkFile, NodeState
from container.operate.facts import Process as ProcessFacts
from container.operate.places import find_cluster_dir, mark_file_of, service_mark_files, unreadable
from container.operate.processes import process_state

_SBE_HEADER = struct.Struct("<HHHH")
_BLOCK_LENGTH, _TEMPLATE_ID, _SCHEMA_ID = 128, 200, 110
_COMPONENTS = ("UNKNOWN", "CONSENSUS_MODULE", "CONTAINER", "BACKUP", "STANDBY")
_SERVICE = "CONTAINER"
_NUMBERS = (
    *("version", "component_type", "activity_timestamp", "start_timestamp", "pid", "candidate_term_id"),
    *("archive_stream_id", "service_stream_id", "consensus_module_stream_id", "ingress_stream_id", "member_id"),
    *("service_id", "cluster_id", "header_length", "error_buffer_length"),
)
_HEADER_LENGTH_MAX = 64 * 1024
_ERRORS_LENGTH_MAX = 64 * 1024 * 1024


def now_ms() -> int:
    """Return the wall clock in epoch milliseconds."""
    return time.time_ns() // 1_000_000


def read_cluster_mark(cluster_dir: Path) -> MarkFile:
    """Read the mark file of the consensus module, or the backup, of a cluster directory.

    Raises:
        NoFactsError: there is none, it cannot be read, or it is not a mark file.
    """
    return read_mark(mark_file_of(cluster_dir))


def read_mark(path: Path) -> MarkFile:
    """Read a mark file.

    Raises:
        NoFactsError: there is none, it cannot be read, or it is not a mark file.
    """
    return _read(path)[0]


def read_mark_and_errors(path: Path) -> tuple[MarkFile, list[ErrorRecord]]:
    """Read a mark file and the error log in it.

    Raises:
        NoFactsError: there is none, it cannot be read, or it is not a mark file.
    """
    return _read(path)


def _read(path: Path) -> tuple[MarkFile, list[ErrorRecord]]:
    try:
        descriptor = open_regular(path)
        try:
            header = read_at(descriptor, 0, _HEADER_LENGTH_MAX)
            fields = _decoded(path, header)
            length = min(max(0, fields["error_buffer_length"]), _ERRORS_LENGTH_MAX)
            offset = fields["header_length"]
            errors = read_error_log(read_at(descriptor, offset, length)) if offset > 0 else []
        finally:
            os.close(descriptor)
    except FileNotFoundError as error:
        raise NoFactsError(f"{path} does not exist: nothing has been started with this directory") from error
    except OSError as error:
        raise unreadable(path, error) from error
    return _mark_file(path, fields, len(errors)), errors


def _decoded(path: Path, content: bytes) -> dict[str, Any]:
    """The fields of a mark file; those of old releases begin without a message header."""
    if len(content) < _SBE_HEADER.size:
        raise NoFactsError(f"{path} has {len(content)} bytes: it is not a mark file, or is just being made")
    if not content.strip(b"\0"):
        raise NoFactsError(f"{path} has nothing but zeros: it is just being made, or was not finished")
    _, template_id, schema_id, _ = _SBE_HEADER.unpack_from(content)
    if (template_id, schema_id) != (_TEMPLATE_ID, _SCHEMA_ID):
        content = _SBE_HEADER.pack(_BLOCK_LENGTH, _TEMPLATE_ID, _SCHEMA_ID, 0) + content
    try:
        fields = decode_as("mark", "MarkFileHeader", content)
    except CodecError as error:
        raise NoFactsError(f"{path} is not a mark file of a cluster: {error}") from error
    missing = [name for name in _NUMBERS if fields.get(name) is None]
    if missing:
        raise NoFactsError(f"{path} is not a mark file of a cluster: it has no {', '.join(missing)}")
    if fields["version"] >> 16 not in (0, -1):
        version = format_version(fields["version"])
        raise NoFactsError(f"{path} has version {version}, only 0.x is known: it is not a mark file, or a newer one")
    if not 0 <= fields["component_type"] < len(_COMPONENTS):
        raise NoFactsError(f"{path} is not a mark file of a cluster: it has component type {fields['component_type']}")
    return fields


def _mark_file(path: Path, fields: dict[str, Any], error_count: int) -> MarkFile:
    numbers = {name: value for name, value in fields.items() if isinstance(value, int)}
    texts = {name: text(value) for name, value in fields.items() if not isinstance(value, int)}
    component = _COMPONENTS[numbers["component_type"]]
    activity = numbers["activity_timestamp"]
    start = numbers["start_timestamp"]
    is_moment = 0 < activity < MARK_FILE_ACTIVATING
    return MarkFile(
        path=str(path),
        component=component,
        state=_state(numbers["version"], activity),
        version=format_version(numbers["version"]) if numbers["version"] >= 0 else str(numbers["version"]),
        activity_timestamp_ms=activity if is_moment else None,
        start_timestamp_ms=start,
        pid=numbers["pid"],
        process=process_state(numbers["pid"], start),
        candidate_term_id=known(numbers["candidate_term_id"]),
        archive_stream_id=numbers["archive_stream_id"],
        service_stream_id=numbers["service_stream_id"],
        consensus_module_stream_id=numbers["consensus_module_stream_id"],
        ingress_stream_id=known(numbers["ingress_stream_id"]),
        member_id=known(numbers["member_id"]),
        service_id=numbers["service_id"] if component == _SERVICE else None,
        cluster_id=numbers["cluster_id"],
        header_length=numbers["header_length"],
        error_buffer_length=numbers["error_buffer_length"],
        error_count=error_count,
        aeron_directory=texts["aeron_directory"],
        control_channel=texts["control_channel"],
        ingress_channel=texts["ingress_channel"],
        service_name=texts["service_name"],
        authenticator=texts["authenticator"],
        services_cluster_dir=texts.get("services_cluster_dir", ""),
    )


def _state(version: int, activity_ms: int) -> str:
    if version < 0:
        return "failed"
    return state_of(activity_ms) if version > 0 else "starting"


def state_of(activity_ms: int) -> str:
    """Return the state that an activity timestamp stands for."""
    if activity_ms in (MARK_FILE_ACTIVATING, 0):
        return "starting"
    if activity_ms == MARK_FILE_TERMINATED:
        return "stopped"
    return "running" if activity_ms + MARK_FILE_LIVENESS_TIMEOUT_MS > now_ms() else "dead"


def read_service_marks(mark: MarkFile, cluster_dir: Path, problems: list[str]) -> list[MarkFile]:
    """Read the mark files of a node's services; what cannot be read becomes a sentence in ``problems``."""
    found = []
    for path in service_paths(mark, cluster_dir, problems):
        try:
            found.append(read_mark(path))
        except NoFactsError as error:
            problems.append(str(error))
    return found


def service_paths(mark: MarkFile | None, cluster_dir: Path, problems: list[str]) -> list[Path]:
    """Return the paths of the mark files of a node's services."""
    elsewhere = "" if mark is None else mark.services_cluster_dir
    paths = []
    try:
        for path in service_mark_files(Path(elsewhere) if elsewhere else cluster_dir):
            paths.append(path)
    except NoFactsError as error:
        problems.append(str(error))
    return paths


def describe(path: Path) -> Answer:
    """Answer who owns a member's directory."""
    cluster_dir = find_cluster_dir(path)
    mark = read_cluster_mark(cluster_dir)
    problems: list[str] = []
    services = read_service_marks(mark, cluster_dir, problems)
    state = _node_state(cluster_dir, problems)
    return Answer(
        Description(
            cluster_dir=str(cluster_dir), consensus_module=mark, services=services, node_state=state, problems=problems
        )
    )


def _node_state(cluster_dir: Path, problems: list[str]) -> NodeState | None:
    from container.files.node_state_file import read_node_state

    try:
        found = read_node_state(cluster_dir)
    except FileNotFoundError:
        return None  # of a backup
    except OSError as error:
        problems.append(str(unreadable(cluster_dir, error)))
        return None
    except ContainerError as error:
        problems.append(str(error))
        return None
    return NodeState(
        candidate_term_id=known(found.candidate_term_id),
        log_position=known(found.log_position),
        timestamp_ms=known(found.timestamp),
    )


def pid(path: Path) -> Answer:
    """Answer which process owns a member's directory: 1 when it does not run, or the number is another's now."""
    mark = read_cluster_mark(find_cluster_dir(path))
    is_there = mark.process in ("alive", "unknown")
    return Answer(ProcessFacts(pid=mark.pid, process=mark.process, state=mark.state), 0 if is_there else 1)
