"""Archives as peers, Java's and ours, each a process beside one driver; their client, which knows no more than
requests; and streams that are recorded and replayed."""

from __future__ import annotations

import itertools
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from benchmarks._harness import CACHE, ROOT, RoundFailed, cpu_seconds, resident_mib
from benchmarks._verdicts import Result
from container.aeron import AeronClient
from container.codecs import messages as codecs
from container.common.aeron_defaults import CounterType
from container.testing.memory import transport_probe as seam
from container.testing.processes.endpoints import PortReservation
from container.testing.processes.java_tools import JVM_FLAGS
from container.testing.processes.local_archive import ArchiveKind, LocalArchive
from container.transport.streams import Publication, Subscription
from tests.cython_module import compile_cython, load_module

MIB, GIB = 2**20, 2**30
TERM_LENGTH, SEGMENT_LENGTH, BLOCK_LENGTH = 16 * MIB, 128 * MIB, MIB
MTU = 1408
HEADER_LENGTH = 32
IDLE = "backoff"
LIMIT_S = 60.0
JAVA_FLAGS = (*JVM_FLAGS, "-Dagrona.disable.bounds.checks=true")
_LOCAL, _REMOTE = 0, 1
_PROTOCOL_VERSION = 1 << 16 | 12 << 8
_RESPONSE_STREAM = 20
_stream_ids = itertools.count(5001)
_CODES = {0: "OK", 1: "ERROR", 2: "RECORDING_UNKNOWN"}


@cache
def load() -> ModuleType:
    """The program that loads an archive, compiled in the cache."""
    return load_module(compile_cython(ROOT / "benchmarks" / "archive_load.pyx", CACHE))


def await_true(predicate: Callable[[], object], what: str, pause_s: float = 0.001) -> None:
    """Wait until something is so.

    Raises:
        RoundFailed: it is not.
    """
    deadline = time.monotonic() + LIMIT_S
    while not predicate():
        if time.monotonic() > deadline:
            raise RoundFailed(f"waited {LIMIT_S:g} s for {what}")
        time.sleep(pause_s)


class Requests:
    """A session with an archive on its local control channel."""

    def __init__(self, client: AeronClient, control_stream_id: int) -> None:
        """Connect; waits until there is an archive.

        Raises:
            RoundFailed: there is none.
        """
        self.client = client
        self._publication = seam.add_publication(client, "aeron:ipc?term-length=64k", control_stream_id, exclusive=True)
        channel = f"aeron:ipc?session-id={seam.next_session_id(client, _RESPONSE_STREAM)}"
        self._responses = seam.add_subscription(client, channel, _RESPONSE_STREAM)
        self._session_id = -1
        self._kept: dict[int, dict[str, Any]] = {}
        self._session_id = self.ask(
            "AuthConnectRequest",
            response_stream_id=_RESPONSE_STREAM,
            version=_PROTOCOL_VERSION,
            response_channel=channel.encode(),
            encoded_credentials=b"",
            client_info="name=bench",
        )

    def ask(self, name: str, **fields: Any) -> int:
        """Send a request, and return the relevant id of the answer.

        Raises:
            RoundFailed: it is refused, or there is no answer.
        """
        correlation_id = seam.next_correlation_id(self.client)
        if name != "AuthConnectRequest":
            fields["control_session_id"] = self._session_id
        request = codecs.encode("archive", name, correlation_id=correlation_id, **fields)
        await_true(lambda: seam.offer(self._publication, request) > 0, f"an archive that takes {name}")
        await_true(lambda: self._poll() or correlation_id in self._kept, f"the answer to {name}")
        answer = self._kept.pop(correlation_id)
        if answer["code"] != 0:
            raise RoundFailed(f"{name}: {_CODES.get(answer['code'])}: {answer['error_message'].decode()}")
        return int(answer["relevant_id"])

    def _poll(self) -> bool:
        for data, _header in seam.poll(self._responses, 10):
            name, fields = codecs.decode("archive", data)
            if name == "ControlResponse":
                self._kept[fields["correlation_id"]] = fields
        return False

    def close(self) -> None:
        """Close its streams."""
        self._publication.close()
        self._responses.close()


class Peer(Protocol):
    """A peer that records."""

    archive_id: int

    @property
    def pid(self) -> int:
        """Its process."""

    def record(self, channel: str, stream_ids: Sequence[int]) -> list[int]:
        """Record the streams of a channel, which must be a publisher's; what :meth:`stop` wants."""

    def stop(self, subscription_ids: Sequence[int]) -> None:
        """End recordings."""

    def delete(self, recording_ids: Sequence[int]) -> None:
        """Remove their files, which are written no more."""


class ArchivePeer:
    """An archive that runs until it is closed."""

    def __init__(
        self, kind: ArchiveKind, directory: Path, client: AeronClient, archive_id: int, *, name: str = ""
    ) -> None:
        """Choose its settings; nothing is started."""
        self.archive_id = archive_id
        self.client = client
        self.archive = LocalArchive(
            kind,
            directory,
            Path(client.aeron_dir),
            name=name or kind,
            archive_id=archive_id,
            idle_strategy=IDLE,
            properties={
                "aeron.archive.local.control.stream.id": str(archive_id),
                "aeron.archive.segment.file.length": str(SEGMENT_LENGTH),
                "aeron.archive.file.io.max.length": str(BLOCK_LENGTH),
            },
            jvm_flags=JAVA_FLAGS,
        )
        self.requests: Requests | None = None

    def start(self) -> ArchivePeer:
        """Start it, and connect to it."""
        self.archive.start().await_ready()
        self.connect()
        return self

    def connect(self) -> None:
        """Begin a session with it."""
        self.requests = Requests(self.client, self.archive_id)

    @property
    def pid(self) -> int:
        """Its process."""
        return self.archive.pid

    def ask(self, name: str, **fields: Any) -> int:
        """As :meth:`Requests.ask`."""
        assert self.requests is not None
        return self.requests.ask(name, **fields)

    def record(self, channel: str, stream_ids: Sequence[int]) -> list[int]:
        location = _LOCAL if channel.startswith("aeron:ipc") else _REMOTE
        return [
            self.ask(
                "StartRecordingRequest2",
                stream_id=stream_id,
                source_location=location,
                auto_stop=0,
                channel=channel.encode(),
            )
            for stream_id in stream_ids
        ]

    def stop(self, subscription_ids: Sequence[int]) -> None:
        for subscription_id in subscription_ids:
            self.ask("StopRecordingSubscriptionRequest", subscription_id=subscription_id)

    def delete(self, recording_ids: Sequence[int]) -> None:
        for recording_id in recording_ids:
            self.ask("PurgeRecordingRequest", recording_id=recording_id)

    def replay(self, recording_id: int, length: int, channel: str, stream_id: int) -> None:
        """Have so many bytes of a recording replayed from its start on."""
        self.ask(
            "ReplayRequest",
            recording_id=recording_id,
            position=-1,
            length=length,
            replay_stream_id=stream_id,
            file_io_max_length=-1,
            replay_token=-1,
            replay_channel=channel.encode(),
        )

    def close(self) -> None:
        """Kill it."""
        if self.requests is not None:
            self.requests.close()
        self.archive.close()


class BarePeer:
    """Block polls and pwrite alone; a process for each set of recordings."""

    archive_id = 99  # none of an archive

    def __init__(self, directory: Path, client: AeronClient) -> None:
        self._directory, self._client = directory, client
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    def record(self, channel: str, stream_ids: Sequence[int]) -> list[int]:
        self._directory.mkdir()
        channel = channel.partition("|")[0] if "endpoint" in channel else "aeron:ipc"
        pairs = [text for stream_id in stream_ids for text in (channel, str(stream_id))]
        lengths = (str(SEGMENT_LENGTH), str(BLOCK_LENGTH))
        command = ["-m", "benchmarks._bare_recorder", self._client.aeron_dir, str(self._directory)]
        environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        self._process = subprocess.Popen(
            [sys.executable, *command, str(self.archive_id), *lengths, IDLE, *pairs],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            raise RoundFailed("the bare recorder did not start")
        return []

    def stop(self, subscription_ids: Sequence[int]) -> None:
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.communicate(timeout=LIMIT_S)
            self._process.kill()
            self._process.wait()

    def delete(self, recording_ids: Sequence[int]) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def close(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@dataclass
class Stream:
    """A publication, and the counter of its recording."""

    publication: Publication
    stream_id: int
    counter_id: int = -1
    recording_id: int = -1


@dataclass
class Recorded:
    """Streams that a peer records."""

    client: AeronClient
    peer: Peer
    channel: str
    streams: list[Stream]
    subscription_ids: list[int]
    ports: PortReservation = field(repr=False)

    @property
    def publications(self) -> list[Publication]:
        """Those that are recorded."""
        return [stream.publication for stream in self.streams]

    def send(self, length: int, total: int) -> None:
        """Send messages of so many bytes until the streams have so much more log, and wait until that is recorded.

        Raises:
            RoundFailed: it is not.
        """
        try:
            load().publish(self.publications, length, total)
            awaited = [(stream.counter_id, seam.position(stream.publication)) for stream in self.streams]
            load().await_counters(seam.counters(self.client), awaited)
        except (TimeoutError, RuntimeError) as error:
            raise RoundFailed(str(error)) from error


@contextmanager
def recorded(
    client: AeronClient, peer: Peer, *, is_udp: bool = False, count: int = 1, mtu: int = MTU
) -> Iterator[Recorded]:
    """Streams that a peer records; at the end they and their files go."""
    with closing_ports() as ports:
        medium = f"aeron:udp?endpoint=localhost:{ports.take()}" if is_udp else "aeron:ipc"
        channel = f"{medium}{'|' if is_udp else '?'}term-length={TERM_LENGTH}|mtu={mtu}"
        stream_ids = [next(_stream_ids) for _ in range(count)]
        subscription_ids = peer.record(channel, stream_ids)
        streams = [
            Stream(seam.add_publication(client, channel, stream_id, exclusive=True), stream_id)
            for stream_id in stream_ids
        ]
        found = Recorded(client, peer, channel, streams, subscription_ids, ports)
        try:
            await_true(lambda: _find_counters(found), "the counters of the recordings")
            yield found
        finally:
            for stream in streams:
                stream.publication.close()
            peer.stop(subscription_ids)
            recording_ids = [stream.recording_id for stream in streams if stream.recording_id >= 0]
            await_true(lambda: not _find_counters(found, at_least=1), "the end of the recordings")
            peer.delete(recording_ids)


@contextmanager
def closing_ports() -> Iterator[PortReservation]:
    """Ports, which are given back."""
    ports = PortReservation()
    try:
        yield ports
    finally:
        ports.close()


def _find_counters(found: Recorded, at_least: int | None = None) -> bool:
    """Whether at least that many streams have the counter of a recording, all of them by default."""
    counters = seam.counters(found.client)
    by_session = {}
    for counter_id in range(seam.counter_capacity(counters)):
        record = seam.counter_record(counters, counter_id)
        if record["state"] == 0:
            break
        key = record["key"]
        if (record["state"], record["type_id"]) != (1, CounterType.RECORDING_POSITION) or key is None:
            continue
        recording_id, session_id, length = struct.unpack_from("<qii", key)
        if struct.unpack_from("<q", key, 16 + length) == (found.peer.archive_id,):
            by_session[session_id] = (counter_id, recording_id)
    for stream in found.streams:
        stream.counter_id, stream.recording_id = by_session.get(stream.publication.session_id, (-1, -1))
    have = sum(stream.counter_id >= 0 for stream in found.streams)
    return have >= (len(found.streams) if at_least is None else at_least)


class Stopwatch:
    """Wall time and a process's processor time since it was made."""

    def __init__(self, pid: int) -> None:
        self._pid, self._begin, self._begin_cpu = pid, time.perf_counter(), cpu_seconds(pid)

    def rates(self, length: int) -> Result:
        """The rates for that many bytes of log."""
        seconds = time.perf_counter() - self._begin
        cpu_s = cpu_seconds(self._pid) - self._begin_cpu
        return {
            "mib_per_s": length / MIB / seconds,
            "cpu_s_per_gib": cpu_s / length * GIB,
            "resident_mib": resident_mib(self._pid),
        }


def replayed(client: AeronClient, peer: ArchivePeer, stream: Stream, channel: str, length: int) -> Result:
    """The rate of a replay of a recording of so many bytes, from its second quarter on; its processor time from the
    request on, as what the window holds is replayed at once.
    """
    stream_id, whole = next(_stream_ids), Stopwatch(peer.pid)
    subscription: Subscription = seam.add_subscription(client, channel, stream_id)
    try:
        peer.replay(stream.recording_id, length, channel, stream_id)
        await_true(lambda: seam.image_count(subscription) == 1, "the replay", 0.0)
        image = seam.image_at_index(subscription, 0)
        load().drain(image, length // 4)
        begin, watch = seam.position(image) if image is not None else 0, Stopwatch(peer.pid)
        load().drain(image, length)
        return watch.rates(length - begin) | {"cpu_s_per_gib": whole.rates(length)["cpu_s_per_gib"]}
    except (TimeoutError, RuntimeError) as error:
        raise RoundFailed(str(error)) from error
    finally:
        subscription.close()
