"""Instructions: where those of a message go, by part, counted by valgrind's callgrind over the memory transport.

The counts are all but the same in each run, whatever else the machine does. The difference between a run with many
messages and one with few is the cost of messages; only the agent's duty cycles are counted. Needs valgrind.
"""

from __future__ import annotations

import argparse
import gc
import json
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks._harness import say
from tests.instruction_counts import SERVICES, build_name, feed, run_callgrind

FEW, MANY = 500, 3_000
_LINE = re.compile(r"^\s*([\d,]+) \([^)]*\)\s+(\S.*)$")
_MODULE = re.compile(r"/container/(?:(\w+)/(?:\w+/)*)?(\w+)\.\w[\w-]*\.so\]")
_LIMIT_S = 300


def part_of(function: str) -> str:
    """The part to which a line of callgrind's list belongs: a module of ours, Python, or the C library."""
    if found := _MODULE.search(function):
        return "memory transport" if found[1] == "testing" else found[2]
    return "CPython" if "ython" in function else "libc and loader"


def count(service: str, messages: int) -> Counter[str]:
    """Instructions of the duty cycles that take so many messages, by part."""
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory) / "callgrind.out"
        run_callgrind(output, ["benchmarks.instructions", "--feed", service, str(messages)])
        annotate = ["callgrind_annotate", "--threshold=100", str(output)]
        listed = subprocess.run(annotate, check=True, capture_output=True, text=True, timeout=_LIMIT_S).stdout
    counts: Counter[str] = Counter()
    for line in listed.splitlines():
        if (found := _LINE.match(line)) and "PROGRAM TOTALS" not in line:
            counts[part_of(found[2])] += int(found[1].replace(",", ""))
    return counts


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Count and report."""
    parser = argparse.ArgumentParser(prog="./run bench instructions", description=__doc__)
    parser.add_argument("--feed", nargs=2, metavar=("SERVICE", "MESSAGES"), help="what callgrind runs")
    options = parser.parse_args(arguments)
    if options.feed:
        gc.disable()  # when it would collect depends on all that was allocated before
        feed(SERVICES[options.feed[0]](), int(options.feed[1]))
        return {}
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind counts the instructions: install it (apt install valgrind)")
    found: dict[str, dict[str, float]] = {}
    print(f"instructions per message of 32 B, {build_name()}")
    for service in SERVICES:
        say(service)
        few, many = count(service, FEW), count(service, MANY)
        parts = {part: (many[part] - few[part]) / (MANY - FEW) for part in many}
        found[service] = {part: round(value, 1) for part, value in sorted(parts.items(), key=lambda item: -item[1])}
        print(f"{service}: {sum(parts.values()):,.0f}")
        for part, value in found[service].items():
            if value >= 1:
                print(f"  {value:8,.0f}  {part}")
    print(json.dumps({"benchmark": "instructions", "build": build_name(), "parts": found}))
    return found


if __name__ == "__main__":
    main()
