"""Which publications are one, and which feeds a subscription: the driver's rules without a driver."""

from __future__ import annotations

import pytest

from container.errors import RegistrationError
from container.testing.memory.memory_channel import MemoryChannel

MANUAL = "aeron:udp?control-mode=manual"


def test_parameters_are_taken_apart() -> None:
    channel = MemoryChannel.parse(
        "aeron-spy:aeron:udp?endpoint=localhost:20000|control=host:1|interface=eth0|tags=3,4|session-id=-5|"
        "term-length=128k|mtu=8k|init-term-id=-2|term-id=7|term-offset=64"
    )
    assert channel.is_spy
    assert not channel.is_ipc
    assert (channel.endpoint, channel.control, channel.interface) == ("127.0.0.1:20000", "host:1", "eth0")
    assert (channel.tag, channel.session_id) == ("3", -5)
    assert (channel.term_length, channel.mtu_length) == (128 * 1024, 8 * 1024)
    assert channel.start_position(128 * 1024) == 9 * 128 * 1024 + 64


@pytest.mark.parametrize(
    ("text", "size"), [("65536", 65_536), ("64k", 65_536), ("64K", 65_536), ("16m", 1 << 24), ("1g", 1 << 30)]
)
def test_sizes_have_suffixes(text: str, size: int) -> None:
    assert MemoryChannel.parse(f"aeron:ipc?term-length={text}").term_length == size


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ipc",
        "aeron:tcp",
        "aeron:ipc?",
        "aeron:ipc?x",
        "aeron:ipc?term-length=64kb",
        "aeron:ipc?mtu=-1",
        "aeron:ipc?session-id=tag:7",
        "aeron:ipc?session-id=2147483648",
        "aeron-spy:aeron:ipc",
    ],
)
def test_what_is_no_channel_is_refused_as_a_driver_does(text: str) -> None:
    with pytest.raises(RegistrationError) as error:
        MemoryChannel.parse(text)
    assert error.value.code == 1
    assert text in str(error.value)


@pytest.mark.parametrize(
    "params",
    [
        "init-term-id=1",
        "term-id=1|term-offset=0",
        "init-term-id=2|term-id=1|term-offset=0",
        "init-term-id=1|term-id=1|term-offset=65537",
        "init-term-id=1|term-id=1|term-offset=-32",
    ],
)
def test_an_impossible_start_is_refused(params: str) -> None:
    with pytest.raises(RegistrationError, match="term-id"):
        MemoryChannel.parse(f"aeron:ipc?{params}").start_position(65_536)


def test_term_ids_wrap_around_in_a_start() -> None:
    channel = MemoryChannel.parse("aeron:ipc?init-term-id=2147483647|term-id=-2147483648|term-offset=32")
    assert channel.start_position(65_536) == 65_536 + 32
    assert MemoryChannel.parse("aeron:ipc").start_position(65_536) == 0


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("aeron:ipc", "aeron:ipc?alias=x|term-length=64k", True),
        ("aeron:ipc", "aeron:udp?endpoint=a:1", False),
        ("aeron:udp?endpoint=localhost:1", "aeron:udp?endpoint=127.0.0.1:1|alias=x", True),
        ("aeron:udp?endpoint=a:1", "aeron:udp?endpoint=a:2", False),
        ("aeron:udp?endpoint=a:1", "aeron:udp?endpoint=a:1|interface=eth0", False),
        ("aeron:udp?endpoint=a:1|tags=7", "aeron:udp?tags=7", True),
        (f"{MANUAL}|tags=7", "aeron:udp?tags=7,8", True),
        (f"{MANUAL}|tags=7", "aeron:udp?tags=8", False),
        (MANUAL, MANUAL, False),
    ],
)
def test_channels_are_the_same_place(one: str, other: str, same: bool) -> None:
    first, second = MemoryChannel.parse(one), MemoryChannel.parse(other)
    assert first.is_same_as(second) is same
    assert second.is_same_as(first) is same


@pytest.mark.parametrize(
    ("subscription", "publication", "received"),
    [
        # IPC: any channel, but the session id counts.
        ("aeron:ipc", "aeron:ipc?alias=x", True),
        ("aeron:ipc?session-id=5", "aeron:ipc", True),
        ("aeron:ipc?session-id=6", "aeron:ipc", False),
        ("aeron:ipc?tags=1|session-id=5|alias=log-sc-0", "aeron:ipc?tags=1|session-id=5|alias=log", True),
        ("aeron:ipc?tags=1", "aeron:ipc?tags=2", True),
        ("aeron:ipc", "aeron:udp?endpoint=a:1", False),
        # UDP: endpoint or control address.
        ("aeron:udp?endpoint=localhost:1", "aeron:udp?endpoint=127.0.0.1:1|alias=x", True),
        ("aeron:udp?endpoint=a:1", "aeron:udp?endpoint=a:2", False),
        ("aeron:udp?endpoint=a:1|session-id=6", "aeron:udp?endpoint=a:1", False),
        ("aeron:udp?endpoint=a:1", "aeron:ipc", False),
        (
            "aeron:udp?endpoint=b:0|control=a:1|control-mode=dynamic",
            "aeron:udp?control=a:1|control-mode=dynamic",
            True,
        ),
        (MANUAL, MANUAL, False),
        # Tags: attach to what has the tag.
        (f"{MANUAL}|tags=1,2|session-id=5|alias=log-cm|group=true|rejoin=false", f"{MANUAL}|tags=1", True),
        (f"{MANUAL}|tags=1,2|session-id=6", f"{MANUAL}|tags=1", False),
        (f"{MANUAL}|tags=3,2|session-id=5", f"{MANUAL}|tags=1,2", False),
        # Spies: by tag whatever the session, else by place.
        ("aeron-spy:aeron:udp?tags=1|session-id=6|alias=log-sc-0", f"{MANUAL}|tags=1|session-id=5", True),
        ("aeron-spy:aeron:udp?endpoint=a:1", "aeron:udp?endpoint=a:1", True),
        ("aeron-spy:aeron:udp?endpoint=a:1|session-id=6", "aeron:udp?endpoint=a:1", False),
        ("aeron-spy:aeron:udp?endpoint=a:1", "aeron:udp?endpoint=a:2", False),
        ("aeron-spy:aeron:udp?endpoint=a:1", "aeron:ipc", False),
    ],
)
def test_a_subscription_receives_a_publication_of_session_5(
    subscription: str, publication: str, received: bool
) -> None:
    wanted, sent = MemoryChannel.parse(subscription), MemoryChannel.parse(publication)
    assert wanted.receives(sent, session_id=5) is received
