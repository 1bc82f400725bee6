"""Aeron's own numbers, each once: types of counters, alignment, streams and channels of a node without settings."""

from __future__ import annotations

import enum

MODULE_STATES = ("INIT", "ACTIVE", "SUSPENDED", "SNAPSHOT", "QUITTING", "TERMINATING", "CLOSED")
"""States of a consensus module, as the counter of type 200 has them."""
ROLES = ("FOLLOWER", "CANDIDATE", "LEADER")
"""Roles of a member, as the counter of type 201 has them."""


class CounterType(enum.IntEnum):
    """Type ids of the cluster's counters and of the archive's (upstream: AeronCounters.java); ours are above 1000."""

    RECORDING_POSITION = 100
    ARCHIVE_ERROR_COUNT = 101
    ARCHIVE_CONTROL_SESSIONS = 102
    ARCHIVE_MAX_CYCLE_TIME = 103
    ARCHIVE_CYCLE_TIME_THRESHOLD_EXCEEDED = 104
    ARCHIVE_RECORDER_MAX_WRITE_TIME = 105
    ARCHIVE_RECORDER_TOTAL_WRITE_BYTES = 106
    ARCHIVE_RECORDER_TOTAL_WRITE_TIME = 107
    ARCHIVE_REPLAYER_MAX_READ_TIME = 108
    ARCHIVE_REPLAYER_TOTAL_READ_BYTES = 109
    ARCHIVE_REPLAYER_TOTAL_READ_TIME = 110
    ARCHIVE_RECORDING_SESSIONS = 111
    ARCHIVE_REPLAY_SESSIONS = 112
    ARCHIVE_CONTROL_SESSION = 113
    CONSENSUS_MODULE_STATE = 200
    NODE_ROLE = 201
    CONTROL_TOGGLE = 202
    COMMIT_POSITION = 203
    RECOVERY_STATE = 204
    SNAPSHOT_COUNTER = 205
    ELECTION_STATE = 207
    BACKUP_STATE = 208
    BACKUP_LIVE_LOG_POSITION = 209
    BACKUP_QUERY_DEADLINE = 210
    BACKUP_ERROR_COUNT = 211
    CONSENSUS_MODULE_ERROR_COUNT = 212
    CLIENT_TIMEOUT_COUNT = 213
    CLUSTERED_SERVICE_ERROR_COUNT = 215
    CONSENSUS_MODULE_MAX_CYCLE_TIME = 216
    CONSENSUS_MODULE_CYCLE_TIME_THRESHOLD_EXCEEDED = 217
    SERVICE_MAX_CYCLE_TIME = 218
    SERVICE_CYCLE_TIME_THRESHOLD_EXCEEDED = 219
    STANDBY_SNAPSHOT_COUNTER = 232
    NODE_CONTROL_TOGGLE = 233
    TOTAL_MAX_SNAPSHOT_DURATION = 234
    TOTAL_SNAPSHOT_DURATION_THRESHOLD_EXCEEDED = 235
    SERVICE_MAX_SNAPSHOT_DURATION = 236
    SERVICE_SNAPSHOT_DURATION_THRESHOLD_EXCEEDED = 237
    ELECTION_COUNT = 238
    LEADERSHIP_TERM_ID = 239
    BACKUP_SNAPSHOT_COUNTER = 240
    CLUSTER_SESSION = 241
    RETAINED_LOG_POSITION = 1200


FRAME_ALIGNMENT = 32
"""Each frame of a stream or a recording begins at a multiple of it (upstream: FrameDescriptor.FRAME_ALIGNMENT)."""

# Upstream: ClusteredServiceContainer.Configuration and ConsensusModule.Configuration.
LOG_STREAM_ID = 100
INGRESS_STREAM_ID = 101
EGRESS_STREAM_ID = 102
REPLAY_STREAM_ID = 103
SERVICE_STREAM_ID = 104
CONSENSUS_MODULE_STREAM_ID = 105
SERVICE_SNAPSHOT_STREAM_ID = 106
CONSENSUS_MODULE_SNAPSHOT_STREAM_ID = 107
CONSENSUS_STREAM_ID = 108
CONTROL_CHANNEL = "aeron:ipc?term-length=128k"
REPLAY_CHANNEL = "aeron:ipc"
SNAPSHOT_CHANNEL = "aeron:ipc?alias=snapshot"

IPC_SOURCE_IDENTITY = "aeron:ipc"
"""The identity of the source of images in shared memory, which only processes of the driver's user reach."""

# Upstream: AeronArchive.Configuration.
ARCHIVE_CONTROL_STREAM_ID = 10
ARCHIVE_RESPONSE_STREAM_ID = 20
ARCHIVE_LOCAL_CONTROL_CHANNEL = "aeron:ipc?term-length=64k"
ARCHIVE_MESSAGE_TIMEOUT_NS = 10_000_000_000
ARCHIVE_MESSAGE_RETRY_ATTEMPTS = 3

# Upstream: Archive.Configuration.
ARCHIVE_RECORDING_EVENTS_STREAM_ID = 30
DEFAULT_AUTHENTICATOR = "io.aeron.security.DefaultAuthenticatorSupplier"
ALLOW_ALL = "ALLOW_ALL"
DENY_ALL = "DENY_ALL"

FRAGMENT_LIMIT = 50
FRAGMENT_LIMIT_OF_A_SHARED_THREAD = 512
"""Each turn of such a thread costs some 10 us before its first message, so it takes many of them."""


def fragment_limit(given: int | None, is_shared: bool) -> int:
    """How many frames a poll takes at most: as given, else by whether other parts have turns on the same thread."""
    if given is not None:
        return given
    return FRAGMENT_LIMIT_OF_A_SHARED_THREAD if is_shared else FRAGMENT_LIMIT


def portions(ingress_limit: int, is_shared: bool) -> int:
    """How many times upstream's portions of timers, service messages and control messages a turn takes at most.

    Upstream's belong to its 50 messages of ingress. A turn that takes more of these, as where parts share a thread,
    takes more of the others as well: else, under full load, timers would expire late, and service messages would wait.
    """
    return max(1, ingress_limit // FRAGMENT_LIMIT) if is_shared else 1
