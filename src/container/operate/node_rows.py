"""The rows of a live view of nodes: a row of texts for each, and lines about one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from container.common.values import counted
from container.operate.node_metrics import COMMIT_POSITION, ERRORS, MAX_CYCLE, SESSIONS, Metric, NodeSample

COLUMNS = ("NODE", "MEMBER", "ROLE", "STATE", "TERM", "COMMITTED", "BEHIND", "PER S", "SESS", "ERR", "CYCLE")
"""Heads of the columns of :class:`NodeRow`, in its order."""

_UNKNOWN = "-"
_NAME_LENGTH_MAX = 10
_UNITS = ("", "K", "M", "G", "T", "P", "E")
_KIB = 1024
_US_PER_S = 1_000_000


class NodeRow(NamedTuple):
    """A node in one line, as texts that fit 80 columns."""

    node: str
    member: str
    role: str
    state: str
    term: str
    committed: str
    behind: str
    per_s: str
    sessions: str
    errors: str
    cycle: str


def rows(found: Sequence[NodeSample], committed_before: Mapping[Path, float], elapsed_s: float) -> list[NodeRow]:
    """Return the rows of nodes.

    Args:
        found: what was read of each node.
        committed_before: commit positions (bytes) at the look before, for the rate; of nodes that had one.
        elapsed_s: seconds since that look.
    """
    most: dict[int, float] = {}
    for each in found:
        position = commit_position(each)
        if position is not None and each.status is not None:
            cluster_id = each.status.cluster_id
            most[cluster_id] = max(most.get(cluster_id, 0), position)
    return [_row(each, most, committed_before.get(each.path), elapsed_s) for each in found]


def commit_position(found: NodeSample) -> float | None:
    """Return up to where a node knows the log committed, in bytes; None of one that does not run."""
    values = _values(found, COMMIT_POSITION)
    return values[0] if values else None


def _row(found: NodeSample, most: Mapping[int, float], before: float | None, elapsed_s: float) -> NodeRow:
    status = found.status
    name = short_name(found.path)
    if status is None:
        return NodeRow(name, _UNKNOWN, _UNKNOWN, "unknown", *[_UNKNOWN] * 7)
    is_running = status.node == "running"
    position = commit_position(found)
    recorded = status.recorded_position
    top = most.get(status.cluster_id)
    behind = None if top is None or recorded is None else max(0, top - recorded)
    rate = None if position is None or before is None or elapsed_s <= 0 else max(0.0, position - before) / elapsed_s
    state = status.module_state if is_running and status.module_state is not None else status.node
    if is_running and status.election_state not in (None, "CLOSED"):
        state = "election"
    sessions, errors, cycles = (_values(found, metric) for metric in (SESSIONS, ERRORS, MAX_CYCLE))
    return NodeRow(
        node=name,
        member=_UNKNOWN if status.member_id is None else str(status.member_id),
        role=status.role if is_running and status.role is not None else _UNKNOWN,
        state=state,
        term=_UNKNOWN if status.leadership_term_id is None else str(status.leadership_term_id),
        committed=_UNKNOWN if position is None else f"{position:.0f}",
        behind=size(behind),
        per_s=size(rate),
        sessions=f"{sessions[0]:.0f}" if sessions else _UNKNOWN,
        errors=f"{sum(errors):.0f}" if errors else _UNKNOWN,
        cycle=duration(max(cycles)) if cycles else _UNKNOWN,
    )


def _values(found: NodeSample, metric: Metric) -> list[float]:
    return [sample.value for sample in found.samples if sample.metric == metric]


def details(found: NodeSample, timer_count: int | None) -> list[str]:
    """Return lines about one node: its parts, its snapshots, what went wrong.

    Args:
        found: what was read of it.
        timer_count: timers in its latest snapshot; None when that is not known.
    """
    status = found.status
    if status is None:
        return [str(found.path), found.problem]
    services = ", ".join(f"{each.service_id} {each.state}" for each in status.services) or "none"
    snapshot = status.last_snapshot
    position = commit_position(found)
    if snapshot is None or snapshot.log_position is None:
        last = "no snapshot"
    else:
        to_replay = "" if position is None else f", {size(max(0, position - snapshot.log_position))} of log since"
        timers = "" if timer_count is None else f", {counted(timer_count, 'timer')} in it"
        last = f"last at {snapshot.log_position}{timers}{to_replay}"
    cycles = [f"{sample.labels[-1]} {duration(sample.value)}" for sample in found.samples if sample.metric == MAX_CYCLE]
    errors = [f"{sample.labels[-1]} {sample.value:.0f}" for sample in found.samples if sample.metric == ERRORS]
    lines = [
        f"{status.cluster_dir}  pid {status.pid} {status.node}",
        f"driver {'running' if status.is_driver_alive else 'dead'}   archive {status.archive}   services {services}",
        f"election {status.election_state or _UNKNOWN} ({_known(status.election_count)} since its start)   "
        f"asked for {status.control_toggle or _UNKNOWN}   clients lost {_known(status.timed_out_clients)}",
        f"snapshots {_known(status.snapshot_count)}, {last}",
        f"errors {', '.join(errors) or _UNKNOWN}",
        f"longest cycle {', '.join(cycles) or _UNKNOWN}",
    ]
    return [*lines, *([f"problems {found.problem}"] if found.problem else [])]


def _known(value: int | None) -> str:
    return _UNKNOWN if value is None else str(value)


def short_name(path: Path) -> str:
    """Return a short name of a node's directory: its own or, of one named ``cluster``, that of the one above it."""
    name = path.parent.name if path.name == "cluster" else path.name
    name = name or str(path)
    return name if len(name) <= _NAME_LENGTH_MAX else f"~{name[1 - _NAME_LENGTH_MAX :]}"


def size(value: float | None) -> str:
    """Return a number of bytes in at most five characters, such as ``1.5M``."""
    if value is None:
        return _UNKNOWN
    for unit in _UNITS:
        if value < 1000 or unit == _UNITS[-1]:
            return f"{value:.0f}{unit}" if unit == "" or value >= 10 else f"{value:.1f}{unit}"
        value /= _KIB
    raise AssertionError("the last unit takes all")


def duration(seconds: float) -> str:
    """Return a duration in at most five characters, such as ``87ms``."""
    if seconds >= 10:
        return f"{seconds:.0f}s"
    if seconds >= 1:
        return f"{seconds:.1f}s"
    if seconds >= 0.001:
        return f"{seconds * 1000:.0f}ms"
    return f"{seconds * _US_PER_S:.0f}us"
