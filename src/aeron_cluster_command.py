"""Starts the command ``aeron-cluster``, or reports that another module hides the package ``container``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def main() -> int:
    """Run the command, once it is certain that ``import container`` finds the package; return the exit code.

    A module of that name in PYTHONPATH or in the current directory comes first, and would be run in its place.
    """
    package = Path(__file__).resolve().with_name("container")
    found = importlib.util.find_spec("container")
    origin = None if found is None else found.origin
    if origin is None or Path(origin).resolve().parent != package:
        text = f"`import container` finds {origin or 'no module with code'}, not the package {package}"
        advice = "rename that module, or take its directory off PYTHONPATH"
        print(f"aeron-cluster: error: {text}: {advice}", file=sys.stderr)
        return 2
    try:
        from container.__main__ import main as run_command
    except KeyboardInterrupt:
        print("aeron-cluster: interrupted", file=sys.stderr)
        return 130

    return run_command()


if __name__ == "__main__":
    sys.exit(main())
