"""How a good message becomes a bad one. Each mutation gives the frames to be sent: payload and flags."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.fuzz.wire import LAYOUTS, NAMES
from tests.golden.vectors import HEADER, VAR_LENGTH, load_all

UNFRAGMENTED, BEGIN, MIDDLE, END = 0xC0, 0x80, 0x00, 0x40
MAX_PAYLOAD = 1376
BOUNDARIES = {
    4: [0, 1, 2, 3, -1, -2, 7, 255, 2**31 - 1, -(2**31), -(2**31) + 1],
    8: [0, 1, -1, -2, 32, 2**31, 2**62, 2**63 - 1, -(2**63), -(2**63) + 1],
}
HEADER_VALUES = [0, 1, 7, 8, 12, 16, 24, 28, 31, 32, 36, 40, 48, 100, 102, 104, 111, 200, 0x7FFF, 0x8000, 0xFFFF]
VAR_LENGTHS = [0, 1, 2**15, 2**30, 2**31 - 1, 2**31, 2**32 - 5, 2**32 - 4, 2**32 - 1]
CHANNELS = [
    b"",
    b"aeron",
    b"aeron:",
    b"aeron:tcp",
    b"aeron:udp?",
    b"aeron:udp?endpoint",
    b"aeron:udp?=x",
    b"aeron:udp?endpoint=",
    b"aeron:udp?endpoint=localhost:1||",
    b"aeron:ipc?session-id=x",
    b"aeron:ipc?session-id=99999999999",
    b"aeron:ipc?term-length=3",
    b"aeron:ipc?mtu=1",
    b"aeron-spy:aeron:ipc",
    b"aeron-spy:",
    b"aeron:ipc?alias=" + b"x" * 5000,
    b"aeron:ipc?alias=a\0b",
    b"aeron:ipc?alias=caf\xc3\xa9",
    b"\xff" * 20,
    b"http://localhost/",
    b"aeron:udp?endpoint=nowhere:1|session-id=7",
]
_FOREIGN = [vector.encoded for golden in load_all() if golden.schema != "cluster" for vector in golden.vectors]

type Frame = tuple[bytes, int]
type Mutation = Callable[[random.Random, bytes], list[Frame]]


def whole(message: bytes) -> list[Frame]:
    """The frames in which a message is published."""
    if len(message) <= MAX_PAYLOAD:
        return [(message, UNFRAGMENTED)]
    parts = [message[begin : begin + MAX_PAYLOAD] for begin in range(0, len(message), MAX_PAYLOAD)]
    flags = [BEGIN, *[MIDDLE] * (len(parts) - 2), END]
    return list(zip(parts, flags, strict=True))


def truncated(rng: random.Random, message: bytes) -> list[Frame]:
    """Cut at any length."""
    return whole(message[: rng.randrange(len(message))])


def flipped(rng: random.Random, message: bytes) -> list[Frame]:
    """One to eight bits the other way."""
    damaged = bytearray(message)
    for _ in range(rng.randint(1, 8)):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return whole(bytes(damaged))


def noise(rng: random.Random, message: bytes) -> list[Frame]:
    """Random bytes, alone or behind a right header."""
    body = rng.randbytes(rng.choice([0, 1, 7, 8, 9, 31, 32, 60, 200, 1376, 3000]))
    return whole(message[: HEADER.size] + body if rng.random() < 0.5 else body)


def headed(rng: random.Random, message: bytes) -> list[Frame]:
    """Another block length, template, schema or version."""
    header = list(HEADER.unpack_from(message))
    for _ in range(rng.randint(1, 2)):
        header[rng.randrange(4)] = rng.choice(HEADER_VALUES)
    return whole(HEADER.pack(*header) + message[HEADER.size :])


def versioned(rng: random.Random, message: bytes) -> list[Frame]:
    """A block that is longer or shorter by whole fields, as another version would have it, with its var data moved."""
    block_length, template_id, schema_id, _version = HEADER.unpack_from(message)
    block, rest = message[HEADER.size : HEADER.size + block_length], message[HEADER.size + block_length :]
    length = min(MAX_PAYLOAD, max(0, block_length + rng.choice([-16, -12, -8, -4, 4, 8, 64])))
    version = rng.choice([0, 1, 3, 4, 10, 12, 15, 16, 17, 18, 99, 0xFFFF])
    return whole(HEADER.pack(length, template_id, schema_id, version) + block[:length].ljust(length, b"\1") + rest)


def overgrown(rng: random.Random, message: bytes) -> list[Frame]:
    """Var data whose length reaches beyond the message, by little or by all that fits 32 bits."""
    position = HEADER.size + HEADER.unpack_from(message)[0]
    if len(message) < position + VAR_LENGTH.size:
        return whole(message + rng.randbytes(rng.randint(1, 64)))
    right = VAR_LENGTH.unpack_from(message, position)[0]
    length = rng.choice([*VAR_LENGTHS, min(right + 1, 2**32 - 1), max(0, right - 1)])
    return whole(message[:position] + VAR_LENGTH.pack(length) + message[position + VAR_LENGTH.size :])


def refielded(rng: random.Random, message: bytes) -> list[Frame]:
    """A field with a value at the edge of its type, or one that its enum does not have."""
    name = NAMES.get(HEADER.unpack_from(message)[1])
    if name is None:
        return flipped(rng, message)
    layout = LAYOUTS[name]
    slots = [slot for slot in layout.fields.values() if slot.offset < layout.block_length]
    damaged = bytearray(message)
    for slot in rng.sample(slots, min(len(slots), rng.randint(1, 2))):
        width = 4 if slot.null in (-(2**31), 0) else 8
        begin = HEADER.size + slot.offset
        damaged[begin : begin + width] = rng.choice(BOUNDARIES[width]).to_bytes(width, "little", signed=True)
    return whole(bytes(damaged))


def rechannelled(rng: random.Random, message: bytes) -> list[Frame]:
    """The channel, or whatever is the first var data, is another text."""
    position = HEADER.size + HEADER.unpack_from(message)[0]
    if len(message) < position + VAR_LENGTH.size:
        return whole(message[:position] + rng.choice(CHANNELS))
    end = position + VAR_LENGTH.size + VAR_LENGTH.unpack_from(message, position)[0]
    channel = rng.choice(CHANNELS)
    return whole(message[:position] + VAR_LENGTH.pack(len(channel)) + channel + message[end:])


def fragmented(rng: random.Random, message: bytes) -> list[Frame]:
    """In pieces, with wrong flags, some pieces lost, doubled or out of order."""
    cuts = sorted([rng.randrange(len(message) + 1) for _ in range(rng.randint(1, 4))] + _needed_cuts(message))
    parts = [message[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(message)], strict=True)]
    frames = list(zip(parts, [BEGIN, *[MIDDLE] * (len(parts) - 2), END], strict=True))
    for _ in range(rng.randint(1, 3)):
        index = rng.randrange(len(frames))
        match rng.randrange(4):
            case 0:
                frames[index] = (frames[index][0], rng.choice([UNFRAGMENTED, BEGIN, MIDDLE, END, 0x3F, 0xFF]))
            case 1 if len(frames) > 1:
                del frames[index]
            case 2:
                frames.insert(index, frames[index])
            case _:
                rng.shuffle(frames)
    return frames


def _needed_cuts(message: bytes) -> list[int]:
    """Without these a piece might be longer than a frame."""
    return list(range(MAX_PAYLOAD, len(message), MAX_PAYLOAD))


def foreign(rng: random.Random, _message: bytes) -> list[Frame]:
    """A message of another schema, of the archive or of a mark file."""
    return whole(rng.choice(_FOREIGN))


def empty(rng: random.Random, _message: bytes) -> list[Frame]:
    """Frames with nothing in them."""
    return [(b"", rng.choice([UNFRAGMENTED, BEGIN, MIDDLE, END])) for _ in range(rng.randint(1, 3))]


def extended(rng: random.Random, message: bytes) -> list[Frame]:
    """More bytes than the message needs, in one frame or several."""
    return whole(message + rng.randbytes(rng.choice([1, 8, 100, 2000])))


def untimely(_rng: random.Random, message: bytes) -> list[Frame]:
    """The message itself, at a moment that is as good as any."""
    return whole(message)


MUTATIONS: dict[str, Mutation] = {
    mutation.__name__: mutation
    for mutation in (
        truncated,
        flipped,
        noise,
        headed,
        versioned,
        overgrown,
        refielded,
        rechannelled,
        fragmented,
        foreign,
        empty,
        extended,
        untimely,
    )
}
