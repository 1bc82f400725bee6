"""``aeron-cluster dev --reload``: a changed service takes over the log, and the command prints what differs."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import cast

import pytest

from container.common.main_program import Ending
from container.errors import ConfigurationError, ContainerError
from container.node.cluster_node import aeron_dir_of
from container.node.dev_reload import (
    _NEW_LIMIT_S,
    Reloader,
    Sources,
    _EndAskedError,
    _new_copies,
    _remove_copies_of_the_dead,
)
from container.testing.processes.endpoints import PortReservation
from container.testing.processes.process import Process, is_alive, wait_until
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

    def children(self) -> list[int]:
        """The processes that the command has started and that run."""
        pid = self.process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    @staticmethod
    def copies(children: list[int]) -> Path:
        """The directory with the copies of the code, by the search path of a child."""
        variables = Path(f"/proc/{children[0]}/environ").read_bytes().decode().split("\0")
        first = next(each for each in variables if each.startswith("PYTHONPATH=")).partition("=")[2].split(":")[0]
        return Path(first).parent

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
    assert re.search(
        r"the state at log position \d+ differs: int: 2 of the old code, 20 of the new code$", said, re.M
    ), said
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
    ("step", "why"),
    [
        ("(1", r"SyntaxError: '\(' was never closed \(edited.py, line 13\)"),
        (
            "'1'",
            r'fails on the log at log position \d+: TypeError: unsupported .*\(File "edited.py", line 13, in C',
        ),
    ],
)
def test_code_that_does_not_work_leaves_the_old_node_running(developer: Developer, step: str, why: str) -> None:
    assert developer.send() == "1"
    developer.write(step)
    said = developer.reloaded("the new code is not taken, and the old code keeps running")
    assert re.search(why, said), said
    assert developer.send() == "2"


def test_a_file_that_is_missing_for_a_while_leaves_the_old_node_running(developer: Developer) -> None:
    (developer.directory / "edited.py").unlink()
    said = developer.reloaded("edited.py is missing")
    assert "the new code is not taken, and the old code keeps running" in said
    assert developer.send() == "1"
    developer.write("1")
    developer.await_ready(2)
    assert developer.send() == "2"


def test_a_signal_ends_the_command_while_new_code_never_returns(developer: Developer) -> None:
    developer.write("1", "while True:\n    pass\n")
    developer.reloaded("waiting for edited:Counter: the new code to run over the log up to position ")
    children = developer.children()
    assert len(children) == 2
    assert developer.process.stop(_NEW_LIMIT_S * 0.7) == 0
    assert not any(map(is_alive, children))


def test_a_killed_command_leaves_no_process_behind(tmp_path: Path) -> None:
    with closing(PortReservation(HOST)) as ports:
        developer = Developer(tmp_path, ports.take_row(5), "--dir", str(tmp_path / "node"))
        with developer.process as process:
            process.start()
            developer.await_ready(1)
            developer.write("1", "while True:\n    pass\n")
            developer.reloaded("waiting for edited:Counter")
            children = developer.children()
            assert len(children) == 2
            copies = developer.copies(children)
            os.kill(process.pid, signal.SIGKILL)  # it alone
            try:
                wait_until(lambda: not any(map(is_alive, children)), LIMIT_S, "the children to end")
            finally:
                for child in filter(is_alive, children):
                    os.kill(child, signal.SIGKILL)
                shutil.rmtree(copies)
                shutil.rmtree(aeron_dir_of(tmp_path / "node"), ignore_errors=True)


def test_code_that_cannot_load_the_latest_snapshot_is_not_taken(developer: Developer) -> None:
    assert developer.send() == "1"
    command = [sys.executable, "-m", "container", "snapshot", str(developer.directory / "node" / "cluster")]
    subprocess.run(command, env=developer.environment, cwd=ROOT, capture_output=True, timeout=LIMIT_S, check=True)
    start = "        self.total = 0\n"
    check = "        if snapshot_image is not None:\n            raise ValueError('another form')\n"
    new = developer.directory / "edited.new"
    new.write_text(SERVICE.replace("{step}", "1").replace(start, start + check))
    new.replace(developer.directory / "edited.py")
    said = developer.reloaded("the new code is not taken, and the old code keeps running")
    assert "edited:Counter does not work from the latest snapshot, of position " in said
    assert re.search(r"at log position \d+: ValueError: another form \(File \"edited.py\", line 9, in Counter", said), (
        said
    )
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
    said = developer.reloaded("the node ended with code ")
    assert "no node runs: waiting for the next change of edited.py" in said
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


def test_hidden_files_and_dangling_links_are_neither_watched_nor_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "watched_package"
    (package / ".hidden").mkdir(parents=True)
    for name in ("__init__.py", "rules.py", ".saved.py", ".hidden/x.py", "data.txt"):
        (package / name).touch()
    (package / ".#rules.py").symlink_to("somebody@somewhere.1:2")
    (package / "gone.py").symlink_to("no_such_file.py")
    sources = Sources(["watched_package.rules:Service"])
    assert {path.name for path in sources.files()} == {"__init__.py", "rules.py"}
    sources.copy_to(tmp_path / "copy")
    copied = {path.name for path in (tmp_path / "copy" / "watched_package").iterdir()}
    assert copied == {"__init__.py", "rules.py", "data.txt"}


def test_a_module_that_is_a_link_is_copied_under_the_name_by_which_it_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("lib", "own", "copy"):
        (tmp_path / name).mkdir()
    (tmp_path / "lib" / "impl.py").write_text("import linked_helper\n")
    (tmp_path / "own" / "linked_helper.py").touch()
    (tmp_path / "own" / "linked_service.py").symlink_to("../lib/impl.py")
    monkeypatch.chdir(tmp_path / "own")
    monkeypatch.syspath_prepend(tmp_path / "own")
    Sources(["linked_service:Service"]).copy_to(tmp_path / "copy")
    copy = tmp_path / "copy" / "linked_service.py"
    assert copy.read_text() == "import linked_helper\n"
    assert not copy.is_symlink()
    assert (tmp_path / "copy" / "linked_helper.py").exists()


class Interrupts:
    """Signals as a reloader waits for them: one comes after the given number of waits."""

    def __init__(self, after: int) -> None:
        self.left = after
        self._never = threading.Event()

    def wait_for(self, seconds: float) -> signal.Signals | None:
        self.left -= 1
        self._never.wait(seconds)
        return None if self.left >= 0 else signal.SIGTERM


@pytest.mark.parametrize(
    ("after", "limit_s", "error", "message"),
    [
        (10_000, 1.0, ContainerError, "waited 1 s for the new code: does it wait for something, or loop"),
        (1, 1000.0, _EndAskedError, "^$"),
    ],
)
def test_code_that_never_returns_is_ended_at_a_limit_and_by_a_signal(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    after: int,
    limit_s: float,
    error: type[Exception],
    message: str,
) -> None:
    (tmp_path / "endless_service.py").write_text("import time\ntime.sleep(1000)\n")
    monkeypatch.syspath_prepend(tmp_path)
    options = argparse.Namespace(services=["endless_service:Service"])
    reloader = Reloader(options, tmp_path, cast("Ending", Interrupts(after)))
    monkeypatch.setattr(reloader, "_copies", tmp_path)
    with pytest.raises(error, match=message):
        reloader._check(tmp_path, options.services, "the new code", limit_s)


def test_a_start_without_a_file_leaves_no_copies_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = tmp_path / "vanishing_service.py"
    service.touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    options = argparse.Namespace(services=["vanishing_service:Service"])
    reloader = Reloader(options, tmp_path, cast("Ending", Interrupts(1)))
    service.unlink()
    with pytest.raises(ConfigurationError, match="--reload: .*vanishing_service.py is missing"), reloader:
        pass
    assert not list(tmp_path.glob("aeron-cluster-dev-*"))


HOLD = """
import signal
from container.node.dev_reload import _new_copies
copies, lock = _new_copies()
(copies / "code.py").touch()
print(copies, flush=True)
signal.pause()
"""


def test_a_start_removes_the_copies_of_the_killed_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {"PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", HOLD]
    holders = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    try:
        left, in_use, foreign = (Path(str(each.stdout and each.stdout.readline()).strip()) for each in holders)
        for each in (holders[0], holders[2]):
            each.kill()
            each.wait(LIMIT_S)
        unsigned = tmp_path / "aeron-cluster-dev-code-unsigned"
        unsigned.mkdir()
        target = tmp_path / "target"
        shutil.copytree(left, target)
        link = tmp_path / "aeron-cluster-dev-code-link"
        link.symlink_to(target)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        lstat = Path.lstat

        def status(path: Path) -> os.stat_result:
            values = list(lstat(path))
            if path == foreign:
                values[4] = os.geteuid() + 1
            return os.stat_result(values)

        monkeypatch.setattr(Path, "lstat", status)
        _remove_copies_of_the_dead()
        assert {each for each in (left, in_use, foreign, unsigned, link, target) if each.exists()} == {
            in_use,
            foreign,
            unsigned,
            link,
            target,
        }
    finally:
        for each in holders:
            each.kill()
            each.communicate()


def test_a_start_removes_copies_before_it_makes_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = tmp_path / "gone_service.py"
    service.touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    copies, lock = _new_copies()
    lock.disown()
    reloader = Reloader(argparse.Namespace(services=["gone_service:S"]), tmp_path, cast("Ending", Interrupts(1)))
    service.unlink()
    with pytest.raises(ConfigurationError), reloader:
        pass
    assert not copies.exists()


def test_several_members_are_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "container", "dev", "edited:Counter", "--reload", "--members", "3"]
    ended = subprocess.run(
        command, env={"PYTHONPATH": str(ROOT / "src")}, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert "--reload: works with one member, and --members is 3" in ended.stderr
