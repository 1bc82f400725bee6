"""Damaged snapshots: at every frame, and at every byte of its header, a load gives what was written or fails."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from container.errors import AgentTermination, ContainerError, SnapshotError
from container.snapshots import read_snapshot, write_snapshot
from container.testing.memory.memory_log import Frame, MemoryLog
from container.testing.memory.scripted_member import ScriptedMember

HEADER_LENGTH = 32
MAX_IDLES = 100  # of a load that fails: it waits for nothing
MAX_POLLS = 2000
TERM_LENGTH = 65_536
SESSIONS = 3

type Read = Callable[[Any], Any]


class Item(msgspec.Struct):
    name: str
    amounts: dict[str, int]


class State(msgspec.Struct):
    items: list[Item]


class Other(msgspec.Struct):
    blob: bytes


STATE = State([Item(f"item {number}", {"a": number, "b": -number}) for number in range(60)])
OTHER = Other(bytes(range(256)) * 20)
RAW = [b"", b"one", b"x" * 5000, b"y" * 1376, b"z" * 1377, b"last"]


def taken(write: Callable[[Any], object]) -> tuple[ScriptedMember, list[bytes]]:
    """A member with sessions that has taken a snapshot, and its messages."""
    member = ScriptedMember().lead()
    for session_id in range(SESSIONS):
        member.cm.open_session(session_id + 1, encoded_principal=b"principal %d" % session_id)
    member.commit()
    member.in_callback(write, "on_take_snapshot")
    messages = member.take_snapshot()
    assert member.errors == []
    return member, messages


def write_structs(publication: Any) -> None:
    write_snapshot(publication, STATE)
    write_snapshot(publication, OTHER)


def write_raw(publication: Any) -> None:
    for message in RAW:
        publication.send(message)


def read_structs(image: Any) -> Any:
    return read_snapshot(image, State), read_snapshot(image, Other)


def iterate(image: Any) -> Any:
    return list(image)


def poll(image: Any) -> Any:
    found: list[bytes] = []
    for _ in range(MAX_POLLS):
        if image.is_end_of_stream:
            return found
        image.poll(found.append, 1)
    raise AssertionError("no end and no error")


def iterate_in_parts(image: Any) -> Any:
    found: list[bytes] = []
    while not image.is_end_of_stream:
        found.extend(itertools.islice(image, 2))
    return found


class Snapshot:
    """A recorded snapshot, copied and damaged, for one load after the other."""

    def __init__(self, write: Callable[[Any], object]) -> None:
        self.member, self.messages = taken(write)
        self.sessions = self._sessions(self.member)

    def frames(self) -> list[Frame]:
        recovering = self._recovering()
        return recovering.store.frames(recovering.store.recording_ids[0])

    def _recovering(self) -> ScriptedMember:
        member = ScriptedMember(log_position=self.member.cm.log_position)
        member.store.add_recording(self.messages)
        return member

    @staticmethod
    def _sessions(member: ScriptedMember) -> list[tuple[Any, ...]]:
        return [
            (session.id, session.response_stream_id, session.response_channel, session.encoded_principal)
            for session in member.service.cluster.client_sessions
        ]

    def load(self, damage: Callable[[MemoryLog], object], read: Read) -> list[Any]:
        """What the service read, with the sessions; empty when the load failed."""
        member = self._recovering()
        recording_id = member.store.recording_ids[0]
        damage(member.store.recording(recording_id).log)
        loaded = member.in_callback(lambda _cluster, image: read(image), "on_start")
        failure = None
        try:
            member.start(recording_ids=[recording_id], leadership_term_id=1)
        except AgentTermination as termination:
            failure = termination.__cause__
        if failure is not None:
            assert member.idle_strategy.idle_count < MAX_IDLES, "a load that fails is not waited for"
            assert isinstance(failure, ContainerError), failure
            assert member.cm.acks[-1].relevant_id == -1
            return []
        assert self._sessions(member) == self.sessions
        return loaded


CASES = [
    pytest.param(write_structs, read_structs, (STATE, OTHER), id="read_snapshot"),
    pytest.param(write_raw, iterate, RAW, id="iteration"),
    pytest.param(write_raw, poll, RAW, id="poll"),
    pytest.param(write_raw, iterate_in_parts, RAW, id="iteration in parts"),
]


@pytest.mark.parametrize(("write", "read", "expected"), CASES)
def test_what_was_written_is_read(write: Callable[[Any], object], read: Read, expected: Any) -> None:
    assert Snapshot(write).load(lambda log: None, read) == [expected]


@pytest.mark.parametrize(("write", "read", "expected"), CASES)
def test_a_file_that_is_cut_or_zeroed_at_any_frame_is_not_loaded(
    write: Callable[[Any], object], read: Read, expected: Any
) -> None:
    snapshot = Snapshot(write)
    frames = snapshot.frames()
    end = frames[-1].position + HEADER_LENGTH + len(frames[-1].payload)
    for frame in frames:
        damages: dict[str, tuple[int, bytes]] = {
            "frame length zeroed": (frame.position, bytes(4)),
            "header zeroed": (frame.position, bytes(HEADER_LENGTH)),
            "cut": (frame.position, bytes(end - frame.position)),
            "frame length negative": (frame.position, struct.pack("<i", -HEADER_LENGTH - len(frame.payload))),
        }
        for name, (position, data) in damages.items():
            assert snapshot.load(partial(_overwrite, at=position, data=data), read) == [], f"{name} at {frame.position}"


@pytest.mark.parametrize(("write", "read", "expected"), CASES)
def test_a_frame_that_became_padding_is_not_passed_over(
    write: Callable[[Any], object], read: Read, expected: Any
) -> None:
    snapshot = Snapshot(write)
    for frame in snapshot.frames():
        assert snapshot.load(partial(_overwrite, at=frame.position + 6, data=bytes(2)), read) == []


@pytest.mark.parametrize(("write", "read", "expected"), CASES[:2])
def test_a_flipped_bit_in_any_frame_header_is_noticed_or_harmless(
    write: Callable[[Any], object], read: Read, expected: Any
) -> None:
    snapshot = Snapshot(write)
    for index, frame in enumerate(snapshot.frames()):
        # Raw messages cannot notice a frame length that takes bytes from the next frame, or gives some to it.
        first = 4 if expected is RAW and index > SESSIONS + 1 else 0
        for at, bit in itertools.product(range(first, HEADER_LENGTH), range(8)):
            flipped = bytes([_header(frame)[at] ^ 1 << bit])
            loaded = snapshot.load(partial(_overwrite, at=frame.position + at, data=flipped), read)
            assert loaded in ([], [expected]), f"bit {bit} of byte {at} of the frame at {frame.position}"


def _overwrite(log: MemoryLog, at: int, data: bytes) -> None:
    log.overwrite(at, data)


def _header(frame: Frame) -> bytes:
    return struct.pack(
        "<iBBHiiiiq",
        HEADER_LENGTH + len(frame.payload),
        0,
        frame.flags,
        frame.type,
        frame.term_offset,
        frame.session_id,
        frame.stream_id,
        frame.term_id,
        frame.reserved_value,
    )


def test_a_flipped_bit_in_the_state_is_noticed_by_read_snapshot() -> None:
    snapshot = Snapshot(write_structs)
    for frame in snapshot.frames()[SESSIONS + 2 :]:
        for at in range(0, len(frame.payload), 7):
            flipped = bytes([frame.payload[at] ^ 1 << at % 8])
            position = frame.position + HEADER_LENGTH + at
            assert snapshot.load(partial(_overwrite, at=position, data=flipped), read_structs) == []


def test_a_recording_that_stopped_before_its_state_was_whole_is_noticed_by_read_snapshot() -> None:
    snapshot = Snapshot(write_structs)
    messages = snapshot.messages
    for count in range(SESSIONS + 2, len(messages)):
        snapshot.messages = messages[:count]
        assert snapshot.load(lambda log: None, read_structs) == [], count


def test_padding_at_the_end_of_a_term_is_no_missing_part() -> None:
    messages = [bytes([number]) * (300 * number) for number in range(1, 27)] * 3
    snapshot = Snapshot(lambda publication: [publication.send(message) for message in messages])
    frames = snapshot.frames()
    assert [frame.type for frame in frames].count(0) >= 3
    assert frames[-1].position > 3 * TERM_LENGTH
    for read in (iterate, poll, iterate_in_parts):
        assert snapshot.load(lambda log: None, read) == [messages]


def test_an_error_that_is_passed_over_does_not_become_an_end() -> None:
    snapshot = Snapshot(write_raw)
    frames = snapshot.frames()
    middle = frames[len(frames) // 2]

    def read(image: Any) -> int:
        errors = 0
        for _ in range(20):
            try:
                list(image)
            except SnapshotError:
                errors += 1
            assert not image.is_end_of_stream
        return errors

    assert snapshot.load(lambda log: log.overwrite(middle.position + 5, b"\0"), read) == [20]


def test_what_a_service_leaves_unread_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    snapshot = Snapshot(write_raw)
    assert snapshot.load(lambda log: None, lambda image: next(iter(image))) == [RAW[0]]
    assert "on_start returned at position" in caplog.text
    caplog.clear()
    assert snapshot.load(lambda log: None, iterate) == [RAW]
    assert "on_start returned" not in caplog.text


def test_position_and_end_count_what_was_delivered() -> None:
    snapshot = Snapshot(write_raw)
    ends = [frame.position for frame in snapshot.frames()]

    def read(image: Any) -> list[tuple[bytes, int, bool]]:
        return [(message, image.position, image.is_end_of_stream) for message in image]

    ((*before, last),) = snapshot.load(lambda log: None, read)
    assert [message for message, _, _ in (*before, last)] == RAW
    assert not any(is_end for _, _, is_end in before)
    assert last[2]
    assert all(position in ends for _, position, _ in before), "each is where the next message begins"
    assert [position for _, position, _ in before] == sorted({position for _, position, _ in before})
    assert last[1] > ends[-1]


@pytest.mark.parametrize("count", range(len(RAW) + 1))
def test_a_loop_that_is_left_is_continued_by_the_next(count: int) -> None:
    snapshot = Snapshot(write_raw)

    def read(image: Any) -> list[bytes]:
        found: list[bytes] = []
        for message in image:
            found.append(message)
            if len(found) == count:
                break
        while image.poll(found.append, 3):
            pass
        return [*found, *image]

    assert snapshot.load(lambda log: None, read) == [RAW]
