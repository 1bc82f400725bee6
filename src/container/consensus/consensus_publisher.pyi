"""A member's messages to the others of its cluster, on a publication to each."""

from collections.abc import Callable
from typing import final

from container.consensus.cluster_member import ClusterMember, ClusterMembers
from container.transport.transport_seam import Client

@final
class ConsensusPublisher:
    """The publications of one member to the others, and each message that it sends on them."""

    def __init__(
        self,
        client: Client,
        members: ClusterMembers,
        *,
        channel: str,
        stream_id: int,
        is_control_enabled: bool,
        on_error: Callable[[BaseException], object],
    ) -> None: ...
    def poll_adds(self, now_ns: int) -> int: ...
    def close(self) -> int: ...
    def canvass_position(
        self, member: ClusterMember, log_leadership_term_id: int, log_position: int, leadership_term_id: int
    ) -> bool: ...
    def request_vote(
        self, member: ClusterMember, log_leadership_term_id: int, log_position: int, candidate_term_id: int
    ) -> bool: ...
    def place_vote(
        self,
        candidate: ClusterMember,
        candidate_term_id: int,
        log_leadership_term_id: int,
        log_position: int,
        vote: bool,
    ) -> bool: ...
    def new_leadership_term(
        self,
        member: ClusterMember,
        log_leadership_term_id: int,
        next_leadership_term_id: int,
        next_term_base_log_position: int,
        next_log_position: int,
        leadership_term_id: int,
        term_base_log_position: int,
        log_position: int,
        commit_position: int,
        leader_recording_id: int,
        timestamp: int,
        log_session_id: int,
        app_version: int,
        is_startup: bool,
    ) -> bool: ...
    def append_position(
        self, leader: ClusterMember, leadership_term_id: int, log_position: int, flags: int
    ) -> bool: ...
    def commit_position(self, member: ClusterMember, leadership_term_id: int, log_position: int) -> bool: ...
    def catchup_position(
        self, leader: ClusterMember, leadership_term_id: int, log_position: int, catchup_endpoint: str
    ) -> bool: ...
    def stop_catchup(self, follower: ClusterMember, leadership_term_id: int) -> bool: ...
    def termination_position(self, member: ClusterMember, leadership_term_id: int, log_position: int) -> bool: ...
    def termination_ack(self, leader: ClusterMember, leadership_term_id: int, log_position: int) -> bool: ...
