"""A member's recording log and node state, compared with those that upstream's classes write and read."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from container.files.names import NODE_STATE_NAME, RECORDING_LOG_NAME
from container.files.node_state_file import NodeStateFile
from container.files.recording_log import RecordingLog, read_recording_log
from container.storage.file_storage import FileStorage
from container.testing.processes.java_tools import java_command
from tests.limits import LIMIT_S

SEEDS = 5


def run_java(name: str, jar: Path, java_classes: Path, *arguments: str, given: str = "") -> str:
    command = [*java_command(name, [jar, java_classes]), *arguments]
    result = subprocess.run(command, input=given, capture_output=True, text=True, timeout=LIMIT_S)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


class OurFiles:
    """The same commands as the Java program's, with our classes."""

    def __init__(self, directory: Path) -> None:
        self.log = RecordingLog.open(FileStorage(), str(directory), create=True, file_sync_level=1)
        self.state = NodeStateFile.open(FileStorage(), str(directory), create=True)

    def apply(self, line: str) -> None:
        name, *words = line.split(" ")
        numbers = [int(word) for word in words[:6]]
        match name:
            case "term":
                self.log.append_term(*numbers)
            case "snapshot":
                self.log.append_snapshot(*numbers)
            case "standby":
                recording_id, term_id, base, position, timestamp, service_id = numbers
                self.log.append_standby_snapshot(
                    recording_id, term_id, base, position, timestamp, service_id, archive_endpoint=words[6]
                )
            case "commit":
                self.log.commit_log_position(*numbers)
            case "invalidate":
                self.log.invalidate_latest_snapshot()
            case "candidate":
                self.state.propose_max_candidate_term_id(*numbers)

    def shown(self) -> str:
        """What the Java program prints of the same files."""
        rows = [
            (
                each.entry_index,
                each.recording_id,
                each.leadership_term_id,
                each.term_base_log_position,
                each.log_position,
                each.timestamp,
                each.service_id,
                each.entry_type,
                "true" if each.is_valid else "false",
                "null" if each.archive_endpoint is None else each.archive_endpoint,
            )
            for each in self.log.entries
        ]
        last = (self.state.candidate_term_id, self.state.log_position, self.state.timestamp)
        return "".join(" ".join(map(str, row)) + "\n" for row in [*rows, last])

    def close(self) -> None:
        self.log.force()
        self.log.close()
        self.state.close()


def commands(seed: int) -> list[str]:
    """What a member does in its life: terms, some of which are entered late, and snapshots, some of them bad."""
    draw = random.Random(seed)
    lines, position, base, term_id = [], 0, 0, -1
    for step in range(60):
        kind = draw.randrange(6) if term_id >= 0 else 0
        if kind == 0:
            base, term_id = position, term_id + 1
            lines.append(f"term 7 {term_id} {base} {step}")
        elif kind in (1, 2):
            position += 64 * draw.randrange(1, 9)
            word, more = ("snapshot", "") if kind == 1 else ("standby", " host:" + "9" * draw.choice([1, 7, 8, 700]))
            lines += [
                f"{word} {100 * step + each} {term_id} {base} {position} {step} {each}{more}" for each in (1, 0, -1)
            ]
            if kind == 1 and draw.random() < 0.5:
                lines.append("invalidate")
                lines += [
                    f"{word} {200 * step + each} {term_id} {base} {position} {step} {each}" for each in (1, 0, -1)
                ]
        elif kind == 3:
            lines.append(f"commit {term_id} {position}")
        elif kind == 4 and draw.random() < 0.5:
            lines.append("invalidate")
        elif kind == 5:
            lines.append(f"candidate {draw.randrange(step + 1)} {position} {step}")
    return lines


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_same_commands_make_the_same_files(seed: int, jar: Path, java_classes: Path, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    lines = commands(seed)
    printed = run_java("container.tests.MemberFiles", jar, java_classes, str(theirs), given="\n".join(lines))
    files = OurFiles(ours)
    for line in lines:
        files.apply(line)
    assert files.shown() == printed
    files.close()
    assert (ours / NODE_STATE_NAME).read_bytes() == (theirs / NODE_STATE_NAME).read_bytes()
    assert list(read_recording_log(ours)) == list(read_recording_log(theirs))
    assert (ours / RECORDING_LOG_NAME).stat().st_size == (theirs / RECORDING_LOG_NAME).stat().st_size
    # Each reads what the other has written.
    assert run_java("container.tests.MemberFiles", jar, java_classes, str(ours)) == printed
    opened = OurFiles(theirs)
    assert opened.shown() == printed
    opened.close()


def test_cluster_tool_prints_our_recording_log(jar: Path, java_classes: Path, tmp_path: Path) -> None:
    files = OurFiles(tmp_path)
    for line in ("term 7 0 0 5", "snapshot 8 0 0 64 6 -1", "standby 9 0 0 64 6 -1 host:1", "term 7 1 128 7"):
        files.apply(line)
    files.close()
    printed = run_java("io.aeron.cluster.ClusterTool", jar, java_classes, str(tmp_path), "recording-log")
    assert [printed.count(f"recordingId={number},") for number in (7, 8, 9)] == [2, 1, 1]
    assert "archiveEndpoint=host:1" in printed
    assert "leadershipTermId=0, termBaseLogPosition=0, logPosition=128, timestamp=5" in printed
