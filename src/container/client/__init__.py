"""Clients of the cluster: outside its members, over ingress and egress.

:class:`AeronCluster` is the front door; :class:`ClientContext` has its settings, :class:`EgressListener` is
what you implement, :class:`AsyncConnect` connects without blocking, :func:`aconnect` is for
asyncio, and :class:`SessionPool` and :class:`AsyncSessionPool` have thousands of sessions. :class:`Request` is a
message that waits for its reply.
:func:`reconnecting` and :func:`areconnecting` make clients that connect again when a session ends.
"""

from container.client.aeron_cluster import SESSION_HEADER_LENGTH, AeronCluster, AsyncConnect, ClientState
from container.client.async_client import AdminResponse, AsyncAeronCluster, aconnect
from container.client.async_pool import AsyncPooledSession, AsyncSessionPool
from container.client.async_reconnecting import AsyncReconnectingClient, areconnecting
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
from container.client.reconnecting_client import ReconnectingClient, reconnecting
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
    "aconnect",
    "areconnecting",
    "reconnecting",
]
