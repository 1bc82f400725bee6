"""The demo of the pipeline as a person runs it: to its end with a report, and interrupted in the middle."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from container.pipeline.audit import AuditReport
from container.testing.processes.process import is_alive, wait_until

ROOT = Path(__file__).parents[2]
DEMO = [sys.executable, "-m", "examples.pipeline_demo", "--out"]
LIMIT_S = 600

pytestmark = [pytest.mark.slow, pytest.mark.timeout(LIMIT_S + 60)]


def assert_nothing_is_left(output: str) -> None:
    """Every process that the demo named has ended, Spark a moment after it, and its temporary directory is gone."""
    directory = re.search(r"all files lie in (\S+),", output)
    assert directory is not None, output
    assert not Path(directory[1]).exists()
    pids = [int(pid) for pids in re.findall(r" pids (\[.*\])$", output, re.M) for pid in re.findall(r"\d+", pids)]
    assert len(pids) >= 6, output
    wait_until(lambda: not any(map(is_alive, pids)), LIMIT_S, f"all of {pids} to end")


def test_the_demo_ends_with_a_report_and_leaves_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = subprocess.run([*DEMO, str(out)], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "pipeline demo ok"
    assert "each message is in the table exactly once" in done.stdout
    assert_nothing_is_left(done.stdout)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.index("<svg ") < page.index("<h2>Events</h2>")
    assert "Round trip, as the clients measured it: median" in page
    assert (out / "timeline.svg").stat().st_size < 100_000
    assert "<script" not in page
    (flipped,) = re.findall(r"flipped one byte at log position (\d+)", done.stdout)
    report = msgspec.json.decode((out / "audit.json").read_bytes(), type=AuditReport)
    found = [(check.name, finding.log_position) for check in report.checks for finding in check.findings]
    assert found == [("log", int(flipped))]


@pytest.mark.parametrize("line", ["pids", "the traders bid", "batch 0", "killed member"])
def test_an_interrupted_demo_leaves_nothing(line: str, tmp_path: Path) -> None:
    path = tmp_path / "output"
    with path.open("wb") as output:
        command = [*DEMO, str(tmp_path / "out")]
        demo = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        wait_until(lambda: line in path.read_text(), LIMIT_S, f"the demo to say {line!r}")
        demo.send_signal(signal.SIGINT)
        code = demo.wait(LIMIT_S)
    finally:
        demo.kill()
        demo.wait(LIMIT_S)
    assert code == 130, path.read_text()
    assert_nothing_is_left(path.read_text())
