# The types of container.service.container_client_session, which is compiled.

from collections.abc import Buffer, Iterator
from typing import final

from container.service.event_handler import EventHandler
from container.transport.message_buffer import BufferClaim

@final
class SendPatience: ...

@final
class ContainerClientSession:
    id: int
    response_stream_id: int
    response_channel: str
    encoded_principal: bytes
    is_closing: bool
    def __init__(
        self,
        cluster: EventHandler,
        cluster_session_id: int,
        response_stream_id: int,
        response_channel: str,
        encoded_principal: bytes,
    ) -> None: ...
    @property
    def is_connected(self) -> bool: ...
    def offer(self, buffer: Buffer = b"", /, *more: Buffer) -> int: ...
    def send(self, buffer: Buffer = b"", /, *more: Buffer) -> int: ...
    def try_claim(self, length: int, buffer_claim: BufferClaim) -> int: ...
    def close(self) -> None: ...

@final
class ClientSessions:
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[ContainerClientSession]: ...
