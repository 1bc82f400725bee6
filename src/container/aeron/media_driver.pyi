# Types of container.aeron.media_driver: where a driver is, whether it is alive, and an embedded one.
import os
from types import TracebackType
from typing import Literal, Self, final

from container.errors import DriverTimeoutError

def default_aeron_dir() -> str: ...
def wait_for_driver(aeron_dir: str | os.PathLike[str], timeout_ns: int) -> None: ...
def driver_absence(aeron_dir: str | os.PathLike[str], max_age_ns: int) -> str | None: ...
def no_driver(reason: str, timeout_ns: int, hint: str = ...) -> DriverTimeoutError: ...
def read_cnc_file_page_size(aeron_dir: str | os.PathLike[str], timeout_ns: int) -> int: ...

@final
class MediaDriver:
    @staticmethod
    def launch_embedded(
        aeron_dir: str | os.PathLike[str] | None = None,
        *,
        dir_delete_on_start: bool = True,
        dir_delete_on_shutdown: bool = True,
        threading: Literal["SHARED", "SHARED_NETWORK", "DEDICATED", "INVOKER"] = "SHARED",
        term_buffer_length: int | None = ...,
        ipc_term_buffer_length: int | None = ...,
        term_buffer_sparse_file: bool = False,
        counters_buffer_length: int | None = None,
        mtu_length: int | None = None,
        ipc_mtu_length: int | None = None,
        receiver_io_vector_capacity: int | None = None,
        network_publication_max_messages_per_send: int | None = None,
        client_liveness_timeout_ns: int | None = None,
        image_liveness_timeout_ns: int | None = None,
        publication_linger_timeout_ns: int | None = None,
        timer_interval_ns: int | None = None,
        library: str | os.PathLike[str] | None = None,
    ) -> MediaDriver: ...
    @property
    def aeron_dir(self) -> str: ...
    @property
    def is_closed(self) -> bool: ...
    def invoke(self) -> int: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
