"""What users of upstream reported, as scenarios: what went wrong there, and what our container does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from container.api import Role
from container.clustered_service_container import ClusteredServiceContainer
from container.common.aeron_defaults import CONTROL_CHANNEL
from container.context import Context
from container.errors import ClusterEvent, MarkFileError
from container.testing.memory.memory_stores import MemorySnapshotStore
from container.testing.memory.memory_transport import MemoryClient
from container.testing.memory.recording_service import RecordingService
from container.testing.memory.scripted_member import ScriptedMember
from tests.conformance_table import TESTS, names_of_tests
from tests.service_cluster import ChattyService, Diverged, ServiceCluster
from tests.soak.faults import FAULTS
from tests.test_cluster_mark_file import file_size_limit, saved_errors

BACK_PRESSURED, ADMIN_ACTION = -2, -3
NODES = range(3)


def live(cluster: ServiceCluster, events: int = 60) -> None:
    """A cluster's life with requests, killed leaders and followers, elections and restarts."""
    rng = cluster.rng
    for number in range(events):
        match rng.randrange(8):
            case 0 if len(cluster.nodes) == len(NODES):
                cluster.kill(cluster.leader_index)
                cluster.elect()
            case 1 if len(cluster.nodes) == len(NODES):
                cluster.kill(rng.choice([index for index in NODES if index != cluster.leader_index]))
            case 2 if len(cluster.nodes) < len(NODES):
                cluster.restart_missing()
            case 3:
                cluster.elect()  # the leader loses its followers for a while, and leads no more
            case 4 if rng.random() < 0.3:
                cluster.snapshot()
            case _:
                cluster.request(f"request {number}")
        cluster.step()


# --- service messages lost or doubled across failover with several services


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("service_count", [1, 2, 3])
def test_no_service_message_is_lost_or_doubled_across_failover(service_count: int, seed: int) -> None:
    """Pull request 1703: with several services that send to the cluster, messages were skipped or doubled when another
    member became leader, or a node restarted.

    The services of one node are not in step, and so their messages reach the consensus module in another order on each
    member; its old queue for all of them together counted them by that order. Since then there is a queue for each
    service, known by the service id that a container puts in place of a session id. Ours does, on every member, with
    every role and again during a replay: after any failover each message is in the log once.
    """
    cluster = ServiceCluster(service_count, seed)
    live(cluster)
    cluster.check()
    cluster.restart_missing()
    cluster.request("asked before the leader fell")
    cluster.step()
    cluster.kill(cluster.leader_index)
    cluster.elect()
    cluster.request("asked after the leader fell")
    cluster.check()
    cluster.restart_missing()
    cluster.check()
    assert len(cluster.nodes) == len(NODES)


def test_the_scenario_fails_with_the_consensus_module_of_that_report() -> None:
    """With one queue for all services, as it was, the same lives lose or double messages: the scenario is the right
    one."""
    wrong = 0
    for seed in range(8):
        cluster = ServiceCluster(3, seed, is_one_queue=True)
        try:
            live(cluster)
            cluster.check()
        except (AssertionError, Diverged):
            wrong += 1
    assert wrong > 0


def test_services_of_one_node_are_numbered_apart_whatever_their_order() -> None:
    """The cause of pull request 1703, seen alone: two members whose services answer in opposite order."""
    cluster = ServiceCluster(2)
    cluster.request("one")
    cluster.request("two")
    leader = cluster.leader
    for node in cluster.nodes.values():
        node.appended = len(cluster.entries)
        node.apply(cluster.entries, len(cluster.entries))
        for member in node.members if node is leader else reversed(node.members):
            while member.work(1):
                pass
        node.work()
    pending = [[tracker.pending for tracker in node.trackers] for node in cluster.nodes.values()]
    assert pending[0] == pending[1] == pending[2]
    assert [number for number, _payload in pending[0][0]] == [1, 2, 3, 4]
    cluster.check()


# --- service messages dropped after a crash of all members, or after a new leader


@pytest.mark.parametrize("has_snapshot", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_service_messages_arrive_after_all_members_have_crashed(seed: int, has_snapshot: bool) -> None:
    """Issue 1879: after all three members had crashed and started again, offers to the cluster succeeded and the
    messages never came, with any leader. Issue 1458 tells the same of starts from a snapshot.

    A consensus module drops what a service sends until it has sent as much as the log already has of it, which it does
    during the replay, if it is deterministic and its container lets it send then. Ours lets it: the numbers fit again
    after the replay, from the beginning of the log as well as from a snapshot, and new messages come.
    """
    cluster = ServiceCluster(2, seed)
    for number in range(5):
        cluster.request(f"before {number}")
        cluster.step()
    if has_snapshot:
        cluster.settle()
        cluster.snapshot()
        cluster.settle()
    for number in range(5):
        cluster.request(f"between {number}")
        cluster.step()
    committed = cluster.committed
    for index in NODES:
        cluster.kill(index)
    del cluster.entries[committed:]
    for index in NODES:
        cluster.restart(index)
        cluster.nodes[index].appended = committed
    cluster.elect()
    cluster.request("after")
    cluster.check()
    for node in cluster.nodes.values():
        assert node.members[0].service.requests[-1] == "after"
        assert len({tracker.next_number for tracker in node.trackers}) == 1
        for tracker in node.trackers:
            tracker.verify()


class LeaderOnlyService(ChattyService):
    """Makes the mistake of sending on the leader only."""

    def tell(self, text: str) -> None:
        if self.cluster.role.name == "LEADER":
            super().tell(text)


def test_a_service_that_sends_on_the_leader_only_loses_messages_after_a_failover() -> None:
    """Issue 1903: after a failover the new leader's offers succeeded and the messages were dropped.

    The service sent on the leader only, as one does with messages to clients. The new leader's service then sends
    number 1 when the log has as many as the old leader sent, and the consensus module drops it. No container can mend
    that. Ours says in ``Cluster.offer`` that it must be called on all members, and sends on all of them.
    """
    cluster = ServiceCluster(1, make_service=LeaderOnlyService)
    cluster.request("one")
    cluster.check()
    cluster.kill(cluster.leader_index)
    cluster.elect()
    cluster.request("two")
    with pytest.raises(AssertionError, match="lost or doubled"):
        cluster.check()


# --- a snapshot refused after back pressure was ignored


class CarelessService(ChattyService):
    """Offers once and looks at nothing; ``offered_at`` are the log positions of its offers."""

    def __init__(self, service_id: int, service_count: int) -> None:
        super().__init__(service_id, service_count)
        self.offered_at: list[int] = []

    def tell(self, text: str) -> None:
        self.offered_at.append(self.cluster.log_position)
        self.cluster.offer(text.encode())


@pytest.mark.parametrize("result", [BACK_PRESSURED, ADMIN_ACTION])
def test_an_offer_whose_back_pressure_is_ignored_is_reported_where_it_happened(result: int) -> None:
    """Issue 1466: a member refused to start from its snapshot, "snapshot has incorrect pending message state".

    The service had not retried an offer under back pressure, on one member, days before perhaps: from there on its
    count is one too small, and the snapshots had the count. By now a consensus module makes up for it in the next
    snapshot, and logs that a follower has missed messages. Until then the next message of the service is lost if that
    member leads. Our container says so at once, on that member, with the log position of the offer.
    """
    cluster = ServiceCluster(2, make_service=CarelessService)
    index, follower = next((index, node) for index, node in cluster.nodes.items() if not node.leads)
    service = follower.members[0].service
    cluster.request("one")
    cluster.settle()
    offers = len(service.offered_at)
    follower.driver.publication_results(CONTROL_CHANNEL, 105, [result])
    cluster.request("two")
    cluster.settle()
    (event,) = [error for member in follower.members for error in member.errors]
    assert isinstance(event, ClusterEvent)
    assert "Cluster.offer returned " in str(event)
    assert "a message to the cluster is lost on this member and the members may diverge; use Cluster.send" in str(event)
    assert f"at logPosition={service.offered_at[offers]} " in str(event)

    with pytest.raises(Diverged, match="snapshot has incorrect pending message state: serviceId=0 next=8 logged=8"):
        follower.trackers[0].verify()
    cluster.elect(index)
    cluster.request("three")
    with pytest.raises(AssertionError, match="lost or doubled"):
        cluster.check()


def test_the_next_snapshot_makes_up_for_an_offer_that_was_lost() -> None:
    """Issue 1466 again: what upstream does by now, with the snapshots of our services."""
    cluster = ServiceCluster(2, make_service=CarelessService)
    index, follower = next((index, node) for index, node in cluster.nodes.items() if not node.leads)
    cluster.request("one")
    cluster.settle()
    follower.driver.publication_results(CONTROL_CHANNEL, 105, [BACK_PRESSURED])
    cluster.request("two")
    cluster.settle()
    cluster.snapshot()
    cluster.settle()
    cluster.kill(index)
    cluster.restart(index)
    cluster.settle()
    cluster.elect(index)
    cluster.request("three")
    cluster.check()


@pytest.mark.parametrize("results", [[BACK_PRESSURED], [ADMIN_ACTION] * 3, [BACK_PRESSURED, ADMIN_ACTION] * 20])
def test_send_waits_back_pressure_out_and_the_snapshot_is_taken(results: list[int]) -> None:
    """Issue 1466 again, with ``Cluster.send``, which waits: nothing is lost, and the snapshot is good."""
    cluster = ServiceCluster(2)
    index = next(index for index, node in cluster.nodes.items() if not node.leads)
    cluster.request("one")
    cluster.settle()
    cluster.nodes[index].driver.publication_results(CONTROL_CHANNEL, 105, results)
    cluster.request("two")
    cluster.settle()
    cluster.snapshot()
    cluster.check()
    cluster.kill(index)
    cluster.restart(index)
    cluster.request("three")
    cluster.check()


# --- a mark file stranded by a full disk


@pytest.fixture
def contexts(client: MemoryClient, tmp_path: Path) -> Iterator[list[Context]]:
    """Three runs of a container, one after the other."""
    contexts = [
        Context(
            RecordingService(),
            client=client,
            snapshot_store=MemorySnapshotStore(client),
            environ={},
            cluster_dir=tmp_path,
            use_agent_invoker=True,
            fallback_logger="no_op",
        )
        for _run in range(3)
    ]
    yield contexts
    for context in contexts:
        context.close()


def test_a_full_disk_does_not_strand_the_mark_file(contexts: list[Context], tmp_path: Path) -> None:
    """Issue 2148: three members died of a full disk, and could not be started any more when there was space again.

    A start claims the mark file and then saves the errors of the last run to a file of their own. When that failed, the
    claim stayed, and it never goes stale: every later start found an active mark file, until somebody edited it byte by
    byte. Our start puts the file back as it was, whatever fails after the claim; with space again it works, and the
    errors are saved then.
    """
    mark_file = tmp_path / "cluster-mark-service-0.dat"
    first = ClusteredServiceContainer.launch(contexts[0])
    for number in range(100):
        kind = type(f"Error{number}", (Exception,), {})
        contexts[0].counted_error_handler(kind(f"no space left for {number}"))
    first.close()
    left = mark_file.read_bytes()
    with (
        file_size_limit(4096),
        pytest.raises(MarkFileError, match=r"errors of the last run cannot be saved to .*-error\.log: File too large"),
    ):
        ClusteredServiceContainer.launch(contexts[1])
    assert mark_file.read_bytes() == left
    assert saved_errors(mark_file) == []
    ClusteredServiceContainer.launch(contexts[2]).close()
    (saved,) = saved_errors(mark_file)
    assert "no space left for 99" in saved.read_text()


# --- logs that end with padding, commit positions and times that go back


@pytest.mark.parametrize("is_lost", [False, True], ids=["read to the end", "lost before its end"])
def test_a_log_that_ends_with_padding_alone_is_followed_to_its_end(is_lost: bool) -> None:
    """Pull request 1619: a node did not start again after a kill, because the last frame of its log was padding.

    Nothing is delivered for padding, so whoever counts what is delivered never comes to the end. Our container goes by
    the position of the image, also where the padding is what it has to get from its archive.
    """
    member = ScriptedMember().start()
    member.cm.begin_log("follower")
    log = member.cm.log
    assert log is not None
    member.store.record_log(log)
    member.cm.join_log(role=Role.FOLLOWER)
    member.deliver(b"before")
    log.fill_term()
    end = log.tail_position
    assert end % log.term_length == 0
    if is_lost:
        member.cm.lose_log()
    member.cm.commit(end)
    member.work(5)
    member.cm.join_as_follower()
    member.work(5)
    assert [ack.log_position for ack in member.cm.acks] == [0, 0, end]
    member.deliver(b"behind")
    assert member.service.messages == [b"before", b"behind"]
    assert member.errors == []


def test_a_commit_position_that_falls_back_delivers_nothing_twice() -> None:
    """Issue solved by a9d7215d74 in 1.50: the commit position fell back when a fast follower was started again."""
    member = ScriptedMember().lead()
    first, second, third = (member.cm.session_message(1, payload) for payload in (b"one", b"two", b"three"))
    member.commit(second)
    for position in (first, 0, second):
        member.commit(position)
        assert member.service.messages == [b"one", b"two"]
        assert member.service.cluster.log_position == second
    member.commit(third)
    assert member.service.messages == [b"one", b"two", b"three"]


def test_times_that_go_back_are_those_of_the_log() -> None:
    """Timestamps go back after a clock correction or a fail-over: nothing keeps them in order.

    They are in the log, and so the same on all members: a container that changed them would differ from one that did
    not. A service that needs rising times keeps the greatest that it has seen.
    """
    member = ScriptedMember().lead()
    times = []
    member.service.actions["on_session_message"] = lambda *_: times.append(member.service.cluster.time)
    for timestamp in (5_000, 4_000, 4_500, 1):
        member.cm.session_message(1, b"x", timestamp=timestamp)
    member.commit()
    assert times == [5_000, 4_000, 4_500, 1]
    assert [timestamp for _id, timestamp, *_rest in member.service.of("on_session_message")] == times


# --- the table of reports in docs/upstream.md


def test_each_report_names_a_test_that_is_there_or_why_it_is_not_ours() -> None:
    """The table of docs/upstream.md is in step with the tests."""
    text = (TESTS.parent / "docs" / "upstream.md").read_text(encoding="utf-8")
    section = text.partition("## What users of upstream reported")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 40
    known = names_of_tests() | {f"fault {name}" for name in FAULTS}
    for row in rows:
        report, here, shown = row
        assert report, row
        assert here, row
        named = re.findall(r"`([^`]+)`", shown)
        assert named or shown.startswith("not ours: "), row
        assert [name for name in named if name not in known] == [], row
