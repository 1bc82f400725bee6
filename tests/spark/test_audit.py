"""The audit: equal members pass, each kind of difference is found and located, and the report says it."""

from __future__ import annotations

import argparse
import hashlib
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from msgspec.structs import replace as replace_options
from pyspark.sql import SparkSession

from container.errors import ConfigurationError, RecordingError, RecordingUnavailableError
from container.files.recording_log import read_recording_log
from container.pipeline.audit import CHECKS, AuditReport, audit, check_bytes
from container.pipeline.audit_report import write_audit
from container.pipeline.findings import FINDING_LIMIT
from container.pipeline.history import (
    TermRow,
    _run,
    check_positions,
    check_snapshots,
    check_terms,
    snapshot_contents,
    snapshots_of,
    terms_of,
)
from container.pipeline.log_bytes import AuditedMember, Frames, compare_bytes, search_block
from container.pipeline.pipeline_command import pipeline_parser
from container.recordings import LogRange, open_member
from container.spark.options import SourceOptions
from container.spark.source import open_source_members
from container.testing.processes.recordings import write_catalog, write_recording_log
from tests.plain_decoder import frames
from tests.recordings_world import SEGMENT_LENGTH, TERM_LENGTH, write_mark
from tests.spark.written_members import History, WrittenMember

BLOCK = 64 * 1024


def copy_of(member: WrittenMember, path: Path) -> WrittenMember:
    return replace(member, base_dir=Path(shutil.copytree(member.base_dir, path)))


def payload_text(payload: bytes) -> str:
    return f"'{len(payload)} bytes, SHA-256 {hashlib.sha256(payload).hexdigest()[:16]}'"


def overwrite(member: WrittenMember, position: int, content: bytes, *, recording_id: int = 0) -> Path:
    base = position // SEGMENT_LENGTH * SEGMENT_LENGTH
    path = member.archive_dir / f"{recording_id}-{base}.rec"
    with path.open("r+b") as file:
        file.seek(position - base)
        file.write(content)
    return path


def options_of(*members: WrittenMember) -> SourceOptions:
    return SourceOptions(tuple(str(member.base_dir) for member in members))


def member_frame(member: WrittenMember, template_id: int, number: int) -> int:
    """The bytes of log that a message of a template has."""
    places = [0, *(one["log_position"] for one in member.messages)]
    end = member.of_template(template_id)[number]["log_position"]
    return int(end - places[places.index(end) - 1])


def audited(index: int, member: WrittenMember) -> AuditedMember:
    opened = open_member(member.base_dir)
    return AuditedMember(index, opened, opened.log_descriptor(), opened.log_range())


def texts(report: AuditReport, name: str) -> list[str]:
    return [f"{found.state}: {found.text}" for found in report.find(name).findings]


def snapshot_texts(spark: SparkSession, *members: WrittenMember) -> list[str]:
    """What the audit finds in the members' snapshots, without its other checks."""
    options = replace_options(options_of(*members), member="all", mode="audit")
    opened = [
        AuditedMember(index, member, member.log_descriptor(), member.log_range())
        for index, member in enumerate(open_source_members(options))
    ]
    contents = snapshot_contents(spark, options)
    found = check_snapshots(spark, options, contents, snapshots_of(contents), opened)
    return [f"{one.state}: {one.text}" for one in found.findings]


def as_caught_up(member: WrittenMember, begin: int) -> None:
    """From a position on give a member other session ids, reserved values and gaps, as a replay may give it."""
    opened = open_member(member.base_dir)
    descriptor, log_range = opened.log_descriptor(), opened.log_range()
    found = frames(member.archive_dir, 0, begin, log_range.recorded_position, descriptor.segment_file_length)
    for frame in found:
        overwrite(member, frame.position + 12, b"\xee\xdd\xcc\xbb")
        overwrite(member, frame.position + 24, b"received")
        end = frame.position + (frame.length if frame.kind == 1 else 32)
        overwrite(member, end, bytes([0x5A]) * min(frame.end - end, 1000))


def test_equal_members_pass_also_with_other_session_ids(
    spark: SparkSession, member: WrittenMember, tmp_path: Path
) -> None:
    behind = copy_of(member, tmp_path / "behind")
    as_caught_up(behind, member.messages[50]["log_position"])
    report = audit(spark, options_of(member, behind), block_length=BLOCK)
    assert (report.verdict, [one.state for one in report.checks]) == ("pass", ["pass"] * len(CHECKS))
    assert [one.name for one in report.checks] == list(CHECKS)
    assert "6 blocks are recorded by more than one member, and 0 of these differ" in report.find("log").summary
    assert [one.leader_member_id for one in report.terms] == [0, 1]
    assert report.members[0].snapshot_positions == report.members[1].snapshot_positions != []
    assert report.open_sessions[-1] == (member.end_position, 1)
    assert len(report.timer_lateness) == 2
    page, data = write_audit(report, tmp_path / "reports" / "report.html")
    assert msgspec.json.decode(data.read_bytes(), type=AuditReport) == report
    text = page.read_text()
    assert "pass: The members have the same history." in text
    assert text.count("<svg ") == 4  # members and lateness, each for wide and for narrow pages
    assert text.count('<path class="snapshot"') == 2 * (1 + 2 * len(report.members[0].snapshot_positions))
    assert "<script" not in text


def write_faulty(base_dir: Path) -> WrittenMember:
    """A history that cannot be: sessions that send too early, too late, or were never opened; a session missing."""
    history = History(base_dir)
    history.begin_term()
    history.open_session(1)
    history.message(1, b"good")
    history.message(2, b"too early")
    history.open_session(2)
    history.message(9, b"never opened")
    history.close_session(1)
    history.message(1, b"too late")
    history.close_session(8)
    history.open_session(3)
    history.open_session(3)
    history.take_snapshot([], [(77, history.now_ms - 100), (78, history.now_ms + 1000)], b"state")
    history.timer(78)
    history.take_snapshot([2, 3], [(77, history.now_ms - 102)], b"state")
    history.timer(5)
    return history.finish()


def test_each_difference_and_each_impossible_event_is_found(spark: SparkSession, tmp_path: Path) -> None:
    first = write_faulty(tmp_path / "first")
    second, third = (copy_of(first, tmp_path / name) for name in ("second", "third"))
    good = first.messages[2]["log_position"]
    flipped = overwrite(second, good - 60, b"\x7f")
    # The service's state in the first snapshot: behind the frames of two markers, each with a header of 32 bytes.
    overwrite(third, 2 * 96 + 32, b"S", recording_id=2)
    entries = list(read_recording_log(third.base_dir / "cluster"))
    entries[0] = replace(entries[0], log_position=entries[0].log_position - 32)
    write_recording_log(third.base_dir / "cluster", [entries[0], *entries[1:-1]])
    report = audit(spark, options_of(first, second, third), block_length=BLOCK)
    assert report.verdict == "fail"
    (byte,) = report.find("log").findings
    assert (byte.member_id, byte.log_position) == (1, good - 60)
    assert f"{flipped}, offset {good - 60}" in byte.text
    assert "0x7f, not 0x" in byte.text
    at = [message["log_position"] for message in first.messages]
    assert texts(report, "sessions") == [
        f"fail: session 2 sends a message at {at[3]}, before it is opened at {at[4]}",
        f"fail: session 9 sends a message at {at[5]} and was never opened",
        f"fail: session 1 sends a message at {at[7]}, after it is closed at {at[6]}",
        f"fail: session 8 is closed at {at[8]} and was never opened",
        "fail: session 3 is opened 2 times",
        f"fail: session 2 is missing in the snapshot at {at[11]}, and open there by the log",
    ]
    times = [message["timestamp"] for message in first.messages]
    assert texts(report, "timers") == [
        f"warn: timer 77 of the snapshot at {at[11]} was due at {times[10] - 100} and had not expired by {times[12]}",
        f"warn: timer 78 of the snapshot at {at[11]} expired at {times[12]}, before its deadline {times[10] + 1000}",
    ]
    assert texts(report, "snapshots") == [
        f"fail: the snapshot of service 0 at {at[11]} differs between members in 1 items, first in item 2, "
        f"SERVICE_DATA 1: payload is {payload_text(b'state')} on member 0, 1 and {payload_text(b'State')} on member 2",
        f"warn: member 2 has no snapshot of service 0 at {at[13]}, others have",
    ]


def test_timers_of_a_snapshot_may_come_in_any_order(spark: SparkSession, tmp_path: Path) -> None:
    members: list[WrittenMember] = []
    for name, timers in (("first", [(5, 70), (6, 60)]), ("second", [(6, 60), (5, 70)]), ("third", [(6, 61), (5, 70)])):
        history = History(tmp_path / name)
        history.begin_term()
        history.take_snapshot([], timers, b"state")
        # Each member says by its own clock when it took the snapshot.
        entries = history.world.entries
        entries[:] = [replace(one, timestamp=one.timestamp + len(members)) for one in entries]
        members.append(history.finish())
    assert snapshot_texts(spark, *members) == [
        f"fail: the snapshot of the consensus module at {members[0].messages[-1]['log_position']} differs between "
        "members in 1 items, first in item 1, TIMER 6: deadline is 60 on member 0, 1 and 61 on member 2"
    ]


def test_the_first_item_that_differs_is_named_also_beside_damage(spark: SparkSession, tmp_path: Path) -> None:
    history = History(tmp_path / "first")
    history.begin_term()
    history.take_snapshot([], [(5, 70), (6, 60)], b"state")
    first = history.finish()
    second = copy_of(first, tmp_path / "second")
    # The schema of the second timer: behind the frames of the marker and the first one, and its own header.
    overwrite(second, 96 + 64 + 32 + 4, b"\xff", recording_id=1)
    differs, *damaged = snapshot_texts(spark, first, second)
    assert "items, first in item 2, TIMER 6: member 1 lacks it" in differs
    assert damaged


def test_a_timer_more_on_one_member_is_the_only_difference(spark: SparkSession, tmp_path: Path) -> None:
    """And so is a session: neither moves what follows, in the snapshots of the consensus module and of the service."""
    members: list[WrittenMember] = []
    for name, more in (("first", False), ("second", True), ("third", False)):
        history = History(tmp_path / name)
        history.begin_term()
        for session_id in (1, 2, 3):
            history.open_session(session_id)
        timers = [(number, 1000 + number) for number in range(20) if more or number != 3]
        history.take_snapshot((1, 2, 3), timers, b"state")
        history.take_snapshot((1, 2, 3) if more else (1, 3), [(5, 70), (6, 60)], b"state")
        members.append(history.finish())
    first, second = [one["log_position"] for one in members[0].messages if one["template_id"] == 23]
    text = "fail: the snapshot of the consensus module at {} differs between members in 1 items, first in item {}: {}"
    assert snapshot_texts(spark, *members) == [
        text.format(first, "7, TIMER 3", "member 0, 2 lacks it"),
        text.format(second, "2, CLUSTER_SESSION 2", "member 0, 2 lacks it"),
    ]


def test_a_timer_that_lives_over_two_snapshots_is_not_forgotten(spark: SparkSession, tmp_path: Path) -> None:
    """One that is due before the next snapshot, and never expires, is, and it is said once."""
    history = History(tmp_path / "member")
    history.begin_term()
    due, never = history.now_ms + 50, history.now_ms + 2
    for number in range(3):
        history.take_snapshot((), [(1, due), (2, never), (10 + number, history.now_ms)])
        history.timer(10 + number)
    history.now_ms = due + 1
    history.timer(1)
    history.take_snapshot((), [(2, never)])
    history.timer(99)
    member = history.finish()
    at = [one["log_position"] for one in member.of_template(23)]
    report = audit(spark, options_of(member))
    first = member.of_template(20)[1]["timestamp"]
    assert texts(report, "timers") == [
        f"warn: timer 2 of the snapshot at {at[1]} was due at {never} and had not expired by {first}"
    ]
    assert len(report.timer_lateness) == 4


def test_a_member_that_lost_terms_or_is_of_an_older_backup_is_no_pass(spark: SparkSession, tmp_path: Path) -> None:
    """All members are stopped; one has lost the middle term of its recording log, one has half of the log."""
    members = []
    half = 0
    for name in ("first", "lost", "older"):
        history = History(tmp_path / name)
        for term in range(3):
            history.begin_term(leader_member_id=term)
            history.open_session(term)
            for number in range(50):
                history.message(term, b"%d" % number)
            half = history.position if term == 1 else half
            if name == "older" and term == 1:
                break
        members.append(history.finish(is_closed=name != "older"))
    for number, one in enumerate(members):
        write_mark(one.base_dir, number)
    entries = read_recording_log(members[1].base_dir / "cluster")
    write_recording_log(members[1].base_dir / "cluster", [one for one in entries if one.leadership_term_id != 1])
    report = audit(spark, options_of(*members), block_length=BLOCK)
    assert report.verdict == "fail"
    base, end = members[0].terms[1][1], members[0].end_position
    (lost,) = texts(report, "terms")
    assert lost.startswith(f"fail: member 1: its recording log has no entry of term 1, which begins at {base}; member")
    assert texts(report, "members") == [
        f"warn: member 2 lacks the log from {half} to {end}, which is committed and which member 0, member 1 has: it "
        "ended before the others, or its files are of an earlier time, as from a backup"
    ]
    assert [one.name for one in report.checks if one.state != "pass"] == ["members", "terms"]


def test_a_session_that_only_snapshots_have_was_never_opened(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing was in front of a log that begins at 0, whatever the snapshots say."""
    history = History(tmp_path / "member")
    history.begin_term()
    history.open_session(1)
    history.take_snapshot((1, 9))
    history.close_session(1)
    history.take_snapshot((9,))
    member = history.finish()
    first, second = [one["log_position"] for one in member.of_template(23)]
    assert texts(audit(spark, options_of(member)), "sessions") == [
        f"fail: session 9 is open in the snapshot at {at}, and not open there by the log" for at in (first, second)
    ]


def test_a_member_without_a_recording_log_is_audited(
    spark: SparkSession, member: WrittenMember, tmp_path: Path
) -> None:
    """One whose recording log is gone lacks all its terms and snapshots; an archive alone never had any."""
    gone, alone = copy_of(member, tmp_path / "gone"), copy_of(member, tmp_path / "alone")
    (gone.base_dir / "cluster" / "node-state.dat").touch()
    (gone.base_dir / "cluster" / "recording.log").unlink()
    shutil.rmtree(alone.base_dir / "cluster")
    report = audit(spark, options_of(member, gone, alone), block_length=BLOCK)
    found = [(one.name, one.state) for one in report.checks if one.state != "pass"]
    assert found == [("terms", "fail"), ("snapshots", "warn")], report.checks
    assert [text.partition(",")[0] for text in texts(report, "terms")] == [
        f"fail: member 1: its recording log has no entry of term {term}" for term in range(2)
    ]
    assert len(texts(report, "snapshots")) == 4
    assert all(text.startswith("warn: member 1 has no snapshot of ") for text in texts(report, "snapshots"))


def test_a_log_with_holes_proves_nothing_of_sessions_and_timers(
    spark: SparkSession, member: WrittenMember, tmp_path: Path
) -> None:
    """The events of another member count, if that has all of them."""
    holed = copy_of(member, tmp_path / "holed")
    place = member.of_template(21)[1]["log_position"]
    # The template of a session's opening: its frame is whole, and nobody knows what it was.
    overwrite(holed, place - member_frame(member, 21, 1) + 32 + 2, b"\xff\xff")
    alone = audit(spark, options_of(holed))
    assert alone.verdict == "fail"
    sessions, timers = alone.find("sessions").findings, alone.find("timers").findings
    assert sessions[0] == timers[0]
    assert "its log is not whole in 1 places, so what happened there is not known" in sessions[0].text
    assert {one.state for one in sessions[1:]} == {"warn"}
    assert any("was never opened" in one.text for one in sessions[1:])
    beside = audit(spark, options_of(holed, member))
    assert [one.name for one in beside.checks if one.state != "pass"] == ["log", "terms"]
    assert beside.find("sessions").summary.endswith(f"; by the log of member 1, up to {member.end_position:,}")


def test_a_snapshot_has_what_its_member_gave_it(spark: SparkSession, tmp_path: Path) -> None:
    """Its time, and the length of the ring of pending messages, in which Java's consensus module counts the padding."""
    members = []
    for name, length in (("first", 144), ("second", 160)):
        history = History(tmp_path / name)
        history.begin_term()
        ids = {"next_service_session_id": 2 - 2**63, "log_service_session_id": 1 - 2**63}
        history.take_snapshot([], [(5, 70)], b"state", **ids, pending_message_capacity=length)
        members.append(history.finish())
    first, second = members
    entries = read_recording_log(second.base_dir / "cluster")
    write_recording_log(
        second.base_dir / "cluster",
        [replace(entry, timestamp=entry.timestamp + entry.is_snapshot) for entry in entries],
    )
    assert snapshot_texts(spark, first, second) == []


@pytest.mark.slow
def test_a_byte_is_found_behind_any_number_of_other_session_ids(
    spark: SparkSession, member: WrittenMember, tmp_path: Path
) -> None:
    behind, third = copy_of(member, tmp_path / "behind"), copy_of(member, tmp_path / "third")
    as_caught_up(behind, 0)
    place = member.messages[-2]["log_position"] + 40
    path = overwrite(behind, place, b"\xd5")
    # Blocks of two frames at most: thousands have other session ids.
    report = audit(spark, options_of(member, behind, third), block_length=96)
    (found,) = report.find("log").findings
    assert (report.verdict, found.state, found.member_id, found.log_position) == ("fail", "fail", 1, place)
    assert f"{path}, offset {place % SEGMENT_LENGTH}" in found.text
    assert "and 1 of these differ in what must be equal" in report.find("log").summary
    assert report.find("log").finding_count == 1


def test_all_that_differs_is_counted_and_the_first_is_listed(
    spark: SparkSession, member: WrittenMember, tmp_path: Path
) -> None:
    other = copy_of(member, tmp_path / "other")
    changed = [message["log_position"] - 32 for message in member.of_template(1)[:700:2]]
    for place in changed:
        overwrite(other, place, b"\xfe")  # in no payload
    found = compare_bytes(spark, [audited(0, member), audited(1, other)], 96)
    assert found.differing_count == len(changed) > FINDING_LIMIT
    assert [one.log_position for one in found.differences] == changed[:FINDING_LIMIT]
    check = check_bytes([audited(0, member), audited(1, other)], found)
    assert (check.state, len(check.findings), check.finding_count) == ("fail", FINDING_LIMIT, len(changed))


def test_sessions_and_timers_that_are_not_listed_are_counted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(tmp_path / "member")
    history.begin_term()
    for session_id in range(3):
        history.open_session(session_id)
    early, late = history.now_ms + 1000, history.now_ms
    history.take_snapshot((), [(number, early if number < 3 else late) for number in range(7)])
    for number in range(7):
        history.timer(number)
    options = options_of(history.finish())
    for name in ("FINDING_LIMIT", "LATENESS_LIMIT"):
        monkeypatch.setattr(f"container.pipeline.event_checks.{name}", 2)
    report = audit(spark, options)
    sessions, timers = (report.find(name) for name in ("sessions", "timers"))
    assert (len(sessions.findings), sessions.finding_count) == (2, 3)  # missing in the snapshot
    assert (len(timers.findings), timers.finding_count) == (2, 3)
    assert "7 timers expired; of 7 that snapshots have, 4 expired in time order" in timers.summary


def test_a_part_of_a_log_is_one_row_however_much_of_it_is_damaged() -> None:
    schema = pa.schema(
        [
            ("member_id", pa.int32()),
            ("begin_position", pa.int64()),
            ("log_position", pa.int64()),
            ("error", pa.string()),
        ]
    )
    rows = [{"member_id": 2, "begin_position": place, "log_position": place + 32} for place in range(0, 960, 96)]
    damaged = {"member_id": 2, "log_position": 960, "error": "no frame"}
    parts = (rows[:4], rows[4:], [damaged] * 600, [damaged] * 400)
    batches = [pa.RecordBatch.from_pylist(part, schema) for part in parts]
    (found,) = (batch.to_pylist() for batch in _run(batches))
    (run,) = found
    faults = run.pop("faults")
    ends = {"begin_position": 0, "end_position": 896}
    assert run == {"member_id": 2, **ends, "frame_count": 10, "fault_count": 9 + 1000}
    assert len(faults) == FINDING_LIMIT
    assert faults[0] == {"begin_position": 32, "end_position": 96, "error": None}
    assert faults[8:10] == [
        {"begin_position": 800, "end_position": 864, "error": None},
        {"begin_position": 960, "end_position": None, "error": "no frame"},
    ]


def test_archives_with_segments_of_other_lengths_are_compared(
    spark: SparkSession, member: WrittenMember, tmp_path: Path
) -> None:
    other = copy_of(member, tmp_path / "other")
    content = b"".join((other.archive_dir / f"0-{n * SEGMENT_LENGTH}.rec").read_bytes() for n in range(3))
    for path in other.archive_dir.glob("0-*.rec"):
        path.unlink()
    for base in range(0, len(content), TERM_LENGTH):
        (other.archive_dir / f"0-{base}.rec").write_bytes(content[base : base + TERM_LENGTH])
    log, *rest = open_member(other.base_dir).recordings()
    write_catalog(other.archive_dir, [replace(log, segment_file_length=TERM_LENGTH), *rest])
    pair = [audited(0, member), audited(1, other)]
    found = compare_bytes(spark, pair, 4 * TERM_LENGTH)
    assert (found.differing_count, found.compared_count) == (0, found.block_count)


@pytest.mark.slow
def test_a_torn_recording_log_is_a_finding_and_the_audit_goes_on(
    spark: SparkSession, member: WrittenMember, tmp_path: Path
) -> None:
    torn, gone, flipped = (copy_of(member, tmp_path / name) for name in ("torn", "gone", "flipped"))
    path = torn.base_dir / "cluster" / "recording.log"
    path.write_bytes(path.read_bytes()[: 64 + 20])
    (gone.archive_dir / "archive.catalog").write_bytes(bytes(1024))
    place = member.messages[20]["log_position"] + 40
    overwrite(flipped, place, b"\xd5")
    report = audit(spark, options_of(member, torn, gone, flipped), block_length=BLOCK)
    assert report.verdict == "fail"
    assert [one.path for one in report.members] == [str(one.base_dir) for one in (member, torn, flipped)]
    byte, no_log = report.find("log").findings
    assert f"fail: member 2: {gone.archive_dir}/archive.catalog" in f"{no_log.state}: {no_log.text}"
    assert (byte.state, byte.member_id, byte.log_position) == ("fail", 3, place)
    torn_text = f"{path}, offset 64: the last entry has 20 bytes of 48"
    assert f"fail: terms of member 1: {torn_text}" in texts(report, "terms")
    assert [one.state for one in report.checks if one.name in ("sessions", "timers")] == ["pass", "pass"]


def test_a_missing_segment_is_a_finding_and_the_audit_goes_on(
    spark: SparkSession, member: WrittenMember, tmp_path: Path
) -> None:
    """Of a member beside others, and of the one whose sessions and timers are looked at."""
    other = copy_of(member, tmp_path / "other")
    gone = other.archive_dir / f"0-{SEGMENT_LENGTH}.rec"
    gone.unlink()
    for members, place in (((member, other), 1), ((other,), None)):
        report = audit(spark, options_of(*members), block_length=BLOCK)
        assert report.verdict == "fail"
        log = report.find("log").findings
        assert {(one.state, one.member_id) for one in log} == {("fail", place)}
        assert log[0].log_position == SEGMENT_LENGTH
        name = str(other.base_dir) if place is None else f"member {place}"
        text = f"{name}: {gone}, offset 0, log position {SEGMENT_LENGTH}: the segment file cannot be "
        assert log[0].text == f"{text}read: No such file or directory"
        error, hole = report.find("positions").findings
        assert error.text.startswith(f"{text}opened: No such file or directory; {SEGMENT_LENGTH} bytes skipped")
        assert hole.text == f"{name}: the log from {SEGMENT_LENGTH} to {2 * SEGMENT_LENGTH} is not there"
    with pytest.raises(RecordingUnavailableError, match="the segment file cannot be read: No such file or directory"):
        audited(0, other).read(SEGMENT_LENGTH, SEGMENT_LENGTH + 32)
    gone.write_bytes(bytes(100))
    with pytest.raises(RecordingError, match="the file ends 28 bytes before") as caught:
        audited(0, other).read(SEGMENT_LENGTH, SEGMENT_LENGTH + 128)
    assert not isinstance(caught.value, RecordingUnavailableError)


@pytest.mark.slow
def test_sessions_of_a_purged_part_of_the_log_are_open_where_it_begins(
    spark: SparkSession, member: WrittenMember, tmp_path: Path
) -> None:
    purged = copy_of(member, tmp_path / "purged")
    (purged.archive_dir / "0-0.rec").unlink()
    descriptor, *others = open_member(purged.base_dir).recordings()
    write_catalog(purged.archive_dir, [replace(descriptor, start_position=SEGMENT_LENGTH), *others])
    report = audit(spark, options_of(purged))
    assert report.find("sessions").state == "pass"
    assert [count for _, count in report.open_sessions] == [2, 1]


def test_a_session_that_ended_before_the_first_snapshot_of_a_purged_log_may_have_been_opened(
    spark: SparkSession, tmp_path: Path
) -> None:
    history = History(tmp_path / "member")
    history.begin_term()
    history.open_session(1)
    history.open_session(2)
    while history.position < SEGMENT_LENGTH + 3000:
        history.message(1, bytes(1000))
    history.close_session(1)
    history.message(4, b"of a session that the snapshot lacks")
    lacking = history.position
    history.take_snapshot((2,))
    history.message(2, b"of a session that the snapshot has")
    history.close_session(1)
    history.message(4, b"of a session that the snapshot lacks")
    history.message(3, b"of no session")
    purged = history.finish()
    (purged.archive_dir / "0-0.rec").unlink()
    descriptor, *others = open_member(purged.base_dir).recordings()
    write_catalog(purged.archive_dir, [replace(descriptor, start_position=SEGMENT_LENGTH), *others])
    assert texts(audit(spark, options_of(purged)), "sessions") == [
        f"fail: session 4 sends a message at {lacking} and was never opened",
        "fail: session 1 is closed 2 times",
        f"fail: session 3 sends a message at {purged.end_position} and was never opened",
    ]


def test_an_end_that_is_lost_is_a_finding(spark: SparkSession, member: WrittenMember, tmp_path: Path) -> None:
    shorter = copy_of(member, tmp_path / "shorter")
    log, *rest = open_member(shorter.base_dir).recordings()
    last = member.messages[-2]["log_position"]
    write_catalog(shorter.archive_dir, [replace(log, stop_position=last), *rest])
    report = audit(spark, options_of(member, shorter), block_length=BLOCK)
    assert report.verdict == "fail"
    (lost,) = report.find("log").findings
    assert (lost.state, lost.member_id, lost.log_position) == ("fail", 1, last)
    assert f"it was recorded and committed to {member.end_position}" in lost.text
    assert [one.name for one in report.checks if one.state != "pass"] == ["log"]


def test_what_comes_while_an_audit_runs_is_no_finding(spark: SparkSession, member: WrittenMember) -> None:
    options = replace_options(options_of(member), mode="audit")
    (opened,) = open_source_members(options)
    earlier = member.messages[-5]["log_position"]
    for begin, expected in ((0, []), (32, ["the log from 0 to 32 is there twice"])):
        then = AuditedMember(0, opened, opened.log_descriptor(), LogRange(begin, earlier, earlier))
        found = check_positions(spark, options, [then]).findings
        assert [one.text.partition(": ")[2] for one in found] == expected


def test_a_snapshot_behind_the_committed_end_says_nothing_of_the_sessions_before(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As one that a running member takes while it is audited, when the end of the log is known already."""
    history = History(tmp_path / "member")
    history.begin_term()
    history.open_session(1)
    committed = history.position
    history.close_session(1)
    history.take_snapshot()
    options = replace_options(options_of(history.finish()), committed=committed)
    assert texts(audit(spark, options), "sessions") == []


@pytest.mark.slow
def test_what_is_purged_while_an_audit_runs_is_no_finding(
    spark: SparkSession, member: WrittenMember, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    purged = copy_of(member, tmp_path / "purged")

    def terms_before_purge(*arguments: Any) -> list[TermRow]:
        found = terms_of(*arguments)
        descriptor, *others = open_member(purged.base_dir).recordings()
        write_catalog(purged.archive_dir, [replace(descriptor, start_position=SEGMENT_LENGTH), *others])
        (purged.archive_dir / "0-0.rec").unlink()
        return found

    monkeypatch.setattr("container.pipeline.audit.terms_of", terms_before_purge)
    # The first of two is the one whose sessions and timers are looked at.
    report = audit(spark, options_of(purged, copy_of(member, tmp_path / "other")), block_length=BLOCK)
    assert [text for one in report.checks for text in texts(report, one.name)] == []


def test_the_tail_of_an_old_leader_is_a_warning(spark: SparkSession, tmp_path: Path) -> None:
    members, base = [], 0
    for name, has_new_term in (("old", False), ("new", True), ("third", True)):
        history = History(tmp_path / name)
        history.begin_term(leader_member_id=0)
        history.open_session(1)
        for number in range(5):
            history.message(1, b"of both %d" % number)
        base = history.position
        if has_new_term:
            history.begin_term(leader_member_id=1)
        for number in range(5):
            history.message(1, b"%s %d" % (b"new" if has_new_term else b"lost", number))
        members.append(history.finish(is_closed=False))
    report = audit(spark, options_of(*members), block_length=BLOCK)
    assert [one.committed_position for one in report.members] == [
        base,
        members[1].end_position,
        members[2].end_position,
    ]
    assert report.verdict == "warn"
    (found,) = report.find("log").findings
    assert (found.state, found.member_id, base <= (found.log_position or 0) < base + 32) == ("warn", 0, True)
    assert [one.name for one in report.checks if one.state != "pass"] == ["members", "log"]
    (behind,) = report.find("members").findings
    assert (behind.state, behind.member_id) == ("warn", 0)


def test_a_position_that_is_committed_need_not_be_where_a_frame_begins(
    spark: SparkSession, member: WrittenMember, tmp_path: Path
) -> None:
    behind = copy_of(member, tmp_path / "behind")
    as_caught_up(behind, 0)
    # Within the header of a frame: blocks end there, and the frames behind it are still found.
    committed = LogRange(0, member.end_position, member.messages[600]["log_position"] + 9)
    pair = [replace(audited(0, member), log_range=committed), audited(1, behind)]
    assert compare_bytes(spark, pair, BLOCK).differing_count == 0


def test_a_byte_is_located_in_payload_header_and_padding(member: WrittenMember, tmp_path: Path) -> None:
    other = copy_of(member, tmp_path / "other")
    frame = member.messages[10]["log_position"]
    place, start = audited(0, member), Frames(0, 0, -1)
    for offset, expected in (
        (32, f"byte 0 of the payload of the frame at {frame}"),
        (0, f"frame_length in the header of the frame at {frame}"),
        (5, f"flags in the header of the frame at {frame}"),
        (22, f"term_id in the header of the frame at {frame}"),
        (30, None),
        (13, None),
    ):
        path = overwrite(other, frame + offset, b"\xd5")
        for one, two in ((audited(1, other), place), (place, audited(1, other))):
            found = search_block(one, two, 0, BLOCK, frames=start, other_frames=start)
            if expected is None:
                assert found is None
                continue
            assert found is not None
            assert (found.place, found.log_position, found.offset) == (expected, frame + offset, frame + offset)
            assert 0xD5 in (found.byte, found.other_byte)
            assert Path(found.file).name == path.name
        other = copy_of(member, tmp_path / f"other-{offset}")


def row(member_id: int, source: str, term: int, base: int, **fields: int) -> TermRow:
    values = dict.fromkeys(TermRow._fields) | {"begin_position": base if source == "log" else None} | fields
    values |= {"member_id": member_id, "source": source, "leadership_term_id": term, "term_base_log_position": base}
    return TermRow(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([row(0, "log", 0, 0, leader_member_id=1), row(1, "recording_log", 0, 0, end_log_position=-0)], []),
        (
            [row(0, "log", 1, 96), row(1, "recording_log", 1, 128)],
            [
                "term 1 has different values of term_base_log_position: 96 by member 0 (log); "
                "128 by member 1 (recording log)"
            ],
        ),
        (
            [row(0, "log", 1, 96, leader_member_id=0), row(1, "log", 1, 96, leader_member_id=2)],
            ["term 1 has different values of leader_member_id: 0 by member 0 (log); 2 by member 1 (log)"],
        ),
        (
            [row(0, "log", 1, 96, begin_position=64)],
            ["member 0: term 1 is opened at 64, and its message says that it begins at 96"],
        ),
        (
            [row(0, "recording_log", 0, 0, end_log_position=32), row(0, "recording_log", 1, 96)],
            ["member 0: term 0 ends at 32, and term 1 begins at 96"],
        ),
    ],
)
def test_terms_that_do_not_fit_are_found(rows: list[TermRow], expected: list[str]) -> None:
    found = check_terms(rows)
    assert [finding.text for finding in found.findings] == expected
    assert found.state == ("fail" if expected else "pass")


def test_blocks_are_multiples_of_a_frames_alignment(spark: SparkSession, member: WrittenMember) -> None:
    with pytest.raises(ConfigurationError, match="block_length=100: must be a positive multiple of 32 bytes"):
        audit(spark, options_of(member), block_length=100)


@pytest.mark.parametrize("size", ["100", "0", "many"])
def test_a_wrong_block_is_refused_before_spark_starts(size: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        pipeline_parser(argparse.ArgumentParser, "pipeline").parse_args(["audit", "member", "--block", size])
    assert f"argument --block: '{size}': must be a multiple of 32 bytes, such as 65536" in capsys.readouterr().err
