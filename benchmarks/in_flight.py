"""Processor time of what ends requests, for each of 1,000, 10,000 and 100,000 that are in flight.

Over memory, without a driver: the same work that a client does on its own thread when its session or leader is lost.
"""

from __future__ import annotations

import argparse

from tests.requests_in_flight import KINDS

COUNTS = (1_000, 10_000, 100_000)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("counts", nargs="*", type=int, default=COUNTS, help="requests in flight (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="rounds; the best counts (default: 3)")
    options = parser.parse_args()
    print("microseconds of processor time for each request |", *(f"{count:,} |" for count in options.counts))
    for name, measure in KINDS.items():
        best = [min(measure(count) for _ in range(options.rounds)) / count / 1_000 for count in options.counts]
        print(f"{name} |", *(f"{each:.2f} |" for each in best))


if __name__ == "__main__":
    main()
