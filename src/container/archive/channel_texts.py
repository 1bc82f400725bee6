"""The texts of channels as an archive keeps and derives them: stripped, for a recording, a response or a replay.

Clients send channels; what an archive does with them must be what upstream's archive does, letter for letter, because
texts are stored, compared and shown (upstream: ``ArchiveConductor.strippedChannelBuilder`` and ``makeKey`` over
``ChannelUriStringBuilder``). Each function raises ConfigurationError, which names parameter and value, where a channel
cannot be used. Two things are better than upstream's: a size that does not fit 32 bits is refused and not cut to its
lower bits, and a replay's ``linger`` may have a unit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from container.common.aeron_defaults import FRAME_ALIGNMENT
from container.common.channel_uri import MAX_URI_LENGTH, SPY_PREFIX, ChannelUri, initial_position
from container.common.quantities import SIZE_FACTORS, format_duration, format_size
from container.common.values import shown, whole_number
from container.errors import ConfigurationError

__all__ = [
    "parse_channel",
    "replay_channel",
    "response_channel",
    "stripped_channel",
    "subscription_channel",
    "subscription_key",
]

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_MTU_RANGE = (32, 65_504)
_TERM_LENGTH_RANGE = (64 * 1024, 1024**3)

_RESPONSE_MODE = "response"
_RESPONSE_CORRELATION_ID = "response-correlation-id"
_KEY_PARAMETERS = ("endpoint", "interface", "control", "session-id", "tags")

_DURATION_FACTORS_NS = {"": 1, "ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}


def parse_channel(text: str | bytes) -> ChannelUri:
    """The parts of a channel that a client sent, as text or as the bytes of a message.

    It may have printable ASCII characters only: it is written to files, counters and logs, and handed to C.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("ascii")
        except UnicodeDecodeError:
            raise ConfigurationError(f"a channel must be ASCII, not {shown(text)}") from None
    if isinstance(text, str) and not (text.isascii() and text.isprintable()):
        raise ConfigurationError(f"a channel must have printable ASCII characters only, not {shown(text)}")
    return ChannelUri.parse(text)


def stripped_channel(channel: ChannelUri) -> str:
    """The part of a channel that the catalog keeps: where it leads, without the parameters of a publication.

    Lengths of terms and packets, positions, linger, whatever is not known, and the prefix of a spy are dropped.
    """
    return _written(channel, _stripped(channel))


def subscription_channel(channel: ChannelUri, *, is_local: bool) -> str:
    """The channel on which the archive subscribes to record it: a spy of a publication of the same driver over UDP."""
    stripped = stripped_channel(channel)
    return _short_enough(f"{SPY_PREFIX}:{stripped}") if is_local and channel.is_udp else stripped


def subscription_key(stream_id: int, channel: ChannelUri) -> str:
    """The key that no two recordings on one driver may share. It contains neither the alias nor any other parameter."""
    values = ((name, channel.get(name)) for name in _KEY_PARAMETERS)
    query = "|".join(f"{name}={value}" for name, value in values if value is not None)
    return f"{stream_id}:{channel.media}{'?' if query else ''}{query}"


def response_channel(
    channel: ChannelUri, *, term_length: int, mtu_length: int, is_sparse: bool, image_correlation_id: int
) -> str:
    """The channel on which a client is answered, made of the one in its connect request.

    Lengths (bytes) and sparseness are the archive's own where the client does not give its. ``image_correlation_id`` is
    that of the image of the request, for a client with ``control-mode=response``.
    """
    params = _stripped(channel)
    params["term-length"] = _term_length(_value(channel, "term-length", _SIZE, term_length))
    params["mtu"] = _mtu(_value(channel, "mtu", _SIZE, mtu_length))
    params["sparse"] = _value(channel, "sparse", _FLAG, "true" if is_sparse else "false")
    if channel.get("control-mode") == _RESPONSE_MODE:
        params[_RESPONSE_CORRELATION_ID] = str(image_correlation_id)
    return _written(channel, params)


def replay_channel(
    channel: ChannelUri,
    *,
    position: int,
    initial_term_id: int,
    term_length: int,
    mtu_length: int,
    linger_ns: int,
    image_correlation_id: int | None = None,
) -> str:
    """The channel on which a recording is replayed from ``position``, made of the one in the request.

    ``initial_term_id``, ``term_length`` and ``mtu_length`` (bytes) are the recording's; ``linger_ns`` counts when the
    request has no ``linger``. ``image_correlation_id`` is that of the image of a request with a replay token.
    """
    if position < 0 or position % FRAME_ALIGNMENT:
        raise ConfigurationError(f"position={position}: must be a multiple of {FRAME_ALIGNMENT} and not negative")
    params = _stripped(channel)
    params["term-length"] = _term_length(term_length)
    params["mtu"] = _mtu(mtu_length)
    params |= initial_position(position, initial_term_id, term_length)
    params["linger"] = format_duration(_value(channel, "linger", _DURATION, linger_ns))
    for name in ("eos", "sparse"):
        if channel.get(name) is not None:
            params[name] = _value(channel, name, _FLAG, "")
    if image_correlation_id is not None and channel.get("control-mode") == _RESPONSE_MODE:
        params[_RESPONSE_CORRELATION_ID] = str(image_correlation_id)
    return _written(channel, params)


def _stripped(channel: ChannelUri) -> dict[str, str]:
    return {name: _value(channel, name, form, "") for name, form in _KEPT.items() if channel.get(name) is not None}


def _written(channel: ChannelUri, params: Mapping[str, str]) -> str:
    query = {name: params[name] for name in _ORDER if name in params}
    return _short_enough(str(ChannelUri(channel.media, query)))


def _short_enough(text: str) -> str:
    if len(text) > MAX_URI_LENGTH:
        raise ConfigurationError(f"with the archive's parameters a channel has {len(text)} characters: {shown(text)}")
    return text


class _Form[T](NamedTuple):
    """How a parameter is read, which gives None for a text of another form, and what an error says is allowed."""

    read: Callable[[str], T | None]
    allowed: str


def _value[T](channel: ChannelUri, name: str, form: _Form[T], otherwise: T) -> T:
    """The value of a parameter, or ``otherwise`` when the channel has none."""
    text = channel.get(name)
    if text is None:
        return otherwise
    value = form.read(text)
    if value is None:
        raise ConfigurationError(f"{name}={shown(text)} of a channel: must be {form.allowed}")
    return value


def _integer(least: int, most: int) -> _Form[str]:
    def read(text: str) -> str | None:
        number = whole_number(text)
        return str(number) if number is not None and least <= number <= most else None

    return _Form(read, f"a whole number from {least} to {most}")


def _read_session_id(text: str) -> str | None:
    tag = re.fullmatch(r"tag:(-?[0-9]{1,19})", text)
    if tag is None:
        return _INT32.read(text)
    number = _INT64.read(tag[1])
    return None if number is None else f"tag:{number}"


def _read_timestamp_offset(text: str) -> str | None:
    return text if text == "reserved" or _INT32.read(text) is not None else None


def _read_correlation_id(text: str) -> str | None:
    return text if text == "prototype" or _integer(-1, _INT64_MAX).read(text) is not None else None


def _quantity(text: str, factors: Mapping[str, int], most: int) -> int | None:
    found = re.fullmatch(r"([0-9]+)([a-z]*)", text.lower())
    number = whole_number(found[1]) if found else None
    factor = factors.get(found[2]) if found else None
    return number * factor if number is not None and factor is not None and number * factor <= most else None


def _read_size(text: str) -> int | None:
    return _quantity(text, SIZE_FACTORS, _INT32_MAX)


def _read_written_size(text: str) -> str | None:
    size = _read_size(text)
    return None if size is None else format_size(size)


def _read_duration_ns(text: str) -> int | None:
    return _quantity(text.removeprefix("+"), _DURATION_FACTORS_NS, _INT64_MAX)


_TEXT = _Form[str](str, "a text")
_FLAG = _Form[str](lambda text: "true" if text.lower() == "true" else "false", "true or false")  # as Java's Boolean
_INT32 = _integer(-(2**31), _INT32_MAX)
_INT64 = _integer(-(2**63), _INT64_MAX)
_SIZE = _Form[int](_read_size, f"a size of at most {_INT32_MAX} bytes, such as 65536 or 64k")
_WRITTEN_SIZE = _Form[str](_read_written_size, _SIZE.allowed)
_DURATION = _Form[int](_read_duration_ns, "a time of at most 2**63 - 1 ns, such as 5000000000 or 5s")
_TIMESTAMP_OFFSET = _Form[str](_read_timestamp_offset, "a number or 'reserved'")
_CORRELATION_ID = _Form[str](_read_correlation_id, "a number from -1 on or 'prototype'")
_SESSION_ID = _Form[str](_read_session_id, "a number of 32 bits, or tag: and a number")
_CONTROL_MODE = _Form[str](
    lambda text: text if text in ("manual", "dynamic", _RESPONSE_MODE) else None, "manual, dynamic or response"
)


def _term_length(length: int) -> str:
    least, most = _TERM_LENGTH_RANGE
    if not least <= length <= most or length & (length - 1):
        raise ConfigurationError(f"term-length={length}: must be a power of two from {least} to {most}")
    return format_size(length)


def _mtu(length: int) -> str:
    least, most = _MTU_RANGE
    if not least <= length <= most or length % FRAME_ALIGNMENT:
        raise ConfigurationError(f"mtu={length}: must be a multiple of {FRAME_ALIGNMENT} from {least} to {most}")
    return format_size(length)


#: Parameters that a stripped channel keeps.
_KEPT = {
    "tags": _TEXT,
    "endpoint": _TEXT,
    "interface": _TEXT,
    "control": _TEXT,
    "control-mode": _CONTROL_MODE,
    "session-id": _SESSION_ID,
    "ttl": _integer(0, 255),
    "alias": _TEXT,
    "cc": _TEXT,
    "fc": _TEXT,
    "gtag": _INT64,
    "tether": _FLAG,
    "group": _FLAG,
    "rejoin": _FLAG,
    "so-sndbuf": _WRITTEN_SIZE,
    "so-rcvbuf": _WRITTEN_SIZE,
    "rcv-wnd": _WRITTEN_SIZE,
    "media-rcv-ts-offset": _TIMESTAMP_OFFSET,
    "channel-rcv-ts-offset": _TIMESTAMP_OFFSET,
    "channel-snd-ts-offset": _TIMESTAMP_OFFSET,
    "response-endpoint": _TEXT,
    _RESPONSE_CORRELATION_ID: _CORRELATION_ID,
    "stream-id": _INT32,
}

#: All that is written, in the order in which upstream's builder writes it.
_ORDER = (
    *("tags", "endpoint", "interface", "control", "control-mode", "mtu", "term-length", "init-term-id", "term-id"),
    *("term-offset", "session-id", "ttl", "linger", "alias", "cc", "fc", "gtag", "sparse", "eos", "tether", "group"),
    *("rejoin", "so-sndbuf", "so-rcvbuf", "rcv-wnd", "media-rcv-ts-offset", "channel-rcv-ts-offset"),
    *("channel-snd-ts-offset", "response-endpoint", _RESPONSE_CORRELATION_ID, "stream-id"),
)
