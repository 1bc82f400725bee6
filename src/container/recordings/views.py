"""The views of a member's recordings: columns, types and what they mean. Schemas and documents are made from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from container.errors import ConfigurationError
from container.recordings.arrow import arrow_type, import_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa


class Column(NamedTuple):
    """A column: its name, its type as Arrow names it, and what it says in one sentence."""

    name: str
    type: str
    comment: str


class View(NamedTuple):
    """A view: what a row is, and its columns in their order."""

    doc: str
    columns: tuple[Column, ...]
    is_log: bool = False
    """Whether its rows come from the log one after the other, so that they can be streamed."""


TIME = "timestamp"
"""The type of times: Arrow's timestamp in microseconds and UTC."""

MEMBER_ID = Column("member_id", "int32", "The member whose files the row was read from; null where no file says it.")

_LOG_POSITION = Column("log_position", "int64", "End of the message in the log: what a service sees as position.")
_BEGIN_POSITION = Column("begin_position", "int64", "Log position at which the message's first frame begins.")
_TERM = Column("leadership_term_id", "int64", "The leadership term that the message names.")
_TIMESTAMP = Column("timestamp", "int64", "Cluster time of the message, in the cluster's time unit.")
EVENT_TIME = Column(
    "event_time", TIME, "The timestamp as a time in UTC, in microseconds; null outside the years 1 to 9999."
)
_SESSION = Column("cluster_session_id", "int64", "The client's session; negative when a service sent the message.")
_SERVICE = Column("service_id", "int32", "The service that sent the message to its own cluster; null for clients'.")
_CORRELATION = Column("correlation_id", "int64", "A timer's id, or a session's connect request by the client.")
_CLOSE_REASON = Column("close_reason", "string", "CLIENT_ACTION, SERVICE_ACTION or TIMEOUT.")
_RESPONSE_STREAM = Column("response_stream_id", "int32", "The stream on which the session is answered.")
_RESPONSE_CHANNEL = Column("response_channel", "string", "The channel, with the endpoint, on which it is answered.")
_PRINCIPAL = Column("encoded_principal", "binary", "The client's identity, as the authenticator found it.")
_TERM_BASE = Column("term_base_log_position", "int64", "Log position at which the leadership term begins.")
_LEADER = Column("leader_member_id", "int32", "The member that leads.")
_LOG_SESSION = Column("log_session_id", "int32", "The Aeron session of the leader's log publication.")
_TIME_UNIT = Column("time_unit", "string", "Unit of timestamps: MILLIS, MICROS or NANOS.")
_APP_VERSION = Column("app_version", "int32", "The application's version: major << 16, minor << 8, patch.")
_PAYLOAD_LENGTH = Column("payload_length", "int32", "Bytes of the payload.")
_COMMITTED = Column(
    "committed", "bool", "True if a majority certainly has the message; an election may remove the others."
)
_ERROR = Column(
    "error", "string", "Null, or in mode permissive what could not be read, with file, offset and log position."
)
_RECORDING_ID = Column("recording_id", "int64", "The recording in this member's archive.")

# Columns that come together.
_EVENT = (_LOG_POSITION, _BEGIN_POSITION, _TERM, _TIMESTAMP, EVENT_TIME)
_CLIENT = (_CLOSE_REASON, _RESPONSE_STREAM, _RESPONSE_CHANNEL, _PRINCIPAL)
_END = (_COMMITTED, _ERROR)

FRAMES = View(
    "A frame of the log, padding included.",
    (
        Column("log_position", "int64", "End of the frame, aligned to 32 bytes."),
        Column("begin_position", "int64", "Position at which the frame begins."),
        Column("leadership_term_id", "int64", "The leadership term by the recording log; null without one."),
        Column("frame_length", "int32", "Header and payload in bytes, not aligned; of padding up to its end."),
        Column("version", "int32", "Version of the frame's header."),
        Column("flags", "int32", "0x80 a message begins, 0x40 it ends, 0x20 end of stream, 0x10 revoked."),
        Column("type", "string", "DATA or PAD."),
        Column("term_offset", "int32", "Offset of the frame in its Aeron term."),
        Column("session_id", "int32", "Aeron session; the payload's checksum when the archive records checksums."),
        Column("stream_id", "int32", "Aeron stream."),
        Column("term_id", "int32", "Aeron term (of the log buffer, not of a leader)."),
        Column("reserved_value", "int64", "The frame's reserved value; 0 in the log of a cluster."),
        Column("timestamp", "int64", "Cluster time of the message that the frame belongs to; null for padding."),
        EVENT_TIME,
        Column("payload", "binary", "The bytes after the header; null for padding, whose bytes are not recorded."),
        *_END,
    ),
    is_log=True,
)
MESSAGES = View(
    "A message of the log, put together from its frames; a field is null where a message has none.",
    (
        _LOG_POSITION,
        _BEGIN_POSITION,
        _TERM,
        Column("template_id", "int32", "Which message it is: 1 session message, 20 timer, 21 session open, 22 close."),
        Column("schema_id", "int32", "111 for messages of the cluster; others come from extensions."),
        Column("schema_version", "int32", "The version of the schema that the sender wrote."),
        _TIMESTAMP,
        EVENT_TIME,
        Column("message_length", "int32", "Bytes of the whole message, without frame headers."),
        _SESSION,
        _SERVICE,
        _CORRELATION,
        *_CLIENT,
        Column("event_log_position", "int64", "The log position that messages 23 to 25 name: their own end."),
        Column("action", "string", "Request to services (23): SUSPEND, RESUME or SNAPSHOT."),
        Column("flags", "int32", "Flags of that action: 0 default, 1 standby snapshot."),
        _TERM_BASE,
        _LEADER,
        _LOG_SESSION,
        _TIME_UNIT,
        _APP_VERSION,
        Column("cluster_size", "int32", "Members after a change of membership (25, no longer written)."),
        Column("change_type", "string", "That change: JOIN or QUIT."),
        Column("changed_member_id", "int32", "The member that joined or quit."),
        Column("cluster_members", "string", "The members after that change."),
        _PAYLOAD_LENGTH,
        Column("payload", "binary", "Bytes of a session message; of an unknown message everything after its header."),
        *_END,
    ),
    is_log=True,
)
SESSIONS = View(
    "A client session was opened or closed.",
    (
        *_EVENT,
        Column("event", "string", "OPEN or CLOSE."),
        Column("cluster_session_id", "int64", "The session."),
        Column("correlation_id", "int64", "The client's connect request (OPEN)."),
        *_CLIENT,
        *_END,
    ),
    is_log=True,
)
SESSION_MESSAGES = View(
    "A message of a client, or of a service to its own cluster.",
    (
        *_EVENT,
        _SESSION,
        _SERVICE,
        _PAYLOAD_LENGTH,
        Column("payload", "binary", "The message."),
        *_END,
    ),
    is_log=True,
)
TIMERS = View(
    "A timer has expired.",
    (
        *_EVENT,
        Column("correlation_id", "int64", "The timer's id, chosen by the service."),
        *_END,
    ),
    is_log=True,
)
TERMS = View(
    "A leadership term, once as the log and once as the member's recording log has it.",
    (
        Column("source", "string", "log or recording_log."),
        Column("leadership_term_id", "int64", "The leadership term."),
        _TERM_BASE,
        Column("end_log_position", "int64", "End of the term by the recording log; null while it is open."),
        Column("begin_position", "int64", "Start of the message that opens the term (log)."),
        Column("log_position", "int64", "End of that message (log)."),
        Column("timestamp", "int64", "Cluster time when it was opened or entered, in the cluster's time unit."),
        EVENT_TIME,
        Column("leader_member_id", "int32", "The member that leads (log)."),
        _LOG_SESSION,
        _TIME_UNIT,
        _APP_VERSION,
        Column("entry_index", "int32", "The entry's place in the recording log."),
        Column("is_valid", "bool", "False when the entry was invalidated (recording log)."),
        _RECORDING_ID,
        Column("committed", "bool", "True if a majority certainly has the message that opens the term (log)."),
        _ERROR,
    ),
)
SNAPSHOTS = View(
    "A snapshot entry (item ENTRY), or something that a snapshot holds, in the order of its recording.",
    (
        _RECORDING_ID,
        Column("service_id", "int32", "The service; -1 for the consensus module."),
        Column("leadership_term_id", "int64", "The term in which the snapshot was taken."),
        _TERM_BASE,
        Column("log_position", "int64", "The log position that the snapshot represents."),
        Column("timestamp", "int64", "Cluster time of the snapshot, by the recording log."),
        EVENT_TIME,
        Column("entry_index", "int32", "The entry's place in the recording log; null without one."),
        Column("is_valid", "bool", "False when the entry was invalidated."),
        Column("item_index", "int64", "Counts what the recording holds from 0; null for ENTRY."),
        Column(
            "item",
            "string",
            "ENTRY, MARKER, CONSENSUS_MODULE, CLUSTER_SESSION, TIMER, PENDING_MESSAGE_TRACKER, PENDING_MESSAGE, "
            "CLIENT_SESSION, SERVICE_DATA, EXTENSION_DATA, or UNKNOWN for a message that is not known.",
        ),
        Column("is_complete", "bool", "For an ENTRY: whether its recording is there with begin and end marker."),
        Column("mark", "string", "For a MARKER: BEGIN, SECTION or END."),
        Column("cluster_session_id", "int64", "The client's session; also of a pending message."),
        Column("correlation_id", "int64", "A session's connect request, or a timer's id."),
        Column("deadline", "int64", "Deadline of a timer, in the cluster's time unit."),
        Column("opened_log_position", "int64", "Log position at which a CLUSTER_SESSION was opened."),
        *_CLIENT,
        Column("next_session_id", "int64", "The consensus module's next client session."),
        Column("next_service_session_id", "int64", "The next message of a service to its cluster."),
        Column("log_service_session_id", "int64", "The last message of a service in the log."),
        Column("pending_message_capacity", "int32", "Bytes of pending messages; of Java with padding: members differ."),
        Column("pending_service_id", "int32", "The service whose pending messages a tracker counts."),
        Column("appended_log_position", "int64", "Log position of a pending message that is not yet committed."),
        _TIME_UNIT,
        _APP_VERSION,
        Column("payload", "binary", "Bytes of a pending message or of the service's own data; of UNKNOWN all of it."),
        _ERROR,
    ),
)
RECORDING_LOG = View(
    "An entry of the member's recording log.",
    (
        Column("entry_index", "int32", "The entry's place in the file, counted with removed ones."),
        _RECORDING_ID,
        Column("leadership_term_id", "int64", "The leadership term."),
        _TERM_BASE,
        Column("log_position", "int64", "A term's end, null while it is open; a snapshot's log position."),
        Column("timestamp", "int64", "In the cluster's time unit."),
        EVENT_TIME,
        Column("service_id", "int32", "A snapshot's service, -1 for the consensus module; -1 for a term."),
        Column("entry_type", "string", "TERM, SNAPSHOT or STANDBY_SNAPSHOT."),
        Column("is_valid", "bool", "False when the entry was invalidated."),
        Column("archive_endpoint", "string", "The archive that has a standby snapshot."),
        _ERROR,
    ),
)
RECORDINGS = View(
    "A recording in the archive's catalog.",
    (
        _RECORDING_ID,
        Column("start_timestamp", "int64", "Epoch milliseconds."),
        Column("event_time", TIME, "The start timestamp as a time in UTC."),
        Column("stop_timestamp", "int64", "Epoch milliseconds; null while it is recorded, and after a crash."),
        Column("start_position", "int64", "Start of the recording."),
        Column("stop_position", "int64", "End of the recording; null while it is recorded, and after a crash."),
        Column("initial_term_id", "int32", "The Aeron term id at position 0."),
        Column("segment_file_length", "int32", "Bytes of a segment file."),
        Column("term_buffer_length", "int32", "Bytes of an Aeron term."),
        Column("mtu_length", "int32", "The longest data frame in bytes."),
        Column("session_id", "int32", "Aeron session, of the last extension."),
        Column("stream_id", "int32", "Aeron stream: by default 100 log, 106 service snapshots, 107 module snapshots."),
        Column("control_session_id", "int64", "The archive's client that extended it; 0 until then."),
        Column("correlation_id", "int64", "That client's request."),
        Column("stripped_channel", "string", "The channel without what does not matter for recording."),
        Column("original_channel", "string", "The channel as it was asked for, of the first session."),
        Column("source_identity", "string", "Address of the recorded stream's sender, or `aeron:ipc`."),
        _ERROR,
    ),
)

_BY_NAME = {
    "frames": FRAMES,
    "messages": MESSAGES,
    "sessions": SESSIONS,
    "session_messages": SESSION_MESSAGES,
    "timers": TIMERS,
    "terms": TERMS,
    "snapshots": SNAPSHOTS,
    "recording_log": RECORDING_LOG,
    "recordings": RECORDINGS,
}

VIEWS = tuple(_BY_NAME)
"""The names of all views."""
LOG_VIEWS = tuple(name for name, view in _BY_NAME.items() if view.is_log)
"""The names of the views whose rows come from the log."""


def view_of(name: str) -> View:
    """Return a view by its name.

    Raises:
        ConfigurationError: there is no such view.
    """
    if name not in _BY_NAME:
        raise ConfigurationError(f"view={name!r} is unknown, use one of {', '.join(VIEWS)}")
    return _BY_NAME[name]


def columns_of(name: str, *, member_column: bool = False) -> tuple[Column, ...]:
    """Return the columns of a view in their order; with ``member_column``, ``member_id`` comes first.

    Raises:
        ConfigurationError: there is no such view.
    """
    columns = view_of(name).columns
    return (MEMBER_ID, *columns) if member_column else columns


def wanted_columns(view: str, names: Sequence[str] | None, member_column: bool) -> list[Column]:
    """Return the named columns of a view, by default all; before them ``member_id`` with ``member_column``.

    Raises:
        ConfigurationError: the view has no such column.
    """
    known = {column.name: column for column in columns_of(view, member_column=True)}
    if names is None:
        names = [name for name in known if name != MEMBER_ID.name or member_column]
    if isinstance(names, str):
        raise ConfigurationError(f"columns={names!r} is one text, give a list of names such as [{names!r}]")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigurationError(f"view {view!r} has no column {unknown[0]!r}, it has {', '.join(known)}")
    return [known[name] for name in names]


def schema(view: str, *, member_column: bool = False) -> pa.Schema:
    """Return a view's Arrow schema. Each field has its meaning in its metadata, under ``b"comment"``.

    Raises:
        ConfigurationError: there is no such view.
        ImportError: pyarrow is not installed.
    """
    return schema_of(columns_of(view, member_column=member_column))


def schema_of(columns: Iterable[Column]) -> pa.Schema:
    """Return the Arrow schema of these columns.

    Raises:
        ImportError: pyarrow is not installed.
    """
    import_pyarrow()
    return _schema_of(tuple(columns))


@cache
def _schema_of(columns: tuple[Column, ...]) -> pa.Schema:
    # Each partition needs it, and has often fewer rows than it has columns.
    arrow = import_pyarrow()
    return arrow.schema(
        [arrow.field(column.name, arrow_type(column.type), metadata={"comment": column.comment}) for column in columns]
    )


def views_markdown() -> str:
    """Return the chapter of docs/pipeline.md that lists the columns of each view."""
    parts = [
        "## Views\n\nGenerated by `container.recordings.views.views_markdown()`; a test compares this chapter with it. "
        "With Spark each\nview begins with "
        f"`{MEMBER_ID.name}` ({MEMBER_ID.type}): {MEMBER_ID.comment[0].lower()}{MEMBER_ID.comment[1:]}\n"
    ]
    for name, view in _BY_NAME.items():
        kind = "batch and stream" if view.is_log else "batch only"
        rows = [f"| `{column.name}` | {column.type} | {column.comment} |" for column in view.columns]
        parts.append(
            "\n".join(
                [f"### {name}\n\n{view.doc} ({kind})\n", "| column | type | meaning |", "| --- | --- | --- |", *rows]
            )
            + "\n"
        )
    return "\n".join(parts)
