"""Timers whose events are not committed, as a list of all that happened has them."""

from __future__ import annotations

import random

from container.consensus.uncommitted_timers import UncommittedTimers


def test_it_knows_what_a_list_of_all_events_says() -> None:
    rng = random.Random(5)
    timers = UncommittedTimers()
    events: list[tuple[int, int, int]] = []
    position = committed = most = 0
    for _ in range(20_000):
        choice, correlation_id = rng.random(), rng.randrange(-30, 30)
        if choice < 0.5:
            position += 96
            deadline = rng.randrange(-(2**63), 2**63)
            timers.push(position, correlation_id, deadline)
            events = [each for each in events if each[1] != correlation_id]
            events.append((position, correlation_id, deadline))
        elif choice < 0.8:
            timers.forget(correlation_id)
            events = [each for each in events if each[1] != correlation_id]
        else:
            committed = rng.randrange(committed, position + 1)
            events = [each for each in events if each[0] > committed]
            if choice < 0.99:
                timers.sweep(committed)
            else:
                assert timers.take(committed) == [each[1:] for each in events]
                events.clear()
        assert len(timers) == len(events)
        most = max(most, len(events))
    assert most > 10
