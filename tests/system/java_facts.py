"""What Java's tools print, as the facts of `container.operate.facts`: the same names, the same values."""

from __future__ import annotations

import re
from typing import Any

type Fields = dict[str, Any]

_MARK_FIELD = re.compile(r"(\w+)=('[^']*'|[^|\n]*)")
_FIELD = re.compile(r"(\w+)=('[^']*'|[^,\s\]}]*)")
# A field of ours is null where Java's -1 stands for nothing.
_NULLS = {
    "activity_timestamp_ms",
    "candidate_term_id",
    "ingress_stream_id",
    "leader_member_id",
    "leadership_term_id",
    "log_position",
    "member_id",
    "service_id",
    "stop_position",
    "stop_timestamp_ms",
}


def snake(name: str) -> str:
    """Return a Java name in Python's spelling."""
    return re.sub(r"([A-Z])", r"_\1", name).lower()


def _fields(text: str, pattern: re.Pattern[str] = _FIELD) -> Fields:
    found: Fields = {}
    for java_name, value in pattern.findall(text):
        name = snake(java_name)
        if name.endswith("_timestamp") and pattern is _MARK_FIELD:
            name += "_ms"
        if name == "length":
            continue
        found[name] = _value(name, value)
    return found


def _value(name: str, text: str) -> Any:
    if text.startswith("'"):
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    if not re.fullmatch(r"-?\d+", text):
        return text
    return None if name in _NULLS and text == "-1" else int(text)


def mark_files(text: str) -> list[Fields]:
    """The mark files of ``describe``."""
    found = []
    for line in text.splitlines():
        if line.startswith("[MarkFileHeader]"):
            fields = _fields(line.partition("):")[2], _MARK_FIELD)
            fields["component"] = fields.pop("component_type")
            del fields["version"]
            found.append(fields)
    return found


def entries(text: str) -> list[Fields]:
    """The entries of ``recording-log``."""
    return [_fields(part.split("}")[0]) for part in text.split("Entry{")[1:]]


def plan(text: str) -> Fields:
    """The plan of ``recovery-plan``."""
    head, _, rest = text.partition("snapshots=[")
    snapshots, _, log = rest.partition("log=")
    found = _fields(head.partition("[")[2])
    found["snapshots"] = [_fields(part.split("]")[0]) for part in snapshots.split("Snapshot[")[1:]]
    found["log"] = None if log.startswith("null") else _fields(log)
    return found


def members(text: str) -> Fields:
    """The members of ``list-members``, without what grows."""
    found = _fields(text.partition("activeMembers=")[0])
    del found["current_time_ns"]
    found["members"] = []
    for part in text.split("ClusterMember{")[1:]:
        fields = _fields(part)
        found["members"].append(
            {
                "member_id": fields["id"],
                **{name: fields[name] for name in fields if name.endswith("_endpoint") or name == "is_leader"},
                "leadership_term_id": fields["leadership_term_id"],
            }
        )
    return found


def snapshot(text: str) -> Fields:
    """The consensus module's snapshot of ``describe-latest-cm-snapshot``."""

    def lines(begin: str) -> list[Fields]:
        return [_spaced(line) for line in text.splitlines() if line.startswith(begin)]

    (state,) = lines("Consensus Module State:")
    (end,) = lines("Consensus Module Snapshot End:")
    return {
        **state,
        "recording_id": end["recording_id"],
        "length": int(re.findall(r"length=(\d+)", text)[-1]),
        "sessions": lines("Cluster Session:"),
        "timers": lines("Timer:"),
        "pending": lines("Pending Message Tracker:"),
    }


def _spaced(line: str) -> Fields:
    found: Fields = {}
    for java_name, value in re.findall(r"(\w+)=(\S*)", line):
        found[snake(java_name)] = _value("", value)
    return found


def recordings(text: str) -> list[Fields]:
    """The recordings of ArchiveTool's ``describe``."""
    return [
        _fields(line.partition("):")[2], _MARK_FIELD)
        for line in text.splitlines()
        if line.startswith("[RecordingDescriptor]")
    ]


def streams(text: str) -> dict[tuple[int, int, str], dict[str, int]]:
    """The positions of StreamStat by stream: of each name the registration."""
    found = {}
    for line in text.splitlines():
        match = re.fullmatch(r"sessionId=(-?\d+) streamId=(-?\d+) channel=(\S+) : ?(.*)", line)
        if match is not None:
            names = {name.strip(): int(number) for name, number in re.findall(r"(\S[^:]*):(-?\d+):-?\d+", match[4])}
            found[int(match[1]), int(match[2]), match[3]] = names
    return found


def error_texts(text: str) -> list[str]:
    """The first line of each error of ``errors``."""
    return re.findall(r"observations? from .*?for:\n (.*)", text)


def counters(text: str) -> list[Fields]:
    """The counters of AeronStat."""
    lines = (re.fullmatch(r" *(\d+): +(-?[\d,]+) - (.*)", line) for line in text.splitlines())
    return [
        {"counter_id": int(line[1]), "value": int(line[2].replace(",", "")), "label": line[3]} for line in lines if line
    ]


def backlogs(text: str) -> dict[tuple[int, int, str], Fields]:
    """The streams of BacklogStat, with what it says of each."""
    found: dict[tuple[int, int, str], Fields] = {}
    fields: Fields = {}
    subscribers: list[int] = []
    for line in text.splitlines():
        match = re.fullmatch(r"sessionId=(-?\d+) streamId=(-?\d+) channel=(\S+) : ?", line)
        if match is not None:
            fields, subscribers = {}, []
            found[int(match[1]), int(match[2]), match[3]] = fields
        elif match := re.search(r"the last sampled position is (-?\d+) \(~(-?\d+) bytes before", line):
            fields |= {"publisher_position": int(match[1]), "publisher_window": int(match[2])}
        elif match := re.search(r"has to send (-?\d+) bytes \((-?\d+) bytes remaining", line):
            fields |= {"sender_backlog": int(match[1]), "sender_window": int(match[2])}
        elif match := re.search(r"receiver -?\d+ is at position (-?\d+)", line):
            fields["receiver_position"] = int(match[1])
        elif match := re.search(r"subscriber -?\d+ has (-?\d+) backlog bytes", line):
            subscribers.append(int(match[1]))
            fields["subscriber_backlog"] = max(subscribers)
    return found


def frames(text: str) -> list[Fields]:
    """The frames of ArchiveTool's ``dump``, of all recordings."""
    found: list[Fields] = []
    recording_id = -1
    for line in text.splitlines():
        if match := re.fullmatch(r"Recording (\d+)", line):
            recording_id = int(match[1])
        elif match := re.match(r"Frame at position \[(\d+)\] data at offset \[\d+\] with length = (\d+)", line):
            frame = {"recording_id": recording_id, "position": int(match[1]), "type": "DATA", "payload": ""}
            found.append({**frame, "length": int(match[2]), "is_fragment": False})
        elif line == "PADDING FRAME":
            found[-1] |= {"type": "PAD", "payload": None}
        elif line.startswith("Fragmented frame"):
            found[-1]["is_fragment"] = True
        elif match := re.match(r"\|[0-9a-f]{8}\| ((?:[0-9a-f]{2} |   ){16})\|", line):
            found[-1]["payload"] += match[1].replace(" ", "")
    return found
