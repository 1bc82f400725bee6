"""A service for tests: prints each callback as a line of JSON, and does what the JSON in clients' messages says.

A command is ``{"do": name, ...}`` with the arguments of the function ``_do_<name>``. It is answered with
``{"result": ...}``, or with ``{"error": text}`` when the container refused a call.

Its place in a cluster comes from the environment. These variables change what it does:

* ``TEST_FAILING_SNAPSHOTS``: how many snapshots fail, with an exception, from the first on
* ``TEST_SNAPSHOT_GATE``: the path of a file that a snapshot waits for
* ``TEST_FAILING_START``: the text of an exception in ``on_start``
* ``TEST_HOLD_START``, ``TEST_HOLD_SNAPSHOT``: for how many seconds to hold the GIL in C there
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

import container
from container.api import (
    BACK_PRESSURED,
    ClientSession,
    CloseReason,
    Cluster,
    ClusteredService,
    Header,
    MessageBuffer,
    Role,
    SnapshotImage,
    SnapshotPublication,
    TimeUnit,
)
from container.errors import ClusterError
from container.snapshots import read_snapshot, write_snapshot
from container.transport.message_buffer import BufferClaim


class State(msgspec.Struct):
    """Everything that a snapshot holds."""

    messages: int = 0
    timers: int = 0
    padding: bytes = b""


def hold_the_gil(seconds: float) -> None:
    """Sleep as a long call of C does that keeps the GIL."""
    if seconds > 0:
        ctypes.PyDLL(None).usleep(int(seconds * 1e6))


class ReportingService(ClusteredService):
    """Reports to standard output; its state is how many messages and timers there were."""

    def __init__(self) -> None:
        self.state = State()
        self.cluster: Cluster
        self.back_pressured = 0
        self.failing_snapshots = int(os.environ.get("TEST_FAILING_SNAPSHOTS", "0"))
        self.snapshot_gate = os.environ.get("TEST_SNAPSHOT_GATE")

    # Callbacks

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        self.cluster = cluster
        if failure := os.environ.get("TEST_FAILING_START"):
            raise ValueError(failure)
        hold_the_gil(float(os.environ.get("TEST_HOLD_START", "0")))
        if snapshot_image is not None:
            self.state = read_snapshot(snapshot_image, State)
        self._report(
            "on_start",
            has_snapshot=snapshot_image is not None,
            sessions=[session.id for session in cluster.client_sessions],
        )

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        self._report("on_session_open", session_id=session.id, timestamp=timestamp)

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        self._report("on_session_close", session_id=session.id, reason=close_reason.name)

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        self.state.messages += 1
        self._report(
            "on_session_message",
            session_id=None if session is None else session.id,
            timestamp=timestamp,
            length=len(buffer),
            header_position=header.position,
        )
        if session is None:
            return
        command: dict[str, Any] = json.loads(bytes(buffer))
        do = getattr(self, f"_do_{command.pop('do')}")
        try:
            answer = {"result": do(session, timestamp, **command)}
        except (ClusterError, ValueError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        session.send(json.dumps(answer).encode())

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        self.state.timers += 1
        self._report("on_timer_event", correlation_id=correlation_id, timestamp=timestamp)

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        self._report("on_take_snapshot")
        while self.snapshot_gate and not Path(self.snapshot_gate).exists():
            self.cluster.idle()
        if self.failing_snapshots > 0:
            self.failing_snapshots -= 1
            raise RuntimeError("this snapshot fails as asked")
        hold_the_gil(float(os.environ.get("TEST_HOLD_SNAPSHOT", "0")))
        write_snapshot(snapshot_publication, self.state)

    def on_role_change(self, new_role: Role) -> None:
        self._report("on_role_change", new_role=new_role.name)

    def on_new_leadership_term_event(
        self,
        leadership_term_id: int,
        log_position: int,
        timestamp: int,
        term_base_log_position: int,
        leader_member_id: int,
        log_session_id: int,
        time_unit: TimeUnit,
        app_version: int,
    ) -> None:
        self._report(
            "on_new_leadership_term_event",
            leadership_term_id=leadership_term_id,
            leader_member_id=leader_member_id,
            time_unit=time_unit.name,
        )

    def on_terminate(self, cluster: Cluster) -> None:
        self._report("on_terminate", back_pressured=self.back_pressured)

    def on_termination_hook(self) -> None:
        """The container's termination hook."""
        self._report("termination_hook")

    def _report(self, callback: str, **fields: object) -> None:
        cluster = self.cluster
        report = {
            "callback": callback,
            **fields,
            "role": cluster.role.name,
            "member_id": cluster.member_id,
            "log_position": cluster.log_position,
            "time": cluster.time,
            "state": [self.state.messages, self.state.timers, len(self.state.padding)],
        }
        print(json.dumps(report), flush=True)

    # Commands

    def _do_echo(self, session: ClientSession, timestamp: int, text: str) -> str:
        return text

    def _do_length(self, session: ClientSession, timestamp: int, text: str) -> int:
        return len(text)

    def _do_state(self, session: ClientSession, timestamp: int) -> list[int]:
        return [self.state.messages, self.state.timers, len(self.state.padding)]

    def _do_reply(self, session: ClientSession, timestamp: int, length: int) -> int:
        """Sends a message of this length before the answer."""
        result = session.offer(b"r" * length)
        self.back_pressured += result == BACK_PRESSURED
        return result if result > 0 else session.send(b"r" * length)

    def _do_pad(self, session: ClientSession, timestamp: int, length: int) -> int:
        """Makes the state, and so the next snapshot, that much longer."""
        self.state.padding = b"p" * length
        return length

    def _do_schedule(self, session: ClientSession, timestamp: int, correlation_id: int, delay_ms: int) -> int:
        deadline = timestamp + delay_ms
        while not self.cluster.schedule_timer(correlation_id, deadline):
            self.cluster.idle()
        return deadline

    def _do_cancel(self, session: ClientSession, timestamp: int, correlation_id: int) -> bool:
        while not self.cluster.cancel_timer(correlation_id):
            self.cluster.idle()
        return True

    def _do_offer(self, session: ClientSession, timestamp: int, length: int) -> int:
        result = self.cluster.offer(b"o" * length)
        return int(result)

    def _do_claim(self, session: ClientSession, timestamp: int, length: int) -> int:
        claim = container.BufferClaim()
        result = self.cluster.try_claim(length, claim)
        if result > 0:
            claim.buffer[:] = b"c" * length
            claim.commit()
        return result

    def _do_send(self, session: ClientSession, timestamp: int, length: int, count: int) -> int:
        for _ in range(count):
            self.cluster.send(b"s" * length)
        return count

    def _do_close(self, session: ClientSession, timestamp: int, session_id: int) -> bool:
        return self.cluster.close_client_session(session_id)

    def _do_sessions(self, session: ClientSession, timestamp: int) -> list[int]:
        return [open_session.id for open_session in self.cluster.client_sessions]

    def _do_raise(self, session: ClientSession, timestamp: int, text: str) -> None:
        raise RuntimeError(text)

    def _do_read_file(self, session: ClientSession, timestamp: int, path: str) -> str:
        """What no service may do: it depends on the machine, so that members may meet different errors."""
        return Path(path).read_text()

    def _do_sleep(self, session: ClientSession, timestamp: int, seconds: float) -> float:
        threading.Event().wait(seconds)
        return seconds

    def _do_fork(self, session: ClientSession, timestamp: int, way: str) -> list[Any]:
        """A child tries all that it may not and leaves in that way; its exit code, and what was not refused."""
        from tests.forking import Child, not_refused  # the test that asks for it says where that is

        cluster, owner_id = self.cluster, os.getpid()
        child = Child()
        if child.fork():
            attempts: dict[str, Callable[[], object]] = {
                "offer": lambda: cluster.offer(b'{"do": "echo", "text": "evil"}'),
                "send": lambda: cluster.send(b'{"do": "echo", "text": "evil"}'),
                "try_claim": lambda: cluster.try_claim(8, BufferClaim()),
                "timer": lambda: cluster.schedule_timer(99, timestamp),
                "cancel": lambda: cluster.cancel_timer(99),
                "close": session.close,
                "close by id": lambda: cluster.close_client_session(session.id),
                "session.send": lambda: session.send(b"evil"),
                "session.offer": lambda: session.offer(b"evil"),
                "idle": cluster.idle,
            }
            for line in not_refused(attempts, owner_id):
                child.tell(line)
            context: Any = cluster.context
            context.counted_error_handler(RuntimeError("a child's error"))
            context.mark_file.signal_terminated()
            context.close()
            cluster.aeron.close()
            if way == "_exit":
                os._exit(5)
            if way == "exit":
                sys.exit(6)
            if way == "raise":
                raise RuntimeError("in the child")
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # later reports are not the member's
            return []
        code, lines = child.outcome()
        return [code, *lines]

    def _do_idle(self, session: ClientSession, timestamp: int, seconds: float) -> float:
        """Idles as a callback does that waits for something."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.cluster.idle()
        return seconds


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    service = ReportingService()
    policy = os.environ.get("AERON_CLUSTER_SERVICE_CALLBACK_ERROR_POLICY", "skip")
    container.run(service, termination_hook=service.on_termination_hook, callback_error_policy=policy)
