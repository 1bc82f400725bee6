"""What `archive delete-snapshots` and `archive purge` delete, of a node that runs and of one that does not."""

from __future__ import annotations

import os
import struct
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import container
from container.api import Header, MessageBuffer
from container.client import AeronCluster
from container.client.egress_listener import EgressListener
from container.files.catalog import read_catalog
from container.files.recording_log import read_recording_log
from container.node.cluster_node import ClusterNode
from container.operate import deletions
from container.operate.answers import NoFactsError
from container.operate.logs import Wanted, _messages
from container.operate.marks import now_ms
from container.recordings.member import open_member
from container.settings.consensus_module_table import consensus_module_settings_table
from container.testing.processes.endpoints import PortReservation
from container.testing.processes.process import wait_until
from tests.limits import LIMIT_S
from tests.operator_world import Words
from tests.services import Adding
from tests.soak import disk

ROOT = Path(__file__).parents[1]
SEGMENT = 64 * 1024
MESSAGES = 300
MARK_ACTIVITY_OFFSET = 16


class Answers(EgressListener):
    """Counts them."""

    count = 0

    def on_message(self, cluster_session_id: int, timestamp: int, buffer: MessageBuffer, header: Header) -> None:
        self.count += 1


class Node:
    """A native node with small segments, which can be stopped and started again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ports = PortReservation()
        self.port = self.ports.take_row(5)
        self.settings: dict[str, object] = {}
        self.node: ClusterNode | None = None
        self.words = Words()

    def start(self) -> ClusterNode:
        self.node = container.launch_node(
            Adding(),
            directory=self.directory,
            host=self.ports.host,
            port=self.port,
            archive={"segment_file_length": SEGMENT, "low_storage_space_threshold": 0},
            consensus_module={"log_channel": "aeron:udp?term-length=64k", **self.settings},
        )
        return self.node

    def stop(self) -> None:
        if self.node is not None:
            self.node.close()
        self.node = None

    def fill(self, snapshots: int) -> list[int]:
        """Take snapshots, each behind more than two segments of the log; their positions."""
        for _ in range(snapshots):
            self._send()
        return self.positions()

    def _send(self) -> None:
        assert self.node is not None
        answers = Answers()
        with AeronCluster.connect(
            ingress_channel="aeron:ipc",
            egress_channel="aeron:ipc",
            aeron_dir=self.node.aeron_dir,
            listener=answers,
        ) as client:
            for _ in range(MESSAGES):
                client.send(bytes(500), timeout=LIMIT_S)
                client.poll_egress()
            wait_until(lambda: answers.count == MESSAGES or client.poll_egress() < 0, LIMIT_S, "all answers")
        self.node.take_snapshot()

    def positions(self) -> list[int]:
        """Of valid snapshots."""
        entries = read_recording_log(self.directory / "cluster")
        return [each.log_position for each in entries if each.is_valid_snapshot and each.is_of_consensus_module]

    def log_start(self) -> int:
        [found] = [each for each in read_catalog(self.directory / "archive") if each.stream_id == 100]
        return found.start_position

    def snapshot_recordings(self) -> int:
        return sum(each.stream_id in (106, 107) for each in read_catalog(self.directory / "archive"))

    def segments(self) -> list[int]:
        return sorted(int(path.stem.partition("-")[2]) for path in (self.directory / "archive").glob("0-*.rec"))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path / "node")
    made.start()
    yield made
    made.stop()
    made.ports.close()


@pytest.mark.parametrize("state", ["running", "stopped"])
def test_old_snapshots_and_the_log_in_front_of_a_position_are_deleted(node: Node, state: str) -> None:
    positions = node.fill(3)
    if state == "stopped":
        node.stop()
    facts = node.words.facts("archive delete-snapshots", node.directory, "--keep", "2", "--yes")
    assert facts["has_changed"]
    assert len(facts["deleted_recordings"]) == 2
    assert [each["log_position"] for each in facts["invalidated"]] == [positions[0]] * 2
    assert node.positions() == positions[1:]
    assert node.snapshot_recordings() == 4
    again = node.words.facts("archive delete-snapshots", node.directory, "--keep", "2", "--yes")
    assert not again["has_changed"]
    begin = positions[1] // SEGMENT * SEGMENT
    facts = node.words.facts("archive purge", node.directory, "--before", str(positions[1]), "--yes")
    assert (facts["start_position"], facts["deleted_segments"]) == (begin, begin // SEGMENT)
    assert facts["freed_bytes"] > begin * 3 // 4  # of whole blocks; segments may have holes
    assert node.log_start() == begin
    assert node.segments()[0] == begin
    assert not node.words.facts("archive purge", node.directory, "--before", str(positions[1]), "--yes")["has_changed"]
    node.stop()
    assert node.words.facts("status", node.directory, code=1)["log_start_position"] == begin
    restarted = node.start()
    assert restarted.is_running
    assert node.fill(1)[:2] == positions[1:]


def test_nothing_goes_that_a_start_needs(node: Node) -> None:
    assert "take a snapshot first" in node.words.refusal("archive purge", node.directory, "--before", "65536", "--yes")
    assert not node.words.facts("archive delete-snapshots", node.directory, "--keep", "1", "--yes")["has_changed"]
    [position] = node.fill(1)
    assert f"at {position}: give a position up to that" in node.words.refusal(
        "archive purge", node.directory, "--before", str(position + 1), "--yes"
    )
    assert node.words.refusal("archive delete-snapshots", node.directory, "--keep", "0", "--yes", code=2)
    assert not node.words.facts("archive delete-snapshots", node.directory, "--keep", "5", "--yes")["has_changed"]
    assert "pass --yes" in node.words.refusal("archive purge", node.directory, "--before", str(position))
    assert node.log_start() == 0
    assert node.positions() == [position]


def test_nothing_goes_that_a_start_needs_by_the_archive_s_directory_or_of_a_snapshot(node: Node) -> None:
    [position] = node.fill(1)
    archive_dir = node.directory / "archive"
    assert f"at {position}: give a position up to that" in node.words.refusal(
        "archive purge", archive_dir, "--recording", "0", "--before", str(position + SEGMENT), "--yes"
    )
    snapshots = [each.recording_id for each in read_catalog(archive_dir) if each.stream_id in (106, 107)]
    assert len(snapshots) == 2
    for recording_id in snapshots:
        assert f"recording {recording_id} is of the snapshot at {position}" in node.words.refusal(
            "archive purge", node.directory, "--recording", str(recording_id), "--before", "1", "--yes"
        )


def test_a_node_keeps_as_many_snapshots_as_it_is_told(node: Node) -> None:
    assert node.words.facts("status", node.directory)["snapshots_retained"] == 0
    node.fill(2)
    node.stop()
    assert node.words.facts("status", node.directory, code=1)["snapshots_retained"] is None
    node.settings["snapshots_retained"] = 2
    node.start()
    positions = node.fill(2)
    begin = positions[-2] // SEGMENT * SEGMENT
    wait_until(
        lambda: node.segments()[0] == begin, LIMIT_S, "the log in front of the second last snapshot to be deleted"
    )
    assert node.positions() == positions[-2:]
    status = node.words.facts("status", node.directory)
    assert (status["snapshots_retained"], status["log_start_position"]) == (2, begin)


@pytest.mark.skipif(disk.unavailable_reason() is not None, reason=f"needs a small disk: {disk.unavailable_reason()}")
def test_a_disk_without_a_byte_is_named_and_a_little_room_is_enough(tmp_path: Path) -> None:
    small = disk.SmallDisk(tmp_path / "disk", 24)
    node = Node(tmp_path / "disk" / "node")
    try:
        node.start()
        node.fill(2)
        node.stop()
        small.fill(leaving=0)
        refusal = node.words.refusal("archive delete-snapshots", node.directory, "--keep", "1", "--yes")
        assert "has no byte left, and the archive needs some KiB to start: move another file" in refusal
        small.free()
        small.fill(leaving=64 * 1024)
        facts = node.words.facts("archive delete-snapshots", node.directory, "--keep", "1", "--yes")
        assert facts["has_changed"]
    finally:
        node.stop()
        node.ports.close()
        small.close()


def lose(node: Node, service_id: int) -> None:
    """The archive of a stopped node loses a part of the newest snapshot."""
    entries = read_recording_log(node.directory / "cluster")
    newest = [each for each in entries if each.is_valid_snapshot and each.service_id == service_id][-1]
    with deletions._archive(node.directory / "archive", LIMIT_S) as control:
        assert control.delete_recording(newest.recording_id)


@pytest.mark.parametrize("service_id", [-1, 0])
@pytest.mark.parametrize("is_validated", [False, True])
def test_a_snapshot_that_lacks_a_part_is_none_that_is_kept(node: Node, service_id: int, is_validated: bool) -> None:
    """Only the one before it can be started from."""
    positions = node.fill(2)
    node.stop()
    lose(node, service_id)
    if is_validated:
        assert node.words.facts("recording-log validate", node.directory, "--yes")["has_changed"]
    assert not node.words.facts("archive delete-snapshots", node.directory, "--keep", "1", "--yes")["has_changed"]
    assert f"at {positions[0]}: give a position up to that" in node.words.refusal(
        "archive purge", node.directory, "--before", str(positions[1]), "--yes"
    )
    assert positions[0] in node.positions()
    assert node.log_start() == 0


def test_a_node_that_cannot_invalidate_entries_keeps_its_snapshots(node: Node) -> None:
    positions = node.fill(3)
    node.words.facts("suspend", node.directory)
    assert "is SUSPENDED, and must be ACTIVE" in node.words.refusal(
        "archive delete-snapshots", node.directory, "--keep", "1", "--yes"
    )
    assert node.snapshot_recordings() == 6
    assert node.positions() == positions
    node.words.facts("resume", node.directory)
    assert len(node.words.facts("archive delete-snapshots", node.directory, "--keep", "1", "--yes")["invalidated"]) == 4


def test_an_archive_whose_process_stands_still_is_not_taken_over(node: Node) -> None:
    positions = node.fill(3)
    node.stop()
    mark = node.directory / "archive" / "archive-mark.dat"
    content = bytearray(mark.read_bytes())
    # When it was active last, when it began, and its number: this process, which has said nothing for a minute.
    struct.pack_into("<qqq", content, MARK_ACTIVITY_OFFSET, now_ms() - 60_000, now_ms(), os.getpid())
    mark.write_bytes(content)
    for word, value in (("archive delete-snapshots", "--keep 1"), ("archive purge", f"--before {positions[0]}")):
        assert "end it first" in node.words.refusal(word, node.directory, *value.split(), "--yes")
    assert (node.positions(), node.log_start(), node.snapshot_recordings()) == (positions, 0, 6)


def test_who_follows_a_log_is_told_that_what_comes_next_was_deleted(node: Node) -> None:
    [position] = node.fill(1)
    node.stop()
    begin = node.words.facts("archive purge", node.directory, "--before", str(position), "--yes")["start_position"]
    with pytest.raises(NoFactsError, match=f"the log begins at {begin} now, and was read up to 96: what is between"):
        list(_messages(open_member(node.directory), Wanted(), 96, False, is_committed_only=True))


def test_another_node_s_archive_that_lies_beside_a_member_is_left_alone(node: Node, tmp_path: Path) -> None:
    [first, second] = node.fill(2)
    other = Node(tmp_path / "other")
    try:
        other.start()
        other.fill(2)
        other.stop()
        (other.directory / "archive").rename(tmp_path / "elsewhere")
        (other.directory / "archive").symlink_to(node.directory / "archive")
        for word, value in (("archive delete-snapshots", "--keep 1"), ("archive purge", f"--before {first}")):
            refusal = node.words.refusal(word, other.directory, *value.split(), "--yes")
            assert f"is not that of the node of {other.directory}/cluster" in refusal
    finally:
        other.stop()
        other.ports.close()
    assert (node.positions(), node.log_start(), node.snapshot_recordings()) == ([first, second], 0, 4)


def test_the_page_s_setting_is_one_of_a_consensus_module() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8").partition("## Keep the disk small")[2]
    table = tomllib.loads(page.partition("```toml\n")[2].partition("```")[0])
    assert set(table) == {"consensus_module"}
    assert set(table["consensus_module"]) == {"snapshots_retained"}
    assert "snapshots_retained" in consensus_module_settings_table()
