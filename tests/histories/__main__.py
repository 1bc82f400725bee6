"""Checks random histories by their seeds, and prints the rate and what disagreed::

./run histories                        # 1,000 seeds from 1 on, without Spark
./run histories --first 29 --seeds 1   # one again
./run histories --spark-every 50       # ingest and audit of each fiftieth as well
./run histories --kills-every 100      # and all of each hundredth in Spark, with kills of its processes
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.histories import checks, kills

_SHOWN_LENGTH = 400
_NUMBER = re.compile(r"/\S+|\d+")
_KIND_LENGTH = 60


def main(arguments: Sequence[str] | None = None) -> int:
    """Check and report; 1 when there was a disagreement."""
    parser = argparse.ArgumentParser(prog="./run histories", description=__doc__)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--spark-every", type=int, default=0, metavar="N", help="ingest and audit each Nth in Spark")
    parser.add_argument(
        "--kills-every", type=int, default=0, metavar="N", help="read each Nth in Spark, and kill its processes"
    )
    options = parser.parse_args(arguments)
    logging.disable(logging.WARNING)  # of tails that are not known to be committed: nearly every history has one
    spark = None
    if options.spark_every:
        from container.spark import open_session
        from tests.histories import spark_checks

        settings = {"spark.sql.shuffle.partitions": "2", "spark.ui.showConsoleProgress": "false"}
        spark = open_session("histories", master="local[2]", settings={**settings, "spark.log.level": "ERROR"})
    kinds: Counter[str] = Counter()
    killed: Counter[str] = Counter()
    began = time.perf_counter()
    for seed in range(options.first, options.first + options.seeds):
        with tempfile.TemporaryDirectory(prefix=f"history-{seed}-") as path:
            try:
                checks.run(seed, Path(path))
                if spark is not None and seed % options.spark_every == 0:
                    spark_checks.run(spark, seed, Path(path) / "spark")
                if options.kills_every and seed % options.kills_every == 0:
                    killed += kills.run(seed, Path(path) / "kills").counts
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
                kinds[_NUMBER.sub("#", text)[:_KIND_LENGTH]] += 1
                print(f"seed {seed}: {text[:_SHOWN_LENGTH]}", flush=True)
    seconds = time.perf_counter() - began
    for kind, count in kinds.most_common():
        print(f"{count} seeds: {kind}")
    if killed:
        print("killed: " + ", ".join(f"{count} {kind}s" for kind, count in sorted(killed.items())))
    rate = options.seeds / seconds
    print(f"{options.seeds} histories in {seconds:.0f} s, {rate:.1f} per second: {kinds.total()} with a disagreement")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
