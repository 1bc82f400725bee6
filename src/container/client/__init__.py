"""Clients of the cluster: outside its members, over ingress and egress.

Each kind of client has one door, its ``connect(...)``: use the result in ``with`` or ``async with``.

- :class:`AeronCluster` and :class:`AsyncAeronCluster` have one session;
- :class:`ReconnectingClient` and :class:`AsyncReconnectingClient` connect again when a session ends;
- :class:`SessionPool` and :class:`AsyncSessionPool` have thousands of sessions.

All take the settings of :class:`ClientContext`. :class:`EgressListener` is what you implement to receive, and
:class:`Request` is a message that waits for its reply. :meth:`AeronCluster.async_connect` connects in steps that never
wait, as in Java; it has nothing to do with asyncio.
"""

import warnings
from typing import Any

from container.client.aeron_cluster import SESSION_HEADER_LENGTH, AeronCluster, AsyncConnect, ClientState
from container.client.async_client import AdminResponse, AsyncAeronCluster
from container.client.async_pool import AsyncPooledSession, AsyncSessionPool
from container.client.async_reconnecting import AsyncReconnectingClient
from container.client.client_context import ClientContext, ClientSettings, CredentialsSupplier
from container.client.client_metrics import ClientMetrics, RoundTripTimes
from container.client.client_poller import EgressMessage
from container.client.connect_steps import ConnectStep
from container.client.egress_listener import (
    Action,
    AdminRequestType,
    AdminResponseCode,
    ControlledEgressListener,
    EgressListener,
    EventCode,
)
from container.client.reconnecting_base import ConnectionListener
from container.client.reconnecting_client import ReconnectingClient
from container.client.reconnection import ConnectionState, OutboxPolicy, ReconnectPolicy
from container.client.replacement import PoolListener
from container.client.requests import Request, RequestCounts
from container.client.session_pool import PooledSession, PooledSessionState, SessionPool

__all__ = [
    "SESSION_HEADER_LENGTH",
    "Action",
    "AdminRequestType",
    "AdminResponse",
    "AdminResponseCode",
    "AeronCluster",
    "AsyncAeronCluster",
    "AsyncConnect",
    "AsyncPooledSession",
    "AsyncReconnectingClient",
    "AsyncSessionPool",
    "ClientContext",
    "ClientMetrics",
    "ClientSettings",
    "ClientState",
    "ConnectStep",
    "ConnectionListener",
    "ConnectionState",
    "ControlledEgressListener",
    "CredentialsSupplier",
    "EgressListener",
    "EgressMessage",
    "EventCode",
    "OutboxPolicy",
    "PoolListener",
    "PooledSession",
    "PooledSessionState",
    "ReconnectPolicy",
    "ReconnectingClient",
    "Request",
    "RequestCounts",
    "RoundTripTimes",
    "SessionPool",
]

_FORMER_DOORS: dict[str, Any] = {
    "aconnect": AsyncAeronCluster,
    "areconnecting": AsyncReconnectingClient,
    "reconnecting": ReconnectingClient,
}


def __getattr__(name: str) -> Any:
    """Give what still asks for a door by its former name the new one, with a warning."""
    client = _FORMER_DOORS.get(name)
    if client is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"{__name__}.{name} is now {client.__name__}.connect", DeprecationWarning, stacklevel=2)
    return client.connect
