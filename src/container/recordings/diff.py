"""The public name of what :mod:`container.replay.diff` offers."""

from container.replay.diff import diff, diff_batches, diff_schema, diff_segment

__all__ = ["diff", "diff_batches", "diff_schema", "diff_segment"]
