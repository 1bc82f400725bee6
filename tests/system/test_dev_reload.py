"""``aeron-cluster dev --reload``: a changed service takes over the log, and the command prints what differs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from container.node.dev_reload import Sources
from container.testing.processes.endpoints import PortReservation
from container.testing.processes.process import Process
from tests.documents import ROOT

HOST, LIMIT_S = "127.0.0.1", 90
SERVICE = """
import container


class Counter(container.ClusteredService):
    def on_start(self, cluster, snapshot_image):
        self.total = 0

    def on_take_snapshot(self, snapshot_publication):
        container.write_snapshot(snapshot_publication, self.total)

    def on_session_message(self, session, timestamp, buffer, header):
        self.total += {step}
        session.send(b"%d" % self.total)
"""


class Developer:
    """Edits the service beside a node, and sends to it."""

    def __init__(self, directory: Path, port: int, *arguments: str) -> None:
        self.directory, self.port = directory, port
        self.environment = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(directory)])}
        self.write("1")
        command = [sys.executable, "-m", "container", "dev", "edited:Counter", "--reload", "--host", HOST]
        command += ["--port", str(port), *arguments]
        self.process = Process("dev", command, directory=directory, environment=self.environment)

    def write(self, step: str, first: str = "") -> None:
        new = self.directory / "edited.new"
        new.write_text(first + SERVICE.replace("{step}", step))
        new.replace(self.directory / "edited.py")

    def reloaded(self, text: str) -> str:
        """The lines of reloads, once one has the text."""

        def said() -> str | None:
            lines = [line for line in self.process.errors().splitlines() if line.startswith("reload: ")]
            return "\n".join(lines) if any(text in line for line in lines) else None

        return self.process.wait_until(said, LIMIT_S, f"a reload that says {text!r}")

    def await_ready(self, count: int) -> None:
        self.process.wait_until(
            lambda: self.process.errors().count("the node is ready in ") >= count, LIMIT_S, f"start {count} of the node"
        )

    def send(self) -> str:
        command = [sys.executable, "-m", "container", "client", "--ingress", f"0={HOST}:{self.port}"]
        command += ["--embedded-driver", "send", "x"]
        sent = subprocess.run(
            command, env=self.environment, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=True
        )
        return sent.stdout.strip()


@pytest.fixture
def developer(tmp_path: Path) -> Iterator[Developer]:
    with closing(PortReservation(HOST)) as ports:
        developer = Developer(tmp_path, ports.take_row(5), "--dir", str(tmp_path / "node"))
        with developer.process as process:
            process.start()
            developer.await_ready(1)
            yield developer
            assert process.stop(LIMIT_S) == 0, process.tail()


def test_changed_code_takes_over_the_log_and_its_differences_are_said(developer: Developer) -> None:
    assert [developer.send(), developer.send()] == ["1", "2"]
    developer.write("10")
    developer.await_ready(2)
    said = developer.reloaded("the state at log position")
    assert "EGRESS CHANGED of session 1; payload: b'1' of the old code, b'10' of the new code" in said
    assert "EGRESS CHANGED of session 2; payload: b'2' of the old code, b'20' of the new code" in said
    assert developer.send() == "30"
    developer.write("5 + 5")
    developer.await_ready(3)
    developer.reloaded("edited:Counter: the new code does what the old code did, up to log position ")
    assert developer.send() == "40"


def test_what_clients_send_during_a_reload_is_no_difference(developer: Developer) -> None:
    assert developer.send() == "1"
    slow_import = "import time\ntime.sleep(5)\n"  # so the log grows before the new code's replay
    developer.write("1", slow_import)
    while "reload: " not in developer.process.errors():
        with suppress(subprocess.CalledProcessError):  # the node starts again
            developer.send()
    developer.reloaded("edited:Counter: the new code does what the old code did, up to log position ")
    developer.await_ready(2)


@pytest.mark.parametrize(
    ("step", "why"), [("(1", "SyntaxError: '(' was never closed"), ("'1'", "fails on the log: TypeError: unsupported")]
)
def test_code_that_does_not_work_leaves_the_old_node_running(developer: Developer, step: str, why: str) -> None:
    assert developer.send() == "1"
    developer.write(step)
    said = developer.reloaded(why)
    assert "the new code is not taken, and the old code keeps running" in said
    assert developer.send() == "2"


def test_a_node_runs_a_copy_of_its_code_that_no_later_edit_reaches(developer: Developer) -> None:
    developer.write("open(__file__).read().count('x' * 9)  # xxxxxxxxx")
    developer.await_ready(2)
    assert developer.send() == "1"
    developer.write("(1  # xxxxxxxxx xxxxxxxxx")
    developer.reloaded("is not taken")
    assert developer.send() == "2"  # 3 where the node reads what was not taken


def test_a_node_that_its_service_ends_starts_again_with_changed_code(developer: Developer) -> None:
    developer.write("(1 if self.total < 1 else 1 // 0)")
    developer.await_ready(2)
    assert developer.send() == "1"
    with pytest.raises((subprocess.CalledProcessError, subprocess.TimeoutExpired)):
        developer.send()
    developer.reloaded("the node ended with code ")
    developer.write("1")
    developer.await_ready(3)
    assert developer.send() == "3"


def test_only_what_a_service_imports_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    texts = {"watched_service": "import watched_helper, os\n", "watched_helper": "from watched_rules import limit\n"}
    for name, text in {**texts, "watched_rules": "limit = 1\n", "a_client": "import watched_service\n"}.items():
        (tmp_path / f"{name}.py").write_text(text)
    sources = Sources(["watched_service:Service"])
    known = {"watched_service.py", "watched_helper.py", "watched_rules.py"}
    assert {path.name for path in sources.files()} == known
    (tmp_path / "watched_service.py").write_text("import watched_helper, (\n")  # being written
    assert {path.name for path in sources.files()} == known
    (tmp_path / "watched_service.py").write_text("import a_client\n")
    assert {path.name for path in sources.files()} == {"watched_service.py", "a_client.py"}


def test_several_members_are_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "container", "dev", "edited:Counter", "--reload", "--members", "3"]
    ended = subprocess.run(
        command, env={"PYTHONPATH": str(ROOT / "src")}, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert "--reload: works with one member, and --members is 3" in ended.stderr
