"""Aeron channel URIs: taken apart, edited, and put together again with their parameters in the same order.

The grammar is that of upstream's ``ChannelUri``: ``[aeron-spy:]aeron:media[?key=value[|key=value]...]``.
"""

from __future__ import annotations

from container.common.values import shown
from container.errors import ConfigurationError

SCHEME = "aeron:"
SPY_PREFIX = "aeron-spy"
MAX_URI_LENGTH = 4095

ENDPOINT = "endpoint"
SESSION_ID = "session-id"
ALIAS = "alias"

_MEDIA = ("udp", "ipc")


class ChannelUri:
    """A channel as prefix, media and parameters.

    ``prefix`` is ``"aeron-spy"`` or ``""``, ``media`` is ``"udp"`` or ``"ipc"``, and ``params`` keeps the
    order in which the parameters were written. ``str()`` gives the text of the channel as it is now.
    """

    __slots__ = ("media", "params", "prefix")

    def __init__(self, media: str, params: dict[str, str] | None = None, *, prefix: str = "") -> None:
        self.prefix = prefix
        self.media = media
        self.params: dict[str, str] = {} if params is None else params

    @classmethod
    def parse(cls, text: str) -> ChannelUri:
        """The parts of ``text``; raises ConfigurationError, which names the text, when it is not a channel URI.

        If a parameter is given twice, its last value counts, as upstream.
        """
        if not isinstance(text, str):
            raise ConfigurationError(f"a channel must be a string, not {shown(text)}")
        if len(text) > MAX_URI_LENGTH:
            raise ConfigurationError(
                f"a channel may have at most {MAX_URI_LENGTH} characters, not {len(text)}: {shown(text)}"
            )
        prefix = SPY_PREFIX if text.startswith(SPY_PREFIX + ":") else ""
        rest = text[len(prefix) + 1 :] if prefix else text
        if not rest.startswith(SCHEME):
            raise ConfigurationError(f"a channel must begin with {SCHEME!r}, not {shown(text)}")
        media, question_mark, query = rest[len(SCHEME) :].partition("?")
        if media not in _MEDIA:
            raise ConfigurationError(
                f"a channel's media must be one of {', '.join(_MEDIA)}, not {shown(media)}: {shown(text)}"
            )
        return cls(media, _parse_params(query, text) if question_mark else {}, prefix=prefix)

    @property
    def is_udp(self) -> bool:
        """Whether the media is ``udp``."""
        return self.media == "udp"

    @property
    def is_ipc(self) -> bool:
        """Whether the media is ``ipc``."""
        return self.media == "ipc"

    def get(self, key: str, default: str | None = None) -> str | None:
        """The value of parameter ``key``, or ``default`` when the channel has none."""
        return self.params.get(key, default)

    def put(self, key: str, value: str) -> None:
        """Give parameter ``key`` a value, at its present place, or at the end when it is new."""
        self.params[key] = value

    def put_if_absent(self, key: str, value: str) -> None:
        """Give parameter ``key`` a value unless it has one."""
        self.params.setdefault(key, value)

    def remove(self, key: str) -> None:
        """Drop parameter ``key`` if it is there."""
        self.params.pop(key, None)

    def replace_wildcard_port(self, resolved_endpoint: str) -> None:
        """Put the port of ``resolved_endpoint`` ("host:port") in place of an endpoint's port 0.

        A channel with no endpoint gets the whole of it; an endpoint with a port of its own stays.
        """
        _host, colon, port = resolved_endpoint.rpartition(":")
        if not colon or not port.isdecimal() or port == "0":
            raise ConfigurationError(f"not a bound endpoint with a port: {resolved_endpoint!r}")
        endpoint = self.get(ENDPOINT)
        if endpoint is None:
            self.put(ENDPOINT, resolved_endpoint)
        elif endpoint.endswith(":0"):
            self.put(ENDPOINT, f"{endpoint[:-2]}:{port}")

    def __str__(self) -> str:
        prefix = self.prefix + ":" if self.prefix else ""
        params = "|".join(f"{key}={value}" for key, value in self.params.items())
        return f"{prefix}{SCHEME}{self.media}{'?' if params else ''}{params}"

    def __repr__(self) -> str:
        return f"ChannelUri.parse({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        """Equal when prefix, media and parameters are; the order of the parameters has no meaning."""
        if not isinstance(other, ChannelUri):
            return NotImplemented
        return (self.prefix, self.media, self.params) == (other.prefix, other.media, other.params)

    __hash__ = None  # type: ignore[assignment]  # a channel can be edited


def _parse_params(query: str, text: str) -> dict[str, str]:
    params: dict[str, str] = {}
    for item in query.split("|"):
        key, equals, value = item.partition("=")
        if not key or not equals:
            raise ConfigurationError(
                f"a channel's parameters must be key=value with | between, not {shown(item)}: {shown(text)}"
            )
        params[key] = value
    return params


def initial_position(position: int, initial_term_id: int, term_length: int) -> dict[str, str]:
    """The parameters of a publication that begins at a position of a stream (upstream: initialPosition of its builder).

    Args:
        position: in bytes, a multiple of 32.
        initial_term_id: of the stream.
        term_length: in bytes.
    """
    return {
        "init-term-id": str(initial_term_id),
        "term-id": str(as_int32(initial_term_id + position // term_length)),
        "term-offset": str(position % term_length),
    }


def as_int32(number: int) -> int:
    """The number as it is left when only its lowest 32 bits are kept, as a term id is."""
    return (number + 2**31) % 2**32 - 2**31


def add_session_id(channel: str, session_id: int) -> str:
    """``channel`` with parameter ``session-id`` set to ``session_id`` (a signed 32-bit number)."""
    uri = ChannelUri.parse(channel)
    uri.put(SESSION_ID, str(session_id))
    return str(uri)


def replace_alias(channel: str, alias: str) -> str:
    """``channel`` with its alias, if it has one, replaced by ``alias``; an empty alias removes it."""
    uri = ChannelUri.parse(channel)
    if alias:
        uri.put(ALIAS, alias)
    else:
        uri.remove(ALIAS)
    return str(uri)


def add_alias_if_absent(channel: str, alias: str) -> str:
    """``channel`` itself when it has an alias, else with ``alias``."""
    uri = ChannelUri.parse(channel)
    uri.put_if_absent(ALIAS, alias)
    return str(uri)
