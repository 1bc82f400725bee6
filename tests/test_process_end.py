"""The end of a process that closes nothing: whatever has a thread ends in order, and the exit code is the program's."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import container
from container.api import ClientSession, CloseReason
from container.common import process_end
from container.common.process_end import Stage, close_at_end
from container.testing.processes.process import wait_until
from tests.limits import LIMIT_S
from tests.services import Counter

HOST = "127.0.0.1"

PROGRAM = """
import asyncio, multiprocessing, os, sys, threading
from pathlib import Path
import container
from container.client import AeronCluster, AsyncSessionPool, SessionPool, AsyncAeronCluster, ReconnectingClient
from tests.services import Counter

class Service(Counter):
    def on_terminate(self, cluster):
        print("terminated", flush=True)

def launch(service=None, **settings):
    node = container.launch_node(service or Service(), host="127.0.0.1", port={port}, **settings)
    print(node.aeron_dir, node.directory, flush=True)
    return node

def channels(node):
    return dict(aeron_dir=node.aeron_dir, ingress_channel="aeron:ipc", egress_channel="aeron:ipc", message_timeout=60.0)

"""


def start(code: str, port: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(port=port) + code],
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[list[str], str]:
    try:
        output, errors = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
        pytest.fail(f"the process has not ended:\n{output}{errors}")
    return output.splitlines(), errors


def run(code: str, port: int) -> tuple[int, list[str], str]:
    """Exit code, lines, standard error. Nothing of the node that the first line names is left."""
    process = start(code, port)
    (directories, *lines), errors = finish(process)
    assert [path for path in directories.split() if Path(path).exists()] == []
    return process.returncode, lines, errors


@pytest.mark.parametrize("mode", ["SHARED", "DEDICATED"])
@pytest.mark.parametrize(
    ("end", "code", "error"), [("", 0, ""), ("sys.exit(3)", 3, ""), ("raise KeyError('mine')", 1, "KeyError: 'mine'\n")]
)
def test_a_program_that_does_not_close_its_node_ends(port: int, mode: str, end: str, code: int, error: str) -> None:
    found, lines, errors = run(f"node = launch(threading_mode={mode!r})\n{end}\n", port)
    assert (found, lines) == (code, ["terminated"]), errors
    assert errors.endswith(error)


def test_a_node_that_nothing_refers_to_is_closed(port: int) -> None:
    assert run("launch()\nimport gc; gc.collect()\n", port) == (0, ["terminated"], "")


def test_the_first_ctrl_c_ends_a_program_that_waits_for_its_node(port: int) -> None:
    process = start("node = launch()\nprint('waits', flush=True)\nnode.join()\n", port)
    assert process.stdout is not None
    directories = process.stdout.readline()
    assert process.stdout.readline() == "waits\n"
    process.send_signal(signal.SIGINT)
    lines, errors = finish(process)
    assert lines == ["terminated"]
    assert errors.endswith("KeyboardInterrupt\n")
    assert process.returncode == -signal.SIGINT
    assert [path for path in directories.split() if Path(path).exists()] == []


FAILING = """
class Failing(Service):
    def on_session_message(self, session, timestamp, buffer, header):
        raise ValueError("as asked")

node = launch(Failing(), threading_mode={mode!r})
client = AeronCluster.connect(**channels(node))
client.send(b"x")
assert node.join(60)
"""


@pytest.mark.parametrize("mode", ["SHARED", "DEDICATED"])
def test_a_program_whose_service_failed_ends_with_its_own_code(port: int, mode: str) -> None:
    code, _lines, errors = run(FAILING.format(mode=mode) + "sys.exit(1)\n", port)
    assert code == 1
    assert "as asked" in errors
    assert "not closed" not in errors


@pytest.mark.parametrize("mode", ["SHARED", "DEDICATED"])
def test_a_node_that_has_failed_closes_what_is_left(port: int, mode: str) -> None:
    code = FAILING.format(mode=mode) + (
        "from container.testing.processes.process import wait_until\n"
        "wait_until(lambda: not any(path.exists() for path in (Path(node.aeron_dir), node.directory)), 60, 'its end')\n"
        "print(repr(node.failure))\n"
        "os._exit(0)\n"
    )
    found, lines, errors = run(code, port)
    assert found == 0, errors
    assert "on_session_message raised ValueError" in lines[-1]


class Closes(Counter):
    """Notes why sessions were closed."""

    def __init__(self) -> None:
        super().__init__()
        self.reasons: list[CloseReason] = []

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        self.reasons.append(close_reason)


def test_clients_end_their_sessions(port: int) -> None:
    code = """
blocking = AeronCluster.connect(**channels)
again = ReconnectingClient.connect(**channels)
while again.state.name != "CONNECTED": again.poll()
pool = SessionPool.connect(**channels)
pool.open_all(2)
async def connect():
    global client, others, sessions
    client = await AsyncAeronCluster.connect(**channels)
    others = AsyncSessionPool.connect(**channels)
    await others.__aenter__()
    sessions = await others.open_all(2)
asyncio.run(connect())
"""
    service = Closes()
    with container.launch_node(service, host=HOST, port=port) as node:
        channels = {
            "aeron_dir": node.aeron_dir,
            "ingress_channel": "aeron:ipc",
            "egress_channel": "aeron:ipc",
            "message_timeout": LIMIT_S,
        }
        process = start(f"channels = {channels!r}\n{code}", port)
        assert finish(process) == ([], "")
        assert process.returncode == 0
        # Each pool has a session of its own beside those that it opened.
        wait_until(lambda: len(service.reasons) == 9, LIMIT_S, "the ends of all sessions")
    assert set(service.reasons) == {CloseReason.CLIENT_ACTION}


def test_parts_without_a_node_and_an_exporter_end(port: int, tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    code = f"""
from container.aeron import MediaDriver
from container.archive import Archive
from container.consensus import ConsensusModule
from container.operate.exporter import Exporter
driver = MediaDriver.launch_embedded()
print(driver.aeron_dir, flush=True)
where = dict(aeron_dir=driver.aeron_dir)
exporter = Exporter([Path({str(tmp_path)!r})], port=0)
end = "127.0.0.1:%d"
control = "127.0.0.1:{port + 4}"
archive = Archive.launch(archive_dir={str(tmp_path / "archive")!r}, control_channel="aeron:udp?endpoint=" + control,
    replication_channel="aeron:udp?endpoint=127.0.0.1:0", **where)
members = "0," + ",".join(f"127.0.0.1:{{p}}" for p in range({port}, {port + 5}))
module = ConsensusModule.launch(cluster_dir={str(tmp_path / "cluster")!r}, cluster_member_id=0, cluster_members=members,
    ingress_channel="aeron:udp", replication_channel="aeron:udp?endpoint=127.0.0.1:0", **where)
member = container.ClusteredServiceContainer.launch(Service(), cluster_dir={str(tmp_path / "cluster")!r}, **where)
while not module.context.agent.has_leader: threading.Event().wait(0.01)
sys.exit(4)
"""
    assert run(code, port) == (4, ["terminated"], "")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_process_of_multiprocessing_ends(port: int, method: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        PROGRAM.format(port=port) + "if __name__ == '__main__':\n"
        f"    child = multiprocessing.get_context({method!r}).Process(target=launch)\n"
        "    child.start(); child.join(); sys.exit(child.exitcode)\n"
    )
    assert run(f"import runpy\nrunpy.run_path({str(tmp_path / 'program.py')!r}, run_name='__main__')\n", port) == (
        0,
        ["terminated"],
        "",
    )


def test_a_failing_test_that_forgot_its_node_does_not_keep_pytest(port: int, tmp_path: Path) -> None:
    (tmp_path / "test_forgets.py").write_text(
        PROGRAM.format(port=port) + "def test_forgets():\n    node = launch()\n    assert node is None\n"
    )
    code = f"sys.exit(__import__('pytest').main(['-q', '-s', '-p', 'no:cacheprovider', {str(tmp_path)!r}]))\n"
    found, lines, errors = run(code, port)
    assert found == 1, errors
    assert "1 failed" in lines[-2]
    assert lines[-1] == "terminated"


def test_ctrl_c_gives_a_callback_up_that_never_returns(port: int) -> None:
    code = """
entered = threading.Event()

class Stuck(Service):
    def on_session_message(self, session, timestamp, buffer, header):
        print("stuck", flush=True)
        entered.set()
        threading.Event().wait(3600)

node = launch(Stuck())
client = AeronCluster.connect(**channels(node))
client.send(b"x")
entered.wait()
"""
    process = start(code, port)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    assert process.stdout.readline() == "stuck\n"
    while "has not ended" not in process.stderr.readline():
        assert process.poll() is None

    def is_over() -> bool:  # one signal is lost where it comes while a line is printed
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
        return process.poll() is not None

    wait_until(is_over, LIMIT_S, "the process to end")
    lines, errors = finish(process)
    assert process.returncode in (0, -signal.SIGINT)  # the latter where a second one comes
    assert lines == []
    assert "interrupted: what was not closed is left as it is" in errors


class Closing:
    """Notes that it was closed."""

    def __init__(self, name: str, notes: list[str], error: BaseException | None = None) -> None:
        self.name, self.notes, self.error = name, notes, error

    def close(self) -> None:
        self.notes.append(self.name)
        if self.error is not None:
            raise self.error


@pytest.fixture
def _nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_end, "_open", {})


@pytest.mark.usefixtures("_nothing_else")
def test_users_are_closed_before_what_they_use_and_the_newest_first() -> None:
    notes: list[str] = []
    stages = {"client": Stage.CLIENT, "driver": Stage.DRIVER, "node": Stage.NODE, "second": Stage.CLIENT}
    kept = [Closing(name, notes) for name in stages]
    for each in kept:
        close_at_end(each, stages[each.name])
    close_at_end(Closing("garbage", notes), Stage.POOL)
    process_end.close_all()
    process_end.close_all()
    assert notes == ["second", "client", "node", "driver"]


@pytest.mark.usefixtures("_nothing_else")
def test_an_error_is_reported_and_the_others_are_closed(caplog: pytest.LogCaptureFixture) -> None:
    notes: list[str] = []
    kept = [Closing("driver", notes), Closing("node", notes, SystemExit(7))]
    for each, stage in zip(kept, (Stage.DRIVER, Stage.NODE), strict=True):
        close_at_end(each, stage)
    process_end.close_all()
    assert notes == ["node", "driver"]
    assert [record.getMessage().endswith("was not closed cleanly: 7") for record in caplog.records] == [True]


@pytest.mark.usefixtures("_nothing_else")
def test_after_ctrl_c_only_the_library_s_own_are_closed() -> None:
    notes: list[str] = []
    kept = [
        Closing("driver", notes),
        Closing("transport", notes),
        Closing("agent", notes),
        Closing("node", notes, KeyboardInterrupt()),
    ]
    stages = (Stage.DRIVER, Stage.TRANSPORT, Stage.AGENT, Stage.NODE)
    for each, stage in zip(kept, stages, strict=True):
        close_at_end(each, stage)
    process_end.close_all()
    assert notes == ["node", "transport", "driver"]


@pytest.mark.usefixtures("_nothing_else")
def test_a_forked_child_closes_nothing_of_its_parent() -> None:
    notes: list[str] = []
    kept = Closing("parent's", notes)
    close_at_end(kept, Stage.NODE)
    pid = os.fork()
    if pid == 0:
        process_end.close_all()
        os._exit(len(notes))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    process_end.close_all()
    assert notes == ["parent's"]


@pytest.mark.usefixtures("_nothing_else")
def test_what_is_garbage_is_forgotten() -> None:
    for _ in range(10_000):
        close_at_end(Closing("", []), Stage.CLIENT)
    assert process_end._open == {}
