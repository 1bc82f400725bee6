# Types of container.aeron.handle: the C client that an AeronClient and what it added share.
from collections.abc import Callable
from typing import final

from container.aeron.media_driver import MediaDriver
from container.errors import ContainerError

@final
class ClientHandle:
    def __init__(
        self,
        aeron_dir: str,
        use_invoker: bool,
        error_handler: Callable[[ContainerError], object] | None,
        driver: MediaDriver | None = None,
    ) -> None: ...
    @property
    def aeron_dir(self) -> str: ...
