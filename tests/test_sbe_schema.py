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
    return f'<messageSchema package="p" {attributes}><types>{header}{types}</types>{messages}</messageSchema>'


def message(content: str, attributes: str = 'name="M" id="1"') -> str:
    return f"<message {attributes}>{content}</message>"


FIELD = '<field name="a" id="1" type="{}"/>'
DATA = '<data name="d" id="2" type="V"/>'
TYPES = """<composite name="V"><type name="length" primitiveType="uint8"/>
<type name="varData" primitiveType="uint8" length="0"/></composite><composite name="groupSizeEncoding">
<type name="blockLength" primitiveType="uint16"/><type name="numInGroup" primitiveType="uint16"/></composite>"""


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "not XML: no element found"),
        ("<a", "not XML: unclosed token"),
        (schema(message("<x>" * 100_000 + "</x>" * 100_000)), "has elements in elements too deep to be read"),
        (
            schema(message(""), f'<type name="T" primitiveType="double" presence="constant">{"9" * 1_000_000}x</type>'),
            " is not a number",
        ),
        ("<a/>", "a: the root of an SBE schema is messageSchema"),
        (schema(message("")).replace('package="p"', ""), "messageSchema: needs the attribute package"),
        (schema(message(""), attributes=""), "messageSchema: needs the attribute id"),
        (schema(message(""), attributes='id="x"'), "id='x': must be a whole number of at most 32 bits"),
        (schema(message(""), header=""), "messageSchema: the type 'messageHeader' is not in the schema"),
        (
            schema(message(""), header=HEADER.replace("templateId", "template")),
            "messageSchema: its composite 'messageHeader' needs 'templateId' with the type of an integer",
        ),
        (schema(message("", 'name="M"')), "message 'M': needs the attribute id"),
        (schema(message("") + message("", 'name="N" id="1"')), "messageSchema: two messages have the id 1"),
        (schema(message("") + message("", 'name="M" id="2"')), "messageSchema: two messages have the name 'M'"),
        (schema(message(FIELD.format("Price"))), "field 'a': the type 'Price' is not in the schema"),
        (schema(message('<field name="a" id="1"/>')), "field 'a': needs the attribute type"),
        (schema(message(FIELD.format("int8") + FIELD.format("int8").replace("1", "2"))), "message 'M': has twice 'a'"),
        (schema(message(FIELD.format("int8") * 2)), "message 'M': has twice the id 1"),
        (
            schema(message(FIELD.format("int64") + '<field name="b" id="2" type="int8" offset="7"/>')),
            "field 'b': offset=7: what is before it ends at 8",
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
            "type 'T': length=-1: must not be less than 0",
        ),
        (
            schema(
                message(FIELD.format("T")),
                '<type name="T" primitiveType="char" presence="constant" characterEncoding="no-such">A</type>',
            ),
            "type 'T': characterEncoding='no-such': is not known, and its value is a text",
        ),
        (
            schema(message(FIELD.format("T")), '<type name="T" primitiveType="int8" presence="constant">x</type>'),
            "type 'T': 'x' is not a whole number",
        ),
        (
            schema(message(FIELD.format("T")), '<type name="T" primitiveType="int8" presence="constant">128</type>'),
            "type 'T': '128': must be from -128 to 127",
        ),
        (
            schema(
                message(FIELD.format("T")), '<type name="T" primitiveType="int8" presence="optional" nullValue="255"/>'
            ),
            "type 'T': nullValue='255': must be from -128 to 127",
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
            "field 'a': valueRef='E.A': its type is another than that of the enum",
        ),
        (
            schema(
                message(FIELD.format("C")),
                '<composite name="C">' + '<type name="x" primitiveType="int8"/>' * 2 + "</composite>",
            ),
            "composite 'C': has twice 'x'",
        ),
        (
            schema(message(FIELD.format("T")), '<type name="T" primitiveType="double" presence="constant">x</type>'),
            "type 'T': 'x' is not a number",
        ),
        (
            schema(message(FIELD.format("T")), '<composite name="T"><ref name="t" type="T"/></composite>'),
            "ref 't': the composite 'T' is in itself",
        ),
        (
            schema(message(FIELD.format("E")), '<enum name="E" encodingType="double"/>'),
            "enum 'E': encodingType='double': must be an integer or char",
        ),
        (
            schema(
                message(FIELD.format("E")),
                '<enum name="E" encodingType="char"><validValue name="A">AB</validValue></enum>',
            ),
            "validValue 'A': 'AB' is not a character",
        ),
        (
            schema(message(FIELD.format("S")), '<set name="S" encodingType="uint8"><choice name="A">8</choice></set>'),
            "choice 'A': '8': must be from 0 to 7",
        ),
        (
            schema(message('<field name="a" id="1" type="int8" presence="constant" valueRef="E.A"/>')),
            "field 'a': valueRef='E.A': there is no such enum",
        ),
        (
            schema(message('<group name="g" id="1"/>')),
            "group 'g': the type 'groupSizeEncoding' is not in the schema",
        ),
        (
            schema(
                message('<data name="d" id="1" type="V"/>'),
                '<composite name="V"><type name="length" primitiveType="uint8"/></composite>',
            ),
            "data 'd': its composite 'V' needs a varData with a type, as data must",
        ),
        (
            schema(message('<data name="d" id="1" type="V"/>'), '<type name="V" primitiveType="int8"/>'),
            "data 'd': the type 'V' must be a composite",
        ),
        (
            schema(message(DATA + '<group name="g" id="3"/>'), TYPES),
            "group 'g': must be before what is data",
        ),
        (
            schema(message('<group name="g" id="3"/>' + FIELD.format("int8")), TYPES),
            "field 'a': must be before all groups",
        ),
        (schema(message(DATA + FIELD.format("int8")), TYPES), "field 'a': must be before what is data"),
        (
            schema(message('<x:field xmlns:x="urn:x" name="a" id="1" type="int8"/>')),
            "field 'a': cannot have a prefix",
        ),
        (
            schema(
                message(""),
                '<x:type xmlns:x="urn:x" name="T" primitiveType="int8"/>'
                '<composite name="C"><ref name="t" type="T"/></composite>',
            ),
            "type 'T': cannot have a prefix",
        ),
        (
            schema(message(FIELD.format("int8").replace("/>", ' sinceVersion="1"/>'))),
            "field 'a': sinceVersion=1: the schema has version 0",
        ),
        (schema(message(""), '<type name="T" primitiveType="int8" sinceVersion="1"/>'), "type 'T': sinceVersion=1"),
        (schema(message(""), '<type name="T" primitiveType="int8" presence="none"/>'), "type 'T': presence='none'"),
        (
            schema(message(FIELD.format("int8").replace("/>", ' presence="constant"/>'))),
            "field 'a': is constant, and neither it nor its type has a value",
        ),
        (
            schema(message(""), '<type name="T" primitiveType="int8" valueRef="E.A"/>'),
            "type 'T': valueRef='E.A': only a constant can have one",
        ),
        (
            schema(message(""), '<type name="T" primitiveType="int8" presence="constant"> 5</type>'),
            "type 'T': ' 5' is not a whole number",
        ),
        (
            schema(message(""), '<type name="T" primitiveType="char" presence="constant" length="2">ABC</type>'),
            "type 'T': length=2: its value 'ABC' is longer",
        ),
        (schema(message(""), '<enum name="E" encodingType="uint32"/>'), "enum 'E': encodingType='uint32': must be"),
        (schema(message(""), '<set name="S" encodingType="int8"/>'), "set 'S': encodingType='int8': must be"),
        (
            schema(message(""), '<enum name="E" encodingType="uint8"><validValue name="A">255</validValue></enum>'),
            "validValue 'A': '255' stands for null",
        ),
        (
            schema(message(DATA), TYPES.replace("uint8", "uint32", 1)),
            "data 'd': the type of 'length' needs a maxValue of at most 2147483647",
        ),
        (
            schema(message(DATA.replace("/>", ' presence="optional"/>')), TYPES),
            "data 'd': data cannot be optional",
        ),
        (
            schema(message(FIELD.format("V") + DATA), TYPES),
            "field 'a': the type 'V' has no length, so only data can have it",
        ),
        (
            schema(
                message('<field name="a" id="1" type="T" semanticType="x"/>'),
                '<type name="T" primitiveType="int8" semanticType="y"/>',
            ),
            "field 'a': semanticType='x': its type has 'y'",
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
    fields = "".join(
        f'<field name="{name}" id="{at}" type="{name}" presence="optional"/>' for at, name in enumerate(names)
    )
    path = tmp_path / "schema.xml"
    path.write_text(schema(message(fields)))
    found = read_schema(str(path))
    assert (found.version, found.is_big_endian, found.header_size) == (0, False, 8)
    numbers = [field for field in found.messages[0].block.fields if isinstance(field, Number)]
    assert [number.null for number in numbers] == [
        *(2**7, 2**8 - 1, 2**15, 2**16 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, None),
    ]
    assert [number.offset for number in numbers] == [0, 1, 2, 4, 6, 10, 14, 22, 30]


def test_what_sbe_tool_warns_of_or_ignores_is_read(tmp_path: Path) -> None:
    path = tmp_path / "schema.xml"
    fields = FIELD.format("int64") + '<field name="b" id="2" type="int8" offset="0"/>'  # none
    for text in (
        schema(message(fields, 'name="M" id="-1" blockLength="0"'), attributes='id="1" byteOrder="no such"'),
        schema(message(fields)).replace("<messageSchema ", '<messageSchema xmlns="urn:x" '),
        schema(message(fields))
        .replace("<message ", '<x:message xmlns:x="urn:x" ')
        .replace("</message>", "</x:message>"),
    ):
        path.write_text(text)
        found = read_schema(str(path))
        assert not found.is_big_endian
        assert [field.name for field in found.messages[0].block.fields] == ["a", "b"]
        assert [getattr(field, "offset", None) for field in found.messages[0].block.fields] == [0, 8]
    path.write_text(schema(""))
    assert SbeDecoder(read_schema(str(path))).fields == []


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
