"""Counts of what a client or a pool has done so far, as immutable snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from container.common.values import shown
from container.errors import ConfigurationError

_HDR_MAX_NS = 2**42 - 1
_HDR_DIGITS = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundTripTimes:
    """How long requests took, each from when a leader's stream accepted it first until its reply came; in nanoseconds.

    Durations are counted in buckets whose bounds are at most 0.8 % apart, as an HdrHistogram of two significant digits
    has them. Longer durations count as 73 minutes.
    """

    count: int = 0
    """Requests that were answered."""
    min_ns: int = 0
    """The shortest; 0 of none."""
    max_ns: int = 0
    """The longest; 0 of none."""
    total_ns: int = 0
    """All together."""
    buckets: tuple[tuple[int, int], ...] = ()
    """(the longest duration that falls into the bucket, how many did), of those that are not empty, shortest first."""

    @property
    def mean_ns(self) -> float:
        """The mean; 0.0 of none."""
        return self.total_ns / self.count if self.count else 0.0

    def percentile_ns(self, percent: float) -> int:
        """The duration that ``percent`` of the requests did not exceed, as exact as its bucket; 0 of none.

        Raises ConfigurationError for what is not a number from 0 to 100.
        """
        if not isinstance(percent, int | float) or isinstance(percent, bool) or not 0 <= percent <= 100:
            raise ConfigurationError(f"percent must be a number from 0 to 100, not {shown(percent)}")
        wanted = self.count * percent / 100
        seen = 0
        for bound_ns, count in self.buckets:
            seen += count
            if seen >= wanted:
                return min(bound_ns, self.max_ns)
        return self.max_ns

    def to_hdr_histogram(self) -> Any:
        """The same as an ``HdrHistogram`` of the package ``hdrhistogram``, to be merged, encoded or logged; its unit is
        nanoseconds. Raises ConfigurationError when the package is not installed."""
        try:
            from hdrh.histogram import HdrHistogram
        except ImportError as error:
            raise ConfigurationError(
                "to_hdr_histogram() needs hdrhistogram: pip install 'aeron-cluster-container[metrics]'"
            ) from error
        histogram = HdrHistogram(1, _HDR_MAX_NS, _HDR_DIGITS)
        for bound_ns, count in self.buckets:
            histogram.record_value(bound_ns, count)
        return histogram


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientMetrics:
    """The numbers of a client, of all its sessions if it connects again, or of a pool with all of its sessions.

    Those up to ``reconnects`` only grow. The others are as of now.
    """

    sent: int = 0
    """Messages that a leader's stream accepted, with those of requests; one that is sent again counts again. Claims
    count when they are made. Keep alives and the like do not count."""
    received: int = 0
    """Messages of the service that came, replies included."""
    back_pressured: int = 0
    """Offers that met back pressure, those of keep alives included."""
    leader_changes: int = 0
    """Leaders that took a session over."""
    requests: int = 0
    """Requests that were sent; one that is sent again counts once."""
    answered: int = 0
    """Requests whose reply came."""
    resent: int = 0
    """How often a request was sent again: to a new leader, or in a new session."""
    unknown: int = 0
    """Requests that ended with an OutcomeUnknownError, or for which nobody waited any more."""
    unmatched: int = 0
    """Replies for which no request waited any more."""
    reconnects: int = 0
    """Sessions beyond the first that a reconnecting client has had; of a pool, how often one of its sessions
    was connected again."""
    in_flight: int = 0
    """Requests that wait for their reply."""
    waiting: int = 0
    """Messages that wait to be sent, in the outbox of a reconnecting client."""
    unread: int = 0
    """Messages that have come and wait to be taken, of an asyncio client."""
    sessions: int = 0
    """Connected sessions; of a pool, without the session by which it follows the leader."""
    connecting: int = 0
    """Sessions that are being connected."""
    round_trips: RoundTripTimes = RoundTripTimes()
    """How long the requests took that were answered."""
