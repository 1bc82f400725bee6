"""Names of the messages of a cluster's log: for options, and in Aeron's schema."""

from __future__ import annotations

UNKNOWN = "unknown"
MESSAGES = {
    "session-message": "SessionMessageHeader",
    "timer": "TimerEvent",
    "session-open": "SessionOpenEvent",
    "session-close": "SessionCloseEvent",
    "action": "ClusterActionRequest",
    "term": "NewLeadershipTermEvent",
    "membership": "MembershipChangeEvent",
    "unknown": UNKNOWN,
}
