"""The test kit's archive as a process of its own, with Java's: start, stop, kill, restart; ArchiveTool."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from container.aeron import AeronClient
from container.errors import ArchiveError, ContainerError
from container.testing.processes.java_tools import JavaError
from container.testing.processes.local_archive import ARCHIVE_KINDS, ArchiveKind, LocalArchive, archive_process
from container.testing.processes.local_cluster import LocalCluster, Service
from container.testing.processes.process import Process, ProcessEndedError
from tests.limits import LIMIT_S
from tests.test_archive_command import MESSAGES, record, record_open, replay

pytestmark = pytest.mark.usefixtures("jar")


@pytest.fixture
def aeron_dir(tmp_path: Path) -> Iterator[Path]:
    """The directory of a media driver in C that ends with the test."""
    directory = tmp_path / "driver"
    command = [sys.executable, "-m", "container.testing.processes.client_driver", str(directory)]
    with Process("driver", command, directory=tmp_path) as process:
        process.start()
        assert process.read_line(LIMIT_S) == "ready"
        yield directory


def test_an_archive_starts_is_found_and_ends(tmp_path: Path, aeron_dir: Path) -> None:
    with LocalArchive("java", tmp_path, aeron_dir, archive_id=42) as archive:
        assert archive.mark_file() is None
        archive.start().await_ready()
        status = archive.mark_file()
        assert status is not None
        assert (status.pid, status.owner_id, status.aeron_dir) == (archive.pid, 42, str(aeron_dir))
        with pytest.raises(ContainerError, match=f"held by pid {archive.pid}, which lives"):
            archive.release_mark_file()
        archive.stop()
        assert not archive.is_running
        assert archive.errors() == []
        status = archive.mark_file()
        assert status is not None
        assert status.activity_timestamp_ms == -1


def test_a_killed_archive_restarts_once_its_mark_file_is_free(tmp_path: Path, aeron_dir: Path) -> None:
    with LocalArchive("java", tmp_path, aeron_dir) as archive:
        archive.start().await_ready()
        archive.kill()
        with pytest.raises(ProcessEndedError, match="active mark file detected"):
            archive.start().await_ready()
        archive.restart().await_ready()
        first = archive.control_channel
        archive.kill()
        with archive.hand_over("java") as successor:
            successor.start().await_ready()
            assert (successor.archive_dir, successor.control_channel) == (archive.archive_dir, first)


@pytest.mark.parametrize("kind", ARCHIVE_KINDS)
def test_java_s_tool_describes_verifies_and_compacts(tmp_path: Path, aeron_dir: Path, kind: ArchiveKind) -> None:
    with LocalArchive(kind, tmp_path, aeron_dir) as archive:
        archive.start().await_ready()
        pid = archive.pid
        assert archive.tool("pid").output.strip() == str(pid)
        archive.stop()
        assert archive.tool("count-entries") == (0, "0\n")
        for arguments in (["describe"], ["dump"], ["verify"], ["verify", "-a"], ["errors"]):
            return_code, output = archive.tool(*arguments)
            assert return_code == 0, output
        return_code, output = archive.tool("compact", answer="y")
        assert return_code == 0, output
        assert "non-recoverable operation" in output
        assert archive.tool("no-such-command").return_code != 0


@pytest.mark.parametrize("checksum", ["Crc32", "Crc32c"])
def test_java_verifies_the_checksums_of_ours(
    tmp_path: Path, aeron_dir: Path, checksum: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "--add-opens=java.base/java.util.zip=ALL-UNNAMED")
    class_name = f"io.aeron.archive.checksum.{checksum}"
    properties = {"aeron.archive.record.checksum": class_name, "aeron.archive.replay.checksum": class_name}
    with LocalArchive("native", tmp_path, aeron_dir, properties=properties) as archive:
        archive.start().await_ready()
        with AeronClient(str(aeron_dir), "test") as client:
            recording_id = record(client, MESSAGES)
            assert replay(client, recording_id) == MESSAGES
        archive.stop()
        verify = ["verify", "-a", "-checksum", class_name]
        return_code, output = archive.tool(*verify)
        assert return_code == 0, output
        assert "OK" in output
        segment = archive.archive_dir / f"{recording_id}-0.rec"
        content = bytearray(segment.read_bytes())
        content[100] ^= 1
        segment.write_bytes(content)
        return_code, output = archive.tool(*verify)
        assert return_code != 0
        assert "checksum" in output.lower()


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_ours_goes_on_with_what_java_s_tool_has_changed(
    tmp_path: Path, aeron_dir: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "--add-opens=java.base/java.util.zip=ALL-UNNAMED")
    crc = "io.aeron.archive.checksum.Crc32"

    def tool(*arguments: str, answer: str | None = None) -> str:
        return_code, output = archive.tool(*arguments, answer=answer)
        assert return_code == 0, f"{arguments}: {output}"
        assert "ERR" not in output, output
        return output

    properties = {"aeron.archive.segment.file.length": "64k"}
    with LocalArchive("native", tmp_path, aeron_dir, properties=properties) as archive:
        archive.start().await_ready()
        with AeronClient(str(aeron_dir), "test") as client:
            recording_ids = [record(client, MESSAGES) for _each in range(2)]
            if how == "stopped":
                assert archive.stop() == 0
            else:
                recording_ids.append(record_open(client, MESSAGES).recording_id)
                archive.kill()
        first, *others = recording_ids
        tool("checksum", crc, "-a")
        assert f"(recordingId={first}) changed state to INVALID" in tool("mark-invalid", str(first))
        assert "Latest version=" in tool("migrate", answer="y")
        archive.properties.update({"aeron.archive.record.checksum": crc, "aeron.archive.replay.checksum": crc})
        with archive.hand_over("native") as successor, AeronClient(str(aeron_dir), "test") as client:
            successor.start().await_ready()
            with pytest.raises(ArchiveError, match=f"unknown recording id: {first}"):
                replay(client, first)
            for recording_id in others:
                assert replay(client, recording_id) == MESSAGES
            assert successor.stop() == 0
            assert f"(recordingId={first}) changed state to VALID" in tool("mark-valid", str(first))
            assert tool("verify", "-a", "-checksum", crc).count("OK") == len(recording_ids)
            successor.start().await_ready()
            assert replay(client, first) == MESSAGES
            assert record(client, MESSAGES) == recording_ids[-1] + 1


def test_an_archive_is_java_s_or_ours(tmp_path: Path) -> None:
    properties = {"aeron.archive.dir": "a", "aeron.dir": "d", "aeron.archive.idle.strategy": "org.x.Y", "aeron.x": "1"}
    process = archive_process("native", "archive", properties, directory=tmp_path)
    assert process.command == [sys.executable, "-m", "container", "archive", "--dir", "a", "--aeron-dir", "d"]
    assert process.environment == {
        "AERON_ARCHIVE_DIR": "a",
        "AERON_DIR": "d",
        "AERON_ARCHIVE_IDLE_STRATEGY": "backoff(10,20,1us,50us)",
    }
    with pytest.raises(ContainerError, match="a part is one of java, native, not 'python'"):
        LocalArchive("python", tmp_path, tmp_path)  # type: ignore[arg-type]


def test_members_have_the_parts_they_are_given(tmp_path: Path) -> None:
    services = [Service([sys.executable])]
    kinds: tuple[ArchiveKind | None, ...] = ("native", "java", None)
    with LocalCluster(
        services,
        member_count=3,
        base_dir=tmp_path,
        archives=kinds,
        consensus_modules=(None, "native", None),
        separate_processes=[2],
    ) as cluster:
        nodes = [member.node for member in cluster.members]
        assert [node.archive_kind for node in nodes] == ["native", "java", "java"]
        assert [node.consensus_module_kind for node in nodes] == ["java", "native", "java"]
        assert [node.driver_kind for node in nodes] == ["java"] * 3
        assert all(len({id(node.driver), id(node.archive), id(node.process)}) == 3 for node in nodes)
        assert nodes[0].archive.command[1:4] == ["-m", "container", "archive"]
        assert nodes[0].archive.environment["AERON_ARCHIVE_SEGMENT_FILE_LENGTH"] == "16m"
        assert nodes[1].process.command[1:4] == ["-m", "container", "consensus-module"]
        assert nodes[1].process.environment["AERON_CLUSTER_MEMBERS"].count("|") == 2
    for name in ("drivers", "archives", "consensus_modules"):
        with pytest.raises(ContainerError, match=f"2 {name}: there are 3 members"):
            LocalCluster(services, base_dir=tmp_path, **{name: ("java", "native")})  # type: ignore[arg-type]
    with pytest.raises(ContainerError, match="a part is one of java, native, not 'python'"):
        LocalCluster(services, base_dir=tmp_path, consensus_modules="python")  # type: ignore[arg-type]


def test_seven_members_without_java_need_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))  # where there is none
    monkeypatch.setenv("AERON_JAR", str(tmp_path / "none.jar"))
    kinds: Any = dict.fromkeys(("drivers", "archives", "consensus_modules"), "native")
    with LocalCluster([Service([sys.executable])], member_count=7, base_dir=tmp_path, **kinds) as cluster:
        assert {member.node.process.command[0] for member in cluster.members} == {sys.executable}
        assert len({endpoints.ingress for endpoints in cluster.endpoints}) == 7
        with pytest.raises(JavaError):
            cluster.members[0].node.become(consensus_module="java")
        assert cluster.members[0].node.consensus_module_kind == "native"


def test_a_member_becomes_one_of_other_parts(tmp_path: Path) -> None:
    with LocalCluster([Service([sys.executable])], member_count=1, base_dir=tmp_path) as cluster:
        node = cluster.members[0].node
        whole = node.process
        assert node.processes == [whole]
        node.become(consensus_module="native")
        assert (node.driver_kind, node.archive_kind, node.consensus_module_kind) == ("java", "java", "native")
        assert node.processes == [node.driver, node.archive, node.process]
        assert whole not in node.processes
        assert node.process.command[1:4] == ["-m", "container", "consensus-module"]
        node.become(archive="native", consensus_module="java")
        assert node.archive.command[1:4] == ["-m", "container", "archive"]
        assert node.process.command[-1] == "io.aeron.cluster.ConsensusModule"
        with pytest.raises(ContainerError, match="a part is one of java, native, not 'python'"):
            node.become(driver="python")  # type: ignore[arg-type]
