# The types of container.archive.client.archive_client_context, which is compiled.
from collections.abc import Iterable
from typing import Any, Final, Protocol, Self, final, type_check_only

SETTINGS: Final[tuple[str, ...]]

def check_names(names: Iterable[str], known: Iterable[str]) -> None: ...

@type_check_only
class _CredentialsSupplier(Protocol):
    def encoded_credentials(self) -> bytes: ...
    def on_challenge(self, encoded_challenge: bytes, /) -> bytes: ...

@final
class ArchiveClientContext:
    """Where an archive is and how to talk to it (upstream's ``AeronArchive.Context``)."""

    control_channel: Final[str]
    control_stream_id: Final[int]
    response_channel: Final[str]
    response_stream_id: Final[int]
    message_timeout_ns: Final[int]
    message_retry_attempts: Final[int]
    term_buffer_length: Final[int]
    term_buffer_sparse: Final[bool]
    mtu_length: Final[int]
    client_name: Final[str]
    credentials_supplier: Final[_CredentialsSupplier | None]

    def __init__(
        self,
        *,
        control_channel: str = ...,
        control_stream_id: int = ...,
        response_channel: str = ...,
        response_stream_id: int = ...,
        message_timeout_ns: int = ...,
        message_retry_attempts: int = ...,
        term_buffer_length: int = ...,
        term_buffer_sparse: bool = ...,
        mtu_length: int = ...,
        client_name: str = ...,
        credentials_supplier: _CredentialsSupplier | None = ...,
    ) -> None: ...
    @classmethod
    def for_service(cls, cluster_id: int, service_id: int, *, control_channel: str = ..., **settings: Any) -> Self: ...
