"""The timeline: pictures of logs of all sizes, from none to years, without a session; gaps, leaders, latencies."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from container.pipeline.audit import AuditReport, MemberSummary, TermSummary
from container.pipeline.audit_report import lateness_picture, members_picture
from container.pipeline.findings import Check, Finding
from container.pipeline.pictures import TIME_STEPS, WIDTHS, Picture, Steps, draw
from container.pipeline.report import Report
from container.pipeline.timeline import (
    BIN_COUNT,
    PLACE_COUNT,
    Bin,
    Place,
    RoundTrip,
    Term,
    _activity,
    _binned,
    _leaders,
    _round_trip_text,
    _table_rows,
    find_gaps,
    picture_of,
)

SVG = "{http://www.w3.org/2000/svg}"
SECOND = 1_000_000
BEGIN = 1_700_000_000 * SECOND


def bins(count: int, width: int = SECOND, *, missing: range = range(0)) -> list[Bin]:
    """Intervals with ten messages each, from the beginning to the end of each."""
    return [
        Bin(at, at + width, at, at + width - 1, 96 * (index + 1), 10, 0, 1, 2)
        for index, at in enumerate(range(BEGIN, BEGIN + count * width, width))
        if index not in missing
    ]


def terms(count: int, leaders: int = 2, length: int = SECOND) -> list[Term]:
    return [
        Term(number, number % leaders, BEGIN + number * length, BEGIN + (number + 1) * length - 1, 10)
        for number in range(count)
    ]


def drawn(picture: Picture) -> tuple[list[str], int]:
    """Texts of the narrow drawing, and the length of both."""
    both = [draw(picture, width) for width in WIDTHS.values()]
    texts = [element.text or "" for element in ElementTree.fromstring(both[-1]).iter(f"{SVG}text")]
    return texts, sum(map(len, both))


def lanes(picture: Picture) -> dict[str, int]:
    return {lane.name: len(lane.bars) for lane in picture.lanes}


def test_a_log_of_one_message_has_a_picture() -> None:
    one = [Bin(BEGIN, BEGIN + SECOND, BEGIN, BEGIN, 96, 0, 0, 0, 0)]
    first = [Term(0, 2, BEGIN, BEGIN, 0)]
    picture = picture_of(one, first, [])
    assert lanes(picture) == {"Member 2": 1}
    texts, _ = drawn(picture)
    assert "Member 2" in texts
    assert "22:13:20.000" in texts
    assert find_gaps(one) == []
    assert _activity(one) == "The log has 0 messages, at 2023-11-14 22:13:20.000 UTC."
    assert _leaders(first, 1) == "1 term, led by member 2: the leader did not change."


def test_a_member_that_never_led_has_a_lane_and_an_unknown_leader_too() -> None:
    some = [*terms(3), Term(3, None, BEGIN + 3 * SECOND, BEGIN + 4 * SECOND, 1)]
    assert lanes(picture_of(bins(4), some, [0, 1, 2])) == {
        "Member 0": 2,
        "Member 1": 1,
        "Member 2": 0,
        "Leader not known": 1,
    }


@pytest.mark.parametrize("count", [100, 2_000])
def test_many_terms_are_few_bars_under_a_megabyte(count: int) -> None:
    length = BIN_COUNT * SECOND // count
    some = terms(count, 3, length)
    snapshots = [Place(96 * n, one.began, f"snapshot {n}") for n, one in enumerate(some)]
    picture = picture_of(
        bins(BIN_COUNT), some, [0, 1, 2], snapshots=snapshots, lateness=[(BEGIN, 1, 9)] * 120, description="many"
    )
    _, size = drawn(picture)
    assert size < 500_000
    assert _leaders(some, count).startswith(
        f"{count:,} terms, led by members 0, 1 and 2: the leader changed {count - 1:,} "
    )
    assert _leaders(some, 10_000).startswith(f"{count:,} of 10,000 terms, led by members 0, 1 and 2")


def test_a_page_of_any_log_is_below_a_megabyte(tmp_path: Path) -> None:
    """Each part at its bound: terms, snapshots, intervals, and the rows of six tables."""
    some = terms(PLACE_COUNT, 3, BIN_COUNT * SECOND // PLACE_COUNT)
    snapshots = [Place(96 * n, one.began, f"snapshot at log position {n:,}") for n, one in enumerate(some)]
    latencies = [(one.begin + SECOND / 2, 1.0, 9.0) for one in bins(BIN_COUNT + 1)]
    page = Report("Longest")
    page.picture(
        picture_of(bins(BIN_COUNT + 1), some, [0, 1, 2], snapshots=snapshots, lateness=latencies, round_trips=latencies)
    )
    page.details("table", ["column"] * 9, _table_rows(bins(BIN_COUNT + 1), latencies, latencies))
    for _ in range(6):
        page.table(["column"] * 11, [["2026-11-28 05:49:20.457"] * 11] * 1_000, total=10**8)
    path = page.write(tmp_path / "page.html")
    assert path.stat().st_size < 2**20
    assert "99,999,800 more rows are not shown" in path.read_text(encoding="utf-8")


def test_gaps_longer_than_two_intervals_are_found_with_their_ends() -> None:
    (gap,) = find_gaps(bins(20, missing=range(5, 9)))
    assert (gap.begin, gap.end, gap.label) == (BEGIN + 5 * SECOND - 1, BEGIN + 9 * SECOND, "4 s")
    assert gap.text == "no message for 4 s: 2023-11-14 22:13:24.999 to 22:13:29.000 UTC"
    assert find_gaps(bins(20, missing=range(5, 6))) == []
    assert len(find_gaps(bins(100)[::4])) == 24
    assert find_gaps([]) == []


def test_round_trips_are_measured_by_interval_and_nothing_is_made_up() -> None:
    some = [RoundTrip(BEGIN + at, micros) for at, micros in ((10, 3000), (20, 1000), (30, 2000), (9 * SECOND, 70_000))]
    binned = _binned(some, SECOND)
    assert binned == [(BEGIN + SECOND // 2, 2.0, 3.0), (BEGIN + 9 * SECOND + SECOND // 2, 70.0, 70.0)]
    rows = _table_rows(bins(2), [], binned)
    assert [row[1:] for row in rows] == [
        (10, 0, 1, 2, None, None, 2.0, 3.0),
        (10, 0, 1, 2, None, None, None, None),
        (0, 0, 0, None, None, None, 70.0, 70.0),
    ]
    assert "median 2.5 ms, 99 % within 70 ms, at most 70 ms, of 4 answered requests" in _round_trip_text(some)
    assert _round_trip_text([]) == (
        "The waiting times of clients are not known: a log has no times of requests and answers."
    )
    assert "Round trip (ms)" not in drawn(picture_of(bins(2), terms(1), []))[0]


def test_each_length_of_a_log_has_a_round_interval() -> None:
    for span in (0, 1, 119_999, 3600 * SECOND, 365 * 86_400 * SECOND, 315_537_897_599 * SECOND):
        assert any(step * BIN_COUNT > span for step in TIME_STEPS)
    assert list(TIME_STEPS) == sorted(TIME_STEPS)


def test_an_audit_has_a_lane_for_each_member_with_its_terms_and_findings() -> None:
    findings = [
        Finding(state="fail", text="<script>", member_id=1, log_position=500),
        Finding(state="warn", text="of all", log_position=700),
        Finding(state="warn", text="without a place", member_id=1),
    ]
    members = [
        MemberSummary(f"member {number}", number, "", "", 0, start, 1000, committed, [600])
        for number, start, committed in ((0, 0, 1000), (1, 0, 800), (2, 300, 1000))
    ]
    report = AuditReport(
        verdict="fail",
        members=members,
        ticks_per_second=1000,
        checks=[Check("log", "", findings, 3, "fail")],
        terms=[TermSummary(0, 0, 2, 1_700_000_000_000), TermSummary(1, 400, None, None)],
        open_sessions=[],
        timer_lateness=[],
    )
    picture = members_picture(report)
    assert [(lane.name, len(lane.bars), [mark.style for mark in lane.marks]) for lane in picture.lanes] == [
        ("Leadership terms", 2, []),
        ("Member 0", 2, ["snapshot"]),
        ("Member 1", 3, ["snapshot", "finding"]),
        ("Member 2", 2, ["snapshot"]),
        ("Findings of no one member", 0, ["finding"]),
    ]
    assert [(bar.begin, bar.end, bar.style) for bar in picture.lanes[2].bars] == [
        (0, 400, "first"),
        (400, 800, "second"),
        (800, 1000, "faint"),
    ]
    text = draw(picture, WIDTHS["wide"])
    assert text.count("fail: &lt;script&gt;") == 1
    assert "term 0, led by member 2" in text


@pytest.mark.parametrize(
    ("late_ms", "counts"),
    [
        ([0.0], [1]),
        ([0.0, 0.0, 1.0], [2, 1]),
        ([-3.0, 2.0], [1, 0, 1]),
        ([1.0, 39_000.0], [1, *[0] * 38, 1]),
    ],
)
def test_lateness_is_counted_in_no_less_than_a_tick(late_ms: list[float], counts: list[int]) -> None:
    picture = lateness_picture(late_ms, 1.0)
    (steps,) = picture.charts[0].series
    assert isinstance(steps, Steps)
    assert [count for _, _, count in steps.points] == counts
    assert steps.points[-1][1] == picture.axis.end
