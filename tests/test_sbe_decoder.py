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
    fields = [f'<field name="{name.lower()}" id="1" type="{name}"/>' for name in NULL_NAMES]
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
