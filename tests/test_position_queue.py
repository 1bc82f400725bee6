"""The queue of what is not committed does what a deque would."""

from __future__ import annotations

import random
from collections import deque

from container.consensus.position_queue import PositionQueue


def test_it_does_what_a_deque_does() -> None:
    rng = random.Random(5)
    queue, model = PositionQueue(), deque[tuple[int, int]]()
    position = most = 0
    for _ in range(20_000):
        if rng.random() < 0.52:
            position += rng.randrange(3) * 32
            value = rng.randrange(-(2**63), 2**63)
            queue.push(position, value)
            model.append((position, value))
        else:
            committed = model[0][0] if model and rng.random() < 0.9 else position - rng.randrange(2_000)
            while model and model[0][0] <= committed:
                model.popleft()
            queue.sweep(committed)
        assert len(queue) == len(model)
        most = max(most, len(model))
    assert most > 32  # so that it grew, also around its end
    middle = model[len(model) // 2][0] if model else position
    assert queue.after(middle) == [value for at, value in model if at > middle]
    queue.clear()
    assert len(queue) == 0
    queue.push(position + 32, -7)
    assert queue.after(position) == [-7]
    assert queue.after(position + 32) == []
