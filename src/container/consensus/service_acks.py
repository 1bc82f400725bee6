"""Acknowledgements of services: that all of them have reached a position of the log. Upstream: ServiceAck.java."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from container.errors import ClusterError, ConfigurationError

MAX_WAITING = 1000
"""Acknowledgements of one service that wait. A service is one or two ahead of the consensus module at most."""


@dataclass(frozen=True, slots=True)
class ServiceAck:
    """One acknowledgement of a service; its ids count from 0, as those that the consensus module expects.

    ``relevant_id`` is the recording of a snapshot, or the service's client id with the first one; -1 for none.
    """

    service_id: int
    ack_id: int
    log_position: int
    relevant_id: int


class ServiceAckQueues:
    """Acknowledgements in the order in which they came, one queue for each service.

    An unexpected acknowledgement goes to ``on_error`` and is dropped. Upstream keeps it at the head of a queue, where
    it blocks every snapshot and election.
    """

    def __init__(self, service_count: int, on_error: Callable[[ClusterError], object]) -> None:
        if service_count < 0:
            raise ConfigurationError(f"service count {service_count}: give the number of services, 0 or more")
        self._queues = [deque[ServiceAck]() for _ in range(service_count)]
        self._on_error = on_error

    def append(self, ack: ServiceAck) -> None:
        """Keep one until all services have sent theirs; ClusterError when it is not of a service of this member."""
        if not 0 <= ack.service_id < len(self._queues):
            raise ClusterError(
                f"ack from serviceId={ack.service_id}, but this member has {len(self._queues)} service(s), from id 0 "
                "on: set aeron.cluster.service.count, or the service's aeron.cluster.service.id"
            )
        queue = self._queues[ack.service_id]
        queue.append(ack)
        if len(queue) > MAX_WAITING:
            self._on_error(
                ClusterError(
                    f"{MAX_WAITING} acks from serviceId={ack.service_id} wait for other services: {queue.popleft()} is "
                    "dropped; restart the service, and find out why it acknowledges more than it was asked for"
                )
            )

    def is_waiting(self, service_id: int) -> bool:
        """Does an acknowledgement of this service wait for those of others?"""
        return bool(self._queues[service_id])

    def has_reached(self, log_position: int, ack_id: int) -> bool:
        """Whether all services have acknowledged this position. Drops earlier acknowledgements."""
        for queue in self._queues:
            while queue and (queue[0].ack_id, queue[0].log_position) != (ack_id, log_position):
                ack = queue.popleft()
                self._on_error(
                    ClusterError(
                        f"ack out of sequence: expected [ackId={ack_id}, logPosition={log_position}] vs received "
                        f"[ackId={ack.ack_id}, logPosition={ack.log_position}, relevantId={ack.relevant_id}, "
                        f"serviceId={ack.service_id}]"
                    )
                )
        return all(self._queues)

    def remove_heads(self) -> None:
        """Drop the first one of each service that has one."""
        for queue in self._queues:
            if queue:
                queue.popleft()

    def poll_all(self) -> list[ServiceAck]:
        """Take the first one of each service, by service id; ClusterError, with none taken, when one is missing."""
        for service_id, queue in enumerate(self._queues):
            if not queue:
                raise ClusterError(f"invalid ack for serviceId={service_id}: there is none; ask has_reached() first")
        return [queue.popleft() for queue in self._queues]
