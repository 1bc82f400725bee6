"""Members in a storm whose services are busy at random, and wait for the image of a log for ever, as upstream's do.

Run seeds by ``python -m tests.busy_storm FIRST COUNT``; it prints those in which a member has not come back.
"""

from __future__ import annotations

import sys

from tests.control_world import MS
from tests.members_storm import Storm

BUSY_CHANCE = 0.004
"""The chance of a service to become busy in a step."""
BUSY_MS = (20, 100, 400, 1_500, 4_000)


class BusyStorm(Storm):
    """A storm with services of that kind; in the end none is busy any more, and all members must come back."""

    def __init__(self, seed: int, count: int = 3) -> None:
        super().__init__(seed, count)
        self.is_calm = False
        self.world.on_step.append(self._make_busy)

    def _make_busy(self) -> None:
        now_ns = self.world.time.now_ns
        for member in self.world.up():
            for service in member.services:
                if not self.is_calm and now_ns >= service.busy_until_ns and self.random.random() < BUSY_CHANCE:
                    service.busy_until_ns = now_ns + self.random.choice(BUSY_MS) * MS

    def _check(self) -> None:
        self.is_calm = True
        super()._check()


def busy_storm(seed: int) -> None:
    """Run one; the notes say what happened to whom."""
    storm = BusyStorm(seed, 3 + 2 * (seed % 2))
    try:
        storm.run()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {storm.notes}: {error}") from error


def main() -> None:
    """Run the seeds that are named."""
    first, count = map(int, sys.argv[1:])
    failed: list[int] = []
    for seed in range(first, first + count):
        try:
            busy_storm(seed)
        except AssertionError as error:
            print(error, flush=True)
            failed.append(seed)
    print(f"{len(failed)} of {count}: {failed}")


if __name__ == "__main__":
    main()
