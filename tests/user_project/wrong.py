"""Mistakes of a user: the comment is what mypy --strict says, of which each line needs no more and no less."""

from __future__ import annotations

import container
from container.api import Header, MessageBuffer
from container.client import (
    Action,
    AeronCluster,
    AsyncAeronCluster,
    AsyncReconnectingClient,
    ClientContext,
    ClientSettings,
    ControlledEgressListener,
    EgressListener,
    ReconnectingClient,
    SessionPool,
)
from container.testing import MemoryMember

misspelt: ClientSettings = {"mesage_timeout": 5.0}  # wrong: Extra key "mesage_timeout"
mistyped: ClientSettings = {"message_timeout": "5s"}  # wrong: has type "float"

AeronCluster.connect(mesage_timeout=5.0)  # wrong: Unexpected keyword argument "mesage_timeout"
AeronCluster.connect(message_timeout="5s")  # wrong: expected "float"
AeronCluster.connect("aeron:ipc")  # wrong: expected "ClientContext | None"
AeronCluster.connect(resend="no")  # wrong: expected "bool"
AeronCluster.connect(correlate=5)  # wrong: expected "Callable[[bytes], Hashable | None] | None"
AeronCluster.connect(listener=print)  # wrong: expected "EgressListener | ControlledEgressListener | EgressHandler"
AeronCluster.async_connect(egres_channel="aeron:ipc")  # wrong: Unexpected keyword argument "egres_channel"
AeronCluster.async_connect(ingress_stream_id="101")  # wrong: expected "int"
AsyncAeronCluster.connect(max_wating=5)  # wrong: Unexpected keyword argument "max_wating"
AsyncAeronCluster.connect(aeron_dir=b"/dev/shm/aeron")  # wrong: expected "str | None"
ReconnectingClient.connect(outbox_mesages=5)  # wrong: Unexpected keyword argument "outbox_mesages"
ReconnectingClient.connect(outbox_policy="block")  # wrong: expected "OutboxPolicy"
AsyncReconnectingClient.connect(polcy=None)  # wrong: Unexpected keyword argument "polcy"
AsyncReconnectingClient.connect(callbacks=print)  # wrong: expected "ConnectionListener | None"
SessionPool.connect(max_conecting=5)  # wrong: Unexpected keyword argument "max_conecting"
SessionPool.connect(egress_stream_id="102")  # wrong: expected "int"
ClientContext.from_environment(clientname="x")  # wrong: Unexpected keyword argument "clientname"
ClientContext(keepalive_interval=1.0)  # wrong: Unexpected keyword argument "keepalive_interval"

container.run(servce_id=1)  # wrong: Unexpected keyword argument "servce_id"
container.run(service_id="one")  # wrong: expected "int | None"
container.run(print)  # wrong: expected "ClusteredService | ServiceHandler | Context | None"
container.ClusteredServiceContainer.launch(aeron_drectory="x")  # wrong: Unexpected keyword argument "aeron_drectory"
container.Context(cluster_dir=5)  # wrong: expected "str | PathLike[str] | None"


class Confused(EgressListener):
    """What a plain listener returns says nothing."""

    def on_message(  # wrong: Return type "Action"
        self, cluster_session_id: int, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> Action:
        return Action.ABORT


class Unsure(ControlledEgressListener):
    """A number that is not an action."""

    def on_message(  # wrong: Return type "int"
        self, cluster_session_id: int, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> int:
        return 7


class Counter(container.ClusteredService):
    """A service that a test asks for what it has not."""

    def on_session_message(
        self, session: container.ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        self.total = 1


print(MemoryMember(Counter).service.totl)  # wrong: "Counter" has no attribute "totl"
MemoryMember(print)  # wrong: "ServiceT" of "MemoryMember" cannot be "None"
