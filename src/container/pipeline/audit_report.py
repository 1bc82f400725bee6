"""The report of an audit: HTML for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from container.pipeline.audit import AuditReport
from container.pipeline.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TERM_COLOURS = ("#dbe9f6", "#fde8d0")
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
    """Add checks, members and plots to a page."""
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
    has_lateness = bool(report.timer_lateness)
    with page.plots(3 if has_lateness else 2) as plots:
        _plot_members(plots[0], report)
        _plot_sessions(plots[1], report.open_sessions)
        if has_lateness:
            _plot_lateness(plots[2], report)


def _plot_members(axes: Axes, report: AuditReport) -> None:
    """A bar for each member over the log: recorded, committed, snapshots, findings; terms as background."""
    end = max(member.recorded_position for member in report.members)
    bases = [term.term_base_log_position for term in report.terms]
    for index, (begin, until) in enumerate(zip(bases, [*bases[1:], end], strict=True)):
        axes.axvspan(begin, until, color=_TERM_COLOURS[index % 2], zorder=0)
    for row, member in enumerate(report.members):
        recorded = (member.start_position, member.recorded_position - member.start_position)
        committed = (member.start_position, member.committed_position - member.start_position)
        axes.broken_barh([recorded], (row - 0.15, 0.3), facecolors="#b8c4ce", zorder=2)
        axes.broken_barh([committed], (row - 0.15, 0.3), facecolors="#4878a8", zorder=3)
        axes.plot(member.snapshot_positions, [row] * len(member.snapshot_positions), "D", color="#137333", zorder=4)
        at = [
            found.log_position
            for one in report.checks
            for found in one.findings
            if found.member_id == member.member_id and found.log_position is not None
        ]
        axes.plot(at, [row] * len(at), "x", color="#c5221f", markersize=9, markeredgewidth=2, zorder=5)
    axes.set_yticks(range(len(report.members)), [member.name for member in report.members])
    axes.set_ylim(-0.6, len(report.members) - 0.4)
    axes.set_xlabel("log position")
    axes.set_title("Logs: recorded (grey), committed (blue), snapshots (green), findings (red); terms shaded")


def _plot_sessions(axes: Axes, points: Sequence[tuple[int, int]]) -> None:
    axes.step([position for position, _ in points], [count for _, count in points], where="post", color="#4878a8")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("log position")
    axes.set_title("Open sessions")


def _plot_lateness(axes: Axes, report: AuditReport) -> None:
    late_ms = [1000 * ticks / report.ticks_per_second for ticks in report.timer_lateness]
    axes.hist(late_ms, bins=min(50, max(5, len(late_ms) // 4)), color="#4878a8")
    axes.set_xlabel("milliseconds of cluster time after the deadline")
    axes.set_title("Lateness of timers that a snapshot has")
