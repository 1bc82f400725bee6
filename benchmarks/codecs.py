"""Nanoseconds to encode and to decode each message of the cluster's schema, beside a memcpy of the same length.

A module with one loop per message is generated from schema/ and compiled against the package's flyweights. Decoding is
to wrap the bytes and to read every field; encoding writes every field. Var data is 32 bytes each. CPU time of this
process; what was decoded is compared with what was encoded. Messages with repeating groups are left out.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from types import ModuleType

from benchmarks._harness import CACHE, Report, RoundFailed, run_rounds
from benchmarks._verdicts import Result
from scripts.generate_codecs import Message, Schema, load_schemas
from tests.cython_module import compile_cython, load_module

_MODULE = "codec_costs"
_HEAD = '''
"""Loops that encode, decode and copy each message; made by benchmarks/codecs.py."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from container.codecs cimport cluster

cdef extern from *:
    """
    #define consume(value) __asm__ __volatile__("" : : "g"(value) : "memory")
    """
    void consume(int64_t value) noexcept nogil

cdef uint8_t[4096] BUFFER
cdef uint8_t[4096] COPY
cdef uint8_t[64] TEXT
'''


def source(schema: Schema) -> Iterator[str]:
    """The text of the module."""
    yield _HEAD
    for message in schema.messages:
        yield from encode_loop(message)
        yield from decode_loop(message)
    yield "\n\ndef copy(int64_t count, size_t length):"
    yield "    cdef int64_t number"
    yield "    for number in range(count):"
    yield "        memcpy(COPY, BUFFER, length)"
    yield "        consume(number)"


def encode_loop(message: Message) -> Iterator[str]:
    """``encode_<message>(count)``: returns the encoded length."""
    arguments = ["BUFFER", "sizeof(BUFFER)"]
    arguments += [f"<{field.c_type}> (number + {at})" for at, field in enumerate(message.written_fields)]
    for _item in message.written_var:
        arguments += ["TEXT", "32"]
    yield f"\n\ndef encode_{message.prefix}(int64_t count):"
    yield "    cdef int64_t number, length = 0"
    yield "    for number in range(count):"
    yield f"        length = cluster.{message.prefix}_encode({', '.join(arguments)})"
    yield "        consume(length)"
    yield "    return length"


def decode_loop(message: Message) -> Iterator[str]:
    """``decode_<message>(count, length)``: returns the sum of the fields of the last message."""
    reads = [f"cluster.{message.prefix}_{field.name}(&message)" for field in message.written_fields]
    reads += [f"<int64_t> message.{item.name}.length" for item in message.written_var]
    yield f"\n\ndef decode_{message.prefix}(int64_t count, size_t length):"
    yield f"    cdef cluster.{message.name} message"
    yield "    cdef int64_t number, total = 0"
    yield "    for number in range(count):"
    yield "        consume(number)"
    yield f"        if cluster.{message.prefix}_wrap(&message, BUFFER, length) < 0:"
    yield "            return -1"
    yield f"        total = {' + '.join(reads)}"
    yield "        consume(total)"
    yield "    return total"


def measure(module: ModuleType, message: Message, count: int) -> Result:
    """Nanoseconds of each; checks the last message."""
    encode, decode = (getattr(module, f"{what}_{message.prefix}") for what in ("encode", "decode"))
    begin = time.process_time_ns()
    length = encode(count)
    encoded = time.process_time_ns()
    total = decode(count, length)
    decoded = time.process_time_ns()
    module.copy(count, length)
    copied = time.process_time_ns()
    written = [
        (count - 1 + at) & (0xFF if field.c_type == "uint8_t" else -1)
        for at, field in enumerate(message.written_fields)
    ]
    expected = sum(written) + 32 * len(message.written_var)
    if total != expected:
        raise RoundFailed(f"{message.name}: the fields sum up to {total} instead of {expected}")
    return {
        "bytes": length,
        "encode_ns": (encoded - begin) / count,
        "decode_ns": (decoded - encoded) / count,
        "memcpy_ns": (copied - decoded) / count,
    }


def main(arguments: Sequence[str] | None = None) -> Report:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="./run bench codecs", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--messages", type=int, default=1_000_000, help="of each kind in a round")
    options = parser.parse_args(arguments)
    schema = next(schema for schema in load_schemas() if schema.name == "cluster")
    schema = replace(schema, messages=tuple(message for message in schema.messages if not message.groups))
    CACHE.mkdir(parents=True, exist_ok=True)
    path, text = CACHE / f"{_MODULE}.pyx", "\n".join(source(schema)).lstrip() + "\n"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
    module = load_module(compile_cython(path, CACHE))
    report = Report("codecs", {"bytes": "5.0f", "encode_ns": "6.2f", "decode_ns": "6.2f", "memcpy_ns": "6.2f"})
    results, report.failures = run_rounds(
        {message.name: partial(measure, module, message, options.messages) for message in schema.messages},
        options.rounds,
        options.seed,
    )
    report.add("messages of the cluster's schema", results)
    return report.finish()


if __name__ == "__main__":
    main()
