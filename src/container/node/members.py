"""The members of a node's cluster: which there are, where each is reached, and which of them this node is.

They are given as ``node.toml`` has them: a table for each, with its id, and host and port or five endpoints by name.
Errors name the wrong value, before anything starts.
"""

from __future__ import annotations

import errno
import json
import os
import re
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from container.common.error_texts import message_of
from container.common.regular_files import read_regular
from container.common.values import (
    counted,
    host_of_endpoint,
    shown,
    shown_path,
    suggestion,
    whole_number,
    without_brackets,
)
from container.errors import ClusterError, ConfigurationError

PORT = 9010
"""The port for clients when none is given; the four after it are those for the other endpoints of the member."""

PORT_COUNT = 5
ENDPOINTS = ("ingress", "consensus", "log", "catchup", "archive")
"""The endpoints of a member, in the order of its ports and of upstream's ``aeron.cluster.members``."""

NOTE_NAME = "node-members.json"
"""The file in a node's directory that has the ids of the members with which it was last started."""

_PORT_MAX = 65_535
_ID_MAX = 0x7FFF_FFFF
_NOTE_LENGTH_MAX = 64 * 1024
_HOST = re.compile(r"[^\s,|?=\0]+")  # these divide lists and texts of channels
_KEYS = ("id", "host", "port", *ENDPOINTS)
_EXAMPLE = '{id = 0, host = "node0", port = 9010}'
_HELP = f"docs/deployment.md; the keys are {', '.join(_KEYS)}"


class Member(NamedTuple):
    """One member: its id, and its endpoints (``host:port``) in the order of :data:`ENDPOINTS`."""

    id: int
    endpoints: tuple[str, ...]

    @property
    def ingress(self) -> str:
        """Where clients reach it."""
        return self.endpoints[0]

    @property
    def archive(self) -> str:
        """Where its archive takes requests."""
        return self.endpoints[4]

    @property
    def any_port(self) -> str:
        """An endpoint on the host to which the log is sent, with a port that the system chooses."""
        return f"{self.endpoints[3].rpartition(':')[0]}:0"


class Membership(NamedTuple):
    """All members of a cluster, and the one that a node is."""

    own: Member
    members: tuple[Member, ...]

    @classmethod
    def of_one(cls, host: str, port: int) -> Self:
        """A cluster of one member, by its host and the first of its ports. Raises ConfigurationError for invalid
        ones."""
        own = Member(0, _row(host, port))
        return cls(own, (own,))

    @classmethod
    def of_several(cls, members: object, member_id: object) -> Self:
        """The members as they are given, and which of them the node is.

        Args:
            members: a sequence with a mapping for each: ``id``; and ``host`` with ``port``, 9010 by default, or
                ``ingress``, ``consensus``, ``log``, ``catchup`` and ``archive``, each ``host:port``.
            member_id: the node's own; None only where there is one member.

        Raises:
            ConfigurationError: something of it is wrong; the text names it.
        """
        if not isinstance(members, Sequence) or isinstance(members, str | bytes) or not members:
            raise ConfigurationError(f"members={shown(members)}: must be a list of members, such as {_EXAMPLE}")
        found = tuple(_member(each) for each in members)
        ids = [each.id for each in found]
        for each in ids:
            if ids.count(each) > 1:
                raise ConfigurationError(f"members: the id {each} is given twice: give each member an id of its own")
        _check_distinct(found)
        known = _listed(ids)
        if member_id is None and len(found) == 1:
            return cls(found[0], found)
        if member_id is None:
            raise ConfigurationError(f"member_id must be given: which of the members {known} this node is")
        own = next((each for each in found if type(member_id) is int and each.id == member_id), None)
        if own is None:
            raise ConfigurationError(
                f"member_id={shown(member_id)}: is not an id of members, which are {known}: give one of them, or add it"
            )
        return cls(own, found)

    @property
    def is_one(self) -> bool:
        """Whether there is no other member."""
        return len(self.members) == 1

    @property
    def ids(self) -> str:
        """The ids of all, for a text."""
        return _listed([each.id for each in self.members])

    @property
    def cluster_members(self) -> str:
        """The members as the setting ``cluster_members`` has them."""
        return "|".join(f"{each.id},{','.join(each.endpoints)}" for each in self.members)

    @property
    def ingress_endpoints(self) -> str:
        """Where clients of the network reach the members: ``0=host:port,1=host:port``."""
        return ",".join(f"{each.id}={each.ingress}" for each in self.members)

    def check_ports(self) -> None:
        """Raise ClusterError when an endpoint of the node's own cannot be had now; a later start may have it."""
        for name, endpoint in zip(ENDPOINTS, self.own.endpoints, strict=True):
            host, _, port = endpoint.rpartition(":")
            where = f"members: {name}={shown(endpoint)} of this node, member {self.own.id}"
            _check_port(host, int(port), where, "give this member another port")

    def check_directory(self, directory: Path) -> None:
        """Raise ConfigurationError when a directory has the log of another member, or of a cluster of others."""
        if (marked := directory / "cluster").exists() and (owner := _marked_owner(marked)) not in (None, self.own.id):
            raise ConfigurationError(
                f"member_id={self.own.id}: {directory} has the log of member {owner}, by its mark file: "
                f"give member_id = {owner}, or another directory"
            )
        noted = _noted(directory / NOTE_NAME) if _has_recordings(directory / "archive") else None
        ids = sorted(each.id for each in self.members)
        if noted is not None and noted != ids:
            raise ConfigurationError(
                f"members: the ids are {_listed(ids)}, and the log in {directory} is of a cluster of "
                f"{_listed(noted)}: members that never had it could lead, and what was committed would be lost. Give "
                f"the members that it had; docs/deployment.md has how to change them"
            )

    def note(self, directory: Path) -> None:
        """Note in a node's directory of which members its log is. Raise OSError when that cannot be written."""
        content = json.dumps({"members": sorted(each.id for each in self.members)}) + "\n"
        path = directory / NOTE_NAME
        with suppress(OSError, ValueError):
            if read_regular(path, _NOTE_LENGTH_MAX).decode() == content:
                return
        path.write_text(content, encoding="utf-8")


def check_size(directory: Path, members: int, *, is_apart: bool, option: str, other: str) -> None:
    """Refuse a directory that holds a cluster of another size: the new one would begin empty beside it.

    Args:
        directory: where the cluster is to run; it need not exist.
        members: number of members of the cluster that is to start.
        is_apart: whether each has a directory of its own in it, ``member-0`` and so on.
        option, other: how the caller gives the number, such as ``--members ``, and another directory.

    Raises:
        ConfigurationError: it holds a cluster of another size.
    """
    where = shown_path(os.fspath(directory))[1:-1]
    found = sorted(each.parent for each in directory.glob("member-*/archive") if _has_recordings(each))
    if found:
        held = max(len(_noted(each / NOTE_NAME) or found) for each in found)
        if not is_apart or held != members:
            fix = f"give {option}{held}, or {other}" if held > 1 else f"give {other}"
            what = f"{counted(held, 'member')} ({found[0].name}{' …' if held > 1 else ''})"
            raise ConfigurationError(f"{where} holds a cluster of {what}: {fix}")
    if is_apart and _has_recordings(directory / "archive"):
        raise ConfigurationError(
            f"{where} holds a cluster of 1 member, which has no directory of its own in it: give {other}"
            + (f", or {option}1" if option.startswith("-") else "")
        )


def _listed(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))


def _marked_owner(cluster_dir: Path) -> int | None:
    """The member whose consensus module left a mark file; None where there is none, or none that says it."""
    from container.operate.answers import NoFactsError  # a new directory does not need what reads mark files
    from container.operate.marks import read_cluster_mark

    try:
        mark = read_cluster_mark(cluster_dir)
    except NoFactsError:
        return None
    return mark.member_id if mark.component == "CONSENSUS_MODULE" else None


def _has_recordings(archive_dir: Path) -> bool:
    """Whether an archive has recorded anything: a start that failed, or that found no others, leaves no log."""
    return any(archive_dir.glob("*.rec"))


def _noted(path: Path) -> list[int] | None:
    """The ids in a note; None where there is none, or nothing that can be read."""
    try:
        found = json.loads(read_regular(path, _NOTE_LENGTH_MAX))["members"]
        return sorted(int(each) for each in found)
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return None


def _row(host: object, port: object, where: str = "") -> tuple[str, ...]:
    """The endpoints on a host, from a port on."""
    if type(port) is not int or not 0 < port <= _PORT_MAX - PORT_COUNT + 1:
        raise ConfigurationError(
            f"{where}port={shown(port)}: must be a whole number from 1 to {_PORT_MAX - PORT_COUNT + 1}: the "
            f"{PORT_COUNT - 1} ports after it are used as well"
        )
    if not isinstance(host, str) or not _HOST.fullmatch(host):
        raise ConfigurationError(f"{where}host={shown(host)}: must be a name or an address of {_whose(where)}")
    name = host_of_endpoint(host)
    return tuple(f"{name}:{each}" for each in range(port, port + PORT_COUNT))


def _whose(where: str) -> str:
    return "its machine" if where else "this machine"


def _member(given: object) -> Member:
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"members: {shown(given)}: must be a table, such as {_EXAMPLE}")
    member_id = given.get("id")
    if type(member_id) is not int or not 0 <= member_id <= _ID_MAX:
        raise ConfigurationError(f"members: id={shown(member_id)} of {shown(given)}: must be a whole number, 0 or more")
    where = f"members: member {member_id}: "
    for key in given:
        if key not in _KEYS:
            raise ConfigurationError(f"{where}unknown key {shown(key)}: {suggestion(key, _KEYS, _HELP)}")
    named = [name for name in ENDPOINTS if name in given]
    if not named:
        if "host" not in given:
            raise ConfigurationError(f"{where}host must be given, the name or an address of its machine")
        return Member(member_id, _row(given["host"], given.get("port", PORT), where))
    for name in ("host", "port"):
        if name in given:
            raise ConfigurationError(
                f"{where}leave out {name}={shown(given[name])}: {', '.join(named)} decide{'s' * (len(named) == 1)}"
            )
    missing = [name for name in ENDPOINTS if name not in given]
    if missing:
        raise ConfigurationError(
            f"{where}{', '.join(missing)} must be given as well, each as host:port; or give host and port alone"
        )
    return Member(member_id, tuple(_endpoint(given[name], f"{where}{name}") for name in ENDPOINTS))


def _endpoint(given: object, where: str) -> str:
    text = given if isinstance(given, str) else ""
    host, _, port = text.rpartition(":")
    number = whole_number(port)
    if not _HOST.fullmatch(host) or not port.isdigit() or number is None or not 0 < number <= _PORT_MAX:
        raise ConfigurationError(f"{where}={shown(given)}: must be host:port, such as node0:9010")
    return f"{host_of_endpoint(host)}:{number}"


def _check_distinct(members: Sequence[Member]) -> None:
    """Raise ConfigurationError where two endpoints are the same, of one member or of two."""
    owners: dict[str, str] = {}
    for member in members:
        for name, endpoint in zip(ENDPOINTS, member.endpoints, strict=True):
            owner = f"{name} of member {member.id}"
            other = owners.setdefault(endpoint.casefold(), owner)
            if other != owner:
                raise ConfigurationError(
                    f"members: {endpoint} is {other} and {owner}: members on one host need ports of their own; "
                    f"port takes {PORT_COUNT} in a row"
                )


def check_ports(host: str, port: int) -> None:
    """Raise ConfigurationError for what is not a host or port, and ClusterError when the ports cannot be had now.

    A later start may have them: a name server answers again, or another process has ended.
    """
    for endpoint in Membership.of_one(host, port).own.endpoints:
        number = int(endpoint.rpartition(":")[2])
        fix = f"give another port, with {PORT_COUNT - 1} free ones after it"
        _check_port(host, number, f"host={shown(host)} port={port}", fix)


def _check_port(host: str, port: int, where: str, fix: str) -> None:
    try:
        family, kind, protocol, _name, address = socket.getaddrinfo(
            without_brackets(host), port, type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind, protocol) as taken:
            taken.bind(address)
    except ValueError as error:
        raise ConfigurationError(f"host={shown(host)}: is not a name of a host: {message_of(error)}") from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            fix = f"end the process that has it, or {fix}"
        elif error.errno == errno.EACCES:
            fix = "give a port from 1024 on"
        else:
            fix = "give a name or an address of this machine"
        raise ClusterError(f"{where}: UDP port {port} cannot be had: {error.strerror}; {fix}") from error


def members_given(members: Any, member_id: Any, host: str | None, port: int | None) -> Membership:
    """The members that a node is given: a list of them, or its own host and port.

    Raises:
        ConfigurationError: something of it is wrong, or both are given.
        ClusterError: a port of the node's own cannot be had now.
    """
    if members is None:
        if member_id is not None:
            raise ConfigurationError(f"member_id={shown(member_id)}: give members as well, or leave it out")
        one_host, one_port = "localhost" if host is None else host, PORT if port is None else port
        check_ports(one_host, one_port)
        return Membership.of_one(one_host, one_port)
    for name, value in (("host", host), ("port", port)):
        if value is not None:
            raise ConfigurationError(f"{name}={shown(value)}: leave it out: members has it")
    found = Membership.of_several(members, member_id)
    found.check_ports()
    return found
