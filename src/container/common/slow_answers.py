"""Says what a program waits for when an answer takes long."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SLOW_S = 30.0


@contextmanager
def said_when_slow(log: logging.Logger, what: str) -> Iterator[None]:
    """Log a warning, one, when what is done in the block takes longer than :data:`SLOW_S`."""
    timer = threading.Timer(SLOW_S, log.warning, ("%s: not done after %g s, still waiting", what, SLOW_S))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # The next fork finds no thread of this.
