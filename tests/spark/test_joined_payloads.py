"""Payloads that are decoded by one call have the rows and errors that each of them has alone."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import random
import uuid
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from container.spark.payloads import PayloadDecoder, RowDecoder

HERE = "tests.spark.test_joined_payloads"


class Side(enum.Enum):
    BUY = "buy"
    SELL = "sell"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Named(enum.Enum):
    """Its ``value`` is not what it was made of."""

    ONE = "one"

    @property
    def value(self) -> str:
        return "other"


class Leg(msgspec.Struct):
    symbol: str
    ratio: int | None = None
    sides: list[Side | None] = []


class Corner(NamedTuple):
    x: float
    y: float


@dataclasses.dataclass
class Note:
    text: str


class Order(msgspec.Struct):
    order_id: int
    price: float | None = None
    text: str | None = None
    ok: bool = False
    raw: bytes | None = None
    side: Side | None = None
    level: Level = Level.LOW
    named: Named | None = None
    amount: decimal.Decimal | None = None
    at: datetime.datetime | None = None
    day: datetime.date | None = None
    time: datetime.time | None = None
    took: datetime.timedelta | None = None
    key: uuid.UUID | None = None
    kind: Literal["limit", "market"] = "limit"
    legs: list[Leg | None] | None = None
    leg: Leg | None = None
    groups: list[list[int]] = []
    numbers: set[int] = set()
    pair: tuple[int, int] | None = None
    tags: dict[str, int | None] | None = None
    corner: Corner | None = None
    note: Note | None = None


class Row(msgspec.Struct, array_like=True):
    a: int
    b: str = ""


class Bid(msgspec.Struct, tag=True):
    price: int


class Ask(msgspec.Struct, tag=True):
    price: float | None
    leg: Leg | None = None


class Even(msgspec.Struct):
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError(f"{self.number} is odd")


type Quote = Bid | Ask
type Perhaps = Leg | None

KINDS: dict[str, Any] = {
    "Order": Order,
    "Row": Row,
    "Quote": Bid | Ask,
    "Even": Even,
    "Perhaps": Leg,
    "Leg": Leg,
}
DECODERS = {name: PayloadDecoder(f"{HERE}:{name}", ("payload",)) for name in KINDS}

CRAFTED = [
    b"",
    b" ",
    b"\n\t",
    b"null",
    b" null",
    b"1,2",
    b"[",
    b"]",
    b"{",
    b"}",
    b"[1],[2]",
    b"[1],[2",
    b"],[",
    b'{"number":2}\n{"number":4}',
    b'{"number":2},{"number":4}',
    b'{"number":2}',
    b' {"number":2} \r\n',
    b'{"number":2}\x0b',
    b'{"number":2}\x00',
    b'\xef\xbb\xbf{"number":2}',
    b'{"number":2,"number":3}',
    b'{"number":NaN}',
    b'{"order_id":1e400}',
    b'{"order_id":99999999999999999999}',
    b'{"order_id":9223372036854775808}',
    b'{"order_id":1.0,"price":1}',
    b'{"order_id":1,"unknown":{"a":[1,"]}",{}]}}',
    b'{"order_id":1,"text":"\\ud800"}',
    b'{"order_id":1,"text":"\xff"}',
    b'{"order_id":1,"unknown":"\xff"}',
    b'{"order_id":1,"unknown":1.2.3}',
    b'{"order_id":1,"unknown":-}',
    b'{"order_id":1,"unknown":01}',
    b'{"order_id":1,"text":"a',
    b'b"}',
    b'{"order_id":1,"text":"a\\',
    b'"}',
    b'{"order_id":1,"amount":"1e40"}',
    b'{"order_id":1,"amount":"0.0000000000000000000001"}',
    b'{"order_id":1,"tags":{"a":1,"a":2}}',
    b'{"order_id":1,"day":"0001-01-01","at":"9999-12-31T23:59:59.999999Z"}',
    b'{"order_id":1,"at":"2026-01-01T00:00:00"}',
    b'{"order_id":1,"named":"one"}',
    b'[1,"a"]',
    b"[1,2]",
    b'{"type":"Bid","price":1}',
    b'{"price":1,"type":"Ask"}',
    b"[" * 2000,
    b'{"order_id":1,"unknown":' + b"[" * 500 + b"]" * 500 + b"}",
    b'{"order_id":1,"unknown":' + b"[" * 990 + b"]" * 990 + b"}",
    b"\x80",
    b"\xc0",
    b"\xc1",
    b"\x81\xa6number",
    b"\x04",
    b"\x81\xa6number\x02",
    b"\x81\xa6number\x02\x81\xa6number\x02",
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff\x01",
    b"\xc6\xff\xff\xff\xffabc",
    b"\x91" * 2000,
    b"\x92\x01",
    b"\xa1a",
]


def plain(random_: random.Random, name: str) -> Any:
    """A value that msgspec makes of the type; random, and with all fields now and then."""
    number = random_.randrange(-5, 100)
    leg = Leg(random_.choice(["", "a", "é☃", 'q"\\,]}']), random_.choice([None, 3]), [Side.BUY, None])
    if name == "Quote":
        return random_.choice([Bid(number), Ask(None), Ask(1.5, leg)])
    if name == "Even":
        return {"number": number}
    if name == "Row":
        return Row(number, "x,[")
    if name in ("Leg", "Perhaps"):
        return leg
    order = Order(number, random_.choice([None, 0.5]), random_.choice([None, "a],[b", "\x00"]), level=Level.HIGH)
    if random_.random() < 0.5:
        order.raw, order.side, order.amount = b"\x00,", Side.SELL, decimal.Decimal("1.25")
        order.at, order.day = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), datetime.date(1969, 1, 2)
        order.time, order.took = datetime.time(1, 2, 3), datetime.timedelta(seconds=1, microseconds=7)
        order.key, order.kind = uuid.UUID(int=number + 9), "market"
        order.legs, order.leg, order.groups = [leg, None], leg, [[], [1, 2]]
        order.numbers, order.pair, order.tags = {1, 2}, (1, 2), {"x": 1, "y": None}
        order.corner, order.note = Corner(1, 2), Note("n")
    return order


def mutated(random_: random.Random, payload: bytes) -> bytes:
    changed = bytearray(payload)
    for _ in range(random_.randrange(1, 4)):
        at = random_.randrange(len(changed) + 1)
        match random_.randrange(4):
            case 0:
                del changed[at : at + random_.randrange(1, 4)]
            case 1:
                changed[at:at] = random_.choice(
                    [b",", b"[", b"]", b"{", b"}", b'"', b"\\", b" ", b"\x00", b"\xff", b"1"]
                )
            case 2:
                changed[at : at + 1] = bytes([random_.randrange(256)])
            case _:
                del changed[at:]
    return bytes(changed)


def batch(random_: random.Random, name: str, length: int) -> list[bytes | None]:
    """Payloads of one or both formats; in most batches some are wrong."""
    json, wrong = random_.choice([0.0, 0.5, 1.0]), random_.choice([0.0, 0.01, 0.3])
    payloads: list[bytes | None] = []
    for _ in range(length):
        value = plain(random_, name)
        payload = msgspec.json.encode(value) if random_.random() < json else msgspec.msgpack.encode(value)
        if random_.random() < wrong:
            choices = [payload + payload, payload[:-1], random_.choice(CRAFTED), mutated(random_, payload), None]
            payloads.append(random_.choice(choices))
        else:
            payloads.append(payload)
    return payloads


def assert_as_row_by_row(name: str, payloads: Sequence[bytes | None]) -> None:
    array = pa.array(payloads, pa.binary())
    decoder = DECODERS[name]
    expected = RowDecoder.decode(decoder, array)
    found = decoder.decode(array)
    for field, one, other in zip(decoder.fields, found, expected, strict=True):
        one.validate(full=True)
        assert one.type == other.type == field.type
        # As texts, in which a NaN equals a NaN and a negative zero is not zero.
        assert repr(one.to_pylist()) == repr(other.to_pylist()), field.name


@settings(max_examples=150)
@given(st.sampled_from(sorted(KINDS)), st.integers(0, 2**32), st.integers(0, 120))
def test_random_and_mutated_payloads_decode_as_row_by_row(name: str, seed: int, length: int) -> None:
    assert_as_row_by_row(name, batch(random.Random(seed), name, length))


@settings(max_examples=150)
@given(st.sampled_from(sorted(KINDS)), st.lists(st.sampled_from(CRAFTED), min_size=17, max_size=40))
def test_crafted_payloads_decode_as_row_by_row(name: str, payloads: list[bytes]) -> None:
    assert_as_row_by_row(name, payloads)


@pytest.mark.parametrize("name", sorted(KINDS))
@pytest.mark.parametrize("crafted", [[b"[1],[2]", b""], [b'{"number":2},{"number":4}', b""], [b"[1", b"2]"]])
def test_payloads_that_would_shift_the_rows_after_them_do_not(name: str, crafted: list[bytes]) -> None:
    good = [b'{"number":2}', b"[1]", b'{"symbol":"a"}', b'{"type":"Bid","price":1}', b'{"order_id":1}']
    for one in good:
        assert_as_row_by_row(name, [one] * 20 + crafted + [one] * 20)


def test_a_batch_without_errors_is_decoded_by_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("row by row")

    monkeypatch.setattr(PayloadDecoder, "cells", fail)
    chooser = random.Random(5)
    for encode in (msgspec.json.encode, msgspec.msgpack.encode):
        for name in ("Order", "Quote", "Row", "Leg"):
            payloads = [encode(plain(chooser, name)) for _ in range(100)]
            *_, errors = DECODERS[name].decode(pa.array(payloads, pa.binary()))
            assert errors.null_count == 100
