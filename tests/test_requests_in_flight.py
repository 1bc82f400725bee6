"""What ends many requests costs each of them the same, however many there are."""

from __future__ import annotations

import pytest

from container.api import BACK_PRESSURED
from container.errors import SendTimedOutError
from tests.client_world import ENDPOINTS, MEMBER_0, World
from tests.ingress_member import IngressMember
from tests.requests_in_flight import KINDS, client_of


def test_a_message_that_a_connected_session_does_not_take_says_what_it_waited_for() -> None:
    world = World()
    IngressMember(world.driver, 0, MEMBER_0)
    with client_of(world, 10) as client:
        assert client.cluster is not None
        session_id = client.cluster.cluster_session_id
        world.driver.publication_results(MEMBER_0, 101, [BACK_PRESSURED] * 10_000)
        with pytest.raises(SendTimedOutError) as late:
            client.send(b"x", timeout=0.5)
    words = f"session {session_id} is there, in state CONNECTED, and member 0"
    where = f"({ENDPOINTS}) took nothing: it stands still, is gone or cannot keep up."
    assert f"message was not accepted within 0.5 s: {words} {where}" in str(late.value)


FEW, MANY = 1_000, 10_000
GROWTH = 5  # of the processor time of each; what grows with the square would have 10


@pytest.mark.parametrize("kind", KINDS)
def test_each_of_10_000_requests_costs_what_each_of_1_000_does(kind: str) -> None:
    measure = KINDS[kind]
    few = min(measure(FEW) for _ in range(5)) / FEW
    many = min(measure(MANY) for _ in range(3)) / MANY
    assert many < GROWTH * few
