"""Runs the operators' words in this process, on small members that are written by tests."""

from __future__ import annotations

import io
import json
import random
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from container.__main__ import main
from container.codecs.messages import encode
from tests.recordings_world import World, marker, write_mark

STATE = b"the state of a service"


class Result(NamedTuple):
    """The result of a word."""

    code: int
    output: str
    error: str

    @property
    def facts(self) -> Any:
        """The facts, as JSON has them; of several lines a list."""
        lines = self.output.splitlines()
        if lines[0] == "{":
            return json.loads(self.output)
        return [json.loads(line) for line in lines]


class Words:
    """Runs words and captures what they print."""

    def __call__(self, line: str, directory: Path | None, *arguments: str, answer: str | None = None) -> Result:
        """Run a word on a directory; ``answer`` is what is typed on a terminal."""
        page, error = io.BytesIO(), io.StringIO()
        output = io.TextIOWrapper(page, "utf-8")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdout", output)
            patch.setattr(sys, "stderr", error)
            patch.setattr(sys, "stdin", Terminal(answer))
            places = [] if directory is None else [str(directory)]
            try:
                code = main([*line.split(), *places, *arguments])
            except SystemExit as end:
                code = int(str(end.code))
        output.flush()
        return Result(code, page.getvalue().decode(), error.getvalue())

    def facts(self, line: str, directory: Path, *arguments: str, code: int = 0) -> Any:
        """Return the facts of a word that ends with this code."""
        found = self(line, directory, *arguments, "--json")
        assert found.code == code, found
        return found.facts

    def refusal(self, line: str, directory: Path, *arguments: str, code: int = 1) -> str:
        """Return the one sentence of a word that ends with this code and has no facts."""
        found = self(line, directory, *arguments)
        assert found.code == code, found
        assert found.output == ""
        assert found.error.count("\n") == 1, found.error
        return found.error


class Terminal(io.StringIO):
    """A substitute for standard input: a terminal at which an answer is typed, or no terminal."""

    def __init__(self, answer: str | None) -> None:
        super().__init__(answer)
        self._answers = answer is not None

    def isatty(self) -> bool:
        return self._answers


def add_snapshots(world: World, position: int) -> None:
    """Write a snapshot of one service and the consensus module, with a session, a timer and a pending message."""
    session = encode(
        "cluster", "ClientSession", cluster_session_id=7, response_stream_id=102, response_channel="aeron:udp",
        encoded_principal=b"\1\2",
    )  # fmt: skip
    world.add_snapshot(0, [marker(0, position=position), session, marker(2, position=position), STATE, STATE], position)
    module = [
        encode(
            "cluster", "ConsensusModule", next_session_id=8, next_service_session_id=-(2**63) + 3,
            log_service_session_id=-(2**63) + 1, pending_message_capacity=64,
        ),
        encode(
            "cluster", "ClusterSession", cluster_session_id=7, correlation_id=5, opened_log_position=96,
            time_of_last_activity=-1, close_reason=-(2**31), response_stream_id=102, response_channel="aeron:udp",
        ),
        encode("cluster", "Timer", correlation_id=3, deadline=1234),
        encode(
            "cluster", "PendingMessageTracker", next_service_session_id=-(2**63) + 3,
            log_service_session_id=-(2**63) + 1, pending_message_capacity=64, service_id=0,
        ),
        encode(
            "cluster", "SessionMessageHeader", leadership_term_id=0, cluster_session_id=-(2**63) + 2, timestamp=9
        ) + b"pending",
    ]  # fmt: skip
    kind = {"type_id": 1, "position": position}
    world.add_snapshot(-1, [marker(0, **kind), *module, marker(2, **kind)], position)


def written(base_dir: Path, *, age_ms: int = 60_000) -> World:
    """A member with two snapshots, whose node has ended without saying so."""
    world = World(base_dir)
    world.begin_term()
    rng = random.Random(1)
    world.append_some(rng, 40)
    add_snapshots(world, world.log.position)
    world.append_some(rng, 40)
    add_snapshots(world, world.log.position)
    world.close()
    write_mark(base_dir, 2, age_ms=age_ms)
    return world
