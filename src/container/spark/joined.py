"""Many payloads of one type decoded by one call of msgspec, where it is certain that each of them is one value."""

from __future__ import annotations

from itertools import repeat
from typing import Any

import msgspec

_SPACE = b" \t\r\n"
_ARRAY_32 = b"\xdd"


class JoinedDecoder:
    """Decodes payloads as the elements of one array.

    Joined payloads could shift: ``1],[2`` is two elements, an empty one none. So the array is read twice, first into
    the bytes of its elements. There are as many as payloads, each as long as its own, and nothing but the separators is
    left: then each element is its payload.
    """

    def __init__(self, kind: Any) -> None:
        """Prepare for one type, as msgspec takes it."""
        self._json, self._json_raw = msgspec.json.Decoder(list[kind]), msgspec.json.Decoder(list[msgspec.Raw])
        self._msgpack = msgspec.msgpack.Decoder(list[kind])
        self._msgpack_raw = msgspec.msgpack.Decoder(list[msgspec.Raw])

    def decode(self, payloads: list[bytes], *, json: bool) -> list[Any]:
        """Return a value for each payload.

        Raises:
            ValueError: a payload is not exactly one value.
            Exception: as msgspec, or the type's own code, where one does not decode.
        """
        if not json:
            array = b"".join([_ARRAY_32, len(payloads).to_bytes(4), *payloads])
            _check_lengths(self._msgpack_raw.decode(array), payloads)
            return self._msgpack.decode(array)
        payloads = list(map(bytes.strip, payloads, repeat(_SPACE)))
        array = b"".join([b"[", b",".join(payloads), b"]"])
        _check_lengths(self._json_raw.decode(array), payloads)
        return self._json.decode(array)


def _check_lengths(elements: list[msgspec.Raw], payloads: list[bytes]) -> None:
    if list(map(len, elements)) != list(map(len, payloads)):
        raise ValueError("a payload is not exactly one value")
