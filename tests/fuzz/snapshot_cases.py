"""Snapshots that no container wrote: the start fails and says so, or the service starts with what is right in them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from container.errors import AgentTermination
from container.testing.memory.recording_service import RecordingService
from container.testing.memory.scripted_member import ScriptedMember
from container.testing.memory.scripted_messages import encode, raw_message
from tests.fuzz.model import NULL_VALUE, Assembler, LogFrame, tell
from tests.fuzz.mutations import MUTATIONS, Frame, Mutation, whole
from tests.fuzz.wire import NULL_INT32, Refused, fields_of, is_longer_than_its_fields, message_name, text_of
from tests.fuzz.world import same

SERVICE_SNAPSHOT_TYPE_ID = 2
LOG_POSITION, LEADERSHIP_TERM_ID, TIMESTAMP = 4096, 3, 77
MARK_BEGIN, MARK_SECTION, MARK_END = 0, 1, 2


@dataclass
class Loaded:
    """The result of loading a snapshot."""

    session_ids: list[int] = field(default_factory=list)
    time_unit: int = NULL_VALUE
    app_version: int = 0
    is_begun: bool = False


def marker(mark: int | None, *, type_id: int = SERVICE_SNAPSHOT_TYPE_ID, app_version: int = 1, unit: int = 0) -> bytes:
    """SnapshotMarker (100)."""
    return encode(
        "SnapshotMarker",
        type_id=type_id,
        log_position=LOG_POSITION,
        leadership_term_id=LEADERSHIP_TERM_ID,
        index=0,
        mark=mark,
        time_unit=unit,
        app_version=app_version,
    )


def client_session(cluster_session_id: int, principal: bytes = b"") -> bytes:
    """ClientSession (102)."""
    return encode(
        "ClientSession",
        cluster_session_id=cluster_session_id,
        response_stream_id=102,
        response_channel="aeron:udp?endpoint=localhost:20001",
        encoded_principal=principal,
    )


def right_snapshot(rng: random.Random) -> list[bytes]:
    """A snapshot as a container writes it."""
    sessions = [
        client_session(number, rng.randbytes(rng.choice([0, 10, 3000])))
        for number in sorted(rng.sample(range(9), rng.randrange(5)))
    ]
    user = [rng.randbytes(rng.choice([0, 1, 100, 4000])) for _ in range(rng.randrange(4))]
    return [marker(MARK_BEGIN), *sessions, marker(MARK_END), *user]


def reordered(rng: random.Random, messages: list[bytes]) -> list[bytes]:
    """Messages lost, doubled, swapped, cut off, or joined by others that do not belong there."""
    strange = [
        marker(MARK_BEGIN),
        marker(MARK_SECTION),
        marker(MARK_END),
        marker(7),
        marker(None),
        marker(MARK_BEGIN, type_id=1),
        marker(MARK_BEGIN, app_version=0x30000),
        marker(MARK_BEGIN, unit=9),
        client_session(rng.randrange(9)),
        raw_message(999, b"unknown"),
        b"",
    ]
    for _ in range(rng.randint(1, 3)):
        index = rng.randrange(len(messages) + 1)
        match rng.randrange(5):
            case 0:
                messages = messages[:index]
            case 1:
                messages = messages[:index] + messages[index + 1 :]
            case 2:
                messages = messages[:index] + messages[max(0, index - 1) :]
            case 3:
                messages = [*messages]
                rng.shuffle(messages)
            case _:
                messages = [*messages[:index], rng.choice(strange), *messages[index:]]
    return messages


def laid_out(frames: list[Frame]) -> list[LogFrame]:
    """The frames as they follow each other in a recording; none is so long that a term ends."""
    position = 0
    result = []
    for payload, flags in frames:
        end = position + -(-(32 + len(payload)) // 32) * 32
        result.append(LogFrame(position, end, flags, payload))
        position = end
    return result


def load(frames: list[LogFrame]) -> tuple[Loaded, list[bytes]]:
    """The state that a loader and then the service must find. Raises Refused."""
    loaded = Loaded()
    if not frames:
        raise Refused("ArchiveError")
    messages = whole_messages(frames)
    for message in messages:
        if _is_end(loaded, message):
            if loaded.app_version >> 16 & 0xFF != 0:
                raise Refused("ClusterError")
            return loaded, list(messages)
    raise Refused("SnapshotError")


def whole_messages(frames: list[LogFrame]) -> Iterator[bytes]:
    """The messages that the frames make up. Raises Refused where a frame is missing."""
    assembler, in_message = Assembler(), False
    for frame in frames:
        if in_message == bool((frame.flags or 0) & 0x80):
            raise Refused("SnapshotError")
        message = assembler.take(frame)
        in_message = message is None
        if message is not None:
            yield message
    if in_message:
        raise Refused("SnapshotError")


def _session_ids(member: ScriptedMember) -> list[int]:
    """The sessions in the newest snapshot."""
    messages = member.store.messages(member.store.recording_ids[-1])
    return [fields_of("ClientSession", data)["cluster_session_id"] for data in messages[1:-1]]


def _is_end(loaded: Loaded, message: bytes) -> bool:
    name = message_name(message)
    if name in ("ClientSession", "SnapshotMarker") and is_longer_than_its_fields(name, message):
        raise Refused("SnapshotError")
    if name == "ClientSession":
        fields = fields_of(name, message)
        text_of(fields["response_channel"])
        if fields["cluster_session_id"] in loaded.session_ids:
            raise Refused("ClusterError")
        tell(loaded.session_ids, fields["cluster_session_id"])
    if name != "SnapshotMarker":
        return False
    fields = fields_of(name, message)
    mark: int = fields["mark"]
    if fields["type_id"] != SERVICE_SNAPSHOT_TYPE_ID or mark not in (MARK_BEGIN, MARK_SECTION, MARK_END, NULL_INT32):
        raise Refused("ClusterError")
    if mark == MARK_BEGIN:
        if loaded.is_begun:
            raise Refused("ClusterError")
        if fields["time_unit"] not in (0, 1, 2, NULL_INT32):
            raise Refused("CodecError")
        loaded.is_begun, loaded.app_version = True, fields["app_version"]
        loaded.time_unit = max(0, fields["time_unit"])
    if mark == MARK_END and not loaded.is_begun:
        raise Refused("ClusterError")
    return mark == MARK_END


class SnapshotEpisode:
    """Cases of starts from a snapshot, each of a member of its own, all drawn from ``seed`` and ``number``."""

    def __init__(
        self,
        seed: int,
        number: int,
        counts: Counter[str],
        service: type[RecordingService],
        mutations: Mapping[str, Mutation] = MUTATIONS,
    ) -> None:
        self.rng = random.Random(f"{seed}/{number}")
        self._kinds = ["reordered", *mutations] if mutations is MUTATIONS else list(mutations)
        self.counts = counts
        self.case = ""
        """The present action, for the report of a failure."""
        self._service = service

    def run(self, cases: int) -> None:
        """Runs the cases. Raises Disagreement, or whatever else went wrong."""
        for _ in range(cases):
            kind = self.rng.choice(self._kinds)
            self.run_case(kind, self._frames(kind))

    def run_case(self, kind: str, frames: list[Frame]) -> None:
        """A start from a snapshot of these frames."""
        self.case = f"{kind} (snapshot): {[(payload.hex(), hex(flags)) for payload, flags in frames]}"
        self.counts[f"snapshot: {kind}"] += 1
        member = ScriptedMember(self._service(), log_position=LOG_POSITION, app_version=1)
        recording_id = member.store.add_recording(frames)
        member.cm.start(
            recording_ids=[recording_id],
            leadership_term_id=LEADERSHIP_TERM_ID,
            log_position=LOG_POSITION,
            timestamp=TIMESTAMP,
        )
        try:
            loaded, user_messages = load(laid_out(frames))
        except Refused as refused:
            self._start_fails(member, refused)
        else:
            self._start_works(member, loaded, user_messages)
        streams = [each for each in member.client.open_resources if hasattr(each, "channel")]
        same("streams after the close", streams, [])

    def _frames(self, kind: str) -> list[Frame]:
        messages = right_snapshot(self.rng)
        if kind == "reordered":
            return [frame for message in reordered(self.rng, messages) for frame in whole(message)]
        index = self.rng.randrange(len(messages))
        frames: list[Frame] = []
        for number, message in enumerate(messages):
            is_bad = number == index and len(message) > 8
            frames += MUTATIONS[kind](self.rng, message) if is_bad else whole(message)
        return frames

    def _start_fails(self, member: ScriptedMember, refused: Refused) -> None:
        try:
            member.agent.on_start()
        except AgentTermination as termination:
            same("the cause", type(termination.__cause__).__name__, refused.kind)
            same("the end", type(termination), AgentTermination)
        else:
            same("the start", "works", f"fails with {refused.kind}")
        same("acks", [ack[:4] for ack in member.cm.acks], [(LOG_POSITION, TIMESTAMP, 0, NULL_VALUE)])
        member.agent.close()
        same("callbacks", member.service.names(), [])
        same("runs of the termination hook", member.hooks, 0)
        self.counts[f"start failed with {refused.kind}"] += 1

    def _start_works(self, member: ScriptedMember, loaded: Loaded, user_messages: list[bytes]) -> None:
        member.agent.on_start()
        same("acks", [ack[:4] for ack in member.cm.acks], [(LOG_POSITION, TIMESTAMP, 0, member.client_id)])
        same("the state of the service", member.service.snapshot, user_messages)
        cluster = member.service.cluster
        same("sessions", [session.id for session in cluster.client_sessions], loaded.session_ids)
        same("time unit", int(cluster.time_unit), loaded.time_unit)
        member.follow()
        member.deliver(b"good")
        same("messages", member.service.messages, [b"good"])
        member.take_snapshot()
        same("sessions in the next snapshot", _session_ids(member), loaded.session_ids)
        same("errors", member.errors, [])
        member.agent.close()
        same("ends", len(member.service.of("on_terminate")), 1)
        self.counts["start worked"] += 1
        self.counts["good log messages"] += 1
