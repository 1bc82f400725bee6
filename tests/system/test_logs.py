"""What a node logs of a day: recovered, joined, a slow callback, one that raises, snapshots, a kill and its end.

Run as a program (``python -m tests.system.test_logs``) it writes the examples in docs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from container.common.log_events import EVENTS
from container.testing.processes.endpoints import PortReservation
from container.testing.processes.process import Process
from tests.limits import LIMIT_S
from tests.system.harness import COMMAND, ROOT

SERVICE = """
import time
from container import ClusteredService

class Day(ClusteredService):
    def on_start(self, cluster, snapshot):
        for _ in snapshot or ():
            pass

    def on_session_message(self, session, timestamp, buffer, header=None):
        text = bytes(buffer)
        if text == b"slow":
            end = time.monotonic() + 0.15
            while time.monotonic() < end:
                pass
        if text == b"a secret":
            raise ValueError("a bad day")
        session.send(text)

    def on_take_snapshot(self, publication):
        publication.offer(bytes(1_000))
"""
STORY: list[tuple[str, dict[str, Any]]] = [
    ("recovered", {"snapshot_recording_id": -1, "log_position": 0}),
    ("state_changed", {"state": "ACTIVE", "former_state": "INIT"}),
    ("log_joined", {"role": "LEADER", "member_id": 0}),
    ("role_changed", {"role": "LEADER", "former_role": "FOLLOWER"}),
    ("term_began", {"leadership_term_id": 0, "leader_member_id": 0}),
    ("slow_callback", {"callback": "on_session_message"}),
    ("error", {"callback": "on_session_message", "error": "ValueError", "message_length": 8, "count": 1}),
    ("snapshot_begun", {"leadership_term_id": 0}),
    ("snapshot_taken", {"leadership_term_id": 0}),
    ("state_changed", {"state": "SUSPENDED", "former_state": "ACTIVE"}),
    ("state_changed", {"state": "ACTIVE", "former_state": "SUSPENDED"}),
]
STORY_AFTER_THE_KILL: list[tuple[str, dict[str, Any]]] = [
    ("recording_recovered", {"level": "info"}),
    ("errors_saved", {"level": "warning"}),
    ("recovered", {}),
    ("term_began", {"leadership_term_id": 1}),
    ("state_changed", {"state": "SNAPSHOT"}),
    ("snapshot_taken", {"leadership_term_id": 1}),
    ("state_changed", {"state": "TERMINATING"}),
    ("ended", {"source": "the node", "reason": "the cluster", "exit_code": 0}),
]


EXAMPLES = {"text": ROOT / "docs" / "logs-of-a-day.txt", "json": ROOT / "docs" / "logs-of-a-day.jsonl"}
HEADING = "# What a node logs of a day, as docs/logs.md describes it.\n"


class Day:
    """A node, its clients and its operator."""

    def __init__(self, directory: Path, log_format: str) -> None:
        (directory / "day.py").write_text(SERVICE)
        (directory / "node").mkdir()
        self.log_format = log_format
        self.ports = PortReservation()
        self.port = self.ports.take_row(5)
        self.cluster_dir = directory / "node" / "cluster"
        config = directory / "node.toml"
        config.write_text(
            f'services = ["day:Day"]\ndirectory = "{directory / "node"}"\naeron_dir = "{directory / "driver"}"\n'
            f'host = "127.0.0.1"\nport = {self.port}\n[container]\ncallback_error_policy = "skip"\n'
            "[driver]\nterm_buffer_length = 1048576\nipc_term_buffer_length = 1048576\n"
            '[consensus_module]\nlog_channel = "aeron:udp?term-length=1m"\n'
        )
        paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), str(directory)])
        self.environment = {"PYTHONPATH": paths, "AERON_CLUSTER_LOG_FORMAT": log_format}
        self.node = Process(
            "node", [*COMMAND, "node", "--config", str(config)], directory=directory, environment=self.environment
        )

    def start(self) -> None:
        self.node.start()
        if self.log_format == "text":
            assert self.node.read_line(LIMIT_S) == "A cluster of one member is ready."
        self.node.wait_until(lambda: "the node is ready in" in self.node.errors(), LIMIT_S, "the node to be ready")

    def send(self, text: str) -> str:
        return self._run("client", "--ingress", f"0=127.0.0.1:{self.port}", "--embedded-driver", "send", text)

    def operate(self, word: str) -> None:
        self._run(word, str(self.cluster_dir))

    def _run(self, *arguments: str) -> str:
        done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert done.returncode in (0, 1), done.stderr + self.node.tail()
        return done.stdout


def live_through(day: Day) -> tuple[str, str]:
    """What the node has logged until it was killed, and from then to its end."""
    with day.node:
        day.start()
        assert day.send("slow") == "slow\n"
        client = [*COMMAND, "client", "--ingress", f"0=127.0.0.1:{day.port}", "--embedded-driver"]
        subprocess.run([*client, "send", "--wait", "1", "a secret"], capture_output=True, timeout=LIMIT_S, check=False)
        for word in ("snapshot", "suspend", "resume"):
            day.operate(word)
        day.node.kill()
        before = day.node.errors()
        day.start()
        day.operate("shutdown")
        assert day.node.wait(LIMIT_S) == 0
        return before, day.node.errors()


def assert_story(lines: list[dict[str, Any]], story: Sequence[tuple[str, Mapping[str, object]]]) -> None:
    left = iter(lines)
    for event, fields in story:
        assert any(line.get("event") == event and fields.items() <= line.items() for line in left), (event, fields)


@pytest.fixture
def logged(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """What a node logs of a day, in the test's format."""
    day = Day(tmp_path, request.param)
    try:
        yield live_through(day)
    finally:
        day.ports.close()


@pytest.mark.parametrize("logged", ["json"], indirect=True)
def test_the_story_of_a_day_in_json(logged: tuple[str, str]) -> None:
    before, after = logged
    lines = [json.loads(line) for line in before.splitlines()]
    assert_story(lines, STORY)
    assert_story([json.loads(line) for line in after.splitlines()], STORY_AFTER_THE_KILL)
    assert_story(lines, [("started", {"source": "the node"}), ("snapshot_taken", {})])
    assert_story(lines, [("sessions", {"opened": 1}), ("snapshot_taken", {})])
    (started,) = [line for line in lines if line["event"] == "started"]
    assert started["ingress_endpoints"].startswith("0=127.0.0.1:")
    assert (Path(started["directory"]).name, Path(started["aeron_dir"]).name) == ("node", "driver")
    (error,) = [line for line in lines if line["event"] == "error"]
    assert error["source"] == "clustered-service-0-0"
    assert error["log_position"] > 0
    assert error["cluster_session_id"] == 2
    assert re.match('Traceback .*\n  File ".*day.py", line ', error["stack"])
    assert "a secret" not in before
    (taken,) = [line for line in lines if line["event"] == "snapshot_taken" and line["source"] == error["source"]]
    assert taken["bytes"] > 1_000
    assert taken["duration_ms"] >= 0
    assert all(line["time"].endswith("Z") and line["level"] and line["message"] for line in lines)


@pytest.mark.parametrize("logged", ["text"], indirect=True)
def test_the_story_of_a_day_in_text(logged: tuple[str, str]) -> None:
    before, after = logged
    for text, sentences in (
        (
            before,
            (
                "clustered-service-0-0: recovered: snapshotRecordingId=-1 logPosition=0",
                "clustered-service-0-0: joined the log: logPosition=0 memberId=0 role=LEADER",
                "a callback was slow: callback=on_session_message",
                "ValueError: a bad day; on_session_message raised this in the event at logPosition=",
                "clustered-service-0-0: a snapshot was taken: logPosition=",
                "the state changed: state=SUSPENDED formerState=ACTIVE reason=SUSPEND",
            ),
        ),
        (
            after,
            (
                "recovered: snapshotRecordingId=",
                "the state changed: state=TERMINATING",
                "the node: ended: reason=the cluster exitCode=0",
            ),
        ),
    ):
        position = 0
        for sentence in sentences:
            position = text.find(sentence, position)
            assert position >= 0, (sentence, text)


def test_the_examples_of_the_docs_have_the_story() -> None:
    lines = [json.loads(line) for line in EXAMPLES["json"].read_text().splitlines()]
    assert_story(lines, [*STORY, *STORY_AFTER_THE_KILL])
    events = {line["event"] for line in lines if "event" in line}
    text = EXAMPLES["text"].read_text()
    assert text.endswith("the node: ended: reason=the cluster exitCode=0\n")
    for event in events & EVENTS.keys():
        assert EVENTS[event].sentence in text, event


def write_examples() -> None:
    """Write the examples in docs: as they are logged, but for the directory."""
    for log_format, path in EXAMPLES.items():
        with tempfile.TemporaryDirectory() as directory:
            day = Day(Path(directory), log_format)
            try:
                text = "".join(live_through(day))
            finally:
                day.ports.close()
            heading = HEADING if log_format == "text" else ""
            path.write_text(heading + text.replace(directory, "/var/lib/cluster"))


if __name__ == "__main__":
    write_examples()
