"""Sessions of clients: connects, authentication, the open and close events in the log, time-outs, and their
roll-back."""

from collections.abc import Callable
from typing import final

from container.archive.authentication import Authenticator, AuthorisationService
from container.consensus.cluster_clock import ClusterClock
from container.consensus.log_publisher import LogPublisher
from container.transport.counters import Counter
from container.transport.transport_seam import Client

MEMBER_ENDED: str
SESSION_LIMIT: str
SESSION_REJECTED: str

@final
class SessionDecision:
    """An authenticator's decision about one client; valid only during the call."""

    @property
    def session_id(self) -> int: ...
    @property
    def is_local(self) -> bool: ...
    def challenge(self, encoded_challenge: bytes) -> bool: ...
    def authenticate(self, encoded_principal: bytes | None) -> bool: ...
    def reject(self) -> None: ...

@final
class SessionManager:
    """The sessions of member ``member_id``; it asks ``client`` for their egress, and appends to ``log_publisher``."""

    next_session_id: int
    next_committed_session_id: int
    authorisation_service: AuthorisationService

    def __init__(
        self,
        client: Client,
        cluster_clock: ClusterClock,
        log_publisher: LogPublisher,
        *,
        authenticator: Authenticator,
        authorisation_service: AuthorisationService,
        on_error: Callable[[Exception], object],
        timed_out_counter: Counter,
        cluster_id: int,
        member_id: int,
        session_timeout_ns: int,
        leader_heartbeat_timeout_ns: int,
        max_concurrent_sessions: int,
    ) -> None: ...
