"""A replay of a member's own recording of the log, for its services and for itself."""

from typing import final

from container.errors import ClusterError

@final
class MemberLogReplay:
    """A replay from one position of the log to another: container.consensus.election_host.LogReplay."""

    is_closed: bool

    def do_work(self) -> int: ...
    def failure(self, error: BaseException) -> ClusterError: ...
    def is_done(self) -> bool: ...
    def position(self) -> int: ...
    def close(self) -> None: ...
