"""The calls of the adapters with decoded messages: implemented by the agent of the consensus module."""

from container.agent.agent import Agent

class ConsensusEventHandler(Agent):
    """Base of the agent. A message of another member that is not handled is reported.

    These methods return 0; what they raise is reported as well.
    """

    def report(self, error: BaseException) -> int: ...
    def on_canvass_position(
        self,
        log_leadership_term_id: int,
        log_position: int,
        leadership_term_id: int,
        follower_member_id: int,
        protocol_version: int,
    ) -> int: ...
    def on_request_vote(
        self,
        log_leadership_term_id: int,
        log_position: int,
        candidate_term_id: int,
        candidate_member_id: int,
        protocol_version: int,
    ) -> int: ...
    def on_vote(
        self,
        candidate_term_id: int,
        log_leadership_term_id: int,
        log_position: int,
        candidate_member_id: int,
        follower_member_id: int,
        vote: bool,
    ) -> int: ...
    def on_new_leadership_term(
        self,
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
        leader_member_id: int,
        log_session_id: int,
        app_version: int,
        is_startup: bool,
        protocol_version: int,
    ) -> int: ...
    def on_append_position(
        self, leadership_term_id: int, log_position: int, follower_member_id: int, flags: int
    ) -> int: ...
    def on_commit_position(self, leadership_term_id: int, log_position: int, leader_member_id: int) -> int: ...
    def on_catchup_position(
        self, leadership_term_id: int, log_position: int, follower_member_id: int, catchup_endpoint: str
    ) -> int: ...
    def on_stop_catchup(self, leadership_term_id: int) -> int: ...
    def on_termination_position(self, leadership_term_id: int, log_position: int) -> int: ...
    def on_termination_ack(self, leadership_term_id: int, log_position: int, member_id: int) -> int: ...
