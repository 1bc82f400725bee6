"""What an exception of a callback means: the event is skipped, or the member ends."""

from __future__ import annotations

#: The member ends, and replays the event when it is started again.
HALT = "halt"
#: The event is skipped on this member, as upstream does.
SKIP = "skip"


def is_foreign(error: BaseException) -> bool:
    """Whether an exception cannot come from the event itself, so that other members may not meet it.

    Memory, stack, disks and networks differ between members, and so does the moment of an interrupt.
    """
    return isinstance(error, MemoryError | OSError | RecursionError) or not isinstance(error, Exception)
