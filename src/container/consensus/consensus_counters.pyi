"""The counters by which a consensus module shows what it does; tools and services look for their types and keys."""

from typing import final

from container.transport.counters import Counter
from container.transport.duration_tracker import DurationTracker
from container.transport.transport_seam import Client

@final
class ConsensusModuleCounters:
    """The counters of the consensus module of a cluster; each is an attribute, and all are 0 at first."""

    error_counter: Counter
    module_state: Counter
    election_state: Counter
    election_count: Counter
    leadership_term_id: Counter
    node_role: Counter
    commit_position: Counter
    control_toggle: Counter
    node_control_toggle: Counter
    snapshot_count: Counter
    timed_out_clients: Counter
    standby_snapshots: Counter | None
    retained_log_position: Counter | None
    cycle: DurationTracker
    snapshot_duration: DurationTracker

    def __init__(
        self,
        client: Client,
        cluster_id: int,
        *,
        cycle_threshold_ns: int,
        snapshot_duration_threshold_ns: int,
        is_standby_snapshot_accepted: bool = False,
        snapshots_retained: int = 0,
    ) -> None: ...
    def close(self) -> int: ...
