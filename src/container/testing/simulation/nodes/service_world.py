"""A cluster of whole nodes that runs a user's service, compared with what the log that was agreed on leads to."""

from __future__ import annotations

import copy
import random
import zlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from container.errors import ConfigurationError
from container.service.service_handler import PythonServiceHandler, ServiceHandler
from container.settings.callback_errors import HALT
from container.testing.memory.memory_log import MemoryLog
from container.testing.memory.memory_member import Service
from container.testing.simulation.answers import compare_answers
from container.testing.simulation.compared_states import ComparedStates
from container.testing.simulation.disk import SimulatedStorage
from container.testing.simulation.nodes.cluster import ACTIVE, ClusterWorld, Member, NativePlan
from container.testing.simulation.nodes.disk_world import MS, Result, run_world
from container.testing.simulation.nodes.history import History, Snapshot
from container.testing.simulation.nodes.log import Log
from container.testing.simulation.nodes.node import APP_VERSION, SimulatedClient
from container.testing.simulation.nodes.recorded import FRAME_HEADER_LENGTH, PADDING, TERM_LENGTH, Violation, frames
from container.testing.simulation.observed_service import ObservedService
from container.testing.simulation.reference import reference_answers
from container.testing.simulation.simulated_cluster import Answer, Expected, Finding
from container.testing.simulation.simulated_member import is_expected
from container.testing.simulation.swarm import Payloads, payload_of

LONGEST_PAYLOAD = TERM_LENGTH // 8 - 32
"""Bytes of a message that fits a log with such terms, behind its header."""
_MTU_LENGTH = 8192
"""No frame of the log is longer."""


class ServiceHistory(History):
    """All that was committed, and the snapshots that services took.

    Args:
        members: how many there are.
        on_snapshot: is called with who took it, the log position, and the messages of a service's snapshot.
    """

    def __init__(self, members: int, on_snapshot: Callable[[str, int, list[bytes]], object]) -> None:
        super().__init__(members, Log())
        self._on_snapshot = on_snapshot

    def _check_content_of(self, found: Snapshot, who: str, service_id: int) -> None:
        if service_id >= 0:
            self._on_snapshot(who, found.position, found.state)


class ServiceMember(Member):
    """A node of the cluster, with the user's service."""

    cluster: ServiceWorld

    def _make_service(self, number: int) -> ObservedService:
        made, storage = self.cluster.make_service(), self.life.storage

        def on_finding(text: str) -> None:
            if not storage.is_dead:  # what a process that is gone does yet has no effect
                self.cluster.find("delivery", text, self, observed.position)

        def on_state(position: int) -> None:
            if not storage.is_dead:
                self.cluster.on_state(self, position, self.cluster.state(made, observed))

        def on_behind() -> None:
            if not storage.is_dead:
                try:
                    self.observe(has_sent=False)
                except Violation as violation:  # the world's loop raises it, and not the service's callback
                    self.cluster.violations.append(violation)
                observed.limit = self.cluster.history.end

        observed = ObservedService(
            handler_of(made),
            self.cluster.expected,
            on_finding=on_finding,
            on_state=on_state,
            on_behind=on_behind,
            probe_every=self.cluster.probe_every,
        )
        return observed

    def _service_settings(self) -> dict[str, Any]:
        return {"callback_error_policy": self.cluster.callback_error_policy}

    def applied(self) -> list[int]:
        """How many events its service has been told."""
        return [each.index for each in self.life.made]

    def _error_handler(self, storage: SimulatedStorage) -> Callable[[BaseException], None]:
        note = super()._error_handler(storage)

        def on_error(error: BaseException) -> None:
            if not is_expected(error, self.cluster):  # asked now: while it is reported, the error has a remark
                note(error)

        return on_error


class ServiceWorld(ClusterWorld):
    """One plan's run.

    Args:
        plan: what happens.
        make_service: makes a user's service.
        payloads: of clients: a sequence of bytes, or a function that draws one.
        state: returns the state of a service; None takes what it writes to a snapshot.
        tolerates: whether an error that a container reports is expected.
        callback_error_policy: the container's setting.
        probe_every: so many events lie between two looks at the state of a service.
    """

    plan: NativePlan
    members: list[ServiceMember]

    def __init__(
        self,
        plan: NativePlan,
        make_service: Callable[[], Service],
        *,
        payloads: Payloads = (),
        state: Callable[[Any], Any] | None = None,
        tolerates: Callable[[BaseException], bool] | None = None,
        callback_error_policy: str = HALT,
        probe_every: int = 8,
    ) -> None:
        self.make_service = make_service
        self.payloads = payloads
        self.state_of = state
        self.tolerates = tolerates
        self.callback_error_policy = callback_error_policy
        self.probe_every = probe_every
        self.states = ComparedStates("state", is_messages=state is None)
        self.snapshots = ComparedStates("snapshot", is_messages=True)
        self.received: dict[int, list[Answer]] = {}
        self.findings: list[Finding] = []
        self._answers_digest = 0
        self._due: tuple[int, int] | None = None
        super().__init__(plan)
        self.expected: list[Expected] = self.history.log.entries

    def _new_history(self) -> ServiceHistory:
        return ServiceHistory(self.plan.members, self._on_snapshot)

    def _new_member(self, member_id: int) -> ServiceMember:
        return ServiceMember(self, member_id)

    # Used by the reference as well.

    @property
    def channels(self) -> Iterable[str]:
        """The channels on which clients get answers."""
        return self.history.log.channels

    def state(self, service: Any, observed: ObservedService) -> Any:
        """The state of a service, as the test wants it, or as it would write it to a snapshot."""
        return observed.state() if self.state_of is None else copy.deepcopy(self.state_of(service))

    def on_state(self, member: ServiceMember | None, position: int, state: Any) -> None:
        """The state of a member's service at a log position must be that of all others there."""
        whose = "the reference" if member is None else f"member {member.member_id} in its life {member.processes}"
        if difference := self.states.difference(whose, position, state):
            self.find("state", difference, member, position)

    def _on_snapshot(self, who: str, position: int, messages: list[bytes]) -> None:
        if difference := self.snapshots.difference(f"member {who[1:]}", position, tuple(messages)):
            self.find("snapshot", difference, None, position)

    def find(self, oracle: str, text: str, member: ServiceMember | None = None, log_position: int = -1) -> None:
        """Note what was found; the run ends before anything else happens."""
        number = None if member is None else member.member_id
        self.findings.append(Finding(oracle, text, number, log_position, self.time.now_ns / MS))
        self.violations.append(Violation(oracle, text))

    # Clients.

    def on_egress(self, client: SimulatedClient, session_id: int, timestamp: int, payload: bytes) -> None:
        """Keep an answer until the end."""
        self.received.setdefault(session_id, []).append((payload, timestamp))
        self._answers_digest = zlib.crc32(payload, self._answers_digest)
        self.stats["answers"] += 1

    def _send(self, client: SimulatedClient, draw: random.Random) -> None:
        payload = payload_of(draw, self.payloads)
        if len(payload) > LONGEST_PAYLOAD:
            raise ConfigurationError(
                f"payloads: one has {len(payload)} bytes: {LONGEST_PAYLOAD} at most with consensus='native', whose log "
                f"has terms of {TERM_LENGTH} bytes"
            )
        self.stats["sent"] += client.send(payload)

    def _send_timer(self, client: SimulatedClient, draw: random.Random) -> None:
        self._send(client, draw)

    # The end.

    def _serve(self, probe: SimulatedClient) -> None:
        """A session that opened is in the log already."""

    def _is_settled(self) -> bool:
        """All have the log as it was at the first call: a service may schedule timers for ever."""
        if self._due is None:
            self._due = self.history.end, len(self.expected)
        end, count = self._due
        return all(
            each.is_up
            and each.value("module_state") == ACTIVE
            and each.value("commit_position") >= end
            and min(each.applied()) >= count
            for each in self.members
        )

    def _check_end(self) -> None:
        wanted = reference_answers(self, log_of(self.history.log.content), app_version=APP_VERSION)
        if not self.findings:
            compare_answers(self.received, wanted, self.find)
        self.check_found()

    @property
    def digest(self) -> int:
        """A number for all that happened, for the log, and for the answers."""
        return zlib.crc32(self._answers_digest.to_bytes(4, "little"), super().digest)


class Run(NamedTuple):
    """The result of a plan."""

    result: Result[NativePlan]
    finding: Finding | None
    digest: int
    logged: int
    delivered: int
    virtual_ms: float


def run_service(plan: NativePlan, make_service: Callable[[], Service], **options: Any) -> Run:
    """Run a plan once; ``options`` are those of :class:`ServiceWorld`. An error of the simulation itself is raised."""
    world = ServiceWorld(plan, make_service, **options)
    try:
        result = run_world(world)
    finally:
        world.close()
    finding = None
    if result.violation is not None:
        now_ms = world.time.now_ns / MS
        oracle, text = result.violation.oracle, str(result.violation).removeprefix(f"{result.violation.oracle}: ")
        # A finding of a service has a position; all others name it in their text.
        finding = next(
            (each for each in world.findings if (each.oracle, each.text) == (oracle, text)),
            Finding(oracle, text, None, -1, now_ms),
        )
    delivered = sum(sum(each.applied()) for each in world.members)
    return Run(result, finding, world.digest, len(world.expected), delivered, world.time.now_ns / MS)


def handler_of(made: Service) -> ServiceHandler:
    """A service as agents take it."""
    return made if isinstance(made, ServiceHandler) else PythonServiceHandler(made)


def log_of(content: bytes) -> MemoryLog:
    """The log whose frames are these."""
    log = MemoryLog(session_id=1, term_length=TERM_LENGTH, mtu_length=_MTU_LENGTH)
    for begin, end, length, flags, kind in frames(content):
        payload = content[begin + FRAME_HEADER_LENGTH : begin + length]
        if kind != PADDING:
            log.append_frame(payload, flags=flags)
        elif end % TERM_LENGTH == 0:
            log.fill_term()
        else:
            log.append_frame(payload, flags=flags, padding=True)
    return log
