"""The command ``aeron-cluster client``: its options, its progress line, and its words against a scripted member."""

from __future__ import annotations

import argparse
import io
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from container.__main__ import main
from container.client import ClientContext
from container.client.client_command import Progress, client_parser, connection_settings
from container.errors import ConfigurationError
from tests.ingress_member import CLOSED
from tests.threaded_members import PatientMember, ThreadedMembers


@pytest.fixture
def members() -> Iterator[ThreadedMembers]:
    with ThreadedMembers() as members:
        members.member(0, "aeron:ipc", PatientMember.echo)
        yield members


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("INGRESS_CHANNEL", "INGRESS_ENDPOINTS", "EGRESS_CHANNEL"):
        monkeypatch.delenv(f"AERON_CLUSTER_{name}", raising=False)


def run(members: ThreadedMembers, *arguments: str) -> int:
    options = ["--aeron-dir", members.aeron_dir, "--ingress-channel", "aeron:ipc", "--egress", "aeron:ipc?alias=e"]
    return main(["client", *options, "--timeout", "20", *arguments])


def test_send_prints_the_answers(members: ThreadedMembers, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(members, "send", "one", "two") == 0
    assert capsys.readouterr().out.splitlines()[:2] == ["one", "two"]


def test_send_speaks_hexadecimal(members: ThreadedMembers, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(members, "send", "--hex", "00ff") == 0
    assert capsys.readouterr().out == "00ff\n"
    assert run(members, "send", "--hex", "zz") == 2
    assert "not hexadecimal: 'zz'" in capsys.readouterr().err


def test_send_reads_lines(
    members: ThreadedMembers, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = b"first\n  with space \t\nCR LF\r\nCR \r\r\n\n\xff\nwithout an end\r"
    sent: list[bytes] = []

    def keep(payload: bytes, is_hex: bool) -> str:
        sent.append(payload)
        return ""

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines)))
    monkeypatch.setattr("container.client.client_command._shown", keep)
    assert run(members, "send") == 0
    assert sent == [b"first", b"  with space \t", b"CR LF", b"CR \r", b"", b"\xff", b"without an end\r"]


def test_send_takes_hexadecimal_lines_and_any_bytes_of_an_argument(
    members: ThreadedMembers, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"00 ff\n 20\r\n")))
    assert run(members, "send", "--hex") == 0
    assert capsys.readouterr().out.splitlines() == ["00ff", "20"]
    assert run(members, "send", "caf\udce9") == 0  # as the system gives a byte that is not UTF-8
    assert capsys.readouterr().out == "caf\\xe9\n"


def test_send_says_how_many_answers_are_missing(members: ThreadedMembers, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(members, "send", "x", "--replies", "2", "--wait", "0.1") == 1
    error = capsys.readouterr().err
    assert "1 of 2 answers came within 0.1 s (--wait): the leader took 1 message; does the service run" in error


def test_send_says_each_second_what_it_waits_for(members: ThreadedMembers, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(members, "send", "x", "--replies", "2", "--wait", "1.1") == 1
    assert "sent 1, received 1 of 2, waiting for the service\n" in capsys.readouterr().err


def test_a_connect_says_each_second_what_it_waits_for(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--ingress", "0=localhost:1", "--embedded-driver", "--timeout", "1.5"]
    assert main(["client", *options, "tail"]) == 1
    error = capsys.readouterr().err
    assert "connecting: waiting for a member that listens on ingress" in error
    assert "error: cluster connect: waited 1.5 s for a member" in error


def test_a_session_that_the_cluster_closes_is_named_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    with ThreadedMembers() as members:
        member = members.member(0, "aeron:ipc")
        end = {"SessionMessageHeader": lambda request: member.session_event(5, CLOSED, "gone")}
        members.do(lambda: member.hooks.update(end))
        assert run(members, "send", "x") == 1
    error = capsys.readouterr().err
    assert "session event: CLOSED: gone\n" in error
    assert "error: the session is closed: closed by the cluster: gone" in error


def test_bench_measures_and_shows_where_it_is(members: ThreadedMembers, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(members, "bench", "--messages", "300", "--window", "10") == 0
    output = capsys.readouterr()
    assert output.out.startswith("300 round trips of 32 bytes, window 10: ")
    assert "p50 " in output.out
    assert "300/300 100 %" in output.err


def test_tail_ends_after_a_count_or_a_time(members: ThreadedMembers, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(members, "tail", "--seconds", "0.1") == 0
    assert "0 messages" in capsys.readouterr().err
    assert run(members, "tail", "--count", "0") == 0


def test_an_embedded_driver_is_started(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--ingress", "0=localhost:1", "--embedded-driver", "--timeout", "2"]
    assert main(["client", *options, "send", "x"]) == 1
    assert "0=localhost:1: nobody listens there" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--messages", "0"], "messages must be at least 1, not 0"),
        (["--length", "7"], "length must be at least 8, not 7"),
        (["--window", "0"], "window must be at least 1, not 0"),
    ],
)
def test_bad_numbers_are_refused(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["client", "bench", *arguments]) == 2
    assert text in capsys.readouterr().err


def test_help_tells_the_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["client", "--help"])
    assert {"send", "bench", "tail"} <= set(capsys.readouterr().out.split())
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "client" in capsys.readouterr().out
    with pytest.raises(SystemExit) as wrong:
        main(["client"])
    assert wrong.value.code == 2


def settings(*arguments: str) -> dict[str, Any]:
    return connection_settings(client_parser(argparse.ArgumentParser, "client").parse_args([*arguments, "tail"]))


def test_channels_follow_from_the_endpoints() -> None:
    assert settings("--ingress", "0=a:1") == {
        "ingress_endpoints": "0=a:1",
        "ingress_channel": "aeron:udp",
        "egress_channel": "aeron:udp?endpoint=localhost:0",
    }
    assert settings("--ingress-channel", "aeron:ipc") == {
        "ingress_endpoints": None,
        "ingress_channel": "aeron:ipc",
        "egress_channel": "aeron:ipc",
    }
    with pytest.raises(ConfigurationError, match="no cluster is given: pass --ingress 0=host0:9010,1=host1:9010"):
        settings()
    with pytest.raises(ConfigurationError, match="ingress_endpoints must be None for an IPC ingress_channel: '0=a:1'"):
        ClientContext.from_environment(**settings("--ingress", "0=a:1", "--ingress-channel", "aeron:ipc"))


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("--ingress", "host0:9010", "'host0:9010' is not id=host:port: give the id and address of each member"),
        ("--ingress", "0=a:1,0=b:1", "'0=a:1,0=b:1' names member 0 twice"),
        ("--ingress-channel", "", "ingress_channel is not set: it must be a channel in ASCII, such as 'aeron:udp'"),
        ("--egress", "udp", "a channel must begin with 'aeron:', not 'udp'"),
    ],
)
def test_a_wrong_channel_is_refused_by_its_option(
    option: str, value: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        settings(option, value)
    assert end.value.code == 2
    errors = " ".join(capsys.readouterr().err.split())
    assert f"argument {option}: " in errors
    assert text in errors


def test_a_variable_of_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AERON_CLUSTER_EGRESS_CHANNEL", "aeron:udp?endpoint=b:0")
    assert "egress_channel" not in settings("--ingress", "0=a:1")
    monkeypatch.setenv("AERON_CLUSTER_INGRESS_ENDPOINTS", "0=c:1")
    assert ClientContext.from_environment(**settings()).ingress_endpoints == "0=c:1"
    assert settings()["ingress_channel"] == "aeron:udp"
    assert settings("--ingress-channel", "aeron:ipc")["ingress_endpoints"] is None
    monkeypatch.setenv("AERON_CLUSTER_INGRESS_CHANNEL", "aeron:ipc")
    assert ClientContext.from_environment(**settings("--ingress", "0=a:1")).ingress_channel == "aeron:udp"
    monkeypatch.delenv("AERON_CLUSTER_INGRESS_ENDPOINTS")
    monkeypatch.delenv("AERON_CLUSTER_EGRESS_CHANNEL")
    assert settings()["egress_channel"] == "aeron:ipc"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_one_line_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0.0, 0.15)
    monkeypatch.setattr("container.client.client_command.time.monotonic", lambda: next(clock))
    stream = Terminal()
    progress = Progress(stream)
    progress.show(lambda: "early")
    progress.show(lambda: "a longer text")
    progress.show(lambda: "short")
    progress.finish("done")
    assert stream.getvalue() in ("a longer text\rshort        \rdone \n", "a longer text\rdone         \n")


def test_progress_makes_room_for_other_text_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0.0, 1.0)
    monkeypatch.setattr("container.client.client_command.time.monotonic", lambda: next(clock))
    stream = Terminal()
    with Progress(stream) as progress:
        progress.show(lambda: "waiting")
        progress.clear()
        stream.write("answer\n")
        progress.clear()
        progress.show(lambda: "more")
    assert stream.getvalue() == "waiting\r       \ranswer\nmore\r    \r"


def test_progress_is_a_line_a_second_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0.0, 0.4)
    monkeypatch.setattr("container.client.client_command.time.monotonic", lambda: next(clock))
    stream = io.StringIO()
    progress = Progress(stream)
    for number in range(6):
        progress.show(lambda number=number: f"at {number}")  # type: ignore[misc]
    assert 1 <= len(stream.getvalue().splitlines()) <= 3
    assert "\r" not in stream.getvalue()
