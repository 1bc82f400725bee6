"""A member that nothing happens to: it leads over all of the agreed log, and shows what clients had to receive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from container.common.error_texts import message_of
from container.errors import AgentTermination
from container.service.service_handler import PythonServiceHandler, ServiceHandler
from container.testing.memory.manual_time import ManualClock
from container.testing.memory.member_context import MemberContext, boot_time_ns, place
from container.testing.memory.memory_log import MemoryLog
from container.testing.memory.memory_member import Service
from container.testing.memory.memory_transport import MemoryDriver
from container.testing.memory.scripted_member import TICK_NS, ScriptedMember
from container.testing.simulation.observed_service import ObservedService
from container.testing.simulation.simulated_cluster import Answer, Expected
from container.testing.simulation.simulated_member import is_expected

_NUMBER = 31
"""The number of its host: no member has it."""
_MOST_TURNS = 100_000
_LAST_TURNS = 100
"""After the last event: a service may always have background work."""


class Agreed(Protocol):
    """A run, as far as the reference needs it."""

    expected: list[Expected]
    probe_every: int
    callback_error_policy: str
    tolerates: Callable[[BaseException], bool] | None

    @property
    def channels(self) -> Iterable[str]:
        """The channels on which clients get answers."""

    @property
    def findings(self) -> Sequence[object]:
        """All findings until now."""

    def make_service(self) -> Service:
        """A new service."""

    def state(self, service: Any, observed: ObservedService) -> Any:
        """The state of a service."""

    def on_state(self, member: None, position: int, state: Any) -> None:
        """The reference has a state."""

    def find(self, oracle: str, text: str) -> None:
        """Note what was found."""


def reference_answers(cluster: Agreed, log: MemoryLog, *, app_version: int = 1) -> dict[int, list[Answer]]:
    """The answers to each session of a service that has the whole ``log`` as a leader; states are compared too."""
    made = cluster.make_service()
    service = ObservedService(
        made if isinstance(made, ServiceHandler) else PythonServiceHandler(made),
        cluster.expected,
        on_finding=lambda text: cluster.find("delivery", f"to the reference: {text}"),
        on_state=lambda position: cluster.on_state(None, position, cluster.state(made, service)),
        probe_every=cluster.probe_every,
    )
    service.limit = log.tail_position

    def on_error(error: BaseException) -> None:
        if not is_expected(error, cluster):
            cluster.find("errors", f"the reference reports {type(error).__name__}: {message_of(error)}")

    member = ScriptedMember(
        service,
        driver=MemoryDriver(ManualClock(boot_time_ns(_NUMBER)), counters_capacity=64),
        on_error=on_error,
        callback_error_policy=cluster.callback_error_policy,
        app_version=app_version,
        log_fragment_limit=1,  # an event in a turn, to which what is sent in it belongs
        log_term_length=log.term_length,
        log_mtu_length=log.mtu_length,
        log_initial_term_id=log.initial_term_id,
    )
    member.context.service_context = MemberContext(made, member.context, place(_NUMBER))
    answers: dict[int, list[Answer]] = {}
    module = member.cm
    for number, channel in enumerate(cluster.channels):
        module.connect_egress(number, channel)
    try:
        member.start()
        module.join_as_leader()
        assert module.log is not None
        module.log.extend(log, log.tail_position)
        module.commit()
        turns_left = _LAST_TURNS
        for _ in range(_MOST_TURNS):
            member.clock.advance(TICK_NS)
            done = member.agent.do_work()
            module.poll()
            module.forget_received()
            for answer in module.take_egress():
                timestamp = cluster.expected[service.index - 1][3]
                if answer.timestamp != timestamp:
                    cluster.find("answers", f"the reference answers {answer} at cluster time {timestamp}")
                answers.setdefault(answer.cluster_session_id, []).append((answer.payload, answer.timestamp))
            turns_left -= service.index >= len(cluster.expected)
            if cluster.findings or turns_left == 0 or (turns_left < _LAST_TURNS and not done):
                break
        else:
            cluster.find("progress", f"the reference came to event {service.index} of {len(cluster.expected)} only")
    except BaseException as error:  # an AgentTermination is not an Exception, nor is what ends a Python
        cause = error.__cause__ if isinstance(error, AgentTermination) and error.__cause__ is not None else error
        if isinstance(cause, KeyboardInterrupt):  # of the user, and no fault of the service
            raise cause from None
        cluster.find("end", f"the reference ended: {type(error).__name__}: {message_of(error)}")
    finally:
        module.close()
    return answers
