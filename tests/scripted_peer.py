"""A member of a cluster that a test plays: it says what the test says, and notes what the others say.

It has the consensus module's own publisher and adapter, over whatever client it is given, and nothing else of a member.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from container.common.aeron_defaults import CONSENSUS_STREAM_ID
from container.consensus import channels
from container.consensus.cluster_member import ClusterMember, ClusterMembers, parse_cluster_members
from container.consensus.consensus_adapter import ConsensusAdapter
from container.consensus.consensus_event_handler import ConsensusEventHandler
from container.consensus.consensus_publisher import ConsensusPublisher
from container.testing.memory import transport_probe as seam
from container.testing.processes.process import wait_until
from container.transport.transport_seam import Client

CHANNEL = "aeron:udp"
HABIT_INTERVAL_NS = 50_000_000


class Heard(NamedTuple):
    """A message by its name, and its fields."""

    name: str
    fields: dict[str, Any]


class Ear(ConsensusEventHandler):
    """Notes the messages of other members, and what is reported."""

    def __init__(self) -> None:
        self.heard: list[Heard] = []
        self.errors: list[BaseException] = []

    def report(self, error: BaseException) -> int:
        self.errors.append(error)
        return 0

    def note(self, name: str, fields: dict[str, Any]) -> int:
        del fields["self"]
        self.heard.append(Heard(name, fields))
        return 0

    def on_canvass_position(
        self,
        log_leadership_term_id: int,
        log_position: int,
        leadership_term_id: int,
        follower_member_id: int,
        protocol_version: int,
    ) -> int:
        return self.note("CanvassPosition", dict(locals()))

    def on_request_vote(
        self,
        log_leadership_term_id: int,
        log_position: int,
        candidate_term_id: int,
        candidate_member_id: int,
        protocol_version: int,
    ) -> int:
        return self.note("RequestVote", dict(locals()))

    def on_vote(
        self,
        candidate_term_id: int,
        log_leadership_term_id: int,
        log_position: int,
        candidate_member_id: int,
        follower_member_id: int,
        vote: bool,
    ) -> int:
        return self.note("Vote", dict(locals()))

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
    ) -> int:
        return self.note("NewLeadershipTerm", dict(locals()))

    def on_append_position(
        self, leadership_term_id: int, log_position: int, follower_member_id: int, flags: int
    ) -> int:
        return self.note("AppendPosition", dict(locals()))

    def on_commit_position(self, leadership_term_id: int, log_position: int, leader_member_id: int) -> int:
        return self.note("CommitPosition", dict(locals()))

    def on_catchup_position(
        self, leadership_term_id: int, log_position: int, follower_member_id: int, catchup_endpoint: str
    ) -> int:
        return self.note("CatchupPosition", dict(locals()))

    def on_stop_catchup(self, leadership_term_id: int) -> int:
        return self.note("StopCatchup", dict(locals()))

    def on_termination_position(self, leadership_term_id: int, log_position: int) -> int:
        return self.note("TerminationPosition", dict(locals()))

    def on_termination_ack(self, leadership_term_id: int, log_position: int, member_id: int) -> int:
        return self.note("TerminationAck", dict(locals()))


class ScriptedPeer:
    """One of the ``members`` (str, as the setting ``cluster_members``), which hears and speaks over ``client``."""

    def __init__(self, client: Client, members: str, member_id: int) -> None:
        self.client = client
        self.members = ClusterMembers(parse_cluster_members(members), member_id)
        self.ear = Ear()
        #: What it says each 50 ms, until a test takes it away.
        self.habit: Callable[[], object] | None = None
        self._habit_due_ns = 0
        self.publisher = ConsensusPublisher(
            client,
            self.members,
            channel=CHANNEL,
            stream_id=CONSENSUS_STREAM_ID,
            is_control_enabled=True,
            on_error=self.ear.errors.append,
        )
        endpoint = self.members.this_member.consensus_endpoint
        self.adapter = ConsensusAdapter(
            seam.add_subscription(
                client, channels.consensus_subscription_channel(CHANNEL, endpoint), CONSENSUS_STREAM_ID
            ),
            self.ear,
            self.members,
        )

    @property
    def heard(self) -> list[Heard]:
        """Messages of the others that no :meth:`take` has taken."""
        return self.ear.heard

    @property
    def errors(self) -> list[BaseException]:
        """The reported errors."""
        return self.ear.errors

    def member(self, member_id: int) -> ClusterMember:
        """Another member, to be spoken to."""
        found = self.members.find(member_id)
        assert found is not None
        return found

    def work(self) -> int:
        """Take a turn; how much was done."""
        work_count, now_ns = seam.invoke(self.client), seam.nano_time(self.client)
        work_count += self.publisher.poll_adds(now_ns) + self.adapter.poll()
        if self.habit is not None and now_ns >= self._habit_due_ns:
            self._habit_due_ns = now_ns + HABIT_INTERVAL_NS
            self.habit()
        return work_count

    def until(self, condition: Callable[[], object], limit_s: float, what: str) -> None:
        """Take turns in real time until the condition holds."""

        def holds() -> object:
            self.work()
            return condition()

        wait_until(holds, limit_s, what)

    def take(self, name: str, **fields: object) -> dict[str, Any] | None:
        """The fields of the first message of that name, and with those values, that was heard; it is forgotten then."""
        for index, each in enumerate(self.heard):
            if each.name == name and fields.items() <= each.fields.items():
                return self.heard.pop(index).fields
        return None

    def hear(self, name: str, limit_s: float, **fields: object) -> dict[str, Any]:
        """Take turns until such a message is heard; its fields."""
        taken: list[dict[str, Any]] = []

        def is_heard() -> bool:
            found = self.take(name, **fields)
            taken.extend([] if found is None else [found])
            return found is not None

        self.until(is_heard, limit_s, f"member {self.members.this_member.id} to hear {name} with {fields}")
        return taken[0]

    def close(self) -> None:
        """Close publications and subscription."""
        self.publisher.close()
        self.adapter.close()
