"""Aeron's own numbers, each once: types of counters, and the streams and channels of a node that is not configured."""

from __future__ import annotations

import enum


class CounterType(enum.IntEnum):
    """Type ids of the cluster's counters and of the archive's (upstream: AeronCounters.java)."""

    RECORDING_POSITION = 100
    ARCHIVE_CONTROL_SESSION = 113
    CONSENSUS_MODULE_STATE = 200
    NODE_ROLE = 201
    CONTROL_TOGGLE = 202
    COMMIT_POSITION = 203
    RECOVERY_STATE = 204
    SNAPSHOT_COUNTER = 205
    ELECTION_STATE = 207
    CONSENSUS_MODULE_ERROR_COUNT = 212
    CLIENT_TIMEOUT_COUNT = 213
    CLUSTERED_SERVICE_ERROR_COUNT = 215
    SERVICE_MAX_CYCLE_TIME = 218
    SERVICE_CYCLE_TIME_THRESHOLD_EXCEEDED = 219
    SERVICE_MAX_SNAPSHOT_DURATION = 236
    SERVICE_SNAPSHOT_DURATION_THRESHOLD_EXCEEDED = 237
    ELECTION_COUNT = 238
    LEADERSHIP_TERM_ID = 239


# Upstream: ClusteredServiceContainer.Configuration and ConsensusModule.Configuration.
LOG_STREAM_ID = 100
INGRESS_STREAM_ID = 101
EGRESS_STREAM_ID = 102
REPLAY_STREAM_ID = 103
SERVICE_STREAM_ID = 104
CONSENSUS_MODULE_STREAM_ID = 105
SERVICE_SNAPSHOT_STREAM_ID = 106
CONSENSUS_MODULE_SNAPSHOT_STREAM_ID = 107
CONTROL_CHANNEL = "aeron:ipc?term-length=128k"
REPLAY_CHANNEL = "aeron:ipc"
SNAPSHOT_CHANNEL = "aeron:ipc?alias=snapshot"

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
