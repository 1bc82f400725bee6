"""Programs started by tests: output, input, signals, limits, and what errors say."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from container.errors import ContainerError
from container.testing.processes.process import Process, ProcessEndedError, is_alive, wait_until
from tests.limits import LIMIT_S


def python(code: str, directory: Path, environment: dict[str, str] | None = None) -> Process:
    """A Python program, not started yet."""
    return Process("program", [sys.executable, "-c", code], directory=directory, environment=environment)


def test_output_errors_and_return_code_are_those_of_the_program(tmp_path: Path) -> None:
    with python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)", tmp_path) as process:
        assert process.start().wait(LIMIT_S) == 3
        assert process.return_code == 3
        assert not process.is_running
        assert (process.output(), process.errors()) == ("out\n", "err\n")


def test_a_process_launches_until_it_is_the_program(tmp_path: Path) -> None:
    with python("import sys; print('here', flush=True); sys.stdin.read()", tmp_path) as process:
        process.start()
        wait_until(lambda: not process.is_launching, LIMIT_S, "the program")
        assert process.read_line(LIMIT_S) == "here"
        process.close_input()
        process.wait(LIMIT_S)
        assert not process.is_launching


def test_the_environment_is_on_top_of_the_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_PARENT", "1")
    code = "import os; print(os.environ['FROM_PARENT'], os.environ['OF_ITS_OWN'])"
    with python(code, tmp_path, {"OF_ITS_OWN": "2"}) as process:
        process.start().wait(LIMIT_S)
        assert process.output() == "1 2\n"


def test_lines_go_in_and_come_out_one_by_one(tmp_path: Path) -> None:
    with python("import sys\nfor line in sys.stdin: print('got', line, end='', flush=True)", tmp_path) as process:
        process.start()
        for word in ("one", "two"):
            process.write_line(word)
            assert process.read_line(LIMIT_S) == f"got {word}"
        process.close_input()
        assert process.wait(LIMIT_S) == 0
        with pytest.raises(ProcessEndedError, match="program reads no more input, so not 'three' either"):
            process.write_line("three")
        with pytest.raises(ProcessEndedError, match="waited for program to print a line, but program ended with 0"):
            process.read_line(LIMIT_S)


def test_a_line_that_does_not_come_is_a_timeout_with_the_output_so_far(tmp_path: Path) -> None:
    with python("import sys; print('half a', end='', flush=True); sys.stdin.read()", tmp_path) as process:
        process.start()
        process.wait_until(process.output, LIMIT_S, "the first bytes")
        with pytest.raises(TimeoutError, match=r"waited 0\.01 s for program to print a line(.|\n)*half a"):
            process.read_line(0.01)


def test_a_second_start_appends_to_the_files_and_shows_its_own_output(tmp_path: Path) -> None:
    with python("import os; print(os.getpid())", tmp_path) as process:
        pids = []
        for _start in range(2):
            assert process.start().wait(LIMIT_S) == 0
            assert process.output() == f"{process.pid}\n"
            pids.append(process.pid)
        assert process.out_path.read_text().split() == [str(pid) for pid in pids]


def test_a_running_program_is_not_started_again(tmp_path: Path) -> None:
    with python("import sys; sys.stdin.read()", tmp_path) as process:
        process.start()
        with pytest.raises(ContainerError, match=rf"program \(pid {process.pid}\) still runs"):
            process.start()


def test_a_program_that_was_never_started_has_no_pid(tmp_path: Path) -> None:
    process = python("", tmp_path)
    with pytest.raises(ContainerError, match="program was never started"):
        process.pid  # noqa: B018
    assert process.tail() == "--- program: never started"
    process.kill()
    process.close()


def test_a_command_that_does_not_exist_fails_and_is_named(tmp_path: Path) -> None:
    with (
        Process("program", ["/no/such/program"], directory=tmp_path) as process,
        pytest.raises(FileNotFoundError, match="no program /no/such/program"),
    ):
        process.start()


def test_stop_asks_for_an_orderly_end(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with python(code, tmp_path) as process:
        process.start().read_line(LIMIT_S)
        assert process.stop(LIMIT_S) == 7


def test_kill_ends_the_program_and_its_children(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys\n"
        "command = [sys.executable, '-c', 'import sys; sys.stdin.read()']\n"
        "child = subprocess.Popen(command, stdin=subprocess.PIPE)\n"
        "print(child.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with python(code, tmp_path) as process:
        child_pid = int(process.start().read_line(LIMIT_S))
        process.kill()
        assert process.return_code == -signal.SIGKILL
    wait_until(lambda: not is_alive(child_pid), LIMIT_S, "the child to be gone")


def test_a_paused_program_goes_on_when_it_is_resumed(tmp_path: Path) -> None:
    with python("import sys\nfor line in sys.stdin: print(line, end='', flush=True)", tmp_path) as process:
        process.start()
        process.write_line("before")
        process.read_line(LIMIT_S)
        process.pause()
        process.write_line("after")
        with pytest.raises(TimeoutError):
            process.read_line(0.05)
        process.resume()
        assert process.read_line(LIMIT_S) == "after"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux kills the children of a killed parent")
def test_a_program_does_not_outlive_its_killed_parent(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys\n"
        "from container.testing.processes.process import Process\n"
        "command = [sys.executable, '-c', 'import time; time.sleep(3600)']\n"
        "child = Process('child', command, directory=pathlib.Path(sys.argv[1])).start()\n"
        "print(child.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with Process("parent", command, directory=tmp_path) as parent:
        child_pid = int(parent.start().read_line(LIMIT_S))
        assert is_alive(child_pid)
        parent.send_signal(signal.SIGKILL)
        parent.wait(LIMIT_S)
    wait_until(lambda: not is_alive(child_pid), LIMIT_S, "the child to be gone")


def test_a_wait_over_its_limit_shows_the_end_of_the_output(tmp_path: Path) -> None:
    with python("import sys; print('here I am', flush=True); sys.stdin.read()", tmp_path) as process:
        process.start().read_line(LIMIT_S)
        with pytest.raises(TimeoutError, match=r"program \(pid \d+\) did not end in 0\.01 s(.|\n)*here I am"):
            process.wait(0.01)


def test_wait_until_returns_what_the_predicate_found() -> None:
    answers = iter([None, 0, "", "found"])
    assert wait_until(lambda: next(answers), LIMIT_S, "an answer") == "found"


def test_wait_until_says_what_did_not_happen() -> None:
    with pytest.raises(TimeoutError, match=r"waited 0 s for a sign"):
        wait_until(lambda: None, 0, "a sign")


def test_wait_until_takes_what_happened_just_before_the_end_of_a_program(tmp_path: Path) -> None:
    with python("print('done')", tmp_path) as process:
        process.start().wait(LIMIT_S)
        assert process.wait_until(process.output, LIMIT_S, "its output") == "done\n"
