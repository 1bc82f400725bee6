"""Controls a running cluster through its leader, and waits for the result. Upstream: ClusterTool, ClusterControl.

Upstream reports success when the leader's toggle is neutral again, and for some words as soon as it is set. Here a word
is done when its result is there: a snapshot in the recording log, another state, or the end of the node.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from container.common.aeron_defaults import CounterType
from container.common.values import counted, shown, whole_number
from container.files.names import RECORDING_LOG_NAME
from container.files.recording_log import RecordingLogEntry
from container.operate.answers import Answer, NoFactsError, RefusedError, known, named, text
from container.operate.driver_counters import (
    NODE_TOGGLES,
    TOGGLES,
    ClusterCounters,
    open_cnc,
    read_cluster_counters,
)
from container.operate.facts import (
    BackupQuery,
    ClusterMember,
    ControlResult,
    ErrorLog,
    MarkFile,
    Members,
    RecordingLogChange,
)
from container.operate.marks import now_ms, read_cluster_mark
from container.operate.node_errors import read_errors
from container.operate.places import find_cluster_dir
from container.operate.recording_logs import (
    Confirm,
    back_up,
    facts_of,
    latest_snapshot,
    lost_snapshots,
    read_log,
    unchanged,
)

if TYPE_CHECKING:
    from container.operate.cluster_control import ClusterControl

_PAUSE_S = 0.02
_WHY = "`aeron-cluster errors DIR` shows why"
_NEUTRAL = TOGGLES.index("NEUTRAL")


class _Action(NamedTuple):
    """The requirements of a word, and the value that the counter must have before."""

    toggle: str
    needed_state: str
    replaces: str = "NEUTRAL"


_ACTIONS = {
    "snapshot": _Action("SNAPSHOT", "ACTIVE"),
    "suspend": _Action("SUSPEND", "ACTIVE"),
    "resume": _Action("RESUME", "SUSPENDED", replaces="SUSPEND"),
    "shutdown": _Action("SHUTDOWN", "ACTIVE"),
    "abort": _Action("ABORT", "ACTIVE"),
}


@contextmanager
def _connected(mark: MarkFile) -> Iterator[ClusterControl]:
    from container.operate.cluster_control import ClusterControl

    with open_cnc(Path(mark.aeron_directory)) as file:
        if not file.is_driver_alive(now_ms()):
            raise RefusedError(f"the media driver of {mark.aeron_directory} shows no sign of life")
    control = ClusterControl(mark.aeron_directory)
    try:
        yield control
    finally:
        control.close()


def _running(path: Path) -> tuple[Path, MarkFile]:
    """The directory and mark file of a node that runs. Raises RefusedError for another one."""
    cluster_dir = find_cluster_dir(path)
    mark = read_cluster_mark(cluster_dir)
    if mark.state != "running":
        raise RefusedError(f"the node of {cluster_dir} is {mark.state}: {_advice(mark)}")
    return cluster_dir, mark


def _advice(mark: MarkFile) -> str:
    """The next step for a node that does not run."""
    if mark.state == "failed":
        return f"its last start failed: {_WHY}"
    if mark.state not in ("starting", "dead"):
        return "start it"
    if mark.process in ("gone", "reused"):
        return f"its process {mark.pid} is gone: start it again"
    if mark.state == "starting":
        return "wait: `aeron-cluster health DIR --check live --timeout 60`"
    silence = "no sign of life"
    if mark.activity_timestamp_ms is not None:
        silence += f" for {max(0, now_ms() - mark.activity_timestamp_ms) // 1000} s"
    if mark.process == "alive":
        return f"process {mark.pid} exists, but has shown {silence}: end it, then start the node again"
    return f"it has shown {silence}: start it again"


def _counters_of(mark: MarkFile) -> ClusterCounters:
    """The counters of a consensus module. Raises RefusedError when it has none: its mark file may look alive for 10 s.

    They, and not the pid, say that it runs: it may have been started in another namespace of pids.
    """
    counters = read_cluster_counters(Path(mark.aeron_directory), mark.cluster_id)
    if counters.record(CounterType.CONSENSUS_MODULE_STATE) is None:
        raise RefusedError(
            f"the consensus module of member {mark.member_id} has no counters: it has just ended, or is just starting"
        )
    return counters


# The members.


def list_members(path: Path, limit_s: float) -> Answer:
    """Answer the members of a cluster, as a running node knows them; 1 when it does not answer in time."""
    _, mark = _running(path)
    _counters_of(mark)
    with _connected(mark) as control:
        found = control.query_members(
            mark.control_channel, mark.service_stream_id, mark.consensus_module_stream_id, limit_s
        )
    if found is None:
        raise RefusedError(
            f"the consensus module has not answered within {limit_s:g} s (--timeout): `aeron-cluster status DIR` "
            "shows what it does"
        )
    name, fields = found
    if name == "ClusterMembersExtendedResponse":
        return Answer(_members(fields))
    return Answer(_old_members(fields))


def _members(fields: dict[str, Any]) -> Members:
    leader = fields["leader_member_id"]
    positions = {each["member_id"]: known(each["log_position"]) for each in fields["active_members"]}
    is_leader_asked = leader == fields["member_id"]
    longest = positions.get(leader) if is_leader_asked else None
    return Members(
        member_id=known(fields["member_id"]),
        leader_member_id=known(leader),
        current_time_ns=fields["current_time_ns"],
        has_current_positions=is_leader_asked,
        members=[
            ClusterMember(
                member_id=each["member_id"],
                is_leader=each["member_id"] == leader,
                leadership_term_id=known(each["leadership_term_id"]),
                log_position=known(each["log_position"]),
                behind=_behind(longest, known(each["log_position"])),
                time_of_last_append_ns=_time(each),
                ingress_endpoint=text(each["ingress_endpoint"]),
                consensus_endpoint=text(each["consensus_endpoint"]),
                log_endpoint=text(each["log_endpoint"]),
                catchup_endpoint=text(each["catchup_endpoint"]),
                archive_endpoint=text(each["archive_endpoint"]),
            )
            for each in fields["active_members"]
        ],
    )


def _time(member: dict[str, Any]) -> int | None:
    """When the log of a member grew last; None for one that was not heard from: its time belongs to no position."""
    is_unknown = known(member["log_position"]) is None or member["time_of_last_append_ns"] <= 0
    return None if is_unknown else int(member["time_of_last_append_ns"])


def _behind(longest: int | None, position: int | None) -> int | None:
    return None if longest is None or position is None else max(0, longest - position)


def _old_members(fields: dict[str, Any]) -> Members:
    """The answer of nodes that know no other: endpoints alone, in a text."""
    leader = fields["leader_member_id"]
    members = []
    for member in text(fields["active_members"]).split("|"):
        id_text, *endpoints = member.split(",")
        member_id = whole_number(id_text)
        if member_id is None:
            raise RefusedError(f"the consensus module has answered {shown(member)}, which is not a member")
        ingress, consensus, log, catchup, archive = (*endpoints, "", "", "", "", "")[:5]
        members.append(
            ClusterMember(
                member_id=member_id,
                is_leader=member_id == leader,
                leadership_term_id=None,
                log_position=None,
                behind=None,
                time_of_last_append_ns=None,
                ingress_endpoint=ingress,
                consensus_endpoint=consensus,
                log_endpoint=log,
                catchup_endpoint=catchup,
                archive_endpoint=archive,
            )
        )
    return Members(
        member_id=None,
        leader_member_id=known(leader),
        current_time_ns=None,
        has_current_positions=False,
        members=members,
    )


# Actions.


def act(path: Path, word: str, limit_s: float) -> Answer:
    """Let a cluster do what a word says, through its leader, and wait until that is done; 1 when it is not."""
    begin = time.monotonic()
    action = _ACTIONS[word]
    cluster_dir, mark = _running(path)
    counters = _counters_of(mark)
    _check(mark, counters, action)
    entries_before = _entries(cluster_dir)
    errors_before = _error_counts(cluster_dir)
    _set_toggle(mark, counters, CounterType.CONTROL_TOGGLE, TOGGLES.index(action.replaces), action.toggle)
    wait = _Wait(cluster_dir, mark, begin + limit_s)
    reason = wait.until_done(action)
    taken: list[RecordingLogEntry] = []
    if action.toggle in ("SNAPSHOT", "SHUTDOWN"):
        taken = _taken(entries_before, _entries(cluster_dir))
        if reason is None and not taken:
            reason = f"the recording log has no new snapshot: taking it failed, and {_WHY}"
    errors = _new_errors(cluster_dir, errors_before)
    state = wait.counters().name(CounterType.CONSENSUS_MODULE_STATE)
    result = ControlResult(
        action=word,
        is_done=reason is None,
        member_id=mark.member_id,
        state=state,
        reason=reason,
        snapshot=[facts_of(entry) for entry in taken],
        errors=errors,
        duration_ms=round((time.monotonic() - begin) * 1000),
    )
    return Answer(result, 0 if reason is None else 1)


def _check(mark: MarkFile, counters: ClusterCounters, action: _Action) -> None:
    """Refuse what the leader would not do."""
    role, state = counters.name(CounterType.NODE_ROLE), counters.name(CounterType.CONSENSUS_MODULE_STATE)
    if role != "LEADER":
        raise RefusedError(
            f"member {mark.member_id} is a {role}: ask the leader, on its machine; `aeron-cluster list-members DIR` "
            "shows which member leads"
        )
    if state != action.needed_state:
        advice = ": run `aeron-cluster resume DIR` first" if state == "SUSPENDED" else ""
        raise RefusedError(
            f"the state of the consensus module of member {mark.member_id} is {state}: it must be "
            f"{action.needed_state} to {action.toggle.lower()}{advice}"
        )


def _set_toggle(mark: MarkFile, counters: ClusterCounters, type_id: int, expected: int, wanted: str) -> None:
    """Set a control toggle that has the expected value, or is neutral."""
    record = counters.record(type_id)
    if record is None:
        raise RefusedError(
            "this consensus module has no control toggle: its version is too old, or it is still starting"
        )
    names = TOGGLES if type_id == CounterType.CONTROL_TOGGLE else NODE_TOGGLES
    value = names.index(wanted)
    with _connected(mark) as control:
        try:
            is_set = control.compare_and_set(record.counter_id, type_id, expected, value) or (
                expected != _NEUTRAL and control.compare_and_set(record.counter_id, type_id, _NEUTRAL, value)
            )
            found = control.value(record.counter_id)
        except ValueError as error:
            raise RefusedError(f"the consensus module has just ended: {error}") from error
    if not is_set:
        raise RefusedError(
            f"the control toggle is {named(names, found)}, not NEUTRAL: another request or an election is in progress; "
            "try again"
        )


class _Wait:
    """Waits for the result of an action, until a deadline."""

    def __init__(self, cluster_dir: Path, mark: MarkFile, deadline_s: float) -> None:
        self._cluster_dir, self._mark, self._deadline_s = cluster_dir, mark, deadline_s

    def counters(self) -> ClusterCounters:
        """Return the counters of the consensus module; none when it has ended."""
        try:
            return read_cluster_counters(Path(self._mark.aeron_directory), self._mark.cluster_id)
        except NoFactsError:
            return ClusterCounters([], self._mark.cluster_id)

    def until_done(self, action: _Action) -> str | None:
        """Return None when it is done, or why it is not."""
        ends = action.toggle in ("SHUTDOWN", "ABORT")
        while True:
            end = self._end()
            if end is not None:
                return None if ends and end == "stopped" else f"the node has ended meanwhile: it is {end}"
            counters = self.counters()
            toggle = counters.name(CounterType.CONTROL_TOGGLE)
            if not ends and self._is_done(action.toggle, counters):
                return None
            if action.toggle == "SHUTDOWN" and self._is_done(action.toggle, counters):
                return f"it was refused, and the node continues: {_WHY}"
            if not ends and toggle == "INACTIVE":
                return "the node no longer leads, because of an election: ask the new leader"
            if time.monotonic() > self._deadline_s:
                return "it was not done in time (--timeout)" + (f": the control toggle is {toggle}" if toggle else "")
            time.sleep(_PAUSE_S)

    def _is_done(self, toggle: str, counters: ClusterCounters) -> bool:
        state = counters.name(CounterType.CONSENSUS_MODULE_STATE)
        if toggle == "SUSPEND":
            return state == "SUSPENDED"
        is_neutral = counters.value(CounterType.CONTROL_TOGGLE) == _NEUTRAL
        return is_neutral and state == "ACTIVE"

    def _end(self) -> str | None:
        """How the node has ended: stopped in order, dead, or gone; None while it runs."""
        try:
            found = read_cluster_mark(self._cluster_dir)
        except NoFactsError:
            return None  # its file is being read while it changes
        if found.state == "stopped" or found.start_timestamp_ms != self._mark.start_timestamp_ms:
            return "stopped"  # or started again since
        if self._mark.process == "alive" and found.process == "gone":
            return "gone"
        return "dead" if found.state == "dead" else None


def _entries(cluster_dir: Path) -> list[RecordingLogEntry]:
    try:
        return read_log(cluster_dir)
    except NoFactsError:
        return []


def _taken(before: Iterable[RecordingLogEntry], after: list[RecordingLogEntry]) -> list[RecordingLogEntry]:
    """The latest snapshot, if it is one that was not there before."""
    snapshot = latest_snapshot(after)
    known_before = {(entry.recording_id, entry.log_position, entry.timestamp) for entry in before if entry.is_valid}
    if not snapshot:
        return []
    last = snapshot[0]
    return [] if (last.recording_id, last.log_position, last.timestamp) in known_before else snapshot


def _error_counts(cluster_dir: Path) -> dict[tuple[str, str, int], int]:
    return {
        (log.path, error.text, error.first_ms): error.count
        for log in read_errors(cluster_dir, [])
        for error in log.errors
    }


def _new_errors(cluster_dir: Path, before: dict[tuple[str, str, int], int]) -> list[ErrorLog]:
    """The errors that came since ``before``."""
    found = []
    for log in read_errors(cluster_dir, []):
        new = [each for each in log.errors if each.count > before.get((log.path, each.text, each.first_ms), 0)]
        if new:
            found.append(ErrorLog(source=log.source, path=log.path, errors=new))
    return found


def validatable(path: Path) -> tuple[Path, MarkFile, ClusterCounters]:
    """Return directory, mark file and counters of a node that can invalidate entries of its recording log now.

    Raises:
        RefusedError: it does not run, or its consensus module is not ACTIVE.
    """
    cluster_dir, mark = _running(path)
    counters = _counters_of(mark)
    state = counters.name(CounterType.CONSENSUS_MODULE_STATE)
    if state != "ACTIVE":
        raise RefusedError(f"the state of the consensus module is {state}, and must be ACTIVE")
    return cluster_dir, mark, counters


def validate_running(path: Path, limit_s: float, confirm: Confirm) -> Answer:
    """Let a running node invalidate the snapshots that its archive does not have, and wait until it has.

    The node's toggle says only that it has begun, so what it has to invalidate is looked up here as well.
    """
    cluster_dir, mark, counters = validatable(path)
    entries = read_log(cluster_dir)
    lost = lost_snapshots(path, entries)
    if not lost:
        return unchanged(cluster_dir, len(entries))
    confirm(
        f"let the node invalidate {counted(len(lost), 'entry', 'entries')} of snapshots that its archive does not have"
    )
    try:
        backup = back_up(cluster_dir / RECORDING_LOG_NAME)
    except OSError as error:
        raise RefusedError(
            f"no backup of the recording log can be made: {error.strerror}; nothing has changed"
        ) from error
    _set_toggle(mark, counters, CounterType.NODE_CONTROL_TOGGLE, _NEUTRAL, "VALIDATE_RECORDING_LOG")
    deadline_s = time.monotonic() + limit_s
    while True:
        after = {entry.entry_index: entry for entry in _entries(cluster_dir)}
        left = [entry for entry in lost if after.get(entry.entry_index, entry).is_valid]
        if not left:
            break
        if time.monotonic() > deadline_s:
            raise RefusedError(
                f"still valid after {limit_s:g} s: {len(left)} of {counted(len(lost), 'entry', 'entries')}; " + _WHY
            )
        time.sleep(_PAUSE_S)
    invalidated = [entry for entry in entries if entry.is_valid and not after.get(entry.entry_index, entry).is_valid]
    return Answer(
        RecordingLogChange(
            path=str(cluster_dir / RECORDING_LOG_NAME),
            has_changed=True,
            backup=str(backup),
            invalidated=[facts_of(entry) for entry in invalidated],
            entry_count=len(after),
        )
    )


def backup_query_delay(path: Path, delay_ms: int | None) -> Answer:
    """Answer when a backup asks its cluster next, or let it ask after a delay."""
    cluster_dir, mark = _running(path)
    if mark.component != "BACKUP":
        raise RefusedError(f"{cluster_dir} is the directory of a {mark.component}, not of a backup")
    with open_cnc(Path(mark.aeron_directory)) as file:
        records = [record for record in file.counters() if record.type_id == CounterType.BACKUP_QUERY_DEADLINE]
    own = [record for record in records if record.key_int32(0) == mark.cluster_id]
    if not own:
        raise RefusedError("the backup has no counter of its next query")
    if delay_ms is None:
        deadline_ms = own[0].value
    else:
        deadline_ms = now_ms() + delay_ms
        with _connected(mark) as control:
            control.set(own[0].counter_id, CounterType.BACKUP_QUERY_DEADLINE, deadline_ms)
    return Answer(
        BackupQuery(next_query_ms=deadline_ms, delay_ms=deadline_ms - now_ms(), has_changed=delay_ms is not None)
    )
