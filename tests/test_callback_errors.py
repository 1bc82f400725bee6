"""What exceptions do: in callbacks of the log, in what runs while a callback idles, and at the end; over memory."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from container.api import Cluster, Role, SessionMessages
from container.common import error_texts
from container.common.aeron_defaults import CONTROL_CHANNEL
from container.errors import AgentTermination, ArchiveError, ClusterError, ContainerError
from container.service.service_agent import ServiceAgent
from container.settings.callback_errors import HALT, SKIP, is_foreign
from container.testing.memory.manual_time import SteppingIdleStrategy
from container.testing.memory.recording_service import RecordingService
from container.testing.memory.scripted_member import TICK_NS, ScriptedMember
from tests.limits import LIMIT_S
from tests.node import Node

CLUSTER_NAMES = {
    "aeron",
    "cancel_timer",
    "client_sessions",
    "close_client_session",
    "context",
    "for_each_client_session",
    "get_client_session",
    "idle",
    "log_position",
    "member_id",
    "offer",
    "role",
    "schedule_timer",
    "send",
    "time",
    "time_unit",
    "try_claim",
}


class Total(RecordingService):
    """Adds up numbers; fails on what a test asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0
        self.failing: dict[bytes, BaseException] = {}

    def on_session_message(self, session: Any, timestamp: int, buffer: Any, header: Any) -> None:
        super().on_session_message(session, timestamp, buffer, header)
        if bytes(buffer) in self.failing:
            raise self.failing[bytes(buffer)]
        self.total += int(bytes(buffer))


class RaisingAtEnd(Total):
    """Fails when its member ends."""

    def on_terminate(self, cluster: Cluster) -> None:
        raise ValueError("a bug")


class Batches(Total):
    """The same, many at once."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[list[bytes]] = []

    def on_session_messages(self, messages: SessionMessages) -> None:
        self.seen.append([messages.payload(index) for index in range(len(messages))])
        for index in messages:
            payload = messages.payload(index)
            if payload in self.failing:
                raise self.failing[payload]
            self.total += int(payload)


def logged(member: ScriptedMember, *payloads: bytes) -> list[int]:
    """Logs and commits messages, with no duty cycle; the positions after them."""
    positions = []
    for payload in payloads:
        member.cm.session_message(1, payload)
        positions.append(member.cm.log_position)
    member.cm.commit()
    return positions


def refusal(kind: type[Exception], action: Callable[[], object]) -> str:
    """The text of the exception of this kind that ``action`` raises."""
    with pytest.raises(kind) as raised:
        action()
    return str(raised.value)


# --- what a service is given


def test_a_service_is_given_a_cluster_and_none_of_the_agents_methods() -> None:
    member = ScriptedMember().lead()
    cluster = member.service.cluster
    assert {name for name in dir(cluster) if not name.startswith("__")} == CLUSTER_NAMES
    with pytest.raises(TypeError, match="made by the container"):
        type(cluster)()
    with pytest.raises(TypeError, match="is not safe"):
        cluster.__new__(type(cluster))


def test_a_duty_cycle_inside_a_callback_is_refused_and_nothing_is_delivered_twice() -> None:
    member = ScriptedMember().lead()
    raised = member.in_callback(lambda *_: refusal(ContainerError, member.agent.do_work))
    member.deliver(b"1", b"2", b"3")
    assert member.service.messages == [b"1", b"2", b"3"]
    assert "must not run another" in raised[0]
    assert member.errors == []


def test_a_duty_cycle_inside_on_start_is_refused() -> None:
    member = ScriptedMember()
    raised = member.in_callback(lambda *_: refusal(ContainerError, member.agent.do_work), "on_start")
    member.start()
    assert len(raised) == 1


# --- callbacks of the log

EVENTS: dict[str, Callable[[ScriptedMember], object]] = {
    "on_session_message": lambda member: member.cm.session_message(1, b"1"),
    "on_timer_event": lambda member: member.cm.timer_event(1),
    "on_session_open": lambda member: member.cm.open_session(8),
    "on_session_close": lambda member: member.cm.close_session(7),
    "on_new_leadership_term_event": lambda member: member.cm.new_leadership_term(),
}


def failing_at(callback: str, error: BaseException, policy: str) -> ScriptedMember:
    """A leader that is about to fail in a callback, with an event behind the failing one."""
    member = ScriptedMember(callback_error_policy=policy).lead()
    member.open_session(7)

    def fails(*_: Any) -> None:
        raise error

    member.in_callback(fails, callback)
    EVENTS[callback](member)
    member.cm.session_message(1, b"behind")
    member.cm.commit()
    return member


@pytest.mark.parametrize("callback", EVENTS)
def test_with_halt_an_exception_ends_the_member_with_position_and_cause(callback: str) -> None:
    cause = ValueError("a bug")
    member = failing_at(callback, cause, HALT)
    acks = len(member.cm.acks)
    termination = member.terminated()
    position = member.service.cluster.log_position
    assert f"{callback} raised ValueError in the event at logPosition={position} " in str(termination)
    assert termination.__cause__ is cause
    assert b"behind" not in member.service.messages
    assert member.hooks == 1
    assert len(member.cm.acks) == acks, "nothing is acknowledged"


@pytest.mark.parametrize("callback", EVENTS)
def test_with_skip_an_exception_skips_that_event_alone(callback: str) -> None:
    cause = ValueError("a bug")
    member = failing_at(callback, cause, SKIP)
    member.work()
    assert member.errors == [cause]
    assert member.service.messages[-1] == b"behind"


@pytest.mark.parametrize("policy", [HALT, SKIP])
@pytest.mark.parametrize(
    "cause", [MemoryError(), OSError(28, "No space left on device"), RecursionError(), TimeoutError(), SystemExit(3)]
)
@pytest.mark.parametrize("callback", EVENTS)
def test_what_can_not_come_from_the_event_ends_the_member_in_any_case(
    callback: str, cause: BaseException, policy: str
) -> None:
    member = failing_at(callback, cause, policy)
    termination = member.terminated()
    assert termination.__cause__ is cause
    assert b"behind" not in member.service.messages


def _no_memory(*_: object) -> str:
    raise MemoryError


@pytest.mark.parametrize("in_batches", [False, True])
@pytest.mark.parametrize("policy", [HALT, SKIP])
def test_a_member_without_the_memory_to_end_or_to_skip_ends_all_the_same(
    monkeypatch: pytest.MonkeyPatch, policy: str, *, in_batches: bool
) -> None:
    member = ScriptedMember(Batches() if in_batches else Total(), callback_error_policy=policy).lead()
    member.service.failing[b"2"] = ValueError("a bug")
    logged(member, b"1", b"2")
    monkeypatch.setattr(error_texts, "type_name" if policy == HALT else "report_with", _no_memory)
    termination = member.terminated()
    assert "there was no memory to continue at logPosition=" in str(termination)
    assert isinstance(termination.__cause__, MemoryError)
    assert member.hooks == 1
    assert member.service.total == 1


def test_an_end_without_the_memory_to_report_takes_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    member = ScriptedMember(RaisingAtEnd()).lead()
    monkeypatch.setattr(error_texts, "report_with", _no_memory)
    member.agent.close()
    assert member.mark_file.is_terminated


def test_no_memory_in_a_duty_cycle_ends_the_run() -> None:
    member = ScriptedMember(Total())
    member.cm.start()
    errors = [MemoryError(), AssertionError("it went on")]

    def step() -> None:
        member.clock.advance(TICK_NS)
        if member.cm.acks:
            raise errors.pop(0)

    member.agent.run(SteppingIdleStrategy(step))
    assert isinstance(member.agent.termination, MemoryError)
    assert member.errors == [member.agent.termination]
    assert member.mark_file.is_terminated


@pytest.mark.parametrize("function", [error_texts.has_stack, error_texts.identify, error_texts.kind_of, is_foreign])
def test_what_an_error_comes_through_makes_no_functions(function: Callable[..., object]) -> None:
    # Python 3.13.0 frees the code of a function for which it has no memory, while others use it.
    pending, codes = [function.__code__, error_texts._begin_of.__code__], []
    while pending:
        codes.append(pending.pop())
        pending += [each for each in codes[-1].co_consts if isinstance(each, CodeType)]
    assert [code.co_qualname for code in codes if "<locals>" in code.co_qualname] == []


def test_one_member_that_fails_alone_ends_and_agrees_again_after_its_replay() -> None:
    payloads = [b"%d" % number for number in range(1, 21)]
    others = ScriptedMember(Total(), callback_error_policy=HALT).lead()
    others.deliver(*payloads)
    alone = ScriptedMember(Total(), callback_error_policy=HALT).follow()
    alone.service.failing[b"11"] = MemoryError()
    logged(alone, *payloads)
    alone.terminated()
    alone.agent.close()
    assert alone.service.total == sum(range(1, 11)), "nothing behind the failed event is applied"
    again = ScriptedMember(Total(), callback_error_policy=HALT).follow()
    again.deliver(*payloads)
    assert again.service.total == others.service.total == 210


BAD_FRAME = b"\x08\x00\x01\x00\x05\x00\x10\x00" + bytes(40)


def test_with_skip_a_bad_frame_is_counted_and_skipped() -> None:
    member = ScriptedMember(callback_error_policy=SKIP).lead()
    member.cm.log_message(BAD_FRAME)
    logged(member, b"1")
    member.work()
    assert len(member.errors) == 1
    assert member.service.messages == [b"1"]


def test_with_halt_a_bad_frame_ends_the_member_because_the_others_may_have_a_good_one() -> None:
    member = ScriptedMember(callback_error_policy=HALT).lead()
    member.cm.log_message(BAD_FRAME)
    logged(member, b"1")
    assert "the container raised container.errors.ClusterError in the event" in str(member.terminated())
    assert member.service.messages == []


@pytest.mark.parametrize("callback", EVENTS)
def test_a_bad_frame_is_not_put_down_to_the_callback_before_it(callback: str) -> None:
    member = ScriptedMember(callback_error_policy=HALT).lead()
    member.cm.open_session(7)
    EVENTS[callback](member)
    member.cm.log_message(BAD_FRAME)
    member.cm.commit()
    assert str(member.terminated()).startswith("the container raised container.errors.ClusterError in the event at ")


def test_a_clash_that_the_log_says_is_no_reason_to_end() -> None:
    member = ScriptedMember(callback_error_policy=HALT).lead()
    member.cm.open_session(3)
    member.cm.open_session(3)
    logged(member, b"1")
    member.work()
    assert ["clashing open" in str(error) for error in member.errors] == [True]
    assert member.service.messages == [b"1"]


class Lies(Exception):
    """Says of itself what is not so."""

    __class__ = property(lambda _self: AgentTermination)


class Unnamed(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise RuntimeError("no name")


class Nameless(Exception, metaclass=Unnamed):
    pass


@pytest.mark.parametrize("cause", [Lies(), Nameless()])
def test_what_an_exception_says_of_itself_does_not_count(cause: Exception) -> None:
    termination = failing_at("on_session_message", cause, HALT).terminated()
    assert type(termination) is AgentTermination
    assert termination.__cause__ is cause


def chained(cause: BaseException) -> Exception:
    try:
        raise ValueError("x") from cause
    except ValueError as error:
        return error


@pytest.mark.parametrize(
    "cause", [ExceptionGroup("g", [OSError(28, "full")]), chained(MemoryError()), ArchiveError("x")], ids=repr
)
def test_with_skip_a_foreign_cause_ends_the_member_as_well(cause: Exception) -> None:
    assert failing_at("on_timer_event", cause, SKIP).terminated().__cause__ is cause


def test_with_skip_a_consensus_module_that_is_gone_ends_the_member() -> None:
    member = ScriptedMember(callback_error_policy=SKIP).lead()
    member.in_callback(lambda *_: member.service.cluster.offer(b"x"))
    member.cm.session_message(1, b"1")
    member.results(-1)
    member.cm.commit()
    assert "is not connected" in str(member.terminated().__cause__)


@pytest.mark.parametrize("result", [-2, 1])
def test_a_message_to_the_cluster_that_is_too_long_raises_whatever_the_back_pressure(result: int) -> None:
    member = ScriptedMember().lead()

    def sends(*_: Any) -> str:
        if result < 0:
            member.results(result)
        return refusal(ValueError, lambda: member.service.cluster.offer(bytes(20_000)))

    raised = member.in_callback(sends)
    member.deliver(b"1")
    assert "max_message_length" in raised[0]


def test_a_join_that_cannot_be_made_ends_the_member() -> None:
    member = ScriptedMember().start()
    member.driver.fail_next_add("subscription", text="no space")
    member.cm.join_as_leader()
    assert "failed to join the log" in str(member.terminated())


def test_a_mark_file_that_does_not_take_the_member_id_leaves_no_join_half_done() -> None:
    member = ScriptedMember().start()
    member.mark_file.error = OSError(5, "I/O")
    member.cm.join_as_leader()
    member.work()
    assert member.service.cluster.role is Role.LEADER
    assert [str(error) for error in member.errors] == ["[Errno 5] I/O"]


def test_idling_on_another_thread_is_refused() -> None:
    member = ScriptedMember().lead()
    texts: list[str] = []

    def elsewhere(*_: Any) -> None:
        thread = threading.Thread(target=lambda: texts.append(refusal(ClusterError, member.service.cluster.idle)))
        thread.start()
        thread.join(LIMIT_S)

    member.in_callback(elsewhere)
    member.deliver(b"1")
    assert "another thread" in texts[0]


def test_a_version_validator_that_fails_ends_the_member() -> None:
    member = ScriptedMember(callback_error_policy=HALT).start()
    member.cm.join_as_leader()
    member.work()
    cause = KeyError("no such version")

    def fails(*_: int) -> bool:
        raise cause

    member.context.app_version_validator = fails
    member.cm.new_leadership_term()
    member.cm.commit()
    assert member.terminated().__cause__ is cause


@pytest.mark.parametrize("error", [ValueError("x"), MemoryError(), KeyError(1)])
def test_an_egress_that_can_not_be_added_for_any_reason_leaves_the_session_open(error: Exception) -> None:
    member = ScriptedMember(callback_error_policy=HALT).lead()
    member.driver.fail_next_add("publication", error=error)
    member.open_session(9)
    assert [session.id for session in member.service.cluster.client_sessions] == [9]
    assert "failed to connect session response publication" in str(member.errors[0])


@pytest.mark.parametrize("policy", [HALT, SKIP])
@pytest.mark.parametrize("error", [ValueError("x"), MemoryError()])
def test_on_role_change_is_no_event_of_the_log(policy: str, error: Exception) -> None:
    member = ScriptedMember(callback_error_policy=policy)

    def fails(*_: Any) -> None:
        raise error

    member.in_callback(fails, "on_role_change")
    member.lead()
    member.deliver(b"1")
    assert member.errors == [error]
    assert member.service.messages == [b"1"]
    assert member.service.cluster.role is Role.LEADER


@pytest.mark.parametrize("error", [ValueError("x"), MemoryError(), OSError(5, "I/O")])
def test_a_snapshot_that_fails_is_given_up_and_the_log_goes_on(error: Exception) -> None:
    member = ScriptedMember(callback_error_policy=HALT).lead()

    def fails(*_: Any) -> None:
        raise error

    member.in_callback(fails, "on_take_snapshot")
    member.cm.snapshot()
    logged(member, b"1")
    member.work()
    assert member.errors == [error]
    assert member.cm.acks[-1].relevant_id == -1
    assert member.service.messages == [b"1"]


# --- what errors say of where they come from

IDS = {
    "on_session_message": "clusterSessionId=1 messageLength=1",
    "on_timer_event": "correlationId=1",
    "on_session_open": "clusterSessionId=8",
    "on_session_close": "clusterSessionId=7",
    "on_new_leadership_term_event": "leadershipTermId=2",
}


@pytest.mark.parametrize("callback", EVENTS)
def test_a_skipped_event_is_named_with_its_callback_and_position(callback: str) -> None:
    member = failing_at(callback, ValueError("a bug"), SKIP)
    positions: list[int] = []
    fails = member.service.actions[callback]

    def noted(*args: Any) -> None:
        positions.append(member.service.cluster.log_position)
        positions.append(member.service.cluster.time)
        member.service.actions[callback] = fails  # which removes itself
        fails(*args)

    member.service.actions[callback] = noted
    member.work()
    assert member.remarks == [
        f"{callback} raised this in the event at logPosition={positions[0]} clusterTime={positions[1]} "
        f"{IDS[callback]}, which this member skips"
    ]


@pytest.mark.parametrize("callback", EVENTS)
def test_with_halt_the_event_is_named_as_well(callback: str) -> None:
    termination = failing_at(callback, ValueError("a bug"), HALT).terminated()
    assert re.search(
        f"^{callback} raised ValueError in the event at logPosition=\\d+ clusterTime=\\d+ {IDS[callback]}: this member",
        str(termination),
    )


def test_a_skipped_message_of_a_batch_is_named() -> None:
    member = ScriptedMember(Batches()).lead()
    member.service.failing[b"2"] = ValueError("a bug")
    positions = logged(member, b"1", b"2", b"3")
    member.work()
    assert len(member.remarks) == 1
    assert member.remarks[0].startswith(f"on_session_messages raised this in the event at logPosition={positions[1]} ")
    assert member.remarks[0].endswith(" clusterSessionId=1 messageLength=1, which this member skips")
    member = ScriptedMember(Batches(), callback_error_policy=HALT).lead()
    member.service.failing[b"2"] = ValueError("a bug")
    logged(member, b"1", b"2", b"3")
    assert " clusterSessionId=1 messageLength=1: this member ends" in str(member.terminated())


UNKNOWN_SCHEMA = b"\x08\x00\x01\x00\x05\x00\x10\x00" + bytes(40)
TIMER_WITHOUT_BLOCK = b"\x00\x00\x14\x00\x6f\x00\x10\x00" + bytes(40)


@pytest.mark.parametrize(("frame", "name"), [(UNKNOWN_SCHEMA, "unknown"), (TIMER_WITHOUT_BLOCK, "TimerEvent")])
@pytest.mark.parametrize("policy", [HALT, SKIP])
def test_a_bad_frame_is_named_with_its_own_position(frame: bytes, name: str, policy: str) -> None:
    member = ScriptedMember(callback_error_policy=policy).lead()
    member.cm.log_message(frame)
    position = member.cm.log_position
    logged(member, b"1")
    if policy == HALT:
        text = str(member.terminated())
    else:
        member.work()
        (text,) = member.remarks
    assert text.startswith("the container raised ")
    assert f" in the event at logPosition={position} " in text
    assert f" message={name}" in text


def test_what_else_a_callback_raises_is_named() -> None:
    member = ScriptedMember().start()
    for callback in ("on_role_change", "on_terminate"):
        member.service.actions[callback] = raising(ValueError("x"))
    member.cm.join_as_leader()
    member.work()
    member.service.actions["do_background_work"] = raising(ValueError("x"))
    member.work(1)
    del member.service.actions["do_background_work"]
    member.context.termination_hook = raising(ValueError("x"))
    member.cm.termination_position(member.service.cluster.log_position)
    member.terminated()
    assert member.remarks == [
        "on_role_change raised this at logPosition=0: the role is LEADER anyway",
        "do_background_work raised this at logPosition=0",
        "on_terminate raised this: the member ends in order",
        "the termination hook raised this: the member ends in order",
    ]


def test_a_failed_snapshot_says_that_there_is_none_and_what_to_do() -> None:
    member = ScriptedMember().lead()
    member.service.actions["on_take_snapshot"] = raising(ValueError("x"))
    member.take_snapshot()
    position = member.service.cluster.log_position
    assert member.remarks == [
        f"no snapshot was taken at logPosition={position} leadershipTermId=1: the state is unchanged, the log "
        "continues, and this member's next start replays from the snapshot before. Repair the cause, then have a "
        "snapshot taken again"
    ]
    member.service.actions["on_take_snapshot"] = raising(SystemExit())
    member.cm.snapshot()
    member.cm.commit()
    assert str(member.terminated()).startswith("on_take_snapshot raised SystemExit in the event at logPosition=")


def test_an_archive_without_space_says_that_there_is_no_snapshot_and_what_to_do() -> None:
    member = ScriptedMember().lead()
    member.service.actions["on_take_snapshot"] = raising(ArchiveError("no space", code=ArchiveError.STORAGE_SPACE))
    member.cm.snapshot()
    member.cm.commit()
    assert re.search(
        r"no space; no snapshot was taken at logPosition=\d+ .* free space on the disk of its archive, start it again",
        str(member.terminated()),
    )


def test_error_log_and_logger_name_the_skipped_event(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    node = Node(tmp_path)
    node.service.actions["on_session_message"] = lambda *_: 1 // 0
    node.cm.start()
    with node.launch(callback_error_policy=SKIP, use_agent_invoker=True, record_error_messages=False) as container:
        container.invoke()
        node.cm.join_as_leader()
        work(node, container)
        for _ in range(10):
            node.cm.session_message(1, b"x")
        node.cm.commit()
        work(node, container)
        (text,) = node.recorded()
    remark = (
        r"on_session_message raised this in the event at logPosition=(\d+) clusterTime=\d+ clusterSessionId=1 "
        "messageLength=1, which"
    )
    first, second, *_ = text.splitlines()
    assert first == "ZeroDivisionError: <its message is left out>"
    assert re.match(remark, second)
    logged_positions = [int(re.search(f"; {remark}", line)[1]) for line in caplog.messages]  # type: ignore[index]
    assert len(set(logged_positions)) == 2, "the first and the tenth"


def work(node: Node, container: Any) -> None:
    for _ in range(20):
        node.clock.advance(TICK_NS)
        container.invoke()


# --- batches


@pytest.mark.parametrize("error", [SystemExit(), KeyboardInterrupt(), GeneratorExit(), MemoryError()])
def test_what_leaves_a_batch_delivers_nothing_twice(error: BaseException) -> None:
    member = ScriptedMember(Batches()).lead()
    member.service.failing[b"2"] = error
    logged(member, b"1", b"2", b"3")
    termination = member.terminated()
    assert termination.__cause__ is error
    assert member.service.seen == [[b"1", b"2", b"3"]]
    assert member.service.total == 1


def test_agent_termination_out_of_a_batch_delivers_nothing_twice() -> None:
    member = ScriptedMember(Batches()).lead()
    member.service.failing[b"2"] = AgentTermination("enough")
    logged(member, b"1", b"2", b"3")
    assert str(member.terminated()) == "enough"
    member.work()
    assert member.service.seen == [[b"1", b"2", b"3"]]


def test_a_batch_with_halt_ends_at_the_message_of_the_iteration() -> None:
    member = ScriptedMember(Batches(), callback_error_policy=HALT).lead()
    member.service.failing[b"2"] = ValueError("bug")
    positions = logged(member, b"1", b"2", b"3")
    assert f"on_session_messages raised ValueError in the event at logPosition={positions[1]} " in str(
        member.terminated()
    )
    assert member.service.seen == [[b"1", b"2", b"3"]]


def test_a_bad_frame_in_the_middle_of_a_batch_delivers_all_around_it_once() -> None:
    member = ScriptedMember(Batches()).lead()
    member.cm.session_message(1, b"1")
    member.cm.log_message(b"\x08\x00\x01\x00\x05\x00\x10\x00" + bytes(40))
    logged(member, b"2")
    member.work()
    assert [payload for batch in member.service.seen for payload in batch] == [b"1", b"2"]
    assert len(member.errors) == 1


def test_an_iteration_that_is_left_early_ends_the_member() -> None:
    class Leaves(Batches):
        def on_session_messages(self, messages: SessionMessages) -> None:
            for index in messages:
                if messages.payload(index) == b"2":
                    break

    member = ScriptedMember(Leaves()).lead()
    logged(member, b"1", b"2", b"3")
    assert "left its iteration at message 1 of 3" in str(member.terminated())


def test_a_batch_that_is_kept_does_not_move_the_cluster() -> None:
    class Keeps(Batches):
        kept: SessionMessages | None = None

        def on_session_messages(self, messages: SessionMessages) -> None:
            self.kept = self.kept or messages
            super().on_session_messages(messages)

    member = ScriptedMember(Keeps()).lead()
    member.deliver(b"1", b"2")
    cluster = member.service.cluster
    before = (cluster.log_position, cluster.time)
    assert list(member.service.kept) == [0, 1]
    assert (cluster.log_position, cluster.time) == before


def test_a_batch_on_another_thread_skips_nothing() -> None:
    class Hands(Batches):
        def on_session_messages(self, messages: SessionMessages) -> None:
            def iterate() -> None:
                for _index in messages:
                    pass

            thread = threading.Thread(target=iterate)
            for index in messages:
                if index == 0:
                    thread.start()
                    thread.join(LIMIT_S)
                self.total += int(messages.payload(index))

    member = ScriptedMember(Hands()).lead()
    logged(member, b"1", b"2", b"3")
    member.work()
    assert member.service.total == 6


# --- what runs inside an idle


def idling(member: ScriptedMember, times: int = 3) -> list[str]:
    """A message whose callback idles: first half, idles, second half."""
    halves: list[str] = []

    def action(*_: Any) -> None:
        halves.append("first")
        for _idle in range(times):
            member.clock.advance(2_000_000)
            member.service.cluster.idle()
        halves.append("second")

    member.in_callback(action)
    return halves


def raising(error: BaseException) -> Callable[..., int]:
    def raises(*_: Any) -> int:
        raise error

    return raises


@pytest.mark.parametrize("policy", [HALT, SKIP])
def test_background_work_that_fails_does_not_leave_an_idle(policy: str) -> None:
    member = ScriptedMember(callback_error_policy=policy).lead()
    halves = idling(member)
    error = ValueError("metrics are gone")
    member.service.actions["do_background_work"] = raising(error)
    member.deliver(b"1", b"2")
    assert halves == ["first", "second"]
    assert member.service.messages == [b"1", b"2"]
    assert set(member.errors) == {error}


def test_an_interrupt_in_background_work_inside_a_callback_ends_the_member() -> None:
    member = ScriptedMember().lead()
    halves = idling(member)
    error = KeyboardInterrupt()
    member.service.actions["do_background_work"] = lambda _now: raising(error)() if halves else 0
    logged(member, b"1", b"2")
    termination = member.terminated()
    assert termination.__cause__ is error
    assert halves == ["first"]
    assert member.service.messages == [b"1"], "nothing is applied behind the message that was cut"


def test_background_work_that_fails_does_not_leave_a_send_that_waits() -> None:
    member = ScriptedMember(Total()).lead()
    session = member.open_session(5)
    member.driver.publication_results(session.response_channel, session.response_stream_id, [-2, -2, -2])
    results = member.in_callback(lambda *_: session.send(b"answer"))
    member.service.actions["do_background_work"] = raising(ValueError("x"))
    member.deliver(b"100")
    assert results[0] > 0
    assert member.service.total == 100
    assert {type(error) for error in member.errors} == {ValueError}


def test_background_work_that_fails_does_not_lose_a_join() -> None:
    member = ScriptedMember().start()
    member.service.actions["do_background_work"] = raising(ValueError("x"))
    member.results(-2, -2)
    member.cm.join_as_leader()
    member.work()
    assert len(member.cm.acks) == 2
    assert member.service.cluster.role is Role.LEADER


def test_background_work_that_fails_does_not_lose_the_ack_of_a_snapshot() -> None:
    member = ScriptedMember().lead()
    acks = len(member.cm.acks)
    member.service.actions["do_background_work"] = raising(ValueError("x"))
    member.in_callback(lambda _publication: member.results(-2, -2), "on_take_snapshot")
    member.take_snapshot()
    assert len(member.cm.acks) == acks + 1
    assert member.cm.acks[-1].relevant_id >= 0


def test_a_mark_file_that_fails_leaves_no_idle() -> None:
    member = ScriptedMember().lead()
    halves = idling(member)
    error = OSError(28, "No space left on device")

    def fails(*_: Any) -> int:
        member.mark_file.error = error
        member.clock.advance(2 * 10**9)
        return 0

    member.service.actions["do_background_work"] = fails
    member.deliver(b"1")
    assert halves == ["first", "second"]
    assert set(member.errors) == {error}


def test_a_mark_file_that_fails_for_ever_does_not_keep_the_control_stream_from_being_polled() -> None:
    member = ScriptedMember().lead()
    error = OSError(28, "No space left on device")
    acks = len(member.cm.acks)
    member.cm.request_service_ack(member.service.cluster.log_position)
    for _ in range(3):
        member.mark_file.error = error
        member.clock.advance(2 * 10**9)
        member.work(1)
    assert len(member.cm.acks) == acks + 1
    assert member.errors == [error] * 3


# --- numbers of background work


class Odd:
    """No number at all."""


@pytest.mark.parametrize(
    "returned",
    [-1, -(2**31), -(10**30), 0, 1, 2**31 - 1, 2**31, 2**63, 10**30, True, False, None, 0.5, -0.5, float("inf"),
     float("-inf"), float("nan"), Decimal(3), Fraction(1, 3)],
)  # fmt: skip
def test_any_number_of_background_work_is_safe(returned: Any) -> None:
    member = ScriptedMember().lead()
    member.service.actions["do_background_work"] = lambda _now: returned
    assert member.work(2) >= 0
    member.deliver(b"1") if not (returned or 0) > 0 else logged(member, b"1")
    member.work(1)
    assert member.service.messages == [b"1"]
    assert member.errors == []


@pytest.mark.parametrize("returned", ["3", b"", [], Odd(), 1j, object])
def test_what_is_no_number_is_a_type_error_that_names_it(returned: Any) -> None:
    member = ScriptedMember().lead()
    member.service.actions["do_background_work"] = lambda _now: returned
    logged(member, b"1")
    member.work(2)
    assert member.service.messages == [b"1"]
    assert {type(error) for error in member.errors} == {TypeError}
    assert "do_background_work returned a" in str(member.errors[0])


# --- the start


def test_the_cause_of_a_failed_start_survives_an_ack_that_fails_too() -> None:
    member = ScriptedMember()
    member.cm.start()
    cause = ValueError("a bad state")

    def fails(*_: Any) -> None:
        member.results(-4)
        raise cause

    member.service.actions["on_start"] = fails
    with pytest.raises(AgentTermination, match="failed to start service") as raised:
        member.agent.on_start()
    assert raised.value.__cause__ is cause
    assert [type(error) for error in member.errors] == [AgentTermination], "and why the ack failed is reported"
    assert "cannot be sent" in str(member.errors[0])


def test_the_cause_of_a_failed_snapshot_survives_an_ack_that_fails_too() -> None:
    member = ScriptedMember().lead()
    cause = ArchiveError("no", code=0)

    def fails(*_: Any) -> None:
        member.results(-4)
        raise cause

    member.in_callback(fails, "on_take_snapshot")
    member.cm.snapshot()
    member.cm.commit()
    assert "cannot be sent" in str(member.terminated())
    assert member.errors == [cause]


# --- the end

WAYS = [SystemExit(1), KeyboardInterrupt(), GeneratorExit(), AgentTermination("x"), ValueError("x"), MemoryError()]


@pytest.mark.parametrize("error", WAYS, ids=repr)
def test_whatever_on_terminate_raises_the_termination_is_acknowledged(error: BaseException) -> None:
    member = ScriptedMember().lead()
    member.service.actions["on_terminate"] = raising(error)
    acks = len(member.cm.acks)
    member.cm.termination_position(member.service.cluster.log_position)
    termination = member.terminated()
    assert getattr(termination, "is_expected", False)
    assert len(member.cm.acks) == acks + 1
    member.agent.close()
    assert member.mark_file.is_terminated
    assert member.is_context_closed
    assert member.errors == [error]


@pytest.mark.parametrize("error", WAYS, ids=repr)
def test_whatever_on_terminate_raises_the_close_goes_on(error: BaseException) -> None:
    member = ScriptedMember().lead()
    member.service.actions["on_terminate"] = raising(error)
    member.agent.close()
    assert member.mark_file.is_terminated
    assert member.is_context_closed
    assert member.errors == [error]


@pytest.mark.parametrize("error", WAYS, ids=repr)
def test_whatever_the_termination_hook_raises_the_end_goes_on(error: BaseException) -> None:
    member = ScriptedMember().lead()
    member.context.termination_hook = raising(error)
    member.cm.termination_position(member.service.cluster.log_position)
    assert getattr(member.terminated(), "is_expected", False)
    member.agent.close()
    assert member.is_context_closed
    assert member.errors == [error]


def test_an_interrupt_while_on_terminate_idles_closes_in_order() -> None:
    member = ScriptedMember().lead()

    def waits(*_: Any) -> None:
        member.agent.interrupt()
        member.service.cluster.idle()

    member.service.actions["on_terminate"] = waits
    member.agent.close()
    assert member.mark_file.is_terminated
    assert member.is_context_closed


def test_nothing_may_be_sent_from_on_terminate_of_a_close() -> None:
    member = ScriptedMember().lead()
    raised = member.in_callback(
        lambda cluster: refusal(ClusterError, lambda: cluster.schedule_timer(1, 2)), "on_terminate"
    )
    member.agent.close()
    assert "on_terminate" in raised[0]


def test_an_idle_strategy_that_fails_ends_the_member() -> None:
    member = ScriptedMember()
    error = ValueError("a strategy of its own")
    member.after_idles(2, raising(error))
    with pytest.raises(AgentTermination, match="a strategy of its own") as raised:
        member.agent.on_start()
    assert raised.value.__cause__ is error


def test_a_runner_is_whole_or_not_there() -> None:
    with pytest.raises(TypeError):
        ServiceAgent()  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        ServiceAgent(object())  # type: ignore[arg-type]


def test_run_halts_and_closes() -> None:
    member = ScriptedMember(Total(), callback_error_policy=HALT)
    member.service.failing[b"2"] = ValueError("bug")
    member.cm.start()

    def step() -> None:
        member.clock.advance(1_100_000)
        if len(member.cm.acks) == 1:
            member.cm.join_as_leader()
        elif len(member.cm.acks) == 2 and not member.service.messages:
            member.cm.new_leadership_term()
            logged(member, b"1", b"2", b"3")

    member.agent.run(SteppingIdleStrategy(step))
    assert member.service.total == 1
    assert isinstance(member.agent.termination, AgentTermination)
    assert member.service.names()[-1] == "on_terminate"
    assert member.mark_file.is_terminated


def test_the_stream_of_the_consensus_module_is_named() -> None:
    """What these tests script is the stream that the agent sends on."""
    assert ScriptedMember().context.control_channel == CONTROL_CHANNEL
