"""What an archive sends to clients: Java's bytes, texts of errors that are cut, and what becomes of a send."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from container.api import ADMIN_ACTION, BACK_PRESSURED, CLOSED, MAX_POSITION_EXCEEDED, NOT_CONNECTED
from container.archive.server.sessions import responses
from container.archive.server.store.catalog import Catalog
from container.codecs import messages as codecs
from container.errors import AeronError, ArchiveError
from container.files.catalog import RecordingDescriptor
from container.storage.file_storage import FileStorage
from container.testing.memory import transport_probe as seam
from container.testing.memory.memory_transport import MemoryDriver
from container.transport.streams import Publication, Subscription
from tests.golden.vectors import load

CHANNEL, STREAM_ID = "aeron:ipc?term-length=64k", 20
NOT_SENT, SENT = 0, 1
LONGEST = 64 * 1024 // 8
VERSION = 68_608
GOLDEN = load("archive")


class Stream:
    """A response publication and its subscriber."""

    def __init__(self) -> None:
        self.driver = MemoryDriver()
        self.client = self.driver.connect("client")
        self.subscription: Subscription = seam.add_subscription(self.client, CHANNEL, STREAM_ID)
        self.publication: Publication = seam.add_publication(self.client, CHANNEL, STREAM_ID, exclusive=True)
        seam.invoke(self.client)

    def results(self, *results: int | None) -> None:
        self.driver.publication_results(CHANNEL, STREAM_ID, results)

    def received(self) -> list[bytes]:
        return [data for data, _ in seam.poll(self.subscription, 100)]


@pytest.fixture
def stream() -> Stream:
    return Stream()


def response(text: str = "", max_length: int = LONGEST) -> bytes:
    return responses.control_response(1, 2, 3, 1, text, max_length)


def golden(message: str) -> list[tuple[dict[str, Any], bytes]]:
    """Fields and bytes of Java's messages of that name in which everything has a value."""
    vectors = [vector for vector in GOLDEN.vectors if vector.message == message]
    return [(dict(each.fields), each.encoded) for each in vectors if None not in each.fields.values()]


# Messages


def test_a_control_response_is_javas_but_for_the_version_which_is_ours() -> None:
    for fields, encoded in golden("ControlResponse"):
        expected = bytearray(encoded)
        struct.pack_into("<i", expected, 36, VERSION)
        text = fields["error_message"].decode()
        ids = (fields["control_session_id"], fields["correlation_id"], fields["relevant_id"])
        assert responses.control_response(*ids, fields["code"], text, 1 << 20) == expected


def test_a_response_without_a_text_has_44_bytes() -> None:
    assert len(response()) == 44
    assert codecs.decode("archive", response())[1] == {
        "control_session_id": 1,
        "correlation_id": 2,
        "relevant_id": 3,
        "code": 1,
        "version": VERSION,
        "error_message": b"",
    }


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0, b""),
        (LONGEST - 44, b"x" * (LONGEST - 44)),
        (LONGEST - 43, b"x" * (LONGEST - 47) + b"..."),
        (10_000_000, b"x" * (LONGEST - 47) + b"..."),
    ],
)
def test_the_text_of_an_error_is_cut_where_the_message_would_be_too_long(length: int, expected: bytes) -> None:
    message = response("x" * length)
    assert len(message) == 44 + len(expected)
    assert codecs.decode("archive", message)[1]["error_message"] == expected


@pytest.mark.parametrize(
    ("room", "expected"), [(-50, b""), (0, b""), (1, b"."), (3, b"..."), (4, b"l..."), (9, b"long text")]
)
def test_a_text_without_room(room: int, expected: bytes) -> None:
    assert codecs.decode("archive", response("long text", 44 + room))[1]["error_message"] == expected


def test_what_is_not_ascii_in_a_text_becomes_question_marks() -> None:
    message = response("f\u00fcr \U0001f600 \ud800\n")
    assert codecs.decode("archive", message)[1]["error_message"] == b"f?r ? ?\n"
    assert len(response("\u20ac" * LONGEST)) == LONGEST


def test_a_challenge_is_javas_with_the_version_null() -> None:
    for fields, encoded in golden("Challenge"):
        expected = bytearray(encoded)
        struct.pack_into("<i", expected, 24, 0)
        ids = (fields["control_session_id"], fields["correlation_id"])
        assert responses.challenge(*ids, fields["encoded_challenge"]) == expected
    assert codecs.decode("archive", responses.challenge(1, 2, b"word?"))[1]["version"] is None


def test_signals_pings_and_subscription_descriptors_are_javas() -> None:
    for fields, encoded in golden("RecordingSignalEvent"):
        assert responses.recording_signal(*fields.values()) == encoded
    for fields, encoded in golden("Ping"):
        assert responses.ping(*fields.values()) == encoded
    for fields, encoded in golden("RecordingSubscriptionDescriptor"):
        fields["stripped_channel"] = fields["stripped_channel"].decode()
        assert responses.subscription_descriptor(*fields.values()) == encoded


# Descriptors


def descriptor(channel: str = "aeron:ipc?alias=log") -> RecordingDescriptor:
    return RecordingDescriptor(
        control_session_id=0,
        correlation_id=0,
        recording_id=0,
        start_timestamp=1_700_000_000_000,
        stop_timestamp=-1,
        start_position=1024,
        stop_position=-1,
        initial_term_id=-7,
        segment_file_length=128 * 1024,
        term_buffer_length=64 * 1024,
        mtu_length=1408,
        session_id=-5,
        stream_id=100,
        stripped_channel=channel,
        original_channel=channel,
        source_identity="aeron:ipc",
    )


def test_a_descriptor_is_the_catalogs_with_padding_and_the_ids_of_the_request(stream: Stream, tmp_path: Any) -> None:
    catalog = Catalog.open(FileStorage(), str(tmp_path))
    recording_id = catalog.add(descriptor())
    catalog.extend(recording_id, 555, 666, -9)
    entry = catalog.entry_bytes(recording_id)
    catalog.close()
    assert struct.unpack_from("<qq", entry) == (555, 666)
    assert responses.send_descriptor(stream.publication, 7, 8, entry) == SENT
    [message] = stream.received()
    assert len(message) == 8 + len(entry)
    assert (32 + len(entry)) % 64 == 0, "with the padding of the entry"
    assert message[24:] == entry[16:]
    name, fields = codecs.decode("archive", message)
    assert (name, fields["control_session_id"], fields["correlation_id"]) == ("RecordingDescriptor", 7, 8)
    assert (fields["recording_id"], fields["session_id"], fields["stripped_channel"]) == (
        recording_id,
        -9,
        b"aeron:ipc?alias=log",
    )


def test_java_encodes_the_same_descriptor(stream: Stream) -> None:
    for fields, encoded in golden("RecordingDescriptor"):
        stored = bytes(16) + encoded[24:]
        assert responses.send_descriptor(
            stream.publication, fields["control_session_id"], fields["correlation_id"], stored
        ) == SENT  # fmt: skip
        assert stream.received() == [encoded]


def test_an_entry_that_is_no_descriptor_is_refused(stream: Stream) -> None:
    with pytest.raises(ArchiveError, match="a catalog entry has 79 bytes: a descriptor needs 80"):
        responses.send_descriptor(stream.publication, 7, 8, bytes(79))
    assert stream.received() == []


def test_a_descriptor_longer_than_a_message_is_refused(stream: Stream) -> None:
    assert responses.send_descriptor(stream.publication, 7, 8, bytes(LONGEST - 8)) == SENT
    with pytest.raises(ArchiveError, match=f"a response of {LONGEST + 1} bytes is longer than the {LONGEST} bytes"):
        responses.send_descriptor(stream.publication, 7, 8, bytes(LONGEST - 7))
    assert sum(len(each) for each in stream.received()) == LONGEST


# Sends


@pytest.mark.parametrize("failures", [[], [BACK_PRESSURED], [ADMIN_ACTION], [ADMIN_ACTION, BACK_PRESSURED]])
def test_a_send_succeeds_with_the_third_attempt_at_the_latest(stream: Stream, failures: list[int]) -> None:
    stream.results(*failures, None)
    assert responses.send(stream.publication, responses.ping(5)) == SENT
    assert stream.received() == [responses.ping(5)]


def test_three_attempts_are_all_and_nothing_is_sent(stream: Stream) -> None:
    stream.results(BACK_PRESSURED, ADMIN_ACTION, BACK_PRESSURED, BACK_PRESSURED, BACK_PRESSURED, BACK_PRESSURED)
    assert responses.send(stream.publication, responses.ping(5)) == NOT_SENT
    assert responses.send_descriptor(stream.publication, 7, 8, bytes(80)) == NOT_SENT
    assert stream.received() == []
    assert responses.send(stream.publication, responses.ping(5)) == SENT


@pytest.mark.parametrize("result", [NOT_CONNECTED, CLOSED, MAX_POSITION_EXCEEDED])
def test_a_client_that_is_gone_ends_the_attempts(stream: Stream, result: int) -> None:
    stream.results(BACK_PRESSURED, result, BACK_PRESSURED, result)
    assert responses.send(stream.publication, responses.ping(5)) == result
    assert responses.send_descriptor(stream.publication, 7, 8, bytes(80)) == result
    assert stream.received() == []


def test_a_closed_publication(stream: Stream) -> None:
    stream.publication.close()
    assert responses.send(stream.publication, responses.ping(5)) == CLOSED


def test_what_the_client_library_raises_is_raised(stream: Stream) -> None:
    stream.driver.publication_results(CHANNEL, STREAM_ID, [AeronError("refused")])
    with pytest.raises(AeronError, match="refused"):
        responses.send(stream.publication, responses.ping(5))
