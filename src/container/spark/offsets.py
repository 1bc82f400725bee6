"""The offsets of streams: how far each member's log was read, and which log that was, as checkpoints keep it.

Version 1 had log positions by member and nothing else. Version 2 has the log as well, so that a query does not continue
in the log of a cluster that was wiped and started again under the same path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from container.errors import ConfigurationError
from container.recordings.identity import LogIdentity, LogTerm

VERSION = 2


class MemberOffset(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a member's log was read."""

    position: int
    """All messages that end at or before it have been read."""
    recording: str = ""
    """Which log it is, as :class:`~container.recordings.identity.LogIdentity` has it; empty in version 1."""
    first_term: str | None = None
    member_id: int | None = None
    """The value of the column ``member_id`` for it; None where that names the member from which a row was read."""
    term: LogTerm | None = None
    """The leadership term of what was read last, by which another member's log is known for the same."""
    starting_ns: int | None = None
    """Nanoseconds since 1970, before which a message is left out: what the option said when the query began."""

    @property
    def identity(self) -> LogIdentity | None:
        """Which log it is; ``None`` when the offset is from before version 2."""
        return LogIdentity(self.recording, self.first_term) if self.recording else None


def parse_offset(offset: Mapping[str, Any]) -> dict[str, MemberOffset]:
    """Return the members of an offset by their keys.

    Raises:
        ConfigurationError: it has a version that is not known, or is not an offset of this source.
    """
    version = offset.get("version", 1)
    if version not in (1, VERSION):
        raise ConfigurationError(
            f"the checkpoint has offsets of version {version!r}, versions 1 and {VERSION} are known: it was written by "
            "a later release; continue with that one"
        )
    try:
        if version == 1:
            return {key: MemberOffset(one) for key, one in msgspec.convert(offset, dict[str, int]).items()}
        return msgspec.convert(offset["members"], dict[str, MemberOffset])
    except (KeyError, msgspec.ValidationError) as error:
        raise ConfigurationError(f"the checkpoint has an offset that this source has not written: {error}") from None


def format_offset(members: Mapping[str, MemberOffset]) -> dict[str, Any]:
    """Return the offset as Spark keeps it, the opposite of :func:`parse_offset`."""
    return {"version": VERSION, "members": {key: msgspec.to_builtins(members[key]) for key in sorted(members)}}


def end_positions(offset: Mapping[str, Any]) -> dict[str, int]:
    """Return the log position of each member of an offset of any version, by its key.

    Raises:
        ConfigurationError: as :func:`parse_offset`.
    """
    return {key: member.position for key, member in parse_offset(offset).items()}


def member_keys(offset: Mapping[str, Any]) -> dict[int | None, str]:
    """Return the keys of an offset's members by what the column ``member_id`` says of them.

    Raises:
        ConfigurationError: as :func:`parse_offset`.
    """
    return {
        int(key) if member.member_id is None and not member.recording and key.isdecimal() else member.member_id: key
        for key, member in parse_offset(offset).items()
    }
