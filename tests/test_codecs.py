"""The codecs against the reference encoders, and with older, newer, short and wrong bytes."""

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from container.codecs.messages import decode, decode_as, encode, encode_into
from container.errors import CodecError, ContainerError
from scripts.generate_codecs import Message, Schema, load_schemas
from tests.golden.vectors import (
    BLOCK_LENGTHS,
    GROUP_HEADER,
    HEADER,
    LATER_FIELDS,
    VAR_SINCE,
    Fields,
    Vector,
    derive,
    groups_end,
    load_all,
    var_parts,
)
from tests.guarded_memory import GuardedMemory

GOLDEN = {golden.schema: golden for golden in load_all()}
SCHEMAS = {schema.name: schema for schema in load_schemas()}
VECTORS = [vector for golden in GOLDEN.values() for vector in golden.vectors]
OTHER_VERSIONS = {"cluster": (0, 3, 12, 13, 14, 15, 17), "archive": (0, 3, 6, 7, 9, 11, 14), "mark": (0, 1, 3)}

# Made with the reference encoders, independently of the files under tests/golden/.
PROTOCOL_SHEET_VECTORS = [
    (
        "ServiceAck",
        {"log_position": 4736, "timestamp": 1000, "ack_id": 2, "relevant_id": -1, "service_id": 0},
        "240021006f001000 8012000000000000 e803000000000000 0200000000000000 ffffffffffffffff 00000000",
    ),
    (
        "ScheduleTimer",
        {"correlation_id": 77, "deadline": 1000},
        "10001f006f001000 4d00000000000000 e803000000000000",
    ),
    ("CancelTimer", {"correlation_id": 77}, "080020006f001000 4d00000000000000"),
    ("CloseSession", {"cluster_session_id": 9}, "08001e006f001000 0900000000000000"),
    (
        "ClusterMembersQuery",
        {"correlation_id": 5, "extended": 1},
        "0c0022006f001000 0500000000000000 01000000",
    ),
    (
        "SessionMessageHeader",
        {"leadership_term_id": 1, "cluster_session_id": 2, "timestamp": 3},
        "180001006f001000 0100000000000000 0200000000000000 0300000000000000",
    ),
    (
        "SnapshotMarker",
        {
            "type_id": 2,
            "log_position": 4736,
            "leadership_term_id": 0,
            "index": 0,
            "mark": 0,
            "time_unit": 0,
            "app_version": 1,
        },
        "280064006f001000 0200000000000000 8012000000000000 00000000000000000000000000000000 0000000001000000",
    ),
    (
        "ClientSession",
        {
            "cluster_session_id": 1,
            "response_stream_id": 102,
            "response_channel": "aeron:ipc",
            "encoded_principal": b"\1\2",
        },
        "0c0066006f001000 0100000000000000 6600000009000000 6165726f6e3a6970 63020000000102",
    ),
    (
        "JoinLog",
        {
            "log_position": 96,
            "max_log_position": 2**63 - 1,
            "member_id": 2,
            "log_session_id": 7,
            "log_stream_id": 100,
            "is_startup": 1,
            "role": 2,
            "is_standby": 0,
            "log_channel": "aeron:ipc",
        },
        "280028006f001000 6000000000000000 ffffffffffffff7f 0200000007000000 6400000001000000"
        "0200000000000000 090000006165726f 6e3a697063",
    ),
    (
        "NewLeadershipTermEvent",
        {
            "leadership_term_id": 1,
            "log_position": 96,
            "timestamp": 1000,
            "term_base_log_position": 0,
            "leader_member_id": 2,
            "log_session_id": 7,
            "time_unit": 2,
            "app_version": 0x010101,
        },
        "300018006f001000 0100000000000000 6000000000000000 e803000000000000 0000000000000000"
        "0200000007000000 0200000001010100",
    ),
]


def expected_fields(vector: Vector) -> Fields:
    is_header = vector.message == "SessionMessageHeader"
    return {**vector.fields, "payload": b""} if is_header else dict(vector.fields)


def derived_vectors(schema: str, version: int) -> Iterator[Vector]:
    for vector in GOLDEN[schema].vectors:
        key = (schema, vector.message)
        has_later = key in LATER_FIELDS and version >= max(BLOCK_LENGTHS[key])
        for later in [(0,), (1,), (None,)] if has_later else [()]:
            yield derive(GOLDEN[schema], vector, version, later)


def vectors_by_message() -> list[object]:
    messages = {(vector.schema, vector.message) for vector in VECTORS}
    return [
        pytest.param([v for v in VECTORS if (v.schema, v.message) == key], id="-".join(key)) for key in sorted(messages)
    ]


def vector_of(message: str, schema: str = "cluster") -> Vector:
    """The golden vector with ordinary values."""
    return next(vector for vector in GOLDEN[schema].vectors if vector.message == message)


def refusal(data: bytes, schema: str | int = "cluster") -> str:
    with pytest.raises(CodecError) as caught:
        decode(schema, data)
    return str(caught.value)


# Bytes of the reference encoders.


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.id)
def test_golden_vector_decodes_to_the_values_that_java_encoded(vector: Vector) -> None:
    assert decode(vector.schema, vector.encoded) == (vector.message, expected_fields(vector))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.id)
def test_golden_vector_is_encoded_to_the_same_bytes(vector: Vector) -> None:
    assert encode(vector.schema, vector.message, **vector.arguments) == vector.encoded


@pytest.mark.parametrize(("message", "fields", "encoded"), PROTOCOL_SHEET_VECTORS)
def test_outbound_encodings_equal_the_vectors_of_the_protocol_sheet(
    message: str, fields: dict[str, int | str | bytes], encoded: str
) -> None:
    assert encode("cluster", message, **fields) == bytes.fromhex(encoded)
    name, decoded = decode(111, bytes.fromhex(encoded))
    as_bytes = {key: value.encode() if isinstance(value, str) else value for key, value in fields.items()}
    assert (name, decoded) == (message, {**decoded, **as_bytes})


NULLS = {
    "SBE_NULL_UINT8": 255,
    "SBE_NULL_INT32": -(2**31),
    "SBE_NULL_INT64": -(2**63),
    "SBE_NULL_VERSION": 0,
    "SBE_NULL_CAPACITY": 0,
}


def all_messages() -> list[tuple[Schema, Message]]:
    return [(schema, message) for schema in SCHEMAS.values() for message in schema.messages]


@pytest.mark.parametrize(
    ("schema", "message"), all_messages(), ids=[f"{schema.name}-{m.name}" for schema, m in all_messages()]
)
def test_description_says_of_every_field_what_the_reference_decoder_says(schema: Schema, message: Message) -> None:
    layout = GOLDEN[schema.name].layouts[message.name]
    described = {
        item.name: (item.offset, item.since, NULLS[item.null])
        for item in message.fields
        if item.since <= schema.version
    }
    reference = {name: (slot.offset, slot.since, slot.null) for name, slot in layout.fields.items()}
    assert described == reference
    assert {item.name: item.since for item in message.var} == layout.var
    assert [item.name for item in message.var] == list(layout.var)
    assert (message.template_id, message.written_block_length) == (layout.template_id, layout.block_length)
    assert [group.name for group in message.groups] == list(layout.groups)
    for group in message.groups:
        elements = layout.groups[group.name]
        slots = {name: (slot.offset, slot.null) for name, slot in elements.fields.items()}
        assert {item.name: (item.offset, NULLS[item.null]) for item in group.fields} == slots
        assert [item.name for item in group.var] == list(elements.var)
        assert group.block_length == elements.block_length


def test_descriptions_and_golden_files_have_the_same_messages_enums_and_versions() -> None:
    assert SCHEMAS.keys() == GOLDEN.keys()
    for name, schema in SCHEMAS.items():
        golden = GOLDEN[name]
        assert (schema.id, schema.version) == (golden.schema_id, golden.version)
        assert {message.name for message in schema.messages} == golden.layouts.keys()
        assert {vector.message for vector in golden.vectors} == golden.layouts.keys()
        enums = dict(golden.enums)
        if "BooleanType" in enums:
            enums["Boolean"] = enums.pop("BooleanType")
        assert schema.enums == enums


def test_fields_that_the_reference_encoders_lack_are_the_documented_ones() -> None:
    later = {
        (schema.name, message.name): [item.name for item in message.fields if item.since > schema.version]
        for schema, message in all_messages()
    }
    assert {key: names for key, names in later.items() if names} == LATER_FIELDS


def test_documented_block_lengths_agree_with_the_described_ones() -> None:
    for schema, message in all_messages():
        for first, length in BLOCK_LENGTHS.get((schema.name, message.name), {}).items():
            assert message.block_length(first) == length
        since = {item.name: item.since for item in message.var if item.since}
        assert since == VAR_SINCE.get((schema.name, message.name), {})


# Senders of other versions.


@pytest.mark.parametrize(
    ("schema", "version"),
    [(schema, version) for schema, versions in OTHER_VERSIONS.items() for version in versions],
)
def test_vector_derived_for_another_version_decodes_with_absent_fields_null(schema: str, version: int) -> None:
    for vector in derived_vectors(schema, version):
        assert decode(schema, vector.encoded) == (vector.message, expected_fields(vector)), vector.id


def test_join_log_of_v12_to_v15_has_no_standby_flag_and_its_channel_begins_four_bytes_earlier() -> None:
    for version in (12, 13, 14, 15):
        vector = derive(GOLDEN["cluster"], vector_of("JoinLog"), version)
        assert HEADER.unpack_from(vector.encoded) == (36, 40, 111, version)
        fields = decode_as("cluster", "JoinLog", vector.encoded)
        assert fields["is_standby"] is None
        assert fields["log_channel"] == vector_of("JoinLog").fields["log_channel"]


def test_service_termination_position_tells_false_from_absent() -> None:
    golden, vector = GOLDEN["cluster"], vector_of("ServiceTerminationPosition")
    v17 = {value: derive(golden, vector, 17, (value,)).encoded for value in (0, 1, None)}
    seen = {value: decode("cluster", data)[1]["ack_required"] for value, data in v17.items()}
    assert seen == {0: 0, 1: 1, None: None}
    assert decode("cluster", vector.encoded)[1]["ack_required"] is None


def test_field_beyond_a_short_block_is_null_even_when_the_version_has_it() -> None:
    encoded = vector_of("ClusterActionRequest").encoded
    for block_length in range(28, 33):
        data = HEADER.pack(block_length, 23, 111, 16) + encoded[8 : 8 + block_length]
        fields = decode_as("cluster", "ClusterActionRequest", data)
        for name, slot in GOLDEN["cluster"].layouts["ClusterActionRequest"].fields.items():
            is_present = slot.offset + slot.size <= block_length
            assert fields[name] == (vector_of("ClusterActionRequest").fields[name] if is_present else None)


def oldest_block_length(schema: str, message: str) -> int:
    """The length of the block in the oldest version, by the reference decoders."""
    layout = GOLDEN[schema].layouts[message]
    if schema == "mark":
        return layout.block_length
    return max(slot.offset + slot.size for slot in layout.fields.values() if not slot.since)


@pytest.mark.parametrize("vectors", vectors_by_message())
def test_a_block_shorter_than_in_any_version_is_refused_whatever_the_version_and_what_follows(
    vectors: list[Vector],
) -> None:
    for vector in vectors:
        _block_length, template_id, schema_id, own_version = HEADER.unpack_from(vector.encoded)
        shortest = oldest_block_length(vector.schema, vector.message)
        for block_length in range(shortest):
            for version in (0, own_version, 99):
                data = HEADER.pack(block_length, template_id, schema_id, version) + vector.encoded[8:] + bytes(64)
                with pytest.raises(CodecError, match="block is shorter than in any version: needs at least "):
                    decode_as(vector.schema, vector.message, data)
        data = HEADER.pack(shortest, template_id, schema_id, 0) + vector.encoded[8 : 8 + shortest] + bytes(64)
        decode_as(vector.schema, vector.message, data)


def test_field_newer_than_the_version_is_null_even_when_the_block_reaches_over_it() -> None:
    encoded = bytearray(vector_of("JoinLog").encoded)
    struct.pack_into("<H", encoded, 6, 15)
    assert decode_as("cluster", "JoinLog", encoded)["is_standby"] is None


@pytest.mark.parametrize("vectors", vectors_by_message())
def test_unknown_bytes_of_a_newer_sender_are_skipped(vectors: list[Vector]) -> None:
    for vector in vectors:
        block_length, template_id, schema_id, _ = HEADER.unpack_from(vector.encoded)
        end = HEADER.size + block_length
        unknown = b"\xee" * 12
        header = HEADER.pack(block_length + len(unknown), template_id, schema_id, 99)
        # A field that a later version of the description knows would lie where the unknown bytes are.
        block = vector.encoded[HEADER.size : end] + (
            b"\0\0\0\x80" + unknown[4:] if (vector.schema, vector.message) in LATER_FIELDS else unknown
        )
        data = header + block + vector.encoded[end:] + unknown
        fields = decode_as(vector.schema, vector.message, data)
        assert fields == {**fields, **vector.fields}


# Payloads and var data.


def test_session_message_payload_begins_at_byte_32_whatever_the_block_length_says() -> None:
    message = encode(
        "cluster",
        "SessionMessageHeader",
        leadership_term_id=1,
        cluster_session_id=2,
        timestamp=3,
        payload=b"hello",
    )
    assert len(message) == 37
    for block_length in (24, 29):
        data = struct.pack("<H", block_length) + message[2:]
        assert decode_as("cluster", "SessionMessageHeader", data)["payload"] == b"hello"


def test_session_message_of_fewer_than_32_bytes_is_refused_even_with_a_short_block() -> None:
    data = HEADER.pack(8, 1, 111, 16) + bytes(23)
    assert refusal(data) == (
        "SessionMessageHeader (version 16, block length 8): block is shorter than in any version: needs at least 32 "
        "bytes, got 31"
    )


@pytest.mark.parametrize("length", [0, 1, 255, 256, 65_536, 1_000_000])
def test_var_data_of_any_length_round_trips(length: int) -> None:
    principal = bytes(index % 251 for index in range(length))
    message = encode(
        "cluster",
        "ClientSession",
        cluster_session_id=1,
        response_stream_id=2,
        response_channel="c",
        encoded_principal=principal,
    )
    assert decode_as("cluster", "ClientSession", message)["encoded_principal"] == principal


@pytest.mark.parametrize("claimed", [2**32 - 1, 2**32 - 5, 2**31, 2**31 - 1, 2**30, 0])
def test_var_length_that_reaches_beyond_the_bytes_is_refused(claimed: int) -> None:
    for vector in VECTORS:
        layout = GOLDEN[vector.schema].layouts[vector.message]
        position = groups_end(vector.encoded, layout)
        for part in var_parts(vector.encoded, layout):
            length = max(claimed, len(vector.encoded) - position - 4 + 1)
            data = bytearray(vector.encoded)
            struct.pack_into("<I", data, position, length)
            text = refusal(bytes(data), vector.schema)
            assert text.startswith(f"{vector.message} (version ")
            assert f"needs at least {position + 4 + length} bytes, got {len(data)}" in text
            position += len(part)


# Repeating groups.


def group_vectors() -> list[Vector]:
    return [vector for vector in VECTORS if GOLDEN[vector.schema].layouts[vector.message].groups]


def test_a_group_of_more_elements_than_there_are_bytes_is_refused() -> None:
    for vector in group_vectors():
        position = HEADER.size + HEADER.unpack_from(vector.encoded)[0]
        block_length, count = GROUP_HEADER.unpack_from(vector.encoded, position)
        for claimed in (count + 2, 65535):
            data = bytearray(vector.encoded)
            GROUP_HEADER.pack_into(data, position, block_length, claimed)
            assert refusal(bytes(data)).startswith(f"{vector.message} (version 16, block length ")


def test_an_element_shorter_than_in_any_version_is_refused() -> None:
    for vector in group_vectors():
        position = HEADER.size + HEADER.unpack_from(vector.encoded)[0]
        block_length, count = GROUP_HEADER.unpack_from(vector.encoded, position)
        for shorter in (0, block_length - 1):
            data = bytearray(vector.encoded + bytes(64))
            GROUP_HEADER.pack_into(data, position, shorter, max(count, 1))
            assert "block is shorter than in any version: needs at least " in refusal(bytes(data))


def test_unknown_bytes_of_a_newer_sender_s_elements_are_skipped() -> None:
    vector = vector_of("BackupResponse")
    block_length, _, schema_id, _ = HEADER.unpack_from(vector.encoded)
    begin = HEADER.size + block_length
    length, count = GROUP_HEADER.unpack_from(vector.encoded, begin)
    elements = vector.encoded[begin + GROUP_HEADER.size :]
    data = HEADER.pack(block_length, 78, schema_id, 99) + vector.encoded[HEADER.size : begin]
    data += GROUP_HEADER.pack(length + 4, count)
    for index in range(count):
        data += elements[index * length : (index + 1) * length] + b"\xee" * 4
    data += elements[count * length :]
    assert decode("cluster", data) == ("BackupResponse", expected_fields(vector))


def test_a_group_that_is_left_out_is_empty() -> None:
    encoded = encode("cluster", "StandbySnapshot", correlation_id=1, version=2, response_stream_id=3)
    assert decode_as("cluster", "StandbySnapshot", encoded)["snapshots"] == []


def test_wrong_elements_are_refused_by_name() -> None:
    fields: dict[str, Any] = dict(vector_of("StandbySnapshot").arguments)
    element = fields["snapshots"][0]
    for elements, text in (
        (5, "StandbySnapshot.snapshots must be dicts, got 5"),
        ([1], r"StandbySnapshot.snapshots must be dicts, got \[1\]"),
        ([{**element, "service_id": 2**31}], "StandbySnapshot.snapshots.service_id=2147483648 does not fit an int32"),
        ([{**element, "place": 1}], "StandbySnapshot.snapshots has no field place: it has recording_id, "),
        ([{}], "StandbySnapshot.snapshots.recording_id is missing"),
        ([element] * 65535, "StandbySnapshot.snapshots has 65535 elements: the most are 65534"),
    ):
        with pytest.raises(CodecError, match=text):
            encode("cluster", "StandbySnapshot", **{**fields, "snapshots": elements})
    assert "recording_id" in element  # what was given stays as it is


@pytest.mark.parametrize("value", [-1, 256, 2**31])
def test_value_beyond_a_uint8_is_refused(value: int) -> None:
    with pytest.raises(CodecError, match=r"AppendPosition.flags=-?\d+ does not fit"):
        encode("cluster", "AppendPosition", leadership_term_id=1, log_position=2, follower_member_id=3, flags=value)


def test_mark_file_header_fills_the_reserved_part_of_its_block_with_zeros() -> None:
    buffer = bytearray(b"\xff" * 400)
    end = encode_into(buffer, "mark", "MarkFileHeader", **vector_of("MarkFileHeader", "mark").arguments)
    assert buffer[:end] == vector_of("MarkFileHeader", "mark").encoded
    assert buffer[84:136] == bytes(52)
    assert buffer[end:] == b"\xff" * (400 - end)


# Refused bytes.


@pytest.mark.parametrize("vectors", vectors_by_message())
def test_every_truncation_is_refused_by_name_and_length_and_reads_no_byte_too_far(
    vectors: list[Vector],
) -> None:
    for vector in vectors:
        memory = GuardedMemory(len(vector.encoded))
        for length in range(len(vector.encoded)):
            data = memory.tail(vector.encoded[:length])
            with pytest.raises(CodecError) as caught:
                decode(vector.schema, data)
            text = str(caught.value)
            assert f"got {length}" in text
            assert text.startswith("message header: needs 8 bytes" if length < 8 else f"{vector.message} (version ")


def test_error_names_message_version_needed_length_and_length() -> None:
    ack = vector_of("ServiceAck").encoded
    assert refusal(ack[:43]) == (
        "ServiceAck (version 16, block length 36): block length reaches beyond the message: "
        "needs at least 44 bytes, got 43"
    )
    join_log = vector_of("JoinLog").encoded
    assert refusal(join_log[:50]) == (
        "JoinLog (version 16, block length 40): message is truncated: needs at least 52 bytes, got 50"
    )
    assert refusal(b"\1\2\3") == "message header: needs 8 bytes, got 3"


def test_codec_error_is_a_container_error_and_a_value_error() -> None:
    assert issubclass(CodecError, ContainerError)
    assert issubclass(CodecError, ValueError)


def test_another_schema_is_refused() -> None:
    ping = vector_of("Ping", "archive").encoded
    assert refusal(ping) == "expected schema 111, got 101 (template 106)"
    with pytest.raises(CodecError, match=r"JoinLog .*another schema: schema 101, template 106"):
        decode_as("cluster", "JoinLog", ping)


def test_another_template_is_refused() -> None:
    with pytest.raises(CodecError, match=r"JoinLog .*another template id: schema 111, template 33"):
        decode_as("cluster", "JoinLog", vector_of("ServiceAck").encoded)
    data = HEADER.pack(0, 999, 111, 16)
    assert refusal(data) == "schema cluster (111): no message has template id 999 (version 16, 8 bytes)"


def test_decode_as_refuses_less_than_a_header() -> None:
    with pytest.raises(CodecError, match="JoinLog: message is truncated: needs at least 8 bytes, got 7"):
        decode_as("cluster", "JoinLog", bytes(7))


@pytest.mark.parametrize("schema", ["clusters", 112, None, 1.5, [111]])
def test_unknown_schema_is_refused(schema: object) -> None:
    with pytest.raises(CodecError, match="unknown schema"):
        decode(schema, bytes(8))  # type: ignore[arg-type]


def test_data_that_is_not_bytes_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="bytes-like"):
        decode("cluster", "text")  # type: ignore[arg-type]


# Refused fields.


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"correlation_id": 1}, "ScheduleTimer.deadline is missing"),
        (
            {"correlation_id": 1, "deadline": 2, "until": 3},
            "ScheduleTimer has no field until: it has correlation_id, deadline",
        ),
        (
            {"correlation_id": 2**63, "deadline": 2},
            "ScheduleTimer.correlation_id=9223372036854775808 does not fit an int64",
        ),
        ({"correlation_id": -(2**63) - 1, "deadline": 2}, "does not fit an int64"),
        (
            {"correlation_id": "1", "deadline": 2},
            "ScheduleTimer.correlation_id must be an int or None, got '1'",
        ),
        ({"correlation_id": 1.0, "deadline": 2}, "must be an int or None, got 1.0"),
    ],
)
def test_wrong_fixed_field_is_refused_by_name(fields: dict[str, int], text: str) -> None:
    with pytest.raises(CodecError) as caught:
        encode("cluster", "ScheduleTimer", **fields)
    assert text in str(caught.value)


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**63, 2**200])
def test_value_beyond_an_int32_is_refused(value: int) -> None:
    with pytest.raises(CodecError, match=r"does not fit an int32"):
        encode("cluster", "ClusterMembersQuery", correlation_id=1, extended=value)


@pytest.mark.parametrize("value", ["über", 5, ["a"]])
def test_wrong_text_is_refused_by_name(value: str) -> None:
    with pytest.raises(CodecError, match=r"NewLeaderEvent.ingress_endpoints must be"):
        encode(
            "cluster",
            "NewLeaderEvent",
            leadership_term_id=1,
            cluster_session_id=2,
            leader_member_id=3,
            ingress_endpoints=value,
        )


def test_text_is_refused_where_var_data_is_not_text() -> None:
    with pytest.raises(CodecError, match=r"Challenge.encoded_challenge must be bytes, got 'who'"):
        encode("cluster", "Challenge", correlation_id=1, cluster_session_id=2, encoded_challenge="who")


def test_field_newer_than_the_written_version_is_refused() -> None:
    with pytest.raises(CodecError, match="ServiceTerminationPosition has no field ack_required"):
        encode("cluster", "ServiceTerminationPosition", log_position=1, ack_required=1)


def test_unknown_message_is_refused() -> None:
    for call in (lambda: encode("archive", "JoinLog"), lambda: decode_as("archive", "JoinLog", bytes(60))):
        with pytest.raises(CodecError, match=r"schema archive \(101\): no message 'JoinLog'"):
            call()


# Writing into a given buffer.


@pytest.mark.parametrize("vectors", vectors_by_message())
def test_message_that_does_not_fit_is_refused_and_nothing_is_written(vectors: list[Vector]) -> None:
    for vector in vectors:
        length = len(vector.encoded)
        memory = GuardedMemory(length)
        for capacity in range(length):
            buffer = memory.tail(b"\xaa" * capacity)
            with pytest.raises(CodecError, match=f"needs {length} bytes, got {capacity}"):
                encode_into(buffer, vector.schema, vector.message, **vector.arguments)
            assert bytes(buffer) == b"\xaa" * capacity


@pytest.mark.parametrize("vectors", vectors_by_message())
def test_message_that_just_fits_is_written(vectors: list[Vector]) -> None:
    for vector in vectors:
        buffer = GuardedMemory(len(vector.encoded)).tail(bytes(len(vector.encoded)))
        written = encode_into(buffer, vector.schema, vector.message, **vector.arguments)
        assert (written, bytes(buffer)) == (len(vector.encoded), vector.encoded)


def test_payload_must_fit_with_its_header() -> None:
    header = {"leadership_term_id": 1, "cluster_session_id": 2, "timestamp": 3}
    buffer = bytearray(b"\xaa" * 35)
    with pytest.raises(CodecError, match=r"SessionMessageHeader: .*needs 36 bytes, got 35"):
        encode_into(buffer, "cluster", "SessionMessageHeader", **header, payload=b"four")
    assert buffer == b"\xaa" * 35
    assert encode_into(buffer, "cluster", "SessionMessageHeader", **header, payload=b"abc") == 35
    assert buffer[32:] == b"abc"


def test_read_only_buffer_is_refused() -> None:
    with pytest.raises((BufferError, TypeError)):
        encode_into(bytes(100), "cluster", "CancelTimer", correlation_id=1)
