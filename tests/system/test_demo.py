"""The demo as a person runs it: to its end, and interrupted in the middle."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from container.testing.processes.process import is_alive, wait_until
from tests.limits import LIMIT_S

ROOT = Path(__file__).parents[2]
DEMO = [sys.executable, "-m", "examples.demo"]


def assert_nothing_is_left(output: str) -> None:
    """Every process that the demo named has ended, and its directory is gone."""
    directory = re.search(r"all files lie in (\S+),", output)
    assert directory is not None, output
    assert not Path(directory[1]).exists()
    pids = [int(pid) for pid in re.findall(r"started .* pid (\d+)", output)]
    assert pids, output
    assert [pid for pid in pids if is_alive(pid)] == []


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param([], marks=pytest.mark.smoke, id="native"),
        pytest.param(["--java"], id="java", marks=pytest.mark.slow),
    ],
)
def test_the_demo_ends_with_demo_ok_and_leaves_nothing(arguments: list[str], tmp_path: Path) -> None:
    command, environment = [*DEMO, *arguments], dict(os.environ)
    if not arguments:  # no Java is there to be found
        environment |= {"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "demo ok"
    assert "it is the same: nothing was lost" in done.stdout
    assert "the snapshots of all three members are equal" in done.stdout
    assert_nothing_is_left(done.stdout)


@pytest.mark.parametrize(
    ("number", "line"),
    [
        (signal.SIGINT, "started member 0"),
        (signal.SIGINT, "killed pid"),
        (signal.SIGTERM, "took a snapshot"),
    ],
)
def test_an_interrupted_demo_leaves_nothing(number: signal.Signals, line: str, tmp_path: Path) -> None:
    path = tmp_path / "output"
    with path.open("wb") as output:
        demo = subprocess.Popen(DEMO, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        wait_until(lambda: line in path.read_text(), LIMIT_S, f"the demo to say {line!r}")
        demo.send_signal(number)
        code = demo.wait(LIMIT_S)
    finally:
        demo.kill()
        demo.wait(LIMIT_S)
    assert code == (130 if number == signal.SIGINT else 143), path.read_text()
    assert_nothing_is_left(path.read_text())
