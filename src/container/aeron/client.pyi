# Types of container.aeron.client: the seam's client over a media driver.
import os
from collections.abc import Callable
from types import TracebackType
from typing import Self, final

from container.aeron.media_driver import MediaDriver
from container.errors import ContainerError
from container.transport.streams import PendingAdd
from container.transport.transport_seam import Client

@final
class AeronClient(Client):
    def __init__(
        self,
        aeron_dir: str | os.PathLike[str] | None = None,
        client_name: str = "",
        *,
        use_invoker: bool = True,
        driver_timeout_ms: int = 10_000,
        keepalive_interval_ms: int = 500,
        error_handler: Callable[[ContainerError], object] | None = None,
        library: str | os.PathLike[str] | None = None,
        driver: MediaDriver | None = None,
    ) -> None: ...
    @property
    def aeron_dir(self) -> str: ...
    @property
    def driver_timeout_ms(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

@final
class AeronPendingAdd(PendingAdd): ...
