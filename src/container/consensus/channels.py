"""The channels of a consensus module, from the templates of the settings: log, ingress, consensus, egress.

Upstream: ConsensusModuleAgent.java (addLogPublication, joinLogAsLeader, connectIngress, refineResponseChannel),
Election.java (addFollowerSubscription), ClusterMember.java.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Sequence

from container.common.aeron_defaults import (
    ARCHIVE_CONTROL_STREAM_ID,
    ARCHIVE_RECORDING_EVENTS_STREAM_ID,
    SERVICE_SNAPSHOT_STREAM_ID,
)
from container.common.channel_uri import ChannelUri, initial_position
from container.common.quantities import SIZE_FACTORS, format_size
from container.common.values import shown, whole_number
from container.consensus.cluster_member import ClusterMember
from container.consensus.recovery_plan import Log
from container.errors import ConfigurationError
from container.settings.consensus_module_table import ConsensusModuleSettings
from container.transport.idle_strategy import parse_quantity

_CONTROL = "control"
_CONTROL_MODE = "control-mode"
_MANUAL = "manual"

# Left out are those by which a client could take more than its own: `tags` and `control` (ports and streams of others),
# `linger`, `sparse`, `pub-wnd` and sizes of sockets (memory, and for how long), positions, and `ssc`.
_EGRESS_PARAMETERS = frozenset(
    ("endpoint", "interface", "ttl", "mtu", "term-length", "session-id", "alias", "fc", "gtag", "group", "rejoin")
)


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
        uri.params |= initial_position(append_position, log.initial_term_id, log.term_buffer_length)
        uri.put("term-length", str(log.term_buffer_length))
        uri.put("mtu", str(log.mtu_length))
    return str(uri)


def term_length(channel: str) -> int:
    """The term length that a channel names, in bytes; 0 where it names none."""
    length = ChannelUri.parse(channel).get("term-length")
    return 0 if length is None else parse_quantity(length, SIZE_FACTORS) or 0


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


def replication_channels(template: str, response_endpoint: str | None) -> tuple[str, str]:
    """Where the leader's archive replays its log to this member's, and where it answers that, "" for anywhere.

    Args:
        template: of the first.
        response_endpoint: of the leader's archive, where that opens all connections itself.
    """
    if response_endpoint is None:
        return template, ""
    uri = ChannelUri.parse(template)
    uri.remove("endpoint")
    uri.put("control", response_endpoint)
    uri.put("control-mode", "response")
    return str(uri), str(uri)


def log_replay_channel(template: str) -> str:
    """Where a member's archive replays its own log: services read what came of it, where that is stopped early."""
    uri = ChannelUri.parse(template)
    uri.put("eos", "false")
    return str(uri)


def catchup_channel(template: str, endpoint: str, session_id: int, follower_id: int) -> str:
    """Where a leader's archive replays the log to a follower: as a part of the log's own stream."""
    uri = ChannelUri.parse(template)
    uri.put("endpoint", endpoint)
    uri.put("session-id", str(session_id))
    uri.put("linger", "0")
    uri.put("eos", "false")
    uri.put("alias", f"catchup-followerId-{follower_id}")
    return str(uri)


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


class EgressChannels:
    """The channels of clients' egress, and of answers to backups, made of those that they ask for.

    Anyone who reaches the ingress chooses a text that this member's driver takes. Its memory and its destination are
    bounded here, before anybody is authenticated. Nothing is looked up: a name service would hold up all.

    Args:
        template: the setting ``egress_channel``, whose parameters count, whatever was asked for.
        is_ipc_allowed: the setting ``is_ipc_ingress_allowed``.
        term_length_max: the setting ``egress_term_length_max``, in bytes.
        own_endpoints: where the cluster's own members listen, each ``host:port``; an answer to one of them would be
            read as a request.
        own_streams: the stream ids of the cluster and its archives in shared memory.
    """

    def __init__(
        self,
        template: str | None,
        *,
        is_ipc_allowed: bool,
        term_length_max: int,
        own_endpoints: Iterable[str],
        own_streams: Iterable[int],
    ) -> None:
        self._template = ChannelUri.parse(template) if template else None
        self._is_ipc_allowed = is_ipc_allowed
        self._term_length_max = term_length_max
        self._own_hosts: dict[str, set[str]] = {}
        for endpoint in own_endpoints:
            host, port = _host_and_port(endpoint)
            if port != "0":
                self._own_hosts.setdefault(port, set()).add(host)
        self._own_streams = frozenset(own_streams)

    def channel(self, requested: str, stream_id: int) -> str:
        """The channel on which a client is answered on a stream.

        A longer term than allowed is made as long as allowed, and what no egress needs is left out. Raises
        ConfigurationError for what is not a channel, or is one of the cluster's own.
        """
        uri = ChannelUri.parse(requested)
        if uri.prefix:
            raise ConfigurationError(f"an egress channel must not be a spy: {shown(requested)}")
        for name in [each for each in uri.params if each not in _EGRESS_PARAMETERS]:
            uri.remove(name)
        length = uri.get("term-length")
        if length is not None:
            size = parse_quantity(length, SIZE_FACTORS)
            if size is None:
                raise ConfigurationError(f"term-length={shown(length)} of an egress channel must be a size such as 64k")
            if size > self._term_length_max:
                uri.put("term-length", format_size(self._term_length_max))
        if self._template is not None:
            if uri.is_udp:
                uri.params.update(self._template.params)
            elif not self._is_ipc_allowed:
                uri = self._template
        self._refuse_own(uri, stream_id)
        return str(uri)

    def _refuse_own(self, uri: ChannelUri, stream_id: int) -> None:
        if uri.is_ipc:
            if stream_id in self._own_streams:
                raise ConfigurationError(
                    f"stream {stream_id} of {uri} is the cluster's own: use another one for egress, such as 102"
                )
            return
        endpoint = uri.get("endpoint")
        if endpoint is None:
            raise ConfigurationError(f"an egress channel must have an endpoint: {uri}")
        host, port = _host_and_port(endpoint)
        if any(_may_be_same(host, own) for own in self._own_hosts.get(port, ())):
            raise ConfigurationError(
                f"{uri} is, or may be, an endpoint of the cluster's own: use another port for egress, or the address "
                "of the client's host in place of its name"
            )


def egress_channels(settings: ConsensusModuleSettings, members: Sequence[ClusterMember]) -> EgressChannels:
    """Those of a member: neither where members and archives listen nor what the settings name is given to a client."""
    return EgressChannels(
        settings.egress_channel,
        is_ipc_allowed=settings.is_ipc_ingress_allowed,
        term_length_max=settings.egress_term_length_max,
        own_endpoints=_own_endpoints(settings, members),
        own_streams=(
            settings.ingress_stream_id,
            settings.log_stream_id,
            settings.service_stream_id,
            settings.consensus_module_stream_id,
            settings.consensus_stream_id,
            settings.replay_stream_id,
            settings.snapshot_stream_id,
            settings.archive_control_stream_id,
            ARCHIVE_CONTROL_STREAM_ID,
            ARCHIVE_RECORDING_EVENTS_STREAM_ID,
            SERVICE_SNAPSHOT_STREAM_ID,
        ),
    )


def _own_endpoints(settings: ConsensusModuleSettings, members: Sequence[ClusterMember]) -> Iterator[str]:
    for member in members:
        for endpoint in (
            member.ingress_endpoint,
            member.consensus_endpoint,
            member.log_endpoint,
            member.catchup_endpoint,
            member.archive_endpoint,
            member.archive_response_endpoint,
            member.egress_response_endpoint,
        ):
            if endpoint:
                yield endpoint
    for channel in (
        settings.ingress_channel,
        settings.consensus_channel,
        settings.log_channel,
        settings.replication_channel,
    ):
        uri = ChannelUri.parse(str(channel))
        for name in ("endpoint", "control"):
            endpoint = uri.get(name)
            if endpoint:
                yield endpoint


def check_endpoints(members: Sequence[ClusterMember], log_channel: str) -> None:
    """Refuse endpoints of several members by which one cannot hear or record: ConfigurationError.

    Each port of a log or a catch-up is opened for that alone: a catch-up that ends would take the live log with it.
    """
    used: dict[tuple[str, str], str] = {}
    for member in members:
        wanted = {"consensus": member.consensus_endpoint}
        if is_multi_destination(log_channel):
            wanted["log"] = member.log_endpoint
        for name, endpoint in wanted.items():
            if not is_destination(endpoint):
                raise ConfigurationError(
                    f"cluster_members: the others cannot send to the {name} endpoint {shown(endpoint)} of member "
                    f"{member.id}: it takes host:port"
                )
        for name, endpoint in (
            ("log", member.log_endpoint),
            ("catchup", member.catchup_endpoint),
            ("ingress", member.ingress_endpoint),
            ("consensus", member.consensus_endpoint),
            ("archive", member.archive_endpoint),
        ):
            place, what = _host_and_port(endpoint), f"{name} endpoint of member {member.id}"
            former = used.setdefault(place, what)
            is_alone = what.startswith(("log", "catchup")) or former.startswith(("log", "catchup"))
            if former != what and is_alone and place[1] != "0":
                raise ConfigurationError(
                    f"cluster_members: {shown(endpoint)} is the {what} and the {former}: give each log and each "
                    "catch-up a port of its own"
                )


def _host_and_port(endpoint: str) -> tuple[str, str]:
    """Host and port as texts that can be compared; addresses are written in one way."""
    host, _colon, port = endpoint.rpartition(":")
    host = host.strip("[]").lower()
    number = whole_number(port)
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host, str(number)
    return str(getattr(address, "ipv4_mapped", None) or address), str(number)


def _may_be_same(host: str, own: str) -> bool:
    """Whether a host may be our own. Two different addresses are not, unless one stands for any address."""
    try:
        addresses = ipaddress.ip_address(host), ipaddress.ip_address(own)
    except ValueError:
        return True  # a name can stand for any
    return host == own or any(each.is_unspecified or each.is_loopback for each in addresses)


def is_destination(endpoint: str) -> bool:
    """Whether an endpoint ``host:port``, as it may stand in a channel, can be sent to: port 0 stands for any."""
    host, _colon, port = endpoint.rpartition(":")
    number = whole_number(port)
    return bool(host) and number is not None and 0 < number < 1 << 16 and "|" not in host


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
