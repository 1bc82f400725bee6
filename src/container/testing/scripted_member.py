"""A service under the real agent over memory, step by step, for tests to import."""

from container.testing.memory.scripted_member import ScriptedMember

__all__ = ["ScriptedMember"]
