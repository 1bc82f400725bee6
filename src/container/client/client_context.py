"""The settings of a client of the cluster, with upstream's defaults."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self, TypedDict, Unpack

from container.client.egress_handler import EgressHandler
from container.client.egress_listener import LISTENER_RULE, ControlledEgressListener, EgressListener
from container.common.aeron_defaults import EGRESS_STREAM_ID, INGRESS_STREAM_ID
from container.common.channel_uri import ENDPOINT, ChannelUri
from container.common.values import is_path, shown, suggestion, whole_number
from container.errors import ClusterError, ConfigurationError, ContainerError
from container.settings.container_table import MAX_CLIENT_NAME_LENGTH
from container.settings.sources import warn_of_unknown_variables
from container.transport.idle_strategy import BackoffIdleStrategy, IdleStrategy, parse_duration_ns, parse_idle_strategy
from container.transport.transport_seam import Client

NS_PER_S = 1_000_000_000
_NS_PER_MS = 1_000_000
_MIN_S = 0.001  # what is less was meant in another unit
_MAX_S = 1_000_000_000  # 31 years: a deadline in nanoseconds fits 64 bits
_MAX_DRIVER_TIMEOUT_S = 86_400
_INT32_MAX = 2**31 - 1


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


type Listener = EgressListener | ControlledEgressListener | EgressHandler


class ClientSettings(TypedDict, total=False):
    """The fields of :class:`ClientContext`, for calls that take them as keywords (``**settings``)."""

    ingress_channel: str
    ingress_stream_id: int
    ingress_endpoints: str | None
    egress_channel: str
    egress_stream_id: int
    message_timeout: float
    new_leader_timeout: float | None
    keep_alive_interval: float
    client_name: str
    is_ingress_exclusive: bool
    listener: Listener
    idle_strategy: IdleStrategy
    credentials_supplier: CredentialsSupplier
    agent_invoker: Callable[[], int | None] | None
    error_handler: Callable[[ContainerError], object] | None
    client: Client | None
    owns_client: bool
    driver_timeout: float
    aeron_dir: str | None
    embedded_driver: bool | None


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
    ``egress_channel``       required          where this client receives answers; port 0 takes a free one
    ``egress_stream_id``     102
    ``message_timeout``      5.0               seconds: limit of a connect, a send, reaching a new leader
    ``new_leader_timeout``   None              seconds without a leader until the client is closed; None:
                                               twice the leader's heartbeat timeout
    ``keep_alive_interval``  1.0               seconds without a send until a poll sends a keep alive;
                                               0 for never (upstream never does)
    ``client_name``          ``""``            at most 100 characters; shown by cluster and driver
    ``is_ingress_exclusive`` True              whether ingress publications are exclusive
    ``listener``             refuses messages  an :class:`EgressListener` or a :class:`ControlledEgressListener`,
                                               or an ``EgressHandler`` in Cython
    ``idle_strategy``        backoff           how to wait; by default ``backoff(1,10,1us,1us)``
    ``credentials_supplier`` empty credentials a :class:`CredentialsSupplier`
    ``agent_invoker``        None              called while a connect or a send waits, and by each poll;
                                               returns the work done
    ``error_handler``        None              given each error of the conductor of a client of its own
    ``client``               None              the transport's client to share; None: one of its own
    ``owns_client``          False             whether a shared ``client`` is closed with the session
    ``driver_timeout``       10.0              seconds that one of its own waits for the driver
    ``aeron_dir``            None              driver's directory for one of its own; None: AERON_DIR, or
                                               Aeron's default
    ``embedded_driver``      None              whether one of its own gets a media driver in this process, for
                                               itself alone; None: if no directory is given, no driver runs in
                                               Aeron's default one, and no channel is IPC
    ======================== ================= ===========================================================
    """

    ingress_channel: str = ""
    ingress_stream_id: int = INGRESS_STREAM_ID
    ingress_endpoints: str | None = None
    egress_channel: str = ""
    egress_stream_id: int = EGRESS_STREAM_ID
    message_timeout: float = 5.0
    new_leader_timeout: float | None = None
    keep_alive_interval: float = 1.0
    client_name: str = ""
    is_ingress_exclusive: bool = True
    listener: Listener = field(default_factory=EgressListener)
    idle_strategy: IdleStrategy = field(default_factory=_client_idle_strategy)
    credentials_supplier: CredentialsSupplier = field(default_factory=NullCredentialsSupplier, repr=False)
    agent_invoker: Callable[[], int | None] | None = None
    error_handler: Callable[[ContainerError], object] | None = None
    client: Client | None = None
    owns_client: bool = False
    driver_timeout: float = 10.0
    aeron_dir: str | None = None
    embedded_driver: bool | None = None

    def __post_init__(self) -> None:
        for name in _RULES:
            _check(name, getattr(self, name))
        if self.ingress_endpoints is not None and is_ipc(self.ingress_channel):
            raise ConfigurationError(
                f"ingress_endpoints must be None for an IPC ingress_channel: {shown(self.ingress_endpoints)}"
            )
        if self.embedded_driver:
            self._check_embedded_driver()

    def _check_embedded_driver(self) -> None:
        for name in ("aeron_dir", "client"):
            if getattr(self, name) is not None:
                raise ConfigurationError(
                    f"{name} must be None with embedded_driver=True, not {shown(getattr(self, name))}: the client's "
                    "own driver has a directory of its own"
                )
        for name in ("ingress_channel", "egress_channel"):
            if is_ipc(getattr(self, name)):
                raise ConfigurationError(
                    f"embedded_driver must be None or False with {name}={shown(getattr(self, name))}: no member is "
                    "reached over IPC through a driver of the client's own"
                )

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None, **settings: Unpack[ClientSettings]) -> Self:
        """A context of ``settings``, then of the environment (the process's by default), then of the defaults.

        The variables are upstream's properties in capitals with ``_`` for ``.``: AERON_CLUSTER_INGRESS_CHANNEL,
        AERON_CLUSTER_INGRESS_ENDPOINTS, AERON_CLUSTER_INGRESS_STREAM_ID, AERON_CLUSTER_EGRESS_CHANNEL,
        AERON_CLUSTER_EGRESS_STREAM_ID, AERON_CLUSTER_MESSAGE_TIMEOUT, AERON_CLUSTER_CLIENT_NAME,
        AERON_CLUSTER_IDLE_STRATEGY, AERON_DRIVER_TIMEOUT (milliseconds) and AERON_DIR. Other durations have a unit, as
        ``5s`` or ``500ms``; without one they are nanoseconds, as for Aeron, and less than 1 ms is refused. A variable
        that is empty counts as not set. Raises ConfigurationError, which names the variable.
        """
        _refuse_unknown(cls, settings, ())
        environ = os.environ if environ is None else environ
        if not isinstance(environ, Mapping):
            raise ConfigurationError(f"environ={shown(environ)}: must be a mapping of strings, such as os.environ")
        warn_of_unknown_variables(environ)
        values: dict[str, Any] = {}
        for name, (variable, parse) in _VARIABLES.items():
            text = environ.get(variable)
            if name in settings or not text:
                continue
            if name == "aeron_dir" and settings.get("embedded_driver") is True:
                continue  # the call says that the client has a driver of its own
            try:
                if not isinstance(text, str):
                    raise ConfigurationError("must be a string")
                values[name] = parse(text)
                _check(name, values[name])
            except ConfigurationError as error:
                raise ConfigurationError(f"{variable}={shown(text)}: {error}") from None
        _check_endpoints_are_of_use(values, {**values, **settings})
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


def context_of(context: ClientContext | None, settings: ClientSettings, *keywords: str) -> ClientContext:
    """The context of a call that takes one, or settings as keywords, or both, and then the settings replace its own.

    ``keywords`` are what the call takes beside. Raises ConfigurationError for a setting that there is not, with a name
    that is near, and for a value that a setting cannot have.
    """
    check_context(context)
    _refuse_unknown(ClientContext if context is None else type(context), settings, keywords)
    if context is None:
        return ClientContext.from_environment(**settings)
    return replace(context, **settings) if settings else context


def _refuse_unknown(kind: type[ClientContext], names: Iterable[str], others: Iterable[str]) -> None:
    known = [*kind.__dataclass_fields__, *others]
    for name in names:
        if name not in known:
            where = suggestion(name, known, "container.client.ClientContext")
            raise ConfigurationError(f"unknown setting {shown(name)}: {where}")


def _check_endpoints_are_of_use(values: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Endpoints of the environment are an error with an IPC channel, wherever that comes from: which is meant?"""
    channel: Any = settings.get("ingress_channel")
    endpoints = values.get("ingress_endpoints")
    if endpoints is None or not _is_channel_text(channel) or not is_ipc(channel):
        return
    variables = {name: _VARIABLES[name][0] for name in ("ingress_channel", "ingress_endpoints")}
    source = f"{variables['ingress_channel']}=" if "ingress_channel" in values else "ingress_channel="
    raise ConfigurationError(
        f"{variables['ingress_endpoints']}={shown(endpoints)}: must not be set with the IPC {source}{shown(channel)}; "
        "unset it, or give ingress_endpoints=None"
    )


def is_ipc(channel: str) -> bool:
    """Whether a channel is of shared memory, and so leads to the users of the same media driver alone."""
    return ChannelUri.parse(channel).is_ipc


def _is_channel_text(value: Any) -> bool:
    try:
        return _is_channel(value)
    except ConfigurationError:
        return False


def _check(name: str, value: Any) -> None:
    accepts, rule = _RULES[name]
    try:
        is_accepted = accepts(value)
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}") from None
    except Exception:  # of an object that raises when it is compared or asked
        is_accepted = False
    if not is_accepted and isinstance(value, str) and not value and name in ("ingress_channel", "egress_channel"):
        raise ConfigurationError(f"{name} is not set: it must {rule} (or set {_VARIABLES[name][0]})")
    if not is_accepted:
        # The object given as credentials supplier may be the credentials.
        what = shown(value) if name != "credentials_supplier" else f"an object of type {type(value).__name__}"
        raise ConfigurationError(f"{name} must {rule}, not {what}")


def _is_ascii(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and value.isascii() and value.isprintable()


def _is_channel(value: Any) -> bool:
    return _is_ascii(value) and ChannelUri.parse(value) is not None


def _is_int32(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -_INT32_MAX - 1 <= value <= _INT32_MAX


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_CLIENT_NAME_LENGTH and (not value or is_path(value))


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_seconds(value: Any, least: float = _MIN_S, most: float = _MAX_S) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def limit_s(timeout: Any, default: float) -> float:
    """The seconds that a call may take: ``timeout``, or the default when it is None.

    Raises ConfigurationError for what is not a number from 0 to 10**9.
    """
    if timeout is None:
        return default
    try:
        is_accepted = _is_seconds(timeout, 0)
    except Exception:  # of an object that raises when it is compared
        is_accepted = False
    if not is_accepted:
        raise ConfigurationError(
            f"timeout must be None or a number of seconds from 0 to {_MAX_S}, not {shown(timeout)}"
        )
    return float(timeout)


def check_setting(name: str, value: Any) -> None:
    """Refuse a value that the setting of that name cannot have, with a ConfigurationError."""
    _check(name, value)


def check_context(context: Any) -> None:
    """Refuse what is neither None nor a :class:`ClientContext`, with a ConfigurationError."""
    if context is not None and not isinstance(context, ClientContext):
        raise ConfigurationError(f"context must be None or a ClientContext, not {shown(context)}")


def check_flag(name: str, value: Any) -> None:
    """Refuse what is neither True nor False, with a ConfigurationError."""
    if not _is_flag(value):
        raise ConfigurationError(f"{name} must be True or False, not {shown(value)}")


def check_instance(name: str, value: Any, *kinds: type) -> None:
    """Refuse what is of none of these types, with a ConfigurationError."""
    if not isinstance(value, kinds):
        raise ConfigurationError(f"{name} must be {' or '.join(_a(kind) for kind in kinds)}, not {shown(value)}")


def _a(kind: type) -> str:
    return "None" if kind is type(None) else f"{'an' if kind.__name__[0] in 'AEIO' else 'a'} {kind.__name__}"


def integer(name: str, value: Any, bits: int = 64) -> int:
    """Return an argument as an int; raise TypeError if it is not a whole number, ValueError if it needs more bits."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, not {shown(value)}") from None
    if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        raise ValueError(f"{name} must be a whole number of {bits} bits, not {shown(value)}")
    return number


def check_count(name: str, value: Any) -> None:
    """Refuse what is not a whole number of 1 or more, with a ConfigurationError."""
    if not _is_int32(value) or value < 1:
        raise ConfigurationError(f"{name} must be a whole number from 1 to {_INT32_MAX}, not {shown(value)}")


def _is_callback(value: Any) -> bool:
    return value is None or callable(value)


def _is_credentials_supplier(value: Any) -> bool:
    return callable(value.encoded_credentials) and callable(value.on_challenge)


_CHANNEL = "be a channel in ASCII, such as {}"
_NUMBER = "be a whole number of 32 bits"
_SECONDS = "a number of seconds from {} to {}"
_TIMEOUT = _SECONDS.format(_MIN_S, _MAX_S)

# By setting: what accepts a value, and what an error says after "must".
_RULES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "ingress_channel": (_is_channel, _CHANNEL.format("'aeron:udp' with ingress_endpoints")),
    "egress_channel": (_is_channel, _CHANNEL.format("'aeron:udp?endpoint=localhost:0'")),
    "ingress_endpoints": (
        lambda value: value is None or bool(parse_ingress_endpoints(value)),
        "be None, or id=host:port of each member, separated by commas",
    ),
    "ingress_stream_id": (_is_int32, _NUMBER),
    "egress_stream_id": (_is_int32, _NUMBER),
    "message_timeout": (_is_seconds, f"be {_TIMEOUT}"),
    "new_leader_timeout": (lambda value: value is None or _is_seconds(value), f"be None, or {_TIMEOUT}"),
    "keep_alive_interval": (lambda value: _is_seconds(value, 0, 0) or _is_seconds(value), f"be 0, or {_TIMEOUT}"),
    "client_name": (_is_name, f"be a string of at most {MAX_CLIENT_NAME_LENGTH} characters in UTF-8, without NUL"),
    "is_ingress_exclusive": (_is_flag, "be True or False"),
    "listener": (
        lambda value: isinstance(value, EgressListener | ControlledEgressListener | EgressHandler),
        f"be {LISTENER_RULE}",
    ),
    "idle_strategy": (
        lambda value: isinstance(value, IdleStrategy),
        "be an IdleStrategy, such as parse_idle_strategy('backoff')",
    ),
    "credentials_supplier": (_is_credentials_supplier, "have encoded_credentials() and on_challenge()"),
    "agent_invoker": (_is_callback, "be callable or None"),
    "error_handler": (_is_callback, "be callable or None"),
    "client": (lambda value: value is None or isinstance(value, Client), "be None or a client of the transport"),
    "owns_client": (_is_flag, "be True or False"),
    "driver_timeout": (
        lambda value: _is_seconds(value, most=_MAX_DRIVER_TIMEOUT_S),
        f"be {_SECONDS.format(_MIN_S, _MAX_DRIVER_TIMEOUT_S)}",
    ),
    "aeron_dir": (lambda value: value is None or is_path(value), "be None or a path in UTF-8, without NUL"),
    "embedded_driver": (lambda value: value is None or _is_flag(value), "be None, True or False"),
}


def _parse_number(text: str) -> int:
    number = whole_number(text.strip())
    if number is None:
        raise ConfigurationError("must be a whole number")
    return number


def _parse_timeout(text: str) -> float:
    duration_ns = parse_duration_ns(text)
    if duration_ns < _NS_PER_MS:
        number = whole_number(text.strip())
        unit = (
            "" if number is None else f": without a unit it is in nanoseconds, as for Aeron; write {number}s, or such"
        )
        raise ConfigurationError(f"{duration_ns} ns is less than the 1 ms that a timeout has at least{unit}")
    return duration_ns / NS_PER_S


_VARIABLES: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "ingress_channel": ("AERON_CLUSTER_INGRESS_CHANNEL", str),
    "ingress_stream_id": ("AERON_CLUSTER_INGRESS_STREAM_ID", _parse_number),
    "ingress_endpoints": ("AERON_CLUSTER_INGRESS_ENDPOINTS", str),
    "egress_channel": ("AERON_CLUSTER_EGRESS_CHANNEL", str),
    "egress_stream_id": ("AERON_CLUSTER_EGRESS_STREAM_ID", _parse_number),
    "message_timeout": ("AERON_CLUSTER_MESSAGE_TIMEOUT", _parse_timeout),
    "client_name": ("AERON_CLUSTER_CLIENT_NAME", str),
    "idle_strategy": ("AERON_CLUSTER_IDLE_STRATEGY", parse_idle_strategy),
    "driver_timeout": ("AERON_DRIVER_TIMEOUT", lambda text: _parse_number(text) / 1000),
    "aeron_dir": ("AERON_DIR", str),
}


def parse_ingress_endpoints(text: str) -> dict[int, str]:
    """Endpoints by member id of ``"0=host:port,1=host:port"``; raises ConfigurationError, which names the
    text."""
    if not isinstance(text, str):
        raise ConfigurationError(f"endpoints must be a string, such as '0=host0:9010,1=host1:9010', not {shown(text)}")
    endpoints: dict[int, str] = {}
    for item in text.split(","):
        if text and not item.strip():
            raise ConfigurationError(f"{shown(text)}: an entry is empty: give id=host:port, or remove its comma")
        member_id, _, endpoint = (part.strip() for part in item.partition("="))
        number = whole_number(member_id)
        if number is None or not 0 <= number <= _INT32_MAX or not _is_ascii(endpoint):
            whole = "" if item == text else f" in {shown(text)}"
            raise ConfigurationError(
                f"{shown(item)}{whole} is not id=host:port: give the id and address of each member, separated by "
                "commas, such as 0=host0:9010,1=host1:9010"
            )
        if number in endpoints:
            raise ConfigurationError(f"{shown(text)} names member {number} twice: give each member once")
        endpoints[number] = endpoint
    return endpoints


def check_ingress_address(context: ClientContext) -> None:
    """Refuse a context that says nowhere where members listen, with a ConfigurationError."""
    uri = ChannelUri.parse(context.ingress_channel)
    if context.ingress_endpoints is None and uri.is_udp and not any(map(uri.get, (ENDPOINT, "control", "tags"))):
        raise ConfigurationError(
            "ingress_endpoints must be set, such as '0=host0:9010,1=host1:9010': ingress_channel="
            f"{shown(context.ingress_channel)} names no address"
        )


def leader_endpoint(ingress_endpoints: str, leader_member_id: int) -> str:
    """Where the leader listens, of the endpoints that the cluster sent; raises ClusterError when it is not
    there."""
    try:
        return parse_ingress_endpoints(ingress_endpoints)[leader_member_id]
    except (ConfigurationError, KeyError):
        raise ClusterError(
            f"the cluster reported that member {leader_member_id} leads and that ingress endpoints are "
            f"{ingress_endpoints!r}: where the leader listens is not among them"
        ) from None
