"""Shows the messages of a cluster's log, from a running or a stopped member, or from an archive alone."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from container.codecs.messages import decode
from container.errors import CodecError, RecordingError
from container.operate.answers import NoFactsError, named, text
from container.operate.facts import LogMessage
from container.operate.log_frames import RawMessage, frame_border, read_messages
from container.operate.log_names import UNKNOWN
from container.recordings.member import PERMISSIVE, Member, open_member

_SBE_HEADER = struct.Struct("<HHHH")
_LOOK_AGAIN_S = 0.1
_CLUSTER_SCHEMA_ID = 111
_CLOSE_REASONS = ("CLIENT_ACTION", "SERVICE_ACTION", "TIMEOUT")
_ACTIONS = ("SUSPEND", "RESUME", "SNAPSHOT")
_OWN_FIELDS = ("leadership_term_id", "timestamp", "cluster_session_id", "correlation_id", "payload")


class Wanted(NamedTuple):
    """Which messages are wanted; None for no limit."""

    begin: int | None = None
    """Only what ends behind this position."""
    end: int | None = None
    """Only what ends at this position or before it."""
    messages: frozenset[str] | None = None
    """Names of Aeron's schema."""
    session_id: int | None = None
    term_id: int | None = None
    is_committed: bool = False
    """Whether only what is certain is wanted."""

    def has(self, message: LogMessage) -> bool:
        """Whether a message is wanted, apart from its position."""
        return (
            (self.messages is None or message.message in self.messages)
            and (self.session_id is None or message.cluster_session_id == self.session_id)
            and (self.term_id is None or message.leadership_term_id == self.term_id)
        )


def read_log(
    path: Path, wanted: Wanted, *, has_payload: bool, follows: bool, limit: int | None
) -> Iterator[LogMessage]:
    """Yield the messages of a log; with ``follows`` also those that come, each when it is committed.

    Raises:
        NoFactsError: there is no log, it is damaged, or what comes next was deleted meanwhile: what is before that has
            been yielded.
    """
    try:
        member = open_member(path)
        if member.shipped() is not None:
            raise NoFactsError(
                f"{path} is a place of `pipeline ship`, which this word does not read: read it with Spark, or "
                "container.recordings"
            )
        position = -1
        count = 0
        while True:
            for message, end in _messages(member, wanted, position, has_payload, is_committed_only=follows):
                position = end
                if message is None:
                    continue
                if limit is not None and count >= limit:
                    return
                count += 1
                yield message
            if not follows or (wanted.end is not None and position >= wanted.end) or count == limit:
                return
            time.sleep(_LOOK_AGAIN_S)
    except RecordingError as error:
        raise NoFactsError(str(error)) from error


def _messages(
    member: Member, wanted: Wanted, position: int, has_payload: bool, *, is_committed_only: bool
) -> Iterator[tuple[LogMessage | None, int]]:
    """The messages behind a position, None for one that is not wanted, and where each ends."""
    log = member.log(PERMISSIVE)
    committed = log.log_range.committed_position
    end = committed if is_committed_only or wanted.is_committed else log.log_range.recorded_position
    if wanted.end is not None:
        end = min(end, wanted.end)
    begin = position
    if 0 <= begin < log.descriptor.start_position:
        raise NoFactsError(
            f"the log begins at {log.descriptor.start_position} now, and was read up to {begin}: what is between them "
            "was deleted"
        )
    if begin < 0:
        first = max(log.descriptor.start_position, wanted.begin or 0)
        begin = frame_border(log.descriptor, first)
        position = max(begin, wanted.begin or 0) if wanted.begin is not None else begin
    for raw in read_messages(Path(member.archive_dir), log.descriptor, begin, end):
        if raw.log_position <= position:
            continue
        message = _message(raw, raw.log_position <= committed, has_payload)
        yield message if wanted.has(message) else None, raw.log_position


def _message(raw: RawMessage, is_committed: bool, has_payload: bool) -> LogMessage:
    fields: dict[str, Any] = {}
    template_id, schema_id, name = -1, -1, UNKNOWN
    if len(raw.data) >= _SBE_HEADER.size:
        _, template_id, schema_id, _ = _SBE_HEADER.unpack_from(raw.data)
    payload = raw.data
    if schema_id == _CLUSTER_SCHEMA_ID:
        try:
            name, fields = decode("cluster", raw.data)
        except CodecError:
            name, fields = UNKNOWN, {}
    shows_payload = name == UNKNOWN
    if name == "SessionMessageHeader":
        payload, shows_payload = bytes(fields["payload"]), True
    return LogMessage(
        log_position=raw.log_position,
        begin_position=raw.begin_position,
        is_committed=is_committed,
        message=name,
        template_id=template_id,
        leadership_term_id=fields.get("leadership_term_id"),
        timestamp=fields.get("timestamp"),
        cluster_session_id=fields.get("cluster_session_id"),
        correlation_id=fields.get("correlation_id"),
        fields={key: _value(key, value) for key, value in fields.items() if key not in _OWN_FIELDS},
        length=len(payload),
        payload=payload.hex() if shows_payload and has_payload else None,
    )


def _value(name: str, value: Any) -> int | str | None:
    """A field as JSON has it: a principal in hexadecimal digits, and what a number stands for by its name."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex() if name == "encoded_principal" else text(bytes(value))
    names = {"close_reason": _CLOSE_REASONS, "action": _ACTIONS}.get(name)
    if names is not None and isinstance(value, int):
        return named(names, value)
    return value if isinstance(value, int | str) or value is None else str(value)
