"""Native members under random faults: kills, cuts, stalls, snapshots and timers, from a seed each."""

from __future__ import annotations

import pytest

from tests.busy_storm import busy_storm
from tests.members_storm import Storm
from tests.seeds import drawn


def storm(seed: int) -> None:
    """Run one; the notes say what happened to whom."""
    made = Storm(seed, 3 + 2 * (seed % 2))
    try:
        made.run()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {made.notes}: {error}") from error


@pytest.mark.parametrize("seed", range(1, 7))
def test_members_that_went_through_a_storm_have_the_same_log(seed: int) -> None:
    storm(seed)


def test_seeds_of_this_commit_have_the_same_log() -> None:
    for seed in drawn("storms of native members", 2):
        storm(seed)


@pytest.mark.parametrize("seed", [8, 15, 17, 19, 26, 48, 63])
def test_members_come_back_whose_services_were_busy_in_a_storm(seed: int) -> None:
    """In each of these a member did not, as its services or itself waited for ever for more of a log."""
    busy_storm(seed)


@pytest.mark.slow
def test_many_storms_with_busy_services() -> None:
    for seed in range(1_000, 1_200):
        busy_storm(seed)


@pytest.mark.slow
def test_many_storms() -> None:
    for seed in range(1_000, 1_500):
        storm(seed)
