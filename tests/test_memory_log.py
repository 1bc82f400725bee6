"""Raw frames in memory: what a log writes, and what an image delivers, as the C client does."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from container.errors import AeronError, ConfigurationError
from container.testing.memory import transport_probe as seam
from container.testing.memory.memory_log import Frame, MemoryImage, MemoryLog

TERM_LENGTH = 64 * 1024
MTU_LENGTH = 1408
HEADER = 32
MAX_PAYLOAD = MTU_LENGTH - HEADER
PADDING, DATA = 0, 1
ABORT, BREAK, COMMIT, CONTINUE = 1, 2, 3, 4
NEVER = 2**63 - 1


def aligned(length: int) -> int:
    return (length + 31) & ~31


def payloads(image: MemoryImage, limit: int = 1_000) -> list[bytes]:
    return [payload for payload, _header in seam.poll(image, limit)]


# What a log writes


def test_a_message_becomes_one_frame_with_the_fields_of_its_log() -> None:
    log = MemoryLog(session_id=-7, stream_id=103, initial_term_id=9)
    assert log.append(b"hello") == 64
    assert log.frames() == [
        Frame(0, 9, 0, flags=0xC0, type=DATA, session_id=-7, stream_id=103, reserved_value=0, payload=b"hello")
    ]


def test_an_empty_message_is_a_frame_of_a_header_alone() -> None:
    log = MemoryLog()
    assert log.append(b"") == 32
    assert [frame.payload for frame in log.frames()] == [b""]


@pytest.mark.parametrize(
    ("length", "lengths", "flags"),
    [
        (MAX_PAYLOAD, [MAX_PAYLOAD], [0xC0]),
        (MAX_PAYLOAD + 1, [MAX_PAYLOAD, 1], [0x80, 0x40]),
        (2 * MAX_PAYLOAD, [MAX_PAYLOAD, MAX_PAYLOAD], [0x80, 0x40]),
        (2 * MAX_PAYLOAD + 32, [MAX_PAYLOAD, MAX_PAYLOAD, 32], [0x80, 0, 0x40]),
        (TERM_LENGTH // 8, [MAX_PAYLOAD] * 5 + [1312], [0x80, 0, 0, 0, 0, 0x40]),
    ],
)
def test_a_long_message_is_cut_at_the_mtu(length: int, lengths: list[int], flags: list[int]) -> None:
    log = MemoryLog()
    message = bytes(index % 251 for index in range(length))
    end = log.append(message)
    assert [len(frame.payload) for frame in log.frames()] == lengths
    assert [frame.flags for frame in log.frames()] == flags
    assert end == sum(aligned(HEADER + size) for size in lengths)
    assert log.messages() == [message]


def test_a_message_longer_than_an_eighth_of_the_term_is_refused() -> None:
    log = MemoryLog()
    with pytest.raises(AeronError, match=f"{TERM_LENGTH // 8 + 1} bytes.*max_message_length={TERM_LENGTH // 8}"):
        log.append(bytes(TERM_LENGTH // 8 + 1))


def test_a_frame_longer_than_the_mtu_is_refused() -> None:
    with pytest.raises(AeronError, match=f"{MAX_PAYLOAD + 1} bytes.*max_payload_length={MAX_PAYLOAD}"):
        MemoryLog().append_frame(bytes(MAX_PAYLOAD + 1))


def test_padding_fills_a_term_that_a_message_does_not_fit() -> None:
    log = MemoryLog(start_position=TERM_LENGTH - 96)
    assert log.append(bytes(100)) == TERM_LENGTH + 160
    first, second = log.frames()
    assert (first.type, first.position, first.term_offset, len(first.payload)) == (
        PADDING,
        TERM_LENGTH - 96,
        65440,
        64,
    )
    assert (second.type, second.position, second.term_offset) == (DATA, TERM_LENGTH, 0)
    assert (first.term_id, second.term_id) == (0, 1)


def test_a_message_that_fits_exactly_needs_no_padding() -> None:
    log = MemoryLog(start_position=TERM_LENGTH - 64)
    assert log.append(bytes(32)) == TERM_LENGTH
    assert log.tail_position == TERM_LENGTH
    assert log.append(b"") == TERM_LENGTH + 32
    assert [frame.type for frame in log.frames()] == [DATA, DATA]


@pytest.mark.parametrize("length", [0, 1, 64, 65, MAX_PAYLOAD, 5_000])
@pytest.mark.parametrize("start", [0, TERM_LENGTH - 128, TERM_LENGTH - 96, TERM_LENGTH - 32])
def test_the_position_after_a_message_is_known_before(start: int, length: int) -> None:
    log = MemoryLog(start_position=start)
    assert log.position_after(length) == log.append(bytes(length))


@pytest.mark.parametrize("initial_term_id", [2**31 - 1, -1, -(2**31), 0])
def test_term_ids_wrap_around_and_positions_do_not(initial_term_id: int) -> None:
    log = MemoryLog(initial_term_id=initial_term_id)
    for _ in range(3):
        log.append(b"x")
        log.fill_term()
    term_ids = [frame.term_id for frame in log.frames() if frame.type == DATA]
    assert term_ids == [(initial_term_id + count + 2**31) % 2**32 - 2**31 for count in range(3)]
    image = MemoryImage(log)
    headers = [seam.poll(image)[0][1] for _ in range(3)]
    assert [header["position"] for header in headers] == [64, TERM_LENGTH + 64, 2 * TERM_LENGTH + 64]
    assert {header["initial_term_id"] for header in headers} == {initial_term_id}


def test_a_log_ends_at_its_greatest_position() -> None:
    greatest = TERM_LENGTH << 31
    log = MemoryLog(start_position=greatest - 64)
    assert log.max_possible_position == greatest
    assert log.append(bytes(32)) == greatest
    for _ in range(2):
        with pytest.raises(AeronError, match=str(greatest)):
            log.append(b"")
    assert log.tail_position == greatest


def test_a_term_can_be_filled_and_a_full_one_is_left_alone() -> None:
    log = MemoryLog()
    log.fill_term()
    assert log.frames() == []
    log.append(b"x")
    log.fill_term()
    log.fill_term()
    assert log.tail_position == TERM_LENGTH
    assert [(frame.type, len(frame.payload)) for frame in log.frames()] == [
        (DATA, 1),
        (PADDING, TERM_LENGTH - 96),
    ]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("term_length", 32 * 1024),
        ("term_length", 65_537),
        ("term_length", 0),
        ("mtu_length", 32),
        ("mtu_length", 1400),
        ("mtu_length", 65_536),
        ("start_position", -32),
        ("start_position", 33),
        ("start_position", TERM_LENGTH << 31),
    ],
)
def test_impossible_settings_are_refused_by_name_and_value(setting: str, value: int) -> None:
    with pytest.raises(ConfigurationError, match=rf"{setting}.*{value}"):
        MemoryLog(**{setting: value})


def test_a_copy_has_other_ids_and_the_same_positions() -> None:
    log = MemoryLog(session_id=1, stream_id=2, initial_term_id=-3, start_position=TERM_LENGTH - 1024)
    for index in range(60):
        log.append(bytes([index]) * (index * 40))
    log.append_frame(b"!", flags=0x80, reserved_value=77)
    copy = log.copy(session_id=5, stream_id=6)
    assert [frame._replace(session_id=1, stream_id=2) for frame in copy.frames()] == log.frames()
    assert {(frame.session_id, frame.stream_id) for frame in copy.frames()} == {(5, 6)}
    assert copy.end_of_stream_position == copy.tail_position == log.tail_position
    assert log.end_of_stream_position == NEVER


def test_a_copy_can_end_early() -> None:
    log = MemoryLog()
    ends = [log.append(bytes([index])) for index in range(5)]
    copy = log.copy(session_id=0, stream_id=0, end_position=ends[2])
    assert copy.messages() == [b"\0", b"\1", b"\2"] == log.messages(ends[2])
    assert copy.end_of_stream_position == ends[2]


def test_messages_leave_out_what_is_not_whole() -> None:
    log = MemoryLog()
    log.append_frame(b"begin", flags=0x80)
    log.append(b"whole")
    log.append_frame(b"begin", flags=0x80)
    assert log.messages() == [b"whole"]


# What an image delivers


def test_an_image_delivers_payload_and_header_of_each_frame() -> None:
    log = MemoryLog(session_id=3, stream_id=4, initial_term_id=5, start_position=TERM_LENGTH + 64)
    log.append_frame(b"abc", reserved_value=-9)
    image = MemoryImage(log)
    assert image.join_position == seam.position(image) == TERM_LENGTH + 64
    assert seam.poll(image) == [
        (
            b"abc",
            {
                "position": TERM_LENGTH + 128,
                "reserved_value": -9,
                "frame_length": 35,
                "term_offset": 64,
                "session_id": 3,
                "stream_id": 4,
                "term_id": 6,
                "initial_term_id": 5,
                "position_bits_to_shift": 16,
                "flags": 0xC0,
            },
        )
    ]
    assert seam.position(image) == TERM_LENGTH + 128
    assert seam.poll(image) == []


def test_a_poll_delivers_at_most_the_limit() -> None:
    log = MemoryLog()
    for index in range(5):
        log.append(bytes([index]))
    image = MemoryImage(log)
    assert [len(seam.poll(image, limit)) for limit in (0, -1, 2, 2, 2)] == [0, 0, 2, 2, 1]


def test_a_poll_does_not_cross_the_end_of_a_term() -> None:
    log = MemoryLog(start_position=TERM_LENGTH - 64)
    for message in (b"a", b"b"):
        log.append(message)
    image = MemoryImage(log)
    assert payloads(image) == [b"a"]
    assert seam.position(image) == TERM_LENGTH
    assert payloads(image) == [b"b"]


def test_padding_is_passed_over_and_moves_the_position() -> None:
    log = MemoryLog(start_position=TERM_LENGTH - 96)
    log.append(bytes(100))
    image = MemoryImage(log)
    assert payloads(image) == []
    assert seam.position(image) == TERM_LENGTH
    assert payloads(image) == [bytes(100)]


def test_padding_in_the_middle_of_a_term_does_not_end_the_poll() -> None:
    log = MemoryLog()
    log.append(b"a")
    log.append_frame(bytes(100), padding=True)
    log.append(b"b")
    assert payloads(MemoryImage(log), limit=2) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("limit_position", "delivered"),
    [(-1, 0), (0, 0), (1, 1), (63, 1), (64, 1), (65, 2), (128, 2), (129, 3), (NEVER, 3)],
)
def test_a_bounded_poll_delivers_frames_that_begin_below_the_limit(limit_position: int, delivered: int) -> None:
    log = MemoryLog()
    for index in range(3):
        log.append(bytes([index]) * 32)
    image = MemoryImage(log)
    assert len(seam.poll(image, 10, limit_position)) == delivered
    assert seam.position(image) == delivered * 64


def test_a_bounded_poll_in_a_later_term_counts_positions_not_offsets() -> None:
    start = 5 * TERM_LENGTH + 64
    log = MemoryLog(start_position=start)
    for index in range(4):
        log.append(bytes([index]))
    image = MemoryImage(log)
    assert [payload for payload, _ in seam.poll(image, 10, start + 65)] == [b"\0", b"\1"]
    assert seam.poll(image, 10, start + 128) == []
    assert seam.poll(image, 10, start - TERM_LENGTH) == []


def test_abort_leaves_the_frame() -> None:
    log = MemoryLog()
    log.append(b"a")
    log.append(b"b")
    image = MemoryImage(log)
    assert seam.poll(image, action=lambda payload, _: ABORT if payload == b"b" else None) != []
    assert seam.position(image) == 64
    assert payloads(image) == [b"b"]


def test_break_takes_the_frame_and_ends_the_poll() -> None:
    log = MemoryLog()
    for message in (b"a", b"b", b"c"):
        log.append(message)
    image = MemoryImage(log)
    assert len(seam.poll(image, action=lambda payload, _: BREAK if payload == b"b" else None)) == 2
    assert payloads(image) == [b"c"]


def test_commit_publishes_the_position_at_once_and_continue_at_the_end() -> None:
    log = MemoryLog()
    for _ in range(4):
        log.append(b"")
    image = MemoryImage(log)
    seen: list[int] = []

    def action(_payload: bytes, header: seam.HeaderFields) -> int:
        seen.append(seam.position(image))
        return COMMIT if header["position"] == 64 else CONTINUE

    seam.poll(image, action=action)
    assert seen == [0, 0, 64, 64]
    assert seam.position(image) == 128


def test_an_exception_ends_the_poll_with_the_frame_consumed() -> None:
    log = MemoryLog()
    for message in (b"a", b"b", b"c"):
        log.append(message)
    image = MemoryImage(log)

    def action(payload: bytes, _header: seam.HeaderFields) -> int:
        if payload == b"b":
            raise LookupError("scripted")
        return CONTINUE

    with pytest.raises(LookupError, match="scripted"):
        seam.poll(image, action=action)
    assert seam.position(image) == 128
    assert payloads(image) == [b"c"]


@pytest.mark.parametrize("length", [1, 31, TERM_LENGTH])
def test_an_impossible_frame_length_is_refused_with_its_position(length: int) -> None:
    log = MemoryLog(session_id=8, stream_id=9)
    log.append(b"a")
    log.append_frame(b"b", frame_length=length)
    image = MemoryImage(log)
    with pytest.raises(AeronError, match=f"length {length} at position 64: session 8, stream 9"):
        seam.poll(image)
    assert seam.position(image) == 64
    assert [frame.payload for frame in log.frames()] == [b"a"]


def test_an_image_knows_the_end_of_the_stream_before_it_gets_there() -> None:
    log = MemoryLog()
    log.append(b"a")
    image = MemoryImage(log)
    assert seam.end_of_stream_position(image) == NEVER
    log.end()
    assert seam.end_of_stream_position(image) == 64
    assert not seam.is_end_of_stream(image)
    seam.poll(image)
    assert seam.is_end_of_stream(image)
    assert not seam.is_closed(image)


@pytest.mark.parametrize("position", [-32, 32, 96, 1])
def test_an_image_joins_only_where_frames_can_begin(position: int) -> None:
    log = MemoryLog(start_position=64)
    with pytest.raises(ConfigurationError, match=rf"join_position.*64 to 64.*{position}"):
        MemoryImage(log, position)


def test_an_image_can_join_in_the_middle() -> None:
    log = MemoryLog()
    first = log.append(b"a")
    log.append(b"b")
    assert payloads(MemoryImage(log, first)) == [b"b"]


# The same as a plain model of aeron_image_bounded_controlled_poll


@dataclass
class ModelImage:
    """aeron_image.c, in the plainest words."""

    frames: list[Frame]
    position: int
    published: list[int] = field(default_factory=list)

    def poll(self, actions: dict[int, int], limit_position: int, fragment_limit: int) -> list[int]:
        delivered: list[int] = []
        term_end = (self.position // TERM_LENGTH + 1) * TERM_LENGTH
        position = self.position
        while len(delivered) < fragment_limit and position < min(limit_position, term_end):
            frame = next((frame for frame in self.frames if frame.position == position), None)
            if frame is None:
                break
            end = position + aligned(HEADER + len(frame.payload))
            if frame.type == PADDING:
                position = end
                continue
            action = actions.get(position, CONTINUE)
            if action == ABORT:
                break
            delivered.append(position)
            position = end
            if action == BREAK:
                break
        self.position = position
        return delivered


@st.composite
def logs(draw: st.DrawFn) -> MemoryLog:
    start = draw(st.sampled_from([0, 96, TERM_LENGTH - 32, TERM_LENGTH - 4_096, 7 * TERM_LENGTH + 64]))
    log = MemoryLog(start_position=start, initial_term_id=draw(st.sampled_from([0, -1, 2**31 - 1])))
    for length in draw(st.lists(st.integers(0, 8 * 1024), max_size=25)):
        if length % 7 == 0:
            log.append_frame(bytes(length % 1_000), padding=True)
        else:
            log.append(bytes(length))
    return log


@settings(max_examples=150)
@given(log=logs(), data=st.data())
def test_an_image_polls_like_the_model(log: MemoryLog, data: st.DataObject) -> None:
    frames = log.frames()
    ends = [log.start_position, *(frame.position + aligned(HEADER + len(frame.payload)) for frame in frames)]
    actions = data.draw(
        st.dictionaries(
            st.sampled_from([frame.position for frame in frames] or [0]),
            st.sampled_from([ABORT, BREAK, COMMIT, CONTINUE]),
            max_size=6,
        )
    )
    model, image = ModelImage(frames, log.start_position), MemoryImage(log)
    for _ in range(data.draw(st.integers(1, 12))):
        limit_position = data.draw(st.sampled_from(ends)) + data.draw(st.sampled_from([-32, -1, 0, 1, NEVER // 2]))
        fragment_limit = data.draw(st.integers(0, 8))
        expected = model.poll(actions, limit_position, fragment_limit)
        got = seam.poll(
            image,
            fragment_limit,
            limit_position,
            lambda _, header: actions.get(header["position"] - aligned(header["frame_length"]), CONTINUE),
        )
        assert [header["position"] - aligned(header["frame_length"]) for _, header in got] == expected
        assert seam.position(image) == model.position
