"""Backups of clusters as real processes: ours and Java's, each with a driver and an archive of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from container.aeron import AeronClient
from container.codecs.messages import decode, encode
from container.common.aeron_defaults import CONSENSUS_STREAM_ID, CounterType
from container.consensus.backup_requests import backup_response
from container.files.cnc_file import CncFile, CounterRecord
from container.files.recording_log import RecordingLogEntry, read_recording_log
from container.operate.answers import NoFactsError
from container.operate.marks import read_mark_and_errors
from container.testing.memory import transport_probe as seam
from container.testing.processes.endpoints import PortReservation, members_string
from container.testing.processes.java_tools import java_command, resolve_jar
from container.testing.processes.local_archive import ArchiveKind, LocalArchive
from container.testing.processes.local_cluster import Node
from container.testing.processes.process import Process
from container.transport.streams import Publication
from tests.limits import LIMIT_S
from tests.system.archive_requests import start_driver

BACKING_UP = 5
COUNTERS = tuple(each for each in CounterType if each.name.startswith("BACKUP_"))


def _errors_in(cluster_dir: Path) -> list[str]:
    try:
        return [each.text for each in read_mark_and_errors(cluster_dir / "cluster-mark.dat")[1]]
    except NoFactsError:  # it has no file yet, or is just making it
        return []


def counters_of(aeron_dir: Path) -> list[CounterRecord]:
    """Those of the backup of a driver."""
    file = CncFile.open_ready(aeron_dir)
    if file is None:
        return []
    try:
        return [each for each in file.counters() if each.type_id in COUNTERS]
    finally:
        file.close()


class BackupProcess:
    """A backup, its media driver and its archive, a process each; the directories last over restarts.

    Args:
        kind: whose backup.
        members: that it may ask.
        directory: where everything is; ``directory / "copy"`` is like the base directory of a node.
        archive: whose archive it has.
        java_classes: with the main class of Java's backup.
        settings: by our names, or by Aeron's properties where the backup is Java's.
        archive_properties: of its archive, as Java's.
    """

    def __init__(
        self,
        kind: ArchiveKind,
        members: Sequence[Node],
        directory: Path,
        *,
        archive: ArchiveKind = "native",
        java_classes: Path | None = None,
        settings: dict[str, Any] | None = None,
        archive_properties: dict[str, str] | None = None,
    ) -> None:
        self.kind, self.directory, self.base_dir = kind, directory, directory / "copy"
        self.cluster_dir, self.archive_dir = self.base_dir / "cluster", self.base_dir / "archive"
        self.aeron_dir = directory / "driver"
        self.cluster_dir.mkdir(parents=True, exist_ok=True)
        self._archive_kind, self._java_classes = archive, java_classes
        self._endpoints = ",".join(each.endpoints.consensus for each in members)
        self._settings, self._archive_properties = settings or {}, archive_properties
        self._ports = PortReservation()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start all three."""
        self._stack.callback(self._ports.close)
        self.driver = self._stack.enter_context(start_driver(self.directory))
        self.archive = self._stack.enter_context(
            LocalArchive(self._archive_kind, self.base_dir, self.aeron_dir, properties=self._archive_properties)
        )
        self.archive.start().await_ready()
        self.process = self._stack.enter_context(Process("backup", self._command(), directory=self.directory))
        self.process.start()

    def _command(self) -> list[str]:
        consensus = f"aeron:udp?endpoint=127.0.0.1:{self._ports.take()}"
        if self.kind == "native":
            lines = {
                "cluster_consensus_endpoints": self._endpoints,
                "cluster_dir": str(self.cluster_dir),
                "aeron_dir": str(self.aeron_dir),
                "consensus_channel": consensus,
                "catchup_endpoint": "127.0.0.1:0",
                "member_archive_response_channel": "aeron:udp?endpoint=127.0.0.1:0",
                "cool_down_interval_ns": "1s",
            } | self._settings
            config = self.directory / "backup.toml"
            config.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in lines.items()))
            return [sys.executable, "-m", "container", "backup", "--config", str(config)]
        assert self._java_classes is not None
        return java_command(
            "container.tests.Backup",
            [resolve_jar(), self._java_classes],
            properties={
                "aeron.dir": str(self.aeron_dir),
                "aeron.cluster.dir": str(self.cluster_dir),
                "aeron.cluster.consensus.endpoints": self._endpoints,
                "aeron.cluster.consensus.channel": consensus,
                "aeron.cluster.backup.catchup.endpoint": "127.0.0.1:0",
                "aeron.cluster.backup.cool.down.interval": "1s",
                "aeron.archive.local.control.channel": "aeron:ipc",
                "aeron.archive.control.channel": "aeron:udp",
                "aeron.archive.control.response.channel": "aeron:udp?endpoint=127.0.0.1:0",
            }
            | self._settings,
        )

    def counters(self) -> list[CounterRecord]:
        """Those of the backup, as its driver shows them."""
        return counters_of(self.aeron_dir)

    def counter(self, type_id: CounterType) -> int | None:
        """The value of its counter, None while there is none."""
        return next((each.value for each in self.counters() if each.type_id == type_id), None)

    def await_position(self, position: int, limit_s: float = LIMIT_S) -> None:
        """Wait until the copy is one, and has the log up to a position."""
        self.process.wait_until(lambda: self.has(position), limit_s, f"a copy up to {position}")

    def has(self, position: int) -> bool:
        """Whether the copy is one, and has the log up to a position."""
        state, live = self.counter(CounterType.BACKUP_STATE), self.counter(CounterType.BACKUP_LIVE_LOG_POSITION)
        return state == BACKING_UP and live is not None and live >= position

    def errors(self) -> list[str]:
        """The texts in its mark file, none before there is a whole one."""
        return _errors_in(self.cluster_dir)

    def query_now(self) -> None:
        """Have it ask a member again, as an operator does."""
        command = [sys.executable, "-m", "container", "backup-query-delay", str(self.cluster_dir), "--set", "0ms"]
        with Process("query", command, directory=self.directory) as tool:
            tool.start()
            assert tool.wait(LIMIT_S) == 0, tool.tail()

    def snapshot_position(self) -> int:
        """Log position of the latest snapshot of the copy, -1 without one."""
        found = [each.log_position for each in read_recording_log(self.cluster_dir) if each.is_valid_snapshot]
        return max(found, default=-1)

    def stop(self) -> int:
        """End the backup in order, and then its archive and its driver; the backup's return code."""
        code = self.process.stop()
        self.archive.stop()
        self.driver.stop()
        return code

    def close(self) -> None:
        """Kill what runs."""
        self._stack.close()


class FalseMember:
    """Answers a backup in place of a member, on an endpoint of its own; the archive that it names is the member's.

    Args:
        member: whose driver runs.
        endpoint: where a backup asks.
    """

    def __init__(self, member: Node, endpoint: str) -> None:
        self._member, self.endpoint = member, endpoint
        self._client = AeronClient(member.aeron_dir)
        self._subscription = seam.add_subscription(self._client, f"aeron:udp?endpoint={endpoint}", CONSENSUS_STREAM_ID)
        self._answers: list[tuple[Publication, bytes]] = []
        self.fields: dict[str, Any] = {}
        """The untrue fields of its answers."""

    def answer(self) -> None:
        """Answer what has come."""
        for data, _ in seam.poll(self._subscription, 10):
            name, query = decode("cluster", data)
            if name == "BackupQuery":
                channel, stream_id = query["response_channel"].decode(), query["response_stream_id"]
                publication = seam.add_publication(self._client, channel, stream_id, exclusive=True)
                self._answers.append((publication, self._answer(query["correlation_id"])))
        for each in list(self._answers):
            publication, message = each
            if seam.offer(publication, message) > 0:
                self._answers.remove(each)
                publication.close()

    def _answer(self, correlation_id: int) -> bytes:
        entries = list(read_recording_log(self._member.cluster_dir))
        snapshots = [each for each in entries if each.is_valid_snapshot]
        file = CncFile.open_ready(self._member.aeron_dir)
        assert file is not None
        try:
            (counter_id,) = (each.counter_id for each in file.counters() if each.type_id == CounterType.COMMIT_POSITION)
        finally:
            file.close()
        message = backup_response(
            correlation_id,
            last_term=[each for each in entries if each.is_term][-1],
            snapshots=[each for each in snapshots if each.log_position == snapshots[-1].log_position],
            commit_position_counter_id=counter_id,
            leader_member_id=self._member.endpoints.member_id,
            member_id=self._member.endpoints.member_id,
            cluster_members=members_string(self._member.members),
        )
        _, fields = decode("cluster", message)
        return encode("cluster", "BackupResponse", **(fields | self.fields))

    def close(self) -> None:
        self._client.close()


class WholeBackup:
    """`aeron-cluster backup --archive-dir`: backup, media driver and archive in one process.

    Args:
        directory: of the test; ``directory / "copy"`` is like the base directory of a node.
        consensus: the consensus endpoints of the members that it may ask.
        ports: three endpoints of its own: for answers of members, the log, and answers of their archives.
        source_type: as the setting.
        network_namespace: of the host that it runs on.
    """

    def __init__(
        self,
        directory: Path,
        consensus: Sequence[str],
        ports: Sequence[str],
        *,
        source_type: str = "ANY",
        network_namespace: str | None = None,
    ) -> None:
        self.directory, self.base_dir = directory, directory / "copy"
        self.cluster_dir, self.aeron_dir = self.base_dir / "cluster", directory / "driver"
        for name in ("cluster", "archive"):
            (self.base_dir / name).mkdir(parents=True, exist_ok=True)
        answers, catchup, archive_answers = ports
        settings = {
            "cluster_consensus_endpoints": ",".join(consensus),
            "cluster_dir": str(self.cluster_dir),
            "aeron_dir": str(self.aeron_dir),
            "consensus_channel": f"aeron:udp?endpoint={answers}",
            "catchup_endpoint": catchup,
            "member_archive_response_channel": f"aeron:udp?endpoint={archive_answers}",
            "response_timeout_ns": "2s",
            "progress_timeout_ns": "5s",
            "cool_down_interval_ns": "1s",
            "source_type": source_type,
        }
        config = directory / "backup.toml"
        config.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
        command = [sys.executable, "-m", "container", "backup", "--config", str(config)]
        self.process = Process(
            "backup",
            [*command, "--archive-dir", str(self.base_dir / "archive")],
            directory=directory,
            network_namespace=network_namespace,
        )

    def counter(self, type_id: CounterType) -> int | None:
        """The value of its counter, None while there is none."""
        return next((each.value for each in counters_of(self.aeron_dir) if each.type_id == type_id), None)

    def await_state(self, state: int) -> None:
        self.process.wait_until(
            lambda: self.counter(CounterType.BACKUP_STATE) == state, LIMIT_S, f"state {state} of the backup"
        )

    def await_position(self, position: int) -> None:
        """Wait until it follows a member, and has the log up to a position."""

        def is_there() -> bool:
            live = self.counter(CounterType.BACKUP_LIVE_LOG_POSITION)
            return self.counter(CounterType.BACKUP_STATE) == BACKING_UP and live is not None and live >= position

        self.process.wait_until(is_there, 2 * LIMIT_S, f"a copy up to {position}")

    def errors(self) -> list[str]:
        """The texts in its mark file, none before there is a whole one."""
        return _errors_in(self.cluster_dir)

    def entries(self) -> list[RecordingLogEntry]:
        return list(read_recording_log(self.cluster_dir))
