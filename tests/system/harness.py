"""What system tests share: services and clients that they start on a node, and how they read what those say."""

from __future__ import annotations

import json
import re
import signal
import struct
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypedDict

from container.api import Header, MessageBuffer
from container.client import AeronCluster, EgressListener
from container.testing.processes.local_archive import ArchiveKind
from container.testing.processes.local_cluster import Node
from container.testing.processes.process import Process, wait_until
from tests.limits import LIMIT_S
from tests.soak.scenario import Scenario

type NodeFactory = Callable[..., Node]
type Scenarios = Callable[..., AbstractContextManager[Scenario]]


class Parts(TypedDict, total=False):
    """Whose parts the members of a :class:`~container.testing.cluster.LocalCluster` have; Java's where not given."""

    drivers: ArchiveKind
    archives: ArchiveKind
    consensus_modules: ArchiveKind


ROOT = Path(__file__).parents[2]
ECHO_SERVICE = [sys.executable, str(ROOT / "examples" / "echo_service.py")]
LEDGER_SERVICE = [sys.executable, str(ROOT / "tests" / "system" / "ledger_service.py")]
REPORTING_SERVICE = [sys.executable, str(ROOT / "tests" / "system" / "reporting_service.py")]
COMMAND = [sys.executable, "-m", "container"]

JAVA_ECHO_SERVICE = "container.tests.EchoService"
JAVA_LEDGER_SERVICE = "container.tests.LedgerService"
ECHO_CLIENT = "container.tests.EchoClient"
LEDGER_CLIENT = "container.tests.LedgerClient"

# Less than the limit of a whole test, so that a failure says what did not happen.
QUICK_DRIVER = {"aeron.client.liveness.timeout": "4s"}
"""Properties of a node whose driver drops a dead client after 4 s and not after 10 s."""

_DESCRIPTOR_FIELD = re.compile(r"(\w+)=('[^']*'|[^|]*)")
_FRAME_HEADER = struct.Struct("<iBBHiiii")
_FRAME_ALIGNMENT = 32
_DATA_FRAME = 1


def start(node: Node, command: list[str], environment: Mapping[str, str] | None = None) -> Process:
    """Start a node with one service, a program of Python, and wait until it leads."""
    node.start()
    service = node.start_service(command, environment=environment)
    node.await_leader()
    return service


def release(node: Node, *services: Process) -> None:
    """Kill a node and its services, and free their mark files, so that all of them can start again at once."""
    for service in services:
        service.kill()
    node.kill()
    node.release_mark_files()


def start_tool(node: Node, *arguments: str, **properties: str) -> Process:
    """Start ClusterTool and wait for nothing; the names of properties have ``_`` in place of dots."""
    settings = {name.replace("_", "."): value for name, value in properties.items()}
    arguments = (str(node.cluster_dir), *arguments)
    return node.start_java_client("io.aeron.cluster.ClusterTool", arguments, properties=settings, name="cluster-tool")


def run_echo_client(node: Node, *arguments: str, ipc: bool = False, **properties: str) -> dict[str, float]:
    """Run the echo client of Java to its end and return what it printed."""
    settings = {name.replace("_", "."): value for name, value in properties.items()}
    client = node.start_java_client(ECHO_CLIENT, arguments, ipc=ipc, properties=settings)
    assert client.wait(4 * LIMIT_S) == 0, client.tail()
    result: dict[str, float] = json.loads(client.output())
    return result


def run_ledger_client(node: Node, *commands: str) -> list[str]:
    """Run the ledger client of Java with a script and return the answers."""
    client = node.start_java_client(LEDGER_CLIENT, commands)
    assert client.wait(LIMIT_S) == 0, client.tail()
    connected, *answers = client.output().splitlines()
    assert connected.startswith("CONNECTED ")
    return answers


class CommandClient(EgressListener):
    """A client of the cluster in this process that gives commands to the reporting service."""

    def __init__(self, node: Node, *, ipc: bool = False, **settings: Any) -> None:
        properties = node.client_properties(ipc=ipc)
        settings.setdefault("egress_channel", properties["aeron.cluster.egress.channel"])
        self._node = node
        self.messages: list[bytes] = []
        self.events: list[tuple[int, str]] = []
        self.cluster = AeronCluster.connect(
            aeron_dir=properties["aeron.dir"],
            ingress_channel=properties["aeron.cluster.ingress.channel"],
            ingress_endpoints=properties.get("aeron.cluster.ingress.endpoints"),
            message_timeout=LIMIT_S,
            listener=self,
            **settings,
        )

    @property
    def session_id(self) -> int:
        return self.cluster.cluster_session_id

    def on_message(self, cluster_session_id: int, timestamp: int, buffer: MessageBuffer, header: Header) -> None:
        self.messages.append(bytes(buffer))

    def on_session_event(
        self,
        correlation_id: int,
        cluster_session_id: int,
        leadership_term_id: int,
        leader_member_id: int,
        code: int,
        detail: str,
    ) -> None:
        self.events.append((code, detail))

    def send(self, do: str, **arguments: object) -> None:
        """Send a command and wait for nothing."""
        self.cluster.send(json.dumps({"do": do, **arguments}).encode())

    def send_without_polling(self, message: bytes) -> None:
        """Send bytes and hear nothing meanwhile, so that egress is not taken from the stream."""
        wait_until(lambda: self.cluster.offer(message) > 0, LIMIT_S, f"ingress to take {message[:80]!r}")

    def do(self, do: str, **arguments: object) -> Any:
        """Send a command and return its result; an error that the service answered is raised."""
        answer = json.loads(self.ask(do, **arguments))
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["result"]

    def ask(self, do: str, **arguments: object) -> bytes:
        """Send a command and return the next message that comes."""
        self.messages.clear()
        self.send(do, **arguments)
        self.poll_until(lambda: bool(self.messages), f"the answer to {do}")
        return self.messages[0]

    def poll_until[T](self, predicate: Callable[[], T | None], what: str, limit_s: float = LIMIT_S) -> T:
        """Poll egress until ``predicate`` returns something true, and return that; node and services must run."""

        def poll_and_ask() -> T | None:
            while not self.cluster.is_closed and self.cluster.poll_egress():
                pass
            return predicate()

        return wait_until(poll_and_ask, limit_s, what, [self._node.process, *self._node.services])

    def close(self) -> None:
        self.cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


# What the reporting service said


def reports(service: Process, callback: str | None = None) -> list[dict[str, Any]]:
    """The callbacks since the service's latest start, or those of one name, in their order."""
    whole_lines = service.output().rpartition("\n")[0].splitlines()
    all_reports: list[dict[str, Any]] = [json.loads(line) for line in whole_lines]
    return [report for report in all_reports if callback in (None, report["callback"])]


def callback_names(service: Process) -> list[str]:
    """The names of the callbacks since the service's latest start."""
    return [report["callback"] for report in reports(service)]


def await_report(service: Process, callback: str, count: int = 1, **values: Any) -> dict[str, Any]:
    """Wait until a callback was called ``count`` times (with these values), and return the last of these."""

    def found() -> list[dict[str, Any]]:
        return [report for report in reports(service, callback) if values.items() <= report.items()]

    what = f"{service.name} to report {callback} {count} times{f' with {values}' if values else ''}"
    return service.wait_until(lambda: found()[count - 1 : count], LIMIT_S, what)[0]


# How a service ends


def end_by(service: Process, number: signal.Signals, limit_s: float = 10.0) -> int:
    """Send a signal, wait for the end and return the return code."""
    service.send_signal(number)
    return service.wait(limit_s)


def status_after_a_loss(node: Node) -> int:
    """The status with which its consensus module ends when it has lost its driver, its archive or a service."""
    return 1 if node.consensus_module_kind == "native" else 0


def error_texts(node: Node, service_id: int = 0) -> list[str]:
    """The texts in the error log of a service's mark file."""
    return _errors(node, f"cluster-mark-service-{service_id}.dat")


def module_errors(node: Node) -> list[str]:
    """The texts in the error log of the consensus module's mark file."""
    return _errors(node, "cluster-mark.dat")


def _errors(node: Node, mark_file_name: str) -> list[str]:
    return [record.text for record in node.errors().get(node.cluster_dir / mark_file_name, [])]


# What the archive recorded


class Recording(NamedTuple):
    """One recording as the catalog tells it; ``stop_position`` is -1 while it is being recorded."""

    recording_id: int
    start_position: int
    stop_position: int
    stream_id: int
    original_channel: str


def recordings(node: Node) -> list[Recording]:
    """The recordings in the archive's catalog, by Java's ArchiveTool."""
    arguments = [str(node.archive_dir), "describe"]
    tool = node.start_java_client("io.aeron.archive.ArchiveTool", arguments, name="archive-tool")
    assert tool.wait(LIMIT_S) == 0, tool.tail()
    return [_recording(line) for line in tool.output().splitlines() if "[RecordingDescriptor]" in line]


def _recording(line: str) -> Recording:
    fields = dict(_DESCRIPTOR_FIELD.findall(line))
    return Recording(
        int(fields["recordingId"]),
        int(fields["startPosition"]),
        int(fields["stopPosition"]),
        int(fields["streamId"]),
        fields["originalChannel"].strip("'"),
    )


def recorded_frames(node: Node, recording_id: int) -> list[tuple[int, bytes]]:
    """Flags and payload of each data frame in the only segment file of a recording."""
    content = (node.archive_dir / f"{recording_id}-0.rec").read_bytes()
    frames, offset = [], 0
    while offset + _FRAME_HEADER.size <= len(content):
        length, _version, flags, kind, *_rest = _FRAME_HEADER.unpack_from(content, offset)
        if length <= 0:
            break
        if kind == _DATA_FRAME:
            frames.append((flags, content[offset + 32 : offset + length]))
        offset += (length + _FRAME_ALIGNMENT - 1) & -_FRAME_ALIGNMENT
    return frames


def snapshot_recordings(node: Node) -> dict[int, int]:
    """The recordings of the latest snapshot by service id, -1 for the consensus module; by Java's ClusterTool."""
    result = node.cluster_tool("recording-log")
    assert result.return_code == 0, result.output
    found = {}
    for text in result.output.split("Entry{")[1:]:
        fields = dict(field.strip().partition("=")[::2] for field in text.split("}")[0].split(","))
        if fields["type"] == "SNAPSHOT":
            found[int(fields["serviceId"])] = int(fields["recordingId"])
    return found
