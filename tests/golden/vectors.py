"""Reads the golden vectors, and derives from them what senders of other versions would have written."""

import struct
from dataclasses import dataclass, field, replace
from pathlib import Path

DIRECTORY = Path(__file__).parent
# One file of vectors for each schema that is described.
FILES = [DIRECTORY / f"{path.stem}.txt" for path in sorted((DIRECTORY.parents[1] / "schema").glob("*.toml"))]
HEADER = struct.Struct("<HHHH")  # block length, template id, schema id, version
VAR_LENGTH = struct.Struct("<I")
GROUP_HEADER = struct.Struct("<HH")  # block length, number of elements

# Where the documentation of the protocol says that a block was shorter or is longer: the first version with
# each length. All other messages have had one block length since version 0.
BLOCK_LENGTHS: dict[tuple[str, str], dict[int, int]] = {
    ("cluster", "SessionEvent"): {0: 32, 6: 36, 13: 44},
    ("cluster", "SessionConnectRequest"): {0: 12, 2: 16},
    ("cluster", "ClusterActionRequest"): {0: 28, 11: 32},
    ("cluster", "NewLeadershipTermEvent"): {0: 40, 4: 48},
    ("cluster", "ClusterMembersQuery"): {0: 8, 5: 12},
    ("cluster", "JoinLog"): {0: 36, 16: 40},
    ("cluster", "ServiceTerminationPosition"): {0: 8, 17: 12},
    ("cluster", "CanvassPosition"): {0: 28, 9: 32},
    ("cluster", "RequestVote"): {0: 28, 9: 32},
    ("cluster", "NewLeadershipTerm"): {0: 88, 15: 96},
    ("cluster", "AppendPosition"): {0: 20, 8: 21},
    ("cluster", "BackupQuery"): {0: 12, 2: 16, 16: 24},
    ("cluster", "BackupResponse"): {0: 56, 10: 60},
    ("cluster", "SnapshotMarker"): {0: 32, 4: 40},
    ("cluster", "ConsensusModule"): {0: 8, 3: 28},
    ("archive", "ControlResponse"): {0: 28, 4: 32},
    ("archive", "ConnectRequest"): {0: 12, 2: 16},
    ("archive", "ReplayRequest"): {0: 44, 7: 48, 10: 56},
    ("archive", "BoundedReplayRequest"): {0: 48, 7: 52, 10: 60},
    ("archive", "ReplicateRequest2"): {0: 60, 7: 64, 8: 68},
}
VAR_SINCE: dict[tuple[str, str], dict[str, int]] = {
    ("cluster", "SessionConnectRequest"): {"client_info": 14},
    ("archive", "AuthConnectRequest"): {"client_info": 12},
    ("archive", "ReplicateRequest2"): {"encoded_credentials": 8, "src_response_channel": 10},
    ("mark", "MarkFileHeader"): {"services_cluster_dir": 1},
}
# Fixed fields that are newer than the reference encoders, at the end of their block.
LATER_FIELDS: dict[tuple[str, str], list[str]] = {("cluster", "ServiceTerminationPosition"): ["ack_required"]}


@dataclass(frozen=True)
class Slot:
    """Where the reference decoder finds a fixed field: offset in the block, first version, null value."""

    offset: int
    since: int
    null: int

    @property
    def size(self) -> int:
        """Bytes of the field."""
        return 1 if self.null == 255 else 8 if self.null < -(2**31) else 4


type Fields = dict[str, int | bytes | list[Fields] | None]
"""Fields of a message, or of an element of one of its groups."""


@dataclass(frozen=True)
class Layout:
    """A message as the reference decoder sees it, or an element of a repeating group."""

    template_id: int
    block_length: int
    fields: dict[str, Slot]
    var: dict[str, int]  # name and first version
    groups: dict[str, "Layout"]


@dataclass(frozen=True)
class Vector:
    """A message as bytes, and the fields that decoding must give; `label` says where the bytes come from."""

    schema: str
    message: str
    label: str
    fields: Fields
    encoded: bytes

    @property
    def id(self) -> str:
        return f"{self.schema}-{self.message}-{self.label}"

    @property
    def arguments(self) -> Fields:
        """The fields as an encoder takes them: those that the version that is written knows."""
        later = LATER_FIELDS.get((self.schema, self.message), [])
        return {name: value for name, value in self.fields.items() if name not in later}


@dataclass
class Golden:
    """One vector file."""

    schema: str
    schema_id: int = 0
    version: int = 0
    enums: dict[str, dict[str, int]] = field(default_factory=dict)
    layouts: dict[str, Layout] = field(default_factory=dict)
    vectors: list[Vector] = field(default_factory=list)


def load_all() -> list[Golden]:
    return [load(path.stem) for path in FILES]


def load(schema: str) -> Golden:
    golden = Golden(schema)
    for line in (DIRECTORY / f"{schema}.txt").read_text(encoding="ascii").splitlines():
        if line and not line.startswith("#"):
            question, _, answer = line.partition(" -> ")
            _add(golden, question.split(" "), answer)
    return golden


def _add(golden: Golden, words: list[str], answer: str) -> None:
    match words:
        case ["schema", _]:
            numbers = _assignments(answer.split(" "))
            golden.schema_id, golden.version = int(numbers["id"]), int(numbers["version"])
        case ["enum", name]:
            values = {key: int(value) for key, value in _assignments(answer.split(" ")).items()}
            golden.enums[name] = {key: value for key, value in values.items() if key != "NULL_VAL"}
        case ["layout", name]:
            message, _, group = name.partition(".")
            layout = _layout(_assignments(answer.split(" ")))
            if group:
                golden.layouts[message].groups[group] = layout
            else:
                golden.layouts[message] = layout
        case [name, *assignments]:
            golden.vectors.append(_vector(golden, name, _assignments(assignments), bytes.fromhex(answer)))


def _assignments(words: list[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words)


def _layout(parts: dict[str, str]) -> Layout:
    template_id, block_length = int(parts.pop("id", "0")), int(parts.pop("block"))
    var = {name: int(text[4:]) for name, text in parts.items() if text.startswith("var/")}
    groups = {name for name, text in parts.items() if text.startswith("group/")}
    fields = {name: Slot(*map(int, text.split("/"))) for name, text in parts.items() if name not in {*var, *groups}}
    return Layout(template_id, block_length, fields, var, {})


def _vector(golden: Golden, message: str, parts: dict[str, str], encoded: bytes) -> Vector:
    layout = golden.layouts[message]
    fields: Fields = {}
    for path, text in parts.items():
        match path.split("."):
            case [name] if name in layout.groups:
                fields[name] = [{} for _ in range(int(text))]
            case [group, index, name]:
                elements = fields[group]
                assert isinstance(elements, list)
                elements[int(index)][name] = _value(text, name in layout.groups[group].var)
            case _:
                fields[path] = _value(text, path in layout.var)
    for name in LATER_FIELDS.get((golden.schema, message), []):
        fields[name] = None
    number = sum(vector.message == message for vector in golden.vectors)
    return Vector(golden.schema, message, f"v{golden.version}-{number}", fields, encoded)


def _value(text: str, is_var: bool) -> int | bytes | None:
    if not is_var:
        return None if text == "null" else int(text)
    return bytes.fromhex(text[2:]) if text.startswith("0x") else text.encode("ascii")


def documented_block_length(schema: str, message: str, version: int, otherwise: int) -> int:
    lengths = BLOCK_LENGTHS.get((schema, message), {0: otherwise})
    return lengths[max(first for first in lengths if first <= version)]


def groups_end(encoded: bytes, layout: Layout) -> int:
    """Where the var data of a message begins."""
    position: int = HEADER.size + HEADER.unpack_from(encoded)[0]
    for group in layout.groups.values():
        block_length, count = GROUP_HEADER.unpack_from(encoded, position)
        position += GROUP_HEADER.size
        for _ in range(count):
            position += block_length
            for _ in group.var:
                position += VAR_LENGTH.size + VAR_LENGTH.unpack_from(encoded, position)[0]
    return position


def var_parts(encoded: bytes, layout: Layout) -> list[bytes]:
    """The var data of a message, each with its length in front; without that of its groups."""
    position = groups_end(encoded, layout)
    parts = []
    while position < len(encoded):
        end = position + VAR_LENGTH.size + VAR_LENGTH.unpack_from(encoded, position)[0]
        parts.append(encoded[position:end])
        position = end
    return parts


def derive(golden: Golden, vector: Vector, version: int, later: tuple[int | None, ...] = ()) -> Vector:
    """The vector as a sender of another version would have written it; its label begins with "derived".

    The reference encoders write one version only. The bytes of others follow from the documented block
    lengths: the block ends earlier, or has the `later` fields (int32) behind the known ones; newer var data
    is left out.
    """
    layout, key = golden.layouts[vector.message], (vector.schema, vector.message)
    length = documented_block_length(*key, version, layout.block_length)
    block = vector.encoded[HEADER.size : HEADER.size + layout.block_length]
    groups = vector.encoded[HEADER.size + layout.block_length : groups_end(vector.encoded, layout)]
    for value in later:
        block += struct.pack("<i", -(2**31) if value is None else value)
    since = VAR_SINCE.get(key, {})
    var = [
        part
        for name, part in zip(layout.var, var_parts(vector.encoded, layout), strict=True)
        if since.get(name, 0) <= version
    ]
    header = HEADER.pack(length, layout.template_id, golden.schema_id, version)
    fields = dict(vector.fields)
    fields.update(zip(LATER_FIELDS.get(key, []), later, strict=False))
    for name, slot in layout.fields.items():
        if slot.offset >= length:
            fields[name] = None
    for name, first in since.items():
        if first > version:
            fields[name] = None
    encoded = header + block[:length] + groups + b"".join(var)
    return replace(vector, label=f"derived-v{version}-from-{vector.label}", fields=fields, encoded=encoded)
