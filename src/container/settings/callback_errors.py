"""The effect of a callback's exception: the event is skipped, or the member ends."""

from __future__ import annotations

from container.common.error_texts import cause_of, context_of, members_of
from container.errors import AeronError, ArchiveError, MessageTooLongError, PublicationUnavailableError

_LOOKED_AT_MAX = 100

_FOREIGN = (MemoryError, OSError, RecursionError, AeronError, ArchiveError, PublicationUnavailableError)

#: The member ends, and replays the event when it is started again.
HALT = "halt"
#: The event is skipped on this member, as upstream does.
SKIP = "skip"


def is_foreign(error: BaseException) -> bool:
    """Whether an exception cannot come from the event itself, so that other members may not meet it.

    Memory, stack, disks, streams and archives differ between members, and so does the moment of an interrupt. The
    causes of an exception, and the members of a group, count as well.
    """
    pending: list[BaseException] = [error]
    for _ in range(_LOOKED_AT_MAX):
        if not pending:
            return False
        each = pending.pop()
        kind = type(each)  # what an exception says of itself may be wrong
        if not issubclass(kind, Exception):
            return True
        if issubclass(kind, _FOREIGN) and not issubclass(kind, MessageTooLongError):
            return True
        pending += [part for part in (cause_of(each), context_of(each)) if part is not None]
        if issubclass(kind, BaseExceptionGroup):
            pending.extend(members_of(each))
    return True
