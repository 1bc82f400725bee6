"""The report of an audit: HTML for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from container.common.values import counted
from container.pipeline.audit import AuditReport, MemberSummary
from container.pipeline.pictures import Axis, Bar, Chart, Lane, Mark, Picture, Steps, Style, duration_text, time_text
from container.pipeline.report import Report

_LATENESS_BIN_COUNT = 40
_VERDICTS = {
    "pass": "The members have the same history.",
    "warn": "The members have the same history, with something to look at.",
    "fail": "The members do not have the same history, or it is not one that can be.",
}


def write_audit(report: AuditReport, path: Path) -> tuple[Path, Path]:
    """Write a report as HTML to ``path``, and as JSON beside it; return both paths."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = path.with_suffix(".json")
    data.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    page = Report("Audit of a cluster")
    page.text(f"{report.verdict}: {_VERDICTS[report.verdict]}", report.verdict)
    add_audit(page, report)
    return page.write(path), data


def add_audit(page: Report, report: AuditReport) -> None:
    """Add pictures, checks and members to a page."""
    page.picture(members_picture(report))
    page.heading("Checks")
    page.table(("check", "state", "what was looked at"), [(one.name, one.state, one.summary) for one in report.checks])
    for one in report.checks:
        if one.findings:
            page.heading(f"Findings: {one.name}")
            rows = [(found.state, found.member_id, found.log_position, found.text) for found in one.findings]
            page.table(("state", "member", "log position", "what"), rows, total=one.finding_count)
    page.heading("Members")
    page.table(
        ("member", "log from", "recorded to", "committed to", "snapshots at", "archive"),
        [
            (
                member.name,
                member.start_position,
                member.recorded_position,
                member.committed_position,
                ", ".join(map(str, member.snapshot_positions)),
                member.archive_dir,
            )
            for member in report.members
        ],
    )
    if report.timer_lateness:
        page.heading("Timer lateness")
        late_ms = sorted(1000 * ticks / report.ticks_per_second for ticks in report.timer_lateness)
        page.text(
            f"A snapshot has {counted(len(late_ms), 'timer')}. Half of them expired within "
            f"{duration_text(1000 * late_ms[len(late_ms) // 2])} of the deadline, and all within "
            f"{duration_text(1000 * late_ms[-1])}."
        )
        page.picture(lateness_picture(late_ms, 1000 / report.ticks_per_second))


def members_picture(report: AuditReport) -> Picture:
    """A lane for each member over the log: recorded, committed, snapshots and findings; above them the terms."""
    begin = min(member.start_position for member in report.members)
    end = max(member.recorded_position for member in report.members)
    marks = _marks(report)
    terms = _terms(report, end)
    lanes = [Lane("Leadership terms", terms)]
    lanes += [_lane(member, terms, marks.pop(member.member_id, [])) for member in report.members]
    if general := [mark for found in marks.values() for mark in found]:
        lanes.append(Lane("Findings of no one member", (), general))
    legend: list[tuple[Style, str]] = [("first", "committed log of a term"), ("second", "of the next term")]
    if any(member.recorded_position > member.committed_position for member in report.members):
        legend.append(("faint", "recorded, not committed"))
    legend += [("snapshot", "snapshot"), ("finding", "finding")]
    states = ", ".join(f"{one.name}: {one.state}" for one in report.checks)
    description = (
        f"{counted(len(report.terms), 'term')} and {counted(len(report.members), 'member')} "
        f"over log positions {begin:,} to {end:,}. Checks: {states}. The tables below have the same."
    )
    places = report.open_sessions
    ends = [position for position, _ in places[1:]] + [end]
    sessions = [(at, until, open_count) for (at, open_count), until in zip(places, ends, strict=True)] if places else []
    charts = [Chart("Open sessions", [Steps("open", sessions)])]
    return Picture(
        "Members over the log",
        description,
        Axis("log position", begin, end, "log position (bytes)"),
        lanes,
        charts,
        legend,
    )


def lateness_picture(late_ms: Sequence[float], tick_ms: float) -> Picture:
    """How many timers expired how late.

    Args:
        late_ms: milliseconds, sorted, at least one.
        tick_ms: the unit of cluster time in milliseconds: no interval is shorter.
    """
    width = max(late_ms[-1] / (_LATENESS_BIN_COUNT - 1), tick_ms)
    counts = [0] * (int(max(late_ms[-1], 0.0) / width) + 1)
    for late in late_ms:
        counts[min(int(max(late, 0.0) / width), len(counts) - 1)] += 1
    points = [(index * width, (index + 1) * width, float(number)) for index, number in enumerate(counts)]
    axis = Axis("number", 0, width * len(counts), "milliseconds of cluster time after the deadline")
    description = f"{counted(len(late_ms), 'timer')}, all within {duration_text(1000 * late_ms[-1])} of the deadline."
    return Picture("Timer lateness", description, axis, charts=[Chart("Timers", [Steps("timers", points)])])


def _terms(report: AuditReport, end: int) -> list[Bar]:
    bars = []
    places = [*(term.term_base_log_position for term in report.terms), end]
    for index, (term, (begin, until)) in enumerate(zip(report.terms, pairwise(places), strict=True)):
        leader = "leader not known" if term.leader_member_id is None else f"led by member {term.leader_member_id}"
        text = f"term {term.leadership_term_id}, {leader}, log positions {begin:,} to {until:,}"
        if term.timestamp is not None:
            text += f", from {time_text(term.timestamp * 1_000_000 // report.ticks_per_second)} UTC"
        label = f"term {term.leadership_term_id}, {leader}"
        bars.append(Bar(begin, until, label, text, "first" if index % 2 == 0 else "second"))
    return bars


def _lane(member: MemberSummary, terms: Sequence[Bar], findings: Sequence[Mark]) -> Lane:
    start, committed, recorded = member.start_position, member.committed_position, member.recorded_position
    text = f"committed, log positions {start:,} to {committed:,}"
    bars = [
        Bar(max(term.begin, start), min(term.end, committed), "", f"{text}; {term.label}", term.style)
        for term in terms
        if max(term.begin, start) < min(term.end, committed)
    ]
    if not bars and committed > start:
        bars.append(Bar(start, committed, "", text))
    if recorded > committed:
        text = f"recorded and not known to be committed, log positions {committed:,} to {recorded:,}"
        bars.append(Bar(committed, recorded, "", text, "faint"))
    marks = [Mark(at, f"snapshot at log position {at:,}", "snapshot") for at in member.snapshot_positions]
    return Lane(member.name[:1].upper() + member.name[1:], bars, [*marks, *findings])


def _marks(report: AuditReport) -> dict[int | None, list[Mark]]:
    """Findings with a place, by member."""
    marks: dict[int | None, list[Mark]] = {}
    for one in report.checks:
        for found in one.findings:
            if found.log_position is not None:
                mark = Mark(found.log_position, f"{found.state}: {found.text}", "finding")
                marks.setdefault(found.member_id, []).append(mark)
    return marks
