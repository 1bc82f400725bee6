"""A network of its own for the members of a cluster, whose hosts and links can be cut: network namespaces and a bridge.

Linux only, as root, with iproute2 (``ip``); :func:`unavailable_reason` says what is missing. Each host is a network
namespace with one address. A bridge in one more namespace connects them. Nothing of it can be reached from outside, nor
does anything of it reach outside: there are no routes but the network's own.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple, Self

from container.common import forks
from container.errors import ContainerError
from container.testing.processes.process import NAMESPACE_DIRECTORY, is_alive

_PREFIX = "aeron-test"
_NAME_PATTERN = re.compile(rf"{_PREFIX}-(\d+)-")
_COMMAND_LIMIT_S = 30
_HOSTS_MAX = 200


class NetworkError(ContainerError):
    """The network cannot be made or changed; the text holds the command and what it said."""


class Host(NamedTuple):
    """One host of a network: the namespace in which to run programs, and their address there."""

    name: str
    namespace: str
    address: str


def unavailable_reason() -> str | None:
    """Return why there can be no :class:`Network` on this machine, in one sentence; ``None`` when there can."""
    if not sys.platform.startswith("linux"):
        return f"network namespaces are a feature of Linux, and this is {sys.platform}"
    if shutil.which("ip") is None:
        return "there is no program ip: install iproute2 (apt install iproute2)"
    if os.geteuid() != 0:
        return f"making network namespaces needs root, and this is user {os.geteuid()}"
    try:
        Network(["probe"]).close()
    except NetworkError as error:
        return str(error)
    return None


class Network:
    """Hosts that reach each other and nothing else, until a host or link is cut. Ends with :meth:`close`."""

    def __init__(self, names: Sequence[str]) -> None:
        """Make the hosts.

        The remains of killed processes' networks are removed first.

        Raises:
            NetworkError: a command fails; what was made is removed.
        """
        if len(names) > _HOSTS_MAX:
            raise NetworkError(f"a network has at most {_HOSTS_MAX} hosts, not {len(names)}")
        _remove_leftovers()
        base = f"{_PREFIX}-{os.getpid()}-{secrets.token_hex(3)}"
        self._hub = f"{base}-hub"
        self._made: list[str] = []
        forks.own(self)
        self._ports = {name: f"port{number}" for number, name in enumerate(names)}
        self._macs = {name: _mac(number) for number, name in enumerate(names)}
        self._hosts = {
            name: Host(name, f"{base}-{number}", f"10.77.0.{number + 1}") for number, name in enumerate(names)
        }
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<Network of {', '.join(self._hosts)}>"

    def _make(self) -> None:
        self._make_namespace(self._hub)
        _batch(self._hub, ["link add bridge0 type bridge", "link set bridge0 up"])
        for name, host in self._hosts.items():
            self._make_namespace(host.namespace)
            port = self._ports[name]
            # The veth's far end is made right in the other namespace: the machine's own never sees it.
            _batch(
                self._hub,
                [
                    f"link add {port} type veth peer name eth0 address {self._macs[name]} netns {host.namespace}",
                    f"link set {port} master bridge0 up",
                ],
            )
            # Addresses are resolved by fixed entries: a host that is cut off gets no errors from ARP either.
            neighbours = [self._neighbour(other, self._macs[other.name]) for other in self._others(host)]
            _batch(
                host.namespace,
                ["link set lo up", f"address add {host.address}/24 dev eth0", "link set eth0 up", *neighbours],
            )

    def _others(self, host: Host) -> list[Host]:
        return [other for other in self._hosts.values() if other is not host]

    @staticmethod
    def _neighbour(host: Host, mac: str) -> str:
        return f"neighbour replace {host.address} lladdr {mac} dev eth0 nud permanent"

    def _make_namespace(self, namespace: str) -> None:
        _run(["ip", "netns", "add", namespace])
        self._made.append(namespace)

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def cut(self, name: str) -> None:
        """Let nothing pass to or from a host until :meth:`heal`.

        Every frame is dropped: no side sees a link go down or gets an error, as when a switch between them
        fails.

        Raises:
            NetworkError: the command fails.
        """
        _batch(self._hub, [f"link set {self._ports[name]} nomaster"])

    def heal(self, name: str) -> None:
        """Connect a host again.

        Raises:
            NetworkError: the command fails.
        """
        _batch(self._hub, [f"link set {self._ports[name]} master bridge0"])

    def cut_link(self, one: str, other: str) -> None:
        """Let nothing pass between two hosts until :meth:`heal_link`; both reach all the others.

        As silent as :meth:`cut`: each sends the other's frames to its own address, and the bridge drops them.

        Raises:
            NetworkError: the command fails.
        """
        self.cut_way(one, other)
        self.cut_way(other, one)

    def heal_link(self, one: str, other: str) -> None:
        """Connect two hosts again whose link was cut.

        Raises:
            NetworkError: the command fails.
        """
        self.heal_way(one, other)
        self.heal_way(other, one)

    def cut_way(self, sender: str, receiver: str) -> None:
        """Let nothing that a host sends reach another one, which still reaches it, until :meth:`heal_way`.

        Raises:
            NetworkError: the command fails.
        """
        _batch(self[sender].namespace, [self._neighbour(self[receiver], self._macs[sender])])

    def heal_way(self, sender: str, receiver: str) -> None:
        """Let what a host sends reach another one again.

        Raises:
            NetworkError: the command fails.
        """
        _batch(self[sender].namespace, [self._neighbour(self[receiver], self._macs[receiver])])

    def _disown(self, _process_id: int) -> None:
        """In a forked child: the hosts are the parent's to remove."""
        self._made = []

    def close(self) -> None:
        """Remove the hosts; end the programs on them first. May be called again."""
        while self._made:
            _run(["ip", "netns", "delete", self._made.pop()], check=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _mac(number: int) -> str:
    return f"02:00:00:00:00:{number + 1:02x}"


def _batch(namespace: str, commands: Sequence[str]) -> None:
    _run(["ip", "-netns", namespace, "-batch", "-"], "\n".join(commands))


def _run(command: Sequence[str], text: str = "", *, check: bool = True) -> None:
    try:
        result = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=_COMMAND_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NetworkError(f"{' '.join(command)}: {error}") from error
    if check and result.returncode != 0:
        said = result.stderr.strip() or f"ended with {result.returncode}"
        raise NetworkError(f"{' '.join(command)}: {said}" + (f"\n{text}" if text else ""))


def _remove_leftovers() -> None:
    if not NAMESPACE_DIRECTORY.is_dir():
        return
    for path in NAMESPACE_DIRECTORY.iterdir():
        found = _NAME_PATTERN.match(path.name)
        if found and not is_alive(int(found.group(1))):
            _run(["ip", "netns", "delete", path.name], check=False)
