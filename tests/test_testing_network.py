"""Networks of namespaces: hosts reach each other, a host that is cut off is not reached, nothing is left behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from container.testing.processes import network as network_module
from container.testing.processes.network import Network, NetworkError, unavailable_reason
from container.testing.processes.process import NAMESPACE_DIRECTORY, Process
from tests.limits import LIMIT_S

PORT = 20_000
# Sends a line of its input as a datagram; prints each datagram that it gets.
SENDER = (
    "import socket, sys\ns = socket.socket(type=socket.SOCK_DGRAM)\nfor line in sys.stdin: s.sendto(line.encode(), {})"
)
RECEIVER = (
    "import socket\ns = socket.socket(type=socket.SOCK_DGRAM)\ns.bind({})\nprint('bound', flush=True)\n"
    "while True: print(s.recv(100).decode(), end='', flush=True)"
)

REASON = unavailable_reason()
needs_namespaces = pytest.mark.skipif(REASON is not None, reason=f"no network can be cut here: {REASON}")


@pytest.fixture
def network() -> Iterator[Network]:
    with Network(["one", "two"]) as made:
        yield made


def program(network: Network, host: str, code: str, directory: Path) -> Process:
    """A Python program on a host, started."""
    command = [sys.executable, "-c", code]
    return Process(host, command, directory=directory, network_namespace=network[host].namespace).start()


@needs_namespaces
def test_hosts_reach_each_other_unless_one_is_cut_off(network: Network, tmp_path: Path) -> None:
    address = (network["two"].address, PORT)
    with (
        program(network, "two", RECEIVER.format(address), tmp_path) as receiver,
        program(network, "one", SENDER.format(address), tmp_path) as sender,
    ):
        assert receiver.read_line(LIMIT_S) == "bound"
        sender.write_line("before")
        assert receiver.read_line(LIMIT_S) == "before"
        network.cut("two")
        sender.write_line("lost")
        with pytest.raises(TimeoutError):
            receiver.read_line(0.3)
        network.heal("two")
        sender.write_line("after")
        assert receiver.read_line(LIMIT_S) == "after", "what was sent meanwhile is lost, and nobody got an error"
        assert sender.is_running


@needs_namespaces
def test_a_link_is_cut_while_both_hosts_reach_a_third(tmp_path: Path) -> None:
    names = ["one", "two", "three"]
    with Network(names) as network, ExitStack() as stack:
        addresses = {name: (network[name].address, PORT) for name in names}
        receivers = {
            name: stack.enter_context(program(network, name, RECEIVER.format(addresses[name]), tmp_path))
            for name in names
        }
        for each in receivers.values():
            assert each.read_line(LIMIT_S) == "bound"

        def is_heard(sender: str, receiver: str, limit_s: float) -> bool:
            code = SENDER.format(addresses[receiver])
            (tmp_path / sender).mkdir(exist_ok=True)
            with program(network, sender, code, tmp_path / sender) as sending:
                sending.write_line(f"from {sender}")
                try:
                    return receivers[receiver].read_line(limit_s) == f"from {sender}"
                except TimeoutError:
                    return False

        network.cut_link("one", "two")
        assert not is_heard("one", "two", 0.5)
        assert not is_heard("two", "one", 0.5)
        for sender, receiver in (("one", "three"), ("three", "one"), ("two", "three"), ("three", "two")):
            assert is_heard(sender, receiver, LIMIT_S), f"{sender} to {receiver}"
        network.heal_link("one", "two")
        assert is_heard("one", "two", LIMIT_S)
        assert is_heard("two", "one", LIMIT_S)
        network.cut_way("one", "two")
        assert not is_heard("one", "two", 0.5)
        assert is_heard("two", "one", LIMIT_S)
        network.heal_way("one", "two")
        assert is_heard("one", "two", LIMIT_S)


@needs_namespaces
def test_a_host_reaches_nothing_but_its_network(network: Network, tmp_path: Path) -> None:
    code = "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 9))"
    with program(network, "one", code, tmp_path) as outsider:
        assert outsider.wait(LIMIT_S) == 1
        assert "Network is unreachable" in outsider.errors()


@needs_namespaces
def test_closing_removes_the_namespaces() -> None:
    network = Network(["alone"])
    path = NAMESPACE_DIRECTORY / network["alone"].namespace
    assert path.exists()
    network.close()
    network.close()
    assert not path.exists()


@needs_namespaces
def test_what_a_killed_process_left_is_removed() -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    leftover = f"aeron-test-{dead.pid}-abcdef-0"
    subprocess.run(["ip", "netns", "add", leftover], check=True)
    Network(["alone"]).close()
    assert not (NAMESPACE_DIRECTORY / leftover).exists()


@needs_namespaces
def test_a_command_that_fails_is_told_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_module, "_mac", lambda _number: "not-a-mac")
    before = set(NAMESPACE_DIRECTORY.iterdir()) if NAMESPACE_DIRECTORY.exists() else set()
    with pytest.raises(NetworkError, match=r'ip -netns aeron-test-\S+ -batch -: .*"?not-a-mac'):
        Network(["one"])
    assert set(NAMESPACE_DIRECTORY.iterdir()) == before


def test_why_there_can_be_no_network_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    assert unavailable_reason() == "there is no program ip: install iproute2 (apt install iproute2)"
    monkeypatch.setattr(shutil, "which", lambda name: f"/sbin/{name}")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert unavailable_reason() == "making network namespaces needs root, and this is user 1000"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert unavailable_reason() == "network namespaces are a feature of Linux, and this is darwin"


def test_a_network_has_room_for_so_many_hosts() -> None:
    with pytest.raises(NetworkError, match="a network has at most 200 hosts, not 201"):
        Network([str(number) for number in range(201)])
