"""The rows and lines of the live view: what is shown of nodes that run, lag, are dead or cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from container.operate.facts import ServiceStatus, Status
from container.operate.node_metrics import COMMIT_POSITION, ERRORS, MAX_CYCLE, SESSIONS, UP, NodeSample, Sample
from container.operate.node_rows import COLUMNS, details, duration, rows, short_name, size

MIB = 1024 * 1024


def node(member_id: int = 0, commit: int | None = 2 * MIB, recorded: int = 2 * MIB, **changed: Any) -> NodeSample:
    path = Path(f"/var/lib/member-{member_id}/cluster")
    status = {
        "cluster_dir": str(path),
        "member_id": member_id,
        "cluster_id": 7,
        "component": "CONSENSUS_MODULE",
        "node": "running",
        "pid": 4711,
        "activity_timestamp_ms": 1_700_000_000_000,
        "is_driver_alive": True,
        "archive": "running",
        "archive_activity_timestamp_ms": 1_700_000_000_000,
        "archive_id": 1,
        "module_state": "ACTIVE",
        "role": "FOLLOWER",
        "election_state": "CLOSED",
        "election_count": 2,
        "leadership_term_id": 3,
        "commit_position": commit,
        "recorded_position": recorded,
        "control_toggle": "NEUTRAL",
        "snapshot_count": 1,
        "log_start_position": 0,
        "snapshots_retained": 0,
        "last_snapshot": None,
        "consensus_module_errors": 0,
        "timed_out_clients": 4,
        "backup": None,
        "services": [ServiceStatus(service_id=0, state="running", pid=4712, activity_timestamp_ms=None, error_count=0)],
        "problems": [],
        **changed,
    }
    labels = (str(path), "7", str(member_id))
    samples = [Sample(UP, labels[:1], 1), Sample(SESSIONS, labels, 12)]
    samples += [Sample(ERRORS, (*labels, part), 1) for part in ("archive", "service-0")]
    samples += [Sample(MAX_CYCLE, (*labels, part), value) for part, value in (("archive", 0.002), ("service-0", 1.26))]
    if commit is not None:
        samples.append(Sample(COMMIT_POSITION, labels, commit))
    return NodeSample(path, samples, Status(**status), "")


def test_a_leader_and_a_follower_that_lags() -> None:
    found = [node(0, role="LEADER"), node(1, commit=MIB, recorded=MIB // 2)]
    before = {found[0].path: MIB}
    assert [tuple(row) for row in rows(found, before, 2.0)] == [
        ("member-0", "0", "LEADER", "ACTIVE", "3", "2097152", "0", "512K", "12", "2", "1.3s"),
        ("member-1", "1", "FOLLOWER", "ACTIVE", "3", "1048576", "1.5M", "-", "12", "2", "1.3s"),
    ]


def test_clusters_are_not_compared_with_each_other() -> None:
    found = [node(0), node(1, commit=10 * MIB, recorded=10 * MIB, cluster_id=8)]
    assert [row.behind for row in rows(found, {}, 1.0)] == ["0", "0"]


def test_a_node_that_is_dead_or_unreadable_or_electing() -> None:
    dead = node(0, None, node="dead", module_state=None, role=None, election_state=None, leadership_term_id=None)
    electing = node(1, election_state="CANVASS")
    unreadable = NodeSample(Path("/nowhere"), [], None, "/nowhere does not exist")
    found = rows([dead, electing, unreadable], {}, 0.0)
    assert (found[0].state, found[0].role, found[0].term, found[0].committed) == ("dead", "-", "-", "-")
    assert (found[1].state, found[1].per_s) == ("election", "-")
    assert found[2] == ("nowhere", "-", "-", "unknown", "-", "-", "-", "-", "-", "-", "-")
    assert details(unreadable, None) == ["/nowhere", "/nowhere does not exist"]


def test_the_widest_row_fits_80_columns() -> None:
    found = node(10, 2**50, 0, role="FOLLOWER", module_state="TERMINATING", leadership_term_id=123_456)
    (row,) = rows([found], {found.path: 0}, 1.0)
    assert len(row.node) <= 10
    widths = [max(len(head), len(value)) + 1 for head, value in zip(COLUMNS, row, strict=True)]
    assert sum(widths) <= 100
    (usual,) = rows([node(1, 2**36, 0, role="FOLLOWER")], {}, 1.0)
    assert sum(max(len(head), len(value)) + 1 for head, value in zip(COLUMNS, usual, strict=True)) <= 80


def test_the_lines_about_a_node() -> None:
    assert details(node(0), None) == [
        "/var/lib/member-0/cluster  pid 4711 running",
        "driver running   archive running   services 0 running",
        "election CLOSED (2 since its start)   asked for NEUTRAL   clients lost 4",
        "snapshots 1, no snapshot",
        "errors archive 1, service-0 1",
        "longest cycle archive 2ms, service-0 1.3s",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0"),
        (999, "999"),
        (1000, "1.0K"),
        (1536, "1.5K"),
        (20 * 1024, "20K"),
        (999 * 1024, "999K"),
        (2**50, "1.0P"),
        (2**70, "1024E"),
    ],
)
def test_sizes(value: float | None, text: str) -> None:
    assert size(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0us"), (0.000_05, "50us"), (0.087, "87ms"), (1.26, "1.3s"), (75, "75s")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_short_names() -> None:
    assert short_name(Path("/var/lib/cluster-0/cluster")) == "cluster-0"
    assert short_name(Path("/var/lib/aeron-node-0-abcdefgh")) == "~-abcdefgh"
    assert short_name(Path("/")) == "/"
