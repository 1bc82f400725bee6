"""A replay of what a real node recorded, beside what its clients got and what its service wrote."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from container.__main__ import main
from container.api import Header, MessageBuffer
from container.client import AeronCluster, EgressListener
from container.recordings import open_member
from container.replay.execution import plan_replay, replay_segment
from container.testing.processes.local_cluster import LocalCluster, Node
from container.testing.processes.process import wait_until
from examples.ledger_service import TRANSFER
from tests.limits import LIMIT_S
from tests.replay_world import egress, of_kind, replayed, rows
from tests.soak.ledger import ANSWER, COMMAND, Op
from tests.soak.ledger_service import SequencedLedgerService
from tests.soak.scenario import PYTHON_LEDGER
from tests.system.harness import REPORTING_SERVICE, CommandClient, NodeFactory, Parts, await_report, reports, start

pytestmark = pytest.mark.nodes("native", "java")

HASTY_LEDGER = [sys.executable, "-m", "tests.system.hasty_ledger"]
SERVICE = "tests.system.reporting_service:ReportingService"


class NotingClient(CommandClient):
    """Keeps all that it got, in the form of a replay's rows, but for the log position that no client knows."""

    def __init__(self, node: Node) -> None:
        self.answers: list[tuple[int, int, bytes]] = []
        super().__init__(node)

    def on_message(self, cluster_session_id: int, timestamp: int, buffer: MessageBuffer, header: Header) -> None:
        self.answers.append((timestamp, cluster_session_id, bytes(buffer)))
        super().on_message(cluster_session_id, timestamp, buffer, header)


def names_and_values(found: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in found]


def test_a_replay_is_what_clients_got_and_what_the_service_recorded(node: NodeFactory) -> None:
    member = node()
    service = start(member, REPORTING_SERVICE)
    with NotingClient(member) as client, NotingClient(member) as other:
        for length in (0, 1, 1000, 5000, 60_000):
            assert client.do("length", text="x" * length) == length
        deadlines = [
            (correlation_id, client.do("schedule", correlation_id=correlation_id, delay_ms=delay_ms))
            for correlation_id, delay_ms in ((3, 1), (-4, 1), (77, 3_600_000))
        ]
        await_report(service, "on_timer_event", count=2)
        other.do("send", length=3000, count=2)
        client.do("pad", length=200_000)
        member.take_snapshot()
        client.send("raise", text="this one is not answered")
        client.do("cancel", correlation_id=77)
        other.do("close", session_id=client.session_id)
        await_report(service, "on_session_close")
        assert other.do("sessions") == [other.session_id]
        position = reports(service, "on_session_message")[-1]["log_position"]
        member.await_commit_position(position, LIMIT_S)
        # While it runs: up to where its counter says that the log is committed.
        found = replayed(member.base_dir, SERVICE, mode="permissive", end_position=position)
        segments = plan_replay(open_member(member.base_dir), end_position=position)
        seen = reports(service)

    for one in (client, other):
        answers = [answer[1:] for answer in egress(found) if answer[2] == one.session_id]
        assert answers == one.answers
    assert {row["log_position"] for row in of_kind(found, "EGRESS")} <= {
        report["header_position"] for report in seen if report["callback"] == "on_session_message"
    }
    assert names_and_values(of_kind(found, "SCHEDULE_TIMER"), "correlation_id", "deadline") == deadlines
    assert names_and_values(of_kind(found, "CANCEL_TIMER"), "correlation_id") == [(77,)]
    assert names_and_values(of_kind(found, "CLOSE_SESSION"), "cluster_session_id") == [(client.session_id,)]
    assert names_and_values(of_kind(found, "SERVICE_MESSAGE"), "payload") == [(b"s" * 3000,)] * 2
    (error,) = of_kind(found, "ERROR")
    assert error["error"] == "RuntimeError: this one is not answered"
    taken = next(report["log_position"] for report in seen if report["callback"] == "on_take_snapshot")
    recorded = [row for row in of_kind(found, "STATE_HASH") if "recorded_state_hash" in row]
    assert [row["log_position"] for row in recorded] == [taken]
    assert recorded[0]["state_hash"] == recorded[0]["recorded_state_hash"]
    # From the snapshot that the service wrote in the cluster, the rest is the same.
    assert [(one.begin_position, one.begin_snapshot is not None) for one in segments] == [(0, False), (taken, True)]
    parts = [rows(replay_segment(segment, SERVICE, mode="permissive")) for segment in segments]
    assert [row for part in parts for row in part] == found
    assert of_kind(parts[1], "EGRESS")


def test_a_divergence_in_the_log_of_a_real_member_is_located(
    node: NodeFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    member = node()
    start(member, HASTY_LEDGER)
    good, hasty = "examples.ledger_service:LedgerService", "tests.system.hasty_ledger:HastyLedger"
    with NotingClient(member) as client:

        def transfer(number: int, account: int) -> None:
            client.cluster.send(TRANSFER.pack(1, number, account, 10))
            wait_until(
                lambda: client.cluster.poll_egress() or len(client.answers) == number, LIMIT_S, f"answer {number}"
            )

        for number, account in enumerate((1, 7, 2), 1):
            transfer(number, account)
        member.take_snapshot()
        before = member.commit_position
        for number, account in enumerate((7, 7, 7), 4):
            transfer(number, account)
        member.take_snapshot()
        position = behind = member.commit_position
    assert before is not None
    assert behind is not None

    def replay(*arguments: str) -> tuple[int, str]:
        status = main(["replay", str(member.base_dir), *arguments, "--until", str(position)])
        shown = capsys.readouterr()
        return status, shown.out + shown.err

    status, text = replay(good, "--begin", "0")
    assert status == 1
    assert (
        f"state at log position {behind} differs from the recorded state; it diverged after log position {before}"
        in text
    )
    # The message itself, by the release that recorded it.
    status, text = replay(good, "--other", hasty, "--begin", "0")
    assert status == 1
    located = re.search(r"differs from .* from log position (\d+) on", text)
    assert located is not None
    assert before < int(located[1]) < behind, text


class Answers(EgressListener):
    """Keeps the answers that a client got, with their cluster time."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, bytes]] = []

    def on_message(self, cluster_session_id: int, timestamp: int, buffer: MessageBuffer, header: Header) -> None:
        self.answers.append((timestamp, bytes(buffer)))


@pytest.mark.slow
def test_replays_of_three_members_are_the_same_over_the_death_of_a_leader(tmp_path: Path, parts: Parts) -> None:
    listener, sequence = Answers(), 0
    with LocalCluster([PYTHON_LEDGER], **parts).start() as three:
        leader = three.await_ready()
        three.start_client_driver()
        settings = three.client_settings()
        with AeronCluster.connect(message_timeout=2 * LIMIT_S, listener=listener, **settings) as client:

            def carry_out(count: int) -> None:
                """Commands of all kinds, and all of their answers."""
                nonlocal sequence
                for _ in range(count):
                    sequence += 1
                    number = (Op.ADD, Op.ADD, Op.TIMER, Op.RELAY)[sequence % 4]
                    client.send(COMMAND.pack(number, 1, sequence, sequence, 10) + bytes(sequence % 7 * 500))
                wait_until(
                    lambda: client.poll_egress() >= 0 and len(listener.answers) >= sequence, LIMIT_S, "the answers"
                )

            carry_out(100)
            three.take_snapshot()
            carry_out(60)
            leader.kill()
            three.await_leader(other_than=leader)
            leader.restart()
            three.await_ready()
            three.take_snapshot()
            session_id = client.cluster_session_id
        three.shut_down()
        paths = [member.node.base_dir for member in three.members]
        end = min(open_member(path).log_range().committed_position for path in paths)
        replays = [
            replayed(path, lambda: SequencedLedgerService(tmp_path), mode="permissive", end_position=end)
            for path in paths
        ]
    first, *others = replays
    assert of_kind(first, "ERROR", "WARNING") == []
    answers = [answer for answer in egress(first) if answer[2] == session_id]
    assert [(timestamp, payload) for _, timestamp, _, payload in answers] == listener.answers
    assert [position for position, *_ in answers] == [ANSWER.unpack(payload)[3] for *_, payload in answers]
    assert {row["kind"] for row in first} == {"EGRESS", "SCHEDULE_TIMER", "SERVICE_MESSAGE", "STATE_HASH"}
    compared = [[row for row in of_kind(found, "STATE_HASH") if "recorded_state_hash" in row] for found in replays]
    assert len(compared[0]) >= 2
    assert all(row["state_hash"] == row["recorded_state_hash"] for found in compared for row in found)
    for found in replays:
        for row in found:
            row.pop("recorded_state_hash", None)
    assert others == [first, first]
