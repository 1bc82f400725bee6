"""Decoders of payloads, without a session: their columns, formats, types, and what does not decode."""

from __future__ import annotations

import datetime
import decimal
import enum
import re
import struct
import sys
import uuid
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypedDict

import msgspec
import pyarrow as pa
import pytest

from container.errors import ConfigurationError
from container.spark.payloads import PayloadDecoder

HERE = "tests.spark.test_payloads"
VIEW = ("log_position", "timestamp", "payload", "error")


class Side(enum.Enum):
    BUY = "buy"
    SELL = "sell"


class Change(msgspec.Struct):
    """A message that has what changed only."""

    number: int | msgspec.UnsetType = msgspec.UNSET
    text: str | msgspec.UnsetType | None = msgspec.UNSET
    key: uuid.UUID | msgspec.UnsetType = msgspec.UNSET
    legs: list[Leg] | msgspec.UnsetType = msgspec.UNSET
    first: Leg | msgspec.UnsetType = msgspec.UNSET


class Timed(msgspec.Struct):
    at: datetime.datetime
    number: int = 0


class Itself(msgspec.Struct):
    inner: Itself | None = None


class Leg(msgspec.Struct):
    symbol: str
    ratio: int


class Order(msgspec.Struct):
    order_id: int
    side: Side
    price: decimal.Decimal
    timestamp: int
    legs: list[Leg] = []
    tags: dict[str, int] = {}
    at: datetime.datetime | None = None
    kind: Literal["limit", "market"] = "limit"
    key: uuid.UUID | None = None


class Bid(msgspec.Struct, tag=True):
    price: int


class AskPrice(msgspec.Struct, tag=True):
    price: float


type Quote = Bid | AskPrice


class Pair(NamedTuple):
    first: int
    second: int


@dataclass
class Named:
    name: str


class Point(TypedDict):
    x: float


class Anything(msgspec.Struct):
    value: Any


class Levels(msgspec.Struct):
    level: Literal[1, 2, None] = None


class Mixed(msgspec.Struct):
    value: Literal[1, "one"]


def pair(payload: bytes) -> Pair | None:
    """Two integers; an empty payload is none."""
    return Pair(*struct.unpack("<qq", payload)) if payload else None


def huge(payload: bytes) -> Pair:
    return Pair(1, 2 ** len(payload))


def named(payload: bytes) -> Named:
    return Named(payload.decode())


def point(payload: bytes) -> Point:
    return Point(x=float(payload))


def untyped(payload: bytes):  # type: ignore[no-untyped-def]
    return payload


class Cased(msgspec.Struct):
    Timestamp: int


class Twice(msgspec.Struct):
    size: int
    Size: int


def number(payload: bytes) -> int:
    return len(payload)


def wrong(payload: bytes) -> Named:
    return payload  # type: ignore[return-value]


@dataclass
class Unchecked:
    number: int
    numbers: list[int]
    day: datetime.date
    length: datetime.timedelta
    at: datetime.datetime


UNCHECKED = Unchecked(1, [2], datetime.date(2026, 1, 1), datetime.timedelta(1), datetime.datetime(2026, 1, 1))
OF_ANOTHER_TYPE: dict[str, Any] = {
    "number": 1.5,
    "numbers": [decimal.Decimal("2.5")],
    "day": datetime.datetime(2026, 1, 1, 13),
    "length": 30,
    "at": 1_767_225_600,
}


def unchecked(payload: bytes) -> Unchecked:
    name = payload.decode()
    return replace(UNCHECKED, **{name: OF_ANOTHER_TYPE[name]}) if name else UNCHECKED


class Textless(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def hostile(payload: bytes) -> Named:
    raise {b"text": ValueError("\ud800"), b"none": Textless(), b"exit": SystemExit(3)}[payload]


class Exits(msgspec.Struct):
    number: int

    def __post_init__(self) -> None:
        if not self.number:
            raise SystemExit(3)


def decode(name: str, *payloads: bytes | None) -> list[dict[str, Any]]:
    decoder = PayloadDecoder(f"{HERE}:{name}", VIEW)
    arrays = decoder.decode(pa.array(payloads, pa.binary()))
    assert [array.type for array in arrays] == [field.type for field in decoder.fields]
    rows: list[dict[str, Any]] = pa.table(arrays, schema=pa.schema(decoder.fields)).to_pylist()
    return rows


def test_a_struct_is_read_from_json_and_from_msgpack() -> None:
    order = Order(7, Side.SELL, decimal.Decimal("1.25"), 5, [Leg("A", 2)], {"x": 1})
    order.at = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    order.key = uuid.UUID(int=3)
    rows = decode("Order", msgspec.json.encode(order), msgspec.msgpack.encode(order))
    assert rows[0] == rows[1]
    assert rows[0] == {
        "order_id": 7,
        "side": "sell",
        "price": decimal.Decimal("1.25"),
        "payload_timestamp": 5,  # because the view has a column of this name
        "legs": [{"symbol": "A", "ratio": 2}],
        "tags": [("x", 1)],
        "at": order.at,
        "kind": "limit",
        "key": str(order.key),
        "decode_error": None,
    }


def test_a_union_has_a_column_for_each_of_its_types() -> None:
    rows = decode("Quote", msgspec.json.encode(Bid(3)), msgspec.msgpack.encode(AskPrice(0.5)))
    assert rows == [
        {"bid": {"price": 3}, "ask_price": None, "decode_error": None},
        {"bid": None, "ask_price": {"price": 0.5}, "decode_error": None},
    ]


def test_names_that_differ_in_case_alone_are_one_name_to_spark() -> None:
    assert decode("Cased", b'{"Timestamp": 5}') == [{"payload_Timestamp": 5, "decode_error": None}]
    with pytest.raises(ConfigurationError, match="two columns would be named 'payload_Size'|rename a field") as caught:
        PayloadDecoder(f"{HERE}:Twice", (*VIEW, "payload_size"))
    assert "two columns would be named" in str(caught.value)
    assert [field.name for field in PayloadDecoder(f"{HERE}:Twice", VIEW).fields][:2] == ["size", "payload_Size"]


def test_functions_return_named_tuples_dataclasses_and_typed_dicts() -> None:
    assert decode("pair", struct.pack("<qq", 1, 2)) == [{"first": 1, "second": 2, "decode_error": None}]
    assert decode("named", b"ada") == [{"name": "ada", "decode_error": None}]
    assert decode("point", b"1.5") == [{"x": 1.5, "decode_error": None}]


def test_what_does_not_decode_has_an_error_and_no_values() -> None:
    good, short, none, null = decode("pair", struct.pack("<qq", 1, 2), b"short", b"", None)
    assert good["first"] == 1
    assert short == {"first": None, "second": None, "decode_error": "error: unpack requires a buffer of 16 bytes"}
    assert none == null == {"first": None, "second": None, "decode_error": None}
    assert "ValidationError" in decode("Order", b"{}")[0]["decode_error"]
    assert "DecodeError" in decode("Order", b"\xc1")[0]["decode_error"]
    assert decode("wrong", b"x")[0]["decode_error"] == "TypeError: the decoder returned bytes, not Named"


def test_a_value_that_does_not_fit_its_column_is_an_error_of_its_row_alone() -> None:
    small, big = decode("huge", b"x", bytes(64))
    assert small == {"first": 1, "second": 2, "decode_error": None}
    assert (big["first"], big["second"]) == (None, None)
    assert big["decode_error"].startswith("second: ")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Nothing", f"decoder='{HERE}:Nothing': {HERE} has no Nothing"),
        ("HERE", "is not a msgspec Struct, union of tagged Structs, or function from bytes to one"),
        ("untyped", "the function must be annotated with the type that it returns"),
        ("number", "int has no fields that could be columns; return a msgspec Struct or a dataclass"),
        ("Anything", "field 'value' of Anything cannot be a column: its type is any"),
        ("Mixed", "field 'value' of Mixed cannot be a column: its values are neither all integers nor all texts"),
    ],
)
def test_a_decoder_that_gives_no_columns_is_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        PayloadDecoder(f"{HERE}:{name}", VIEW)


def test_a_literal_of_numbers_and_none_is_a_number() -> None:
    rows = decode("Levels", b'{"level":2}', b"{}")
    assert rows == [{"level": 2, "decode_error": None}, {"level": None, "decode_error": None}]


@pytest.mark.parametrize("count", [1, 40])
def test_a_field_that_a_payload_leaves_unset_is_null(count: int) -> None:
    rows = decode("Change", *[b"{}", b'{"number":1,"first":{"symbol":"a","ratio":2}}'] * count)
    nothing = dict.fromkeys(("number", "text", "key", "legs", "first", "decode_error"))
    assert rows == [nothing, nothing | {"number": 1, "first": {"symbol": "a", "ratio": 2}}] * count


@pytest.mark.parametrize("count", [1, 40])
def test_a_time_outside_of_what_spark_has_is_an_error_of_its_row_alone(count: int) -> None:
    texts = [b'{"at":"9999-12-31T23:59:59-12:00"}', b'{"at":"0001-01-01T00:00:00+12:00"}']
    rows = decode("Timed", *[*texts, b'{"at":"2026-01-01T00:00:00+02:00","number":1}'] * count)
    bad = {"at": None, "number": None, "decode_error": "OverflowError: date value out of range"}
    time = datetime.datetime(2025, 12, 31, 22, tzinfo=datetime.UTC)
    assert rows == [bad, bad, {"at": time, "number": 1, "decode_error": None}] * count


@pytest.mark.parametrize("name", OF_ANOTHER_TYPE)
def test_what_a_function_gives_of_another_type_is_an_error_and_is_not_cut(name: str) -> None:
    bad, good = decode("unchecked", name.encode(), b"")
    assert re.match(r"TypeError: .* is not a (whole number|date|timedelta|datetime)$", bad.pop("decode_error"))
    assert set(bad.values()) == {None}
    assert (good["number"], good["numbers"], good["day"], good["length"], good["decode_error"]) == (
        1,
        [2],
        UNCHECKED.day,
        UNCHECKED.length,
        None,
    )


def test_an_error_of_a_decoder_is_that_of_its_row_whatever_it_is() -> None:
    errors = [row["decode_error"] for row in decode("hostile", b"text", b"none", b"exit")]
    assert errors == ["ValueError: \\ud800", "Textless, which has no text", "SystemExit: 3"]
    rows = decode("Exits", b'{"number":0}', *[b'{"number":1}'] * 40)
    assert [row["decode_error"] for row in rows] == ["SystemExit: 3"] + [None] * 40


def test_a_type_that_contains_itself_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="Itself'?: a type contains itself: it cannot be a column"):
        PayloadDecoder(f"{HERE}:Itself", VIEW)


def test_types_of_each_other_that_make_too_many_fields_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    kind: Any = Leg
    for number in range(24):
        kind = msgspec.defstruct(f"Wide{number}", [(name, kind) for name in "abcd"])
    monkeypatch.setattr(sys.modules[__name__], "Wide", kind, raising=False)
    with pytest.raises(ConfigurationError, match="has more than 10000 fields with those in its structs"):
        PayloadDecoder(f"{HERE}:Wide", VIEW)


def test_a_decoder_needs_a_module_that_can_be_imported() -> None:
    with pytest.raises(ConfigurationError, match="decoder='no.module:x': module no.module cannot be imported"):
        PayloadDecoder("no.module:x", VIEW)
