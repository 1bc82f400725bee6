"""What a real node answers to backups and standbys on its consensus stream, and what it does with their snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import container
from container.aeron.client import AeronClient
from container.archive.authentication import Authenticator, SessionProxy
from container.codecs import messages as codecs
from container.common.aeron_defaults import CONSENSUS_STREAM_ID, CounterType
from container.consensus.backup_requests import BackupQuery, StandbySnapshotEntry, StandbySnapshots
from container.errors import ClusterError
from container.files.cnc_file import read_mark_file
from container.files.recording_log import RecordingLog, RecordingLogEntry, read_recording_log
from container.node.cluster_node import ClusterNode
from container.storage.file_storage import FileStorage
from container.testing.memory import transport_probe as seam
from container.testing.processes.endpoints import PortReservation
from container.testing.processes.process import wait_until
from container.transport.fragment_assembler import SessionFragmentAssembler
from tests.limits import LIMIT_S
from tests.services import Counter
from tests.test_cluster_node import ask

ANSWERS_STREAM_ID = 555
ANYWHERE = 2**63 - 1
BACKUP_QUERY = 77
ERROR, REJECTED = 1, 3
VERSION = 0 << 16 | 3 << 8


class Credentials(Authenticator):
    """Makes credentials the principal; b"challenge" is asked for better ones, b"raise" is an error."""

    def __init__(self) -> None:
        self.known: dict[int, bytes] = {}

    def on_connect_request(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        if encoded_credentials == b"raise":
            raise ValueError("as asked")
        self.known[session_id] = encoded_credentials

    def on_connected_session(self, session: SessionProxy, now_ms: int) -> None:
        if self.known[session.session_id] == b"challenge":
            session.challenge(b"word?")
        else:
            session.authenticate(self.known[session.session_id])

    def on_challenge_response(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        self.known[session_id] = encoded_credentials

    def on_challenged_session(self, session: SessionProxy, now_ms: int) -> None:
        if self.known[session.session_id] != b"challenge":
            session.authenticate(self.known[session.session_id])


class NoBackups:
    """Denies b"nobody" what it asks for."""

    def is_authorised(self, protocol_id: int, action_id: int, action_type: object, encoded_principal: bytes) -> bool:
        return encoded_principal != b"nobody"


class Backup:
    """Asks a node over the network, and hears it in shared memory."""

    def __init__(self, node: ClusterNode, consensus_endpoint: str) -> None:
        self.client = AeronClient(node.aeron_dir)
        self._requests = seam.add_publication(
            self.client, f"aeron:udp?endpoint={consensus_endpoint}", CONSENSUS_STREAM_ID, exclusive=True
        )
        self._answers = seam.add_subscription(self.client, "aeron:ipc", ANSWERS_STREAM_ID)
        self._handler = seam.CollectingHandler()
        self._assembler = SessionFragmentAssembler(self._handler)
        self._correlation_id = 0

    def send_bytes(self, data: bytes) -> None:
        wait_until(lambda: seam.offer(self._requests, data) > 0, LIMIT_S, "the node to read its consensus stream")

    def send(self, name: str, **fields: Any) -> int:
        """Send a request, and return its correlation id."""
        self._correlation_id += 1
        given = {"response_channel": "aeron:ipc", "encoded_credentials": b"", **fields}
        if name != "ChallengeResponse":
            given["response_stream_id"] = ANSWERS_STREAM_ID
        else:
            del given["response_channel"]
        self.send_bytes(codecs.encode("cluster", name, correlation_id=self._correlation_id, **given))
        return self._correlation_id

    def query(self, log_position: int | None = ANYWHERE, version: int = VERSION, credentials: bytes = b"") -> int:
        return self.send("BackupQuery", log_position=log_position, version=version, encoded_credentials=credentials)

    def answer(self) -> tuple[str, dict[str, Any]]:
        """The next answer."""

        def is_there() -> bool:
            seam.poll_with(self._answers, self._assembler, 10)
            return bool(self._handler.messages)

        wait_until(is_there, LIMIT_S, "an answer")
        return codecs.decode("cluster", self._handler.messages.pop(0)[0])

    def counter(self, type_id: int) -> tuple[int, int]:
        """Id and value of the counter of a type."""
        ((counter_id, value),) = [
            (counter_id, value) for counter_id, kind, _, value in seam.counters(self.client).read() if kind == type_id
        ]
        return counter_id, value

    def response(self) -> dict[str, Any]:
        """The next answer, which is a BackupResponse."""
        name, fields = self.answer()
        assert name == "BackupResponse", fields
        return fields

    def refusal(self) -> tuple[int, int, int, str]:
        """Correlation id, session id, code and text of the next answer, which is an event."""
        name, fields = self.answer()
        assert name == "SessionEvent", fields
        return fields["correlation_id"], fields["cluster_session_id"], fields["code"], fields["detail"].decode()


class World:
    """A node and a backup of it."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.ports = PortReservation()
        self.port = self.ports.take_row(5)
        self.consensus_endpoint = f"{self.ports.host}:{self.port + 1}"
        self.node = container.launch_node(Counter(), host=self.ports.host, port=self.port, consensus_module=settings)
        self.backup = Backup(self.node, self.consensus_endpoint)

    def close(self) -> None:
        self.backup.client.close()
        self.node.close()
        self.ports.close()


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Its node accepts snapshots of standbys."""
    made = World(
        {
            "authenticator": Credentials(),
            "authorisation_service": NoBackups(),
            "is_standby_snapshot_accepted": True,
        }
    )
    yield made
    made.close()


def test_a_backup_hears_where_the_log_and_the_snapshots_are(world: World) -> None:
    correlation_id = world.backup.query()
    response = world.backup.response()
    members = response.pop("cluster_members").decode()
    assert members.startswith(f"0,{world.ports.host}:{world.port},{world.consensus_endpoint},")
    (term,) = read_recording_log(world.node.directory / "cluster")
    assert response == {
        "correlation_id": correlation_id,
        "log_recording_id": term.recording_id,
        "log_leadership_term_id": 0,
        "log_term_base_log_position": 0,
        "last_leadership_term_id": 0,
        "last_term_base_log_position": 0,
        "commit_position_counter_id": world.backup.counter(CounterType.COMMIT_POSITION)[0],
        "leader_member_id": 0,
        "member_id": 0,
        "snapshots": [],
    }
    for text in (b"1", b"2"):
        ask(world.node, text)
        world.node.take_snapshot()
    _term, *entries = read_recording_log(world.node.directory / "cluster")
    first, second = entries[:2], entries[2:]
    for position, expected in (
        (ANYWHERE, second),
        (None, second),
        (-1, second),
        (second[0].log_position, second),
        (second[0].log_position - 1, first),
        (0, first),  # none is at or before it
    ):
        world.backup.query(position)
        assert world.backup.response()["snapshots"] == [
            {
                "recording_id": each.recording_id,
                "leadership_term_id": 0,
                "term_base_log_position": 0,
                "log_position": each.log_position,
                "timestamp": each.timestamp,
                "service_id": each.service_id,
            }
            for each in expected
        ]
        assert [each.service_id for each in expected] == [0, -1]


def test_who_asks_must_be_of_the_major_version_known_and_allowed(world: World) -> None:
    correlation_id = world.backup.query(version=1 << 16)
    text = "invalid client version 1.0.0, cluster is 0.3.0"
    assert world.backup.refusal() == (correlation_id, -1, ERROR, text)
    correlation_id = world.backup.query(credentials=b"nobody")
    assert world.backup.refusal() == (correlation_id, -1, REJECTED, "Not authorised for BackupQuery")
    correlation_id = world.backup.send("HeartbeatRequest", encoded_credentials=b"nobody")
    assert world.backup.refusal() == (correlation_id, -1, REJECTED, "Not authorised for Heartbeat")
    correlation_id = world.backup.query(credentials=b"raise")
    assert world.backup.refusal() == (correlation_id, -1, REJECTED, "session failed authentication")


def test_a_backup_answers_a_challenge(world: World) -> None:
    correlation_id = world.backup.query(credentials=b"challenge")
    name, challenge = world.backup.answer()
    assert (name, challenge["correlation_id"], challenge["cluster_session_id"]) == ("Challenge", correlation_id, -1)
    assert challenge["encoded_challenge"] == b"word?"
    later = world.backup.send("ChallengeResponse", cluster_session_id=-1, encoded_credentials=b"word")
    assert world.backup.response()["correlation_id"] == later


def test_a_standby_hears_that_the_node_is_there(world: World) -> None:
    correlation_id = world.backup.send("HeartbeatRequest")
    assert world.backup.answer() == ("HeartbeatResponse", {"correlation_id": correlation_id})


def test_a_request_that_cannot_be_answered_ends_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also before others, which are answered in the same turn."""
    answer = BackupQuery.answer

    def broken(request: BackupQuery, correlation_id: int) -> bytes | None:
        if correlation_id == failing:
            raise OSError("disk")
        return answer(request, correlation_id)

    monkeypatch.setattr(BackupQuery, "answer", broken)
    failing = world.backup.query()
    served = world.backup.query()
    answers = dict(world.backup.answer() for _ in range(2))
    event = answers["SessionEvent"]
    assert (event["correlation_id"], event["code"]) == (failing, ERROR)
    assert event["detail"] == b"the cluster failed to serve this request: see the error log of the member"
    assert answers["BackupResponse"]["correlation_id"] == served
    assert "disk" in str(read_mark_file(world.node.directory / "cluster" / "cluster-mark.dat").errors)


def test_what_is_no_request_disturbs_nobody(world: World) -> None:
    whole = codecs.encode(
        "cluster",
        "BackupQuery",
        correlation_id=1,
        response_stream_id=ANSWERS_STREAM_ID,
        version=VERSION,
        log_position=0,
        response_channel="aeron:ipc",
        encoded_credentials=b"",
    )
    for data in (b"", b"x", whole[:20], whole[:-1], whole[:4] + b"\x01\x00" + whole[6:]):
        world.backup.send_bytes(data)
    world.backup.send_bytes(
        codecs.encode("cluster", "CommitPosition", leadership_term_id=9, log_position=2**40, leader_member_id=1)
    )
    correlation_id = world.backup.query()
    assert world.backup.response()["correlation_id"] == correlation_id
    assert world.node.is_running


def notify(backup: Backup, log_position: int) -> int:
    """Say that a standby has taken a snapshot."""
    snapshots = [
        {
            "recording_id": 70 + service_id,
            "leadership_term_id": 0,
            "term_base_log_position": 0,
            "log_position": log_position,
            "timestamp": 5,
            "service_id": service_id,
            "archive_endpoint": "standby:8010",
        }
        for service_id in (0, -1)
    ]
    return backup.send("StandbySnapshot", version=VERSION, snapshots=snapshots)


def test_snapshots_of_standbys_are_in_the_recording_log_once_the_log_is_committed_so_far(world: World) -> None:
    notify(world.backup, 2**40)
    notify(world.backup, 32)

    def standby_snapshots() -> list[tuple[int, int, str | None]]:
        return [
            (each.service_id, each.log_position, each.archive_endpoint)
            for each in read_recording_log(world.node.directory / "cluster")
            if each.archive_endpoint is not None
        ]

    def count() -> int:
        return world.backup.counter(CounterType.STANDBY_SNAPSHOT_COUNTER)[1]

    wait_until(lambda: count() == 1, LIMIT_S, "a snapshot of a standby to be counted")
    assert sorted(standby_snapshots()) == [(-1, 32, "standby:8010"), (0, 32, "standby:8010")]


def test_a_start_continues_from_one_that_is_later_than_its_own(tmp_path: Path) -> None:
    """Its archive copies it from the standby's, which is itself here: the recordings are those of its own snapshot.

    That one is invalidated before, so that without the copy the start would be from none.
    """
    ports = PortReservation()
    port = ports.take_row(5)

    def launch(service: Counter) -> ClusterNode:
        return container.launch_node(service, directory=tmp_path, host=ports.host, port=port)

    def snapshots() -> list[RecordingLogEntry]:
        return [each for each in read_recording_log(tmp_path / "cluster") if each.is_valid_snapshot]

    with launch(Counter()) as node:
        ask(node, b"5")
        node.take_snapshot()
        ask(node, b"1")
    taken = snapshots()
    log = RecordingLog.open(FileStorage(), str(tmp_path / "cluster"), create=False, file_sync_level=1)
    assert log.invalidate_latest_snapshot()
    for each in taken:
        log.append_standby_snapshot(
            each.recording_id,
            each.leadership_term_id,
            each.term_base_log_position,
            each.log_position,
            each.timestamp,
            each.service_id,
            f"{ports.host}:{port + 4}",
        )
    log.force()
    log.close()
    assert snapshots() == []
    service = Counter()
    with launch(service) as node:
        found = snapshots()
        assert [each.log_position for each in found] == [each.log_position for each in taken]
        assert {each.recording_id for each in found}.isdisjoint(each.recording_id for each in taken)
        assert ask(node, b"1") == b"7"
    assert service.restored == 5
    ports.close()


def test_a_node_does_not_accept_them_by_default() -> None:
    made = World({})
    correlation_id = notify(made.backup, 32)
    assert made.backup.refusal() == (correlation_id, -1, ERROR, "Not configured to accept StandbySnapshot")
    made.close()


class Notifications:
    """Snapshots of standbys without a node around them."""

    def __init__(self, directory: str, delay_ns: int = 0) -> None:
        self.log = RecordingLog.open(FileStorage(), directory, create=True, file_sync_level=0)
        self.recorded = 0
        self.errors: list[Exception] = []
        self.snapshots = StandbySnapshots(self.log, self._count, delay_ns, self.errors.append)

    def _count(self) -> None:
        self.recorded += 1

    def positions(self) -> list[int]:
        return [each.log_position for each in self.log.entries]


def entry(log_position: int, endpoint: str = "standby:8010") -> StandbySnapshotEntry:
    return StandbySnapshotEntry(7, 0, 0, log_position, 5, -1, endpoint)


def test_they_may_be_recorded_later_than_that(tmp_path: Any) -> None:
    world = Notifications(str(tmp_path), delay_ns=100)
    world.snapshots.add([entry(64)])
    world.snapshots.add([])
    for position, now_ns, expected in ((32, 0, []), (64, 500, []), (64, 599, []), (64, 600, [64])):
        world.snapshots.poll(position, now_ns)
        assert world.positions() == expected
    assert (world.recorded, len(world.snapshots)) == (1, 0)


def test_one_that_cannot_be_recorded_is_reported_and_the_next_one_is_recorded(tmp_path: Any) -> None:
    world = Notifications(str(tmp_path))
    world.snapshots.add([entry(64, "")])
    world.snapshots.add([entry(96)])
    assert world.snapshots.poll(96, 0) == 4
    assert (world.positions(), world.recorded) == ([96], 1)
    assert [type(each) for each in world.errors] == [ClusterError]


def test_they_do_not_pile_up(tmp_path: Any) -> None:
    world = Notifications(str(tmp_path))
    for position in range(1_001):
        world.snapshots.add([entry(64 + position * 32)])
    assert len(world.snapshots) == 1_000
    assert "dropped StandbySnapshotEntry" in str(world.errors[0])
