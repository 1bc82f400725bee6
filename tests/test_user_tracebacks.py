"""A service that fails as it is imported or made: its whole traceback is printed, also from another process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from container.__main__ import main
from container.common.error_texts import user_stack_text
from container.errors import ConfigurationError, ContainerError
from container.node.dev_reload import Reloader
from container.testing.memory.environments import Environment, _result
from tests.documents import ROOT
from tests.limits import LIMIT_S

HELPER = """
def outer():
    inner()

def inner():
    {}["missing"]
"""
IMPORTED = "import traced_helper\ntraced_helper.outer()\n"
MADE = """
import container
import traced_helper

class Service(container.ClusteredService):
    def __init__(self):
        try:
            traced_helper.outer()
        except KeyError as error:
            raise ValueError("no rules") from error

    def on_session_message(self, session, timestamp, buffer, header):
        pass
"""
FRAMES = ["<module>", "outer", "inner"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "traced_helper.py").write_text(HELPER)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "traced_helper", raising=False)
    return tmp_path


def functions(text: str) -> list[str]:
    return re.findall(r'^.*  File ".*", line \d+, in (.+)$', text, re.MULTILINE)


def test_a_program_prints_the_traceback_of_a_module_from_the_user_s_first_frame_on(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "traced_import.py").write_text(IMPORTED)
    assert main(["dev", "traced_import:Service"]) == 2
    printed = capsys.readouterr().err
    assert functions(printed) == FRAMES
    assert printed.splitlines()[-1].startswith("aeron-cluster: error: service='traced_import:Service': module ")


def test_members_in_other_processes_print_the_traceback_with_its_cause(place: Path) -> None:
    (place / "traced_made.py").write_text(MADE)
    command = [sys.executable, "-m", "container", "dev", "traced_made:Service", "--members", "3"]
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{place}"}
    done = subprocess.run(
        command, env=environment, cwd=place, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode != 0
    (first, *_) = re.findall(r"^(member \d: )aeron-cluster: error: ", done.stderr, re.MULTILINE)
    of_one = [line for line in done.stderr.splitlines() if line.startswith(first)]
    assert functions("\n".join(of_one)) == ["Service.__init__", "outer", "inner", "Service.__init__"], done.stderr


def test_code_that_is_not_reloaded_is_said_with_its_traceback(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "traced_reload.py").write_text(IMPORTED)
    reloader = Reloader(Mock(services=["traced_reload:Service"]), place, Mock(**{"wait_for.return_value": None}))
    monkeypatch.setattr(reloader, "_copies", place)
    with pytest.raises(ContainerError, match=r"^service='traced_reload:Service': .*: KeyError: 'missing' \(File \"tr"):
        reloader._check(place, ["traced_reload:Service"], "the new code", 60)
    assert functions(capsys.readouterr().err) == FRAMES


def test_a_process_with_another_environment_reports_the_traceback(place: Path) -> None:
    (place / "traced_elsewhere.py").write_text(IMPORTED)
    task = b"\x80\x04\x8c\x18traced_elsewhere:Service\x8c\x18traced_elsewhere:Service\x86."
    with pytest.raises(ContainerError, match="cannot be imported: KeyError: 'missing'") as failed:
        _result(task, Environment())
    assert functions("\n".join(failed.value.__notes__))[:3] == FRAMES


def test_what_one_line_says_and_what_is_no_user_s_has_no_traceback(place: Path) -> None:
    def raised(text: str) -> BaseException:
        try:
            exec(compile(text, "/own/service.py", "exec"), {})
        except ZeroDivisionError as error:
            return error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
        raise AssertionError

    assert user_stack_text(raised("1 / 0")) == ""
    assert user_stack_text(ConfigurationError("never raised")) == ""
    assert functions(user_stack_text(raised("def f():\n    1 / 0\nf()"))) == ["<module>", "f"]
