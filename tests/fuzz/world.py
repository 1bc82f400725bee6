"""A member under fire: the real agent over memory, beside the model; each step is done by both, and they must agree."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from container.common.aeron_defaults import CONTROL_CHANNEL, SERVICE_STREAM_ID
from container.errors import AgentTermination, ClusterTermination, RegistrationError
from container.testing.memory import transport_probe as seam
from container.testing.memory.recording_service import RecordingService
from container.testing.memory.scripted_member import ScriptedMember
from container.testing.memory.scripted_messages import SCHEMA_VERSION, ServiceAck
from container.testing.memory.scripted_messages import encode as encode_message
from container.transport.streams import Publication, Subscription
from tests.fuzz.model import NULL_VALUE, TERM_LENGTH, Ack, Ended, Log, LogFrame, Model, Session
from tests.fuzz.mutations import Frame, whole
from tests.fuzz.wire import Refused, fields_of, message_name

NULL_INT64 = -(2**63)
MAX_CYCLES = 300
IDLES_BEFORE_THE_END = 5
KINDS_OF_LOG = {"leader": 2, "ipc": 2, "follower": 0, "replay": 0}


class Disagreement(AssertionError):
    """The agent did something else than the model."""


class World:
    """One member, its logs and its control stream. ``counts`` tells what was seen."""

    def __init__(self, rng: random.Random, counts: Counter[str], service: RecordingService | None = None) -> None:
        self.rng = rng
        self.counts = counts
        self.member = ScriptedMember(service, app_version=1)
        self.member.start()
        self._shadow = self.member.driver.connect("shadow", is_invoker=False)
        self._tool = seam.add_publication(self._shadow, CONTROL_CHANNEL, SERVICE_STREAM_ID, exclusive=True)
        self._connections: dict[int, Publication] = {}
        self._logs: dict[int, Log] = {}
        self._checked_calls = 0
        self._checked_errors = 0
        self._checked_acks = 0
        self._next_payload = 0
        self.model = Model(self, self.member.client_id, 7)
        self.check()

    # --- what the model asks of the driver

    def find_log(self, channel: str, stream_id: int, session_id: int) -> tuple[Log, int] | None:
        try:
            subscription = seam.add_subscription(self._shadow, channel, stream_id)
        except RegistrationError:
            raise Refused("RegistrationError") from None
        try:
            image = seam.image(subscription, session_id)
            return None if image is None else (self._logs[session_id], image.join_position)
        finally:
            subscription.close()

    def connect(self, session: Session) -> bool:
        try:
            publication = seam.add_publication(self._shadow, session.response_channel, session.response_stream_id)
        except RegistrationError:
            return False
        self._connections[session.id] = publication
        return True

    def disconnect(self, session_id: int) -> None:
        self._connections.pop(session_id).close()

    # --- steps

    def send_control(self, frames: list[Frame], *, from_tool: bool = False) -> None:
        """Sends frames on the control stream, and has each read in a duty cycle of its own."""
        session_id = self._tool.session_id if from_tool else None
        for payload, flags in frames:
            if self.model.ended is not None:
                return
            log = self.member.driver.log(CONTROL_CHANNEL, SERVICE_STREAM_ID, session_id)
            end = log.append_frame(payload, flags=flags)
            self.model.control.append((log.session_id, LogFrame(end - _framed(payload), end, flags, payload)))
            self.cycle()

    def append(self, frames: list[Frame]) -> None:
        """Appends frames to the log, all to one term, as messages are."""
        log = self.member.cm.log
        assert log is not None
        known = self._logs[log.session_id]
        begin = log.tail_position
        if begin % TERM_LENGTH + sum(_framed(payload) for payload, _flags in frames) > TERM_LENGTH:
            log.fill_term()
            known.frames[begin] = LogFrame(begin, log.tail_position, None, b"")
        for payload, flags in frames:
            end = log.append_frame(payload, flags=flags)
            known.frames[end - _framed(payload)] = LogFrame(end - _framed(payload), end, flags, payload)

    def commit(self, log_position: int | None = None) -> None:
        """Moves the commit position and lets the agent read."""
        if self.model.ended is None:
            self.model.commit_position = self.member.cm.commit(log_position)
            self.settle()

    def cycle(self) -> int:
        """One duty cycle of both, unless they have ended; how much the agent did."""
        if self.model.ended is not None:
            return 0
        self.model.cycle()
        if self.model.is_waiting:
            return self._end_waiting()
        try:
            done = self.member.work(1)
        except AgentTermination as termination:
            self._compare_end(termination)
            return 0
        if self.model.ended is not None:
            raise Disagreement(f"the agent lives on; the model: {_named(self.model.ended)}")
        return done

    def settle(self) -> None:
        """Duty cycles until nothing happens any more, then a comparison of everything."""
        quiet = 0
        for _ in range(MAX_CYCLES):
            quiet = 0 if self.cycle() else quiet + 1
            if quiet == 3 or self.model.ended is not None:
                self.check()
                return
        raise Disagreement(f"the agent is busy after {MAX_CYCLES} duty cycles with nothing to do")

    def _end_waiting(self) -> int:
        """A join of a log that is not there waits: until the container is closed, or the node is gone."""
        member = self.member
        end, expected = self.rng.choice(
            [
                (member.agent.interrupt, Ended("AgentInterrupted")),
                (member.cm.remove_commit_counter, Ended("ClusterTermination", is_expected=True)),
                (member.driver.kill, Ended("AgentTermination")),
            ]
        )
        member.after_idles(IDLES_BEFORE_THE_END, end)
        before = member.idle_strategy.idle_count
        self.model.ended = expected
        if end == member.driver.kill:
            self.model.is_active = False
            self._connections.clear()
        try:
            member.work(1)
        except AgentTermination as termination:
            self.counts["waits for a log that never came"] += 1
            self._compare_end(termination)
            if member.idle_strategy.idle_count - before != IDLES_BEFORE_THE_END + 1:
                raise Disagreement("the agent did not idle until the end of its wait") from None
            return 0
        raise Disagreement(f"the agent did not wait for a log: {member.errors[-1:]}")

    def _compare_end(self, termination: AgentTermination) -> None:
        is_expected = termination.is_expected if isinstance(termination, ClusterTermination) else None
        agent = Ended(type(termination).__name__, is_expected=is_expected)
        same("the end", _named(agent), _named(self.model.ended))
        same("runs of the termination hook", self.member.hooks, 1)
        self.counts[f"ended by {agent.kind}"] += 1

    # --- comparison

    def check(self) -> None:
        """Compares everything that can be seen of the agent with the model. Raises Disagreement."""
        member, model = self.member, self.model
        same("callbacks", _plain(member.service.calls[self._checked_calls :]), model.calls[self._checked_calls :])
        errors = [type(error).__name__ for error in member.errors[self._checked_errors :]]
        same("counted errors", errors, model.errors[self._checked_errors :])
        if member.driver.is_alive:
            self._check_acks()
            self._check_resources()
        cluster = member.service.cluster
        same("log position", cluster.log_position, model.log_position)
        same("cluster time", cluster.time, model.time)
        same("role", int(cluster.role), model.role)
        same("member id", cluster.member_id, model.member_id)
        same("member id in the mark file", member.mark_file.member_id, model.member_id)
        same("time unit", cluster.time_unit if cluster.time_unit is None else int(cluster.time_unit), model.time_unit)
        sessions = [
            Session(each.id, each.response_stream_id, each.response_channel, each.encoded_principal)
            for each in cluster.client_sessions
        ]
        same("sessions", sessions, [model.sessions[session_id] for session_id in model.told])
        for recording_id in sorted(model.snapshots):
            self._check_snapshot(recording_id, *model.snapshots.pop(recording_id))
        self.counts.update(f"error {name}" for name in errors)
        self._checked_calls, self._checked_errors = len(model.calls), len(model.errors)

    def _check_acks(self) -> None:
        news = self.member.cm.poll()
        acks = [Ack(*_with_nulls(message[:4])) if isinstance(message, ServiceAck) else message for message in news]
        same("acks", acks, self.model.acks[self._checked_acks :])
        self._checked_acks = len(self.model.acks)

    def _check_resources(self) -> None:
        resources = self.member.client.open_resources
        egress = sum(isinstance(each, Publication) for each in resources) - 1
        same("egress publications", egress, len(self.model.connected))
        same(
            "subscriptions", sum(isinstance(each, Subscription) for each in resources), 1 + (self.model.log is not None)
        )

    def _check_snapshot(self, recording_id: int, marker: dict[str, int], sessions: list[Session]) -> None:
        messages = [
            (message_name(data), fields_of(message_name(data), data))
            for data in self.member.store.messages(recording_id)
        ]
        expected: list[tuple[str, dict[str, Any]]] = [("SnapshotMarker", {**marker, "mark": 0})]
        for session in sessions:
            fields = {
                "cluster_session_id": session.id,
                "response_stream_id": session.response_stream_id,
                "response_channel": session.response_channel.encode("ascii"),
                "encoded_principal": session.encoded_principal,
            }
            expected.append(("ClientSession", fields))
        expected.append(("SnapshotMarker", {**marker, "mark": 2}))
        same("the snapshot", messages, expected)
        self.counts["snapshots compared"] += 1

    # --- good messages

    def good_control_message(self) -> None:
        """An ack that is asked for at the present position comes once."""
        position, acks = self.model.log_position, len(self.model.acks)
        if self.model.ended is not None or position == NULL_VALUE:
            return
        self.send_control(whole(encode("RequestServiceAck", log_position=position)))
        self.settle()
        if self.model.ended is None:
            same("acks for one request", len(self.model.acks), acks + 1)
            self.counts["good control messages"] += 1

    def good_log_message(self) -> None:
        """A session message that is logged is delivered once."""
        if not self._is_joined():
            return
        self._next_payload += 1
        payload = b"good %d " % self._next_payload + bytes(self.rng.choice([0, 10, 1330, 1345, 4000]))
        session_id = self.rng.choice([*self.model.sessions, 7, -(2**63) + 1])
        begin = self.member.cm.log_position
        self.append(whole(session_message(session_id, payload)))
        if self.rng.random() < 0.2:
            self.commit(begin + self.rng.randrange(0, self.member.cm.log_position - begin, 32))
        self.commit()
        if self.model.log is None:  # its JoinLog said that the log ends here, which may be in mid-message
            self._is_joined()
        if self.model.ended is None and self.model.log is not None:
            delivered = [call for call in self.member.service.calls if call[0] == "on_session_message"]
            same("deliveries of one message", [call[3] for call in delivered].count(payload), 1)
            self.counts["good log messages"] += 1

    def _is_joined(self) -> bool:
        """Joins the log again if it was lost; False when the agent ended, or the position in it cannot be joined."""
        if self.model.ended is None and self.model.log is None:
            self.join()
        return self.model.ended is None and self.model.log is not None

    def join(self) -> None:
        """A right JoinLog for the present log; for a new one when there is none, or the old one cannot be joined."""
        if self.model.ended is not None:
            return
        if self.member.cm.log is None or not self._can_join():
            self.begin_log()
        if self._can_join():
            self.send_control(whole(self.join_log()))
            self.settle()
            if self.model.ended is None and self.model.log is None:
                raise Disagreement("a right JoinLog was not followed")

    def begin_log(self) -> None:
        """The log ends, and another begins where it ends."""
        cm = self.member.cm
        if cm.log is not None:
            self._logs[cm.log.session_id].end_position = cm.log.tail_position
        self._kind = self.rng.choice(list(KINDS_OF_LOG))
        self._logs[cm.begin_log(self._kind).session_id] = Log()
        self.settle()

    def _can_join(self) -> bool:
        log = self.member.cm.log
        assert log is not None
        found = self.find_log(self.member.cm._log_channel, log.stream_id, log.session_id)
        return self.model.ended is None and found is not None and found[1] == self.model.log_position

    def join_log(self, **fields: int) -> bytes:
        """JoinLog for the present log."""
        log = self.member.cm.log
        assert log is not None
        right: dict[str, Any] = {
            "log_position": self.model.log_position,
            "max_log_position": 2**63 - 1,
            "member_id": self.rng.randrange(5),
            "log_session_id": log.session_id,
            "log_stream_id": log.stream_id,
            "is_startup": self.rng.randrange(2),
            "role": KINDS_OF_LOG[self._kind],
            "is_standby": self.rng.randrange(2),
            "log_channel": self.member.cm._log_channel,
        }
        return encode("JoinLog", **right | fields)

    # --- the end

    def end(self) -> None:
        """Closes the agent, which must leave nothing behind."""
        was_killed = not self.member.driver.is_alive
        if self.model.is_active:
            self.model.calls.append(("on_terminate",))
            self.model.is_active = False
        self.member.agent.close()
        calls = _plain(self.member.service.calls[self._checked_calls :])
        same("callbacks of the close", calls, self.model.calls[self._checked_calls :])
        same("errors of the close", len(self.member.errors), len(self.model.errors))
        streams = [each for each in self.member.client.open_resources if hasattr(each, "channel")]
        same("streams after the close", streams, [])
        same("signed off, closed", (self.member.mark_file.is_terminated, self.member.is_context_closed), (True, True))
        same("the client is closed by its owner alone", self.member.client.is_closed(), was_killed)


def session_message(session_id: int, payload: bytes, timestamp: int = 1_000) -> bytes:
    """A client's message as it is logged."""
    header = encode("SessionMessageHeader", leadership_term_id=1, cluster_session_id=session_id, timestamp=timestamp)
    return header + payload


def encode(name: str, version: int = SCHEMA_VERSION, **fields: Any) -> bytes:
    """A message with any numbers, also the one that stands for null, which encoders take as None."""
    return encode_message(
        name, version, **{key: None if value == NULL_INT64 else value for key, value in fields.items()}
    )


def _with_nulls(numbers: tuple[int | None, ...]) -> list[int]:
    return [NULL_INT64 if number is None else number for number in numbers]


def _framed(payload: bytes) -> int:
    return -(-(32 + len(payload)) // 32) * 32


def _plain(calls: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [
        tuple(int(part) if isinstance(part, int) and not isinstance(part, bool) else part for part in call)
        for call in calls
    ]


def _named(ended: Ended | None) -> str:
    if ended is None:
        return "none"
    return ended.kind if ended.is_expected is None else f"{ended.kind}(is_expected={ended.is_expected})"


def same(what: str, agent: object, model: object) -> None:
    """Raises Disagreement, which names both, unless they are equal."""
    if agent != model:
        raise Disagreement(f"{what}: the agent has {agent!r}, the model {model!r}")
