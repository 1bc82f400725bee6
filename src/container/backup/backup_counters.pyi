"""The counters by which a backup shows what it does; tools look for their types."""

from typing import final

from container.transport.counters import Counter
from container.transport.transport_seam import Client

@final
class BackupCounters:
    """The counters of a backup: container.backup.backup_machine.BackupDisplay."""

    error_counter: Counter
    state: Counter
    live_log_position: Counter
    next_query_deadline: Counter
    snapshots: Counter

    def __init__(self, client: Client, cluster_id: int) -> None: ...
    def show_state(self, state: int) -> None: ...
    def show_position(self, position: int) -> None: ...
    def show_next_query(self, epoch_ms: int) -> None: ...
    def next_query_ms(self) -> int: ...
    def show_snapshots(self) -> None: ...
    def close(self) -> int: ...
