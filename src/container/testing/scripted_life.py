"""The events of a life, for tests to import: a life prints as the Python that makes it again."""

from container.testing.memory.scripted_life import *  # noqa: F403
