"""Error codes of an archive's replies, as in upstream's ArchiveException.java; ArchiveError has one as ``code``."""

from __future__ import annotations

from typing import Final

GENERIC: Final = 0
ACTIVE_LISTING: Final = 1
ACTIVE_RECORDING: Final = 2
ACTIVE_SUBSCRIPTION: Final = 3
UNKNOWN_SUBSCRIPTION: Final = 4
UNKNOWN_RECORDING: Final = 5
UNKNOWN_REPLAY: Final = 6
MAX_REPLAYS: Final = 7
MAX_RECORDINGS: Final = 8
INVALID_EXTENSION: Final = 9
AUTHENTICATION_REJECTED: Final = 10
STORAGE_SPACE: Final = 11
UNKNOWN_REPLICATION: Final = 12
UNAUTHORISED_ACTION: Final = 13
REPLICATION_CONNECTION_FAILURE: Final = 14
EMPTY_RECORDING: Final = 15
INVALID_POSITION: Final = 16
