"""A member that is restarted, beside one that is not: what the service answers and asks for must be the same."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from container.api import CloseReason, Role
from container.common.differences import NOTHING, shown_apart
from container.common.values import shown
from container.testing.memory.check_findings import DivergenceError
from container.testing.memory.memory_member import (
    LogEntry,
    MemoryMember,
    MemorySession,
    MemorySnapshot,
    Service,
    ServiceFactory,
)
from container.testing.memory.scripted_consensus_module import CloseSession, SessionMessage
from container.testing.memory.scripted_messages import service_session_id
from container.testing.memory.snapshotting_member import SnapshottingMember

_NEVER = "a service that is never restarted"


class ReferenceMember(MemoryMember):
    """Leads over a log that another member has written; what its service asks for is compared with that log."""

    def __init__(self, service: ServiceFactory, **options: Any) -> None:
        self.answers: dict[int, list[bytes]] = {}
        """The answers that each session receives, by its id."""
        self._followed = 0
        self._own: list[bytes] = []
        self._own_logged = 0
        self._closing: dict[int, None] = {}
        super().__init__(service, **{**options, "role": Role.LEADER})

    def new_term(self, *, leader_member_id: int | None = None, app_version: int = 1) -> None:
        """Do nothing: terms are in the log."""

    def _fire_due(self) -> bool:
        return False  # timers are in the log as well

    def _take(self, message: object) -> None:
        if isinstance(message, CloseSession):
            self._closing[message.cluster_session_id] = None
        elif isinstance(message, SessionMessage):
            self._own.append(message.payload)
        else:
            super()._take(message)

    def _receive(self, session: MemorySession, payload: bytes) -> None:
        super()._receive(session, payload)
        self.answers.setdefault(session.id, []).append(payload)

    def follow(self, log: Sequence[LogEntry], *, is_known: Collection[int] = ()) -> None:
        """Have the service get what is new in a log; timers of ``is_known`` fired without having been scheduled.

        Raises:
            DivergenceError: the log has a timer, a message or a close that the service does not ask for, or lacks one.
        """
        for entry in log[self._followed :]:
            if self.has_ended:
                return
            self._followed += 1
            self._prepare(entry, is_known)
            message = entry.message
            self._log(lambda module, message=message: module.log_message(message))  # type: ignore[misc]
        position = self.log_position
        if self._own_logged < len(self._own):
            raise DivergenceError(
                f"{_NEVER} sends the cluster message {self._own_logged}, {shown(self._own[self._own_logged])}; the "
                "service did not",
                position,
            )
        for session_id in self._closing:
            if self._all_sessions[session_id].is_open:
                raise DivergenceError(f"{_NEVER} closes session {session_id}; the service did not", position)

    def _prepare(self, entry: LogEntry, is_known: Collection[int]) -> None:
        """Do what a consensus module does beside logging, and compare what it logs for the service."""
        name, fields = entry.decode()
        if name == "SessionOpenEvent":
            session_id = fields["cluster_session_id"]
            self._all_sessions[session_id] = MemorySession(self, session_id, fields["encoded_principal"])
            self._module.connect_egress(session_id, fields["response_channel"].decode())
        elif name == "SessionCloseEvent":
            session_id = fields["cluster_session_id"]
            if fields["close_reason"] == CloseReason.SERVICE_ACTION and session_id not in self._closing:
                raise DivergenceError(f"the service closed session {session_id}; {_NEVER} does not", entry.position)
            self._all_sessions[session_id].is_open = False
            self._gone.append(session_id)
        elif name == "TimerEvent":
            correlation_id = fields["correlation_id"]
            if self._timers.pop(correlation_id, None) is None and correlation_id not in is_known:
                raise DivergenceError(
                    f"the service scheduled timer {correlation_id}, which fired; {_NEVER} does not", entry.position
                )
        elif name == "SessionMessageHeader" and self._is_own(fields["cluster_session_id"]):
            sent = self._own[self._own_logged] if self._own_logged < len(self._own) else NOTHING
            if sent != fields["payload"]:
                left, right = shown_apart(fields["payload"], sent)
                raise DivergenceError(
                    f"the service sent the cluster message {self._own_logged}, {left}; {_NEVER} sends {right}",
                    entry.position,
                )
            self._own_logged += 1

    def _is_own(self, session_id: int) -> bool:
        first = service_session_id(self._service_id, 0)
        return first <= session_id < first + (1 << 56)


class ComparedMember(SnapshottingMember):
    """From its first restart on, compares what its service does with what it does in a :class:`ReferenceMember`."""

    def __init__(self, service: ServiceFactory, every: int, **options: Any) -> None:
        self._options = options
        self._reference: ReferenceMember | None = None
        self._is_compared = True
        self._answers: dict[int, list[bytes]] = {}
        self._places: dict[int, tuple[int, int]] = {}  # how many answers of both members were compared, by session
        self._has_led = True
        self._offers_failed = False
        self._fired_by_hand: set[int] = set()
        super().__init__(service, every, **options)

    def close(self) -> None:
        super().close()
        self._close_reference()

    def _close_reference(self) -> None:
        if self._reference is not None:
            self._reference.close()
            self._reference = None

    def restart(
        self, snapshot: MemorySnapshot | None = None, *, service: Service | ServiceFactory | None = None
    ) -> None:
        if service is not None:  # another release may do something else
            self._is_compared = False
            self._close_reference()
        elif self._reference is not None:
            if self._offers_failed:
                self._leave_out(self._reference)
        elif self._is_compared and self._factory is not None and not self.has_ended:
            self._reference = ReferenceMember(self._factory, **self._options)
            self._reference.follow(self.log, is_known=self._fired_by_hand)
            self._leave_out(self._reference)
        self._offers_failed = False
        super().restart(snapshot, service=service)

    def change_role(self, role: Role) -> None:
        self._has_led = False
        super().change_role(role)

    def fire_timer(self, correlation_id: int) -> None:
        if correlation_id not in self._timers:
            self._fired_by_hand.add(correlation_id)
        super().fire_timer(correlation_id)

    def fail_offers(self, *results: int) -> None:
        self._offers_failed = True
        super().fail_offers(*results)

    def _receive(self, session: MemorySession, payload: bytes) -> None:
        super()._receive(session, payload)
        self._answers.setdefault(session.id, []).append(payload)

    def _settle(self) -> None:
        super()._settle()
        if self._reference is not None and not self.has_ended:
            self._compare_with(self._reference)

    def _compare_with(self, reference: ReferenceMember) -> None:
        reference.follow(self.log, is_known=self._fired_by_hand)
        leads = self.role is Role.LEADER
        is_complete = leads and self._has_led and not self._offers_failed
        for session_id in {**self._answers, **reference.answers}:
            self._compare_answers(reference, session_id, is_complete=is_complete)
        if not (leads and self._has_led):  # what a follower answers goes nowhere
            self._leave_out(reference)
        self._has_led = leads
        if self.timers != reference.timers:
            timers, wanted = shown_apart(self.timers, reference.timers)
            raise DivergenceError(
                f"after a restart the timers are {timers}, by correlation id with their deadlines; of {_NEVER} they "
                f"are {wanted}",
                self.log_position,
            )

    def _compare_answers(self, reference: ReferenceMember, session_id: int, *, is_complete: bool) -> None:
        begin, at = self._places.get(session_id, (0, 0))
        answers, wanted = self._answers.get(session_id, []), reference.answers.get(session_id, [])
        for number in range(begin, max(len(answers), begin + len(wanted) - at) if is_complete else len(answers)):
            answer: Any = answers[number] if number < len(answers) else NOTHING
            due: list[Any] = wanted[at:] or [NOTHING]
            if answer != due[0] and (is_complete or answer not in due):
                left, right = shown_apart(answer, due[0])
                raise DivergenceError(
                    f"after a restart, answer {number} to session {session_id} is {left}; of {_NEVER} it is {right}",
                    self.log_position,
                )
            at += due.index(answer) + 1  # some before it may be missing
        self._places[session_id] = len(answers), at

    def _leave_out(self, reference: ReferenceMember) -> None:
        """Compare no answer that has come so far."""
        self._places = {
            session_id: (len(self._answers.get(session_id, ())), len(reference.answers.get(session_id, ())))
            for session_id in {**self._answers, **reference.answers}
        }
