"""How a file of a recording becomes a bad one. Each mutation gives what the file holds then, and what it touched."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

# Fields of frames and of the messages in them (DataHeaderFlyweight.java; SBE header, then a block): offset and length.
FRAME_FIELDS = ((0, 4), (4, 1), (5, 1), (6, 2), (8, 4), (12, 4), (16, 4), (20, 4), (24, 8))
MESSAGE_FIELDS = ((32, 2), (34, 2), (36, 2), (38, 2), (40, 8), (48, 8), (56, 8), (64, 4), (76, 4))
VALUES = (0, 1, 2, 7, 8, 24, 31, 32, 33, 63, 64, 96, 128, 1024, 1376, 1408, 1440, 4096, 8192, 65535, 65536, 131072)
_BITS = (7, 8, 15, 16, 31, 32, 47, 60, 61, 62, 63)


class Field(NamedTuple):
    """A number in a file."""

    offset: int
    length: int


class Damage(NamedTuple):
    """The result of a mutation."""

    content: bytes | None
    """The content of the file; None when there is no file any more."""
    begin: int
    end: int
    """The bytes that are not to be believed, by their offsets in the file."""


type Mutation = Callable[[random.Random, bytes, int, Sequence[Field]], Damage]
"""Called with a file's content, the number of bytes in use, and the fields."""


def _put(content: bytes, offset: int, data: bytes) -> Damage:
    data = data[: len(content) - offset]
    return Damage(content[:offset] + data + content[offset + len(data) :], offset, offset + len(data))


def flipped_bit(rng: random.Random, content: bytes, used: int, fields: Sequence[Field]) -> Damage:
    """One bit is another."""
    offset = rng.randrange(used)
    return _put(content, offset, bytes([content[offset] ^ (1 << rng.randrange(8))]))


def flipped_bit_of_a_field(rng: random.Random, content: bytes, used: int, fields: Sequence[Field]) -> Damage:
    """One bit of a number is another."""
    field = rng.choice(fields)
    offset = field.offset + rng.randrange(field.length)
    return _put(content, offset, bytes([content[offset] ^ (1 << rng.randrange(8))]))


def another_number(rng: random.Random, content: bytes, used: int, fields: Sequence[Field]) -> Damage:
    """A number is one at the border of what is possible."""
    field = rng.choice(fields)
    old = int.from_bytes(content[field.offset : field.offset + field.length], "little")
    edge = 1 << rng.choice(_BITS)
    value = rng.choice([*VALUES, edge, edge - 1, edge + 32, -edge, -1, -32, old + 1, old - 1, old + 32, 2 * old])
    return _put(content, field.offset, (value % (1 << 8 * field.length)).to_bytes(field.length, "little"))


def overwritten(rng: random.Random, content: bytes, used: int, fields: Sequence[Field]) -> Damage:
    """Some bytes are others."""
    length = rng.choice([1, 4, 32, 100, 4096, rng.randrange(1, 20_000)])
    return _put(content, rng.randrange(used), rng.choice([bytes(length), b"\xff" * length, rng.randbytes(length)]))


def zeroed_page(rng: random.Random, content: bytes, used: int, fields: Sequence[Field]) -> Damage:
    """A page was never written to the disk."""
    return _put(content, rng.randrange(used) // 4096 * 4096, bytes(4096))


def moved(rng: random.Random, content: bytes, used: int, fields: Sequence[Field]) -> Damage:
    """Bytes that are right at another place."""
    begin = rng.randrange(used) & -32
    return _put(content, rng.randrange(used) & -32, content[begin : begin + rng.choice([32, 64, 2048, 65536])])


def truncated(rng: random.Random, content: bytes, used: int, fields: Sequence[Field]) -> Damage:
    """The file ends too early."""
    length = rng.choice([0, rng.randrange(used), rng.randrange(used) & -32])
    return Damage(content[:length], length, len(content))


def missing(rng: random.Random, content: bytes, used: int, fields: Sequence[Field]) -> Damage:
    """There is no file."""
    return Damage(None, 0, len(content))


def grown(rng: random.Random, content: bytes, used: int, fields: Sequence[Field]) -> Damage:
    """The file continues behind its end, which does not matter."""
    return Damage(content + rng.randbytes(rng.choice([1, 32, 5000])), len(content), len(content))


def garbage(rng: random.Random, content: bytes, used: int, fields: Sequence[Field]) -> Damage:
    """Nothing is as it was."""
    return Damage(rng.randbytes(min(len(content), 4096)).ljust(len(content), b"\0"), 0, len(content))


MUTATIONS: dict[str, Mutation] = {
    "flipped bit": flipped_bit,
    "flipped bit of a field": flipped_bit_of_a_field,
    "another number": another_number,
    "overwritten": overwritten,
    "zeroed page": zeroed_page,
    "moved": moved,
    "truncated": truncated,
    "missing": missing,
    "grown": grown,
    "garbage": garbage,
}
