"""Config files: Aeron's own names in TOML and in Java's files; variables and directories that are wrong."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from container.__main__ import main
from container.archive.server.archive_context import ArchiveContext
from container.client import ClientContext
from container.consensus.consensus_module_context import ConsensusModuleContext
from container.context import Context
from container.errors import ConfigurationError
from container.node.node_command import node_parser
from container.run_service import run
from container.settings import sources
from container.settings.archive_table import archive_settings_table
from container.settings.consensus_module_table import consensus_module_settings_table
from container.settings.container_table import settings_table
from container.settings.driver_table import driver_settings_table
from container.settings.java_properties import JAVA_PROPERTIES
from container.settings.property_files import parse_properties
from container.settings.sources import (
    load_archive_settings,
    load_consensus_module_settings,
    load_settings,
    warn_of_unknown_variables,
)
from container.testing.memory.recording_service import RecordingService

SOURCES = Path(__file__).parents[1] / "src"
MEMBERS = "0,a:1,a:2,a:3,a:4,a:5"


@pytest.fixture(autouse=True)
def nothing_was_warned_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_warned", set())


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="latin-1")
    return path


QUOTED = '"aeron.cluster.dir" = "/var/c"\n"aeron.cluster.session.timeout" = "30s"\n"aeron.cluster.member.id" = 0\n'
NESTED = '[aeron.cluster]\ndir = "/var/c"\nsession.timeout = "30s"\n[aeron.cluster.member]\nid = "0"\n'
DOTTED = 'aeron.cluster.dir = "/var/c"\naeron.cluster.session.timeout = 30_000_000_000\n'
JAVA = "# a member\naeron.cluster.dir=/var/c\naeron.cluster.session.\\\n    timeout: 30s\njava.io.tmpdir=/tmp\n"


@pytest.mark.parametrize(
    ("name", "text"), [("c.toml", QUOTED), ("c.toml", NESTED), ("c.toml", DOTTED), ("c.properties", JAVA)]
)
def test_a_file_may_have_aeron_s_own_names(tmp_path: Path, name: str, text: str) -> None:
    settings = load_consensus_module_settings(
        {"cluster_members": MEMBERS, "ingress_channel": "aeron:udp", "replication_channel": "aeron:udp?endpoint=a:0"},
        config_file=written(tmp_path / name, text),
        environ={},
    )
    assert (settings.cluster_dir, settings.session_timeout_ns) == ("/var/c", 30_000_000_000)


@pytest.mark.parametrize(
    ("table", "load"), [(settings_table(), load_settings), (archive_settings_table(), load_archive_settings)]
)
def test_one_file_serves_all_parts_of_a_node(tmp_path: Path, table: dict[str, Any], load: Any) -> None:
    properties = {
        "aeron.cluster.dir": "/var/c",
        "aeron.archive.dir": "/var/a",
        "aeron.archive.control.channel": "aeron:udp?endpoint=a:5",
        "aeron.archive.replication.channel": "aeron:udp?endpoint=a:0",
        "aeron.cluster.members": MEMBERS,
        "aeron.term.buffer.length": "64k",
    }
    text = "".join(f"{name}={value}\n" for name, value in properties.items())
    settings = load(config_file=written(tmp_path / "node.properties", text), environ={})
    for name, setting in table.items():
        if setting.property in properties:
            assert getattr(settings, name) == properties[setting.property]


def test_java_s_names_of_idle_strategies_are_known(tmp_path: Path) -> None:
    file = written(tmp_path / "c.properties", "aeron.cluster.idle.strategy=org.agrona.concurrent.YieldingIdleStrategy")
    assert load_settings(config_file=file, environ={}).idle_strategy == "yield"


def test_what_means_nothing_here_is_named_once_and_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = 'aeron.conductor.buffer.length = "8m"\naeron.cluster.tool.timeout = "1h"\naeron.event.cluster.log = "all"\n'
    file = written(tmp_path / "c.toml", text)  # the last is a name of Java's agent
    for _ in range(2):
        load_settings(config_file=file, environ={})
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == (
        f"config file {file}: these have no effect here: aeron.cluster.tool.timeout, "
        "aeron.conductor.buffer.length, aeron.event.cluster.log: see docs/from-java.md"
    )


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.toml", "aeron.cluster.session.time = 1", "'aeron.cluster.session.timeout'?"),
        ("c.properties", "aeron.cluster.service.i=1", "did you mean 'aeron.cluster.service.id'?"),
        ("c.properties", "cluster_dir=/var/c", "'cluster_dir' is not a property: write Aeron's name, such as"),
        ("c.properties", "a.b=\\u12", "u without four hexadecimal digits"),
        ("c.properties", "a.b=\\u" + "\x1b\0" * 20_000, "u without four hexadecimal digits"),
        ("c.toml", 'cluster_dir = "a"\naeron.cluster.dir = "b"', "leave out cluster_dir or aeron.cluster.dir"),
        ("c.toml", '"aeron.cluster.dir" = "a"\naeron.cluster.dir = "b"', "aeron.cluster.dir is given twice"),
        ("c.toml", "aeron.cluster.service.id = 10", "service_id=10 from aeron.cluster.service.id in "),
        ("c.properties", "aeron.cluster.service.id=x", "service_id='x' from aeron.cluster.service.id in "),
    ],
)
def test_a_file_that_is_wrong_is_one_sentence(tmp_path: Path, name: str, text: str, message: str) -> None:
    file = written(tmp_path / name, text)
    with pytest.raises(ConfigurationError) as caught:
        load_settings(config_file=file, environ={})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    assert str(file) in str(caught.value) or "is given twice" in message


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"a=1\nb:2\nc 3\n", {"a": "1", "b": "2", "c": "3"}),
        (b"  a  =  1  \n", {"a": "1  "}),
        (b"# no\n! no\n\na=1", {"a": "1"}),
        (b"a=1,\\\n   2,\\\r\n\t3", {"a": "1,2,3"}),
        (b"a\\=b=c=d", {"a=b": "c=d"}),
        (b"a=\\t\\u00e4\\q\\\\", {"a": "\t\xe4q\\"}),
        (b"a=1\\", {"a": "1"}),
        (b"a\nb=", {"a": "", "b": ""}),
        (b"a=\xe4", {"a": "\xe4"}),
        (b"a=1\na=2", {"a": "2"}),
        (b"a=\\uD83D\\uDE00", {"a": "\U0001f600"}),
        (b"", {}),
    ],
)
def test_the_syntax_of_java_s_files(content: bytes, found: dict[str, str]) -> None:
    assert parse_properties(content) == found


# --- variables


def test_an_unknown_variable_is_named_once_with_the_nearest(caplog: pytest.LogCaptureFixture) -> None:
    environ = {"AERON_CLUSTER_SESSION_TIME": "1", "AERON_ARCHIVE_QQ": "", "AERON_CLUSTER_MEMBERS": "x", "PATH": "y"}
    environ |= {"AERON_CLUSTER_EGRESS_CHANNEL": "aeron:udp?endpoint=localhost:0"}
    environ |= {"AERON_CLUSTER_INGRESS_CHANNEL": "aeron:udp", "AERON_CLUSTER_INGRESS_ENDPOINTS": "0=a:1"}
    for load in (load_settings, load_settings):
        load(environ=environ)
    ClientContext.from_environment(environ)
    assert [record.getMessage() for record in caplog.records] == [
        "unknown variable AERON_ARCHIVE_QQ has no effect: did you mean AERON_ARCHIVE_ID?",
        "unknown variable AERON_CLUSTER_SESSION_TIME has no effect: did you mean AERON_CLUSTER_SESSION_TIMEOUT?",
    ]


def test_of_many_unknown_variables_a_few_are_named(caplog: pytest.LogCaptureFixture) -> None:
    """Kubernetes makes many for a service named ``aeron-cluster-0``."""
    names = [f"AERON_CLUSTER_{number}_PORT_{number}_UDP_ADDR" for number in range(10_000)]
    begin = time.process_time()
    warn_of_unknown_variables(dict.fromkeys(names, "10.0.0.1"))
    warn_of_unknown_variables(dict.fromkeys(names, "10.0.0.1"))
    assert time.process_time() - begin < 5
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 11
    assert texts[-1] == "9990 more unknown variables have no effect: see docs/settings.md"


def test_no_variable_that_the_package_reads_is_unknown(caplog: pytest.LogCaptureFixture) -> None:
    texts = [path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py")]
    found = {name for text in texts for name in re.findall(r'"(AERON_(?:CLUSTER|ARCHIVE)_[A-Z_]+[A-Z])"', text)}
    tables = settings_table(), archive_settings_table(), consensus_module_settings_table(), driver_settings_table()
    found |= {setting.variable for table in tables for setting in table.values()}
    assert len(found) > 80
    warn_of_unknown_variables(dict.fromkeys(found, "1"))
    assert not caplog.records


def test_the_names_of_java_are_names() -> None:
    assert len(JAVA_PROPERTIES) > 200
    assert all(re.fullmatch(r"(aeron|cluster)(\.\w+)+", name) for name in JAVA_PROPERTIES)


# --- directories


@pytest.mark.parametrize(
    ("context", "name", "variable"),
    [
        (lambda: Context(RecordingService(), environ={}), "cluster_dir", "AERON_CLUSTER_DIR"),
        (
            lambda: ConsensusModuleContext(
                cluster_members=MEMBERS,
                ingress_channel="aeron:udp",
                replication_channel="aeron:udp?endpoint=a:0",
                environ={},
            ),
            "cluster_dir",
            "AERON_CLUSTER_DIR",
        ),
        (
            lambda: ArchiveContext(
                is_control_channel_enabled=False, replication_channel="aeron:udp?endpoint=a:0", environ={}
            ),
            "archive_dir",
            "AERON_ARCHIVE_DIR",
        ),
    ],
    ids=["container", "consensus module", "archive"],
)
def test_a_directory_that_is_not_given_is_an_error_and_no_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, context: Any, name: str, variable: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=f"^{name} must be given: .*variable {variable} or config file$"):
        context().conclude()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("word", "option"), [("run", "--cluster-dir"), ("consensus-module", "--dir"), ("archive", "--dir")]
)
@pytest.mark.parametrize("is_given", [False, True])
def test_a_command_begins_nothing_in_a_directory_that_is_not_there(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    word: str,
    option: str,
    is_given: bool,
) -> None:
    for variable in ("AERON_CLUSTER_DIR", "AERON_ARCHIVE_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    more = {
        "run": ["container.testing.memory.recording_service:RecordingService"],
        "consensus-module": ["--cluster-members", MEMBERS, "--ingress-channel", "aeron:udp"],
        "archive": ["--no-is-control-channel-enabled"],
    }[word]
    more += ["--driver-timeout-ms", "20"] if word == "run" else ["--replication-channel", "aeron:udp?endpoint=a:0"]
    directory = tmp_path / "mistyped"
    # Code 2 would be final for a supervisor: a disk may be mounted late, and a node makes the directory of a container.
    code = 1 if is_given else 2
    assert main([word, *more, *([option, str(directory)] if is_given else [])]) == code
    errors = capsys.readouterr().err
    late = " after 20 ms" if word == "run" else ""
    expected = f"='{directory}': there is no such directory{late}: correct" if is_given else "_dir must be given: "
    assert expected in errors, errors
    assert not list(tmp_path.iterdir())


def test_a_program_begins_nothing_in_a_directory_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        run(RecordingService(), cluster_dir=tmp_path / "mistyped", driver_timeout_ms=20)
    assert caught.value.code == 1
    assert "there is no such directory" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


# --- a node


def test_a_node_s_parts_take_what_properties_say_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import argparse

    toml = written(
        tmp_path / "node.toml",
        f'services = ["a:B"]\ndirectory = "{tmp_path}"\naeron.cluster.session.timeout = "7s"\n'
        "[archive]\nfile_sync_level = 1\n",
    )
    java = written(
        tmp_path / "node.properties",
        "aeron.dir=/dev/shm/x\naeron.cluster.id=3\naeron.cluster.session.timeout=9s\n"
        "aeron.archive.file.sync.level=2\naeron.archive.catalog.file.sync.level=2\n"
        "aeron.term.buffer.length=64k\naeron.cluster.app.version=1.0.0\naeron.cluster.service.responder=false\n",
    )
    got: list[Any] = []
    monkeypatch.setattr("container.node.node_command._run", lambda services, settings, file: got.append(settings))
    options = node_parser(argparse.ArgumentParser, "node").parse_args(
        ["--config", str(toml), "--properties", str(java)]
    )
    options.command(options)
    assert got == [
        {
            "directory": str(tmp_path),
            "aeron_dir": "/dev/shm/x",
            "archive": {"file_sync_level": 1, "catalog_file_sync_level": 2},
            "consensus_module": {"cluster_id": 3, "session_timeout_ns": 7_000_000_000, "app_version": 0x010000},
            "container": {"is_responding_service": False, "app_version": 0x010000},
            "driver": {"term_buffer_sparse_file": False, "term_buffer_length": 65_536},
        }
    ]


def test_tables_that_are_nested_without_end_are_one_sentence(tmp_path: Path) -> None:
    file = written(tmp_path / "c.toml", f"aeron.{f'{"a" * 50}.' * 14}a = 1")
    with pytest.raises(ConfigurationError, match="unknown property 'aeron") as caught:
        load_settings(config_file=file, environ={})
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "text",
    [
        "a." * 30_000 + "a = 1",
        "[aeron." + "a." * 30_000 + "a]",
        "x = {" + '"\\"".' * 10_000 + "a = 1}",
        "'a' . " * 10_000 + "a = 1",
        "a." * 16 + "a = 1",
    ],
)
def test_a_name_of_many_parts_is_one_sentence_in_no_time(tmp_path: Path, text: str) -> None:
    begin = time.process_time()
    with pytest.raises(ConfigurationError, match="has more than 16 parts: shorten it") as caught:
        load_settings(config_file=written(tmp_path / "c.toml", text), environ={})
    assert len(str(caught.value)) < 400
    assert time.process_time() - begin < 5


@pytest.mark.parametrize("text", ['x = "' + '\\"' * 30_000, '"\\' * 20_000, "\"'" * 20_000, "a" + " " * 60_000 + "="])
def test_what_ends_nowhere_is_not_toml_in_no_time(tmp_path: Path, text: str) -> None:
    begin = time.process_time()
    with pytest.raises(ConfigurationError, match="is not TOML"):
        load_settings(config_file=written(tmp_path / "c.toml", text), environ={})
    assert time.process_time() - begin < 5


def test_dots_in_values_are_no_names(tmp_path: Path) -> None:
    text = f'cluster_dir = "/{"a." * 40}b" # {"..." * 20} www.example.com\nservice_id = 1\n'
    assert load_settings(config_file=written(tmp_path / "c.toml", text), environ={}).service_id == 1
