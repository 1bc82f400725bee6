"""What of the audit needs no session: who lacks a term, the beginning or end of the log, or a part of a snapshot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from container.pipeline.history import SnapshotRow, TermRow, _InvalidNow, _missing, check_terms
from container.pipeline.log_bytes import AuditedMember
from container.pipeline.members import check_members
from container.recordings import LogRange, Member
from tests.recordings_world import entry

BASES = (0, 400, 400, 800)
"""Where leadership terms begin; the second one is empty, and has no message in any log."""


def member_of(member_id: int, begin: int = 0, end: int = 1000, **fields: Any) -> AuditedMember:
    """A member without files."""
    log_range = LogRange(begin, end, fields.pop("committed", end))
    member = Member(f"/none/{member_id}", "/none/cluster", "/none/archive", member_id)
    return AuditedMember(member_id, member, None, log_range, **fields)  # type: ignore[arg-type]


def row(member_id: int, source: str, term: int) -> TermRow:
    values = dict.fromkeys(TermRow._fields) | {"begin_position": BASES[term] if source == "log" else None}
    values |= {"member_id": member_id, "source": source, "leadership_term_id": term}
    return TermRow(**values | {"term_base_log_position": BASES[term]})


def rows(
    member_id: int, *, logged: tuple[int, ...] = (0, 2, 3), entered: tuple[int, ...] = (0, 1, 2, 3)
) -> list[TermRow]:
    return [row(member_id, "log", one) for one in logged] + [row(member_id, "recording_log", one) for one in entered]


def snapshot(member_id: int, position: int, *services: int, term: int = 0, **fields: bool) -> list[SnapshotRow]:
    values = {"is_valid": True, "is_complete": True, **fields}
    return [SnapshotRow(member_id, position, one, term, **values) for one in services or (-1, 0)]


def texts(found: Any) -> list[str]:
    return [f"{one.state}: {one.text}" for one in getattr(found, "findings", found)]


LOST = "it was lost there; let the member fetch its log again from another one"
HAVE = "member 0 (log), member 0 (recording log) has it"


@pytest.mark.parametrize(
    ("entered", "expected"),
    [
        ((0, 1, 2, 3), []),
        ((0, 2, 3), []),
        ((0, 1, 3), [f"fail: member 1: its recording log has no entry of term 2, which begins at 400; {HAVE}: {LOST}"]),
        ((2, 3), [f"fail: member 1: its recording log has no entry of term 0, which begins at 0; {HAVE}: {LOST}"]),
        (
            (0, 1, 2),
            [
                "warn: member 1: its recording log has no entry of term 3, which begins at 800; "
                f"{HAVE}: a member that is killed while it gets a term from another one has not entered it yet"
            ],
        ),
        (
            (),
            [
                f"fail: member 1: its recording log has no entry of term {term}, which begins at {BASES[term]}; "
                f"{HAVE}: {LOST}"
                for term in (0, 2, 3)
            ],
        ),
    ],
)
def test_a_term_that_a_recording_log_lacks_is_found(entered: tuple[int, ...], expected: list[str]) -> None:
    found = check_terms([*rows(0), *rows(1, entered=entered)], [member_of(0), member_of(1)])
    assert texts(found) == expected


def test_who_may_lack_entries_of_terms_is_not_accused() -> None:
    every = [*rows(0), *rows(1, entered=(0, 1, 2))]
    assert texts(check_terms(every, [member_of(0), member_of(1, is_running=True)])) == []
    every = [*rows(0), *rows(1, entered=(3,))]
    for one in (member_of(1, is_backup=True), member_of(1, has_recording_log=False)):
        assert texts(check_terms(every, [member_of(0), one])) == []
    purged = [*rows(0), *rows(1, logged=(3,), entered=(3,))]
    assert texts(check_terms(purged, [member_of(0), member_of(1, begin=800)])) == []
    found = check_terms(every, [member_of(0), member_of(1)], snapshot(1, 850, term=3))
    assert {one.state for one in found.findings} == {"warn"}
    assert "no start needs it, as a later snapshot counts" in found.findings[0].text
    torn = row(1, "recording_log", 0)._replace(leadership_term_id=None, error="torn")
    assert texts(check_terms([*every, torn], [member_of(0), member_of(1)])) == ["fail: terms of member 1: torn"]


def test_a_log_that_lacks_the_message_of_a_term_is_found_and_one_that_ends_before_is_not() -> None:
    every = [*rows(0), *rows(1, logged=(0, 2))]
    expected = f"fail: member 1: its log has no message that opens term 3 at 800; {HAVE}"
    assert texts(check_terms(every, [member_of(0), member_of(1)])) == [expected]
    assert texts(check_terms(every, [member_of(0), member_of(1, end=800)])) == []
    assert texts(check_terms(every, [member_of(0), member_of(1, committed=800)])) == []  # its own tail


def test_a_log_that_ends_early_is_found_unless_it_is_behind_by_design() -> None:
    assert texts(check_members([member_of(0), member_of(1)], [])) == []
    text = (
        "warn: member 1 lacks the log from 500 to 1000, which is committed and which member 0, member 2 has: it ended "
        "before the others, or its files are of an earlier time, as from a backup"
    )
    others = [member_of(0), member_of(2)]
    assert texts(check_members([*others, member_of(1, end=500)], [])) == [text]
    for one in (
        member_of(1, end=500, is_running=True),
        member_of(1, end=500, is_backup=True),
        member_of(1, end=500, loss="its own recording log shows more"),
    ):
        assert texts(check_members([*others, one], [])) == []


def test_a_tail_that_one_member_has_alone_is_named() -> None:
    """Two of three were restored from backups: by the majority nothing behind is committed."""
    members = [member_of(0, committed=500), member_of(1, end=500), member_of(2, end=500)]
    assert texts(check_members(members, [])) == [
        f"warn: member {number} lacks the log from 500 to 1000, which member 0 has recorded; nothing shows that it is "
        "committed, and an election may remove it"
        for number in (1, 2)
    ]
    assert texts(check_members([replace(members[0], is_running=True), *members[1:]], [])) == []


@pytest.mark.parametrize(
    ("snapshots", "fields", "is_found"),
    [
        ([], {}, True),
        (snapshot(0, 400), {}, True),
        (snapshot(0, 600), {}, False),
        (snapshot(0, 600, is_complete=False), {}, True),
        (snapshot(0, 600, is_valid=False), {}, True),
        (snapshot(1, 600), {}, True),
        ([], {"is_backup": True}, False),
        ([], {"has_recording_log": False}, False),
    ],
)
def test_a_log_without_begin_needs_a_snapshot(
    snapshots: list[SnapshotRow], fields: dict[str, Any], is_found: bool
) -> None:
    text = "fail: member 0: its log begins at 500, and it has no whole snapshot there or behind: what was before is "
    found = texts(check_members([member_of(0, begin=500, **fields), member_of(1)], snapshots))
    assert found == ([f"{text}lost here"] if is_found else [])


def test_members_of_two_clusters_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    members = [member_of(number) for number in range(4)]
    for ids, expected in (
        ((7, 7, None, 7), []),  # one is a copy without a mark file
        ((7, 7, None, 8), ["different cluster ids: 7 by member 0, member 1; 8 by member 3"]),
    ):
        monkeypatch.setattr(Member, "cluster_id", lambda self, ids=ids: ids[self.member_id])
        assert texts(check_members(members, [])) == [f"fail: the members' files name {text}" for text in expected]


def test_a_part_of_a_snapshot_that_is_missing_is_found() -> None:
    members = [member_of(0), member_of(1)]
    every = [*snapshot(0, 100, -1, 0, 1), *snapshot(1, 100, -1, 0, 1)]
    assert texts(_missing(every, members)) == []
    assert texts(_missing(every[:-1], members)) == ["warn: member 1 has no snapshot of service 1 at 100, others have"]
    both = [one for one in every if one.service_id != 0]
    assert texts(_missing(both, members)) == [
        f"warn: member {number} has no snapshot of service 0 at 100, although one was taken there" for number in (0, 1)
    ]


def test_a_snapshot_that_was_deleted_or_not_yet_taken_is_not_missed() -> None:
    first, second = snapshot(0, 100), snapshot(0, 600)
    deleted = [*first, *second, *snapshot(1, 100, is_valid=False, is_complete=False), *snapshot(1, 600)]
    assert texts(_missing(deleted, [member_of(0), member_of(1)])) == []
    behind = [*first, *second, *snapshot(1, 100)]
    for one in (member_of(1, is_running=True), member_of(1, end=500), member_of(1, is_backup=True)):
        assert texts(_missing(behind, [member_of(0), one])) == []
    assert texts(_missing([*first, *second], [member_of(0), member_of(1, begin=500)])) == [
        f"warn: member 1 has no snapshot of {name} at 600, others have"
        for name in ("the consensus module", "service 0")
    ]


def test_a_snapshot_that_a_member_deletes_while_it_is_read_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its recording goes first, and its entry does not count a moment later."""
    entries = [entry(0, 1, entry_type=1, log_position=100, is_valid=False), entry(1, 2, entry_type=1, log_position=600)]
    monkeypatch.setattr(Member, "recording_log", lambda self, mode: entries)
    is_invalid_now = _InvalidNow([member_of(0, is_running=True), member_of(1)])
    asked = [(0, 100), (0, 600), (1, 100), (2, 100), (0, None)]
    assert [is_invalid_now(*one) for one in asked] == [True, False, False, False, False]


def test_a_term_whose_begin_nothing_says_ends_no_audit() -> None:
    unknown = row(0, "log", 0)._replace(leadership_term_id=7, term_base_log_position=None, begin_position=900)
    (text,) = texts(check_terms([*rows(0), unknown], [member_of(0)]))
    assert "term 7 is opened at 900, and its message says that it begins at None" in text


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (None, []),
        (1000, []),
        (800, ["fail: member 0: term 3 ends at 800, and its log continues in it to 1000"]),
    ],
)
def test_the_newest_term_ends_with_the_log(end: int | None, expected: list[str]) -> None:
    found = [one._replace(end_log_position=end) if one[1:3] == ("recording_log", 3) else one for one in rows(0)]
    assert texts(check_terms(found, [member_of(0)])) == expected
