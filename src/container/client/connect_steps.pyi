"""Types of `connect_steps`."""

import enum
from types import TracebackType
from typing import Self

from container.client.client_context import ClientContext
from container.transport.transport_seam import Client

class ConnectStep(enum.IntEnum):
    """How far an :class:`AsyncConnect` has come (upstream's ``AeronCluster.AsyncConnect.State``, and AWAIT_DRIVER)."""

    AWAIT_DRIVER = -2
    CREATE_EGRESS_SUBSCRIPTION = -1
    CREATE_INGRESS_PUBLICATIONS = 0
    AWAIT_PUBLICATION_CONNECTED = 1
    SEND_MESSAGE = 2
    POLL_RESPONSE = 3
    CONCLUDE_CONNECT = 4
    DONE = 5

class ConnectSteps:
    """A connect, step by step."""

    @property
    def context(self) -> ClientContext: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None: ...
    @property
    def step(self) -> ConnectStep: ...
    @property
    def awaited(self) -> str: ...
    @property
    def client(self) -> Client | None: ...
    def poll(self) -> object: ...
    def close(self) -> None: ...
    def _poll_end(self) -> bool: ...
    def _close_now(self) -> None: ...
    def _be_impatient(self, patience_ns: int) -> None: ...
