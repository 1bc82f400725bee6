"""The ports of an election to the member that it runs in, and the messages of members in an election.

Upstream: the calls of Election.java to ConsensusModuleAgent.java, ElectionState.java.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol

from container.consensus.cluster_member import ClusterMember

NULL_VALUE = -1
NULL_POSITION = -1
APPEND_POSITION_FLAG_NONE = 0
APPEND_POSITION_FLAG_CATCHUP = 1


class ElectionState(enum.IntEnum):
    """The state of an election, as counter 207 shows it."""

    INIT = 0
    CANVASS = 1
    NOMINATE = 2
    CANDIDATE_BALLOT = 3
    FOLLOWER_BALLOT = 4
    LEADER_LOG_REPLICATION = 5
    LEADER_REPLAY = 6
    LEADER_INIT = 7
    LEADER_READY = 8
    FOLLOWER_LOG_REPLICATION = 9
    FOLLOWER_REPLAY = 10
    FOLLOWER_CATCHUP_INIT = 11
    FOLLOWER_CATCHUP_AWAIT = 12
    FOLLOWER_CATCHUP = 13
    FOLLOWER_LOG_INIT = 14
    FOLLOWER_LOG_AWAIT = 15
    FOLLOWER_READY = 16
    CLOSED = 17


@dataclass(frozen=True, slots=True)
class NewLeadershipTerm:
    """The message of that name: who leads which term, and what follows the addressee's last term in the leader's log.

    Without a following term its three fields are -1; ``next_log_position`` is -1 as well while it has no end. Where the
    addressee's last term has no entry in the leader's log, and begins there behind the addressee's end, the following
    term is that very term: the addressee's log is of an older one.
    """

    log_leadership_term_id: int
    next_leadership_term_id: int
    next_term_base_log_position: int
    next_log_position: int
    leadership_term_id: int
    term_base_log_position: int
    log_position: int
    commit_position: int
    leader_recording_id: int
    leader_member_id: int
    log_session_id: int
    is_startup: bool
    #: As in CanvassPosition; upstream's message ends before it, and -1 stands for that.
    protocol_version: int


class LogReplay(Protocol):
    """A replay of this member's own recording of the log, for its services and for itself."""

    def do_work(self) -> int:
        """Take a turn; how much was done. Raises when the replay fails or makes no progress."""

    def is_done(self) -> bool:
        """Whether services and consensus module are at its end, and no snapshot is being taken."""

    def position(self) -> int:
        """How far it has come."""

    def close(self) -> None:
        """End it; never raises."""


class LogReplication(Protocol):
    """A copy of what the leader has recorded and this member has not."""

    @property
    def recording_id(self) -> int:
        """Id of the recording being written; -1 until known."""

    @property
    def position(self) -> int:
        """How far it has come."""

    @property
    def is_done(self) -> bool:
        """Whether the archive has said that it has ended, and the recording has stopped."""

    def do_work(self, now_ns: int) -> int:
        """Take a turn; how much was done. Raises when it fails or makes no progress."""

    def on_signal(self, correlation_id: int, recording_id: int, position: int, signal: int) -> None:
        """A signal of the archive about a recording."""

    def close(self) -> None:
        """End it; never raises."""


class Settings(Protocol):
    """The settings that an election reads; durations are nanoseconds."""

    @property
    def startup_canvass_timeout_ns(self) -> int: ...
    @property
    def election_timeout_ns(self) -> int: ...
    @property
    def election_status_interval_ns(self) -> int: ...
    @property
    def leader_heartbeat_interval_ns(self) -> int: ...
    @property
    def leader_heartbeat_timeout_ns(self) -> int: ...
    @property
    def appointed_leader_id(self) -> int: ...


class ElectionHost(Protocol):
    """The member as an election uses it; container.consensus.member_election_host implements it.

    Nothing here waits. For each method that begins something, the polling method of the same name continues it, once in
    each turn. It raises where that has failed or cannot end, such as with services or archive gone.
    """

    @property
    def role(self) -> int:
        """This member's role (Role)."""

    @property
    def time_of_last_leader_update_ns(self) -> int:
        """When a leader of the agent's term or a newer one was last heard of, in or before this election."""

    def set_role(self, role: int) -> None:
        """Take on a role, and show it in counter 201."""

    def set_election_state(self, state: int, reason: str) -> None:
        """Show the state in counter 207, and keep the reason, '' for an expected step, for logs and tools."""

    def now_ns(self) -> int:
        """The time of this turn, by the monotonic clock."""

    def random(self) -> float:
        """A number from 0 up to, not including, 1."""

    def report(self, error: BaseException) -> None:
        """Count an error and write it to the error log."""

    def commit_position(self) -> int:
        """The value of the commit counter."""

    def is_taking_snapshot(self) -> bool:
        """Whether the consensus module's state is SNAPSHOT."""

    def candidate_term_id(self) -> int:
        """The candidate term of the node-state file; -1 for none."""

    def update_candidate_term_id(self, candidate_term_id: int, log_position: int) -> None:
        """Persist a candidate term; return only when it would survive a crash."""

    def propose_max_candidate_term_id(self, candidate_term_id: int, log_position: int) -> int:
        """Persist a candidate term unless a higher one is; what is persisted now, and would survive a crash."""

    def end_of_term(self, leadership_term_id: int) -> int:
        """Where a term ends in this member's recording log; 0 for one that it does not know, or that is open."""

    def ensure_term(
        self,
        initial_leadership_term_id: int,
        initial_term_base_log_position: int,
        leadership_term_id: int,
        term_base_log_position: int,
        log_position: int,
    ) -> None:
        """Make the recording log have a term, and empty ones missing before it, so that it survives a crash.

        Where many are missing, they leave a gap.

        ``log_position`` is the end of the term, -1 for an open one. Does nothing while no recording of the log is
        known. Upstream: RecordingLog.ensureCoherent.
        """

    def base_of_term(self, leadership_term_id: int) -> int:
        """Where a term begins in this member's recording log: -1 for an unknown one."""

    def base_after_term(self, leadership_term_id: int) -> int:
        """Where the next term begins that this member's recording log has after one: -1 for none."""

    def first_empty_term(self, leadership_term_id: int) -> int:
        """The first of the terms in this member's recording log, up to one that is there, that begin where it does."""

    def last_filled_term(self, leadership_term_id: int) -> int:
        """The last term before that one that begins before it, and ends where it begins: -1 for none."""

    def is_left_out(self, leadership_term_id: int) -> bool:
        """Whether this member's recording log leaves out the term before that one and the empty ones where it begins.

        A backup's does: something is recorded before them, and nothing says of which term that is.
        """

    def drop_empty_terms(self, first_term_id: int) -> int:
        """Take the last terms out of the recording log, from one on, which nothing is recorded of.

        A truncation to its base may have ended the last one there. The term before them is open again.
        Return that one, -1 for none, once this would survive a crash.
        """

    def set_log_recording_id(self, recording_id: int) -> None:
        """Note which recording is the log's."""

    def begin_preparation(self, log_position: int) -> None:
        """Undo a term: end log recording, subscription, publication, destinations, ingress and catch-ups, and roll back
        sessions, timers, service messages and state to ``log_position``, with the commit counter there."""

    def poll_preparation(self) -> int | None:
        """None until recording, its counter and the sockets are gone; then the recording's end, -1 for no recording."""

    def begin_log_publication(self, append_position: int) -> None:
        """Add the publication of the log at a position, with a destination for each other member."""

    def poll_log_publication(self) -> int | None:
        """The session id of the log publication; None until the driver has added it."""

    def begin_join_as_leader(
        self, leadership_term_id: int, log_position: int, log_session_id: int, is_startup: bool
    ) -> None:
        """Record the log publication; then JoinLog to the services, and their acks."""

    def poll_join_as_leader(self) -> bool:
        """Whether the log is recorded and all services have joined it."""

    def append_new_leadership_term_event(self, leadership_term_id: int, log_position: int) -> bool:
        """Append that event to the log; whether it went."""

    def update_leader_position(self, now_ns: int, quorum_position: int) -> int:
        """Raise the commit counter, sweep what is committed, send CommitPosition if it grew or is due; work done."""

    def add_log_subscription(self, log_session_id: int, is_catchup: bool) -> None:
        """Begin a subscription of the leader's log, with the destination for catching up or the live one."""

    def log_join_position(self) -> int | None:
        """Where this member's image of the leader's log joined; None until there is one. Raises where none can be."""

    def begin_join_as_follower(self, is_leader_startup: bool) -> None:
        """Record the image of the log; then JoinLog to the services, and their acks."""

    def poll_join_as_follower(self) -> bool:
        """Whether the log is recorded and all services have joined it."""

    def recorded_position(self) -> int:
        """How far the log is recorded that this member joins; -1 where it is not."""

    def send_catchup_position(self, leader: ClusterMember, leadership_term_id: int, log_position: int) -> bool:
        """Send CatchupPosition; False while it did not go, or the endpoint's port is not known yet."""

    def poll_catchup(self, leader: ClusterMember, leadership_term_id: int, limit_position: int) -> int:
        """Apply the log up to the limit, raise the commit counter, send AppendPosition for catching up; work done.

        Raises where image or recording have ended, or nothing was recorded for a heartbeat timeout.
        """

    def is_catchup_near_live(self, position: int) -> bool:
        """Whether the image of the log is less than the window for going live from a position."""

    def add_live_log_destination(self) -> None:
        """Add the live destination to the subscription that catches up."""

    def is_catching_up(self) -> bool:
        """Whether the destination for catching up is there: StopCatchup removes it."""

    def track_catchup_completion(self, member: ClusterMember, leadership_term_id: int, flags: int) -> None:
        """As leader: end the replay for a member that has caught up, and send it StopCatchup."""

    def begin_truncation(self, log_leadership_term_id: int, log_position: int) -> None:
        """End replays of the log recording, and truncate it; then end that term there in the recording log.

        A term that has its base beyond that position gets it there; nothing of such a term is recorded here. A crash
        may come between the two: then the next start does it again, with the position where the recording ends.
        """

    def poll_truncation(self) -> bool:
        """Whether the recording is truncated and the recording log says so."""

    def new_log_replay(self, log_position: int, stop_position: int) -> LogReplay:
        """Begin a replay of this member's log recording."""

    def new_log_replication(
        self, leader: ClusterMember, leader_recording_id: int, stop_position: int, now_ns: int
    ) -> LogReplication:
        """Begin a copy of the leader's recording, up to a position, to the end of this member's."""

    def publish_canvass_position(
        self, log_leadership_term_id: int, append_position: int, leadership_term_id: int
    ) -> None:
        """Send CanvassPosition to all other members."""

    def send_canvass_position(
        self, member: ClusterMember, log_leadership_term_id: int, append_position: int, leadership_term_id: int
    ) -> None:
        """Send CanvassPosition to one member."""

    def request_vote(
        self, member: ClusterMember, log_leadership_term_id: int, append_position: int, candidate_term_id: int
    ) -> bool:
        """Send RequestVote; whether it went."""

    def place_vote(
        self,
        candidate: ClusterMember,
        candidate_term_id: int,
        log_leadership_term_id: int,
        append_position: int,
        vote: bool,
    ) -> None:
        """Send Vote."""

    def publish_new_leadership_term(
        self,
        member: ClusterMember,
        log_leadership_term_id: int,
        leadership_term_id: int,
        append_position: int,
        commit_position: int,
        log_session_id: int,
        is_startup: bool,
    ) -> None:
        """Send NewLeadershipTerm; what comes after ``log_leadership_term_id`` is in the recording log.

        Where it is not there, it is the new term, from ``append_position``. Where ``log_leadership_term_id`` is itself
        there, empty, and begins behind ``member.log_position``, it is that term.
        """

    def publish_commit_position(self, commit_position: int, leadership_term_id: int) -> None:
        """Send CommitPosition to all other members."""

    def send_append_position(
        self, leader: ClusterMember, leadership_term_id: int, append_position: int, flags: int
    ) -> bool:
        """Send AppendPosition; whether it went."""

    def election_complete(self, now_ns: int) -> None:
        """Continue as leader or follower of the election's term, according to its attributes."""
