"""The audit: equal members pass, each kind of difference is found and located, and the report says it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from container.errors import ConfigurationError
from container.pipeline.audit import AuditReport, audit
from container.pipeline.audit_report import write_audit
from container.pipeline.history import TermRow, check_snapshots, check_terms, snapshots_of
from container.pipeline.log_bytes import AuditedMember, search_block
from container.recordings import open_member
from container.recordings.recording_log import read_recording_log
from container.spark.options import SourceOptions
from container.spark.source import open_source_members
from container.testing.recordings import write_recording_log
from tests.recordings_world import SEGMENT_LENGTH
from tests.spark.written_members import History, WrittenMember

BLOCK = 64 * 1024


def copy_of(member: WrittenMember, path: Path) -> WrittenMember:
    return replace(member, base_dir=Path(shutil.copytree(member.base_dir, path)))


def overwrite(member: WrittenMember, position: int, content: bytes, *, recording_id: int = 0) -> Path:
    base = position // SEGMENT_LENGTH * SEGMENT_LENGTH
    path = member.archive_dir / f"{recording_id}-{base}.rec"
    with path.open("r+b") as file:
        file.seek(position - base)
        file.write(content)
    return path


def options_of(*members: WrittenMember) -> SourceOptions:
    return SourceOptions(tuple(str(member.base_dir) for member in members))


def audited(index: int, member: WrittenMember) -> AuditedMember:
    opened = open_member(member.base_dir)
    return AuditedMember(index, opened, opened.log_descriptor(), opened.log_range())


def texts(report: AuditReport, name: str) -> list[str]:
    return [f"{found.state}: {found.text}" for found in report.find(name).findings]


def test_equal_members_pass_also_with_other_session_ids(
    spark: SparkSession, member: WrittenMember, tmp_path: Path
) -> None:
    behind = copy_of(member, tmp_path / "behind")
    for message in member.messages[:5]:
        begin = message["log_position"]
        overwrite(behind, begin + 12, b"\xee\xee\xee\xee")  # the next frame's session id
    report = audit(spark, options_of(member, behind), block_length=BLOCK)
    assert (report.verdict, [one.state for one in report.checks]) == ("pass", ["pass"] * 6)
    assert "member 1 has other session ids in 1 blocks" in report.find("log").summary
    assert "6 blocks are recorded by more than one member, and 1 of these differ" in report.find("log").summary
    assert [one.leader_member_id for one in report.terms] == [0, 1]
    assert report.members[0].snapshot_positions == report.members[1].snapshot_positions != []
    assert report.open_sessions[-1] == (member.end_position, 1)
    assert len(report.timer_lateness) == 2
    page, data = write_audit(report, tmp_path / "reports" / "report.html")
    assert msgspec.json.decode(data.read_bytes(), type=AuditReport) == report
    text = page.read_text()
    assert "pass: The members have the same history." in text
    assert text.count('src="data:image/png;base64,') == 1
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
        f"warn: timer 77 of the snapshot at {at[11]} was due at {times[10] - 100} and had not expired by {times[14]}",
        f"warn: timer 78 of the snapshot at {at[11]} expired at {times[12]}, before its deadline {times[10] + 1000}",
    ]
    assert texts(report, "snapshots") == [
        f"fail: the snapshot of service 0 at {at[11]} differs between members in 1 items, first in item 2",
        f"warn: member 2 has no snapshot of service 0 at {at[13]}, others have",
    ]


def test_timers_of_a_snapshot_may_come_in_any_order(spark: SparkSession, tmp_path: Path) -> None:
    members = []
    for name, timers in (("first", [(5, 70), (6, 60)]), ("second", [(6, 60), (5, 70)]), ("third", [(6, 61), (5, 70)])):
        history = History(tmp_path / name)
        history.begin_term()
        history.take_snapshot([], timers, b"state")
        members.append(history.finish())
    options = options_of(*members)
    opened = [
        AuditedMember(index, member, member.log_descriptor(), member.log_range())
        for index, member in enumerate(open_source_members(options))
    ]
    found = check_snapshots(spark, options, snapshots_of(spark, options), opened)
    assert [one.text for one in found.findings] == [
        f"the snapshot of the consensus module at {members[0].messages[-1]['log_position']} differs between members "
        "in 1 items, first in item 1"
    ]


def test_a_byte_is_located_in_payload_header_and_padding(member: WrittenMember, tmp_path: Path) -> None:
    other = copy_of(member, tmp_path / "other")
    frame = member.messages[10]["log_position"]
    task = {"begin_position": 0, "end_position": BLOCK}
    place = audited(0, member)
    for offset, expected in (
        (32, f"byte 0 of the payload of the frame at {frame}"),
        (5, f"flags in the header of the frame at {frame}"),
        (30, f"reserved_value in the header of the frame at {frame}"),
        (13, None),
    ):
        path = overwrite(other, frame + offset, b"\xd5")
        found = search_block(audited(1, other), place, task)
        assert (found.place, found.log_position) == (expected, None if expected is None else frame + offset)
        if expected is not None:
            assert (found.file, found.offset, found.byte) == (str(path), frame + offset, 0xD5)
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
