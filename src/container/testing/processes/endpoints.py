"""Where the members of a cluster listen: free ports of this machine, and upstream's strings for them."""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from container.errors import ContainerError

HOST = "127.0.0.1"
MEMBER_COUNTS = (1, 3, 5, 7)

PORTS_APART = 10
"""Between the first ports of two members of one host."""

# Below the range from which systems choose ports themselves, as for an egress endpoint with port 0.
_PORT_MIN, _PORT_MAX = 20_000, 32_000
_ATTEMPTS_MAX = 10_000


class PortReservation:
    """Takes UDP ports of this machine that no other reservation, of any process, takes meanwhile.

    Each port is held by a TCP socket bound to the same number. That leaves the UDP side to the media driver,
    and the system gives the port back whatever happens to this process.
    """

    def __init__(self, host: str = HOST) -> None:
        """Reserve ports of an address of this machine, such as 127.0.0.2 where that is one (Linux)."""
        self.host = host
        self._held: list[socket.socket] = []

    def take(self) -> int:
        """Return a port that is free for UDP and TCP.

        Raises:
            ContainerError: none was found.
        """
        for _attempt in range(_ATTEMPTS_MAX):
            port = random.randrange(_PORT_MIN, _PORT_MAX)
            if self._hold(port):
                return port
        raise ContainerError(
            f"no free UDP port in {_PORT_MIN}..{_PORT_MAX - 1} on {self.host} after {_ATTEMPTS_MAX} attempts"
        )

    def take_row(self, count: int) -> int:
        """Return the first of ``count`` ports in a row that are free for UDP and TCP.

        Raises:
            ContainerError: none was found.
        """
        for _attempt in range(_ATTEMPTS_MAX):
            first = random.randrange(_PORT_MIN, _PORT_MAX - count)
            if all(self._hold(port) for port in range(first, first + count)):
                return first
        raise ContainerError(f"no {count} free UDP ports in a row on {self.host} after {_ATTEMPTS_MAX} attempts")

    def _hold(self, port: int) -> bool:
        tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            tcp.bind((self.host, port))
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
                udp.bind((self.host, port))
        except OSError:
            tcp.close()
            return False
        self._held.append(tcp)
        return True

    def close(self) -> None:
        """Give all ports back; may be called again."""
        for held in self._held:
            held.close()
        self._held.clear()


@dataclass(frozen=True)
class MemberEndpoints:
    """Where one member listens; every endpoint is ``host:port``."""

    member_id: int
    ingress: str
    consensus: str
    log: str
    catchup: str
    archive: str

    @classmethod
    def take(cls, member_id: int, ports: PortReservation) -> Self:
        """Return endpoints on this machine with reserved ports."""
        return cls(member_id, *(f"{ports.host}:{ports.take()}" for _endpoint in range(5)))

    @classmethod
    def row(cls, member_id: int, host: str, port: int) -> Self:
        """Return endpoints with a port and the four after it."""
        return cls(member_id, *(f"{host}:{port + number}" for number in range(5)))

    @classmethod
    def fixed(cls, member_id: int, host: str) -> Self:
        """Return endpoints on an address that nobody else uses, such as one in a network namespace."""
        return cls(member_id, *(f"{host}:{_PORT_MIN + number}" for number in range(5)))

    @property
    def host(self) -> str:
        """The address on which the member listens for clients."""
        return self.ingress.rpartition(":")[0]


def members_string(members: Sequence[MemberEndpoints]) -> str:
    """Return the value of ``aeron.cluster.members``."""
    return "|".join(",".join((str(m.member_id), m.ingress, m.consensus, m.log, m.catchup, m.archive)) for m in members)


def ingress_endpoints(members: Sequence[MemberEndpoints]) -> str:
    """Return the value of a client's ``aeron.cluster.ingress.endpoints``."""
    return ",".join(f"{member.member_id}={member.ingress}" for member in members)
