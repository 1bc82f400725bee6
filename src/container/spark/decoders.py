"""The decoder of payloads that an option names: of SBE, protobuf or Avro by a schema, else by a type or a function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from container.errors import ConfigurationError
from container.sbe.decoder import SbeDecoder
from container.sbe.schema import FIELDS_MAX, Schema, read_schema
from container.spark.payloads import PayloadDecoder, column_fields

_SBE, _PROTOBUF, _AVRO = "sbe:", "protobuf:", "avro:"


class Decoder(Protocol):
    """Makes columns of payloads. It can be sent to an executor."""

    fields: list[pa.Field]
    """The columns; the last one is ``decode_error``."""

    def decode(self, payloads: pa.Array) -> list[pa.Array]:
        """One array for each of :attr:`fields`, with a value for each payload; a null payload gives nulls only."""


def make_decoder(text: str, view_columns: Sequence[str]) -> Decoder:
    """Make the decoder that the option ``decoder`` names.

    Args:
        text: ``sbe:FILE`` for all messages of a schema, ``sbe:FILE#MESSAGE`` for one, ``protobuf:FILE#MESSAGE`` or
            ``protobuf:package.module:MESSAGE``, ``avro:FILE``, or ``package.module:name``.
        view_columns: the names that are taken.

    Raises:
        ConfigurationError: there is no such decoder, its library is missing, or what it gives cannot be columns.
    """
    if text.startswith(_PROTOBUF):
        from container.spark.protobuf_payloads import make_protobuf_decoder

        return make_protobuf_decoder(text, view_columns)
    if text.startswith(_AVRO):
        from container.spark.avro_payloads import make_avro_decoder

        return make_avro_decoder(text, view_columns)
    if not text.startswith(_SBE):
        return PayloadDecoder(text, view_columns)
    path, _, message = text.removeprefix(_SBE).partition("#")
    if not path:
        raise ConfigurationError(f"decoder={text!r}: name the schema's file, as in sbe:/etc/orders.xml")
    return SbePayloads(text, read_schema(path), message or None, view_columns)


class SbePayloads:
    """Decodes SBE. The schema is read once, where the query is planned."""

    def __init__(self, text: str, schema: Schema, message: str | None, view_columns: Sequence[str]) -> None:
        """Prepare for the messages of a schema, or for one; ``text`` is the option."""
        self._arguments = text, schema, message, view_columns
        self._decoder = SbeDecoder(schema, message)
        named = [(field.name, field.type) for field in self._decoder.fields]
        self.fields = column_fields(text, named, view_columns, FIELDS_MAX)

    def __reduce__(self) -> tuple[type[SbePayloads], tuple[str, Schema, str | None, Sequence[str]]]:
        """Send the schema, so that an executor needs no file."""
        return type(self), self._arguments

    def decode(self, payloads: pa.Array) -> list[pa.Array]:
        """One array for each of :attr:`fields`, with a value for each payload; a null payload gives nulls only."""
        arrays, errors = self._decoder.decode(payloads)
        texts = pa.nulls(len(payloads), pa.string())
        if errors:
            texts = pa.array([errors.get(row) for row in range(len(payloads))], pa.string())
        return [*arrays, texts]
