"""Members with several services: further replicas of the ledger, which pass each other's relays on to the cluster.

Service 0 is the ledger that answers clients. Each of the others, always Python, keeps the same state from the same log,
and sends on what the service before it has sent. So a relay goes round: service 0 sends it, it comes back to all, then
service 1 sends it, and so on. All of these are expected by all services, each once. As all replicas apply the same
events, they must agree in every hash, digest and snapshot, over services as well as over members.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from container.testing.processes.local_cluster import JavaService, LocalCluster, LocalMember, Service
from tests.soak.ledger import JOURNAL_RECORD, JournalRecord, suffix

MAX_SERVICE_COUNT = 3

# What our container writes into its error log when another service of its node has died, and the consensus module ends
# because of that.
EXPECTED_ERRORS = (
    r"AeronEvent: WARN - commit-pos counter unexpectedly closed, terminating",
    r"ClusterEvent: WARN - service terminate: logPosition=\d+, and the consensus module ends by itself",
    r"ClusterTermination: ERROR - unexpected termination",
)

_MODULE_SNAPSHOT = -1
_MARK_FILE = re.compile(r"cluster-mark-service-(\d+)\.dat")
_MISSED = re.compile(r"Follower has missed \d+ service message")

# Messages of a consensus module's snapshot: header, next and logged session id of a service, capacity, service id;
# header, leadership term id, session id of the service's message, timestamp.
_SCHEMA_ID = 111
_HEADER = struct.Struct("<HHHH")
_TRACKER_ID, _TRACKER = 107, struct.Struct("<qqii")
_MESSAGE_ID, _MESSAGE = 1, struct.Struct("<qqq")


def with_further(first: Service | JavaService, further: Service, count: int) -> list[Service | JavaService]:
    """The services of a member: ``first``, and ``further`` until there are ``count``; each is told how many."""
    told = {"TEST_SERVICE_COUNT": str(count)}
    if isinstance(first, Service):
        first = replace(first, environment={**first.environment, **told})
    else:
        first = replace(first, properties={**first.properties, "test.service.count": str(count)})
    others = {**further.environment, **told, "AERON_CLUSTER_SERVICE_RESPONDER": "false"}
    return [first, *(replace(further, environment=others) for _service in range(1, count))]


def journals(member_dir: Path, service_id: int = 0) -> list[Path]:
    """The journals of a service of a member, in the order of its starts."""
    return sorted((member_dir / f"journal{suffix(service_id)}").glob("*.bin"), key=lambda path: int(path.stem))


def log_position(member: LocalMember, service_id: int = 0) -> int:
    """The position of the log to which the latest start of a service has come, -1 when it has none yet."""
    paths = journals(member.node.base_dir, service_id)
    if not paths:
        return -1
    with paths[-1].open("rb") as file:
        count = os.fstat(file.fileno()).st_size // JOURNAL_RECORD.size
        if count == 0:
            return -1
        file.seek((count - 1) * JOURNAL_RECORD.size)
        return JournalRecord._make(JOURNAL_RECORD.unpack(file.read(JOURNAL_RECORD.size))).position


def is_ours(mark_file_name: str, *, is_java: bool) -> bool:
    """Whether a mark file is that of a container of ours, on a member whose service 0 may be Java's."""
    found = _MARK_FILE.fullmatch(mark_file_name)
    return found is not None and not (is_java and found[1] == "0")


class Pending(NamedTuple):
    """What a consensus module's snapshot holds of a service: numbers of its messages, and those not in the log yet."""

    next_session_id: int
    logged_session_id: int
    messages: list[bytes]


def pending_messages(member: LocalMember) -> dict[int, Pending]:
    """The messages to the cluster that were not in the log at the latest snapshot of a member, by service id."""
    found: dict[int, Pending] = {}
    for message in member.node.snapshot_messages(_MODULE_SNAPSHOT):
        _block_length, template_id, schema_id, _version = _HEADER.unpack_from(message)
        assert schema_id == _SCHEMA_ID, f"message of schema {schema_id} in the snapshot of {member}"
        if template_id == _TRACKER_ID:
            next_id, logged_id, _capacity, service_id = _TRACKER.unpack_from(message, _HEADER.size)
            found[service_id] = Pending(next_id, logged_id, [])
        elif template_id == _MESSAGE_ID:
            _term_id, session_id, _timestamp = _MESSAGE.unpack_from(message, _HEADER.size)
            found[session_id >> 56 & 0x7F].messages.append(message[_HEADER.size + _MESSAGE.size :])
    return found


def check_pending(cluster: LocalCluster) -> dict[int, Pending]:
    """Compares what all members' consensus modules had of all services at the latest snapshot, and returns it.

    Each counts what its own services sent, so they differ when a container has sent too little or too much.
    """
    pending = {member.member_id: pending_messages(member) for member in cluster.members}
    expected = pending[0]
    for member_id, found in pending.items():
        assert found == expected, f"service messages at the snapshot of member {member_id}: {found}, of 0: {expected}"
    return expected


def missed_messages(texts: Iterable[str]) -> list[str]:
    """Those error texts of consensus modules that tell of messages which a service has not sent."""
    return [text for text in texts if _MISSED.search(text)]
