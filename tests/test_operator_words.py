"""The operators' words on the files of members: what they answer, and what they change."""

from __future__ import annotations

import dataclasses
import errno
import os
import re
import shutil
import signal
import stat
import struct
import sys
import time
from pathlib import Path
from typing import NoReturn

import pytest

from container.files.recording_log import RecordingLogEntry, encode_entry, read_recording_log
from container.operate import processes, recording_logs
from container.operate.answers import RefusedError
from container.operate.processes import process_state
from container.testing.processes.recordings import descriptor_of, write_catalog
from tests.operator_world import STATE, Terminal, Words, written
from tests.recordings_world import World, archive_mark, rows_of, write_mark
from tests.soak.disk import SmallDisk, unavailable_reason

CHANGING = ("recording-log sort", "recording-log seed", "recording-log validate", "invalidate-latest-snapshot")
PID_OFFSET, START_OFFSET = 32, 24


@pytest.fixture
def words() -> Words:
    return Words()


@pytest.fixture
def member(tmp_path: Path) -> World:
    return written(tmp_path / "member")


def entries(world: World) -> list[RecordingLogEntry]:
    return list(read_recording_log(world.cluster_dir))


def content(world: World) -> bytes:
    return (world.cluster_dir / "recording.log").read_bytes()


def names(world: World) -> list[str]:
    return sorted(path.name for path in world.cluster_dir.iterdir())


def unsorted(world: World) -> list[RecordingLogEntry]:
    """Write the entries in another order, the latest snapshot invalid."""
    found = entries(world)
    found[-2:] = [invalid(entry) for entry in found[-2:]]
    (world.cluster_dir / "recording.log").write_bytes(b"".join(encode_entry(entry) for entry in reversed(found)))
    return found


def invalid(entry: RecordingLogEntry) -> RecordingLogEntry:
    fields = {name: getattr(entry, name) for name in entry.__slots__}
    return RecordingLogEntry(**{**fields, "is_valid": False})


def shapes(found: list[RecordingLogEntry]) -> list[tuple[int, bool]]:
    return [(entry.recording_id, entry.is_valid) for entry in found]


# Reading.


def test_a_node_that_was_killed_is_described(words: Words, member: World) -> None:
    facts = words.facts("describe", member.base_dir)
    mark = facts["consensus_module"]
    assert (mark["component"], mark["state"], mark["member_id"]) == ("CONSENSUS_MODULE", "dead", 2)
    assert mark["version"] == "0.3.0"
    assert facts["services"] == []
    assert facts["node_state"] is None
    status = words.facts("status", member.cluster_dir, code=1)
    assert (status["node"], status["role"], status["recorded_position"]) == ("dead", None, member.log.position)
    assert status["last_snapshot"]["log_position"] == member.entries[-1].log_position


def test_terms_and_snapshots_are_shown_in_the_order_of_recovery(words: Words, member: World) -> None:
    unsorted(member)
    facts = words.facts("recording-log", member.base_dir)
    assert not facts["is_sorted"]
    assert [entry["type"] for entry in facts["entries"]] == ["TERM"] + ["SNAPSHOT"] * 4
    assert [entry["entry_index"] for entry in facts["entries"]] == [4, 3, 2, 1, 0]
    assert [entry["is_valid"] for entry in facts["entries"]] == [True, True, True, False, False]
    assert facts["entries"][0]["log_position"] is None


def test_a_plan_goes_on_from_the_latest_snapshot(words: Words, member: World) -> None:
    plan = words.facts("recovery-plan", member.base_dir)
    position = member.entries[-1].log_position
    assert plan["service_count"] == 1
    assert [each["service_id"] for each in plan["snapshots"]] == [None, 0]
    assert plan["log"]["start_position"] == plan["committed_log_position"] == position
    assert plan["appended_log_position"] == member.log.position
    assert "snapshot missing for service 1" in words.refusal(
        "recovery-plan", member.base_dir, "--services", "2", code=3
    )


def test_snapshots_are_described_without_an_archive_that_runs(words: Words, member: World) -> None:
    module = words.facts("describe-latest-consensus-module-snapshot", member.base_dir)
    assert module["log_position"] == member.entries[-1].log_position
    assert module["sessions"][0]["cluster_session_id"] == 7
    assert module["sessions"][0]["close_reason"] is None
    assert module["timers"] == [{"correlation_id": 3, "deadline": 1234}]
    assert module["pending"][0]["message_count"] == 1
    assert module["log_service_session_id"] == -(2**63) + 1
    service = words.facts("describe-latest-service-snapshot", member.base_dir)
    assert (service["state_message_count"], service["state_length"]) == (2, 2 * len(STATE))
    assert service["sessions"][0]["principal"] == "0102"
    assert "these services: 0" in words.refusal(
        "describe-latest-service-snapshot", member.base_dir, "--service", "1", code=3
    )


def test_the_log_has_the_messages_of_the_recordings_reader(words: Words, member: World) -> None:
    wanted = rows_of(member.base_dir, "messages", committed="recorded")
    found = words.facts("log", member.base_dir, "--payload")
    assert [each["log_position"] for each in found] == [row["log_position"] for row in wanted]
    assert [each["begin_position"] for each in found] == [row["begin_position"] for row in wanted]
    for each, row in zip(found, wanted, strict=True):
        for name in ("template_id", "timestamp", "cluster_session_id", "correlation_id"):
            if row["schema_id"] == 111 and each["message"] != "unknown":
                assert each[name] == row.get(name), name
        if each["message"] == "SessionMessageHeader":
            assert bytes.fromhex(each["payload"]) == row.get("payload", b"")


def test_the_log_is_filtered(words: Words, member: World) -> None:
    every = words.facts("log", member.base_dir)
    middle = every[10]["log_position"]
    behind = words.facts("log", member.base_dir, "--from", str(middle))
    assert behind == every[11:]
    before = words.facts("log", member.base_dir, "--to", str(middle))
    assert before == every[:11]
    # A position within a message.
    assert words.facts("log", member.base_dir, "--from", str(middle - 32)) == every[10:]
    sessions = words.facts("log", member.base_dir, "--message", "session-message", "--session", "2", "--limit", "3")
    assert [each["cluster_session_id"] for each in sessions] == [2, 2, 2]
    assert all(each["payload"] is None for each in sessions)
    assert words("log", member.base_dir, "--term", "9", "--json").output == ""


def test_the_log_ends_with_a_sentence_where_it_is_damaged(words: Words, member: World) -> None:
    every = words.facts("log", member.base_dir)
    member.damage(every[12]["begin_position"] + 8, b"\xff\xff\xff")
    found = words("log", member.base_dir, "--json")
    assert found.code == 3
    assert found.facts == every[:12]
    assert f"log position {every[12]['begin_position']}" in found.error
    assert found.error.count("\n") == 1


def test_an_archive_is_listed_verified_and_dumped(words: Words, member: World) -> None:
    listed = words.facts("archive list", member.base_dir)["recordings"]
    assert [each["stream_id"] for each in listed] == [100, 106, 107, 106, 107]
    assert words.facts("archive list", member.archive_dir, "--stream", "107")["recordings"][0] == listed[2]
    assert words.facts("archive describe", member.archive_dir, "--recording", "1")["recordings"] == listed[1:2]
    assert "no recording 77" in words.refusal("archive describe", member.archive_dir, "--recording", "77", code=3)
    before = {path: path.read_bytes() for path in member.archive_dir.iterdir()}
    assert words.facts("archive verify", member.archive_dir)["is_intact"]
    frames = words.facts("archive dump", member.archive_dir, "--recording", "0")
    assert sum((frame["frame_length"] + 31) // 32 * 32 for frame in frames) == member.log.position
    some = words.facts("archive dump", member.archive_dir, "--recording", "0", "--from", "500", "--limit", "2")
    assert some[0] in frames
    assert some[0]["position"] <= 500 < some[1]["position"]
    member.damage(frames[5]["position"] + 8, b"\xff")
    broken = words.facts("archive verify", member.archive_dir, code=1)
    assert [each["is_intact"] for each in broken["recordings"]] == [False, True, True, True, True]
    assert broken["recordings"][0]["verified_to"] == frames[5]["position"]
    assert "term offset" in broken["recordings"][0]["problems"][0]
    member.damage(frames[5]["position"] + 8, before[member.segment()][frames[5]["position"] + 8 :][:1])
    assert before == {path: path.read_bytes() for path in member.archive_dir.iterdir()}


def test_a_missing_segment_is_found(words: Words, member: World) -> None:
    member.segment(0).unlink()
    broken = words.facts("archive verify", member.archive_dir, code=1)["recordings"][0]
    assert "not found" in " ".join(broken["problems"])


def test_errors_of_an_archive_whose_mark_file_is_elsewhere_are_found(
    words: Words, member: World, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "archive-mark.dat").write_bytes(archive_mark())
    (member.archive_dir / "archive-mark.lnk").write_text(str(tmp_path / "elsewhere"))
    found = words.facts("errors", member.base_dir)
    (log,) = [log for log in found["logs"] if log["source"] == "archive"]
    assert log["path"] == str(tmp_path / "elsewhere" / "archive-mark.dat")
    (member.archive_dir / "archive-mark.lnk").write_bytes(b"\xff")
    problems = words.facts("errors", member.base_dir)["problems"]
    assert any("archive-mark.lnk has no path" in problem for problem in problems)


# Changing.


def test_sorting_keeps_what_is_invalid(words: Words, member: World) -> None:
    wanted = unsorted(member)
    before = content(member)
    facts = words.facts("recording-log sort", member.base_dir, "--yes")
    assert facts["has_changed"]
    assert shapes(entries(member)) == shapes(wanted)
    assert Path(facts["backup"]).read_bytes() == before
    again = words.facts("recording-log sort", member.base_dir, "--yes")
    assert not again["has_changed"]
    assert again["backup"] is None


def test_invalidating_goes_from_the_latest_snapshot_to_the_one_before(words: Words, member: World) -> None:
    backups = []
    for valid in (3, 1):
        facts = words.facts("invalidate-latest-snapshot", member.base_dir, "--yes")
        assert len(facts["invalidated"]) == 2
        assert sum(entry.is_valid for entry in entries(member)) == valid
        backups.append(facts["backup"])
    assert len(set(backups)) == 2  # a backup is never overwritten
    assert not words.facts("invalidate-latest-snapshot", member.base_dir, "--yes", code=1)["has_changed"]


def test_seeding_keeps_the_latest_snapshot_alone(words: Words, member: World) -> None:
    latest = entries(member)[-2:]
    words.facts("recording-log seed", member.base_dir, "--yes")
    seeded = entries(member)
    assert [entry.recording_id for entry in seeded] == [entry.recording_id for entry in latest]
    assert {(entry.term_base_log_position, entry.log_position) for entry in seeded} == {(0, 0)}


def test_seeding_without_a_snapshot_changes_nothing(words: Words, tmp_path: Path) -> None:
    world = World(tmp_path / "member")
    world.begin_term()
    world.close()
    write_mark(world.base_dir, 0)
    before = content(world)
    assert "no valid snapshot" in words.refusal("recording-log seed", world.base_dir, "--yes")
    assert content(world) == before


def test_validating_invalidates_what_the_archive_does_not_have(words: Words, member: World) -> None:
    lost = member.entries[1].recording_id
    member.descriptors = [each for each in member.descriptors if each.recording_id != lost]
    member.close()
    facts = words.facts("recording-log validate", member.base_dir, "--yes")
    assert [entry["recording_id"] for entry in facts["invalidated"]] == [lost]
    assert [entry.recording_id for entry in entries(member) if not entry.is_valid] == [lost]
    assert not words.facts("recording-log validate", member.base_dir, "--yes")["has_changed"]


@pytest.mark.parametrize("word", [word for word in CHANGING if word != "recording-log validate"])
def test_a_node_that_runs_is_not_changed(words: Words, tmp_path: Path, word: str) -> None:
    world = written(tmp_path / "member", age_ms=0)
    unsorted(world)
    before = content(world)
    assert "is running" in words.refusal(word, world.base_dir, "--yes")
    assert content(world) == before


@pytest.mark.parametrize("word", CHANGING)
def test_a_change_is_asked_for(words: Words, member: World, word: str) -> None:
    unsorted(member)
    shutil.rmtree(member.archive_dir)
    member.descriptors = []
    member.archive_dir.mkdir()
    write_catalog(member.archive_dir, [descriptor_of(member.log)])
    before = content(member), names(member)
    assert "--yes" in words.refusal(word, member.base_dir)
    assert (content(member), names(member)) == before
    for no in ("n\n", "\n", ""):
        asked = words(word, member.base_dir, answer=no)
        assert asked.code == 1
        assert "Continue? [y/N]" in asked.error
        assert (content(member), names(member)) == before
    assert words(word, member.base_dir, answer="y\n").code == 0
    assert content(member) != before[0]
    assert (member.cluster_dir / "recording.log.bak").read_bytes() == before[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_root_changes_the_file_and_the_node_may_still_open_it(words: Words, member: World) -> None:
    path = member.cluster_dir / "recording.log"
    os.chown(path, 12_345, 12_346)
    path.chmod(0o640)
    assert words("invalidate-latest-snapshot", member.base_dir, "--yes").code == 0
    for each in (path, path.with_name("recording.log.bak")):
        status = each.stat()
        assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (12_345, 12_346, 0o640)


@pytest.mark.parametrize("word", CHANGING[:2])
def test_a_change_that_fails_changes_nothing(
    words: Words, member: World, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unsorted(member)
    before = content(member)

    def fail(self: Path, target: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device", str(target))

    with monkeypatch.context() as broken:
        broken.setattr(Path, "replace", fail)
        found = words(word, member.base_dir, "--yes")
    assert found.code == 1
    assert "No space left on device; nothing has changed" in found.error
    assert content(member) == before
    assert not [name for name in names(member) if name.startswith(".")]


def die_at(point: int) -> None:
    """Kill this process at its n-th touch of a file."""
    left = point

    def count(event: str, _arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event in ("open", "tempfile.mkdtemp") or event.startswith(("os.", "shutil.")):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


@pytest.mark.parametrize("word", ["recording-log sort", "invalidate-latest-snapshot"])
def test_a_kill_at_any_point_of_a_change_leaves_whole_files(words: Words, tmp_path: Path, word: str) -> None:
    first = written(tmp_path / "first")
    unsorted(first)
    before = content(first)
    changed = Path(shutil.copytree(first.cluster_dir, tmp_path / "changed"))
    assert words(word, changed, "--yes").code == 0
    after = (changed / "recording.log").read_bytes()
    found = []
    for point in range(1, 500):
        cluster_dir = Path(shutil.copytree(first.cluster_dir, tmp_path / str(point)))
        child = os.fork()
        if child == 0:
            die_at(point)
            os._exit(words(word, cluster_dir, "--yes").code)
        _, status = os.waitpid(child, 0)
        found.append((cluster_dir / "recording.log").read_bytes() == after)
        assert found[-1] or (cluster_dir / "recording.log").read_bytes() == before
        backups = list(cluster_dir.glob("recording.log.bak*"))
        assert all(path.read_bytes() == before for path in backups), point
        assert backups or not found[-1]
        if status == 0:
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
        again = words(word, cluster_dir, "--yes")  # what was left is in nobody's way
        assert again.code == 0 or "has_changed  no" in again.output, (point, again)
    assert len(found) > 20
    assert found == sorted(found)
    assert found[-1]


def test_a_node_that_was_started_before_the_answer_is_not_changed(member: World) -> None:
    unsorted(member)
    before = content(member)

    def start(_what: str) -> None:
        write_mark(member.base_dir, 2, age_ms=0)

    for change in (recording_logs.sort, recording_logs.seed, recording_logs.invalidate_latest_snapshot):
        write_mark(member.base_dir, 2, age_ms=60_000)
        with pytest.raises(RefusedError, match="is running"):
            change(member.base_dir, start)

    def enter(_what: str) -> None:
        found = entries(member)
        (member.cluster_dir / "recording.log").write_bytes(b"".join(encode_entry(each) for each in found[1:]))

    write_mark(member.base_dir, 2, age_ms=60_000)
    with pytest.raises(RefusedError, match="has changed meanwhile: look at it again"):
        recording_logs.sort(member.base_dir, enter)
    (member.cluster_dir / "recording.log").write_bytes(before)
    assert not [name for name in names(member) if "bak" in name or name.startswith(".")]


@pytest.mark.parametrize("word", CHANGING[:2])
@pytest.mark.parametrize("mark", [bytes(8192), b"\x01" * 100, b""], ids=["zeros", "ones", "empty"])
def test_a_node_that_may_be_starting_is_not_changed(words: Words, member: World, word: str, mark: bytes) -> None:
    unsorted(member)
    before = content(member)
    (member.cluster_dir / "cluster-mark.dat").write_bytes(mark)
    assert "it is not known whether the node runs" in words.refusal(word, member.base_dir, "--yes", code=3)
    assert content(member) == before
    (member.cluster_dir / "cluster-mark.dat").unlink()
    assert words(word, member.base_dir, "--yes").code == 0


def test_a_link_to_a_recording_log_stays_one(words: Words, member: World, tmp_path: Path) -> None:
    unsorted(member)
    (tmp_path / "disk").mkdir()
    real = (member.cluster_dir / "recording.log").rename(tmp_path / "disk" / "the-log")
    (member.cluster_dir / "recording.log").symlink_to(real)
    before = real.read_bytes()
    backup = words.facts("recording-log sort", member.base_dir, "--yes")["backup"]
    assert Path(backup).read_bytes() == before != real.read_bytes()
    assert (member.cluster_dir / "recording.log").is_symlink()
    assert sorted(path.name for path in real.parent.iterdir()) == ["the-log", "the-log.bak"]


@pytest.mark.skipif(unavailable_reason() is not None, reason=unavailable_reason() or "")
@pytest.mark.parametrize("room", [0, 4096, 16_384, 28_672, 65_536])
def test_a_disk_that_is_full_changes_nothing(words: Words, tmp_path: Path, room: int) -> None:
    try:
        disk = SmallDisk(tmp_path / "disk", 1)
    except OSError as error:
        pytest.skip(f"no small disk can be mounted here: {error}")
    try:
        cluster_dir = disk.path / "cluster"
        cluster_dir.mkdir()
        entry = RecordingLogEntry(0, 1, 0, 0, -1, 5, -1, 0, is_valid=True)
        terms = [
            dataclasses.replace(entry, leadership_term_id=term, term_base_log_position=term * 64)
            for term in range(200, 0, -1)
        ]
        path = cluster_dir / "recording.log"
        path.write_bytes(b"".join(encode_entry(term) for term in terms))
        before = path.read_bytes()
        disk.fill(leaving=room)
        found = words("recording-log sort", cluster_dir, "--yes")
        if room < 40_000:
            assert found.code == 1
            assert "No space left on device; nothing has changed" in found.error
            assert path.read_bytes() == before
            assert [each.name for each in cluster_dir.iterdir()] == ["recording.log"]
        else:
            assert found.code == 0
            assert path.with_name("recording.log.bak").read_bytes() == before
    finally:
        disk.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_change_by_root_leaves_the_file_to_its_owner(words: Words, member: World) -> None:
    unsorted(member)
    path = member.cluster_dir / "recording.log"
    path.chmod(0o640)
    os.chown(path, 4711, 4712)
    for word in ("recording-log sort", "invalidate-latest-snapshot"):
        words.facts(word, member.base_dir, "--yes")
        for each in (path, path.with_name("recording.log.bak")):
            found = each.stat()
            assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (4711, 4712, 0o640), (word, each)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_s_file_is_not_replaced_by_one_of_one_s_own(words: Words, member: World) -> None:
    unsorted(member)
    for path in (member.cluster_dir, *member.cluster_dir.iterdir()):
        path.chmod(0o777)
    for path in member.base_dir.resolve().parents:
        if path.stat().st_mode & 0o055 != 0o055:
            path.chmod(path.stat().st_mode | 0o055)
    before = content(member), names(member)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(4712)
        os.setuid(4711)
        os.write(writing, words("recording-log sort", member.cluster_dir, "--yes").error.encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with open(reading, encoding="utf-8") as pipe:  # noqa: PTH123 - a descriptor
        assert "it belongs to user 0 and group 0: work as that user, or as root; nothing has changed" in pipe.read()
    assert (content(member), names(member)) == before


# Processes.


def put_process(world: World, pid: int, start_ms: int) -> None:
    path = world.cluster_dir / "cluster-mark.dat"
    mark = bytearray(path.read_bytes())
    struct.pack_into("<qq", mark, START_OFFSET, start_ms, pid)
    path.write_bytes(mark)


def test_a_pid_that_was_given_again_is_noticed(words: Words, tmp_path: Path) -> None:
    world = written(tmp_path / "member", age_ms=0)
    put_process(world, os.getpid(), time.time_ns() // 1_000_000)
    assert words("pid", world.base_dir).output == f"{os.getpid()}\n"
    assert words("pid", world.base_dir).code == 0
    put_process(world, os.getpid(), 5)
    assert words.facts("pid", world.base_dir, code=1)["process"] == "reused"
    assert words.facts("describe", world.base_dir)["consensus_module"]["process"] == "reused"
    # Its mark file looks alive, and nothing else does.
    words.refusal("snapshot", world.base_dir, code=3)
    reasons = words.facts("health", world.base_dir, code=1)["reasons"]
    assert any("has no counters" in reason for reason in reasons)


def test_processes_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = time.time_ns() // 1_000_000
    assert process_state(os.getpid(), now_ms) == "alive"
    assert process_state(os.getpid(), 5) == "reused"
    for pid in (0, -1, 2**31, 2**40):
        assert process_state(pid, now_ms) == "unknown"
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert process_state(child, now_ms) == "gone"  # nobody has waited for it yet
    os.waitpid(child, 0)
    assert process_state(child, now_ms) == "gone"
    monkeypatch.setattr(processes, "_began_ms", lambda pid: None)
    monkeypatch.setattr(processes, "_has_no_proc", lambda: True)
    assert process_state(os.getpid(), 5) == "alive"  # the system does not say when it began


# Probes.


def test_a_probe_waits_until_its_time_limit(words: Words, member: World) -> None:
    begin = time.monotonic()
    facts = words.facts("health", member.base_dir, "--timeout", "0.3", code=1)
    assert time.monotonic() - begin > 0.25
    assert facts["waited_ms"] >= 300
    assert not facts["is_healthy"]
    text = words("health", member.base_dir)
    assert text.output.startswith("ready: no\n")
    assert "the consensus module is dead" in text.output
    assert "the consensus module's state is unknown\n  the state of its election is unknown" in text.output


GONE = 2**22 + 1  # above the largest pid of Linux


@pytest.mark.parametrize(
    ("version", "age_ms", "pid", "said"),
    [
        (768, None, GONE, "is stopped: start it$"),
        (768, 60_000, GONE, f"is dead: its process {GONE} is gone: start it again$"),
        (
            768,
            60_000,
            os.getpid(),
            rf"is dead: process {os.getpid()} exists, but has shown no sign of life for 6\d s: end it, then start the "
            r"node again$",
        ),
        (768, 60_000, 0, r"is dead: it has shown no sign of life for 6\d s: start it again$"),
        (0, 0, GONE, f"is starting: its process {GONE} is gone: start it again$"),
        (0, 0, os.getpid(), "is starting: wait: `aeron-cluster health DIR --check live --timeout 60`$"),
        (-1, 0, GONE, "is failed: its last start failed: `aeron-cluster errors DIR` shows why$"),
    ],
)
def test_a_word_for_a_running_node_says_what_to_do_with_another(
    words: Words, member: World, version: int, age_ms: int | None, pid: int, said: str
) -> None:
    write_mark(member.base_dir, 2)
    path = member.base_dir / "cluster" / "cluster-mark.dat"
    mark = bytearray(path.read_bytes())
    now_ms = time.time_ns() // 1_000_000
    struct.pack_into("<i", mark, 8, version)
    # The times of activity and start: this process began before a mark of now.
    struct.pack_into("<qq", mark, 16, -1 if age_ms is None else now_ms - age_ms, now_ms)
    struct.pack_into("<q", mark, 32, pid)
    path.write_bytes(mark)
    for word in ("snapshot", "list-members"):
        assert re.search(said, words.refusal(word, member.base_dir).strip())


def test_a_directory_is_named_or_comes_from_the_environment(
    words: Words, member: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AERON_CLUSTER_DIR", raising=False)
    found = words("recording-log", None)
    assert (found.code, found.error) == (2, "aeron-cluster: error: name a directory, or set AERON_CLUSTER_DIR\n")
    monkeypatch.setenv("AERON_CLUSTER_DIR", str(member.cluster_dir))
    assert words("recording-log", None).code == 0
    found = words("archive list", member.cluster_dir)
    assert "is not the directory of an archive: it has no archive.catalog, nor has a directory right" in found.error


# What goes on meanwhile, and who owns what.


@pytest.mark.parametrize("word", CHANGING)
def test_a_node_that_starts_while_it_is_asked_is_not_changed(
    words: Words, member: World, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_a_snapshot(member)
    unsorted(member)
    before = content(member)

    def answer(_self: object) -> str:
        write_mark(member.base_dir, 2, age_ms=0)
        return "y\n"

    monkeypatch.setattr(Terminal, "readline", answer)
    asked = words(word, member.base_dir, answer="")
    assert asked.code == 1
    assert "is running" in asked.error
    assert content(member) == before


@pytest.mark.parametrize("word", CHANGING)
def test_what_was_written_while_it_is_asked_is_not_lost(
    words: Words, member: World, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_a_snapshot(member)
    unsorted(member)
    path = member.cluster_dir / "recording.log"

    def answer(_self: object) -> str:
        path.write_bytes(path.read_bytes() + path.read_bytes()[:64])
        return "y\n"

    monkeypatch.setattr(Terminal, "readline", answer)
    asked = words(word, member.base_dir, answer="")
    assert asked.code == 1
    assert "has changed meanwhile: look at it again" in asked.error
    assert not list(member.cluster_dir.glob("recording.log.bak*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("word", CHANGING)
def test_root_leaves_the_file_to_the_user_of_the_node(words: Words, member: World, word: str) -> None:
    lose_a_snapshot(member)
    unsorted(member)
    path = member.cluster_dir / "recording.log"
    os.chown(path, 12_345, 23_456)
    path.chmod(0o640)
    assert words(word, member.base_dir, "--yes").code == 0
    found = path.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (12_345, 23_456, 0o640)


def test_a_backup_that_is_not_whole_does_not_stay(words: Words, member: World, monkeypatch: pytest.MonkeyPatch) -> None:
    unsorted(member)
    before = content(member), names(member)
    count = 0

    def fill(path: Path) -> None:
        nonlocal count
        count += 1
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(recording_logs, "_force", fill)
    assert "No space left on device; nothing has changed" in words.refusal(
        "recording-log sort", member.base_dir, "--yes"
    )
    assert count == 1
    assert (content(member), names(member)) == before


def test_a_copy_that_fails_leaves_nothing(words: Words, member: World, monkeypatch: pytest.MonkeyPatch) -> None:
    unsorted(member)
    before = content(member), names(member)

    def fill(_source: Path, target: Path) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device", str(target))

    monkeypatch.setattr(shutil, "copy2", fill)
    assert "No space left on device" in words.refusal("recording-log sort", member.base_dir, "--yes")
    assert (content(member), names(member)) == before


def test_a_restored_member_without_a_mark_file_is_validated(words: Words, member: World) -> None:
    lost = lose_a_snapshot(member)
    (member.cluster_dir / "cluster-mark.dat").unlink()
    facts = words.facts("recording-log validate", member.base_dir, "--yes")
    assert [entry["recording_id"] for entry in facts["invalidated"]] == [lost]


@pytest.mark.parametrize("word", CHANGING)
def test_a_mark_file_that_does_not_say_whether_the_node_runs_keeps_the_file(
    words: Words, member: World, word: str
) -> None:
    lose_a_snapshot(member)
    unsorted(member)
    before = content(member)
    (member.cluster_dir / "cluster-mark.dat").write_bytes(b"\xff" * 8192)
    assert "it is not known whether the node runs" in words.refusal(word, member.base_dir, "--yes", code=3)
    assert content(member) == before


def lose_a_snapshot(member: World) -> int:
    """Remove the recording of a snapshot from the catalog, and return its id."""
    lost = member.entries[1].recording_id
    member.descriptors = [each for each in member.descriptors if each.recording_id != lost]
    member.close()
    return lost


def test_the_errors_of_an_archive_are_found_where_its_link_leads(words: Words, member: World) -> None:
    elsewhere = member.base_dir / "marks"
    elsewhere.mkdir()
    (elsewhere / "archive-mark.dat").write_bytes(archive_mark())
    (member.archive_dir / "archive-mark.lnk").write_text(str(elsewhere))
    logs = words.facts("errors", member.base_dir)["logs"]
    (found,) = [log for log in logs if log["source"] == "archive"]
    assert found["path"] == str(elsewhere / "archive-mark.dat")


@pytest.mark.parametrize("is_below", [False, True])
def test_the_errors_of_an_archive_alone_are_shown(words: Words, tmp_path: Path, is_below: bool) -> None:
    world = World(tmp_path / "member")
    world.close()
    shutil.rmtree(world.cluster_dir)
    (world.archive_dir / "archive-mark.dat").write_bytes(archive_mark())
    found = words.facts("errors", world.base_dir if is_below else world.archive_dir)
    assert [log["source"] for log in found["logs"]] == ["archive"]


def test_a_directory_of_the_environment_that_is_no_path_is_a_sentence(
    words: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AERON_CLUSTER_DIR", "/tmp/\udcff")
    for word in ("status", "exporter", "top"):
        found = words(word, None)
        assert (found.code, found.output) == (2, "")
        assert "AERON_CLUSTER_DIR='/tmp/\\udcff': must be a path in UTF-8, without NUL" in found.error


@pytest.mark.parametrize("word", CHANGING)
def test_a_node_that_stands_still_is_not_changed(words: Words, member: World, word: str) -> None:
    lose_a_snapshot(member)
    unsorted(member)
    before = content(member)
    put_process(member, os.getpid(), time.time_ns() // 1_000_000)
    refusal = words.refusal(word, member.base_dir, "--yes")
    assert f"shows no sign of life, but its process (pid {os.getpid()}) is there: end it first" in refusal
    assert content(member) == before
    put_process(member, os.getpid(), 5)  # the pid is another process's now
    assert words(word, member.base_dir, "--yes").code == 0
