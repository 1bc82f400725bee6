"""Cases of bad messages on the control stream of a consensus module: a tool that says whatever it likes, as a service.

The rules are those of the ingress, see :mod:`tests.fuzz.ingress_cases`. Readable timers, sessions to close and messages
of a service are carried out, as the stream is open to the node's own programs only; acknowledgements that nobody waits
for change nothing, and snapshots are taken all the time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from container.api import CloseReason
from container.common.aeron_defaults import CONSENSUS_MODULE_STREAM_ID, CONTROL_CHANNEL
from container.testing.memory import transport_probe as seam
from tests.fuzz.archive_request_cases import Assembler, check
from tests.fuzz.ingress_cases import LOG_PAYLOAD_MAX, Event, IngressEpisode, send_frames
from tests.fuzz.mutations import Frame
from tests.fuzz.wire import fields_of
from tests.fuzz.world import encode
from tests.member_world import HEADER_LENGTH

SERVICE_IPC_EPISODE_LENGTH = 100
TICK_MS = 8
"""Tick of the timer wheel: a timer may fire that much later."""


class ServiceIpcEpisode(IngressEpisode):
    """The cases of one episode, all with one member, all drawn from ``seed`` and ``number``."""

    requests = (
        "SessionMessageHeader",
        "ScheduleTimer",
        "CancelTimer",
        "ServiceAck",
        "CloseSession",
        "ClusterMembersQuery",
    )

    def __init__(self, seed: int, number: int, counts: Counter[str]) -> None:
        super().__init__(seed, number, counts)
        self._timers: dict[int, int] = {}
        """Deadlines by correlation id."""
        self._timers_of_snapshot: set[int] = set()

    def _new_bad(self) -> None:
        self.tool = self.world.driver.connect("tool")
        self.stream = seam.add_publication(self.tool, CONTROL_CHANNEL, CONSENSUS_MODULE_STREAM_ID, exclusive=True)
        self._assembler = Assembler()
        self.own: set[int] = set()

    def _bad_is_gone(self) -> None:
        self.tool.close()

    def _message(self, name: str) -> bytes:
        rng = self.rng
        now = self._epoch_ms()
        numbers = [0, 1, 2, 3, 4, 5, -1, 2**31, 2**62, 2**63 - 1, -(2**63) + 1]
        match name:
            case "SessionMessageHeader":
                payload = rng.randbytes(rng.choice([0, 1, 100, 1376, 5000, LOG_PAYLOAD_MAX, LOG_PAYLOAD_MAX + 1, 9000]))
                service_id = rng.choice([0, 0, 0, 1, -1, 127, 128, 2**31, 2**32, 2**63 - 1])
                return (
                    encode(name, leadership_term_id=rng.choice([0, -1]), cluster_session_id=service_id, timestamp=0)
                    + payload
                )
            case "ScheduleTimer":
                deadline = rng.choice([now, now + 1, now + 50, now + 500, now - 1, now + 10**7, *numbers])
                return encode(name, correlation_id=rng.choice(numbers), deadline=deadline)
            case "CancelTimer":
                return encode(name, correlation_id=rng.choice(numbers))
            case "ServiceAck":
                return encode(
                    name,
                    log_position=rng.choice([self.world.commit_position, 0, -1, 64, 2**40]),
                    timestamp=now,
                    ack_id=rng.choice(
                        [*numbers, self.world.agent.snapshot_count + 2, self.world.agent.snapshot_count + 3]
                    ),
                    relevant_id=rng.choice([-1, 0, 1, 2**40]),
                    service_id=rng.choice([0, 0, 0, 1, -1, 127, 2**31 - 1]),
                )
            case "CloseSession":
                return encode(name, cluster_session_id=rng.choice([0, -1, 99, 2**62] * 4 + sorted(self._open)))
            case _:
                return encode(name, correlation_id=rng.choice(numbers), extended=rng.choice([0, 1, 2]))

    def _is_of_bad(self, response_stream_id: int) -> bool:
        return False

    def _send(self, frames: Iterable[Frame]) -> list[bytes]:
        return send_frames(self.stream, frames, self._assembler)

    def _run_case(self) -> None:
        super()._run_case()
        if self.rng.random() < 0.1:
            self.case = "a snapshot after " + self.case
            self._take_snapshot()

    def _epoch_ms(self) -> int:
        """The cluster's time."""
        return seam.epoch_ms(self.world.client)

    def _expect_request(self, name: str, message: bytes) -> int:
        fields = fields_of(name, message)
        self.counts[name] += 1
        match name:
            case "SessionMessageHeader":
                service_id = (fields["cluster_session_id"] + 2**31) % 2**32 - 2**31
                payload = message[HEADER_LENGTH:]
                if service_id != 0 or len(payload) > LOG_PAYLOAD_MAX:
                    return 1
                self._expected.append((("message", None, payload), False))
            case "ScheduleTimer":
                self._timers[fields["correlation_id"]] = fields["deadline"]
            case "CancelTimer":
                self._timers.pop(fields["correlation_id"], None)
            case "ServiceAck":
                is_of_the_service = fields["service_id"] == 0 and fields["ack_id"] != 0
                return int(not is_of_the_service)
            case "CloseSession" if fields["cluster_session_id"] in self._open:
                session_id = fields["cluster_session_id"]
                self._expected.append((("close", session_id, CloseReason.SERVICE_ACTION), False))
                del self._open[session_id]
        return 0

    def _take(self, event: Event) -> None:
        if event[0] == "timer":
            deadline = self._timers.pop(event[1], None)
            check(deadline is not None and deadline <= self._epoch_ms(), f"{event} fired, of {deadline}")
            self.counts["timers fired"] += 1
            return
        super()._take(event)

    def _take_snapshot(self) -> None:
        super()._take_snapshot()
        self._timers_of_snapshot = set(self._timers)

    def _may_differ(self, event: Event) -> bool:
        # A service would do again, in the replay, what the tool did about the timers of a snapshot.
        return event[0] == "timer" and event[1] in self._timers_of_snapshot

    def _settle(self) -> None:
        super()._settle()
        now = self._epoch_ms()
        late = {each: deadline for each, deadline in self._timers.items() if deadline < now - 3 * TICK_MS}
        check(not late, f"timers have not fired at {now}: {late}")
