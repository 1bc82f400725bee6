"""A user's asyncio clients; mypy --strict finds nothing here."""

from __future__ import annotations

import asyncio
from typing import assert_type

from container.client import (
    AsyncAeronCluster,
    AsyncReconnectingClient,
    ClientMetrics,
    ClientSettings,
    ConnectionListener,
    EgressMessage,
    OutboxPolicy,
)
from container.errors import ContainerError

SETTINGS: ClientSettings = {"ingress_channel": "aeron:ipc", "egress_channel": "aeron:udp?endpoint=localhost:0"}


class Watching(ConnectionListener):
    """Hears of sessions."""

    def on_disconnected(self, error: ContainerError) -> None:
        print(error, error.is_retryable)


async def ask(client: AsyncAeronCluster, number: int) -> bytes:
    """One request."""
    return await client.request(b"%08d" % number, key=number, timeout=0.5)


async def main() -> list[bytes]:
    """Many requests, and the messages of the service."""
    async with AsyncAeronCluster.connect(
        **SETTINGS, correlate=lambda payload: int(payload[:8]), max_waiting=100
    ) as client:
        answers = await asyncio.gather(*(ask(client, number) for number in range(10)))
        assert_type(client.metrics(), ClientMetrics)
        async for message in client:
            assert_type(message, EgressMessage)
            print(message.timestamp, message.payload.decode())
            break
        return answers


async def stay() -> bytes:
    """The same over many sessions."""
    async with AsyncReconnectingClient.connect(
        **SETTINGS, callbacks=Watching(), outbox_policy=OutboxPolicy.REFUSE
    ) as client:
        await client.send(b"hello")
        return (await client.receive()).payload
