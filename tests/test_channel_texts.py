"""Channels as an archive keeps and derives them: order, sizes, what is dropped, and every text that is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from container.archive.channel_texts import (
    parse_channel,
    replay_channel,
    response_channel,
    stripped_channel,
    subscription_channel,
    subscription_key,
)
from container.common.channel_uri import ChannelUri
from container.errors import ConfigurationError

# Every parameter that upstream knows, with a value that is written otherwise where there is one.
FULL = (
    "aeron:udp?stream-id=+9|response-correlation-id=-1|response-endpoint=a:1|channel-snd-ts-offset=reserved"
    "|channel-rcv-ts-offset=+8|media-rcv-ts-offset=0|rcv-wnd=131072|so-rcvbuf=2M|so-sndbuf=1025|rejoin=FALSE"
    "|group=true|tether=yes|eos=false|sparse=true|gtag=007|fc=min,g:/2|cc=cubic|alias=log|ttl=07|session-id=-5"
    "|control-mode=manual|control=b:2|interface=lo|endpoint=c:3|tags=68,69|mtu=8k|term-length=64k|init-term-id=1"
    "|term-id=2|term-offset=32|reliable=true|linger=5|ssc=true|nak-delay=5us|untethered-window-limit-timeout=5s"
    "|untethered-linger-timeout=5s|untethered-resting-timeout=5s|max-resend=3|pub-wnd=64k|anything=else"
)
STRIPPED = (
    "aeron:udp?tags=68,69|endpoint=c:3|interface=lo|control=b:2|control-mode=manual|session-id=-5|ttl=7|alias=log"
    "|cc=cubic|fc=min,g:/2|gtag=7|tether=false|group=true|rejoin=false|so-sndbuf=1025|so-rcvbuf=2m|rcv-wnd=128k"
    "|media-rcv-ts-offset=0|channel-rcv-ts-offset=+8|channel-snd-ts-offset=reserved|response-endpoint=a:1"
    "|response-correlation-id=-1|stream-id=9"
)

# Parameters with values of another form than they have.
BAD_VALUES = [
    ("control-mode", "Manual"),
    ("session-id", ""),
    ("session-id", "2147483648"),
    ("session-id", "-2147483649"),
    ("session-id", "tag:00000000000000000007"),
    ("session-id", "tag:x"),
    ("session-id", "tag:9223372036854775808"),
    ("ttl", "256"),
    ("ttl", "-1"),
    ("gtag", "9223372036854775808"),
    ("gtag", "-9223372036854775809"),
    ("so-sndbuf", "2g"),
    ("so-sndbuf", "2147483648"),
    ("so-rcvbuf", "-1"),
    ("rcv-wnd", "1t"),
    ("rcv-wnd", "+64"),
    ("rcv-wnd", ""),
    ("rcv-wnd", "9" * 4000),
    ("media-rcv-ts-offset", "none"),
    ("channel-rcv-ts-offset", "2147483648"),
    ("channel-snd-ts-offset", ""),
    ("response-correlation-id", "-2"),
    ("response-correlation-id", "9223372036854775808"),
    ("stream-id", "1.5"),
]


def response(channel: str, **given: Any) -> str:
    archive: dict[str, Any] = {"term_length": 65_536, "mtu_length": 1408, "is_sparse": True}
    return response_channel(parse_channel(channel), image_correlation_id=77, **archive | given)


def replay(channel: str, **given: Any) -> str:
    recording: dict[str, Any] = {"position": 65_536 + 96, "initial_term_id": 5, "term_length": 65_536}
    return replay_channel(parse_channel(channel), linger_ns=5 * 10**9, **recording | {"mtu_length": 1408} | given)


# Stripped channels.


def test_a_stripped_channel_has_upstreams_order_forms_and_no_other_parameters() -> None:
    assert stripped_channel(parse_channel(FULL)) == STRIPPED


def test_stripping_again_changes_nothing() -> None:
    assert stripped_channel(parse_channel(STRIPPED)) == STRIPPED


def test_the_log_of_a_cluster_keeps_tags_session_and_alias() -> None:
    channel = parse_channel("aeron:udp?term-length=64m|alias=log|session-id=-1190720429|tags=68|linger=0")
    assert stripped_channel(channel) == "aeron:udp?tags=68|session-id=-1190720429|alias=log"


def test_a_channel_of_dropped_parameters_alone_has_no_question_mark() -> None:
    assert stripped_channel(parse_channel("aeron:ipc?term-length=64k|mtu=1408")) == "aeron:ipc"


def test_the_prefix_of_a_spy_is_dropped() -> None:
    assert stripped_channel(parse_channel("aeron-spy:aeron:udp?endpoint=a:1")) == "aeron:udp?endpoint=a:1"


@pytest.mark.parametrize(
    ("size", "text"),
    [("0", "0"), ("1023", "1023"), ("1024", "1k"), ("1536k", "1536k"), ("2048K", "2m"), ("1g", "1g"), ("007", "7")],
)
def test_sizes_are_written_in_the_largest_exact_unit(size: str, text: str) -> None:
    assert stripped_channel(parse_channel(f"aeron:ipc?rcv-wnd={size}")) == f"aeron:ipc?rcv-wnd={text}"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("session-id", "-2147483648", "-2147483648"),
        ("session-id", "2147483647", "2147483647"),
        ("session-id", "+0", "0"),
        ("session-id", "tag:007", "tag:7"),
        ("session-id", "tag:-9223372036854775808", "tag:-9223372036854775808"),
        ("session-id", "tag:9223372036854775807", "tag:9223372036854775807"),
        ("ttl", "0", "0"),
        ("ttl", "255", "255"),
        ("gtag", "-9223372036854775808", "-9223372036854775808"),
        ("gtag", "9223372036854775807", "9223372036854775807"),
        ("so-sndbuf", "2147483647", "2147483647"),
        ("media-rcv-ts-offset", "-2147483648", "-2147483648"),
        ("response-correlation-id", "prototype", "prototype"),
        ("response-correlation-id", "+9223372036854775807", "+9223372036854775807"),
        ("control-mode", "dynamic", "dynamic"),
        ("alias", "", ""),
    ],
)
def test_the_least_and_the_most_are_kept(name: str, value: str, text: str) -> None:
    assert stripped_channel(parse_channel(f"aeron:udp?{name}={value}")) == f"aeron:udp?{name}={text}"


@pytest.mark.parametrize(("name", "value"), BAD_VALUES)
def test_a_value_of_another_form_is_refused_with_parameter_and_what_is_allowed(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        stripped_channel(parse_channel(f"aeron:udp?{name}={value}"))
    assert str(refused.value).startswith(f"{name}='{value[:70]}")
    assert " of a channel: must be " in str(refused.value)
    assert len(str(refused.value)) < 250


@pytest.mark.parametrize("size", ["4294967296", "-4294967296", "4294967360", "4194304k"])
def test_a_size_is_never_cut_to_its_lower_bits(size: str) -> None:
    with pytest.raises(ConfigurationError, match="^so-sndbuf="):
        stripped_channel(parse_channel(f"aeron:udp?so-sndbuf={size}"))
    with pytest.raises(ConfigurationError, match="^term-length="):
        response(f"aeron:udp?term-length={size}")


# Hostile texts.


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/etc/passwd",
        "../../dev/shm/x",
        "file:///etc/passwd",
        "aeron:/etc/passwd",
        "aeron:ipc\0",
        "aeron:ipc?alias=a\0b",
        "aeron:ipc?alias=a\nb",
        "aeron:ipc?alias=\x7f",
        "aeron:ipc?alias=größe",
        "aeron:ipc?alias=\ud800",
        "aeron:ipc?alias=" + "x" * 4080,
        "aeron:ipc?" + "a" * 5_000_000,
        b"aeron:ipc?alias=\xff",
        b"aeron:ipc?alias=\0",
        b"",
        None,
        7,
    ],
    ids=lambda text: repr(text)[:40],
)
def test_a_hostile_text_is_refused_in_a_short_line(text: object) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_channel(text)  # type: ignore[arg-type]
    assert len(str(refused.value)) < 250
    assert "\n" not in str(refused.value)
    assert "\0" not in str(refused.value)
    str(refused.value).encode()


def test_the_longest_channel_is_accepted_and_no_derived_one_is_longer() -> None:
    channel = "aeron:udp?alias=" + "x" * 4079
    assert len(channel) == 4095
    assert stripped_channel(parse_channel(channel)) == channel
    for derive in (response, replay, lambda text: subscription_channel(parse_channel(text), is_local=True)):
        with pytest.raises(
            ConfigurationError, match="with the archive's parameters a channel has 4[0-9]{3} characters"
        ):
            derive(channel)


def test_bytes_of_a_message_are_taken_as_text_is() -> None:
    assert stripped_channel(parse_channel(FULL.encode())) == STRIPPED


@given(st.text(max_size=200) | st.binary(max_size=200))
def test_any_text_is_a_channel_or_refused(text: str | bytes) -> None:
    for value in (text, b"aeron:udp?" + text if isinstance(text, bytes) else "aeron:udp?" + text):
        try:
            channel = parse_channel(value)
            stripped = stripped_channel(channel)
        except ConfigurationError:
            continue
        assert stripped.isascii()
        assert stripped_channel(ChannelUri.parse(stripped)) == stripped


# Subscriptions.


@pytest.mark.parametrize(
    ("channel", "is_local", "expected"),
    [
        ("aeron:udp?endpoint=a:1|mtu=1408", True, "aeron-spy:aeron:udp?endpoint=a:1"),
        ("aeron-spy:aeron:udp?endpoint=a:1", True, "aeron-spy:aeron:udp?endpoint=a:1"),
        ("aeron:udp?endpoint=a:1", False, "aeron:udp?endpoint=a:1"),
        ("aeron-spy:aeron:udp?endpoint=a:1", False, "aeron:udp?endpoint=a:1"),
        ("aeron:ipc", True, "aeron:ipc"),
        ("aeron:ipc", False, "aeron:ipc"),
        ("aeron:ipc?alias=udp", True, "aeron:ipc?alias=udp"),
    ],
)
def test_a_local_publication_over_udp_is_spied_on(channel: str, is_local: bool, expected: str) -> None:
    assert subscription_channel(parse_channel(channel), is_local=is_local) == expected


@pytest.mark.parametrize(
    ("channel", "key"),
    [
        ("aeron:ipc", "7:ipc"),
        ("aeron:ipc?alias=x|term-length=64k", "7:ipc"),
        ("aeron-spy:aeron:udp?alias=x", "7:udp"),
        ("aeron:udp?session-id=-5", "7:udp?session-id=-5"),
        (FULL, "7:udp?endpoint=c:3|interface=lo|control=b:2|session-id=-5|tags=68,69"),
        ("aeron:udp?tags=|endpoint=", "7:udp?endpoint=|tags="),
    ],
)
def test_the_key_of_a_subscription_has_what_two_may_not_share(channel: str, key: str) -> None:
    assert subscription_key(7, parse_channel(channel)) == key


# Channels of responses.


def test_a_response_channel_has_the_archives_lengths_where_the_client_gives_none() -> None:
    assert response("aeron:ipc") == "aeron:ipc?mtu=1408|term-length=64k|sparse=true"
    assert (
        response("aeron:udp?endpoint=a:1|session-id=3|alias=me|linger=0|eos=false")
        == "aeron:udp?endpoint=a:1|mtu=1408|term-length=64k|session-id=3|alias=me|sparse=true"
    )


def test_a_response_channel_has_the_clients_lengths() -> None:
    channel = "aeron:ipc?term-length=131072|mtu=8192|sparse=false"
    assert response(channel) == "aeron:ipc?mtu=8k|term-length=128k|sparse=false"
    assert response("aeron:ipc", is_sparse=False, term_length=2**20, mtu_length=2048) == (
        "aeron:ipc?mtu=2k|term-length=1m|sparse=false"
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("mtu=32|term-length=1g", "mtu=32|term-length=1g|sparse=true"),
        ("mtu=65504|term-length=64K", "mtu=65504|term-length=64k|sparse=true"),
    ],
)
def test_the_least_and_the_most_lengths_of_a_response_channel_are_accepted(given: str, expected: str) -> None:
    assert response(f"aeron:ipc?{given}") == f"aeron:ipc?{expected}"


def test_a_response_channel_in_response_mode_has_the_correlation_id_of_the_image() -> None:
    assert response("aeron:udp?control=a:1|control-mode=response") == (
        "aeron:udp?control=a:1|control-mode=response|mtu=1408|term-length=64k|sparse=true|response-correlation-id=77"
    )
    assert "77" not in response("aeron:udp?control=a:1|control-mode=dynamic")


@pytest.mark.parametrize(
    "channel",
    [
        *("aeron:ipc?mtu=1409", "aeron:ipc?mtu=31", "aeron:ipc?mtu=65536", "aeron:ipc?mtu=x", "aeron:ipc?ttl=x"),
        *("aeron:ipc?term-length=32k", "aeron:ipc?term-length=65537", "aeron:ipc?term-length=2g"),
        "aeron:ipc?term-length=",
    ],
)
def test_a_response_channel_with_lengths_that_aeron_has_not_is_refused(channel: str) -> None:
    with pytest.raises(ConfigurationError):
        response(channel)


# Channels of replays.


def test_a_replay_channel_has_the_recordings_position_and_lengths() -> None:
    assert replay("aeron:ipc?mtu=8k|term-length=1g|init-term-id=9|term-id=9|term-offset=0") == (
        "aeron:ipc?mtu=1408|term-length=64k|init-term-id=5|term-id=6|term-offset=96|linger=5s"
    )


def test_what_the_request_says_of_the_publication_is_kept() -> None:
    channel = "aeron:udp?session-id=-3|eos=false|sparse=TRUE|linger=0|alias=catchup|endpoint=a:1|tags=1"
    assert replay(channel) == (
        "aeron:udp?tags=1|endpoint=a:1|mtu=1408|term-length=64k|init-term-id=5|term-id=6|term-offset=96|session-id=-3"
        "|linger=0ns|alias=catchup|sparse=true|eos=false"
    )


def test_a_replay_from_the_beginning_is_in_the_first_term() -> None:
    text = replay("aeron:ipc", position=0, initial_term_id=-7)
    assert text == "aeron:ipc?mtu=1408|term-length=64k|init-term-id=-7|term-id=-7|term-offset=0|linger=5s"


def test_term_ids_wrap_around() -> None:
    text = replay("aeron:ipc", initial_term_id=2**31 - 1, position=2**40)
    assert "|init-term-id=2147483647|term-id=-2130706433|term-offset=0|" in text


@pytest.mark.parametrize(
    ("linger", "text"),
    [
        ("0", "0ns"),
        ("1500", "1500ns"),
        ("5000000000", "5s"),
        ("5s", "5s"),
        ("250MS", "250ms"),
        ("7us", "7us"),
        ("7ns", "7ns"),
        ("9223372036854775807", "9223372036854775807ns"),
        ("+7", "7ns"),
    ],
)
def test_linger_may_be_nanoseconds_or_have_a_unit(linger: str, text: str) -> None:
    assert f"|linger={text}" in replay(f"aeron:ipc?linger={linger}")


@pytest.mark.parametrize("linger", ["", "-1", "5m", "1.5s", "9223372036854775808", "9223372037s", "s"])
def test_linger_of_another_form_is_refused(linger: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^linger=.* of a channel: must be a time"):
        replay(f"aeron:ipc?linger={linger}")


def test_a_replay_for_a_token_has_the_correlation_id_of_its_image() -> None:
    channel = "aeron:udp?control=a:1|control-mode=response|response-correlation-id=5"
    assert replay(channel, image_correlation_id=77).endswith("|response-correlation-id=77")
    assert replay(channel).endswith("|response-correlation-id=5")
    assert "correlation" not in replay("aeron:udp?endpoint=a:1", image_correlation_id=77)


@pytest.mark.parametrize(
    "wrong", [{"position": -32}, {"position": 33}, {"term_length": 65_537}, {"term_length": 0}, {"mtu_length": 0}]
)
def test_a_recording_that_cannot_be_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match=r"^(position|term-length|mtu)="):
        replay("aeron:ipc", **wrong)
