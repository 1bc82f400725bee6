"""The operators' words of ``aeron-cluster`` say what Java's tools say of the same nodes: live, stopped and killed."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import container
from container.client import AeronCluster
from container.files.cnc_file import CncFile
from container.files.recording_log import encode_entry, read_recording_log
from container.testing.processes.endpoints import PortReservation
from container.testing.processes.java_tools import java_command
from container.testing.processes.local_archive import run_archive_tool
from container.testing.processes.local_cluster import LocalCluster, Node, Service
from container.testing.processes.process import Process
from tests.limits import LIMIT_S
from tests.operator_world import written
from tests.recordings_world import archive_mark
from tests.services import Counter
from tests.system import java_facts
from tests.system.harness import (
    COMMAND,
    LEDGER_CLIENT,
    LEDGER_SERVICE,
    REPORTING_SERVICE,
    NodeFactory,
    Parts,
    release,
    run_ledger_client,
    start,
    start_tool,
)
from tests.system.java_facts import Fields
from tests.system.test_native_archive import PUTS, running_backup, start_ledger
from tests.test_cluster_node import HOST, ask
from tests.test_cnc_file import cnc_content

TOOL = "io.aeron.cluster.ClusterTool"
ARCHIVE_TOOL = "io.aeron.archive.ArchiveTool"


def ours(directory: Path, word: str, *arguments: str, code: int = 0) -> Any:
    """Run a word, which must end with this code; return its facts, or its sentence when it has none."""
    command = [*COMMAND, *word.split(), str(directory), *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == code, f"{word}: {done.returncode}\n{done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") <= 1, done.stderr
    if not done.stdout:
        return done.stderr
    lines = done.stdout.splitlines()
    return json.loads(done.stdout) if lines[0] == "{" else [json.loads(line) for line in lines]


def java(member: Node, *line: str, directory: Path | None = None, code: int = 0) -> str:
    """Run a word of ClusterTool, which must end with this code; return its output."""
    settings = {
        "aeron_dir": str(member.aeron_dir),
        "aeron_archive_control_channel": f"aeron:udp?endpoint={member.endpoints.archive}",
        "aeron_archive_control_response_channel": "aeron:udp?endpoint=127.0.0.1:0",
    }
    if directory is None:
        tool = start_tool(member, *line, **settings)
    else:
        tool = member.start_java_client(TOOL, (str(directory), *line), name="cluster-tool")
    assert tool.wait(LIMIT_S) == code, tool.tail()
    return tool.output()


def differences(wanted: Any, found: Any, path: str = "") -> Iterator[str]:
    """What Java says and we do not say in the same way; we may say more."""
    if isinstance(wanted, dict):
        for name, value in wanted.items():
            if name not in found:
                yield f"{path}.{name}: {value!r} is missing"
            else:
                yield from differences(value, found[name], f"{path}.{name}")
    elif isinstance(wanted, list):
        if len(wanted) != len(found):
            yield f"{path}: {len(wanted)} and {len(found)}"
        for index, (one, other) in enumerate(zip(wanted, found, strict=False)):
            yield from differences(one, other, f"{path}[{index}]")
    elif wanted != found:
        yield f"{path}: {wanted!r} and {found!r}"


def assert_same(wanted: Any, found: Any) -> None:
    assert list(differences(wanted, found)) == []


def without(fields: Fields, *names: str) -> Fields:
    return {name: value for name, value in fields.items() if name not in names}


def compare_files(member: Node) -> None:
    """Compare the words that need no running node."""
    directory = member.cluster_dir
    described = ours(directory, "describe")
    marks = java_facts.mark_files(java(member, "describe"))
    # An activity timestamp grows meanwhile.
    found = [described["consensus_module"], *described["services"]]
    assert_same([without(mark, "activity_timestamp_ms") for mark in marks], found)
    pid = ours(directory, "pid", code=0 if member.is_running else 1)["pid"]
    assert int(java(member, "pid")) == pid == marks[0]["pid"]
    assert_same(java_facts.entries(java(member, "recording-log")), ours(directory, "recording-log")["entries"])
    errors = ours(directory, "errors")
    if not (member.aeron_dir / "cnc.dat").exists():
        java(member, "errors", code=1)  # a stack trace
        assert [log["source"] for log in errors["logs"]] == ["consensus module", "service 0", "archive"]
        assert "no media driver runs there" in errors["problems"][0]
        return
    texts = [each["text"].splitlines()[0] for log in errors["logs"] for each in log["errors"]]
    assert set(java_facts.error_texts(java(member, "errors"))) <= set(texts)


def compare_archive(member: Node) -> None:
    tool = member.start_java_client(ARCHIVE_TOOL, [str(member.archive_dir), "describe"], name="archive-tool")
    assert tool.wait(LIMIT_S) == 0, tool.tail()
    wanted = java_facts.recordings(tool.output())
    assert wanted
    for word in ("archive list", "archive describe"):
        found = ours(member.archive_dir, word)
        assert_same(wanted, found["recordings"])
        assert found["aeron_directory"] == str(member.aeron_dir)
        assert found["archive_id"] is not None
    if member.is_running:
        assert found["pid"] == member.archive.pid
        assert [log["source"] for log in ours(member.archive_dir, "errors")["logs"]] == ["archive", "media driver"]


def compare_live(member: Node) -> None:
    """Compare the words that ask a running node."""
    directory = member.cluster_dir
    assert_same(java_facts.members(java(member, "list-members")), ours(directory, "list-members"))
    leads = member.is_leader
    ours(directory, "is-leader", code=0 if leads else 1)
    java(member, "is-leader", code=0 if leads else 1)
    plan = java_facts.plan(java(member, "recovery-plan", "1"))
    # The end of a recording in progress is not in the catalog; we say where it is all the same.
    assert plan.pop("appended_log_position") == -1
    found = ours(directory, "recovery-plan", "--services", "1")
    assert_same(plan, found)
    assert found["appended_log_position"] >= found["committed_log_position"]
    compare_archive(member)


def compare_streams(member: Node) -> None:
    """Compare the streams of the driver, when those of tools that have ended are gone."""

    def positions(found: dict[str, Any]) -> dict[tuple[int, int, str], dict[str, int]]:
        return {
            # Java's tool leaves out that it is a spy.
            (each["session_id"], each["stream_id"], each["channel"].removeprefix("aeron-spy:")): {
                position["name"]: position["registration_id"] for position in each["positions"]
            }
            for each in found["streams"]
        }

    def are_same() -> bool:
        stat = member.start_java_client(
            "io.aeron.samples.StreamStat", [], properties={"aeron.dir": str(member.aeron_dir)}, name="stream-stat"
        )
        assert stat.wait(LIMIT_S) == 0, stat.tail()
        found = positions(ours(member.aeron_dir, "streams"))
        # Java's label says in brackets what kind of publication it is.
        wanted = {
            key: {name.partition(" ")[0]: number for name, number in names.items()}
            for key, names in java_facts.streams(stat.output()).items()
        }
        backlogs = ours(member.aeron_dir, "backlog")["streams"]
        return bool(wanted) and wanted == found and len(backlogs) == len(found)

    member.wait_until(are_same, LIMIT_S, "the streams that StreamStat and our words show to be the same")


def compare_snapshot(member: Node) -> None:
    wanted = java_facts.snapshot(java(member, "describe-latest-cm-snapshot"))
    for session in wanted["sessions"]:
        assert session.pop("close_reason") == "NULL_VAL"
        del session["time_of_last_activity"]  # always -1
    found = ours(member.cluster_dir, "describe-latest-consensus-module-snapshot")
    assert_same(wanted, found)
    service = ours(member.cluster_dir, "describe-latest-service-snapshot")
    assert service["log_position"] == found["log_position"]
    assert service["state_length"] > 0
    ids = [session["cluster_session_id"] for session in found["sessions"]]
    assert [session["cluster_session_id"] for session in service["sessions"]] == ids


@pytest.mark.nodes("native", "java")
@pytest.mark.slow
def test_the_words_say_what_java_s_tools_say_in_the_life_of_a_node(node: NodeFactory) -> None:
    member = node()
    directory = member.cluster_dir
    service = start_ledger(member, "python")
    assert ours(directory, "health", "--check", "leader", "--timeout", "20")["is_healthy"]
    run_ledger_client(member, "schedule 7 3600000", *PUTS[:5])
    compare_files(member)
    compare_live(member)
    compare_streams(member)
    status = ours(directory, "status")
    assert (status["role"], status["module_state"], status["node"]) == ("LEADER", "ACTIVE", "running")
    assert status["commit_position"] == status["recorded_position"] == member.commit_position

    client = member.start_java_client(LEDGER_CLIENT)  # its session is in the snapshot
    client.read_line(LIMIT_S)
    taken = ours(directory, "snapshot")
    client.close_input()
    assert taken["is_done"]
    assert client.wait(LIMIT_S) == 0, client.tail()
    assert [entry["service_id"] for entry in taken["snapshot"]] == [None, 0]
    compare_snapshot(member)
    compare_files(member)

    assert ours(directory, "suspend")["state"] == "SUSPENDED"
    java(member, "snapshot", code=255)
    assert "must be ACTIVE" in ours(directory, "snapshot", code=1)
    java(member, "suspend", code=255)
    ours(directory, "suspend", code=1)
    compare_live(member)
    assert ours(directory, "resume")["state"] == "ACTIVE"
    ours(directory, "resume", code=1)
    java(member, "resume", code=255)
    assert "running" in ours(directory, "invalidate-latest-snapshot", "--yes", code=1)

    committed = member.commit_position
    release(member, service)  # kill -9 of all
    compare_files(member)
    compare_archive(member)
    assert ours(member.archive_dir, "archive verify")["is_intact"]
    messages = ours(directory, "log", "--payload")
    assert messages[-1]["log_position"] == committed
    names = [message["message"] for message in messages]
    assert names.count("SessionMessageHeader") == 6
    assert {"NewLeadershipTermEvent", "SessionOpenEvent", "ClusterActionRequest"} <= set(names)
    for word in ("snapshot", "list-members", "shutdown"):
        assert ours(directory, word, code=1)
    assert not ours(directory, "is-leader", code=1)["is_leader"]
    assert not ours(directory, "health", code=1)["is_healthy"]

    service = start_ledger(member, "python")
    hash_before = run_ledger_client(member, "hash")
    ended = ours(directory, "shutdown")
    assert ended["is_done"]
    assert [entry["service_id"] for entry in ended["snapshot"]] == [None, 0]
    assert service.wait(LIMIT_S) == member.process.wait(LIMIT_S) == 0
    member.archive.stop()
    member.driver.stop()
    compare_files(member)
    compare_archive(member)
    assert ours(directory, "describe")["consensus_module"]["state"] == "stopped"
    plan = ours(directory, "recovery-plan")
    assert plan["appended_log_position"] == plan["committed_log_position"] == ended["snapshot"][0]["log_position"]
    compare_changes(member)

    start_ledger(member, "python")
    assert run_ledger_client(member, "hash") == hash_before
    assert ours(directory, "abort")["is_done"]


def compare_changes(member: Node) -> None:
    """Compare what the words that change the recording log make of copies of the directory."""
    entries = list(read_recording_log(member.cluster_dir))
    assert len([entry for entry in entries if entry.is_valid_snapshot]) == 4

    def copies(name: str) -> tuple[Path, Path]:
        """Two equal directories: one for Java's tool."""
        made = []
        for whose in ("java", "ours"):
            made.append(member.base_dir / f"{name}-{whose}")
            shutil.copytree(member.cluster_dir, made[-1])
        return made[0], made[1]

    def content(directory: Path) -> bytes:
        return (directory / "recording.log").read_bytes()

    theirs, own = copies("invalidate")
    java(member, "invalidate-latest-snapshot", directory=theirs)
    assert len(ours(own, "invalidate-latest-snapshot", "--yes")["invalidated"]) == 2
    assert content(own) == content(theirs) != content(member.cluster_dir)
    # What is invalid comes first in a file that is not sorted.
    for directory in (theirs, own):
        mixed = reversed(list(read_recording_log(directory)))
        (directory / "recording.log").write_bytes(b"".join(encode_entry(entry) for entry in mixed))
    before = content(own)
    assert "--yes" in ours(own, "recording-log sort", code=1)
    assert content(own) == before
    java(member, "sort-recording-log", directory=theirs)
    assert ours(own, "recording-log sort", "--yes")["has_changed"]
    # Upstream's tool makes all snapshots valid again.
    assert [entry.is_valid for entry in read_recording_log(theirs)] == [True] * len(entries)
    assert [entry.is_valid for entry in read_recording_log(own)] == [True] * (len(entries) - 2) + [False] * 2
    java(member, "sort-recording-log", directory=theirs, code=255)
    assert not ours(own, "recording-log sort", "--yes")["has_changed"]

    theirs, own = copies("seed")
    java(member, "seed-recording-log-from-snapshot", directory=theirs)
    assert ours(own, "recording-log seed", "--yes")["entry_count"] == 2
    assert content(own) == content(theirs)
    assert (own / "recording.log.bak").read_bytes() == content(member.cluster_dir)


@pytest.mark.slow
@pytest.mark.nodes("java", "native")
def test_a_snapshot_that_a_service_fails_to_take_is_no_success(node: NodeFactory) -> None:
    member = node()
    start(member, REPORTING_SERVICE, {"TEST_FAILING_SNAPSHOTS": "2"})
    # Upstream: "SNAPSHOT applied successfully".
    java(member, "snapshot")
    failed = ours(member.cluster_dir, "snapshot", code=1)
    assert not failed["is_done"]
    assert "has no new snapshot" in failed["reason"]
    texts = [error["text"] for log in failed["errors"] for error in log["errors"]]
    assert any("this snapshot fails as asked" in text for text in texts), texts
    assert failed["state"] == "ACTIVE"
    compare_files(member)
    assert ours(member.cluster_dir, "snapshot")["is_done"]


@pytest.mark.slow
@pytest.mark.nodes("java", "native")
def test_a_recording_log_is_validated_by_the_node_or_without_it(node: NodeFactory) -> None:
    member = node()
    service = start_ledger(member, "python")
    run_ledger_client(member, *PUTS[:3])
    first = ours(member.cluster_dir, "snapshot")["snapshot"][0]
    assert not ours(member.cluster_dir, "recording-log validate")["has_changed"]
    ours(member.cluster_dir, "snapshot")
    release(member, service)
    lost = ("mark-invalid", str(first["recording_id"]))
    assert run_archive_tool(member.archive_dir, *lost, output_directory=member.base_dir).return_code == 0
    copy = member.base_dir / "copy"
    shutil.copytree(member.cluster_dir, copy / "cluster")
    (copy / "archive").symlink_to(member.archive_dir)
    found = ours(copy, "recording-log validate", "--yes")
    assert [entry["recording_id"] for entry in found["invalidated"]] == [first["recording_id"]]
    states = {each["recording_id"]: each["state"] for each in ours(member.archive_dir, "archive list")["recordings"]}
    assert states[first["recording_id"]] == "INVALID"
    start_ledger(member, "python")
    assert "--yes" in ours(member.cluster_dir, "recording-log validate", code=1)
    again = ours(member.cluster_dir, "recording-log validate", "--yes")
    assert not ours(member.cluster_dir, "recording-log validate")["has_changed"]
    assert [entry["recording_id"] for entry in again["invalidated"]] == [first["recording_id"]]


@pytest.fixture
def three_members(java_classes: Path, parts: Parts) -> Iterator[LocalCluster]:
    with LocalCluster([Service(LEDGER_SERVICE)], class_path=[java_classes], **parts) as cluster:
        yield cluster


@pytest.mark.slow
def test_three_members_are_what_java_s_tools_say(three_members: LocalCluster) -> None:
    cluster = three_members.start()
    leader = cluster.await_ready()
    for member in cluster.members:
        compare_files(member.node)
        directory = member.node.cluster_dir
        found = ours(directory, "list-members")
        assert_same(java_facts.members(java(member.node, "list-members")), found)
        assert found["leader_member_id"] == leader.member_id
        assert len(found["members"]) == 3
        leads = member is leader
        ours(directory, "is-leader", code=0 if leads else 1)
        java(member.node, "is-leader", code=0 if leads else 1)
        ours(directory, "health", "--timeout", "10")
        ours(directory, "health", "--check", "leader", code=0 if leads else 1)
        if not leads:
            for word in ("snapshot", "suspend", "shutdown", "abort"):
                assert "ask the leader" in ours(directory, word, code=1)
                java(member.node, word, code=255)
    taken = ours(leader.node.cluster_dir, "snapshot")["snapshot"]
    assert len(taken) == 2
    leader.kill()
    successor = cluster.await_leader(other_than=leader)
    compare_files(leader.node)
    ours(successor.node.cluster_dir, "is-leader")
    assert ours(successor.node.cluster_dir, "status")["election_count"] == 2
    leader.restart()
    cluster.await_ready()
    successor = cluster.leader or successor
    assert ours(successor.node.cluster_dir, "abort")["is_done"]
    for member in cluster.members:
        member.await_end(LIMIT_S)
        compare_files(member.node)


@pytest.mark.slow
def test_the_next_query_of_java_s_backup_is_seen_and_set(node: NodeFactory, tmp_path: Path, java_classes: Path) -> None:
    member = node(archive="native")
    start_ledger(member, "python")
    run_ledger_client(member, *PUTS[:3])
    assert "not of a backup" in ours(member.cluster_dir, "backup-query-delay", code=1)
    with running_backup(member, tmp_path, java_classes) as backup_dir:
        directory = backup_dir / "cluster"
        shown = ours(directory, "backup-query-delay")
        assert shown["delay_ms"] > 60_000
        changed = ours(directory, "backup-query-delay", "--set", "10m")
        assert 590_000 < changed["delay_ms"] <= 600_000
        assert ours(directory, "backup-query-delay")["next_query_ms"] == changed["next_query_ms"]
        assert ours(directory, "describe")["consensus_module"]["component"] == "BACKUP"


@pytest.mark.nodes("native", "java")
def test_wrong_words_and_arguments_are_refused(node: NodeFactory, tmp_path: Path) -> None:
    member = node()
    java(member, "nonsense", directory=tmp_path, code=255)
    assert "unknown command 'nonsense'" in ours(tmp_path, "nonsense", code=2)
    for word in ("describe", "pid", "list-members", "is-leader", "snapshot", "errors", "recording-log"):
        assert "is not the directory of a cluster" in ours(tmp_path, word, code=3)
    assert "does not exist" in ours(tmp_path / "none", "describe", code=3)
    java(member, "pid", directory=tmp_path / "none", code=255)


def test_the_log_of_a_running_node_is_followed(node: NodeFactory) -> None:
    member = node(driver="native", archive="native", consensus_module="native")
    start_ledger(member, "python")
    run_ledger_client(member, *PUTS[:2])
    follow = [*COMMAND, "log", str(member.cluster_dir), "--follow", "--json", "--message", "session-message"]
    with Process("follow", [*follow, "--limit", "5"], directory=member.base_dir) as following:
        following.start()
        following.wait_until(lambda: following.output().count("\n") >= 2, LIMIT_S, "the messages that are there")
        run_ledger_client(member, *PUTS[2:6])
        assert following.wait(LIMIT_S) == 0
        messages = [json.loads(line) for line in following.output().splitlines()]
    assert len(messages) == 5
    assert all(message["is_committed"] for message in messages)
    positions = [message["log_position"] for message in messages]
    assert positions == sorted(set(positions))


def test_a_loss_report_is_read_as_java_reads_it(jar: Path, tmp_path: Path) -> None:
    entries = [
        (
            3,
            4096,
            1_700_000_000_000,
            1_700_000_001_000,
            -5,
            1001,
            b"aeron:udp?endpoint=localhost:40123",
            b"127.0.0.1:9",
        ),
        (1, 32, 5, 6, 7, 100, b"aeron:udp?endpoint=h:1", b"10.0.0.1:40000"),
    ]
    content = b""
    for *numbers, channel, source in entries:
        text = struct.pack("<i", len(channel)) + channel
        entry = (
            struct.pack("<qqqqii", *numbers) + text + bytes(-len(text) % 4) + struct.pack("<i", len(source)) + source
        )
        content += entry + bytes(-len(entry) % 64)
    (tmp_path / "loss-report.dat").write_bytes(content.ljust(1024 * 1024, b"\0"))
    (tmp_path / "cnc.dat").write_bytes(cnc_content())
    command = java_command("io.aeron.samples.LossStat", [jar], properties={"aeron.dir": str(tmp_path)})
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    rows = [line.split(",") for line in done.stdout.splitlines() if line.count(",") == 7]
    found = ours(tmp_path, "loss")["entries"]
    assert len(found) == len(rows) - 1 == len(entries)
    for entry, row in zip(found, rows[1:], strict=True):
        counts = [str(entry[name]) for name in ("observation_count", "total_bytes_lost", "session_id", "stream_id")]
        assert [*counts, entry["channel"], entry["source"]] == [*row[:2], *row[4:]]
    assert [entry["last_ms"] for entry in found] == [numbers[3] for numbers in entries]


def test_both_tools_find_the_same_damage_in_an_archive(tmp_path: Path) -> None:
    world = written(tmp_path / "member")
    (world.archive_dir / "archive-mark.dat").write_bytes(archive_mark())

    def verdicts(name: str) -> tuple[bool, bool]:
        """Whether each tool is content; Java's is given a copy, as it writes into it."""
        copy = Path(shutil.copytree(world.archive_dir, tmp_path / name))
        tool = run_archive_tool(copy, "verify", "-a", output_directory=tmp_path, answer="n")
        code = 0 if tool.return_code == 0 else 1
        return tool.return_code == 0, bool(ours(world.archive_dir, "archive verify", code=code)["is_intact"])

    assert verdicts("whole") == (True, True)
    frame = ours(world.archive_dir, "archive dump", "--recording", "0")[20]
    for number, field in enumerate((8, 16, 20)):  # the term's offset, the stream, the term
        place = frame["position"] + field
        before = world.segment().read_bytes()[place : place + 1]
        world.damage(place, bytes([before[0] ^ 0xFF]))
        assert verdicts(f"damaged-{number}") == (False, False)
        world.damage(place, before)
    assert verdicts("repaired") == (True, True)


def java_sample(name: str, jar: Path, aeron_dir: Path, *arguments: str) -> str:
    """Run a tool of Aeron's samples on a media driver's directory; return its output."""
    command = java_command(
        f"io.aeron.samples.{name}", [jar], properties={"aeron.dir": str(aeron_dir)}, arguments=arguments
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# By the types of a driver's counters of streams: values which differ, so that each difference does.
STREAM_VALUES = {1: 150_000, 2: 99_000, 3: 80_000, 4: 70_000, 5: 79_000, 9: 99_500, 12: 100_000}


def test_counters_and_backlogs_are_those_of_java_s_tools(jar: Path, tmp_path: Path) -> None:
    """Of a driver's file that stands still, with a client connected, in which streams have piled up."""
    ports = PortReservation()
    frozen = tmp_path / "frozen"
    frozen.mkdir()
    with container.launch_node(Counter(), directory=tmp_path / "node", host=HOST, port=ports.take_row(5)) as node:
        assert ask(node, b"1") == b"1"
        channels: dict[str, Any] = {"ingress_channel": "aeron:udp", "egress_channel": f"aeron:udp?endpoint={HOST}:0"}
        with AeronCluster.connect(aeron_dir=node.aeron_dir, ingress_endpoints=node.ingress_endpoints, **channels):
            shutil.copy(Path(node.aeron_dir, "cnc.dat"), frozen)
    ports.close()
    file = CncFile(frozen / "cnc.dat")
    records = list(file.counters())
    content = bytearray((frozen / "cnc.dat").read_bytes())
    for record in records:
        if record.type_id in STREAM_VALUES:
            value = STREAM_VALUES[record.type_id] - record.counter_id * 32
            struct.pack_into("<q", content, file._values_offset + record.counter_id * 128, value)
    struct.pack_into("<q", content, file._heartbeat_offset, 1)  # the driver is dead, for however long this takes
    file.close()
    (frozen / "cnc.dat").write_bytes(content)

    counters = ours(frozen, "counters", code=1)["counters"]
    wanted = java_facts.counters(java_sample("AeronStat", jar, frozen, "watch=false"))
    assert len(wanted) == len(records)
    assert_same(wanted, counters)
    by_type = java_facts.counters(java_sample("AeronStat", jar, frozen, "watch=false", "type=^20[0-9]$"))
    types = [argument for number in range(200, 210) for argument in ("--type", str(number))]
    found = ours(frozen, "counters", *types, code=1)["counters"]
    assert [each["meaning"] for each in found if each["type_id"] == 201] == ["LEADER"]
    assert_same(by_type, found)
    assert 0 < len(by_type) < len(wanted)

    backlogs = ours(frozen, "backlog")["streams"]
    theirs = java_facts.backlogs(java_sample("BacklogStat", jar, frozen))
    assert len(theirs) == len(backlogs)
    for (session_id, stream_id, channel), fields in theirs.items():
        of_stream = [each for each in backlogs if (each["session_id"], each["stream_id"]) == (session_id, stream_id)]
        # Java's tool cuts a channel where the counter's key ends.
        exact = [each for each in of_stream if each["channel"] == channel]
        (found,) = exact or [each for each in of_stream if each["channel"].startswith(channel)]
        assert_same(fields, found)
    for name in ("publisher_window", "sender_backlog", "sender_window", "receiver_position", "subscriber_backlog"):
        assert any(fields.get(name, 0) > 0 for fields in theirs.values()), name


def test_frames_are_those_of_java_s_dump(tmp_path: Path) -> None:
    world = written(tmp_path / "member")
    (world.archive_dir / "archive-mark.dat").write_bytes(archive_mark())
    tool = run_archive_tool(world.archive_dir, "dump", str(2**40), output_directory=tmp_path)
    assert tool.return_code == 0, tool.output
    wanted = java_facts.frames(tool.output)
    found = [
        {
            "recording_id": each["recording_id"],
            "position": each["position"],
            "type": each["type"],
            "payload": each["payload"],
            "length": each["frame_length"] - 32,
            "is_fragment": each["flags"] & 0xC0 != 0xC0 and each["type"] == "DATA",
        }
        for each in ours(world.archive_dir, "archive dump")
    ]
    assert wanted == found
    assert {each["type"] for each in found} == {"DATA", "PAD"}
    assert any(each["is_fragment"] for each in found)
    assert len({each["recording_id"] for each in found}) == 5
