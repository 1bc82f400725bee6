"""Fixtures of the unit tests: a world in memory and a client in it."""

from __future__ import annotations

import os
import signal

import pytest

from container.testing.manual_time import ManualClock
from container.testing.memory_transport import MemoryClient, MemoryDriver

# A run in the background of a shell has Ctrl-C ignored, and so would every process that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A test's Spark lives for seconds: what the optimising compiler and a parallel collector take, it never gives back.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture
def clock() -> ManualClock:
    """The driver's clock."""
    return ManualClock()


@pytest.fixture
def driver(clock: ManualClock) -> MemoryDriver:
    """A driver in memory, with nobody connected."""
    return MemoryDriver(clock)


@pytest.fixture
def client(driver: MemoryDriver) -> MemoryClient:
    """A client of ``driver`` in invoker mode."""
    return driver.connect("test")
