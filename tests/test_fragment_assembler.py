"""Reassembly of messages: upstream's rules, and random cuts, losses, interleavings and aborts against a plain model."""

from __future__ import annotations

import contextlib
import resource
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from container.testing.memory import transport_probe as seam
from container.testing.memory.manual_time import ManualClock
from container.testing.memory.memory_log import MemoryImage, MemoryLog
from container.testing.memory.memory_transport import MemoryDriver
from container.transport.fragment_assembler import BytesAssembler, FragmentAssembler, SessionFragmentAssembler
from container.transport.streams import FragmentHandler

BEGIN, MIDDLE, END, WHOLE = 0x80, 0, 0x40, 0xC0
ABORT, BREAK, COMMIT, CONTINUE = 1, 2, 3, 4
MAX_PAYLOAD = 1376


def aligned(length: int) -> int:
    return (length + 31) & ~31


@dataclass
class Wire:
    """Puts fragments one after the other, as they lie in a term."""

    handler: FragmentHandler
    term_offset: int = 64
    term_id: int = 3
    session_id: int = 1

    def send(self, payload: bytes, flags: int, *, lost: bool = False, reserved_value: int = 0) -> int:
        length = 32 + len(payload)
        offset = self.term_offset
        self.term_offset += aligned(length)
        if lost:
            return CONTINUE
        return seam.on_fragment(
            self.handler,
            payload,
            position=self.term_offset,
            frame_length=length,
            term_offset=offset,
            term_id=self.term_id,
            session_id=self.session_id,
            flags=flags,
            reserved_value=reserved_value,
        )


@pytest.fixture
def collector() -> seam.CollectingHandler:
    return seam.CollectingHandler()


def assembled(collector: seam.CollectingHandler) -> list[bytes]:
    return [payload for payload, _ in collector.messages]


@pytest.fixture(params=[FragmentAssembler, SessionFragmentAssembler])
def wire(request: pytest.FixtureRequest, collector: seam.CollectingHandler) -> Wire:
    return Wire(request.param(collector))


def test_a_whole_frame_goes_straight_through(wire: Wire, collector: seam.CollectingHandler) -> None:
    assert wire.send(b"x", WHOLE, reserved_value=7) == CONTINUE
    [(payload, header)] = collector.messages
    assert payload == b"x"
    assert header == {
        "position": 128,
        "reserved_value": 7,
        "frame_length": 33,
        "term_offset": 64,
        "session_id": 1,
        "stream_id": 0,
        "term_id": 3,
        "initial_term_id": 0,
        "position_bits_to_shift": 16,
        "flags": WHOLE,
    }


def test_a_message_is_delivered_at_its_last_fragment(wire: Wire, collector: seam.CollectingHandler) -> None:
    wire.send(b"abc", BEGIN, reserved_value=7)
    wire.send(b"defgh", MIDDLE)
    assert collector.messages == []
    wire.send(b"i", END, reserved_value=8)
    [(payload, header)] = collector.messages
    assert payload == b"abcdefghi"
    assert (header["position"], header["term_offset"], header["frame_length"]) == (256, 64, 32 + 9)
    assert (header["flags"], header["reserved_value"]) == (WHOLE, 7)


def test_what_continues_no_message_is_dropped_at_the_begin_of_a_term(
    wire: Wire, collector: seam.CollectingHandler
) -> None:
    wire.term_offset = wire.term_id = 0
    assert wire.send(b"no begin", MIDDLE) == CONTINUE
    assert wire.send(b"and so no end", END) == CONTINUE
    assert collector.messages == []


def test_fragments_may_be_empty(wire: Wire, collector: seam.CollectingHandler) -> None:
    wire.send(b"", BEGIN)
    wire.send(b"", MIDDLE)
    wire.send(b"", END)
    assert assembled(collector) == [b""]


@pytest.mark.parametrize("lost", [0, 1, 2, 3])
def test_a_message_with_a_lost_fragment_is_dropped(wire: Wire, collector: seam.CollectingHandler, lost: int) -> None:
    for index, flags in enumerate([BEGIN, MIDDLE, MIDDLE, END]):
        wire.send(bytes([index]), flags, lost=index == lost)
    for flags in (BEGIN, END):
        wire.send(b"next", flags)
    assert assembled(collector) == [b"nextnext"]


def test_a_whole_frame_between_two_fragments_goes_through(wire: Wire, collector: seam.CollectingHandler) -> None:
    wire.send(b"a", BEGIN)
    wire.send(b"whole", WHOLE)
    wire.send(b"b", END)
    assert assembled(collector) == [b"whole"]


def test_a_message_longer_than_any_publication_sends_is_dropped(wire: Wire, collector: seam.CollectingHandler) -> None:
    part = bytes(1 << 20)
    for flags in (BEGIN, *[MIDDLE] * 15, END):
        assert wire.send(part, flags) == CONTINUE
    assert assembled(collector) == []
    for flags in (BEGIN, *[MIDDLE] * 14, END):
        wire.send(part, flags)
    assert [len(message) for message in assembled(collector)] == [16 << 20]


def test_a_second_begin_starts_afresh(wire: Wire, collector: seam.CollectingHandler) -> None:
    wire.send(b"a", BEGIN)
    wire.send(b"b", BEGIN)
    wire.send(b"c", END)
    assert assembled(collector) == [b"bc"]


def test_the_same_offset_in_another_term_does_not_continue_a_message(
    wire: Wire, collector: seam.CollectingHandler
) -> None:
    wire.send(b"a", BEGIN)
    wire.term_id += 1
    wire.send(b"b", END)
    wire.send(b"c", WHOLE)
    assert assembled(collector) == [b"c"]


def test_after_a_loss_a_fragment_that_comes_late_continues_nothing(
    wire: Wire, collector: seam.CollectingHandler
) -> None:
    wire.send(b"a", BEGIN)
    offset = wire.term_offset
    wire.send(b"b", MIDDLE, lost=True)
    wire.send(b"c", END)
    wire.term_offset = offset
    assert wire.send(b"b", END) == CONTINUE
    assert assembled(collector) == []


@pytest.mark.parametrize("flags", [MIDDLE, END])
def test_a_stream_that_begins_inside_a_message_waits_for_the_next(
    wire: Wire, collector: seam.CollectingHandler, flags: int
) -> None:
    assert wire.send(b"a", flags) == CONTINUE
    wire.send(b"b", END)
    wire.send(b"c", BEGIN)
    wire.send(b"d", END)
    assert assembled(collector) == [b"cd"]


def test_sessions_do_not_mix(collector: seam.CollectingHandler) -> None:
    assembler = SessionFragmentAssembler(collector)
    wires = [Wire(assembler, session_id=session_id) for session_id in (1, -2)]
    for payload, flags in ((b"a", BEGIN), (b"b", MIDDLE), (b"c", END)):
        for wire in wires:
            wire.send(payload * (1 if wire.session_id == 1 else 2), flags)
    assert assembled(collector) == [b"abc", b"aabbcc"]
    assert [header["session_id"] for _, header in collector.messages] == [1, -2]


@pytest.mark.parametrize("assembler", [FragmentAssembler, SessionFragmentAssembler])
def test_an_aborted_last_fragment_comes_again(
    assembler: type[FragmentAssembler | SessionFragmentAssembler],
) -> None:
    answers = iter([ABORT, ABORT, COMMIT])
    collector = seam.CollectingHandler(lambda _payload, _header: next(answers))
    wire = Wire(assembler(collector))
    wire.send(b"a", BEGIN)
    offset = wire.term_offset
    assert wire.send(b"b", END) == ABORT
    wire.term_offset = offset
    assert wire.send(b"b", END) == ABORT
    wire.term_offset = offset
    assert wire.send(b"b", END) == COMMIT
    assert assembled(collector) == [b"ab"]


@pytest.mark.parametrize("action", [BREAK, COMMIT, CONTINUE])
def test_the_action_of_the_receiver_is_handed_on(action: int) -> None:
    wire = Wire(FragmentAssembler(seam.CollectingHandler(action)))
    assert wire.send(b"a", WHOLE) == action
    assert wire.send(b"a", BEGIN) == CONTINUE
    assert wire.send(b"b", END) == action


def test_an_exception_of_the_receiver_drops_the_message() -> None:
    def refuse(_payload: bytes, _header: seam.HeaderFields) -> int:
        raise LookupError("scripted")

    collector = seam.CollectingHandler(refuse)
    wire = Wire(FragmentAssembler(collector))
    wire.send(b"a", BEGIN)
    with pytest.raises(LookupError):
        wire.send(b"b", END)
    assert wire.send(b"c", END) == CONTINUE
    with pytest.raises(LookupError):
        wire.send(b"d", WHOLE)


@pytest.mark.parametrize("assembler", [FragmentAssembler, SessionFragmentAssembler])
def test_an_assembler_needs_a_receiver(assembler: type[FragmentAssembler | SessionFragmentAssembler]) -> None:
    with pytest.raises(TypeError):
        assembler(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [0, 1, MAX_PAYLOAD, MAX_PAYLOAD + 1, 100_000, 16 * 1024 * 1024])
def test_messages_of_any_length_are_put_together(length: int, collector: seam.CollectingHandler) -> None:
    log = MemoryLog(term_length=256 * 1024 * 1024)
    message = bytes(range(256)) * (length // 256) + bytes(length % 256)
    log.append(message)
    log.append(b"after")
    seam.poll_with(MemoryImage(log), FragmentAssembler(collector), 20_000)
    assert assembled(collector) == [message, b"after"]


def test_a_message_that_crosses_a_poll_limit_is_delivered_by_a_later_poll(
    collector: seam.CollectingHandler,
) -> None:
    log = MemoryLog()
    end = log.append(bytes(5 * MAX_PAYLOAD))
    image, assembler = MemoryImage(log), FragmentAssembler(collector)
    polls = [seam.poll_with(image, assembler, 2, limit_position) for limit_position in (1, 1409, end, end, end)]
    assert polls == [1, 1, 2, 1, 0]
    assert [len(payload) for payload in assembled(collector)] == [5 * MAX_PAYLOAD]
    assert seam.position(image) == end == collector.messages[0][1]["position"]


# Straight into bytes


def test_bytes_that_somebody_keeps_stay_as_they_are() -> None:
    kept: list[bytes] = []
    wire = Wire(BytesAssembler(kept.append))
    sent = [bytes([number]) * length for number, length in enumerate([10, 9_000, 9_000, 20_000, 1, 30, 9_001, 5_000])]
    for message in sent:
        half = len(message) // 2
        wire.send(message[:half], BEGIN)
        wire.send(message[half:], END)
        wire.send(b"whole", WHOLE)
    assert kept == [part for message in sent for part in (message, b"whole")]
    assert all(type(message) is bytes for message in kept)
    assert len({hash(message) for message in kept}) == len(sent) + 1


@contextlib.contextmanager
def no_memory() -> Iterator[None]:
    """The process gets no more memory than it has."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def all_that_is_free() -> list[bytearray]:
    """What the allocator has kept of memory that was given back, in pieces of 1 MiB."""
    hoard: list[bytearray] = []
    with contextlib.suppress(MemoryError):
        while True:
            hoard.append(bytearray(1 << 20))
    return hoard


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere the limit does not hold")
@pytest.mark.parametrize("begun", [b"", b"begun"])
@pytest.mark.parametrize("kind", [FragmentAssembler, SessionFragmentAssembler, BytesAssembler])
def test_a_message_for_which_there_is_no_memory_is_dropped_and_no_other(kind: Any, begun: bytes) -> None:
    collector = seam.CollectingHandler()
    kept: list[bytes] = []
    wire = Wire(kind(kept.append if kind is BytesAssembler else collector))
    # A message may grow to 16 MiB, and no longer.
    huge = bytes((15 if begun else 256) * 1024 * 1024)
    if begun:
        wire.send(begun, BEGIN)
    with no_memory():
        hoard = all_that_is_free()
        with pytest.raises(MemoryError, match="no memory to reassemble a message of more than"):
            wire.send(huge, MIDDLE if begun else BEGIN)
        del hoard
    assert wire.send(b"end", END) == CONTINUE
    wire.send(b"ne", BEGIN)
    wire.send(b"xt", END)
    assert kept + assembled(collector) == [b"next"]


@pytest.mark.parametrize("length", [0, 1, MAX_PAYLOAD, MAX_PAYLOAD + 1, 100_000, 16 * 1024 * 1024])
def test_messages_of_any_length_become_bytes(length: int) -> None:
    log = MemoryLog(term_length=256 * 1024 * 1024)
    message = bytes(range(256)) * (length // 256) + bytes(length % 256)
    for payload in (message, b"between", message):
        log.append(payload)
    kept: list[bytes] = []
    seam.poll_with(MemoryImage(log), BytesAssembler(kept.append), 30_000)
    assert kept == [message, b"between", message]


def test_empty_fragments_become_empty_bytes() -> None:
    kept: list[bytes] = []
    wire = Wire(BytesAssembler(kept.append))
    for flags in (BEGIN, MIDDLE, END, BEGIN, END):
        wire.send(b"", flags)
    assert kept == [b"", b""]


def test_an_exception_of_the_callback_drops_the_message_and_no_other() -> None:
    kept: list[bytes] = []

    def refuse(message: bytes) -> None:
        kept.append(message)
        raise LookupError("scripted")

    assembler = BytesAssembler(refuse)
    wire = Wire(assembler)
    wire.send(b"a", BEGIN)
    with pytest.raises(LookupError):
        wire.send(b"b", END)
    with pytest.raises(LookupError):
        wire.send(b"whole", WHOLE)
    assembler.callback = kept.append
    assert wire.send(b"c", END) == CONTINUE
    wire.send(b"x", BEGIN)
    offset, assembler.callback = wire.term_offset, refuse
    with pytest.raises(LookupError):
        wire.send(b"y", END)
    wire.term_offset, assembler.callback = offset, kept.append
    assert wire.send(b"y", END) == CONTINUE, "it does not come again"
    wire.send(b"d", BEGIN)
    wire.send(b"e", END)
    assert kept == [b"ab", b"whole", b"xy", b"de"]


def test_a_message_that_is_dropped_half_way_leaves_nothing_behind() -> None:
    kept: list[bytes] = []
    wire = Wire(BytesAssembler(kept.append))
    wire.send(bytes(8_000), BEGIN)
    wire.send(b"lost", MIDDLE, lost=True)
    wire.send(b"end", END)
    wire.send(b"a", BEGIN)
    wire.send(b"b", END)
    wire.send(bytes(8_000), BEGIN)  # and its memory goes with the assembler
    assert kept == [b"ab"]


# Against a model that keeps whole messages in its hands


@st.composite
def cut_messages(draw: st.DrawFn) -> list[list[bytes]]:
    """Messages, each as its fragments."""
    messages: list[list[bytes]] = []
    for index in range(draw(st.integers(1, 12))):
        lengths = draw(st.lists(st.integers(0, 200), min_size=1, max_size=6))
        messages.append([bytes([(index * 7 + part) % 256]) * length for part, length in enumerate(lengths)])
    return messages


def flags_of(part: int, parts: int) -> int:
    return (BEGIN if part == 0 else 0) | (END if part == parts - 1 else 0)


@settings(max_examples=200)
@given(messages=cut_messages(), data=st.data())
def test_exactly_the_messages_without_a_loss_arrive(messages: list[list[bytes]], data: st.DataObject) -> None:
    collector = seam.CollectingHandler()
    kept: list[bytes] = []
    wires = [Wire(FragmentAssembler(collector)), Wire(BytesAssembler(kept.append))]
    expected: list[bytes] = []
    for parts in messages:
        lost = data.draw(st.sets(st.integers(0, len(parts) - 1), max_size=2)) if data.draw(st.booleans()) else set()
        for index, part in enumerate(parts):
            for wire in wires:
                wire.send(part, flags_of(index, len(parts)), lost=index in lost)
        if not lost:
            expected.append(b"".join(parts))
    assert assembled(collector) == kept == expected


@settings(max_examples=200)
@given(messages=cut_messages(), limits=st.lists(st.integers(1, 5), min_size=1), aborts=st.sets(st.integers(0, 40)))
def test_aborts_and_poll_limits_change_nothing(
    messages: list[list[bytes]], limits: list[int], aborts: set[int]
) -> None:
    log = MemoryLog(start_position=65_536 - 512)
    for parts in messages:
        for index, part in enumerate(parts):
            log.append_frame(part, flags=flags_of(index, len(parts)))
    deliveries = iter(range(1_000))
    collector = seam.CollectingHandler(lambda _payload, _header: ABORT if next(deliveries) in aborts else CONTINUE)
    image, assembler = MemoryImage(log), FragmentAssembler(collector)
    for turn in range(2_000):
        if seam.position(image) == log.tail_position:
            break
        seam.poll_with(image, assembler, limits[turn % len(limits)])
    # A message that lies across the end of a term is none: the publisher never writes one.
    frames = log.frames()
    first_term = {frame.term_id for frame in frames[:1]}
    crossing = sum(1 for frame in frames if frame.term_id in first_term and frame.type == 1)
    expected, count = [], 0
    for parts in messages:
        count += len(parts)
        if not count - len(parts) < crossing < count or crossing == len(frames):
            expected.append(b"".join(parts))
    assert assembled(collector) == expected


@settings(max_examples=50)
@given(data=st.data())
def test_interleaved_sessions_are_told_apart(data: st.DataObject) -> None:
    collector = seam.CollectingHandler()
    assembler = SessionFragmentAssembler(collector)
    senders = {
        session_id: [
            (part, flags_of(index, len(parts)))
            for parts in data.draw(cut_messages())
            for index, part in enumerate(parts)
        ]
        for session_id in (-1, 0, 7)
    }
    wires = {session_id: Wire(assembler, session_id=session_id) for session_id in senders}
    expected = {session_id: b"".join(part for part, _ in fragments) for session_id, fragments in senders.items()}
    while any(senders.values()):
        session_id = data.draw(st.sampled_from([key for key, fragments in senders.items() if fragments]))
        wires[session_id].send(*senders[session_id].pop(0))
    for session_id, everything in expected.items():
        got = [payload for payload, header in collector.messages if header["session_id"] == session_id]
        assert b"".join(got) == everything


def test_what_a_publisher_began_to_send_is_forgotten_once_it_is_gone(collector: seam.CollectingHandler) -> None:
    client = MemoryDriver(ManualClock()).connect("client")
    subscription = seam.add_subscription(client, "aeron:ipc", 5)
    there = seam.add_publication(client, "aeron:ipc", 5, exclusive=True).session_id
    assembler = SessionFragmentAssembler(collector)
    for session_id in (there, there + 1):
        Wire(assembler, session_id=session_id).send(b"half", BEGIN)
    assert seam.forget_lost(assembler, subscription) == [there]


@settings(max_examples=300)
@given(
    fragments=st.lists(
        st.tuples(
            st.binary(max_size=80),
            st.sampled_from([BEGIN, MIDDLE, END, WHOLE, 0x3F, 0x20]),
            st.integers(0, 3).map(lambda step: step * 32),
            st.integers(-1, 1),
            st.integers(0, 1),
        ),
        max_size=40,
    )
)
def test_no_sequence_of_fragments_delivers_what_was_not_sent_in_a_row(
    fragments: list[tuple[bytes, int, int, int, int]],
) -> None:
    collector = seam.CollectingHandler()
    assembler = SessionFragmentAssembler(collector)
    sent = b""
    for payload, flags, term_offset, term_id, session_id in fragments:
        seam.on_fragment(
            assembler, payload, flags=flags, term_offset=term_offset, term_id=term_id, session_id=session_id
        )
        sent += payload
    assert sum(len(payload) for payload, _ in collector.messages) <= len(sent)
