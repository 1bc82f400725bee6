"""Tuning: what the container's settings change in echoes through one Java node, each beside the standard set-up.

The peers are one service of ours in Python with one setting changed; node, load and its checks are those of ``echo``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from benchmarks._harness import Report
from benchmarks._peers import STANDARD_IDLE, Start, python_service
from benchmarks.echo import METRICS, add_load_options, compare, grouped, loads

VARIANTS: dict[str, dict[str, str]] = {
    "standard": {},
    "fragments 10": {"AERON_CLUSTER_LOG_FRAGMENT_LIMIT": "10"},
    "fragments 200": {"AERON_CLUSTER_LOG_FRAGMENT_LIMIT": "200"},
    "fragments 1000": {"AERON_CLUSTER_LOG_FRAGMENT_LIMIT": "1000"},
    "slack 1us": {"AERON_CLUSTER_SERVICE_TIMER_SLACK": "1us"},
    "processor 1": {"AERON_CLUSTER_SERVICE_CPU_AFFINITY": "1"},
    "park 1ms": {"AERON_CLUSTER_IDLE_STRATEGY": "backoff"},
    "yield": {"AERON_CLUSTER_IDLE_STRATEGY": "yield"},
    "busy_spin": {"AERON_CLUSTER_IDLE_STRATEGY": "busy_spin"},
}

LOADS = {
    f"{medium}, {STANDARD_IDLE}, window {window}, 32 B"
    for medium, window in (("udp", 1), ("udp", 256), ("ipc", 1), ("ipc", 256), ("ipc", 4096))
}


def main(arguments: Sequence[str] | None = None) -> Report:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="./run bench tuning", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    add_load_options(parser)
    options = parser.parse_args(arguments)
    report = Report("tuning", {name: shown for name, shown in METRICS.items() if name != "resident_mib"})
    starts: dict[str, Start] = {
        name: python_service("examples.echo_service:EchoService", variables) for name, variables in VARIANTS.items()
    }
    chosen = (load for load in loads(options.messages) if str(load) in LOADS)
    for group in grouped(chosen):
        compare(report, starts, group, options, ())
    return report.finish()


if __name__ == "__main__":
    main()
