"""A driver for clients of a cluster under test: ``python -m container.testing.processes.client_driver DIRECTORY``.

It is the C driver of this package's library: it needs no JVM, and it outlives the members' drivers. It runs until its
standard input ends or it gets a signal to stop.
"""

from __future__ import annotations

import signal
import sys

from container.aeron.media_driver import MediaDriver


def main() -> int:
    """Run the driver; return the exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with MediaDriver.launch_embedded(sys.argv[1], term_buffer_length=1024 * 1024):
        print("ready", flush=True)
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
