"""Where two states differ, by the messages that services write to snapshots."""

from __future__ import annotations

from collections.abc import Sequence

from container.common.differences import first_difference, shown_apart
from container.common.values import counted
from container.errors import SnapshotError
from container.snapshots import decode_states


def state_difference(
    one: Sequence[bytes], other: Sequence[bytes], *, run: str = "in the other run", now: str = "now"
) -> str:
    """Where two states differ, in a sentence: the value's path, or the message and byte of the snapshots.

    ``run`` and ``now`` are the words that stand behind the values of each.
    """
    try:
        found = first_difference(decode_states(one), decode_states(other))
    except (SnapshotError, RecursionError):
        found = None  # in a format of the service's own, or too deep
    if found:
        return f"{found.path}: {found.one} {run}, {found.other} {now}."
    for index, (message, other_message) in enumerate(zip(one, other, strict=False)):
        if message != other_message:
            left, right = shown_apart(message, other_message)
            return f"Message {index} of the snapshot: {left} {run}, {right} {now}."
    return f"The snapshot has {counted(len(one), 'message')} {run}, {len(other)} {now}."
