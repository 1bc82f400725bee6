"""Protobuf and Avro payloads: columns of all types, rows for what does not decode, refusals."""

from __future__ import annotations

import datetime
import io
import json
import pickle
import random
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from pyspark.sql import SparkSession

from container.errors import ConfigurationError
from container.spark.avro_payloads import AvroPayloads
from container.spark.decoders import Decoder, make_decoder
from container.spark.protobuf_payloads import ProtobufPayloads
from tests.spark.written_members import History

VIEW = ("log_position", "payload")
OPTIONAL, REPEATED, REQUIRED = 1, 3, 2
SCALARS = {
    "f64": 1,
    "f32": 2,
    "i64": 3,
    "u64": 4,
    "i32": 5,
    "x64": 6,
    "x32": 7,
    "flag": 8,
    "text": 9,
    "raw": 12,
    "u32": 13,
    "sx32": 15,
    "sx64": 16,
    "s32": 17,
    "s64": 18,
}
AT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=datetime.UTC)


def add_field(message: Any, name: str, kind: int, label: int = OPTIONAL, type_name: str = "") -> Any:
    field = message.field.add(name=name, number=len(message.field) + 1, type=kind, label=label)
    if type_name:
        field.type_name = type_name
    return field


def descriptors() -> Any:
    """Messages as protoc would describe them: the file and the one that it imports."""
    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    file = files.file.add(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    side = file.enum_type.add(name="Side")
    for number, name in enumerate(("BUY", "SELL")):
        side.value.add(name=name, number=number)
    order = file.message_type.add(name="Order")
    for name, kind in SCALARS.items():
        add_field(order, name, kind)
    add_field(order, "side", 14, OPTIONAL, ".shop.Side")
    add_field(order, "at", 11, OPTIONAL, ".google.protobuf.Timestamp")
    leg = file.message_type.add(name="Leg")
    add_field(leg, "symbol", 9)
    file.message_type.add(name="Nothing")
    add_field(order, "leg", 11, OPTIONAL, ".shop.Leg")
    add_field(order, "legs", 11, REPEATED, ".shop.Leg")
    add_field(order, "numbers", 5, REPEATED)
    entry = order.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    add_field(entry, "key", 9)
    add_field(entry, "value", 11, OPTIONAL, ".shop.Leg")
    add_field(order, "tags", 11, REPEATED, ".shop.Order.TagsEntry")
    order.oneof_decl.add(name="choice")
    for name, kind in (("one", 5), ("other", 9)):
        add_field(order, name, kind).oneof_index = 0
    order.oneof_decl.add(name="_perhaps")
    perhaps = add_field(order, "perhaps", 5)
    perhaps.oneof_index, perhaps.proto3_optional = 1, True
    add_field(order, "nothing", 11, OPTIONAL, ".shop.Nothing")
    tree = file.message_type.add(name="Tree")
    add_field(tree, "left", 11, OPTIONAL, ".shop.Tree")
    old = files.file.add(name="old.proto", package="shop", syntax="proto2").message_type.add(name="Old")
    add_field(old, "number", 5, REQUIRED)
    return files


def message_class(name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptors().file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def rows(decoder: Decoder, *payloads: bytes | None) -> list[dict[str, Any]]:
    """The rows of payloads, by the decoder as an executor gets it."""
    decoder = pickle.loads(pickle.dumps(decoder))
    arrays = decoder.decode(pa.array(payloads, pa.binary()))
    assert [array.type for array in arrays] == [field.type for field in decoder.fields]
    found: list[dict[str, Any]] = pa.table(arrays, schema=pa.schema(decoder.fields)).to_pylist()
    return found


def protobuf_decoder(path: Path, name: str = "shop.Order") -> Decoder:
    file = path / "shop.pb"
    file.write_bytes(descriptors().SerializeToString())
    decoder = make_decoder(f"protobuf:{file}#{name}", VIEW)
    file.unlink()  # executors have none
    return decoder


def test_all_types_of_protobuf_are_columns(tmp_path: Path) -> None:
    order = message_class("shop.Order")(
        f64=0.1, f32=0.5, i64=-(2**63), u64=2**64 - 1, i32=-1, x64=2**63, x32=2**32 - 1, flag=True, text="é", raw=b"\0",
        u32=2**32 - 1, sx32=-3, sx64=-4, s32=-5, s64=-6, side=1, leg={"symbol": ""}, legs=[{"symbol": "A"}, {}],
        numbers=[3, 1], tags={"b": {"symbol": "B"}, "a": {}}, other="", perhaps=0, nothing={},
    )  # fmt: skip
    order.at.FromDatetime(AT)
    (row,) = rows(protobuf_decoder(tmp_path), order.SerializeToString())
    assert row == {
        "f64": 0.1, "f32": 0.5, "i64": -(2**63), "u64": Decimal(2**64 - 1), "i32": -1, "x64": Decimal(2**63),
        "x32": 2**32 - 1, "flag": True, "text": "é", "raw": b"\0", "u32": 2**32 - 1, "sx32": -3, "sx64": -4, "s32": -5,
        "s64": -6, "side": "SELL", "at": AT, "leg": {"symbol": ""}, "legs": [{"symbol": "A"}, {"symbol": ""}],
        "numbers": [3, 1], "tags": [("a", {"symbol": ""}), ("b", {"symbol": "B"})], "one": None, "other": "",
        "perhaps": 0, "nothing": True, "decode_error": None,
    }  # fmt: skip


def test_what_a_protobuf_message_lacks_is_null_where_it_has_presence_else_the_default(tmp_path: Path) -> None:
    empty, unknown, null = rows(protobuf_decoder(tmp_path), b"", b"\x80\x01\x07", None)
    assert [empty[name] for name in ("i64", "text", "side", "numbers", "tags")] == [0, "", "BUY", [], []]
    assert [empty[name] for name in ("at", "leg", "one", "other", "perhaps", "nothing")] == [None] * 6
    assert unknown["side"] == "7"
    assert set(null.values()) == {None}


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"\xff", "DecodeError: "),
        (b"\x4a\x7fabc", "DecodeError: "),  # a text of 127 bytes, of which three are there
        (b"\x4a\xff\xff\xff\xff\x07", "DecodeError: "),
        (b"\x4a\x01\xff", "DecodeError: "),  # no UTF-8
        (b"\x0b" * 100_000, "DecodeError: "),
        (b"\x18\x01\x00", "DecodeError: "),  # a byte too many
        (b"\x8a\x01\x07\x08\x80\x80\x80\x80\x80\x7f", "outside of the years 1 to 9999"),
        (b"\x8a\x01\x02\x10\x81", "DecodeError"),
        (b"\x8a\x01\x0b\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "a Timestamp has -1 nanos"),
    ],
)
def test_a_protobuf_payload_that_does_not_decode_is_a_row_with_its_error(
    tmp_path: Path, payload: bytes, message: str
) -> None:
    good, bad, after = rows(protobuf_decoder(tmp_path), b"\x18\x01", payload, b"\x18\x02")
    assert (good["i64"], after["i64"]) == (1, 2)
    assert message in bad.pop("decode_error")
    assert set(bad.values()) == {None}


def test_a_required_field_that_is_missing_is_an_error(tmp_path: Path) -> None:
    good, bad = rows(protobuf_decoder(tmp_path, "shop.Old"), b"\x08\x05", b"")
    assert good == {"number": 5, "decode_error": None}
    assert bad["number"] is None
    assert bad["decode_error"]


def test_a_generated_class_names_its_descriptor() -> None:
    decoder = make_decoder("protobuf:google.protobuf.timestamp_pb2:Timestamp", VIEW)
    assert rows(decoder, b"\x08\x05\x10\x06") == [{"seconds": 5, "nanos": 6, "decode_error": None}]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("FILE#shop.Missing", "no message shop.Missing; there are google.protobuf.Timestamp, shop.Order, shop.Leg"),
        ("FILE#shop.Tree", "the message shop.Tree contains itself, in field shop.Tree.left"),
        ("FILE#shop.Nothing", "the message shop.Nothing has no fields that could be columns"),
        ("FILE.no#shop.Order", "the descriptors cannot be read"),
        ("FILE\0#shop.Order", "the descriptors cannot be read"),
        ("FILE", "name a file of protoc --descriptor_set_out and a message"),
        ("BAD#shop.Order", "cannot be used as descriptors"),
        ("ALONE#shop.Order", "--include_imports"),
        ("google.protobuf.timestamp_pb2:DESCRIPTOR", "is not a class of a protobuf message"),
    ],
)
def test_what_cannot_be_columns_of_protobuf_is_refused(tmp_path: Path, name: str, message: str) -> None:
    files = descriptors()
    (tmp_path / "shop.pb").write_bytes(files.SerializeToString())
    (tmp_path / "bad.pb").write_bytes(b"\xff\xff")
    del files.file[0]
    (tmp_path / "alone.pb").write_bytes(files.SerializeToString())
    for word, file in (("FILE", "shop.pb"), ("BAD", "bad.pb"), ("ALONE", "alone.pb")):
        name = name.replace(word, str(tmp_path / file))
    with pytest.raises(ConfigurationError) as caught:
        make_decoder(f"protobuf:{name}", VIEW)
    assert message in str(caught.value)
    assert str(caught.value).count("decoder=") == 1


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "shop.Order", "fields": [{"name": name, "type": kind} for name, kind in fields]}


SIDE = {"type": "enum", "name": "Side", "symbols": ["BUY", "SELL"]}
LEG = {"type": "record", "name": "Leg", "fields": [{"name": "side", "type": SIDE}, {"name": "n", "type": "int"}]}
ORDER = record(
    ("flag", "boolean"),
    ("i", "int"),
    ("l", "long"),
    ("f", "float"),
    ("d", "double"),
    ("raw", "bytes"),
    ("text", "string"),
    ("perhaps", ["null", "string"]),
    ("last", ["long", "null"]),
    ("leg", LEG),
    ("again", ["null", "Side"]),
    ("legs", {"type": "array", "items": "Leg"}),
    ("tags", {"type": "map", "values": ["null", "int"]}),
    ("hash", {"type": "fixed", "name": "Hash", "size": 2}),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}),
    ("fee", {"type": "fixed", "name": "Fee", "size": 4, "logicalType": "decimal", "precision": 6, "scale": 3}),
    ("millis", {"type": "long", "logicalType": "timestamp-millis"}),
    ("micros", {"type": "long", "logicalType": "timestamp-micros"}),
    ("local", {"type": "long", "logicalType": "local-timestamp-micros"}),
    ("day", {"type": "int", "logicalType": "date"}),
    ("time", {"type": "int", "logicalType": "time-millis"}),
    ("exact", {"type": "long", "logicalType": "time-micros"}),
    ("key", {"type": "string", "logicalType": "uuid"}),
)
KEY = "00000000-0000-0000-0000-000000000007"
VALUE: dict[str, Any] = {
    "flag": True, "i": -5, "l": -(2**63), "f": 0.5, "d": 0.1, "raw": b"\0", "text": "é", "perhaps": None, "last": 7,
    "leg": {"side": "SELL", "n": 1}, "again": "BUY", "legs": [{"side": "BUY", "n": 2}, {"side": "SELL", "n": 3}],
    "tags": {"a": 1, "b": None}, "hash": b"xy", "price": Decimal("-123456789012345678.90"), "fee": Decimal("1.250"),
    "millis": AT.replace(microsecond=678_000), "micros": AT, "local": AT.replace(tzinfo=None), "day": AT.date(),
    "time": AT.time().replace(microsecond=678_000), "exact": AT.time(), "key": KEY,
}  # fmt: skip


def avro_decoder(path: Path, schema: Any) -> Decoder:
    file = path / "order.avsc"
    file.write_text(json.dumps(schema), encoding="utf-8")
    decoder = make_decoder(f"avro:{file}", VIEW)
    file.unlink()  # executors have none
    return decoder


def avro(schema: Any, value: Any) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), value)
    return file.getvalue()


def test_all_types_of_avro_are_columns(tmp_path: Path) -> None:
    first, second = rows(avro_decoder(tmp_path, ORDER), avro(ORDER, VALUE), avro(ORDER, VALUE | {"perhaps": "x"}))
    texts = {"time": "03:04:05.678000", "exact": "03:04:05.678901", "tags": [("a", 1), ("b", None)]}
    assert first == VALUE | texts | {"decode_error": None}
    assert second == first | {"perhaps": "x"}


def test_blocks_of_avro_may_have_sizes(tmp_path: Path) -> None:
    decoder = avro_decoder(tmp_path, record(("numbers", {"type": "array", "items": "int"})))
    one, two, wrong = rows(decoder, b"\x03\x04\x02\x04\x00", b"\x02\x02\x01\x02\x04\x00", b"\x03\x06\x02\x04\x00")
    assert one["numbers"] == two["numbers"] == [1, 2]
    assert wrong["numbers"] is None
    assert "a block ends at byte 4, by its size at byte 5" in wrong["decode_error"]


@pytest.mark.parametrize(
    ("kind", "payload", "message"),
    [
        ("int", b"", "the payload ends after 0 bytes, within a record"),
        ("int", b"\x02\x00", "the record ends after 1 of 2 bytes"),
        ("int", b"\x80\x80\x80\x80\x10", "the int at byte 0 is 2147483648: longer than 32 bits"),
        ("long", b"\xff" * 12, "longer than 64 bits"),
        ("boolean", b"\x02", "no boolean at byte 0"),
        ("string", b"\x01", "the length at byte 0 is -1; 0 bytes are left"),
        ("string", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01a", "1 bytes are left"),
        ("string", b"\x02\xff", "UnicodeDecodeError"),
        (SIDE, b"\x01", "the index of shop.Side at byte 0 is -1: it is from 0 to 1"),
        (SIDE, b"\x04", "the index of shop.Side at byte 0 is 2"),
        (["null", "int"], b"\x01\x02", "the index of a union at byte 0 is -1"),
        ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "the payload ends"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\x04\x10\x00", "value: ArrowInvalid"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\x54" + b"\x7f" * 42, "a decimal has 42 bytes"),
        ({"type": "long", "logicalType": "timestamp-millis"}, b"\xff" * 9 + b"\x01", "outside of the years 1 to 9999"),
        ({"type": "int", "logicalType": "date"}, b"\xff\xff\xff\xff\x0f", "outside of the years 1 to 9999"),
        ({"type": "int", "logicalType": "time-millis"}, b"\x01", "a time is -1000 µs after midnight"),
    ],
)
def test_an_avro_payload_that_does_not_decode_is_a_row_with_its_error(
    tmp_path: Path, kind: Any, payload: bytes, message: str
) -> None:
    (row,) = rows(avro_decoder(tmp_path, record(("value", kind))), payload)
    assert row["value"] is None
    assert message in row["decode_error"]


def test_a_mutated_avro_payload_has_an_error_or_the_values_that_its_bytes_say(tmp_path: Path) -> None:
    schema = record(
        *[(field["name"], field["type"]) for field in ORDER["fields"] if "logicalType" not in field["type"]]
    )
    decoder = avro_decoder(tmp_path, schema)
    payload, chooser, payloads = avro(schema, {name: VALUE[name] for name in VALUE}), random.Random(3), []
    for _ in range(2000):
        changed = bytearray(payload)
        changed[chooser.randrange(len(changed))] = chooser.randrange(256)
        payloads.append(bytes(changed[: chooser.choice([len(changed), chooser.randrange(len(changed))])]))
    found = rows(decoder, *payloads)
    assert 200 < sum(row["decode_error"] is None for row in found) < 1800
    for one, row in zip(payloads, found, strict=True):
        if row.pop("decode_error") is None:
            again = avro(schema, row | {"tags": dict(row["tags"])})
            assert again == one or rows(decoder, again) == [row | {"decode_error": None}]


def test_messages_within_messages_beyond_what_python_can_follow_are_refused() -> None:
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="deep.proto", package="deep", syntax="proto3")
    for number in range(2_000):
        add_field(file.message_type.add(name=f"M{number}"), "m", 11, OPTIONAL, f".deep.M{number + 1}")
    add_field(file.message_type.add(name="M2000"), "x", 3)
    with pytest.raises(ConfigurationError, match="maximum recursion depth"):
        ProtobufPayloads("protobuf:x#deep.M0", files.SerializeToString(), "deep.M0", VIEW)


def test_a_protobuf_field_may_have_the_name_of_a_method() -> None:
    files = descriptor_pb2.FileDescriptorSet()
    names = [name for name in dir(descriptor_pb2.FileDescriptorSet) if not name.startswith("_")]
    message = files.file.add(name="names.proto", package="names", syntax="proto2").message_type.add(name="M")
    for name in names:
        add_field(message, name, 3)
    decoder = ProtobufPayloads("protobuf:x#names.M", files.SerializeToString(), "names.M", VIEW)
    assert rows(decoder, b"\x08\x05") == [dict.fromkeys(names) | {names[0]: 5, "decode_error": None}]


def test_a_schema_of_sbe_may_have_as_many_fields_as_it_says(tmp_path: Path) -> None:
    header = "".join(
        f'<type name="{name}" primitiveType="uint16"/>' for name in ("blockLength", "templateId", "schemaId", "version")
    )
    fields = "".join(f'<field name="f{number}" id="{number}" type="int8"/>' for number in range(1_000))
    messages = "".join(f'<message name="M{number}" id="{number}">{fields}</message>' for number in range(11))
    path = tmp_path / "wide.xml"
    path.write_text(
        f'<messageSchema package="p" id="1"><types><composite name="messageHeader">{header}</composite></types>'
        f"{messages}</messageSchema>"
    )
    assert len(make_decoder(f"sbe:{path}", VIEW).fields) == 12


def test_messages_of_each_other_that_make_too_many_fields_are_refused() -> None:
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="wide.proto", package="wide", syntax="proto3")
    add_field(file.message_type.add(name="M0"), "x", 3)
    schema: Any = record(("x", "int"))
    for number in range(1, 25):
        message = file.message_type.add(name=f"M{number}")
        for name in "abcd":
            add_field(message, name, 11, OPTIONAL, f".wide.M{number - 1}")
        others = [(name, schema["name"]) for name in "bcd"]
        schema = record(("a", schema), *others) | {"name": f"R{number}"}
    with pytest.raises(ConfigurationError, match="has more than 10000 fields"):
        ProtobufPayloads("protobuf:x#wide.M24", files.SerializeToString(), "wide.M24", VIEW)
    with pytest.raises(ConfigurationError, match="has more than 10000 fields"):
        AvroPayloads("avro:x", schema, VIEW)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (record(("a", ["int", "string"])), "a union can be a column if it is of null and one other type"),
        (record(("a", ["null", "shop.Order"])), "the record shop.Order contains itself"),
        (record(("a", "null")), "a null alone cannot be a column"),
        (record(("a", {"type": "array", "items": "null"})), "a null alone cannot be a column"),
        (record(), "the record shop.Order has no fields"),
        (record(("a", {"type": "fixed", "name": "F", "size": 0})), "the type shop.F has a size of 0"),
        (record(("a", {"type": "fixed", "name": "F", "size": -1})), "the type shop.F has a size of -1"),
        (record(("a", {"type": "fixed", "name": "F", "size": "3"})), "the type shop.F has a size of '3'"),
        (record(("a", "missing")), "not an Avro schema"),
        (record(("a", {"type": "bytes", "logicalType": "decimal", "precision": 39})), "decimal(39, 0) cannot be"),
        ("int", "is not the schema of a record"),
        ([record(("a", "int"))], "is not the schema of a record"),
        ({"type": "record"}, "not an Avro schema"),
    ],
)
def test_what_cannot_be_columns_of_avro_is_refused(tmp_path: Path, schema: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        avro_decoder(tmp_path, schema)
    assert message in str(caught.value)


def test_an_avro_schema_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.avsc").write_bytes(b"{")
    for name in ("none.avsc", "bad.avsc"):
        with pytest.raises(ConfigurationError, match="the schema cannot be read"):
            make_decoder(f"avro:{tmp_path / name}", VIEW)
    with pytest.raises(ConfigurationError, match="name the schema's file"):
        make_decoder("avro:", VIEW)


@pytest.mark.parametrize(
    ("text", "package", "extra"),
    [("avro:x", "fastavro", "avro"), ("protobuf:x#y", "google.protobuf", "protobuf")],
)
def test_a_library_that_is_missing_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, text: str, package: str, extra: str
) -> None:
    monkeypatch.delitem(sys.modules, f"container.spark.{extra}_payloads", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigurationError) as caught:
        make_decoder(text, VIEW)
    assert f"pip install 'aeron-cluster-container[{extra}]'" in str(caught.value)


def test_spark_reads_payloads_of_protobuf_and_avro(spark: SparkSession, tmp_path: Path) -> None:
    order = message_class("shop.Order")
    (tmp_path / "shop.pb").write_bytes(descriptors().SerializeToString())
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER), encoding="utf-8")
    decoders: dict[str, Callable[[int], Any]] = {
        f"protobuf:{tmp_path / 'shop.pb'}#shop.Order": lambda number: order(i64=number, at={"seconds": number}),
        f"avro:{tmp_path / 'order.avsc'}": lambda number: VALUE | {"l": number},
    }
    for kind, (decoder, make) in enumerate(decoders.items()):
        history = History(tmp_path / f"member-{kind}")
        history.begin_term()
        history.open_session(1)
        for number in range(100):
            payload = make(number)
            encoded = avro(ORDER, payload) if kind else payload.SerializeToString()
            history.message(1, b"\xff" if number == 50 else encoded)
        member = history.finish()
        frame = spark.read.format("aeron.cluster").options(view="messages", decoder=decoder).load(str(member.base_dir))
        rows = frame.where("template_id = 1").orderBy("log_position").collect()
        found = [row["l" if kind else "i64"] for row in rows]
        assert found == [None if number == 50 else number for number in range(100)]
        assert [number for number, row in enumerate(rows) if row.decode_error is not None] == [50]
        assert {row.decode_error for row in frame.where("template_id <> 1").collect()} == {None}
