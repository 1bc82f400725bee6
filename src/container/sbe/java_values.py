"""Values in SBE schemas, as Java parses them and has them: unsigned ones with a sign, and of more bits."""

from __future__ import annotations

import math
import re
import struct
from typing import cast

SIZES = {"char": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8}
SIZES |= {"float": 4, "double": 8}
"""Bytes of the primitive types."""
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
BITS = {name: 8 * size for name, size in SIZES.items()}
# Bits of the type by which Java parses values: those of the next larger type for an unsigned one.
_PARSED_BITS = BITS | {"uint8": 16, "uint16": 32, "uint32": 64}


def parsed(text: str, primitive: str) -> int | float:
    """The value of a text, for ``uint64`` with the sign of its bits; of characters it is that of ASCII.

    Args:
        text: as the schema has it.
        primitive: the type.

    Raises:
        ValueError: it is not a value of the type, or more text follows the value.
    """
    if primitive == "char":
        if len(text.encode("utf-16-le", "surrogatepass")) != 2:
            raise ValueError(" is not a character")
        return ord(text) if text.isascii() else ord("?")
    if primitive in ("float", "double"):
        number = _real(text)
        if number is None:
            raise ValueError(" is not a number")
        return _single(number) if primitive == "float" else number
    value = integer(text)
    if value is None:
        raise ValueError(" is not a whole number")
    if primitive == "uint64" and value < 2**64:
        return (value + 2**63) % 2**64 - 2**63
    most = 2 ** (_PARSED_BITS[primitive] - 1) - 1
    if not -most - 1 <= value <= most:
        raise ValueError(f": must be from {-most - 1} to {most}")
    return value


def integer(text: str) -> int | None:
    """A whole number, with or without a sign; None for any other text."""
    try:
        return int(text) if re.fullmatch(r"[+-]?\d+", text) else None
    except ValueError:  # thousands of digits
        return None


def _real(text: str) -> float | None:
    text = text.strip("".join(map(chr, range(0x21))))
    if re.fullmatch(r"[+-]?(NaN|Infinity)", text):
        return float(text)
    if re.fullmatch(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?[fFdD]?", text, re.ASCII):
        return float(text.rstrip("fFdD"))
    if re.fullmatch(r"[+-]?0[xX]([\da-fA-F]+\.?|[\da-fA-F]*\.[\da-fA-F]+)[pP][+-]?\d+[fFdD]?", text, re.ASCII):
        mantissa, _, exponent = text.lower().partition("p")
        try:
            return float.fromhex(f"{mantissa}p{exponent.rstrip('fd')}")
        except OverflowError:
            return -math.inf if text.startswith("-") else math.inf
    return None


def _single(value: float) -> float:
    """The value as one of 32 bits."""
    try:
        return cast("float", struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def limits(primitive: str) -> tuple[int, int]:
    """The least and the greatest value of a type, without null, as Java has them: those of ``uint64`` with a sign."""
    bits = BITS[primitive]
    if primitive == "uint64":
        return 0, -2
    if primitive in UNSIGNED:
        return 0, 2**bits - 2
    return 1 - 2 ** (bits - 1), 2 ** (bits - 1) - 1


def default_null(primitive: str) -> int:
    """The null value of an integer or a character, as Java has it."""
    if primitive in ("char", "uint64"):
        return 0 if primitive == "char" else -1
    most = 1 << (BITS[primitive] - 1)
    return 2 * most - 1 if primitive in UNSIGNED else -most


def null_bits(primitive: str, null: int | float | None) -> int | None:
    """The bits of what stands for null, without sign; None for NaN, and for what no value of the type is."""
    if primitive in ("float", "double"):
        if null is None or math.isnan(null):
            return None
        return int.from_bytes(struct.pack("<f" if primitive == "float" else "<d", null), "little")
    bits = BITS[primitive]
    value = int(default_null(primitive) if null is None else null)
    is_possible = primitive in ("uint64", "char") or primitive not in UNSIGNED or 0 <= value < 2**bits
    return value % 2**bits if is_possible else None
