"""Cluster messages for tests: what a consensus module of any version says, and what a service answers."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

from container.codecs import messages as codecs
from container.errors import CodecError

SCHEMA = "cluster"
SCHEMA_ID = 111
SCHEMA_VERSION = 16
SBE_HEADER_LENGTH = 8
_NULL_INT32 = -(2**31)
_NULL_INT64 = -(2**63)
_NUMBERS = frozenset(
    {
        "ack_id",
        "cluster_session_id",
        "correlation_id",
        "deadline",
        "leadership_term_id",
        "log_position",
        "relevant_id",
        "term_base_log_position",
        "timestamp",
    }
)

# Block lengths before a field was added: {message: (version that added it, block length before)}.
_OLDER_BLOCKS = {
    "JoinLog": (16, 36),
    "ClusterActionRequest": (11, 28),
    "NewLeadershipTermEvent": (4, 40),
}


class ClusterAction(enum.IntEnum):
    """The action of ClusterActionRequest (23)."""

    SUSPEND = 0
    RESUME = 1
    SNAPSHOT = 2


class ServiceAck(NamedTuple):
    """Message ServiceAck (33)."""

    log_position: int
    timestamp: int
    ack_id: int
    relevant_id: int
    service_id: int


class ScheduleTimer(NamedTuple):
    """Message ScheduleTimer (31)."""

    correlation_id: int
    deadline: int


class CancelTimer(NamedTuple):
    """Message CancelTimer (32)."""

    correlation_id: int


class CloseSession(NamedTuple):
    """Message CloseSession (30)."""

    cluster_session_id: int


class ClusterMembersQuery(NamedTuple):
    """Message ClusterMembersQuery (34)."""

    correlation_id: int
    extended: int | None


class SessionMessage(NamedTuple):
    """Message SessionMessageHeader (1) and its payload: from a service to the cluster, or to a client."""

    leadership_term_id: int
    cluster_session_id: int
    timestamp: int
    payload: bytes


class UnknownMessage(NamedTuple):
    """Bytes that are not a message of a service."""

    data: bytes


ServiceMessage = (
    ServiceAck | ScheduleTimer | CancelTimer | CloseSession | ClusterMembersQuery | SessionMessage | UnknownMessage
)
_SERVICE_MESSAGES: dict[str, Callable[..., ServiceMessage]] = {
    kind.__name__: kind for kind in (ServiceAck, ScheduleTimer, CancelTimer, CloseSession, ClusterMembersQuery)
}


def at_version(message: bytes, version: int, block_length: int, extension: bytes = b"") -> bytes:
    """``message`` as a sender of another schema version writes it.

    The block is cut to ``block_length`` or grows by ``extension``; var data moves with its end.
    """
    block_end = SBE_HEADER_LENGTH + int.from_bytes(message[:2], "little")
    block = message[SBE_HEADER_LENGTH:block_end] + extension
    header = block_length.to_bytes(2, "little") + message[2:6] + version.to_bytes(2, "little")
    return header + block[:block_length] + message[block_end:]


def encode(name: str, version: int = SCHEMA_VERSION, **fields: Any) -> bytes:
    """A cluster message as a sender of schema version 4 to 17 writes it, with the fields that it knows."""
    ack_required = fields.pop("ack_required", None) if name == "ServiceTerminationPosition" else None
    message = codecs.encode(SCHEMA, name, **fields)
    block_length = int.from_bytes(message[:2], "little")
    added_in, older_block_length = _OLDER_BLOCKS.get(name, (0, block_length))
    if name == "ServiceTerminationPosition" and version >= 17:
        flag = _NULL_INT32 if ack_required is None else int(ack_required)
        return at_version(message, version, 12, flag.to_bytes(4, "little", signed=True))
    return at_version(message, version, older_block_length if version < added_in else block_length)


def raw_message(
    template_id: int, block: bytes = b"", *, schema_id: int = SCHEMA_ID, version: int = SCHEMA_VERSION
) -> bytes:
    """A message of any template and schema id: the 8-byte header and ``block``."""
    return b"".join(value.to_bytes(2, "little") for value in (len(block), template_id, schema_id, version)) + block


def service_session_id(service_id: int, message_id: int) -> int:
    """The cluster session id under which the consensus module logs a service's own message (negative)."""
    return -(2**63) + (service_id << 56) + message_id


def decode(data: bytes) -> tuple[str, dict[str, Any]]:
    """A message's name and fields.

    Numbers of 64 bits are as a consensus module and a service read them: null is -2**63, which a service can ask for as
    a deadline or an id.
    """
    name, fields = codecs.decode(SCHEMA, data)
    for field in _NUMBERS & fields.keys():
        if fields[field] is None:
            fields[field] = _NULL_INT64
    return name, fields


def decode_service_message(data: bytes) -> ServiceMessage:
    """Decode a message of a service, or of a session's egress."""
    try:
        name, fields = decode(data)
    except CodecError:
        return UnknownMessage(data)
    if name == "SessionMessageHeader":
        return SessionMessage(**fields)
    kind = _SERVICE_MESSAGES.get(name)
    return UnknownMessage(data) if kind is None else kind(**fields)
