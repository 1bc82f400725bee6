"""The channels of a consensus module, made of the templates of its settings."""

from __future__ import annotations

import pytest

from container.common.channel_uri import ChannelUri
from container.consensus import channels
from container.consensus.cluster_member import parse_cluster_members
from container.consensus.recovery_plan import Log
from container.errors import ConfigurationError

LOG = Log(
    recording_id=3,
    leadership_term_id=2,
    term_base_log_position=0,
    log_position=-1,
    start_position=0,
    stop_position=0,
    initial_term_id=2**31 - 2,
    term_buffer_length=65536,
    mtu_length=1408,
    session_id=9,
)


def log_channel(template: str = "aeron:udp?term-length=64m", **values: object) -> dict[str, str]:
    fields: dict[str, object] = {
        "channel_tag": 11,
        "publication_tag": 12,
        "append_position": 0,
        "log": None,
        "log_endpoint": "host0:9030",
        "member_count": 3,
        "is_control_enabled": True,
    }
    channel = channels.log_publication_channel(template, **(fields | values))  # type: ignore[arg-type]
    return ChannelUri.parse(channel).params


def test_the_first_log_begins_at_term_0() -> None:
    assert log_channel() == {
        "term-length": "64m",
        "alias": "log",
        "tags": "11,12",
        "control-mode": "manual",
        "control": "host0:0",
        "ssc": "false",
        "init-term-id": "0",
        "term-id": "0",
        "term-offset": "0",
    }


@pytest.mark.parametrize(
    ("position", "term_id", "offset"),
    [(0, 2**31 - 2, 0), (65536 + 96, 2**31 - 1, 96), (2 * 65536, -(2**31), 0), (3 * 65536 + 32, -(2**31) + 1, 32)],
)
def test_a_log_goes_on_where_its_recording_ends(position: int, term_id: int, offset: int) -> None:
    params = log_channel(append_position=position, log=LOG)
    assert (params["init-term-id"], params["term-id"], params["term-offset"]) == (
        str(2**31 - 2),
        str(term_id),
        str(offset),
    )
    assert (params["term-length"], params["mtu"]) == ("65536", "1408")


def test_only_one_member_alone_needs_nobody_connected() -> None:
    assert log_channel(member_count=1)["ssc"] == "true"


def test_control_of_the_destinations_can_be_left_to_the_driver() -> None:
    assert "control" not in log_channel(is_control_enabled=False)


def test_a_log_with_an_endpoint_is_one_group_for_all() -> None:
    params = log_channel("aeron:udp?endpoint=224.20.30.39:24326")
    assert "control-mode" not in params
    assert not channels.is_multi_destination("aeron:udp?endpoint=224.20.30.39:24326")
    assert channels.is_multi_destination("aeron:udp?term-length=64m")
    assert not channels.is_multi_destination("aeron:ipc")


def test_a_log_over_ipc_has_neither_destinations_nor_spies() -> None:
    assert set(log_channel("aeron:ipc")) == {"alias", "tags", "init-term-id", "term-id", "term-offset"}


def test_services_spy_on_the_log_or_read_it_over_ipc() -> None:
    assert channels.local_log_channel("aeron:udp", 11, -5) == "aeron-spy:aeron:udp?tags=11|session-id=-5|alias=log"
    assert channels.local_log_channel("aeron:ipc", 11, -5) == "aeron:ipc?tags=11|session-id=-5|alias=log"
    assert channels.log_recording_channel("aeron:udp", 11, -5) == "aeron:udp?tags=11|session-id=-5|alias=log"


def test_a_follower_adds_destinations_by_hand() -> None:
    assert channels.follower_log_channel("aeron:udp?term-length=64m|rcv-wnd=4m", 1, 2, 7) == (
        "aeron:udp?tags=1,2|control-mode=manual|session-id=7|group=true|rejoin=false|rcv-wnd=4m|alias=log-cm"
    )
    assert channels.destination("aeron:udp?term-length=64m", "host1:9040") == "aeron:udp?endpoint=host1:9040"
    assert channels.destination("aeron:udp?interface=lo", "host1:9040") == "aeron:udp?endpoint=host1:9040|interface=lo"


def test_members_hear_each_other_on_their_consensus_endpoints() -> None:
    this, other = parse_cluster_members("0,a:1,a:2,a:3,a:4,a:5|1,b:1,b:2,b:3,b:4,b:5")
    assert channels.consensus_subscription_channel("aeron:udp", "a:2") == "aeron:udp?endpoint=a:2"
    assert channels.consensus_subscription_channel("aeron:udp?endpoint=x:9", "a:2") == "aeron:udp?endpoint=x:9"
    assert channels.consensus_publication_channel("aeron:udp", other, this, is_control_enabled=True) == (
        "aeron:udp?endpoint=b:2|control=a:0"
    )
    assert channels.consensus_publication_channel("aeron:udp", other, this, is_control_enabled=False) == (
        "aeron:udp?endpoint=b:2"
    )


@pytest.mark.parametrize("is_leader", [True, False])
def test_ingress_of_a_group_is_the_leader_s_alone(is_leader: bool) -> None:
    group = "aeron:udp?endpoint=224.20.30.39:24326"
    assert ingress(group, is_leader=is_leader) == ([f"{group}|rejoin=false|reliable=true"] if is_leader else [])
    assert ingress("aeron:udp", is_leader=is_leader) == ["aeron:udp?endpoint=a:1|rejoin=false|reliable=true"]


GROUP = "aeron:udp?endpoint=224.20.30.39:24326"


@pytest.mark.parametrize(
    ("text", "log_channel", "complaint"),
    [
        ("0,a:1,a:2,a:3,a:3,a:5|1,b:1,b:2,b:3,b:4,b:5", "aeron:udp", "is the catchup endpoint of member 0 and the log"),
        (
            "0,a:1,a:2,a:3,a:4,a:5|1,a:6,a:7,a:3,a:9,a:10",
            "aeron:udp",
            "the log endpoint of member 1 and the log endpoint",
        ),
        ("0,a:1,a:2,a:1,a:4,a:5|1,b:1,b:2,b:3,b:4,b:5", "aeron:udp", "is the ingress endpoint of member 0 and the log"),
        (
            "0,a:1,a:2,a:3,a:4,a:5|1,b:1,b:2,b:0,b:4,b:5",
            "aeron:udp",
            "cannot send to the log endpoint 'b:0' of member 1",
        ),
        (
            "0,a:1,a:0,a:3,a:4,a:5|1,b:1,b:2,b:3,b:4,b:5",
            GROUP,
            "cannot send to the consensus endpoint 'a:0' of member 0",
        ),
    ],
)
def test_members_that_could_not_hear_each_other_are_refused(text: str, log_channel: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        channels.check_endpoints(parse_cluster_members(text), log_channel)


@pytest.mark.parametrize(
    ("text", "log_channel"),
    [
        ("0,a:1,a:1,a:3,a:0,a:5|1,b:1,b:1,b:3,b:0,b:5", "aeron:udp"),
        ("0,a:1,a:2,a:0,a:0,a:5|1,a:6,a:7,a:0,a:0,a:10", GROUP),
    ],
)
def test_any_port_and_ports_that_streams_may_share_are_taken(text: str, log_channel: str) -> None:
    channels.check_endpoints(parse_cluster_members(text), log_channel)


@pytest.mark.parametrize("is_leader", [True, False])
def test_ipc_ingress_is_the_leader_s_and_never_there_twice(is_leader: bool) -> None:
    network = "aeron:udp?endpoint=a:1|rejoin=false|reliable=true"
    assert ingress("aeron:udp", is_leader=is_leader, is_ipc_allowed=True) == (
        [network, "aeron:ipc"] if is_leader else [network]
    )
    for is_ipc_allowed in (True, False):
        assert ingress("aeron:ipc?term-length=64k", is_leader=is_leader, is_ipc_allowed=is_ipc_allowed) == [
            "aeron:ipc?term-length=64k|rejoin=false|reliable=true"
        ]


def ingress(template: str, *, is_leader: bool, is_ipc_allowed: bool = False) -> list[str]:
    """Where the clients of member a:1 reach it."""
    return channels.ingress_subscription_channels(template, "a:1", is_leader=is_leader, is_ipc_allowed=is_ipc_allowed)


OWN = ("node0:9010", "10.0.0.5:9020", "[2001:db8::5]:9030", "0.0.0.0:9040", "node0:0", "239.20.30.39:9050")
OWN_STREAMS = (100, 101, 104, 105)


def egress(
    wanted: str, template: str | None = None, *, stream_id: int = 102, is_ipc_allowed: bool = True, most: int = 1024**2
) -> str:
    """The egress channel of a client of the members in OWN."""
    made = channels.EgressChannels(
        template, is_ipc_allowed=is_ipc_allowed, term_length_max=most, own_endpoints=OWN, own_streams=OWN_STREAMS
    )
    return made.channel(wanted, stream_id)


def test_egress_is_what_the_client_asks_for_but_for_what_the_setting_says() -> None:
    wanted = "aeron:udp?endpoint=client:5000|mtu=8k"
    assert egress(wanted) == wanted
    assert egress(wanted, "aeron:udp?mtu=4k|term-length=64m") == (
        "aeron:udp?endpoint=client:5000|mtu=4k|term-length=64m"
    )
    assert egress("aeron:udp?mtu=8k", "aeron:udp?endpoint=client:1") == "aeron:udp?mtu=8k|endpoint=client:1"
    assert egress("aeron:ipc", "aeron:udp?endpoint=client:1") == "aeron:ipc"
    assert egress("aeron:ipc", "aeron:udp?endpoint=client:1", is_ipc_allowed=False) == "aeron:udp?endpoint=client:1"
    # As upstream, which takes any channel where there is no template.
    assert egress("aeron:ipc", is_ipc_allowed=False) == "aeron:ipc"


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("64k", "64k"),
        ("1m", "1m"),
        ("1048576", "1048576"),
        ("2m", "1m"),
        ("512M", "1m"),
        ("1g", "1m"),
        ("9" * 40, "1m"),
    ],
)
@pytest.mark.parametrize("channel", ["aeron:ipc?", "aeron:udp?endpoint=client:5000|"])
def test_a_client_s_term_is_as_long_as_it_asks_for_and_no_longer_than_the_setting_says(
    channel: str, given: str, taken: str
) -> None:
    assert egress(f"{channel}term-length={given}") == f"{channel}term-length={taken}"
    assert egress(f"{channel}term-length=64m", most=64 * 1024**2) == f"{channel}term-length=64m"


@pytest.mark.parametrize("text", ["", "many", "-1", "1.5m", "1t"])
def test_a_term_length_that_is_none_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"term-length='{text}' of an egress channel must be a size"):
        egress(f"aeron:ipc?term-length={text}")


def test_what_no_egress_needs_is_left_out_of_a_client_s_channel() -> None:
    kept = "endpoint=239.1.1.1:1|interface=lo|ttl=4|mtu=8k|session-id=7|alias=a|fc=max|gtag=3|group=true|rejoin=false"
    assert egress(f"aeron:udp?{kept}") == f"aeron:udp?{kept}"
    left_out = (
        "tags=1,2|control=node0:9030|control-mode=dynamic|linger=1h|sparse=false|pub-wnd=1g|so-sndbuf=1g|so-rcvbuf=1g|"
        "init-term-id=1|term-id=1|term-offset=0|ssc=true|eos=false|x=y|untethered-linger-timeout=1h|stream-id=100"
    )
    assert egress(f"aeron:udp?{left_out}|endpoint=client:1") == "aeron:udp?endpoint=client:1"
    assert egress(f"aeron:ipc?{left_out}") == "aeron:ipc"


@pytest.mark.parametrize(
    "endpoint",
    [
        *("node0:9010", "NODE0:9010", "other-name-of-node0:9010", "10.0.0.5:9010", "localhost:9010"),
        *("10.0.0.5:9020", "0.0.0.0:9020", "127.0.0.1:9020", "[::ffff:10.0.0.5]:9020", "167772165:9020", "10.5:09020"),
        *("[2001:db8::5]:9030", "[2001:DB8:0:0::5]:9030", "[::]:9030"),
        *("10.0.0.5:9040", "192.168.1.1:9040", "239.20.30.39:9050"),
    ],
)
def test_egress_to_one_of_the_cluster_s_own_endpoints_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigurationError, match="is, or may be, an endpoint of the cluster's own: use another port"):
        egress(f"aeron:udp?endpoint={endpoint}")


@pytest.mark.parametrize(
    "endpoint", ["node0:9011", "node0:5000", "10.0.0.6:9020", "[2001:db8::6]:9030", "239.20.30.40:9050", "node0:0"]
)
def test_egress_to_any_other_endpoint_is_taken(endpoint: str) -> None:
    assert egress(f"aeron:udp?endpoint={endpoint}") == f"aeron:udp?endpoint={endpoint}"


@pytest.mark.parametrize("stream_id", OWN_STREAMS)
def test_egress_on_one_of_the_cluster_s_own_streams_in_shared_memory_is_refused(stream_id: int) -> None:
    with pytest.raises(ConfigurationError, match=f"stream {stream_id} of aeron:ipc is the cluster's own: use another"):
        egress("aeron:ipc", stream_id=stream_id)
    assert egress("aeron:udp?endpoint=client:1", stream_id=stream_id) == "aeron:udp?endpoint=client:1"


@pytest.mark.parametrize(
    ("channel", "message"),
    [
        ("", "must begin with 'aeron:'"),
        ("aeron-spy:aeron:udp?endpoint=client:1", "must not be a spy"),
        ("aeron:udp", "must have an endpoint: aeron:udp"),
        ("aeron:udp?tags=1,2", "must have an endpoint: aeron:udp"),
        ("aeron:tcp?endpoint=client:1", "media must be one of"),
    ],
)
def test_what_is_no_egress_channel_is_refused(channel: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        egress(channel)


@pytest.mark.parametrize(
    ("endpoint", "is_multicast"),
    [("224.20.30.39:1", True), ("[ff02::1]:1", True), ("10.0.0.1:1", False), ("localhost:1", False), (None, False)],
)
def test_a_group_is_known_by_its_address(endpoint: str | None, is_multicast: bool) -> None:
    assert channels.is_multicast(endpoint) is is_multicast
