"""A session: what a member knows of one client, from its connect request to the close event in the log."""

from collections.abc import Callable
from typing import final

STATES: tuple[str, ...]

@final
class ClusterSession:
    """The session ``session_id``, -1 for one that is only answered."""

    id: int
    correlation_id: int
    response_stream_id: int
    response_channel: str
    encoded_principal: bytes
    action: object
    refusal: tuple[int, str] | None
    opened_log_position: int
    closed_log_position: int
    close_reason: int
    ingress_image_correlation_id: int
    publication: object
    is_open_event_pending: bool
    is_new_leader_event_pending: bool

    @property
    def state_name(self) -> str: ...
    def __init__(
        self,
        session_id: int,
        response_channel: str,
        response_stream_id: int,
        label: str,
        on_error: Callable[[Exception], object],
        action: object = None,
    ) -> None: ...
