"""Random, flipped and cut bytes: the codecs answer or refuse, and never touch a byte beyond the message."""

import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from container.codecs.messages import decode, decode_as, encode, encode_into
from container.errors import CodecError
from tests.golden.vectors import HEADER, Fields, Layout, Slot, Vector, groups_end, load_all
from tests.guarded_memory import GuardedMemory
from tests.limits import LIMIT_S

GOLDEN = {golden.schema: golden for golden in load_all()}
VECTORS = [vector for golden in GOLDEN.values() for vector in golden.vectors]
LAYOUTS = [(golden.schema, name, layout) for golden in GOLDEN.values() for name, layout in golden.layouts.items()]
MEMORY = GuardedMemory(1 << 17)

# No deadline per example: on a busy machine the first touch of a page can take long.
fuzz = settings(max_examples=300)

schemas = st.sampled_from(sorted(GOLDEN))
vectors = st.sampled_from(VECTORS)
layouts = st.sampled_from(LAYOUTS)
u16 = st.integers(0, 2**16 - 1)


def decode_or_refuse(schema: str, data: bytes) -> None:
    """Decode at the end of the readable memory; any outcome but fields or a CodecError fails, a crash too."""
    try:
        name, fields = decode(schema, MEMORY.tail(data))
    except CodecError:
        return
    assert name in GOLDEN[schema].layouts
    for value in fields.values():
        assert value is None or isinstance(value, int | bytes | list)
    taken = sum(len(value) for value in fields.values() if isinstance(value, bytes))
    assert HEADER.size + taken <= len(data)


def values(slot: Slot) -> st.SearchStrategy[int | None]:
    """Every value of the field's type: null is None, and so never the number that stands for it."""
    bits = 8 * slot.size
    low, high = (0, 255) if bits == 8 else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    numbers = st.one_of(st.integers(low, high), st.sampled_from([low, low + 1, max(low, -1), 0, 1, high]))
    return st.one_of(st.none(), numbers.filter(lambda number: number != slot.null))


def var_values() -> st.SearchStrategy[bytes]:
    return st.one_of(st.binary(max_size=64), st.integers(0, 20_000).map(lambda length: (b"abc\xff" * 5000)[:length]))


@st.composite
def fields_of(draw: st.DrawFn, layout: Layout) -> Fields:
    fixed = {name: draw(values(slot)) for name, slot in layout.fields.items()}
    groups = {name: draw(st.lists(fields_of(group), max_size=3)) for name, group in layout.groups.items()}
    return {**fixed, **groups, **{name: draw(var_values()) for name in layout.var}}


@fuzz
@given(schemas, st.binary(max_size=256))
def test_random_bytes_are_decoded_or_refused(schema: str, data: bytes) -> None:
    decode_or_refuse(schema, data)


@fuzz
@given(layouts, u16, u16, st.binary(max_size=256))
def test_random_body_behind_a_right_header_is_decoded_or_refused(
    message: tuple[str, str, Layout], block_length: int, version: int, body: bytes
) -> None:
    schema, _, layout = message
    for length in (block_length, block_length % 64, layout.block_length):
        header = HEADER.pack(length, layout.template_id, GOLDEN[schema].schema_id, version)
        decode_or_refuse(schema, header + body)


@fuzz
@given(vectors, st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), max_size=8), st.data())
def test_flipped_and_cut_message_is_decoded_or_refused(
    vector: Vector, flips: list[tuple[int, int]], data: st.DataObject
) -> None:
    damaged = bytearray(vector.encoded)
    for position, value in flips:
        damaged[position % len(damaged)] = value
    length = data.draw(st.integers(0, len(damaged)))
    decode_or_refuse(vector.schema, bytes(damaged[:length]))
    decode_or_refuse(vector.schema, bytes(damaged))


@fuzz
@given(vectors, u16, u16)
def test_any_block_length_and_version_is_decoded_or_refused(vector: Vector, block_length: int, version: int) -> None:
    for length in (block_length, block_length % (len(vector.encoded) + 2)):
        damaged = bytearray(vector.encoded)
        struct.pack_into("<H", damaged, 0, length)
        struct.pack_into("<H", damaged, 6, version)
        decode_or_refuse(vector.schema, bytes(damaged))


@fuzz
@given(layouts, u16, u16, st.binary(max_size=256))
def test_what_is_decoded_has_every_field_of_its_oldest_version_from_its_own_block(
    message: tuple[str, str, Layout], block_length: int, version: int, body: bytes
) -> None:
    schema, name, layout = message
    for length in (block_length, block_length % 64, layout.block_length):
        header = HEADER.pack(length, layout.template_id, GOLDEN[schema].schema_id, version)
        try:
            fields = decode_as(schema, name, MEMORY.tail(header + body))
        except CodecError:
            continue
        assert length <= len(body)
        for field, slot in layout.fields.items():
            assert slot.since or slot.offset + slot.size <= length
            raw = int.from_bytes(body[slot.offset : slot.offset + slot.size], "little", signed=slot.size > 1)
            assert fields[field] in (None, raw)
        var = [fields[field] for field in layout.var if fields[field] is not None]
        end = groups_end(header + body, layout) - HEADER.size
        for value in var:
            assert isinstance(value, bytes)
            assert body[end + 4 : end + 4 + len(value)] == value
            end += 4 + len(value)


@fuzz
@given(layouts, st.binary(max_size=96))
def test_decoding_as_a_given_message_refuses_all_others(message: tuple[str, str, Layout], data: bytes) -> None:
    schema, name, layout = message
    if data[2:6] == struct.pack("<HH", layout.template_id, GOLDEN[schema].schema_id):
        return
    with pytest.raises(CodecError, match=rf"^{name}\b"):
        decode_as(schema, name, MEMORY.tail(data))


@fuzz
@given(layouts, st.data())
def test_any_field_values_round_trip(message: tuple[str, str, Layout], data: st.DataObject) -> None:
    schema, name, layout = message
    fields = data.draw(fields_of(layout))
    encoded = encode(schema, name, **fields)
    assert len(encoded) == HEADER.size + encoded_length(layout, fields)
    decoded_name, decoded = decode(schema, MEMORY.tail(encoded))
    assert (decoded_name, {**decoded, **fields}) == (name, decoded)
    for item, slot in layout.fields.items():
        assert raw_value(encoded, slot) == (slot.null if fields[item] is None else fields[item])


def encoded_length(layout: Layout, fields: Fields) -> int:
    """Bytes of a block, of the groups and of the var data behind it."""
    length = layout.block_length
    for name, value in fields.items():
        if isinstance(value, bytes):
            length += 4 + len(value)
        elif isinstance(value, list):
            length += 4 + sum(encoded_length(layout.groups[name], element) for element in value)
    return length


def raw_value(encoded: bytes, slot: Slot) -> int:
    """The number where the reference decoder looks for the field."""
    start = HEADER.size + slot.offset
    return int.from_bytes(encoded[start : start + slot.size], "little", signed=slot.size > 1)


@fuzz
@given(layouts, st.data(), st.integers(0, 2**16))
def test_encoding_never_writes_beyond_the_buffer(
    message: tuple[str, str, Layout], data: st.DataObject, room: int
) -> None:
    schema, name, layout = message
    fields = data.draw(fields_of(layout))
    encoded = encode(schema, name, **fields)
    capacity = room % (len(encoded) + 8)
    buffer = MEMORY.tail(b"\xaa" * capacity)
    if capacity < len(encoded):
        with pytest.raises(CodecError, match=f"needs {len(encoded)} bytes, got {capacity}"):
            encode_into(buffer, schema, name, **fields)
        assert bytes(buffer) == b"\xaa" * capacity
    else:
        assert encode_into(buffer, schema, name, **fields) == len(encoded)
        assert bytes(buffer) == encoded + b"\xaa" * (capacity - len(encoded))


def test_touching_the_guard_ends_the_process() -> None:
    """Were it not so, the tests above would prove nothing about over-reads."""
    program = (
        "import ctypes, resource\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
        "from tests.guarded_memory import GuardedMemory\n"
        "memory = GuardedMemory(1)\n"
        "print(ctypes.string_at(memory.guard_address - 1, 1), flush=True)\n"
        "ctypes.string_at(memory.guard_address, 1)\n"
    )
    root = Path(__file__).parent.parent
    result = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, timeout=LIMIT_S)
    assert result.stdout == b"b'\\x00'\n"
    assert result.returncode < 0
