"""Cases of the fuzzer: bad frames on the control stream and in the log, good messages after each, by a seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping

from container.testing.memory.recording_service import RecordingService
from container.testing.memory.scripted_messages import raw_message
from tests.fuzz.mutations import MUTATIONS, Frame, Mutation
from tests.fuzz.world import World, encode, session_message

EPISODE_LENGTH = 20
"""Cases of one episode follow each other on one member, until it ends; then another takes its place."""

STREAM_ID = 102
CHANNEL = "aeron:udp?endpoint=localhost:20001"


def control_messages(world: World) -> dict[str, Callable[[], bytes]]:
    """Messages of a consensus module, or a tool, to services."""
    rng, position = world.rng, world.model.log_position
    around = (position, position + 32, position - 32, position + 2**40, -1, -2, -(2**63), 2**63 - 1)
    return {
        "JoinLog": lambda: world.join_log(
            log_position=rng.choice([position, *around]), role=rng.choice([0, 1, 2, 3, -1]), **_maybe_lost(rng)
        ),
        "JoinLog again": world.join_log,
        "ServiceTerminationPosition": lambda: encode(
            "ServiceTerminationPosition",
            rng.choice([16, 17]),
            log_position=rng.choice([position + 2**40, position + 2**50, *around]),
            ack_required=rng.choice([None, True, False]),
        ),
        "RequestServiceAck": lambda: encode("RequestServiceAck", log_position=rng.choice(around)),
        "ClusterMembersQuery": lambda: encode("ClusterMembersQuery", correlation_id=1, extended=1),
        "ClusterMembersResponse": lambda: encode(
            "ClusterMembersResponse", correlation_id=1, leader_member_id=0, active_members="0,a:1", passive_followers=""
        ),
    }


def _maybe_lost(rng: random.Random) -> dict[str, int]:
    """A log that does not come, now and then: the agent waits for it until it is ended."""
    return {"log_session_id": rng.randrange(2**31)} if rng.random() < 0.1 else {}


def log_messages(world: World) -> dict[str, Callable[[], bytes]]:
    """Messages that a consensus module logs."""
    rng, model = world.rng, world.model
    session_id = rng.choice([*model.sessions, 1, 2, 3, 2**40])
    timestamp = rng.randrange(2**40)
    common = {"leadership_term_id": rng.randrange(9), "timestamp": timestamp}
    position = rng.choice([world.member.cm.log_position, 0, -1, 2**40, -(2**63)])
    return {
        "SessionMessageHeader": lambda: session_message(session_id, rng.randbytes(rng.choice([0, 5, 100])), timestamp),
        "TimerEvent": lambda: encode("TimerEvent", correlation_id=rng.randrange(2**40), **common),
        "SessionOpenEvent": lambda: encode(
            "SessionOpenEvent",
            correlation_id=5,
            cluster_session_id=session_id,
            response_stream_id=rng.choice([STREAM_ID, 0, -1]),
            response_channel=rng.choice([CHANNEL, CHANNEL, "aeron:ipc", "aeron:udp?endpoint=localhost:20002|mtu=1408"]),
            encoded_principal=rng.randbytes(rng.choice([0, 8, 3000])),
            **common,
        ),
        "SessionCloseEvent": lambda: encode(
            "SessionCloseEvent",
            cluster_session_id=session_id,
            close_reason=rng.choice([0, 1, 2, 3, -1, None]),
            **common,
        ),
        "ClusterActionRequest": lambda: encode(
            "ClusterActionRequest",
            log_position=world.member.cm.log_position,
            action=rng.choice([0, 1, 2, 2, 3, None]),
            flags=rng.choice([0, 0, 1, 2, None]),
            **common,
        ),
        "NewLeadershipTermEvent": lambda: encode(
            "NewLeadershipTermEvent",
            log_position=position,
            term_base_log_position=0,
            leader_member_id=0,
            log_session_id=1,
            time_unit=rng.choice([0, 1, 2, None, 7]),
            app_version=rng.choice([1, 1, 256, None, 0x10000 if rng.random() < 0.2 else 1]),
            **common,
        ),
        "MembershipChangeEvent": lambda: encode(
            "MembershipChangeEvent",
            log_position=position,
            leader_member_id=0,
            cluster_size=3,
            change_type=0,
            member_id=0,
            cluster_members="0,a:1",
            **common,
        ),
        "of an unknown template": lambda: raw_message(rng.randrange(200, 2**16), rng.randbytes(rng.randrange(64))),
    }


class Episode:
    """The cases of one episode, all drawn from ``seed`` and ``number``."""

    def __init__(
        self,
        seed: int,
        number: int,
        counts: Counter[str],
        service: type[RecordingService],
        mutations: Mapping[str, Mutation] = MUTATIONS,
    ) -> None:
        self.rng = random.Random(f"{seed}/{number}")
        self.counts = counts
        self.case = ""
        """The present action, for the report of a failure."""
        self._service = service
        self._mutations = mutations
        self._world: World | None = None

    def run(self, cases: int) -> None:
        """Runs the cases. Raises Disagreement, or whatever else went wrong."""
        for _ in range(cases):
            stream = self.rng.choice(["control", "log"])
            self._run_case(stream)
        self._end_world()

    def _run_case(self, stream: str) -> None:
        world = self._living_world()
        messages = control_messages(world) if stream == "control" else log_messages(world)
        name, mutation = self.rng.choice(list(messages)), self.rng.choice(list(self._mutations))
        frames = self._mutations[mutation](self.rng, messages[name]())
        self.case = f"{mutation} {name} ({stream}): {[(payload.hex(), hex(flags)) for payload, flags in frames]}"
        self.counts[f"{stream}: {mutation}"] += 1
        self._send(world, stream, frames)
        world.settle()
        self.case = "good messages after " + self.case
        world.good_control_message()
        world.good_log_message()
        if self.rng.random() < 0.1 and world.model.ended is None:
            world.begin_log()
            world.join()

    def _send(self, world: World, stream: str, frames: list[Frame]) -> None:
        if stream == "control":
            world.send_control(frames, from_tool=self.rng.random() < 0.3)
        else:
            world.append(frames)
            world.commit()

    def _living_world(self) -> World:
        """The member of the case before, or a new one when it has ended or its log cannot be joined any more."""
        if self._world is not None and (self._world.model.ended is not None or self._world.model.log is None):
            self._end_world()
        if self._world is None:
            self.case = "a start"
            self._world = World(self.rng, self.counts, self._service())
            self.counts["members"] += 1
            self._world.join()
        return self._world

    def _end_world(self) -> None:
        if self._world is not None:
            self.case = "the end after " + self.case
            self._world.end()
            self._world = None
