"""What ends many requests costs each of them the same, however many there are."""

from __future__ import annotations

import pytest

from tests.requests_in_flight import KINDS

FEW, MANY = 1_000, 10_000
GROWTH = 5  # of the processor time of each; what grows with the square would have 10


@pytest.mark.parametrize("kind", KINDS)
def test_each_of_10_000_requests_costs_what_each_of_1_000_does(kind: str) -> None:
    measure = KINDS[kind]
    few = min(measure(FEW) for _ in range(5)) / FEW
    many = min(measure(MANY) for _ in range(3)) / MANY
    assert many < GROWTH * few
