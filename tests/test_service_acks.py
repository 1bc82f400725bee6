"""Acknowledgements of services: when all have reached a position, and what is refused."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from container.consensus.service_acks import MAX_WAITING, ServiceAck, ServiceAckQueues
from container.errors import ClusterError, ConfigurationError


class Queues(ServiceAckQueues):
    """They keep the texts of what they report."""

    def __init__(self, service_count: int) -> None:
        self.texts: list[str] = []
        super().__init__(service_count, lambda error: self.texts.append(str(error)))


def filled(*acks: ServiceAck, services: int = 2) -> Queues:
    queues = Queues(services)
    for ack in acks:
        queues.append(ack)
    return queues


def test_a_position_is_reached_when_all_services_have_acknowledged_it() -> None:
    queues = filled()
    assert not queues.has_reached(1024, 7)
    queues.append(ServiceAck(1, 7, 1024, -1))
    assert not queues.has_reached(1024, 7)
    queues.append(ServiceAck(0, 7, 1024, 55))
    assert queues.has_reached(1024, 7)
    assert queues.has_reached(1024, 7), "asking takes nothing"
    assert queues.poll_all() == [ServiceAck(0, 7, 1024, 55), ServiceAck(1, 7, 1024, -1)]
    assert not queues.has_reached(1024, 7)


def test_a_member_without_services_has_reached_everything() -> None:
    queues = Queues(0)
    assert queues.has_reached(0, 0)
    assert queues.poll_all() == []
    queues.remove_heads()


@pytest.mark.parametrize("ack", [ServiceAck(0, 8, 1024, 5), ServiceAck(0, 6, 1024, 5), ServiceAck(0, 7, 992, 5)])
def test_an_ack_out_of_sequence_is_reported_and_dropped(ack: ServiceAck) -> None:
    queues = filled(ack, ServiceAck(1, 7, 1024, -1))
    text = (
        f"ack out of sequence: expected [ackId=7, logPosition=1024] vs received [ackId={ack.ack_id}, "
        f"logPosition={ack.log_position}, relevantId=5, serviceId=0]"
    )
    for _ in range(2):
        assert not queues.has_reached(1024, 7)
        assert queues.texts == [text]
    queues.append(ack)
    queues.append(ServiceAck(0, 7, 1024, 5))
    assert queues.has_reached(1024, 7)
    assert queues.texts == [text, text]


def test_only_the_first_ack_of_a_service_counts() -> None:
    queues = filled(ServiceAck(0, 7, 1024, -1), ServiceAck(0, 8, 2048, -1), ServiceAck(1, 7, 1024, -1))
    assert queues.has_reached(1024, 7)
    queues.remove_heads()
    assert not queues.has_reached(2048, 8)
    queues.append(ServiceAck(1, 8, 2048, -1))
    assert queues.has_reached(2048, 8)


def test_the_first_ones_are_removed_of_those_that_have_one() -> None:
    queues = filled(ServiceAck(0, 7, 1024, -1))
    queues.remove_heads()
    queues.append(ServiceAck(0, 8, 2048, -1))
    queues.append(ServiceAck(1, 8, 2048, -1))
    assert queues.has_reached(2048, 8)


def test_none_is_taken_when_one_is_missing() -> None:
    queues = filled(ServiceAck(0, 7, 1024, -1))
    with pytest.raises(ClusterError, match="invalid ack for serviceId=1: there is none"):
        queues.poll_all()
    queues.append(ServiceAck(1, 7, 1024, -1))
    assert [ack.service_id for ack in queues.poll_all()] == [0, 1]


@pytest.mark.parametrize("service_id", [-1, 2, 2**31 - 1])
def test_an_ack_of_a_service_that_is_none_of_this_member(service_id: int) -> None:
    text = f"ack from serviceId={service_id}, but this member has 2 service.s., from id 0 on: set aeron.cluster.service"
    with pytest.raises(ClusterError, match=text):
        filled(ServiceAck(service_id, 0, 0, -1))


def test_of_a_service_that_floods_the_last_acks_are_kept() -> None:
    queues = filled(*(ServiceAck(0, number, 0, -1) for number in range(MAX_WAITING)))
    assert queues.texts == []
    queues.append(ServiceAck(0, MAX_WAITING, 0, -1))
    [text] = queues.texts
    assert re.search(f"{MAX_WAITING} acks from serviceId=0 wait .*ack_id=0, .* is dropped; restart", text)
    queues.append(ServiceAck(1, 1, 0, -1))
    assert queues.has_reached(0, 1)


def test_a_count_of_services_is_not_negative() -> None:
    with pytest.raises(ConfigurationError, match="service count -1: give"):
        Queues(-1)


def test_an_ack_does_not_change() -> None:
    ack = ServiceAck(0, 7, 1024, -1)
    with pytest.raises(FrozenInstanceError):
        ack.ack_id = 8  # type: ignore[misc]
    assert not hasattr(ack, "__dict__")


@settings(max_examples=100)
@given(st.integers(1, 4), st.data())
def test_services_that_run_ahead_are_waited_for(services: int, data: st.DataObject) -> None:
    """Each service acknowledges the same positions in its own time."""
    queues, sent, reached = Queues(services), [0] * services, 0
    for service_id in data.draw(st.lists(st.integers(0, services - 1), max_size=60)):
        queues.append(ServiceAck(service_id, sent[service_id], sent[service_id] * 32, service_id))
        sent[service_id] += 1
        assert queues.has_reached(reached * 32, reached) == (min(sent) > reached)
        if min(sent) > reached:
            assert queues.poll_all() == [ServiceAck(each, reached, reached * 32, each) for each in range(services)]
            reached += 1
    assert queues.texts == []
