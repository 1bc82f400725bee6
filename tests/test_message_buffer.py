"""What a service keeps past its callback neither changes nor crashes: buffers, views, headers."""

from __future__ import annotations

import gc
import struct
from typing import Any

import pytest

from container.testing.memory.scripted_member import ScriptedMember
from container.transport.message_buffer import BufferClaim, Header, MessageBuffer

DATA = bytes(range(200))


def buffer_of(member: ScriptedMember, data: bytes, action: Any = lambda buffer: buffer) -> Any:
    """What ``action`` makes of the buffer of a message, inside the callback."""
    results = member.in_callback(lambda _session, _timestamp, buffer, _header: action(buffer))
    member.deliver(data)
    return results[0]


@pytest.fixture
def member() -> ScriptedMember:
    return ScriptedMember().lead()


def churn(member: ScriptedMember, count: int = 300) -> None:
    """Many messages that would overwrite what is reused."""
    member.deliver(*[bytes([index % 256]) * (index % 900) for index in range(count)])


@pytest.mark.parametrize("length", [0, 1, 200, 2_048, 2_049, 7_000])
def test_a_kept_buffer_does_not_change_with_the_next_messages(member: ScriptedMember, length: int) -> None:
    data = (DATA * 40)[:length]
    kept = buffer_of(member, data)
    churn(member)
    assert bytes(kept) == data
    assert len(kept) == length


@pytest.mark.parametrize("length", [0, 1, 200, 7_000])
def test_a_kept_view_does_not_change_with_the_next_messages(member: ScriptedMember, length: int) -> None:
    data = (DATA * 40)[:length]
    view = buffer_of(member, data, memoryview)
    churn(member)
    assert bytes(view) == data
    assert view.readonly


def test_a_slice_of_a_view_and_a_view_of_a_view_do_not_change(member: ScriptedMember) -> None:
    kept = buffer_of(member, DATA, lambda buffer: [memoryview(buffer)[10:20], memoryview(memoryview(buffer)).cast("B")])
    churn(member)
    assert bytes(kept[0]) == DATA[10:20]
    assert bytes(kept[1]) == DATA


def test_a_view_outlives_its_buffer_and_the_agent(member: ScriptedMember) -> None:
    view = buffer_of(member, DATA, memoryview)
    member.agent.close()
    member.driver.kill()
    del member
    gc.collect()
    assert bytes(view) == DATA


def test_a_kept_header_does_not_change(member: ScriptedMember) -> None:
    kept = member.in_callback(lambda _s, _t, _b, header: (header, header.position))
    member.deliver(DATA)
    churn(member)
    header, position = kept[0]
    assert header.position == position
    assert (header.flags, header.stream_id) == (0xC0, 100)
    assert header.frame_length == 64 + len(DATA)
    assert header.initial_term_id <= header.term_id


def test_a_buffer_in_a_closure_or_a_dict_is_kept_as_well(member: ScriptedMember) -> None:
    kept: dict[Any, Any] = {}
    buffer_of(member, DATA, lambda buffer: kept.update({"x": [buffer]}))
    closure = buffer_of(member, DATA[::-1], lambda buffer: lambda: bytes(buffer))
    churn(member)
    assert bytes(kept["x"][0]) == DATA
    assert closure() == DATA[::-1]


def test_a_buffer_that_is_not_kept_is_reused(member: ScriptedMember) -> None:
    ids = set()
    for index in range(50):
        ids.add(buffer_of(member, b"%d" % index, id))
    assert len(ids) == 1


def test_an_exception_that_holds_the_frame_keeps_the_buffer(member: ScriptedMember) -> None:
    def fails(_session: object, _timestamp: int, buffer: Any, _header: object) -> None:
        kept = memoryview(buffer)
        raise ValueError(kept)

    member.in_callback(fails)
    member.deliver(DATA)
    churn(member)
    assert bytes(member.errors[0].args[0]) == DATA


def test_a_thousand_kept_buffers_are_all_right(member: ScriptedMember) -> None:
    kept: list[Any] = []
    member.service.actions["on_session_message"] = lambda _s, _t, buffer, _h: kept.append(buffer)
    payloads = [bytes([index % 251]) * (index % 97) for index in range(1_000)]
    member.deliver(*payloads)
    assert [bytes(buffer) for buffer in kept] == payloads


def test_bytes_slices_and_indices(member: ScriptedMember) -> None:
    kept = buffer_of(member, DATA)
    assert bytes(kept) == kept[:] == DATA
    assert kept[5:9] == DATA[5:9]
    assert kept[::-3] == DATA[::-3]
    assert kept[190:500] == DATA[190:]
    assert kept[50:10] == b""
    assert (kept[0], kept[-1]) == (DATA[0], DATA[-1])
    for index in (200, -201, 2**40):
        with pytest.raises(IndexError, match="200 bytes"):
            kept[index]


@pytest.mark.parametrize(
    ("method", "code"),
    [
        ("int8", "b"),
        ("uint8", "B"),
        ("int16", "<h"),
        ("uint16", "<H"),
        ("int32", "<i"),
        ("uint32", "<I"),
        ("int64", "<q"),
        ("uint64", "<Q"),
        ("float64", "<d"),
    ],
)
def test_numbers_are_read_little_endian_and_within_bounds(member: ScriptedMember, method: str, code: str) -> None:
    data = bytes(reversed(range(56, 256)))
    kept = buffer_of(member, data)
    size = struct.calcsize(code)
    read = getattr(kept, f"get_{method}")
    assert read() == struct.unpack_from(code, data)[0]
    for offset in (0, 1, 7, 200 - size):
        assert read(offset) == struct.unpack_from(code, kept, offset)[0]
    for offset in (200 - size + 1, 200, -1, 2**62, -(2**62)):
        with pytest.raises(IndexError, match=f"{size} bytes at offset {offset} are outside"):
            read(offset)


def test_equality_and_hash(member: ScriptedMember) -> None:
    kept = buffer_of(member, DATA)
    assert kept == DATA
    assert kept == bytearray(DATA)
    assert kept != DATA[:-1]
    assert kept != "text"
    assert hash(kept) == hash(DATA)
    assert "200 bytes" in repr(kept)


def test_a_buffer_can_not_be_written(member: ScriptedMember) -> None:
    kept = buffer_of(member, DATA)
    with pytest.raises(TypeError):
        memoryview(kept)[0] = 1
    with pytest.raises(TypeError):
        kept[0] = 1


@pytest.mark.parametrize("kind", [MessageBuffer, Header])
def test_users_make_none_themselves(kind: type) -> None:
    with pytest.raises(TypeError, match="made by the container"):
        kind()


def test_an_unused_claim_is_empty() -> None:
    assert BufferClaim().length == 0
