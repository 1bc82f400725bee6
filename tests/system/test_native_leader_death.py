"""The end of a native leader in each of its states: two members of the real jar have a leader again in time.

Members of upstream's wait for a leader without a deadline where its NewLeadershipTerm lets them.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from container.aeron import AeronClient
from container.client import AeronCluster
from container.consensus.election_host import NULL_POSITION, NULL_VALUE, ElectionState
from container.consensus.recovery_plan import Log
from container.files.catalog import read_catalog
from container.files.names import RECORDING_LOG_NAME
from container.files.recording_log import RecordingLog, RecordingLogEntry, read_recording_log
from container.storage.file_storage import FileStorage
from container.testing.memory import transport_probe as seam
from container.testing.processes.process import Process, wait_until
from tests.limits import LIMIT_S
from tests.native_leader import NativeLeader
from tests.system.harness import NodeFactory
from tests.system.trio import (
    ELECTION_TIMEOUT_S,
    HEARTBEAT_TIMEOUT_S,
    JAVA,
    RECORDING_ID,
    SESSION_ID,
    Trio,
    started_trio,
)

S = ElectionState

# Both notice within a heartbeat timeout, or two where an image must go first. Then a ballot takes at most a delay of
# half an election timeout and an election timeout, and the new leader's log a heartbeat timeout to be joined. Ballots
# that split, or are late on a busy machine, are held again.
BALLOT_S = 1.5 * ELECTION_TIMEOUT_S + HEARTBEAT_TIMEOUT_S
BALLOTS = 8
# 32 s, and some 3 s on a machine that does nothing else.
AGAIN_S = 2 * HEARTBEAT_TIMEOUT_S + BALLOTS * BALLOT_S


@dataclass
class Scene:
    """Both members, the driver of the peer, and the log that all of them have at first."""

    trio: Trio
    driver: Process
    directory: Path
    log_end: tuple[int, int] = (NULL_VALUE, 0)
    log: Log | None = None
    leader: NativeLeader | None = None

    def write_log(self) -> None:
        """Have both members record a log that they share, and start again with it: it is to be replayed then."""
        trio, peer = self.trio, self.trio.peer
        trio.canvass(NULL_VALUE, 0)
        leader = trio.members[trio.follow()["leader_member_id"]].node
        peer.habit = None
        peer.until(lambda: leader.is_leader, LIMIT_S, "a member of Java's to lead")
        properties = leader.client_properties()
        with AeronCluster.connect(
            aeron_dir=properties["aeron.dir"],
            ingress_channel=properties["aeron.cluster.ingress.channel"],
            ingress_endpoints=properties["aeron.cluster.ingress.endpoints"],
            egress_channel=properties["aeron.cluster.egress.channel"],
            message_timeout=LIMIT_S,
        ) as client:
            for _ in range(10):
                client.send(bytes(100))
        peer.until(self._is_all_recorded, LIMIT_S, "both to have and to commit the same log")
        for member in trio.members:
            member.kill()
        for member in trio.members:
            member.node.release_mark_files()
            member.start()
        (self.log_end,) = set(trio.hear_canvass().values())
        term = self._last_term()
        (recording,) = read_catalog(trio.members[0].node.archive_dir, [term.recording_id])
        self.log = Log(
            recording_id=term.recording_id,
            leadership_term_id=term.leadership_term_id,
            term_base_log_position=term.term_base_log_position,
            log_position=term.log_position,
            start_position=recording.start_position,
            stop_position=self.log_end[1],
            initial_term_id=recording.initial_term_id,
            term_buffer_length=recording.term_buffer_length,
            mtu_length=recording.mtu_length,
            session_id=recording.session_id,
        )
        shutil.copy(trio.members[0].node.cluster_dir / RECORDING_LOG_NAME, self.directory)

    def write_log_of_its_own(self, length: int) -> None:
        """Let the native member have a log, of a term 0, that both members have nothing of, as with new disks."""
        log = RecordingLog.open(FileStorage(), str(self.directory), create=True, file_sync_level=0)
        log.append_term(RECORDING_ID, 0, 0, 0)
        log.close()
        self.log = Log(
            recording_id=RECORDING_ID,
            leadership_term_id=0,
            term_base_log_position=0,
            log_position=NULL_POSITION,
            start_position=0,
            stop_position=length,
            initial_term_id=0,
            term_buffer_length=1 << 20,
            mtu_length=1408,
            session_id=SESSION_ID,
        )

    def _is_all_recorded(self) -> bool:
        positions = {each.node.commit_position for each in self.trio.members}
        positions |= {each.node.append_position for each in self.trio.members}
        return len(positions) == 1 and (positions.pop() or 0) > 1_000

    def _last_term(self, member_id: int = 0) -> RecordingLogEntry:
        entries = read_recording_log(self.trio.members[member_id].node.cluster_dir)
        return [entry for entry in entries if entry.is_valid_term][-1]

    def stand(
        self,
        last_state: ElectionState,
        *,
        gap: int = 1,
        ahead: int = 0,
        message_count: int | None = None,
        is_committing: bool = True,
    ) -> NativeLeader:
        """A native member with the log of both and as much more, whose first term is so far beyond theirs."""
        log_term_id, log_position = self.log_end
        self.leader = NativeLeader(
            self.trio.peer,
            self.directory,
            last_state=last_state,
            candidate_term_id=log_term_id + gap - 1,
            append_position=log_position + ahead,
            log=self.log,
            message_count=message_count,
            has_publication=ahead > 0 or last_state is not S.LEADER_LOG_REPLICATION,
            is_committing=is_committing,
        )
        return self.leader

    def lead_until(self, leader: NativeLeader, is_there: Callable[[], bool], what: str) -> None:
        """Have it take turns until it is in its last state, and something else holds."""

        def holds() -> bool:
            self.trio.peer.work()
            leader.turn()
            return leader.state is leader.last_state and is_there()

        self._wait(leader, holds, LIMIT_S, what)

    def await_leader(self, leader: NativeLeader, kept: int | None = None) -> None:
        """Wait until one of Java's leads a newer term and both have something of it that is committed.

        The term must begin behind what both had, or where ``kept`` says.
        """
        before = self.log_end[1] if kept is None else kept
        members = self.trio.members

        def is_led() -> bool:
            if self.driver.is_running:
                seam.invoke(self.trio.peer.client)
            if sorted(each.node.is_leader for each in members) != [False, True]:
                return False
            return all(each.node.election_is_closed and (each.node.commit_position or 0) > before for each in members)

        self._wait(leader, is_led, AGAIN_S, f"a leader of Java's, after the native one ended in {leader.state.name}")
        terms = [self._last_term(each) for each in JAVA]
        assert terms[0].leadership_term_id == terms[1].leadership_term_id > leader.election.leadership_term_id
        assert terms[0].term_base_log_position == terms[1].term_base_log_position >= before

    def _wait(self, leader: NativeLeader, condition: Callable[[], bool], limit_s: float, what: str) -> None:
        try:
            wait_until(condition, limit_s, what, [member.node.process for member in self.trio.members])
        except TimeoutError as error:
            error.add_note(self._report(leader))
            raise

    def _report(self, leader: NativeLeader) -> str:
        states = {each: S(state).name for each in JAVA if (state := self.trio.state(each)) is not None}
        return (
            f"the members are in {states}; {leader.election}; errors: {leader.errors}; heard: {leader.peer.heard[-5:]}"
        )

    def are_in(self, *states: ElectionState) -> bool:
        return all(self.trio.state(each) in states for each in JAVA)


@pytest.fixture
def scene(node: NodeFactory, tmp_path: Path) -> Iterator[Scene]:
    aeron_dir, directory = tmp_path / "driver", tmp_path / "member"
    directory.mkdir()
    command = [sys.executable, "-m", "container.testing.processes.client_driver", str(aeron_dir)]
    with Process("peer-driver", command, directory=tmp_path) as driver:
        driver.start()
        driver.wait_until(lambda: "ready" in driver.output(), LIMIT_S, "the driver of the peer to be ready")
        # Without the peer nobody leads before the native leader has.
        timeout = {"aeron_cluster_startup_canvass_timeout": f"{2 * LIMIT_S:.0f}s"}
        with AeronClient(aeron_dir) as client, started_trio(node, client, **timeout) as trio:
            trio.hear_canvass()
            found = Scene(trio, driver, directory)
            yield found
            assert not trio.peer.errors
            if found.leader is not None:
                found.leader.close()
            trio.peer.close()


LOGS = pytest.mark.parametrize(
    ("has_log", "gap"),
    [(False, 1), (True, 1), (True, 1000)],
    ids=["no log", "a log to replay", "a log to replay and a term far beyond"],
)


@pytest.mark.slow  # 15 s each
@LOGS
@pytest.mark.parametrize("state", [S.CANDIDATE_BALLOT, S.LEADER_LOG_REPLICATION], ids=lambda state: state.name)
def test_cm46_after_a_native_leader_that_has_said_no_term(
    scene: Scene, state: ElectionState, has_log: bool, gap: int
) -> None:
    if has_log:
        scene.write_log()
    leader = scene.stand(state, gap=gap)
    scene.lead_until(leader, lambda: scene.are_in(S.FOLLOWER_BALLOT), "both to have voted and to wait for the term")
    scene.await_leader(leader)


@pytest.mark.slow  # 15 s each
@LOGS
@pytest.mark.parametrize("state", [S.LEADER_REPLAY, S.LEADER_INIT, S.LEADER_READY], ids=lambda state: state.name)
def test_cm46_after_a_native_leader_that_has_said_its_term(
    scene: Scene, state: ElectionState, has_log: bool, gap: int
) -> None:
    if has_log:
        scene.write_log()
    leader = scene.stand(state, gap=gap)
    scene.lead_until(leader, lambda: leader.followers.keys() == set(JAVA), "both to follow")
    scene.await_leader(leader)


@pytest.mark.slow  # 15 s each
@pytest.mark.parametrize("message_count", [1, 2, 3])
def test_cm46_after_a_native_leader_that_has_said_its_term_to_one_or_to_both(scene: Scene, message_count: int) -> None:
    """Its first message, to the first member, must not be one that this member waits for ever for the next one after.

    The second is for the other member, and the third is the first one's commit position.
    """
    scene.write_log()
    leader = scene.stand(S.LEADER_REPLAY, message_count=message_count)
    scene.lead_until(leader, lambda: leader.is_silent and 0 in leader.followers, "the first member to follow")
    scene.await_leader(leader)


@pytest.mark.slow  # 15 s each
@LOGS
@pytest.mark.parametrize("is_committing", [False, True], ids=["uncommitted", "committed"])
def test_cm46_after_a_native_leader_whose_term_is_open(
    scene: Scene, has_log: bool, gap: int, is_committing: bool
) -> None:
    if has_log:
        scene.write_log()
    leader = scene.stand(S.CLOSED, gap=gap, is_committing=is_committing)

    def has_begun() -> bool:
        nodes = [member.node for member in scene.trio.members]
        positions = [node.commit_position if is_committing else node.append_position for node in nodes]
        return leader.end_position > scene.log_end[1] and positions == [leader.end_position] * len(JAVA)

    scene.lead_until(leader, has_begun, "both to have the begin of the term")
    scene.await_leader(leader, kept=leader.end_position)


@pytest.mark.slow  # 15 s
def test_after_a_native_leader_that_ends_in_order(scene: Scene) -> None:
    scene.write_log()
    leader = scene.stand(S.CLOSED)
    nodes = [member.node for member in scene.trio.members]
    scene.lead_until(
        leader,
        lambda: scene.log_end[1] < leader.end_position == nodes[0].commit_position == nodes[1].commit_position,
        "both to have committed the begin of the term",
    )
    leader.close_log()
    scene.await_leader(leader, kept=leader.end_position)


@pytest.mark.slow  # 20 s each
@pytest.mark.parametrize("has_log", [False, True], ids=["no log", "a log to replay"])
def test_after_a_native_leader_from_which_both_had_to_copy(scene: Scene, has_log: bool) -> None:
    if has_log:
        scene.write_log()
    else:
        scene.write_log_of_its_own(96)
    leader = scene.stand(S.LEADER_LOG_REPLICATION, ahead=96)
    scene.lead_until(leader, lambda: scene.are_in(S.FOLLOWER_LOG_REPLICATION), "both to copy the rest of the log")
    scene.await_leader(leader)


@pytest.mark.slow  # 15 s each
@pytest.mark.parametrize(
    "state", [S.CANDIDATE_BALLOT, S.LEADER_REPLAY, S.LEADER_READY, S.CLOSED], ids=lambda state: state.name
)
def test_after_a_native_leader_that_is_gone_with_its_driver_once_it_is_in_a_state(
    scene: Scene, state: ElectionState
) -> None:
    scene.write_log()
    leader = scene.stand(state)
    is_candidate = state is S.CANDIDATE_BALLOT
    scene.lead_until(
        leader, lambda: not is_candidate or scene.are_in(S.FOLLOWER_BALLOT), "it to come so far, and to have votes"
    )
    scene.driver.kill()
    scene.await_leader(leader)
