"""``./run soak --node``: a real node is killed under load again and again, at points that a seed chooses.

The node is one process: media driver, archive, consensus module and service. Clients in shared memory and over the
network number their messages and send each once. After each kill the recorded log must hold every acknowledged
message, none twice, and those of a client in order. The service, run again over the log, must give the answers that
clients have got, each with a hash of the whole state, and write the snapshots that are recorded. Now and then the node
is killed while it starts, while it takes a snapshot or while it ends; Java's tools look at its files.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from container.aeron.media_driver import MediaDriver
from container.api import Header, MessageBuffer
from container.client import AeronCluster, EgressListener
from container.errors import ContainerError
from container.files.cnc_file import FileFormatError, mark_terminated, read_mark_file
from container.recordings import read
from container.replay.execution import replay
from container.testing.processes.endpoints import HOST, PortReservation
from container.testing.processes.java_tools import java_command, resolve_jar
from container.testing.processes.local_archive import run_archive_tool
from container.testing.processes.process import Process, ProcessEndedError, is_alive, wait_until
from tests.resources import memory_directory
from tests.soak.ledger import ANSWER, COMMAND, Op, Status
from tests.soak.ledger_service import SequencedLedgerService

LIMIT_S = 120.0
"""Without any progress: on a busy machine a start alone may take half a minute."""
ROUND = 20
"""Kills on one directory; then another takes its place."""
REPLAY_SHARE = 0.25
"""Of the kills after which the service is run again over the log; it is at the end of a round in any case."""
MARK_FILES = ("archive/archive-mark.dat", "cluster/cluster-mark.dat", "cluster/cluster-mark-service-0.dat")
MAX_PADDING = 6_000
STRADDLES = "straddles a page boundary"
"""What ArchiveTool says of a last frame that has only zeros behind the page: as a close event may."""
TOOL_CLASS = "io.aeron.cluster.ClusterTool"


class Lost(AssertionError):
    """What the node's directory does not hold, or holds and should not."""


class Client(EgressListener):
    """A session that sends numbered commands, each once, and keeps the answers; not more than ``window`` under way."""

    def __init__(self, client_id: int, choice: random.Random, settings: dict[str, Any]) -> None:
        self.client_id = client_id
        self.sent = self.answered = 0
        self.answers: list[bytes] = []
        self.states: list[bytes] = []
        self._choice = choice
        self._window = choice.choice((1, 4, 32, 200))
        self._is_padded = choice.random() < 0.3
        self._next = b""
        self.session = AeronCluster.connect(listener=self, message_timeout=LIMIT_S, **settings)

    def on_message(self, cluster_session_id: int, timestamp: int, buffer: MessageBuffer, header: Header) -> None:
        """An answer: the sequence in it is that of the last command of this client."""
        answer = bytes(buffer)
        status, client_id, number, _position, _hash = ANSWER.unpack(answer)
        if status == Status.STATE:
            self.states.append(answer)
            return
        self.answered += 1
        if (status, client_id, number) != (Status.OK, self.client_id, self.answered):
            raise Lost(f"client {self.client_id}: answer {self.answered} is {ANSWER.unpack(answer)}")
        self.answers.append(answer)

    def work(self) -> None:
        """Send what the window allows, and take answers; nothing once the node has said that it ends."""
        if self.session.is_closed:
            return
        count = self.session.poll_egress()
        while self.sent - self.answered < self._window:
            self._next = self._next or self._command()
            if self.session.offer(self._next) <= 0:
                break
            self._next = b""
            self.sent += 1
            count += 1
        self.session.idle(count)

    def read(self) -> bytes:
        """Ask for a hash of the whole state: the answer."""
        self.states.clear()
        self.session.send(COMMAND.pack(Op.READ, self.client_id, 0, 0, 0))

        def state() -> bytes:
            self.session.poll_egress()
            return self.states[-1] if self.states else b""

        return wait_until(state, LIMIT_S, "the ledger's state")

    def _command(self) -> bytes:
        choice, sequence = self._choice, self.sent + 1
        key = self.client_id << 24 | sequence
        op, value = choice.choices((Op.ADD, Op.TIMER, Op.RELAY), (90, 4, 6))[0], choice.randrange(200)
        padding = choice.randrange(MAX_PADDING) if self._is_padded and choice.random() < 0.2 else choice.randrange(100)
        return COMMAND.pack(op, self.client_id, sequence, key, value) + bytes(padding)


def _answered(clients: list[Client]) -> int:
    return sum(client.answered for client in clients)


class NodeKills:
    """A node, its clients and what they were told. ``with`` starts the clients' driver, and ends everything."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.choice = random.Random(seed)
        self.directory = directory / "node"
        self.directory.mkdir(exist_ok=True)
        self.counts: Counter[str] = Counter()
        self.answers: dict[int, list[bytes]] = {}
        """By client: what it was told, in order."""
        self.states: list[bytes] = []
        """Hashes of the whole state that clients were told."""
        self._client_count = 0
        self._progress_s = 0.0
        self._closing = ExitStack()
        self._ports = PortReservation()
        self.port = self._ports.take_row(5)
        self._memory = tempfile.TemporaryDirectory(prefix="node-kills-", dir=memory_directory())
        self.aeron_dir = str(Path(self._memory.name, "aeron"))
        arguments = [str(self.directory), self.aeron_dir, str(self.port), str(self.choice.choice((0, 0, 0, 1)))]
        command = [sys.executable, "-m", "tests.soak.node_process", *arguments]
        self.node = Process("node", command, directory=directory)

    def __enter__(self) -> NodeKills:
        self._closing.callback(self._ports.close)
        self._closing.callback(self._memory.cleanup)
        self._closing.callback(self.node.close)
        self.client_driver = self._closing.enter_context(MediaDriver.launch_embedded())
        return self

    def __exit__(self, *_error: object) -> None:
        self._closing.close()

    def _remove_aeron_dir(self) -> None:
        shutil.rmtree(self.aeron_dir, ignore_errors=True)

    def report(self) -> str:
        """The ends of the node's outputs, and the error logs of its mark files, for the text of a failure."""
        lines = [self.node.tail()]
        for name in MARK_FILES:
            try:
                lines += [f"--- {name}: {error.text}" for error in read_mark_file(self.directory / name).errors]
            except (OSError, FileFormatError) as error:
                lines.append(f"--- {name}: {error}")
        return "\n".join(lines)

    def run(self, points: int) -> None:
        """Kill the node so many times, and look after each; raises Lost for what is not as it should be."""
        for _point in range(points):
            self.start()
            self._live()
            self.check_log()
            if self.choice.random() < REPLAY_SHARE:
                self.check_replay()
        self.start()
        self.settle()
        self.end()
        self.check_log()
        self.check_replay()

    def start(self) -> None:
        """Start the node, now and then kill it while it starts."""
        self.release()
        self.node.start()
        while self.choice.random() < 0.15:
            is_early = self.choice.random() < 0.2
            if not is_early:
                self.node.wait_until(lambda: Path(self.aeron_dir, "cnc.dat").exists(), LIMIT_S, "the driver to start")
            threading.Event().wait(self.choice.random() * 0.3)
            self.node.kill()
            self.counts["kills of a start"] += 1
            self.release()
            self.node.start()
        assert self.node.read_line(LIMIT_S) == "ready"

    def release(self) -> None:
        """What a dead node holds for 10 s yet: its mark files and the directory of its driver."""
        self._remove_aeron_dir()
        for name in MARK_FILES:
            path = self.directory / name
            try:
                assert not is_alive(read_mark_file(path).pid), f"{path} is held by a node that lives"
                mark_terminated(path)
            except FileNotFoundError:
                continue
            except FileFormatError:
                self.counts["mark files that were not written yet"] += 1

    def connect(self) -> Client:
        """Return a new client, in shared memory or over the network.

        Whoever has asked closes its session.
        """
        self._client_count += 1
        if self.choice.random() < 0.5:
            settings = {"aeron_dir": self.aeron_dir, "ingress_channel": "aeron:ipc", "egress_channel": "aeron:ipc"}
            self.counts["clients in shared memory"] += 1
        else:
            settings = {
                "aeron_dir": self.client_driver.aeron_dir,
                "ingress_channel": "aeron:udp",
                "ingress_endpoints": f"0={HOST}:{self.port}",
                "egress_channel": f"aeron:udp?endpoint={HOST}:0",
            }
            self.counts["clients over the network"] += 1
        client = Client(self._client_count, self.choice, settings)
        self.answers[client.client_id] = client.answers
        return client

    def _live(self) -> None:
        """Serve clients, and kill the node in the middle of it."""
        clients: list[Client] = []
        try:
            clients += [self.connect() for _ in range(self.choice.randrange(1, 4))]
            self.states.append(clients[0].read())
            self.load(clients, self.choice.randrange(1500))
            if self.choice.random() < 0.3:
                self.node.write_line("snapshot")
                self.load(clients, self.choice.randrange(300), until_line="snapshot")
                self.counts["snapshots"] += 1
            ending = self.choice.random()
            if ending < 0.2:
                self.node.write_line("snapshot")
                self._load_for(clients, self.choice.random() * 0.04)
                self.counts["kills while a snapshot was asked for"] += 1
            elif ending < 0.3:
                self.node.close_input()
                threading.Event().wait(self.choice.random() * 0.06)
                self.counts["kills while it ended"] += 1
            self.node.kill()
            self.counts["kills"] += 1
        finally:
            for client in clients:
                client.session.close()
            self.counts["messages"] += sum(client.sent for client in clients)
            self.counts["messages acknowledged"] += _answered(clients)

    def load(self, clients: list[Client], count: int, until_line: str = "") -> None:
        """Send until so many more are acknowledged, and the node has printed a line if one is given."""
        goal = count + _answered(clients)
        self._progress_s = time.monotonic()
        while _answered(clients) < goal or (until_line and self._printed() != until_line):
            self._work(clients)

    def _load_for(self, clients: list[Client], seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._work(clients)

    def _work(self, clients: list[Client]) -> None:
        before = _answered(clients)
        for client in clients:
            client.work()
        now = time.monotonic()
        if _answered(clients) > before:
            self._progress_s = now
        if now > self._progress_s + LIMIT_S or not self.node.is_running:
            raise ProcessEndedError(f"no progress: {[(each.sent, each.answered) for each in clients]}")

    def _printed(self) -> str:
        lines = self.node.output().splitlines()
        return lines[-1] if lines else ""

    def settle(self) -> None:
        """All timers fire and all that the service has sent to its cluster comes back, once each."""
        client = self.connect()
        with client.session:

            def state() -> bytes:
                found = client.read()
                return found if ANSWER.unpack(found)[2] == 0 else b""

            self.states.append(wait_until(state, LIMIT_S, "timers and service messages to come"))

    def end(self) -> None:
        """End the node in order."""
        self.node.close_input()
        code = self.node.wait(LIMIT_S)
        if code != 0:
            raise Lost(f"the node ended with {code}")

    # The oracle: it reads the recording of the log, and runs the service again.

    def check_log(self) -> None:
        """Look for each acknowledged message in the log, and for any that is there twice."""
        found: dict[int, int] = {}
        service_messages: set[int] = set()
        for batch in read(self.directory, "session_messages", committed="recorded"):
            for row in batch.to_pylist():
                if row["error"] is not None:
                    raise Lost(f"the log cannot be read: {row['error']}")
                self._take(row, found, service_messages)
        for client_id, answers in self.answers.items():
            if len(answers) > found.get(client_id, 0):
                raise Lost(
                    f"client {client_id} has {len(answers)} answers, and the log {found.get(client_id, 0)} messages"
                )
        self.counts["messages in the log"] = sum(found.values())

    def _take(self, row: dict[str, Any], found: dict[int, int], service_messages: set[int]) -> None:
        payload = row["payload"]
        if row["cluster_session_id"] is None or row["cluster_session_id"] < 0:
            if payload in service_messages:
                raise Lost(f"a service message is twice in the log: {row}")
            service_messages.add(payload)
            return
        op, client_id, sequence, _key, _value = COMMAND.unpack_from(payload)
        if op == Op.READ:
            return
        if sequence != found.get(client_id, 0) + 1:
            raise Lost(f"message {sequence} of client {client_id} follows {found.get(client_id, 0)} in the log: {row}")
        found[client_id] = sequence

    def check_replay(self) -> None:
        """Run the service again over the log, and compare with what clients were told and with recorded snapshots."""
        self.counts["replays"] += 1
        with tempfile.TemporaryDirectory(prefix="node-kills-") as journal:
            made: list[SequencedLedgerService] = []

            def make() -> SequencedLedgerService:
                made.append(SequencedLedgerService(Path(journal)))
                return made[-1]

            rows = [
                row
                for batch in replay(self.directory, make, committed="recorded", begin_position=0)
                for row in batch.to_pylist()
            ]
        answers: dict[int, list[bytes]] = {}
        states = set()
        for row in rows:
            if row["kind"] == "EGRESS":
                status, client_id, *_rest = ANSWER.unpack(row["payload"])
                if status == Status.STATE:
                    states.add(row["payload"])
                else:
                    answers.setdefault(client_id, []).append(row["payload"])
            elif row["kind"] == "STATE_HASH" and row["recorded_state_hash"] not in (None, row["state_hash"]):
                raise Lost(f"the recorded snapshot differs: {row}")
            elif row["kind"] in ("ERROR", "WARNING"):
                raise Lost(f"the log cannot be replayed: {row}")
            self.counts["snapshots compared"] += row["recorded_state_hash"] is not None
        for client_id, told in self.answers.items():
            if told != answers.get(client_id, [])[: len(told)]:
                raise Lost(f"client {client_id} was told something else than the replay gives")
        if not states.issuperset(self.states):
            raise Lost("a client was told a state that the replay does not have")
        totals = made[-1].ledger.totals
        if totals.timers_spurious or totals.relays_spurious:
            raise Lost(f"timers or service messages came twice: {totals}")

    def check_with_java(self) -> None:
        """Java's ArchiveTool finds all recordings in order, and its ClusterTool reads the cluster's files."""
        verified = run_archive_tool(
            self.directory / "archive", "verify", "-a", answer="n", output_directory=self.directory.parent
        ).output
        if STRADDLES in verified:
            self.counts["last frames that Java's tool cannot judge"] += 1
        elif "ERR" in verified or "(recordingId=0) OK" not in verified:
            raise Lost(f"ArchiveTool verify: {verified}")
        for word in ("describe", "recording-log"):
            command = java_command(TOOL_CLASS, [resolve_jar()], arguments=[str(self.directory / "cluster"), word])
            with Process(f"cluster-tool-{word}", command, directory=self.directory.parent) as tool:
                if tool.start().wait(LIMIT_S) != 0:
                    raise Lost(f"ClusterTool {word}: {tool.tail()}")
        self.counts["looks of Java's tools"] += 1


def main(arguments: Sequence[str]) -> int:
    """Run the soak; 0 when nothing was lost."""
    parser = argparse.ArgumentParser(prog="./run soak --node", description=__doc__)
    parser.add_argument("--points", type=int, default=100, help="how often the node is killed (default 100)")
    parser.add_argument(
        "--seed", type=int, default=1, help=f"of the first {ROUND} points; each next have the next seed"
    )
    options = parser.parse_args(arguments)
    if options.points < 1:
        parser.error(f"--points {options.points}: must be at least 1")
    logging.getLogger("container.replay").setLevel(logging.ERROR)  # what is recorded counts as committed, as asked
    begin = time.monotonic()
    counts: Counter[str] = Counter()
    left, seed = options.points, options.seed
    while left > 0:
        points = min(left, ROUND)
        with tempfile.TemporaryDirectory(prefix="node-kills-") as directory, NodeKills(Path(directory), seed) as kills:
            try:
                kills.run(points)
                kills.check_with_java()
            except (Lost, AssertionError, ContainerError, OSError) as error:
                print(f"FAILED: seed {seed}: {type(error).__name__}: {error}\n{kills.report()}")
                print(f"the same again: ./run soak --node --seed {seed} --points {points}")
                return 1
            counts += kills.counts
        left, seed = left - points, seed + 1
        print(f"{counts['kills']:,} kills, {time.monotonic() - begin:.0f} s", flush=True)
    for name, count in sorted(counts.items()):
        print(f"  {name:<40}{count:>12,}")
    print(f"{counts['kills']:,} kills under load, 0 losses, {time.monotonic() - begin:.0f} s")
    return 0
