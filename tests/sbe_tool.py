"""Real Logic's sbe-tool in a Java process, and what it makes of schemas and messages beside what we make of them."""

from __future__ import annotations

import json
import math
import struct
import subprocess
from collections import Counter
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self
from xml.etree import ElementTree

import pyarrow as pa

from container.errors import ConfigurationError
from container.sbe.charsets import codec_of
from container.sbe.decoder import SbeDecoder
from container.sbe.schema import Block, Choices, Coded, Composite, Enum, Member, Schema, Text, read_schema
from container.testing.processes.java_tools import compile_java, java_command, resolve_sbe_jar
from tests.sbe_schemas import mutate, schema

SOURCE = Path(__file__).parent / "java" / "sbe" / "SbeOracle.java"

OWN_REFUSALS = (
    # What sbe-tool accepts, and reads from bytes that are not those of the field, or cannot read.
    "cannot be constant",
    "so only data can have it",
    "must begin with length and varData",
    "as one number in the message",
    "with the type of an integer",
    "length=-",
    "must be an integer or char that",
    "'-1': must be from 0 to",  # a choice
    # What sbe-tool accepts, and is too large.
    "a block has at most",
    # What Python has no encoding for.
    "is not known, and its value is a text",
)
"""Parts of the texts of what only we refuse."""


class SbeTool:
    """Runs sbe-tool; a context manager.

    Args:
        classes: an empty directory for compiled classes.
        jar: Aeron's, which has what sbe-tool needs.
    """

    def __init__(self, classes: Path, jar: Path) -> None:
        jars = [resolve_sbe_jar(), jar]
        class_path = [compile_java([SOURCE], classes, jars), *jars]
        command = java_command("container.tests.sbe.SbeOracle", class_path)
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def _ask(self, letter: bytes, *parts: bytes) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(letter + b"".join(parts))
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def schema(self, text: bytes) -> dict[str, Any]:
        """The result of sbe-tool for a schema: its messages and version, or the error."""
        found: dict[str, Any] = self._ask(b"S", struct.pack(">i", len(text)), text)
        return found

    def write(self, template_id: int, version: int, beyond: int, seed: int) -> Any:
        """A message by chance, in hexadecimal digits; a dict with the error where there is none."""
        return self._ask(b"W", struct.pack(">iiiq", template_id, version, beyond, seed))

    def read(self, messages: bytes) -> Any:
        """Messages one behind the other, each as [template id, length, values]; a dict with an error."""
        return self._ask(b"R", struct.pack(">i", len(messages)), messages)

    def names(self) -> list[str]:
        """All names of character encodings."""
        found: list[str] = self._ask(b"N")
        return found

    def decode(self, name: str, text: bytes) -> Any:
        """A text by the name of its encoding; a dict with an error."""
        return self._ask(b"C", struct.pack(">i", len(name)), name.encode(), struct.pack(">i", len(text)), text)


class Difference(AssertionError):
    """We and sbe-tool differ."""


class Comparison:
    """Compares schemas and messages, and counts what was compared."""

    def __init__(self, tool: SbeTool, directory: Path) -> None:
        self._tool = tool
        self._path = directory / "schema.xml"
        self.counts: Counter[str] = Counter()

    def seed(self, number: int) -> None:
        """Compare what a seed makes.

        Raises:
            Difference: there is one; the schema is left in its file.
        """
        random = Random(number)
        root = schema(random)
        how = [mutate(random, root) for _ in range(random.choice([0, 0, 0, 1, 1, 1, 1, 2, 3]))]
        try:
            self.schema(ElementTree.tostring(root), random)
        except Difference as error:
            raise Difference(f"seed {number}, {'; '.join(how)}: {error}") from None

    def schema(self, text: bytes, random: Random) -> None:
        """Compare what is made of a schema, and of messages by chance."""
        self._path.write_bytes(text)
        theirs = self._tool.schema(text)
        ours: Schema | str
        try:
            ours = read_schema(str(self._path))
        except ConfigurationError as error:
            ours = str(error).removeprefix(f"schema {self._path}: ")
        if isinstance(ours, str):
            if "error" in theirs:
                self.counts["schemas refused by both"] += 1
            elif any(part in ours for part in OWN_REFUSALS):
                self.counts["schemas refused by us alone"] += 1
            else:
                raise Difference(f"only we refuse: {ours}")
            return
        if "error" in theirs:
            raise Difference(f"only sbe-tool refuses: {theirs['error']}")
        self.counts["schemas accepted by both"] += 1
        ids = {message.template_id for message in ours.messages}
        if set(theirs["messages"]) != ids or theirs["version"] != ours.version:
            raise Difference(f"{theirs} are not {ids} of version {ours.version}")
        if ids:
            self._messages(ours, random)

    def _messages(self, ours: Schema, random: Random) -> None:
        written = []
        for _ in range(6):
            message = random.choice(ours.messages)
            version = random.choice([ours.version, random.randrange(ours.version + 1), ours.version + 1])
            beyond = random.randrange(4) if version > ours.version else 0
            found = self._tool.write(message.template_id, version, beyond, random.getrandbits(63))
            if isinstance(found, dict):
                if "does not fit" not in found["error"] and "Unsupported type" not in found["error"]:
                    raise Difference(f"{message.name}: sbe-tool does not write: {found['error']}")
                self.counts["messages that cannot be written"] += 1
            else:
                written.append((message, version, bytes.fromhex(found)))
        joined = b"".join(payload for _, _, payload in written)
        theirs = self._tool.read(joined) if written else []
        if isinstance(theirs, dict):
            if "Unsupported type" not in theirs["error"]:
                raise Difference(f"sbe-tool does not read: {theirs['error']}")
            self.counts["messages that only we read"] += len(written)
            return
        if [length for _, length, _ in theirs] != [len(payload) for _, _, payload in written]:
            raise Difference(f"messages end elsewhere: {theirs}")
        decoder = SbeDecoder(ours)
        followed, begin = [], 0
        for _, _, payload in written:
            followed.append(joined[begin:])  # with the messages behind it
            begin += len(payload)
        rows, errors = _decoded(decoder, [payload for _, _, payload in written] + followed)
        if errors:
            raise Difference(f"only we do not read: {errors}")
        for number, (message, version, payload) in enumerate(written):
            for row in (rows[number], rows[len(written) + number]):
                values = row[message.name]
                try:
                    self._block(theirs[number][2], {} if values is True else values, message.block, version)
                except Difference as error:
                    text = f"{message.name}, version {version}, {payload.hex()}: {error}; sbe-tool {theirs[number][2]}"
                    raise Difference(f"{text}, we {values}") from None
            self.counts["messages"] += 1

    def _block(self, theirs: dict[str, Any], ours: dict[str, Any], block: Block, version: int) -> None:
        if list(theirs) != list(ours):
            raise Difference(f"{list(theirs)} are not {list(ours)}")
        for field in block.fields:
            self._value(theirs[field.name], ours[field.name], field, version)
        for group in block.groups:
            entries = ours[group.name]
            if group.since > version:
                _same(group.name, entries, None)
                continue
            _same(group.name, len(entries), len(theirs[group.name]))
            for one, entry in zip(theirs[group.name], entries, strict=True):
                self._block(one, {} if entry is True else entry, group.block, version)
        for data in block.data:
            if data.since > version:
                _same(data.name, ours[data.name], None)
            else:
                self._text(theirs[data.name], ours[data.name], data.name)

    def _value(self, theirs: Any, ours: Any, field: Member, version: int) -> None:
        """Compare a value. A null is None. sbe-tool has no version for a member of a composite."""
        name = field.name
        if isinstance(field, Composite):
            ours = {} if ours is True else ours
            _same(name, list(ours), list(theirs))
            for one in field.members:
                leaf = one.number if isinstance(one, Coded) else one
                if isinstance(leaf, Composite) or leaf.since <= version:
                    self._value(theirs[one.name], ours[one.name], one, version)
            return
        self.counts["values"] += 1
        if isinstance(field, Choices):
            _same(name, {} if ours is True else ours, theirs)
        elif isinstance(field, Enum):
            _same(name, ours, _enum(theirs, field.number.primitive))
        elif field.constant is not None:
            # Of a field that is not constant and whose type is, it reads nothing.
            if isinstance(theirs, list) and theirs and isinstance(theirs[0], list):
                # A byte of an encoding that we do not know is a character of ASCII.
                text, ascii_text, encoding = (text.rstrip("\0") for text in theirs[0])
                _same(name, ours, ascii_text if codec_of(encoding) is None else text)
            elif theirs not in ([], ["", ""], None):
                _same(name, _number(ours), _constant(theirs))
        elif field.since > version:
            _same(name, ours, None)
        elif isinstance(field, Text):
            self._text(theirs, ours, name)
        elif isinstance(theirs, list):
            _same(name, [_number(one) for one in ours], [_constant(one) for one in theirs])
        else:
            _same(name, _number(ours), _constant(theirs))

    def _text(self, theirs: list[str] | None, ours: str | bytes | None, name: str) -> None:
        """Compare a text. ASCII is UTF-8; bytes are of an encoding that we do not know, or that sbe-tool does not."""
        self.counts["texts"] += 1
        if theirs is None or ours is None:
            _same(name, ours, theirs)
            return
        content = bytes.fromhex(theirs[0])
        if isinstance(ours, bytes) or len(theirs) == 1:
            _same(name, ours if isinstance(ours, bytes) else ours.encode(), content)
        elif "\ufffd" in theirs[1]:
            _same(name, len(ours) > 0, True)
        else:
            _same(name, ours, theirs[1])


def _decoded(decoder: SbeDecoder, payloads: list[bytes]) -> tuple[list[dict[str, Any]], dict[int, str]]:
    arrays, errors = decoder.decode(pa.array(payloads, pa.binary()))
    for array in arrays:
        array.validate(full=True)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(decoder.fields)).to_pylist(), errors


def _same(name: str, ours: Any, theirs: Any) -> None:
    if ours != theirs:
        raise Difference(f"{name}: {ours!r} is not {theirs!r}")


def _number(ours: Any) -> Any:
    """NaN is equal to itself; a decimal is a whole number."""
    if isinstance(ours, float):
        return "NaN" if math.isnan(ours) else ours
    return ours if ours is None or isinstance(ours, str) else int(ours)


def _constant(theirs: Any) -> Any:
    if isinstance(theirs, dict):
        if "name" in theirs:
            return theirs["name"]
        return _number(struct.unpack(">d", struct.pack(">q", theirs["bits"]))[0])
    return theirs.rstrip("\0") if isinstance(theirs, str) else theirs


def _enum(theirs: Any, primitive: str) -> str | None:
    if theirs is None or "name" in theirs:
        return None if theirs is None else str(theirs["name"])
    value = theirs["value"] % 256 if primitive == "char" else theirs["value"]
    return chr(value) if primitive == "char" and value > 0x20 else str(value)
