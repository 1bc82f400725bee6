"""A user's blocking clients: one, a reconnecting one, and a pool; mypy --strict finds nothing here."""

from __future__ import annotations

from typing import assert_type

from container.api import Header, MessageBuffer
from container.client import (
    AeronCluster,
    ClientContext,
    ClientSettings,
    EgressListener,
    PooledSession,
    ReconnectingClient,
    ReconnectPolicy,
    Request,
    SessionPool,
)


class Printing(EgressListener):
    """Prints what comes."""

    def on_message(self, cluster_session_id: int, timestamp: int, buffer: MessageBuffer, header: Header) -> None:
        print(cluster_session_id, timestamp, bytes(buffer), header.position)


def key_of(payload: bytes) -> int | None:
    """The key of the request that a payload answers."""
    return int(payload[:8]) if payload[:8].isdigit() else None


SETTINGS: ClientSettings = {
    "ingress_channel": "aeron:udp",
    "ingress_endpoints": "0=localhost:9010",
    "egress_channel": "aeron:udp?endpoint=localhost:0",
    "message_timeout": 2.5,
}


def talk() -> bytes:
    """Sends, asks, and waits."""
    context = ClientContext(**SETTINGS)
    with AeronCluster.connect(context, listener=Printing(), correlate=key_of, resend=True) as client:
        assert_type(client.send(b"hello", timeout=1.0), int)
        assert_type(client.begin_request(b"00000001", key=1, idempotent=True), Request)
        while client.close_reason is None and client.metrics().unmatched == 0:
            client.idle(client.poll_egress())
        assert_type(client.metrics().round_trips.percentile_ns(99.0), int)
        return client.request(b"00000002", key=2)


def talk_again() -> bytes:
    """The same over many sessions."""
    policy = ReconnectPolicy(max_seconds=None)
    with ReconnectingClient.connect(
        ClientContext(**SETTINGS), correlate=key_of, policy=policy, message_timeout=1
    ) as client:
        client.send(b"hello")
        assert_type(client.metrics().reconnects, int)
        return client.request(b"00000003", key=3)


def pool() -> None:
    """Many sessions."""
    with SessionPool.connect(**SETTINGS, max_connecting=8, correlate=key_of) as sessions:
        assert_type(sessions.open_all(3), list[PooledSession])
        sessions.open(Printing()).offer(b"hello")
        sessions.idle(sessions.poll())
