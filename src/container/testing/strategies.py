"""Hypothesis strategies and a state machine for services, for tests to import."""

from container.testing.memory.strategies import *  # noqa: F403
