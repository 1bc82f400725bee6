"""Decides when a client whose leader is silent probes, and what becomes of its session then. No I/O.

A probe is a whole new connect beside the session that there is. A node that starts again leads in another term, so the
term that a probe finds says whether the session is still there: a session of the only member ends with its node. With
several members a session outlives its leader, whose successor sends an event; it gets more time for that.

Silence is counted only while a word is owed: a request waits for its reply, there is no leader, nobody takes what is
sent, or no message is accepted. A session without traffic owes nothing, and is never probed for. The time in which the
client itself stood still counts little.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NamedTuple

from container.client.reconnection import ReconnectPolicy
from container.errors import ContainerError

_NS_PER_S = 1_000_000_000
_LOOKS = 8  # in the time of silence after which a probe begins
_MAX_DOUBLINGS = 3
_FORGET_NS = 60 * _NS_PER_S  # then a needless probe has taught nothing any more
_DELIVERY_NS = _NS_PER_S // 4  # for what the old leader has sent and is in flight
_SUCCESSOR_NS = 2 * _NS_PER_S  # for the event of a new leader of several members


class Signs(NamedTuple):
    """Traffic of a session so far: ``heard`` and ``sent`` count messages of both directions; ``is_owed`` is whether the
    cluster owes a message; ``is_connected`` whether there is a leader."""

    heard: int
    sent: int
    is_owed: bool
    is_connected: bool


class Verdict(enum.Enum):
    """Fate of a session when a probe has connected."""

    WAIT = "wait"
    KEEP = "keep"
    REPLACE = "replace"


class Silence:
    """How long one session has waited for a word, and whether a probe is due.

    Args:
        policy: its ``probe_after`` is the time, and its delays are those between probes that fail.
        has_others: whether the cluster has several members.
        random: returns a number from 0 to 1.
        now_ns: of any clock that only goes forward; and so are those of the methods.
    """

    def __init__(self, policy: ReconnectPolicy, *, has_others: bool, random: Callable[[], float], now_ns: int) -> None:
        self._policy = policy
        self._has_others = has_others
        self._random = random
        self._after_ns = 0 if policy.probe_after is None else int(policy.probe_after * _NS_PER_S)
        self._step_ns = max(1, self._after_ns // _LOOKS)
        self._looked_ns = now_ns
        self._silent_ns = 0
        self._heard = self._sent = -1
        self._was_unsent = False
        self._is_owed = False
        self._needless = 0
        self._needless_ns = now_ns
        self._failures = 0
        self._begun_ns: int | None = None  # the last probe
        self._wait_ns = 0  # from its beginning to that of the next
        self._settle_ns: int | None = None
        #: When to look next; None: never.
        self.due_ns: int | None = None if policy.probe_after is None else now_ns + self._step_ns

    def look(self, signs: Signs, now_ns: int, *, is_unsent: bool) -> bool:
        """Look at the session; return True when it is time for a probe. ``is_unsent``: a message waits to be accepted.

        Nothing is begun while one is under way: only the caller knows that.
        """
        if self.due_ns is None:
            return False
        passed_ns = min(now_ns - self._looked_ns, self._after_ns // 2)
        self._looked_ns = now_ns
        is_stuck = is_unsent and self._was_unsent and signs.sent == self._sent
        is_quiet = signs.heard == self._heard
        self._heard, self._sent, self._was_unsent = signs.heard, signs.sent, is_unsent
        if not is_quiet:
            self._is_owed, self._silent_ns = False, 0
        elif self._is_owed or is_stuck:
            self._silent_ns += passed_ns
        else:
            self._silent_ns = 0
        self._is_owed = self._is_owed or signs.is_owed  # a request whose time was up still has no answer
        self.due_ns = now_ns + self._step_ns * (1 if self._is_owed or is_unsent else 2)
        if now_ns - self._needless_ns > _FORGET_NS:
            self._needless = 0
        return self._silent_ns >= self._after_ns << min(self._needless, _MAX_DOUBLINGS) and (
            self._begun_ns is None or now_ns - self._begun_ns >= self._wait_ns
        )

    @property
    def is_broken(self) -> bool:
        """Whether a word has come since a probe began: it is not needed any more, unless it has a session."""
        return self._silent_ns == 0

    def on_begun(self, now_ns: int) -> None:
        """A probe begins."""
        self._begun_ns = now_ns
        self._wait_ns = self._after_ns
        self._settle_ns = None

    def on_failed(self, *, is_retryable: bool) -> None:
        """The probe has failed. Where no retry can help there is no other: the session's own end shows it."""
        if not is_retryable:
            self.due_ns = None
        self._wait_ns = max(self._after_ns, self._policy.delay_ns(self._failures, self._random()))
        self._failures += 1

    def judge(self, *, term: int, is_connected: bool, probe_term: int, now_ns: int) -> Verdict:
        """Fate of the session of ``term``, as the probe has one of ``probe_term``: ask until it is not WAIT."""
        if is_connected and (term == probe_term or (self._has_others and probe_term < term)):
            self._needless += 1
            self._needless_ns = now_ns
            self._failures = 0
            self._is_owed, self._silent_ns = False, 0
            return Verdict.KEEP
        if self._settle_ns is None:
            self._settle_ns = now_ns + (_SUCCESSOR_NS if self._has_others else _DELIVERY_NS)
        return Verdict.REPLACE if now_ns >= self._settle_ns else Verdict.WAIT

    def answer_limit_ns(self) -> int:
        """How long a probe may wait for an answer to its request to connect: what was sent to a node that has ended
        is never answered. The more have failed the longer."""
        return self._after_ns * (1 + self._failures)


def may_pass(error: BaseException) -> bool:
    """Whether another probe may do better than one that has failed so."""
    return error.is_retryable if isinstance(error, ContainerError) else isinstance(error, OSError)


def has_other_members(ingress_endpoints: str | None) -> bool:
    """Whether a client knows several members of its cluster."""
    return ingress_endpoints is not None and "," in ingress_endpoints


def replaced(term: int, member_id: int, probe_term: int) -> str:
    """Why a session ends for that of a probe."""
    return (
        f"member {member_id} leads in term {probe_term}, and has sent nothing to this session, of term {term}: a new "
        "connect beside it has taken its place"
    )
