"""Hostile clients: a long history of commands that no client should send, on two members that must stay equal.

Both members get the same log. One leads and takes a message at a time, the other follows and takes many; both commit
at places of their own. In between timers fire, sessions open and close, and messages come from sessions that nobody
knows. At the end both write a snapshot, and a third member loads it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from container.testing.memory.scripted_consensus_module import ScriptedConsensusModule
from container.testing.memory.scripted_member import ScriptedMember

COMMANDS = 10_000
LOG_TERM_LENGTH = 16 * 1024 * 1024
BOUNDARIES = [
    edge + step for edge in (0, 2**7, 2**15, 2**31, 2**32, 2**53, 2**63, -(2**31), -(2**63)) for step in (-1, 0, 1)
]
SMALL_EGRESS = "aeron:ipc?term-length=64k|alias=small"

type Command = Callable[[random.Random], bytes]


def boundary(chance: random.Random, least: int = -(2**63), most: int = 2**64 - 1) -> int:
    """A number beside the end of a range, or a small one."""
    allowed = [number for number in (*BOUNDARIES, 2**64 - 1) if least <= number <= most]
    return chance.choice(allowed) if chance.random() < 0.6 else chance.randrange(5)


def hostile_bytes(chance: random.Random, valid: Sequence[Command]) -> bytes:
    """A valid command, one that was damaged, or bytes."""
    kind = chance.randrange(8)
    command = bytearray(chance.choice(valid)(chance))
    if kind == 0:
        return chance.randbytes(chance.choice((0, 1, 2, 7, 8, 9, 31, 32, 33, 100, 1_400)))
    if kind == 1 and command:
        for _ in range(chance.randrange(1, 4)):
            command[chance.randrange(len(command))] = chance.randrange(256)
    elif kind == 2:
        del command[chance.randrange(len(command) + 1) :]
    elif kind == 3:
        begin = chance.randrange(len(command) + 1)
        command[begin:begin] = chance.randbytes(chance.choice((1, 4, 500)))
    elif kind == 4 and chance.random() < 0.02:
        return bytes(command) + bytes(chance.choice((8_000, 8_160, 8_161, 20_000)))
    elif kind == 5 and chance.random() < 0.05:
        return b"\x91" * 20_000
    return bytes(command)


class Members:
    """A leader and a follower of the same log, each with a service of its own."""

    def __init__(self, make_service: Callable[[], Any], seed: int) -> None:
        self.make_service = make_service
        self.chance = random.Random(seed)
        self.leader = ScriptedMember(make_service(), log_fragment_limit=1, log_term_length=LOG_TERM_LENGTH).lead()
        self.follower = ScriptedMember(make_service(), log_fragment_limit=64, log_term_length=LOG_TERM_LENGTH).follow()
        self.sessions: list[int] = []
        self.fired = 0
        self._next_session_id = 1

    def log(self, event: Callable[[ScriptedConsensusModule], object]) -> None:
        """Writes the event to both logs; now and then one of the members gets what it has not seen."""
        for member in (self.leader, self.follower):
            event(member.cm)
            if self.chance.random() < 0.2:
                member.commit()

    def open_session(self) -> None:
        """A client comes; what it listens on may take short messages only."""
        session_id = self._next_session_id
        self._next_session_id += 1
        self.sessions.append(session_id)
        channel = SMALL_EGRESS if session_id % 3 == 0 else None
        self.log(lambda cm: cm.open_session(session_id, response_channel=channel))

    def close_session(self) -> None:
        """A client goes."""
        session_id = self.sessions.pop(self.chance.randrange(len(self.sessions)))
        self.log(lambda cm: cm.close_session(session_id))

    def fire_timer(self) -> None:
        """The timer that was scheduled next fires, or one that nobody knows."""
        self.commit()
        timers = self.leader.cm.scheduled_timers
        correlation_id = boundary(self.chance, 1 - 2**63, 2**63 - 1)
        if self.fired < len(timers) and self.chance.random() < 0.9:
            correlation_id = timers[self.fired].correlation_id
            self.fired += 1
        self.log(lambda cm: cm.timer_event(correlation_id))

    def send(self, payload: bytes) -> None:
        """A message of a client, of a session that is not open, or of a service."""
        kind = self.chance.random()
        if kind < 0.02:
            self.log(lambda cm: cm.service_message(1, 1, payload))
            return
        session_id = (
            self._next_session_id + 5 if kind < 0.05 or not self.sessions else self.chance.choice(self.sessions)
        )
        self.log(lambda cm: cm.session_message(session_id, payload))

    def commit(self) -> None:
        """Both members get the whole log; what the clients have got is forgotten."""
        for member in (self.leader, self.follower):
            member.commit()
            for session_id in self.sessions:
                member.cm.egress(session_id)

    def snapshots(self) -> list[list[bytes]]:
        """The content that each member writes into a snapshot; a third one must load it and write the same."""
        written = []
        for member in (self.leader, self.follower):
            written.append(member.take_snapshot())
            assert [error for error in member.errors if "is dropped: " not in str(error)] == []
        third = ScriptedMember(self.make_service(), log_position=self.follower.cm.log_position)
        third.start(written[0], leadership_term_id=0)
        third.cm.join_as_leader()
        third.work()
        written.append(third.take_snapshot())
        assert third.errors == []
        return written


def run(make_service: Callable[[], Any], valid: Sequence[Command], seed: int, commands: int = COMMANDS) -> Members:
    """Sends the commands; then no callback has raised, and the members and their snapshots are equal."""
    members = Members(make_service, seed)
    chance = members.chance
    for number in range(commands):
        if number % 100 == 0 and len(members.sessions) < 10:
            members.open_session()
        if chance.random() < 0.005 and len(members.sessions) > 3:
            members.close_session()
        if chance.random() < 0.02:
            members.fire_timer()
        members.send(hostile_bytes(chance, valid))
    members.commit()
    for member in (members.leader, members.follower):
        assert [error for error in member.errors if "is dropped: " not in str(error)] == []
    assert members.leader.cm.log_position == members.follower.cm.log_position
    leader, follower = (
        [(timer.correlation_id, timer.deadline) for timer in member.cm.scheduled_timers]
        for member in (members.leader, members.follower)
    )
    assert leader == follower
    first, second, third = members.snapshots()
    assert first == second
    frames = len(members.sessions) + 2  # of the container: a marker, the sessions, a marker
    assert third[frames:] == first[frames:]
    return members
