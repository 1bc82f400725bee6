"""A media driver's facts about its streams: positions, backlog, loss. Upstream: StreamStat, BacklogStat, LossStat."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from container.common.regular_files import read_regular
from container.files.cnc_file import CounterRecord
from container.operate.answers import Answer, NoFactsError
from container.operate.driver_counters import find_aeron_dir, open_cnc
from container.operate.facts import Backlog, Backlogs, Loss, LossEntry, Stream, StreamPosition, Streams
from container.operate.places import unreadable

# Types of a driver's counters of streams (upstream: AeronCounters.java), and their names in labels.
_PUBLISHER_LIMIT, _SENDER_POSITION, _RECEIVER_HIGH, _SUBSCRIBER, _RECEIVER = 1, 2, 3, 4, 5
_SENDER_LIMIT, _PUBLISHER = 9, 12
_NAMES = {
    _PUBLISHER_LIMIT: "pub-lmt",
    _SENDER_POSITION: "snd-pos",
    _RECEIVER_HIGH: "rcv-hwm",
    _SUBSCRIBER: "sub-pos",
    _RECEIVER: "rcv-pos",
    _SENDER_LIMIT: "snd-lmt",
    _PUBLISHER: "pub-pos",
    13: "snd-bpe",
    19: "snd-naks-received",
    20: "rcv-naks-sent",
}
_KEY = struct.Struct("<qiii")
"""Registration, session, stream, length of the channel that follows (upstream: StreamCounter.java)."""

_LOSS_NAME = "loss-report.dat"
_LOSS = struct.Struct("<qqqqii")
_LOSS_LENGTH_MAX = 256 * 1024 * 1024
_TEXT_LENGTH = struct.Struct("<i")
_LOSS_ALIGNMENT = 64
_TEXT_ALIGNMENT = 4

type _Key = tuple[str, int, int]


def streams(path: Path) -> Answer:
    """Answer the positions of all streams of a media driver."""
    aeron_dir = find_aeron_dir(path)
    with open_cnc(aeron_dir) as file:
        by_stream = _by_stream(file.counters())
    found = [
        Stream(
            session_id=session_id,
            stream_id=stream_id,
            channel=_full_channel(records, channel),
            positions=[
                StreamPosition(name=_NAMES[record.type_id], registration_id=record.key_int64(0), value=record.value)
                for record in records
            ],
        )
        for (channel, stream_id, session_id), records in sorted(by_stream.items())
    ]
    return Answer(Streams(aeron_dir=str(aeron_dir), streams=found))


def backlog(path: Path) -> Answer:
    """Answer where the streams of a media driver pile up."""
    aeron_dir = find_aeron_dir(path)
    with open_cnc(aeron_dir) as file:
        found = backlogs_of(file.counters())
    return Answer(Backlogs(aeron_dir=str(aeron_dir), streams=found))


def backlogs_of(records: Iterable[CounterRecord]) -> list[Backlog]:
    """Return where the streams of a media driver pile up, by all its counters."""
    return [_backlog(key, each, _full_channel(each, key[0])) for key, each in sorted(_by_stream(records).items())]


def _by_stream(records: Iterable[CounterRecord]) -> dict[_Key, list[CounterRecord]]:
    found: dict[_Key, list[CounterRecord]] = {}
    for record in records:
        if record.type_id in _NAMES:
            _, session_id, stream_id, length = _KEY.unpack_from(record.key)
            channel = record.key[_KEY.size : _KEY.size + max(0, length)].decode("ascii", "replace")
            found.setdefault((channel, stream_id, session_id), []).append(record)
    return found


def _full_channel(records: list[CounterRecord], channel: str) -> str:
    """The longest channel in the labels: the key has no room for all of it."""
    texts = [channel]
    for record in records:
        begin = record.label.find("aeron:")
        if begin >= 0:
            texts.append(record.label[begin:].rpartition(" @")[0] or record.label[begin:])
    return max(texts, key=len)


def _backlog(key: _Key, records: list[CounterRecord], channel: str) -> Backlog:
    values = {record.type_id: record.value for record in records}
    subscribers = [record.value for record in records if record.type_id == _SUBSCRIBER]
    written = values.get(_PUBLISHER)
    received, high = values.get(_RECEIVER), values.get(_RECEIVER_HIGH)
    readable = high if received is not None else written
    return Backlog(
        session_id=key[2],
        stream_id=key[1],
        channel=channel,
        publisher_position=written,
        publisher_window=_difference(values.get(_PUBLISHER_LIMIT), written),
        sender_backlog=_difference(written, values.get(_SENDER_POSITION)),
        sender_window=_difference(values.get(_SENDER_LIMIT), values.get(_SENDER_POSITION)),
        receiver_position=received,
        receiver_gap=_difference(high, received),
        subscriber_backlog=_difference(readable, min(subscribers)) if subscribers else None,
    )


def _difference(high: int | None, low: int | None) -> int | None:
    """How far one is before the other; they are read one after the other, so a negative difference counts as 0."""
    return None if high is None or low is None else max(0, high - low)


def loss(path: Path) -> Answer:
    """Answer what a media driver has not received the first time."""
    report = find_aeron_dir(path) / _LOSS_NAME
    try:
        content = read_regular(report, _LOSS_LENGTH_MAX)
    except FileNotFoundError as error:
        raise NoFactsError(f"{report} does not exist: no media driver has run there") from error
    except OSError as error:
        raise unreadable(report, error) from error
    return Answer(Loss(path=str(report), entries=list(_loss_entries(report, content))))


def _loss_entries(path: Path, content: bytes) -> Iterator[LossEntry]:
    offset = 0
    while offset + _LOSS.size <= len(content):
        count, lost, first, last, session_id, stream_id = _LOSS.unpack_from(content, offset)
        if count <= 0:
            return
        channel, end = _text(path, content, offset + _LOSS.size)
        end = (end - offset + _TEXT_ALIGNMENT - 1) // _TEXT_ALIGNMENT * _TEXT_ALIGNMENT + offset
        source, end = _text(path, content, end)
        yield LossEntry(
            observation_count=count,
            total_bytes_lost=lost,
            first_ms=first,
            last_ms=last,
            session_id=session_id,
            stream_id=stream_id,
            channel=channel,
            source=source,
        )
        offset += (end - offset + _LOSS_ALIGNMENT - 1) // _LOSS_ALIGNMENT * _LOSS_ALIGNMENT


def _text(path: Path, content: bytes, offset: int) -> tuple[str, int]:
    begin = offset + _TEXT_LENGTH.size
    length = _TEXT_LENGTH.unpack_from(content, offset)[0] if begin <= len(content) else -1
    if not 0 <= length <= len(content) - begin:
        raise NoFactsError(f"{path} is damaged at byte {offset}: a text of {length} bytes is impossible")
    return content[begin : begin + length].decode("ascii", "replace"), begin + length
