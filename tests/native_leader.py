"""A native member that a test plays up to some state of a leader: with the election of production, and little else.

It has publisher, adapter, election, recording log and log publication, all of them real, but no archive and no
services: its log is what its recording log says. Where a leader replays its log, has the services join it or begins its
term, the test says when that is done.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from container.api import Role
from container.codecs import messages as codecs
from container.common.aeron_defaults import LOG_STREAM_ID
from container.consensus import channels
from container.consensus.cluster_member import ClusterMember
from container.consensus.election import Election
from container.consensus.election_host import NULL_POSITION, NULL_VALUE, ElectionState, NewLeadershipTerm
from container.consensus.log_publisher import LogPublisher
from container.consensus.recovery_plan import Log
from container.errors import ContainerError
from container.files.recording_log import RecordingLog, RecordingLogEntry
from container.storage.file_storage import FileStorage
from container.testing.memory import transport_probe as seam
from container.transport.streams import PendingAdd
from tests.election_world import WorldSettings
from tests.scripted_peer import Heard, ScriptedPeer

LOG_CHANNEL = "aeron:udp?term-length=1m"
APP_VERSION = 1
RECORDING_ID = 600
TIME_UNIT_MILLIS = 0
EVENT_LENGTH = 96
"""Length of NewLeadershipTermEvent in the log, with the frame's header."""
TERM_FIELDS = {field.name for field in fields(NewLeadershipTerm)}


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class Replay:
    """A replay of its own log, which is done at once or never."""

    def __init__(self, stop_position: int, is_done: bool) -> None:
        self._stop_position = stop_position
        self._is_done = is_done

    def do_work(self) -> int:
        return 0

    def is_done(self) -> bool:
        return self._is_done

    def position(self) -> int:
        return self._stop_position if self._is_done else 0

    def close(self) -> None:
        pass


class NativeLeader:
    """Stands for election as soon as it takes turns, and stays in the state that it is to die in.

    Args:
        peer: what it hears and speaks with, while it lives.
        directory: of its recording log.
        last_state: how far it goes: CANDIDATE_BALLOT to LEADER_READY, or CLOSED for a leader whose election is over.
        candidate_term_id: the term before the first one that it stands for.
        append_position: up to where it has the log of the recording log's last term.
        log: the recording of that log, None for a new one.
        message_count: how many NewLeadershipTerm and CommitPosition it comes to send; None: all.
        has_publication: whether the driver ever adds its log publication.
        is_committing: whether a leader counts what its followers have of its own term.
    """

    def __init__(
        self,
        peer: ScriptedPeer,
        directory: Path,
        *,
        last_state: ElectionState,
        candidate_term_id: int,
        append_position: int,
        log: Log | None,
        message_count: int | None = None,
        has_publication: bool = True,
        is_committing: bool = True,
    ) -> None:
        self.peer = peer
        self.last_state = last_state
        self._candidate_term_id = candidate_term_id
        self._append_position = append_position
        self._log = log
        self._messages_left = sys.maxsize if message_count is None else message_count
        self._has_publication = has_publication
        self._is_committing = is_committing
        self._recording_log = RecordingLog.open(FileStorage(), str(directory), create=True, file_sync_level=0)
        self._log_publisher = LogPublisher()
        self._adding: PendingAdd | None = None
        self._adding_destinations: list[PendingAdd] = []
        self._commit_position = 0
        self._commit_said_ns = 0
        self._taken = 0
        #: Where its log ends, with what it has appended in its term.
        self.end_position = append_position
        #: What went wrong; its election has begun again then.
        self.errors: list[BaseException] = []
        self.role = int(Role.FOLLOWER)
        self.time_of_last_leader_update_ns = self.now_ns()
        #: Who has said AppendPosition in its term, and up to where.
        self.followers: dict[int, int] = {}
        last = self._recording_log.find_last_term()
        self.settings = WorldSettings()
        host: Any = self  # as far as a leader comes: it has nothing of a follower
        self.election = Election(
            host,
            self.settings,
            peer.members,
            is_node_startup=True,
            graceful_closed_leader_id=NULL_VALUE,
            leadership_term_id=NULL_VALUE if last is None else last.leadership_term_id,
            term_base_log_position=0 if last is None else last.term_base_log_position,
            log_position=0,
            append_position=append_position,
        )

    @property
    def state(self) -> ElectionState:
        """State of its election."""
        return self.election.state

    @property
    def is_silent(self) -> bool:
        """Whether it has sent as many messages as leader as it was to."""
        return self._messages_left == 0

    def turn(self) -> None:
        """Take a turn, as the agent of the consensus module does."""
        now_ns = self.now_ns()
        for heard in self.peer.heard[self._taken :]:
            try:
                self._take(heard)
            except ContainerError as error:
                self.election.handle_error(now_ns, error)
        self._taken = len(self.peer.heard)
        self._adding_destinations = [each for each in self._adding_destinations if seam.poll_add(each) is None]
        if self.is_silent or self._is_at_end():
            return
        try:
            self.election.do_work(now_ns)
        except ContainerError as error:
            self.election.handle_error(now_ns, error)
        if self.election.is_closed:
            self._lead(now_ns)

    def _is_at_end(self) -> bool:
        # With nothing to replay that state ends in the next turn.
        return self.state is self.last_state is ElectionState.LEADER_REPLAY and self._append_position == 0

    def _take(self, heard: Heard) -> None:
        if heard.name == "AppendPosition" and heard.fields["leadership_term_id"] == self.election.leadership_term_id:
            self.followers[heard.fields["follower_member_id"]] = heard.fields["log_position"]
        if self.election.is_closed:
            follower = self.peer.members.find(heard.fields.get("follower_member_id", NULL_VALUE))
            if heard.name == "AppendPosition" and follower is not None:
                follower.set_log(heard.fields["leadership_term_id"], heard.fields["log_position"], self.now_ns())
        elif heard.name == "NewLeadershipTerm":
            given = {name: value for name, value in heard.fields.items() if name in TERM_FIELDS}
            self.election.on_new_leadership_term(NewLeadershipTerm(**given))
        elif heard.name == "Vote" and self.last_state is ElectionState.CANDIDATE_BALLOT:
            pass  # it dies before it has read them
        else:
            handler: Callable[..., None] | None = getattr(self.election, f"on_{_snake(heard.name)}", None)
            if handler is not None:
                handler(*heard.fields.values())

    def _lead(self, now_ns: int) -> None:
        term_id = self.election.leadership_term_id
        self.peer.members.this_member.set_log(term_id, self.end_position, now_ns)
        quorum_position = self.peer.members.quorum_position(
            term_id, self.end_of_term, now_ns, self.settings.leader_heartbeat_timeout_ns
        )
        self.update_leader_position(now_ns, quorum_position)

    def close_log(self) -> None:
        """Close the log publication, as a leader that ends in order."""
        self._log_publisher.close()

    def close(self) -> None:
        """Close the log publication and the recording log."""
        self.close_log()
        self._recording_log.close()

    # For the election: ElectionHost, as far as a leader comes

    def set_role(self, role: int) -> None:
        self.role = int(role)

    def set_election_state(self, state: int, reason: str) -> None:
        pass

    def now_ns(self) -> int:
        return seam.nano_time(self.peer.client)

    def random(self) -> float:
        return 0.0  # it is first to ask for votes

    def report(self, error: BaseException) -> None:
        self.errors.append(error)

    def commit_position(self) -> int:
        return self._commit_position

    def is_taking_snapshot(self) -> bool:
        return False

    def candidate_term_id(self) -> int:
        return self._candidate_term_id

    def propose_max_candidate_term_id(self, candidate_term_id: int, log_position: int) -> int:
        del log_position
        self._candidate_term_id = max(self._candidate_term_id, candidate_term_id)
        return self._candidate_term_id

    def end_of_term(self, leadership_term_id: int) -> int:
        entry = self._recording_log.find_term_entry(leadership_term_id)
        return 0 if entry is None else max(0, entry.log_position)

    def base_of_term(self, leadership_term_id: int) -> int:
        entry = self._recording_log.find_term_entry(leadership_term_id)
        return NULL_POSITION if entry is None else entry.term_base_log_position

    def base_after_term(self, leadership_term_id: int) -> int:
        entry = self._recording_log.find_term_after(leadership_term_id)
        return NULL_POSITION if entry is None else entry.term_base_log_position

    def ensure_term(self, initial_term: int, initial_base: int, term: int, base: int, end: int) -> None:
        if self._log is None and self.state is ElectionState.LEADER_LOG_REPLICATION:
            return  # a new log has no recording yet
        self._recording_log.ensure_coherent(
            recording_id=RECORDING_ID if self._log is None else self._log.recording_id,
            initial_log_leadership_term_id=initial_term,
            initial_term_base_log_position=initial_base,
            leadership_term_id=term,
            term_base_log_position=base,
            log_position=end,
            timestamp=seam.epoch_ms(self.peer.client),
        )

    def begin_preparation(self, log_position: int) -> None:
        del log_position
        self._log_publisher.close()
        self.followers.clear()

    def poll_preparation(self) -> int:
        return self._append_position

    def begin_log_publication(self, append_position: int) -> None:
        client, this_member = self.peer.client, self.peer.members.this_member
        channel = channels.log_publication_channel(
            LOG_CHANNEL,
            channel_tag=seam.next_correlation_id(client),
            publication_tag=seam.next_correlation_id(client),
            append_position=append_position,
            log=self._log,
            log_endpoint=this_member.log_endpoint,
            member_count=self.peer.members.count(),
            is_control_enabled=True,
        )
        self._adding = seam.begin_add_publication(client, channel, LOG_STREAM_ID, exclusive=True)

    def poll_log_publication(self) -> int | None:
        if not self._has_publication:
            return None
        assert self._adding is not None
        publication: Any = seam.poll_add(self._adding)
        if publication is None:
            return None
        self._log_publisher.set_publication(publication)
        self._adding_destinations += [
            seam.begin_add_destination(publication, channels.destination(LOG_CHANNEL, member.log_endpoint))
            for member in self.peer.members.others()
        ]
        return int(publication.session_id)

    def new_log_replay(self, log_position: int, stop_position: int) -> Replay:
        return Replay(stop_position, self.last_state is not ElectionState.LEADER_REPLAY)

    def begin_join_as_leader(self, term: int, log_position: int, session_id: int, is_startup: bool) -> None:
        pass

    def poll_join_as_leader(self) -> bool:
        return self.last_state is not ElectionState.LEADER_INIT

    def append_new_leadership_term_event(self, leadership_term_id: int, log_position: int) -> bool:
        publication = self._log_publisher.publication
        if self.last_state is ElectionState.LEADER_READY or publication is None:
            return False
        event = {
            "leadership_term_id": leadership_term_id,
            "log_position": log_position + EVENT_LENGTH,
            "timestamp": seam.epoch_ms(self.peer.client),
            "term_base_log_position": log_position,
            "leader_member_id": self.peer.members.this_member.id,
            "log_session_id": publication.session_id,
            "time_unit": TIME_UNIT_MILLIS,
            "app_version": APP_VERSION,
        }
        position = seam.offer(publication, codecs.encode("cluster", "NewLeadershipTermEvent", **event))
        self.end_position = max(self.end_position, position)
        return position > 0

    def update_leader_position(self, now_ns: int, quorum_position: int) -> int:
        if self.election.is_closed and not self._is_committing:
            quorum_position = min(quorum_position, self._append_position)
        if (
            quorum_position <= self._commit_position
            and now_ns - self._commit_said_ns < self.settings.leader_heartbeat_interval_ns
        ):
            return 0
        self._commit_position = max(self._commit_position, min(quorum_position, self.end_position))
        self._commit_said_ns = now_ns
        self.publish_commit_position(self._commit_position, self.election.leadership_term_id)
        return 1

    def track_catchup_completion(self, member: ClusterMember, leadership_term_id: int, flags: int) -> None:
        pass

    def publish_canvass_position(self, log_term: int, append_position: int, term: int) -> None:
        pass  # else one of the others would ask for votes first at times

    def request_vote(self, member: ClusterMember, log_term: int, append_position: int, candidate_term: int) -> bool:
        return self.peer.publisher.request_vote(member, log_term, append_position, candidate_term)

    def place_vote(
        self, candidate: ClusterMember, candidate_term: int, log_term: int, append_position: int, vote: bool
    ) -> None:
        self.peer.publisher.place_vote(candidate, candidate_term, log_term, append_position, vote)

    def publish_new_leadership_term(
        self,
        member: ClusterMember,
        log_term: int,
        term: int,
        append_position: int,
        commit_position: int,
        session_id: int,
        is_startup: bool,
    ) -> None:
        if not self._may_speak():
            return
        entry = self._next_term(log_term, member.log_position)
        following = (term, append_position, NULL_POSITION)
        if entry is not None:
            end = append_position if entry.log_position == NULL_POSITION else entry.log_position
            following = (entry.leadership_term_id, entry.term_base_log_position, end)
        self.peer.publisher.new_leadership_term(
            member,
            log_term,
            *following,
            term,
            append_position,
            append_position,
            commit_position,
            RECORDING_ID if self._log is None else self._log.recording_id,
            seam.epoch_ms(self.peer.client),
            session_id,
            APP_VERSION,
            is_startup,
        )

    def _next_term(self, log_term: int, log_position: int) -> RecordingLogEntry | None:
        own = self._recording_log.find_term_entry(log_term)
        if own is not None and log_position < own.term_base_log_position == own.log_position:
            return own
        return self._recording_log.find_term_entry(log_term + 1)

    def publish_commit_position(self, commit_position: int, leadership_term_id: int) -> None:
        for member in self.peer.members.others():
            if self._may_speak():
                self.peer.publisher.commit_position(member, leadership_term_id, commit_position)

    def _may_speak(self) -> bool:
        is_allowed = self._messages_left > 0
        self._messages_left -= is_allowed
        return is_allowed

    def election_complete(self, now_ns: int) -> None:
        self._commit_said_ns = now_ns - self.settings.leader_heartbeat_interval_ns
