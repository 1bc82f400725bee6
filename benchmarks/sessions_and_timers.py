"""The cost of a message as sessions grow to 100,000 and timers to 1,000,000: the agent over memory; it should be flat.

Messages come from sessions taken at random, so that no look-up finds the session of the last message, and with many
sessions none finds it in a cache.
Timers are kept by the consensus module; the service schedules each and gets each event. CPU time, of this process.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from functools import partial

from benchmarks._harness import Report, RoundFailed, run_rounds
from benchmarks._verdicts import Goal, Result
from container.api import ClientSession, Cluster, ClusteredService, Header, MessageBuffer, SnapshotImage
from container.testing.memory.scripted_member import ScriptedMember

SESSIONS = (1, 100, 10_000, 100_000)
TIMERS = (1_000, 100_000, 1_000_000)
_LENGTH = 32
_CHUNK = 20_000


class Service(ClusteredService):
    """Counts messages by their session's being there, and timers."""

    def __init__(self) -> None:
        self.cluster: Cluster
        self.messages = 0
        self.timers = 0

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        self.cluster = cluster

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        self.messages += session is not None

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        self.timers += 1


def _new_member() -> ScriptedMember:
    return ScriptedMember(Service(), log_term_length=16 * 1024 * 1024).follow()


def _work(member: ScriptedMember, end: int) -> float:
    """CPU seconds of the duty cycles up to a position."""
    begin = time.process_time()
    while member.agent.cluster.log_position < end:
        member.agent.do_work()
    return time.process_time() - begin


def messages_of(sessions: int, messages: int) -> Result:
    """Nanoseconds of a message with so many sessions open, and of opening one."""
    member = _new_member()
    opened = 0.0
    for first in range(1, sessions + 1, _CHUNK):
        for session_id in range(first, min(first + _CHUNK, sessions + 1)):
            member.cm.open_session(session_id)
        opened += _work(member, member.cm.commit())
    order = random.Random(1).choices(range(1, sessions + 1), k=messages)
    payload, spent = bytes(_LENGTH), 0.0
    for first in range(0, messages, _CHUNK):
        for session_id in order[first : first + _CHUNK]:
            member.cm.session_message(session_id, payload)
        spent += _work(member, member.cm.commit())
    if member.service.messages != messages or member.errors:
        raise RoundFailed(f"{member.service.messages} of {messages} messages; errors: {member.errors[:3]}")
    return {"ns_per_message": spent / messages * 1e9, "us_per_open": opened / sessions * 1e6}


def timers_of(timers: int) -> Result:
    """Nanoseconds of a timer event when so many have come."""
    member = _new_member()
    spent = last = 0.0
    for first in range(0, timers, _CHUNK):
        count = min(_CHUNK, timers - first)
        for correlation_id in range(first, first + count):
            member.cm.timer_event(correlation_id)
        last = _work(member, member.cm.commit()) / count
        spent += last * count
    if member.service.timers != timers or member.errors:
        raise RoundFailed(f"{member.service.timers} of {timers} timers; errors: {member.errors[:3]}")
    return {"ns_per_timer": spent / timers * 1e9, "ns_per_last_timer": last * 1e9}


def main(arguments: Sequence[str] | None = None) -> Report:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="./run bench sessions_and_timers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--most-sessions", type=int, default=SESSIONS[-1])
    parser.add_argument("--most-timers", type=int, default=TIMERS[-1])
    options = parser.parse_args(arguments)
    report = Report(
        "sessions_and_timers",
        {"ns_per_message": "8,.1f", "us_per_open": "7.2f", "ns_per_timer": "8,.1f", "ns_per_last_timer": "8,.1f"},
    )
    sessions = [count for count in SESSIONS if count <= options.most_sessions]
    timers = [count for count in TIMERS if count <= options.most_timers]
    # Flat: the cost with the most is not twice that with the fewest; caches alone make some difference.
    for what, counts, metric, measure in (
        ("sessions", sessions, "ns_per_message", lambda count: messages_of(count, options.messages)),
        ("timers", timers, "ns_per_timer", timers_of),
    ):
        results, failures = run_rounds(
            {f"{count:,} {what}": partial(measure, count) for count in counts}, options.rounds, options.seed
        )
        report.failures |= failures
        report.add(what, results, [Goal(f"{counts[-1]:,} {what}", metric, (f"{counts[0]:,} {what}",), at_most=2.0)])
    return report.finish()


if __name__ == "__main__":
    main()
