"""The command: help, options, errors in one line, exit codes, and an end in order on a signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import aeron_cluster_command
import container
from container.__main__ import main
from container.aeron.media_driver import MediaDriver
from container.codecs.messages import decode
from container.errors import AuthenticationError, ConfigurationError, MarkFileError
from container.settings.container_table import settings_table
from container.testing.processes.process import Process, wait_until
from tests.limits import LIMIT_S
from tests.test_settings import NAMES, OTHER_VALUES

ROOT = Path(__file__).parents[1]
SERVICE = "container.testing.memory.recording_service:RecordingService"


@pytest.fixture
def contexts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The contexts that the command would run, instead of running them."""
    seen: list[Any] = []
    monkeypatch.setattr("container.run_service.run_context", seen.append)
    for setting in settings_table().values():
        monkeypatch.delenv(setting.variable, raising=False)
    return seen


def code_of(*arguments: str) -> int:
    """Exit code of the command, however it ends."""
    try:
        return main(arguments)
    except SystemExit as end:
        return int(str(end.code))


@pytest.mark.parametrize("word", ["dev", "consensus-module", "client"])
def test_what_the_encoding_of_the_output_lacks_is_escaped(word: str) -> None:
    """Help, paths and payloads have characters that a terminal of the C locale has not."""
    done = subprocess.run(
        [sys.executable, "-m", "container", word, "--help"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: ")


def option_of(name: str, text: str) -> list[str]:
    option = "--" + name.replace("_", "-")
    if settings_table()[name].is_flag:
        return [option if text == "true" else "--no-" + option[2:]]
    return [option, text]


# --- options


def test_service_is_made_from_its_name(contexts: list[Any]) -> None:
    assert main(["run", SERVICE]) == 0
    assert type(contexts[0].service).__name__ == "RecordingService"


def test_service_can_be_named_by_the_environment(contexts: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AERON_CLUSTER_SERVICE_CLASS_NAME", SERVICE)
    assert main(["run"]) == 0
    assert contexts[0].service is not None


@pytest.mark.parametrize("name", [name for name in NAMES if name != "service_class_name"])
def test_every_setting_is_an_option(contexts: list[Any], name: str) -> None:
    value, text, _bad = OTHER_VALUES[name]
    assert main(["run", SERVICE, *option_of(name, text)]) == 0
    assert getattr(contexts[0].settings, name) == value


@pytest.mark.parametrize(
    "arguments",
    [
        ["dev", "a:B", "--member", "3"],
        ["node", "--config", "node.toml", "--metrics-por", "1"],
        ["run", "a:B", "--cluster-i", "3"],
        ["client", "send", "--ingress-end", "0=a:1", "x"],
        ["top", "--interv", "3", "."],
        ["status", "--js", "."],
        ["archive", "--conf", "a.toml"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_an_option_is_never_abbreviated(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "unrecognized arguments: --" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", [name for name in NAMES if OTHER_VALUES[name][2] and not isinstance(OTHER_VALUES[name][0], bool)]
)
def test_bad_option_is_one_line_and_code_2(contexts: list[Any], name: str, capsys: pytest.CaptureFixture[str]) -> None:
    bad = OTHER_VALUES[name][2]
    arguments = [bad] if name == "service_class_name" else [SERVICE, f"--{name.replace('_', '-')}={bad}"]
    assert code_of("run", *arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert name in line.replace("-", "_")
    assert contexts == []


def test_options_count_before_the_environment_and_that_before_the_file(
    contexts: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c.toml"
    path.write_text("service_id = 1\nreplay_stream_id = 1\nsnapshot_stream_id = 1\n")
    monkeypatch.setenv("AERON_CLUSTER_SERVICE_ID", "2")
    monkeypatch.setenv("AERON_CLUSTER_REPLAY_STREAM_ID", "2")
    assert main(["run", SERVICE, "--config", str(path), "--service-id", "3"]) == 0
    settings = contexts[0].settings
    assert (settings.service_id, settings.replay_stream_id, settings.snapshot_stream_id) == (3, 2, 1)


def test_service_is_found_from_the_current_directory(
    contexts: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_own_service.py").write_text(
        "from container.testing.memory.recording_service import RecordingService as Mine\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main(["run", "my_own_service:Mine"]) == 0


# --- help


def test_help_tells_every_setting_with_its_variable(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("run", "--help") == 0
    text = " ".join(capsys.readouterr().out.split())
    for setting in settings_table().values():
        assert setting.variable in text
        assert setting.name == "service_class_name" or f"--{setting.name.replace('_', '-')}" in text


def test_help_tells_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("--help") == 0
    assert "run a service next to a consensus module" in " ".join(capsys.readouterr().out.split())


# --- errors


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["walk"], "unknown command 'walk': see aeron-cluster --help"),
        (["recovery-pln"], "unknown command 'recovery-pln': did you mean 'recovery-plan'?"),
        (["run", "-Daeron.dir=/a"], "see aeron-cluster run --help, and docs/from-java.md for Aeron's properties"),
        (["dev", "tests.Node"], "service='tests.Node': must be package.module:Name: did you mean 'tests:Node'?"),
        (["run", "no_module:Name"], "start in the directory that has it, or add that to PYTHONPATH"),
        (["run", "tests.node:Nodes"], "tests.node has no Nodes: did you mean 'Node'?"),
        (["run", "--no-such-option"], "unrecognized arguments: --no-such-option"),
        (["run"], "no service: pass an instance of a ClusteredService, or set service_class_name"),
        (["run", "tests.node"], "service_class_name='tests.node': must be package.module:Name"),
        (["run", "no.such.module:Name"], "module no.such.module cannot be imported: ModuleNotFoundError"),
        (["run", "tests.node:Nobody"], "service_class_name='tests.node:Nobody': tests.node has no Nobody"),
        (
            ["run", "container.testing.memory.scripted_member:ScriptedMember"],
            "ScriptedMember has no callback on_start(): derive it from",
        ),
        (["run", "tests.test_container:CoroutineService"], "CoroutineService.on_timer_event is a coroutine function"),
        (["run", SERVICE, "--config", "/no/such/file"], "config file /no/such/file cannot be read"),
        (["run", SERVICE, "--service-id", "10"], "service_id=10: must be a whole number from 0 to 9"),
        (["run", SERVICE, "--service-id", "ten"], "argument --service-id: 'ten': must be a whole number from 0 to 9"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(
    contexts: list[Any], arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of(*arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("aeron-cluster")
    assert ": error: " in line
    assert text in line
    assert contexts == []


def test_a_file_of_another_user_is_named_with_what_to_do(
    contexts: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = PermissionError(13, "Permission denied", "/dev/shm/aeron/cnc.dat")
    mark_file = MarkFileError("mark file cannot be opened: Permission denied")
    mark_file.__cause__ = refused
    fix = ": start it as the owner of that file, or change the owner"
    for error, line in (
        (refused, f"/dev/shm/aeron/cnc.dat: Permission denied{fix}"),
        (mark_file, f"{mark_file}{fix}"),
        (AuthenticationError("rejected", code=3, detail=""), "rejected"),  # a PermissionError of no file
    ):
        monkeypatch.setattr("container.run_service.run_context", Mock(side_effect=error))
        assert code_of("run", SERVICE) == 1
        assert capsys.readouterr().err == f"aeron-cluster: error: {line}\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError("bad"), 2),
        (MarkFileError("held\nby another"), 1),
        (ImportError("no library"), 1),
        (OSError(28, "No space left on device"), 1),
    ],
)
def test_failure_of_the_container_is_one_line(
    contexts: list[Any],
    error: Exception,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(_context: object) -> None:
        raise error

    monkeypatch.setattr("container.run_service.run_context", fail)
    assert code_of("run", SERVICE) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"aeron-cluster: error: {' '.join(str(error).split())}"


def test_driver_that_is_not_there_is_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--aeron-dir", str(tmp_path / "d"), "--cluster-dir", str(tmp_path), "--driver-timeout-ms", "20"]
    assert code_of("run", SERVICE, *arguments) == 1
    assert "aeron-cluster: error: no media driver within 20 ms" in capsys.readouterr().err


def test_unexpected_end_is_the_exit_code_of_run(contexts: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_context: object) -> None:
        raise SystemExit(1)

    monkeypatch.setattr("container.run_service.run_context", fail)
    assert code_of("run", SERVICE) == 1


# --- the package


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT).stdout


def test_importing_the_package_loads_nothing_compiled() -> None:
    code = (
        "import container, sys\n"
        "loaded = [m for m in sys.modules.values() if m.__name__.startswith('container')]\n"
        "print([m.__name__ for m in loaded if not m.__file__.endswith('.py')], 'pyaeron' in sys.modules)"
    )
    assert python(code) == "[] False\n"


def test_making_a_context_does_not_load_the_c_library() -> None:
    code = (
        "import container\n"
        "class Service(container.ClusteredService):\n"
        "    def on_session_message(self, *arguments): pass\n"
        "container.Context(Service()).settings\n"
        "print('_pyaeron' in open('/proc/self/maps').read())"
    )
    if sys.platform == "linux":
        assert python(code) == "False\n"


@pytest.fixture(scope="module")
def driver() -> Iterator[MediaDriver]:
    with MediaDriver.launch_embedded() as embedded:
        yield embedded


def test_starting_a_service_loads_nothing_heavy(
    driver: MediaDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AERON_DIR", driver.aeron_dir)
    monkeypatch.setenv("AERON_CLUSTER_DIR", str(tmp_path))
    heavy = "asyncio msgspec numpy pyarrow pyspark"
    code = (
        "import os, signal, sys\n"
        "from container.__main__ import main\n"
        "class Stderr:\n"
        "    def write(self, text):\n"
        "        if 'running until' in text:\n"
        f"            print(text, [name for name in {heavy.split()} if name in sys.modules])\n"
        "            os.kill(os.getpid(), signal.SIGTERM)\n"
        "    def flush(self): pass\n"
        "sys.stderr = Stderr()\n"
        "print(main(['run', 'examples.echo_service:EchoService']))"
    )
    line, code_of_exit = python(code).splitlines()
    place = f"cluster_id=0 service_id=0 aeron_dir={driver.aeron_dir} cluster_dir={tmp_path}"
    assert f" INFO container: clustered-service-0-0: {place}: running until the consensus module ends it" in line
    assert (line[-2:], code_of_exit) == ("[]", "0")


def test_interfaces_tell_their_types_at_run_time() -> None:
    hints = typing.get_type_hints(container.ClusteredService.on_session_message)
    assert hints["session"] == container.ClientSession | None
    assert typing.get_type_hints(container.run) != {}


def test_every_public_name_is_there() -> None:
    for name in container.__all__:
        assert getattr(container, name) is not None
        assert name in dir(container)
    with pytest.raises(AttributeError, match="has no attribute 'nobody'"):
        _ = container.nobody


def test_missing_build_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(container.__dict__, "Context", raising=False)
    monkeypatch.setitem(container._LAZY, "Context", "container.not_compiled")
    with pytest.raises(ImportError, match=r"container\.not_compiled is not built: run './run build'"):
        _ = container.Context


def test_module_that_a_user_lacks_is_not_taken_for_a_missing_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(container.__dict__, "Context", raising=False)
    monkeypatch.setitem(container._LAZY, "Context", "no_such_package_at_all")
    with pytest.raises(ModuleNotFoundError, match="no_such_package_at_all"):
        _ = container.Context


def test_command_says_that_the_build_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "container.context", None)
    assert code_of("run", SERVICE) == 1
    assert "container.context is not built: run './run build'" in capsys.readouterr().err


# --- another module of the package's name


def test_the_command_reports_a_module_that_hides_the_package(tmp_path: Path) -> None:
    hiding = tmp_path / "container.py"
    hiding.write_text("raise SystemExit('it was run')\n")
    command = [sys.executable, "-m", "aeron_cluster_command", "run", SERVICE]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"aeron-cluster: error: `import container` finds {hiding}, not the package ")
    assert done.stderr.endswith(": rename that module, or take its directory off PYTHONPATH\n")
    assert done.stderr.count("\n") == 1
    hiding.unlink()
    done = subprocess.run(
        [*command, "--help"], check=True, capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert done.stdout.startswith("usage: aeron-cluster run")


@pytest.mark.parametrize("module", ["container", "container.mine", "container.mine.counter", "container.errors"])
def test_a_service_in_a_module_of_the_package_s_name_is_refused(
    module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of("run", f"{module}:Counter") == 2
    hint = ": container is this package, which hides a module or folder of yours: rename that\n"
    assert capsys.readouterr().err.endswith(hint)


def test_ctrl_c_while_a_service_is_imported_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "slow_to_import.py").write_text("raise KeyboardInterrupt\n")
    monkeypatch.chdir(tmp_path)
    for word in ("run", "dev"):
        assert code_of(word, "slow_to_import:Counter") == 130
        assert capsys.readouterr().err == "aeron-cluster: interrupted\n"


# --- as a process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_ends_the_command_with_code_0_and_a_free_mark_file(
    driver: MediaDriver, tmp_path: Path, number: signal.Signals
) -> None:
    command = [sys.executable, "-m", "container", "run", SERVICE, "--cluster-dir", str(tmp_path / "cluster")]
    (tmp_path / "cluster").mkdir()
    environment = {"AERON_DIR": driver.aeron_dir, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    with Process("command", command, directory=tmp_path, environment=environment) as process:
        process.start()
        wait_until(
            lambda: "running until the consensus module ends it" in process.errors() or None,
            LIMIT_S,
            "the container to run",
            [process],
        )
        os.kill(process.pid, number)
        assert process.wait(LIMIT_S) == 0
        log = process.errors()
    assert f"{number.name}: closing clustered-service-0-0" in log
    assert "Traceback" not in log
    _name, header = decode("mark", (tmp_path / "cluster" / "cluster-mark-service-0.dat").read_bytes())
    assert (header["version"], header["activity_timestamp"]) == (768, -1)


def test_ctrl_c_while_the_package_is_imported_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupting:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "container.__main__":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "container.__main__")
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    assert aeron_cluster_command.main() == 130
    assert capsys.readouterr().err == "aeron-cluster: interrupted\n"


@pytest.mark.parametrize("word", ["send", "bench"])
def test_ctrl_c_while_a_client_waits_is_one_line(
    word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(f"container.client.client_command._{word}", Mock(side_effect=KeyboardInterrupt))
    assert code_of("client", "--ingress", "0=localhost:1", word) == 130
    assert capsys.readouterr().err == "aeron-cluster: interrupted\n"
