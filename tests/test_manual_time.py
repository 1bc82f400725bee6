"""Time that passes by hand, and idling that makes the world go on."""

from __future__ import annotations

import pytest

from container.errors import TimedOutError
from container.testing.memory import transport_probe as seam
from container.testing.memory.manual_time import ManualClock, SteppingIdleStrategy
from container.testing.memory.memory_transport import MemoryClient, MemoryDriver


def test_a_manual_clock_moves_by_hand_alone(client: MemoryClient, clock: ManualClock) -> None:
    assert client.clock is clock
    readings = [(seam.nano_time(client), seam.epoch_ms(client)) for _ in range(2)]
    assert readings == [(1_000_000_000, 1_700_000_000_000)] * 2
    clock.advance(2_500_000)
    assert (seam.nano_time(client), seam.epoch_ms(client)) == (1_002_500_000, 1_700_000_000_002)
    clock.set_epoch_ms(5)
    assert (clock.now_ns, clock.now_ms) == (1_002_500_000, 5)


def test_a_manual_clock_can_move_at_each_reading() -> None:
    clock = ManualClock(0, epoch_ms=0, auto_advance_ns=1_000_000)
    client = MemoryDriver(clock).connect()
    assert [seam.nano_time(client) for _ in range(3)] == [0, 1_000_000, 2_000_000]
    assert seam.epoch_ms(client) == 3
    assert (clock.now_ns, clock.now_ms) == (4_000_000, 4)
    clock.auto_advance_ns = 0
    assert seam.epoch_ms(client) == seam.epoch_ms(client) == 4


def test_idling_steps_the_world_and_gives_up_in_the_end() -> None:
    steps: list[int] = []
    idle = SteppingIdleStrategy(lambda: steps.append(1), max_idles=3)
    seam.idle(idle, 0)
    seam.idle(idle, 1)
    for _ in range(3):
        seam.idle(idle)
    assert len(steps) == idle.idle_count == 4
    with pytest.raises(TimedOutError, match="idled 3 times"):
        seam.idle(idle)
    seam.idle(idle)
    seam.reset_idle(idle)
    for _ in range(3):
        seam.idle(idle)


def test_what_a_step_raises_comes_out_of_the_idling() -> None:
    def step() -> None:
        raise LookupError("scripted")

    with pytest.raises(LookupError, match="scripted"):
        seam.idle(SteppingIdleStrategy(step))
    seam.idle(SteppingIdleStrategy())
