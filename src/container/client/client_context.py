"""The settings of a client of the cluster, with upstream's defaults."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self

from container.channel_uri import ENDPOINT, ChannelUri
from container.client.egress_handler import EgressHandler, check_listener
from container.client.egress_listener import EgressListener
from container.errors import ClusterError, ConfigurationError, ContainerError
from container.idle_strategy import BackoffIdleStrategy, IdleStrategy, parse_duration_ns, parse_idle_strategy
from container.settings import MAX_CLIENT_NAME_LENGTH

if TYPE_CHECKING:
    from container.transport import Client

NS_PER_S = 1_000_000_000


class CredentialsSupplier(Protocol):
    """Proves who the client is, when the cluster has an authenticator."""

    def encoded_credentials(self) -> bytes:
        """The credentials for a connect request; called again for the request that follows a redirect."""

    def on_challenge(self, encoded_challenge: bytes) -> bytes:
        """The answer to a challenge; may be asked several times."""


class NullCredentialsSupplier:
    """Empty credentials, for clusters that ask for none."""

    def encoded_credentials(self) -> bytes:
        return b""

    def on_challenge(self, encoded_challenge: bytes) -> bytes:
        return b""


def _client_idle_strategy() -> IdleStrategy:
    return BackoffIdleStrategy(1, 10, 1_000, 1_000)


@dataclass(frozen=True, kw_only=True)
class ClientContext:
    """How to reach a cluster (upstream's ``AeronCluster.Context``); checked when it is made.

    :meth:`from_environment` fills in what environment variables say, which have the names of Aeron's properties.

    ======================== ================= ===========================================================
    setting                  default           meaning
    ======================== ================= ===========================================================
    ``ingress_channel``      required          where members listen; with endpoints, a template for each
    ``ingress_stream_id``    101
    ``ingress_endpoints``    None              ``"0=host:port,1=host:port"``; None for IPC and multicast
    ``egress_channel``       required          where this client hears answers; port 0 takes a free one
    ``egress_stream_id``     102
    ``message_timeout``      5.0               seconds: limit of a connect, a send, reaching a new leader
    ``new_leader_timeout``   None              seconds without a leader until the client is closed; None:
                                               twice the leader's heartbeat timeout
    ``keep_alive_interval``  1.0               seconds without a send until a poll sends a keep alive;
                                               0 for never (upstream never does)
    ``client_name``          ``""``            at most 100 characters; shown by cluster and driver
    ``is_ingress_exclusive`` True              whether ingress publications are exclusive
    ``listener``             refuses messages  an :class:`EgressListener`, or an ``EgressHandler`` in Cython
    ``idle_strategy``        backoff           how to wait; by default ``backoff(1,10,1us,1us)``
    ``credentials_supplier`` empty credentials a :class:`CredentialsSupplier`
    ``agent_invoker``        None              called while a connect or a send waits, and by each poll;
                                               returns the work done
    ``error_handler``        None              given each error of the conductor of a client of its own
    ``client``               None              the transport's client to share; None: one of its own
    ``owns_client``          False             whether a shared ``client`` is closed with the session
    ``driver_timeout``       10.0              seconds that one of its own waits for the driver
    ``aeron_dir``            None              driver's directory for one of its own; None: Aeron's default
    ======================== ================= ===========================================================
    """

    ingress_channel: str = ""
    ingress_stream_id: int = 101
    ingress_endpoints: str | None = None
    egress_channel: str = ""
    egress_stream_id: int = 102
    message_timeout: float = 5.0
    new_leader_timeout: float | None = None
    keep_alive_interval: float = 1.0
    client_name: str = ""
    is_ingress_exclusive: bool = True
    listener: EgressListener | EgressHandler = field(default_factory=EgressListener)
    idle_strategy: IdleStrategy = field(default_factory=_client_idle_strategy)
    credentials_supplier: CredentialsSupplier = field(default_factory=NullCredentialsSupplier)
    agent_invoker: Callable[[], int | None] | None = None
    error_handler: Callable[[ContainerError], object] | None = None
    client: Client | None = None
    owns_client: bool = False
    driver_timeout: float = 10.0
    aeron_dir: str | None = None

    def __post_init__(self) -> None:
        for name in ("ingress_channel", "egress_channel"):
            if not getattr(self, name):
                raise ConfigurationError(f"{name} must be set, such as 'aeron:udp?endpoint=localhost:0'")
            ChannelUri.parse(getattr(self, name))
        if self.ingress_endpoints is not None:
            if ChannelUri.parse(self.ingress_channel).is_ipc:
                raise ConfigurationError(
                    f"ingress_endpoints must be None for an IPC ingress_channel: {self.ingress_endpoints!r}"
                )
            parse_ingress_endpoints(self.ingress_endpoints)
        if len(self.client_name) > MAX_CLIENT_NAME_LENGTH:
            raise ConfigurationError(
                f"client_name may have {MAX_CLIENT_NAME_LENGTH} characters, not {len(self.client_name)}: "
                f"{self.client_name!r}"
            )
        for name in ("message_timeout", "driver_timeout"):
            if not getattr(self, name) > 0:
                raise ConfigurationError(f"{name} must be more than 0 s, not {getattr(self, name)}")
        if self.new_leader_timeout is not None and not self.new_leader_timeout > 0:
            raise ConfigurationError(f"new_leader_timeout must be None or more than 0 s, not {self.new_leader_timeout}")
        if not self.keep_alive_interval >= 0:
            raise ConfigurationError(f"keep_alive_interval must be 0 or more s, not {self.keep_alive_interval}")
        check_listener(self.listener)
        for name in ("encoded_credentials", "on_challenge"):
            if not callable(getattr(self.credentials_supplier, name, None)):
                raise ConfigurationError(f"credentials_supplier must have {name}(): {self.credentials_supplier!r}")
        for name in ("agent_invoker", "error_handler"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise ConfigurationError(f"{name} must be callable or None, not {getattr(self, name)!r}")

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None, **settings: Any) -> Self:
        """A context of ``settings``, then of the environment (the process's by default), then of the defaults.

        The variables are upstream's properties in capitals with ``_`` for ``.``: AERON_CLUSTER_INGRESS_CHANNEL,
        AERON_CLUSTER_INGRESS_ENDPOINTS, AERON_CLUSTER_INGRESS_STREAM_ID, AERON_CLUSTER_EGRESS_CHANNEL,
        AERON_CLUSTER_EGRESS_STREAM_ID, AERON_CLUSTER_MESSAGE_TIMEOUT, AERON_CLUSTER_CLIENT_NAME,
        AERON_CLUSTER_IDLE_STRATEGY, AERON_DRIVER_TIMEOUT (milliseconds) and AERON_DIR. Other durations are nanoseconds,
        or have a unit, as ``5s``. A variable that is empty counts as not set. Raises ConfigurationError, which names
        the variable.
        """
        environ = os.environ if environ is None else environ
        values: dict[str, Any] = {}
        for name, (variable, parse) in _VARIABLES.items():
            if name not in settings and environ.get(variable):
                try:
                    values[name] = parse(environ[variable])
                except ValueError as error:
                    raise ConfigurationError(f"{variable}={environ[variable]!r}: {error}") from None
        return cls(**values, **settings)

    @property
    def message_timeout_ns(self) -> int:
        """``message_timeout`` in nanoseconds."""
        return int(self.message_timeout * NS_PER_S)

    @property
    def keep_alive_interval_ns(self) -> int:
        """``keep_alive_interval`` in nanoseconds."""
        return int(self.keep_alive_interval * NS_PER_S)

    def egress_subscription_channel(self) -> str:
        """The egress channel with ``rejoin=false`` if it is UDP: a lost image ends the session's stream."""
        uri = ChannelUri.parse(self.egress_channel)
        if uri.is_udp:
            uri.put("rejoin", "false")
        return str(uri)

    def member_ingress_channel(self, endpoint: str) -> str:
        """The ingress channel of the member that listens on ``endpoint``."""
        uri = ChannelUri.parse(self.ingress_channel)
        if uri.is_udp:
            uri.put(ENDPOINT, endpoint)
        return str(uri)


def _parse_duration(text: str) -> float:
    return parse_duration_ns(text) / NS_PER_S


_VARIABLES: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "ingress_channel": ("AERON_CLUSTER_INGRESS_CHANNEL", str),
    "ingress_stream_id": ("AERON_CLUSTER_INGRESS_STREAM_ID", int),
    "ingress_endpoints": ("AERON_CLUSTER_INGRESS_ENDPOINTS", str),
    "egress_channel": ("AERON_CLUSTER_EGRESS_CHANNEL", str),
    "egress_stream_id": ("AERON_CLUSTER_EGRESS_STREAM_ID", int),
    "message_timeout": ("AERON_CLUSTER_MESSAGE_TIMEOUT", _parse_duration),
    "client_name": ("AERON_CLUSTER_CLIENT_NAME", str),
    "idle_strategy": ("AERON_CLUSTER_IDLE_STRATEGY", parse_idle_strategy),
    "driver_timeout": ("AERON_DRIVER_TIMEOUT", lambda text: int(text) / 1000),
    "aeron_dir": ("AERON_DIR", str),
}


def parse_ingress_endpoints(text: str) -> dict[int, str]:
    """Endpoints by member id of ``"0=host:port,1=host:port"``; raises ConfigurationError, which names the
    text."""
    endpoints: dict[int, str] = {}
    for item in text.split(","):
        member_id, equals, endpoint = item.partition("=")
        if not equals or not member_id.strip().isdecimal() or not endpoint.strip():
            raise ConfigurationError(
                f"ingress endpoints must be id=host:port with commas between, not {item!r}: {text!r}"
            )
        endpoints[int(member_id)] = endpoint.strip()
    return endpoints


def leader_endpoint(ingress_endpoints: str, leader_member_id: int) -> str:
    """Where the leader listens, of the endpoints that the cluster told; raises ClusterError when it is not
    there."""
    try:
        return parse_ingress_endpoints(ingress_endpoints)[leader_member_id]
    except (ConfigurationError, KeyError):
        raise ClusterError(
            f"the cluster told that member {leader_member_id} leads and that ingress endpoints are "
            f"{ingress_endpoints!r}: where the leader listens is not among them"
        ) from None
