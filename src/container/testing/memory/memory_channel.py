"""Channels as a media driver understands them: which publications are one, and which feeds a subscription.

The rules are upstream's (``IpcSubscriptionLink``, ``SpySubscriptionLink``, ``UdpChannel``), for a world in
which every UDP endpoint is reachable and nothing is lost:

- IPC: one place per stream id; aliases, tags and every other parameter but ``session-id`` do not matter.
- UDP: the place is endpoint, control address and interface. A channel tag (the first of ``tags``) names the
  place of the channel that has it, which is how a service attaches to a log that the consensus module opened.
  A channel with nothing of all this reaches nobody.
- ``aeron-spy:`` subscribes to a UDP publication: by tag, whatever its session id, or by place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from container.common.channel_uri import SPY_PREFIX, ChannelUri
from container.errors import ConfigurationError, RegistrationError

INVALID_CHANNEL = 1  # the driver's error code
_SIZE = re.compile(r"(\d+)([kKmMgG]?)")
_SIZE_SHIFT = {"": 0, "k": 10, "m": 20, "g": 30}


@dataclass(frozen=True)
class MemoryChannel:
    """A channel taken apart; parameters that are not given are None."""

    text: str
    is_spy: bool
    is_ipc: bool
    endpoint: str | None
    control: str | None
    interface: str | None
    tag: str | None
    session_id: int | None
    term_length: int | None
    mtu_length: int | None
    initial_term_id: int | None
    term_id: int | None
    term_offset: int | None
    control_mode: str | None
    flow_control: str | None
    rejoins: bool
    spies_connect: bool
    signals_end: bool

    @classmethod
    @lru_cache(maxsize=64)  # bounded, so that checks of memory see no growth
    def parse(cls, text: str) -> MemoryChannel:
        """The parts of a channel; raises RegistrationError, as a driver answers, for an invalid channel."""
        try:
            uri = ChannelUri.parse(text)
        except ConfigurationError as error:
            raise RegistrationError(str(error), code=INVALID_CHANNEL) from None
        if uri.prefix == SPY_PREFIX and uri.is_ipc:
            raise RegistrationError(f"only UDP publications can be spied on: {text}", code=INVALID_CHANNEL)
        return cls(
            text=text,
            is_spy=uri.prefix == SPY_PREFIX,
            is_ipc=uri.is_ipc,
            endpoint=_address(uri.get("endpoint")),
            control=_address(uri.get("control")),
            interface=uri.get("interface"),
            tag=(uri.get("tags") or "").split(",")[0] or None,
            session_id=_integer(uri, "session-id"),
            term_length=_size(uri, "term-length"),
            mtu_length=_size(uri, "mtu"),
            initial_term_id=_integer(uri, "init-term-id"),
            term_id=_integer(uri, "term-id"),
            term_offset=_integer(uri, "term-offset"),
            control_mode=uri.get("control-mode"),
            flow_control=(uri.get("fc") or "").split(",")[0] or None,
            rejoins=uri.get("rejoin") != "false",
            spies_connect=uri.get("ssc") == "true",
            signals_end=uri.get("eos") != "false",
        )

    @property
    def place(self) -> tuple[str | None, ...] | None:
        """The key that is equal for two names of one channel; None when no other channel can be the same."""
        if self.is_ipc:
            return ("ipc",)
        if self.endpoint or self.control or self.interface:
            return ("udp", self.endpoint, self.control, self.interface)
        return ("tag", self.tag) if self.tag else None

    def start_position(self, term_length: int) -> int:
        """Where a publication starts that init-term-id, term-id and term-offset describe; 0 without these."""
        if self.initial_term_id is None and self.term_id is None and self.term_offset is None:
            return 0
        if self.initial_term_id is None or self.term_id is None or self.term_offset is None:
            raise RegistrationError(
                f"init-term-id, term-id and term-offset must be given together: {self.text}",
                code=INVALID_CHANNEL,
            )
        term_count = (self.term_id - self.initial_term_id) & 0xFFFF_FFFF
        if term_count >= 2**31 or not 0 <= self.term_offset <= term_length:
            raise RegistrationError(
                f"term-id must not be before init-term-id, nor term-offset beyond the term of {term_length}: "
                f"{self.text}",
                code=INVALID_CHANNEL,
            )
        return term_count * term_length + self.term_offset

    def is_same_as(self, other: MemoryChannel) -> bool:
        """Whether two channels name one place, so that shared publications on them are one."""
        if self.is_ipc or other.is_ipc:
            return self.is_ipc and other.is_ipc
        if self.tag is not None and self.tag == other.tag:
            return True
        return self.place is not None and self.place == other.place

    def receives(self, publication: MemoryChannel, session_id: int) -> bool:
        """Whether a subscription to this channel gets what a publication of that session sends."""
        if self.is_ipc or publication.is_ipc:
            return self.is_ipc and publication.is_ipc and self.session_id in (None, session_id)
        if self.tag is not None and self.tag == publication.tag:
            return self.is_spy or self.session_id in (None, session_id)
        if self.session_id not in (None, session_id):
            return False
        if self.is_spy:
            return self.is_same_as(publication)
        return _equal(self.endpoint, publication.endpoint) or _equal(self.control, publication.control)


def _equal(one: str | None, other: str | None) -> bool:
    return one is not None and one == other


def _address(text: str | None) -> str | None:
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    return f"{'127.0.0.1' if host == 'localhost' else host}{colon}{port}"


def _integer(uri: ChannelUri, key: str) -> int | None:
    text = uri.get(key)
    if text is None:
        return None
    try:
        value = int(text)
    except ValueError:
        raise RegistrationError(f"{key} must be a number, not {text!r}: {uri}", code=INVALID_CHANNEL) from None
    if not -(2**31) <= value < 2**31:
        raise RegistrationError(f"{key} must fit a signed 32-bit number: {uri}", code=INVALID_CHANNEL)
    return value


def _size(uri: ChannelUri, key: str) -> int | None:
    text = uri.get(key)
    if text is None:
        return None
    match = _SIZE.fullmatch(text)
    if match is None:
        raise RegistrationError(f"{key} must be a size such as 65536 or 64k, not {text!r}: {uri}", code=INVALID_CHANNEL)
    return int(match[1]) << _SIZE_SHIFT[match[2].lower()]
