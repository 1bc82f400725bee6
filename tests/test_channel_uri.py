"""Channel URIs: what is accepted, what is refused by name, and that edits keep everything else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from container.common.channel_uri import ChannelUri, add_alias_if_absent, add_session_id, replace_alias
from container.common.values import shown
from container.errors import ConfigurationError

SPY_LOG = "aeron-spy:aeron:udp?tags=7|session-id=-25|alias=log"


def test_parts_of_a_channel_are_found() -> None:
    uri = ChannelUri.parse(SPY_LOG)
    assert (uri.prefix, uri.media) == ("aeron-spy", "udp")
    assert uri.params == {"tags": "7", "session-id": "-25", "alias": "log"}
    assert uri.is_udp
    assert not uri.is_ipc
    assert uri.get("tags") == "7"
    assert uri.get("mtu") is None
    assert uri.get("mtu", "1408") == "1408"


@pytest.mark.parametrize(
    "text",
    [
        "aeron:ipc",
        "aeron-spy:aeron:ipc",
        SPY_LOG,
        "aeron:udp?endpoint=[::1]:40123|interface=[::1]/64",
        "aeron:udp?control-mode=manual|tags=1,2|alias=",
        "aeron:udp?a=b=c",
    ],
)
def test_a_parsed_channel_is_written_as_it_was(text: str) -> None:
    assert str(ChannelUri.parse(text)) == text
    assert repr(ChannelUri.parse(text)) == f"ChannelUri.parse({text!r})"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "begin with 'aeron:'"),
        ("udp://localhost:40123", "begin with 'aeron:'"),
        ("aeron-spy:udp", "begin with 'aeron:'"),
        ("aeron:", "media"),
        ("aeron:tcp?endpoint=a:1", "media"),
        ("aeron:ipc|alias=x", "media"),
        ("aeron:ipc?", "key=value"),
        ("aeron:ipc?alias", "key=value"),
        ("aeron:ipc?=x", "key=value"),
        ("aeron:ipc?alias=x|", "key=value"),
        ("aeron:ipc?alias=" + "x" * 4096, "4095 characters"),
    ],
)
def test_text_that_is_no_channel_is_refused_by_name(text: str, reason: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        ChannelUri.parse(text)
    assert reason in str(refused.value)
    assert shown(text) in str(refused.value)


def test_the_last_of_two_equal_parameters_counts() -> None:
    assert str(ChannelUri.parse("aeron:ipc?alias=a|mtu=1408|alias=b")) == "aeron:ipc?alias=b|mtu=1408"


def test_alias_is_replaced_in_place_and_all_else_is_kept() -> None:
    assert replace_alias(SPY_LOG, "log-sc-0") == "aeron-spy:aeron:udp?tags=7|session-id=-25|alias=log-sc-0"
    assert replace_alias("aeron:ipc?session-id=3", "log-sc-1") == "aeron:ipc?session-id=3|alias=log-sc-1"
    assert replace_alias("aeron:ipc", "log-sc-1") == "aeron:ipc?alias=log-sc-1"
    assert replace_alias("aeron:ipc?alias=log", "") == "aeron:ipc"


def test_session_id_is_added_or_replaced() -> None:
    assert add_session_id("aeron:ipc", -7) == "aeron:ipc?session-id=-7"
    assert add_session_id("aeron:ipc?session-id=1|alias=a", 2) == "aeron:ipc?session-id=2|alias=a"


def test_alias_is_added_only_where_there_is_none() -> None:
    assert add_alias_if_absent("aeron:ipc?alias=mine", "other") == "aeron:ipc?alias=mine"
    assert add_alias_if_absent("aeron:ipc?mtu=1408", "other") == "aeron:ipc?mtu=1408|alias=other"


@pytest.mark.parametrize(
    ("channel", "resolved", "expected"),
    [
        ("aeron:udp?endpoint=localhost:0", "127.0.0.1:40123", "aeron:udp?endpoint=localhost:40123"),
        ("aeron:udp?endpoint=localhost:5", "127.0.0.1:40123", "aeron:udp?endpoint=localhost:5"),
        ("aeron:udp", "[::1]:40123", "aeron:udp?endpoint=[::1]:40123"),
    ],
)
def test_wildcard_port_becomes_the_bound_one(channel: str, resolved: str, expected: str) -> None:
    uri = ChannelUri.parse(channel)
    uri.replace_wildcard_port(resolved)
    assert str(uri) == expected


@pytest.mark.parametrize("resolved", ["", "localhost", "localhost:0", "localhost:http"])
def test_an_endpoint_without_a_port_cannot_resolve_a_wildcard(resolved: str) -> None:
    with pytest.raises(ConfigurationError, match="not a bound endpoint"):
        ChannelUri.parse("aeron:udp?endpoint=localhost:0").replace_wildcard_port(resolved)


def test_channels_are_equal_whatever_the_order_of_their_parameters() -> None:
    assert ChannelUri.parse("aeron:ipc?a=1|b=2") == ChannelUri.parse("aeron:ipc?b=2|a=1")
    assert ChannelUri.parse("aeron:ipc?a=1") != ChannelUri.parse("aeron-spy:aeron:ipc?a=1")
    assert ChannelUri.parse("aeron:ipc") != "aeron:ipc"
    edited = ChannelUri.parse("aeron:ipc?a=1")
    edited.remove("a")
    edited.remove("a")
    assert edited == ChannelUri("ipc")


TOKEN = st.text(st.characters(exclude_characters="|="), min_size=1, max_size=8)


@given(
    st.sampled_from(["", "aeron-spy"]),
    st.sampled_from(["udp", "ipc"]),
    st.dictionaries(TOKEN, TOKEN, max_size=5),
)
def test_any_channel_survives_writing_and_parsing(prefix: str, media: str, params: dict[str, str]) -> None:
    uri = ChannelUri(media, params, prefix=prefix)
    parsed = ChannelUri.parse(str(uri))
    assert parsed == uri
    assert list(parsed.params) == list(params)


@given(st.text(max_size=40), st.sampled_from(["", "aeron:", "aeron:ipc?", "aeron-spy:aeron:udp?"]))
def test_random_text_parses_or_is_refused(text: str, start: str) -> None:
    try:
        uri = ChannelUri.parse(start + text)
    except ConfigurationError:
        return
    assert ChannelUri.parse(str(uri)) == uri
