"""The channels of a consensus module, from the templates of the settings: log, ingress, consensus, egress.

Upstream: ConsensusModuleAgent.java (addLogPublication, joinLogAsLeader, connectIngress, refineResponseChannel),
Election.java (addFollowerSubscription), ClusterMember.java.
"""

from __future__ import annotations

import ipaddress

from container.common.channel_uri import ChannelUri
from container.consensus.cluster_member import ClusterMember
from container.consensus.recovery_plan import Log

_CONTROL = "control"
_CONTROL_MODE = "control-mode"
_MANUAL = "manual"


def log_publication_channel(
    template: str,
    *,
    channel_tag: int,
    publication_tag: int,
    append_position: int,
    log: Log | None,
    log_endpoint: str,
    member_count: int,
    is_control_enabled: bool,
) -> str:
    """The channel of a leader's log publication, which continues the log where its recording ends.

    Args:
        template: the setting ``log_channel``.
        channel_tag, publication_tag: by which a spy finds the publication again.
        append_position: where this member's recording of the log ends, in bytes.
        log: that recording; None for the first log of a cluster.
        log_endpoint: this member's, ``host:port``.
        member_count: how many members there are: with one nobody but its own recording need be connected.
        is_control_enabled: whether the control address of the destinations is bound to this member's host.
    """
    uri = ChannelUri.parse(template)
    uri.put("alias", "log")
    uri.put("tags", f"{channel_tag},{publication_tag}")
    if uri.is_udp:
        if is_multi_destination(template):
            uri.put(_CONTROL_MODE, _MANUAL)
            if is_control_enabled:
                uri.put(_CONTROL, with_wildcard_port(log_endpoint))
        uri.put("ssc", "true" if member_count == 1 else "false")
    if log is None:
        for name in ("init-term-id", "term-id", "term-offset"):
            uri.put(name, "0")
    else:
        term_id = log.initial_term_id + append_position // log.term_buffer_length
        uri.put("init-term-id", str(log.initial_term_id))
        uri.put("term-id", str((term_id + 2**31) % 2**32 - 2**31))  # it wraps around, as 32-bit numbers do
        uri.put("term-offset", str(append_position % log.term_buffer_length))
        uri.put("term-length", str(log.term_buffer_length))
        uri.put("mtu", str(log.mtu_length))
    return str(uri)


def is_multi_destination(template: str) -> bool:
    """Whether the log goes to each follower on its own: over UDP, and to no endpoint that all share."""
    uri = ChannelUri.parse(template)
    return uri.is_udp and uri.get("endpoint") is None


def log_recording_channel(template: str, channel_tag: int, session_id: int) -> str:
    """The channel by which the leader's archive records its log publication."""
    media = ChannelUri.parse(template).media
    return f"aeron:{media}?tags={channel_tag}|session-id={session_id}|alias=log"


def local_log_channel(template: str, channel_tag: int, session_id: int) -> str:
    """The channel on which the leader's services read the log: a spy, or the publication itself over IPC."""
    channel = log_recording_channel(template, channel_tag, session_id)
    return channel if ChannelUri.parse(template).is_ipc else f"aeron-spy:{channel}"


def follower_log_channel(template: str, channel_tag: int, subscription_tag: int, session_id: int) -> str:
    """The channel of a follower's subscription to the log: its destinations are added by hand."""
    given = ChannelUri.parse(template)
    uri = ChannelUri("udp", {"tags": f"{channel_tag},{subscription_tag}", _CONTROL_MODE: _MANUAL})
    uri.put("session-id", str(session_id))
    uri.put("group", "true")
    uri.put("rejoin", "false")
    for name in ("so-rcvbuf", "rcv-wnd"):
        value = given.get(name)
        if value is not None:
            uri.put(name, value)
    uri.put("alias", "log-cm")
    return str(uri)


def destination(template: str, endpoint: str) -> str:
    """A destination of the log, as upstream's ``ChannelUri.createDestinationUri``."""
    uri = ChannelUri.parse(template)
    parts = {"endpoint": endpoint}
    interface = uri.get("interface")
    if interface is not None:
        parts["interface"] = interface
    return str(ChannelUri(uri.media, parts))


def consensus_subscription_channel(template: str, consensus_endpoint: str) -> str:
    """Where this member hears the others."""
    uri = ChannelUri.parse(template)
    uri.put_if_absent("endpoint", consensus_endpoint)
    return str(uri)


def consensus_publication_channel(
    template: str, member: ClusterMember, this_member: ClusterMember, *, is_control_enabled: bool
) -> str:
    """Where another member hears this one."""
    uri = ChannelUri.parse(template)
    uri.put("endpoint", member.consensus_endpoint)
    if is_control_enabled:
        uri.put(_CONTROL, with_wildcard_port(this_member.consensus_endpoint))
    return str(uri)


def ingress_subscription_channels(
    template: str, ingress_endpoint: str, *, is_leader: bool, is_ipc_allowed: bool
) -> list[str]:
    """Where clients reach this member: nowhere on a follower whose clients reach all members on one group.

    A leader is reached over IPC as well where that is allowed, but never twice: each message would come twice.
    """
    uri = ChannelUri.parse(template)
    if uri.is_udp:
        uri.put_if_absent("endpoint", ingress_endpoint)
        if not is_leader and is_multicast(uri.get("endpoint")):
            return []
    uri.put("rejoin", "false")
    uri.put("reliable", "true")
    return [str(uri), "aeron:ipc"] if is_leader and is_ipc_allowed and not uri.is_ipc else [str(uri)]


def response_channel(requested: str, template: str | None, *, is_ipc_allowed: bool) -> str:
    """The channel of a client's egress: what it asked for, with what the setting ``egress_channel`` says.

    Raises ConfigurationError when the client asked for no channel.
    """
    if not template:
        return requested
    if requested.startswith("aeron:ipc"):
        return requested if is_ipc_allowed else template
    uri = ChannelUri.parse(requested)
    for name, value in ChannelUri.parse(template).params.items():
        uri.put(name, value)
    return str(uri)


def with_wildcard_port(endpoint: str) -> str:
    """``host:port`` with port 0: any."""
    return f"{endpoint.rpartition(':')[0]}:0"


def is_multicast(endpoint: str | None) -> bool:
    """Whether an endpoint ``host:port`` is a multicast group."""
    host = (endpoint or "").rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_multicast
    except ValueError:
        return False
