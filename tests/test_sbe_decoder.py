"""SBE payloads as columns, beside a decoder in plain Python: by chance, version by version, and with wrong bytes."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from container.errors import ConfigurationError
from container.sbe.decoder import SbeDecoder
from container.sbe.schema import read_schema
from tests.sbe_reference import Reference, Wrong
from tests.test_sbe_schema import message, schema

SCHEMAS = Path(__file__).parent / "schemas"
ORDERS = str(SCHEMAS / "orders.xml")
HEADER = struct.Struct("<HHHH")


def decoded(decoder: SbeDecoder, payloads: list[bytes | None]) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """The rows that a decoder makes, each a value by column; and the errors."""
    arrays, errors = decoder.decode(pa.array(payloads, pa.binary()))
    for array in arrays:
        array.validate(full=True)
    batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(decoder.fields))
    return batch.to_pylist(), errors


def comparable(value: Any) -> Any:
    """NaN is equal to itself."""
    if isinstance(value, dict):
        return {name: comparable(item) for name, item in value.items()}
    if isinstance(value, list):
        return [comparable(item) for item in value]
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def check(path: str, payloads: list[bytes | None]) -> int:
    """Compare what our decoder and the plain one make of payloads; return how many are messages."""
    decoder, reference = SbeDecoder(read_schema(path)), Reference(read_schema(path))
    names = [field.name for field in decoder.fields]
    rows, errors = decoded(decoder, payloads)
    assert len(rows) == len(payloads)
    count = 0
    for number, (payload, row) in enumerate(zip(payloads, rows, strict=True)):
        expected: dict[str, Any] = dict.fromkeys(names)
        is_wrong = False
        if payload is not None:
            try:
                name, values = reference.read(payload)
                expected[name] = values or True
                count += 1
            except Wrong:
                is_wrong = True
        assert (number in errors) == is_wrong, (payload, errors.get(number))
        assert comparable(row) == comparable(expected), payload
    return count


@pytest.mark.parametrize("name", ["orders", "big_endian"])
@pytest.mark.parametrize("seed", range(10))
def test_messages_of_all_versions_are_read_as_by_a_plain_decoder(name: str, seed: int) -> None:
    random = Random(seed)
    path = str(SCHEMAS / f"{name}.xml")
    schema = read_schema(path)
    reference = Reference(schema)
    payloads: list[bytes | None] = []
    for _ in range(100):
        version = random.randrange(schema.version + 2)
        beyond = random.randrange(4) if version > schema.version else 0
        payloads.append(reference.message(random, random.choice(schema.messages), version, beyond))
        if random.random() < 0.1:
            payloads.append(None)
    assert check(path, payloads) == sum(one is not None for one in payloads)


@pytest.mark.parametrize("name", ["orders", "big_endian"])
@pytest.mark.parametrize("seed", range(20))
def test_bytes_that_are_wrong_are_errors_or_read_as_by_a_plain_decoder(name: str, seed: int) -> None:
    random = Random(seed)
    path = str(SCHEMAS / f"{name}.xml")
    schema = read_schema(path)
    reference = Reference(schema)
    payloads: list[bytes | None] = []
    for _ in range(150):
        payload = bytearray(reference.message(random, random.choice(schema.messages), random.randrange(4)))
        kind = random.randrange(4)
        if kind == 0:
            del payload[random.randrange(len(payload) + 1) :]
        elif kind == 1:
            payload += bytes(random.randrange(5))
        else:
            for _ in range(random.randrange(1, 4)):
                payload[random.randrange(len(payload))] = random.choice([0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)])
        payloads.append(bytes(payload))
    check(path, payloads)


def test_a_batch_that_is_a_part_of_another_is_read_from_its_begin() -> None:
    schema = read_schema(ORDERS)
    random, reference = Random(1), Reference(read_schema(ORDERS))
    whole = [reference.message(random, schema.messages[0], 2) if index % 3 else None for index in range(50)]
    decoder = SbeDecoder(read_schema(ORDERS), "NewOrder")
    part, errors = decoder.decode(pa.array(whole, pa.binary()).slice(13, 20))
    assert errors == {}
    names = [field.name for field in decoder.fields]
    expected, _ = decoded(decoder, whole[13:33])
    found = pa.RecordBatch.from_arrays(part, names=names).to_pylist()
    assert comparable(found) == comparable(expected)


def test_one_message_has_its_fields_as_columns_and_others_are_errors() -> None:
    decoder = SbeDecoder(read_schema(ORDERS), "Cancel")
    assert [(field.name, str(field.type)) for field in decoder.fields] == [("order_id", "decimal128(20, 0)")]
    payloads = [HEADER.pack(8, template, 7, 0) + (2**64 - 1).to_bytes(8, "little") for template in (2, 1)]
    rows, errors = decoded(decoder, list(payloads))
    assert [row["order_id"] for row in rows] == [2**64 - 1, None]
    assert errors == {1: "template id 1 is of no message that is read; these have 2"}
    with pytest.raises(ConfigurationError, match="has no message 'Order'; it has NewOrder, Cancel"):
        SbeDecoder(read_schema(ORDERS), "Order")


def test_no_rows_and_rows_of_nothing_are_columns_as_well() -> None:
    decoder = SbeDecoder(read_schema(ORDERS))
    assert decoded(decoder, []) == ([], {})
    assert decoded(decoder, [None, None]) == ([{"NewOrder": None, "Cancel": None}] * 2, {})


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b"", "0 bytes are less than a message's header, which has 8"),
        (HEADER.pack(8, 2, 9, 0) + bytes(8), "it is of schema 9, and the file has schema 7"),
        (HEADER.pack(8, 77, 7, 0) + bytes(8), "template id 77 is of no message that is read; these have 1, 2"),
        (HEADER.pack(7, 2, 7, 0) + bytes(8), "Cancel: a block of 7 bytes is shorter than its fields"),
        (HEADER.pack(9, 2, 7, 0) + bytes(8), "Cancel: it ends too early"),
        (
            HEADER.pack(54, 1, 7, 0) + bytes(54) + struct.pack("<HH", 0, 65535),
            "NewOrder.legs: 65535 entries are more than there are bytes for",
        ),
        (HEADER.pack(54, 1, 7, 0) + bytes(8) + b"\xff" + bytes(45), "NewOrder: a text is not UTF-8"),
    ],
)
def test_the_text_of_an_error_says_what_is_wrong(payload: bytes, text: str) -> None:
    rows, errors = decoded(SbeDecoder(read_schema(ORDERS)), [payload])
    assert rows == [{"NewOrder": None, "Cancel": None}]
    assert errors == {0: text}


def test_a_value_without_a_name_is_its_character_or_its_number() -> None:
    body = bytearray(58)
    body[16:17] = b"Q"
    payload = HEADER.pack(58, 1, 7, 1) + bytes(body) + struct.pack("<HHH", 4, 0, 0)
    body[16:17] = b"\1"
    other = HEADER.pack(58, 1, 7, 1) + bytes(body) + struct.pack("<HHH", 4, 0, 0)
    rows, errors = decoded(SbeDecoder(read_schema(ORDERS), "NewOrder"), [payload, other])
    assert errors == {}
    assert [row["side"] for row in rows] == ["Q", "1"]


NULL_NAMES = ("Side", "Own", "Real", "Single", "Blank", "Fixed")
NULL_TYPES = """
<type name="Code" primitiveType="uint8" presence="optional" nullValue="0"/>
<enum name="Side" encodingType="Code"><validValue name="BUY">1</validValue></enum>
<enum name="Own" encodingType="Code" nullValue="9"><validValue name="ONE">1</validValue></enum>
<type name="Real" primitiveType="double" presence="optional" nullValue="-1"/>
<type name="Single" primitiveType="float" presence="optional" nullValue="0.1"/>
<type name="Blank" primitiveType="char" presence="optional" nullValue=" "/>
<type name="Fixed" primitiveType="uint8" presence="constant" valueRef="Side.BUY"/>
"""


def test_null_values_are_those_of_the_schema(tmp_path: Path) -> None:
    fields = [f'<field name="{name.lower()}" id="{at}" type="{name}"/>' for at, name in enumerate(NULL_NAMES)]
    path = tmp_path / "nulls.xml"
    path.write_text(schema(message("".join(fields)), NULL_TYPES))
    layout = struct.Struct("<BBdfc")
    values = [(0, 9, -1.0, 0.1, b" "), (255, 0, 1.0, 0.5, b"x"), (1, 1, math.nan, math.nan, b"\0")]
    payloads = [HEADER.pack(layout.size, 1, 1, 0) + layout.pack(*one) for one in values]
    rows, errors = decoded(SbeDecoder(read_schema(str(path)), "M"), list(payloads))
    assert errors == {}
    assert [tuple(comparable(row).values()) for row in rows] == [
        (None, None, None, None, None, 1),
        ("255", "0", 1.0, 0.5, "x", 1),
        ("BUY", "ONE", "NaN", "NaN", "", 1),
    ]


READ = [
    # Constants are not stripped, take no bytes, and may be what no value of their type is.
    ('<type name="T" primitiveType="char" presence="constant" length="5"> EUR</type>', "", b"", " EUR"),
    ('<type name="T" primitiveType="uint8" presence="constant">300</type>', "", b"", 300),
    ('<type name="T" primitiveType="int8" presence="constant">+7<!-- not --> 8</type>', "", b"", 7),
    ('<type name="T" primitiveType="int8" presence="constant"><?a 7?>8</type>', "", b"", 7),
    ('<type name="T" primitiveType="float" presence="constant"> 0x1p3f </type>', "", b"", 8.0),
    ('<type name="T" primitiveType="int32" presence="constant">5</type>', 'presence="required"', b"", 5),
    (
        '<enum name="E" encodingType="char"><validValue name="A.B">x</validValue></enum>'
        '<type name="T" primitiveType="char"/>',
        'presence="constant" valueRef="E.A.B"',
        b"",
        "x",
    ),
    # A field has the last of two types with a name, a reference the first.
    ('<type name="T" primitiveType="int32"/><type name="T" primitiveType="int8"/>', "", b"\xff", -1),
    (
        '<type name="X" primitiveType="int8"/><type name="X" primitiveType="int32"/>'
        '<composite name="T"><ref name="x" type="X"/></composite>',
        "",
        b"\xff",
        {"x": -1},
    ),
    (
        '<type name="X" primitiveType="int8" offset="2"/><composite name="T"><ref name="x" type="X"/></composite>',
        "",
        b"\0\0\7",
        {"x": 7},
    ),
    ('<composite name="T"/>', "", b"", True),
    # A field of a primitive type has none of a type's attributes.
    ("", 'type="int8" length="2" nullValue="1" presence="optional"', b"\1", 1),
    # What stands for null is a character, and no number of another type.
    ('<type name="T" primitiveType="char" presence="optional" nullValue="0"/>', "", b"0", None),
    ('<type name="T" primitiveType="char" presence="optional" nullValue="0"/>', "", b"\0", ""),
    ('<type name="T" primitiveType="uint8" presence="optional" nullValue="-1"/>', "", b"\xff", 255),
    ('<type name="T" primitiveType="uint64" presence="optional" nullValue="-1"/>', "", b"\xff" * 8, None),
    ('<type name="T" primitiveType="float" presence="optional" nullValue="1e999"/>', "", b"\0\0\x80\x7f", None),
    # Names: the last of a name, the first of a number; a value with a name is not null.
    (
        '<enum name="T" encodingType="char" nullValue="A"><validValue name="a">A</validValue>'
        '<validValue name="b">A</validValue></enum>',
        "",
        b"A",
        "a",
    ),
    (
        '<enum name="T" encodingType="uint8"><validValue name="a">1</validValue><validValue name="a">2</validValue>'
        "</enum>",
        "",
        b"\1",
        "1",
    ),
    (
        '<set name="T" encodingType="uint8"><choice name="a">1</choice><choice name="b">1</choice></set>',
        "",
        b"\2",
        {"a": True, "b": True},
    ),
    # Encodings by all names of Java; of others there are bytes.
    *(
        (f'<type name="T" primitiveType="char" length="4" characterEncoding="{name}"/>', "", content, value)
        for name, content, value in (
            ("ISO_8859_1", b"\xfc\0\0\0", "\xfc"),
            ("latin1", b"abc\xfc", "abc\xfc"),
            ("windows-1252", b"\x80\0\0\0", "\u20ac"),
            ("GB18030", b"\xba\xba\xd7\xd6", "\u6f22\u5b57".replace("\u6f22", "\u6c49")),
            (" us-ascii ", b"AB\0\0", "AB"),
            ("US_ASCII", b"AB\0\0", "AB"),
            ("Shift_JIS", b"\x81\x5c\0\0", "\u2014"),
            ("IBM037", b"\xc1\x15\0\0", "A\n"),
            ("UTF-16LE", b"\x42\x6f\0\0", "\u6f42"),
            ("no-such", b"\xff\1\0\0", b"\xff\1"),
        )
    ),
]


@pytest.mark.parametrize(("types", "attributes", "content", "value"), READ)
def test_values_are_those_that_sbe_tool_reads(
    tmp_path: Path, types: str, attributes: str, content: bytes, value: Any
) -> None:
    kind = "" if "type=" in attributes else 'type="T"'
    path = tmp_path / "schema.xml"
    path.write_text(schema(message(f'<field name="a" id="1" {kind} {attributes}/>'), types))
    payload = HEADER.pack(len(content), 1, 1, 0) + content
    rows, errors = decoded(SbeDecoder(read_schema(str(path)), "M"), [payload])
    assert errors == {}
    assert rows == [{"a": value}]


def test_numbers_in_front_of_groups_may_have_a_sign_and_another_order(tmp_path: Path) -> None:
    types = """<composite name="groupSizeEncoding"><type name="numInGroup" primitiveType="int8" minValue="0"/>
    <type name="blockLength" primitiveType="uint8" offset="3"/></composite>"""
    path = tmp_path / "schema.xml"
    path.write_text(schema(message('<group name="g" id="1"><field name="a" id="1" type="int8"/></group>'), types))
    payloads = [HEADER.pack(0, 1, 1, 0) + bytes([count, 0, 0, 1, 5]) for count in (0, 1, 2, 0xFF)]
    rows, errors = decoded(SbeDecoder(read_schema(str(path)), "M"), list(payloads))
    assert [row["g"] for row in rows] == [[], [{"a": 5}], None, None]
    assert errors == {2: "M.g: it ends too early", 3: "M.g: -1 entries are more than there are bytes for"}


def test_data_begin_where_their_composite_says(tmp_path: Path) -> None:
    types = """<composite name="V"><type name="length" primitiveType="uint8" offset="1"/>
    <type name="varData" primitiveType="uint8" length="0" offset="4" characterEncoding="cp1252"/></composite>"""
    path = tmp_path / "schema.xml"
    path.write_text(schema(message('<data name="d" id="1" type="V"/>'), types))
    payload = HEADER.pack(0, 1, 1, 0) + b"\0\2\0\0\x80!"
    rows, errors = decoded(SbeDecoder(read_schema(str(path)), "M"), [payload])
    assert (rows, errors) == ([{"d": "\u20ac!"}], {})


def test_entries_without_bytes_are_as_many_as_a_message_has_bytes_and_255(tmp_path: Path) -> None:
    types = """<composite name="groupSizeEncoding"><type name="blockLength" primitiveType="uint16"/>
    <type name="numInGroup" primitiveType="uint16"/></composite>"""
    path = tmp_path / "schema.xml"
    inner = '<group name="h" id="1"><field name="a" id="1" type="int8" sinceVersion="1"/></group>'
    text = schema(message(f'<group name="g" id="1">{inner}</group>'), types, attributes='id="1" version="1"')
    path.write_text(text)
    decoder = SbeDecoder(read_schema(str(path)), "M")
    entries = struct.Struct("<HH")
    head = HEADER.pack(0, 1, 1, 0)
    payloads = [head + entries.pack(0, 1) + entries.pack(0, count) for count in (16 + 255, 16 + 256)]
    payloads.append(head + entries.pack(0, 100) + entries.pack(0, 400) * 100)  # each as many as there are bytes
    rows, errors = decoded(decoder, list(payloads))
    assert [row["g"] and len(row["g"][0]["h"]) for row in rows] == [16 + 255, None, None]
    assert errors == {
        1: "M.g.h: 272 entries are more than there are bytes for",
        2: "M.g.h: 400 entries are more than there are bytes for",
    }


NOT_UTF_8 = (
    *(b"\xc0\x80", b"\xc1\xbf", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80"),
    *(b"\xf5\x80\x80\x80", b"\x80", b"\xc3", b"abcdefgh\xe2\x82", b"\xff", b"abcdefghi\x80"),
)


@pytest.mark.parametrize("text", NOT_UTF_8)
def test_what_is_no_utf_8_is_an_error(text: bytes) -> None:
    with pytest.raises(UnicodeDecodeError):
        text.decode()
    payload = HEADER.pack(58, 1, 7, 1) + bytes(58) + struct.pack("<HHH", 4, 0, len(text)) + text
    _, errors = decoded(SbeDecoder(read_schema(ORDERS)), [payload])
    assert errors == {0: "NewOrder: a text is not UTF-8"}
