"""What is wrong with an SBE schema is one sentence that names the file and the element; what is right is read."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from container.errors import ConfigurationError
from container.sbe.decoder import SbeDecoder
from container.sbe.schema import Number, read_schema

ORDERS = Path(__file__).parent / "schemas" / "orders.xml"

HEADER = """<composite name="messageHeader">
<type name="blockLength" primitiveType="uint16"/><type name="templateId" primitiveType="uint16"/>
<type name="schemaId" primitiveType="uint16"/><type name="version" primitiveType="uint16"/></composite>"""


def schema(messages: str, types: str = "", header: str = HEADER, attributes: str = 'id="1"') -> str:
    return f"<messageSchema {attributes}><types>{header}{types}</types>{messages}</messageSchema>"


def message(content: str, attributes: str = 'name="M" id="1"') -> str:
    return f"<message {attributes}>{content}</message>"


FIELD = '<field name="a" id="1" type="{}"/>'


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "is no XML: no element found"),
        ("<a", "is no XML: unclosed token"),
        ("<a/>", "a: the root of an SBE schema is messageSchema"),
        (schema(""), "messageSchema: it has no message"),
        (schema("", attributes='id="1" byteOrder="big"'), "byteOrder='big': must be littleEndian or bigEndian"),
        (schema(message(""), attributes=""), "messageSchema: needs the attribute id"),
        (schema(message(""), attributes='id="x"'), "id='x': must be a number from 0 to 2147483647"),
        (schema(message(""), header=""), "messageSchema: the type 'messageHeader' is not in the schema"),
        (
            schema(message(""), header=HEADER.replace("templateId", "template")),
            "messageSchema: its composite 'messageHeader' needs 'templateId' with an unsigned type",
        ),
        (schema(message("", 'name="M"')), "message 'M': needs the attribute id"),
        (schema(message("") + message("", 'name="N" id="1"')), "messageSchema: two messages have the id 1"),
        (schema(message("") + message("", 'name="M" id="2"')), "messageSchema: two messages have the name M"),
        (schema(message(FIELD.format("Price"))), "field 'a': the type 'Price' is not in the schema"),
        (schema(message('<field name="a" id="1"/>')), "field 'a': needs the attribute type"),
        (schema(message(FIELD.format("int8") * 2)), "message 'M': has 'a' twice"),
        (
            schema(message(FIELD.format("int64") + '<field name="b" type="int8" offset="7"/>')),
            "field 'b': offset=7: the field before it ends at 8",
        ),
        (
            schema(message(FIELD.format("int64"), 'name="M" id="1" blockLength="7"')),
            "message 'M': blockLength=7: its fields end at 8",
        ),
        (
            schema(message(FIELD.format("T")), '<type name="T" primitiveType="int7"/>'),
            "type 'T': primitiveType='int7': must be one of char, int8",
        ),
        (
            schema(message(FIELD.format("T")), '<type name="T" primitiveType="int8" length="-1"/>'),
            "type 'T': length='-1': must be a number from 0",
        ),
        (
            schema(message(FIELD.format("T")), '<type name="T" primitiveType="char" characterEncoding="KOI8-R"/>'),
            "type 'T': characterEncoding='KOI8-R': is not known",
        ),
        (
            schema(message(FIELD.format("T")), '<type name="T" primitiveType="int8" presence="constant">x</type>'),
            "type 'T': 'x' is no whole number",
        ),
        (
            schema(message(FIELD.format("T")), '<type name="T" primitiveType="int8" presence="constant">128</type>'),
            "type 'T': '128': must be from -128 to 127",
        ),
        (
            schema(
                message(FIELD.format("T")), '<type name="T" primitiveType="uint8" presence="optional" nullValue="256"/>'
            ),
            "type 'T': '256': must be from -128 to 255",
        ),
        (
            schema(
                message(FIELD.format("E")),
                '<enum name="E" encodingType="int8"><validValue name="A">200</validValue></enum>',
            ),
            "validValue 'A': '200': must be from -128 to 127",
        ),
        (
            schema(
                message('<field name="a" id="1" type="T" presence="constant" valueRef="E.A"/>'),
                '<type name="T" primitiveType="int8"/>'
                '<enum name="E" encodingType="uint8"><validValue name="A">200</validValue></enum>',
            ),
            "type 'T': valueRef='E.A': 200 is no int8",
        ),
        (
            schema(
                message(FIELD.format("S")),
                '<set name="S" encodingType="uint8"><choice name="A">1</choice><choice name="B">1</choice></set>',
            ),
            "set 'S': has two names for one bit",
        ),
        (
            schema(
                message(FIELD.format("C")),
                '<composite name="C">' + '<type name="x" primitiveType="int8"/>' * 2 + "</composite>",
            ),
            "composite 'C': has 'x' twice",
        ),
        (
            schema(message(FIELD.format("T")), '<type name="T" primitiveType="double" presence="constant">x</type>'),
            "type 'T': its constant 'x' is no number",
        ),
        (
            schema(message(FIELD.format("T")), '<composite name="T"><ref name="t" type="T"/></composite>'),
            "composite 'T': has composites in composites more than 16 deep, or itself",
        ),
        (schema(message(FIELD.format("T")), '<composite name="T"/>'), "composite 'T': has no members"),
        (
            schema(message(FIELD.format("E")), '<enum name="E" encodingType="double"/>'),
            "enum 'E': encodingType='double': must be an integer or char",
        ),
        (
            schema(
                message(FIELD.format("E")),
                '<enum name="E" encodingType="char"><validValue name="A">AB</validValue></enum>',
            ),
            "validValue 'A': its value 'AB' is no character",
        ),
        (
            schema(message(FIELD.format("S")), '<set name="S" encodingType="uint8"><choice name="A">8</choice></set>'),
            "choice 'A': '8': must be from 0 to 7",
        ),
        (
            schema(message('<field name="a" type="int8" presence="constant" valueRef="E.A"/>')),
            "field 'a': valueRef='E.A': there is no such enum",
        ),
        (
            schema(message('<group name="g"/>')),
            "group 'g': the type 'groupSizeEncoding' is not in the schema",
        ),
        (
            schema(
                message('<data name="d" type="V"/>'),
                '<composite name="V"><type name="length" primitiveType="uint8"/></composite>',
            ),
            "composite 'V': has no varData, as data must",
        ),
        (
            schema(message('<data name="d" type="V"/>'), '<type name="V" primitiveType="int8"/>'),
            "data 'd': the type 'V' must be a composite",
        ),
        ('<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "declares entities; write what they stand for in their place"),
        (
            schema('<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="gone.xml"/>'),
            "cannot be read: [Errno 2] No such file or directory",
        ),
    ],
)
def test_a_wrong_schema_is_one_sentence(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "schema.xml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        read_schema(str(path))
    assert str(caught.value).startswith(f"schema {path}: ")
    assert error in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_files(tmp_path: Path) -> None:
    for path, error in (
        (str(tmp_path / "none"), "cannot be read: [Errno 2]"),
        (str(tmp_path), "cannot be read: [Errno 21]"),
        ("a\0b", "must be a path in UTF-8, without NUL"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            read_schema(path)
        assert error in str(caught.value)
    (tmp_path / "loop.xml").write_text(
        schema('<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="loop.xml"/>')
    )
    with pytest.raises(ConfigurationError, match=r"loop\.xml: recursive include"):
        read_schema(str(tmp_path / "loop.xml"))
    with (tmp_path / "big.xml").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(ConfigurationError, match="has more than 16777216 bytes or 1000 files with all"):
        read_schema(str(tmp_path / "big.xml"))


def test_files_that_include_each_other_to_no_end_are_refused(tmp_path: Path) -> None:
    for number in range(12):
        includes = f'<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="{number + 1}.xml"/>' * 4
        (tmp_path / f"{number}.xml").write_text(f"<types>{includes}</types>")
    (tmp_path / "12.xml").write_text("<types></types>")
    with pytest.raises(ConfigurationError, match="has more than 16777216 bytes or 1000 files with all"):
        read_schema(str(tmp_path / "0.xml"))


def test_defaults_of_the_standard(tmp_path: Path) -> None:
    names = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float")
    fields = "".join(f'<field name="{name}" type="{name}" presence="optional"/>' for name in names)
    path = tmp_path / "schema.xml"
    path.write_text(schema(message(fields)))
    found = read_schema(str(path))
    assert (found.version, found.is_big_endian, found.header_size) == (0, False, 8)
    numbers = [field for field in found.messages[0].block.fields if isinstance(field, Number)]
    assert [number.null for number in numbers] == [
        *(2**7, 2**8 - 1, 2**15, 2**16 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, None),
    ]
    assert [number.offset for number in numbers] == [0, 1, 2, 4, 6, 10, 14, 22, 30]


def test_a_single_message_needs_fields(tmp_path: Path) -> None:
    path = tmp_path / "schema.xml"
    path.write_text(schema(message("")))
    with pytest.raises(ConfigurationError, match="message 'M' has no fields to be columns"):
        SbeDecoder(read_schema(str(path)), "M")
    assert [str(field.type) for field in SbeDecoder(read_schema(str(path))).fields] == ["bool"]


def test_a_schema_can_be_sent(tmp_path: Path) -> None:
    import pickle

    found = read_schema(str(ORDERS))
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("field", "types"),
    [
        ("int8", ""),
        (
            "S",
            '<set name="S" encodingType="uint64">'
            + "".join(f'<choice name="c{bit}">{bit}</choice>' for bit in range(63))
            + "</set>",
        ),
    ],
)
def test_fields_without_composites_are_counted_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str, types: str
) -> None:
    path = tmp_path / "wide.xml"
    fields = "".join(f'<field name="f{number}" id="{number}" type="{field}"/>' for number in range(16))
    path.write_text(schema(message(fields), types))
    count = 16 if not types else 16 * 64
    monkeypatch.setattr("container.sbe.schema.FIELDS_MAX", 4 + count)  # with those of the header
    read_schema(str(path))
    monkeypatch.setattr("container.sbe.schema.FIELDS_MAX", 3 + count)
    with pytest.raises(ConfigurationError, match="fields with those in composites and sets"):
        read_schema(str(path))


def test_a_message_of_many_fields_is_read_in_a_short_time(tmp_path: Path) -> None:
    path = tmp_path / "wide.xml"
    fields = "".join(f'<field name="f{number}" id="{number}" type="int8"/>' for number in range(60_000))
    path.write_text(schema(message(fields)))
    begin = time.process_time()
    assert len(read_schema(str(path)).messages[0].block.fields) == 60_000
    assert time.process_time() - begin < 20  # to compare each name with all others takes minutes


def test_composites_of_each_other_that_make_too_many_fields_are_refused(tmp_path: Path) -> None:
    types = '<composite name="C0"><type name="x" primitiveType="int8"/></composite>'
    for number in range(1, 15):
        refs = "".join(f'<ref name="{name}" type="C{number - 1}"/>' for name in "abcd")
        types += f'<composite name="C{number}">{refs}</composite>'
    path = tmp_path / "wide.xml"
    path.write_text(schema(message(FIELD.format("C14")), types))
    with pytest.raises(
        ConfigurationError, match="messageSchema: has more than 100000 fields with those in composites and sets"
    ):
        read_schema(str(path))


@pytest.mark.parametrize(
    ("encoding", "reason"),
    [
        *((name, "multi-byte encodings are not supported") for name in ("Shift_JIS", "GBK", "Big5", "EUC-JP", "UTF-7")),
        ("no-such-encoding", "unknown encoding: no-such-encoding"),
        ("hex", "'hex' is not a text encoding"),
    ],
)
def test_an_encoding_that_cannot_be_read_is_named_with_what_to_do(tmp_path: Path, encoding: str, reason: str) -> None:
    text = f'<?xml version="1.0" encoding="{encoding}"?>{schema(message(FIELD.format("int8")))}'
    (tmp_path / "other.xml").write_bytes(text.encode("ascii"))
    include = '<a xmlns:xi="http://www.w3.org/2001/XInclude"><xi:include href="other.xml"/></a>'
    (tmp_path / "including.xml").write_text(include)
    for name in ("other.xml", "including.xml"):
        with pytest.raises(ConfigurationError) as refused:
            read_schema(str(tmp_path / name))
        assert str(refused.value).startswith(f"schema {tmp_path / name}: its encoding cannot be read: {reason}")
        assert str(refused.value).endswith(": save it as UTF-8")


@pytest.mark.parametrize("encoding", ["UTF-16", "ISO-8859-1", "windows-1252"])
def test_what_is_in_another_encoding_is_read_and_may_not_declare_entities(tmp_path: Path, encoding: str) -> None:
    head = f'<?xml version="1.0" encoding="{encoding}"?>'
    (tmp_path / "a.xml").write_bytes((head + schema(message(FIELD.format("int8")))).encode(encoding))
    assert [each.name for each in read_schema(str(tmp_path / "a.xml")).messages] == ["M"]
    (tmp_path / "b.xml").write_bytes(f'{head}<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'.encode(encoding))
    with pytest.raises(ConfigurationError, match="declares entities; write what they stand for in their place"):
        read_schema(str(tmp_path / "b.xml"))
