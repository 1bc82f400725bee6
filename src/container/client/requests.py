"""Requests in flight: which wait for a reply, and how each ends when the leader or the client is lost.

Free of I/O. A request is bound to the leadership term in which it was sent: the leader of another term will not answer
it. So with a new leader it is sent again, where the caller allows that, or ends with an error that says that its
outcome is unknown. The client that owns the table polls, offers and keeps the time.
"""

from __future__ import annotations

from collections.abc import Buffer, Callable, Hashable
from typing import NamedTuple

from container.client.client_context import check_flag
from container.client.round_trip_recorder import RoundTripRecorder
from container.common.values import shown
from container.errors import (
    ClusterError,
    ConfigurationError,
    ContainerError,
    LeaderChangedError,
    RequestClosedError,
    RequestTimedOutError,
)
from container.transport.clocks import SystemClock

type Correlate = Callable[[bytes], Hashable | None]
type _Place = tuple[int, Hashable]

_NO_TERM = -1
_NEVER_NS = 2**63 - 1


class RequestCounts(NamedTuple):
    """Counts of a client's requests so far, by outcome."""

    sent: int
    """Requests that were sent; one that is sent again counts once."""
    answered: int
    """Those whose reply came."""
    resent: int
    """How often one was sent again, to a new leader."""
    unknown: int
    """Those that ended with an OutcomeUnknownError: the leader changed, the client was closed, or time was up."""
    unmatched: int
    """Replies for which no request waited any more."""
    in_flight: int
    """Requests that wait for their reply now."""


NO_REQUESTS = RequestCounts(0, 0, 0, 0, 0, 0)


class Request:
    """A request that was sent, until its reply has come or it has ended; made by ``begin_request()``.

    Polls of its client drive it: :meth:`wait` does them, and so does any other use of the client that polls.
    """

    __slots__ = (
        "_deadline_ns",
        "_message",
        "_on_end",
        "_poll",
        "_sent_ns",
        "_term",
        "_timeout",
        "error",
        "is_done",
        "key",
        "payload",
        "resent",
    )

    def __init__(
        self,
        key: Hashable,
        message: bytes | None = None,
        *,
        timeout: float = 0.0,
        deadline_ns: int = _NEVER_NS,
        poll: Callable[[], object] | None = None,
        on_end: Callable[[Request], object] | None = None,
    ) -> None:
        """For the client: ``message`` is kept to be sent again, None for never; ``on_end`` gets an error."""
        #: What its reply is found by.
        self.key = key
        #: True once :attr:`payload` or :attr:`error` is there.
        self.is_done = False
        #: The reply's payload (bytes); None before, and when there is none.
        self.payload: bytes | None = None
        #: Why there is no reply; None before, and when there is one.
        self.error: ContainerError | None = None
        #: How often it was sent again, to a new leader.
        self.resent = 0
        self._message = message
        self._timeout = timeout
        self._deadline_ns = deadline_ns
        self._term = _NO_TERM
        self._sent_ns = 0
        self._poll = poll
        self._on_end = on_end

    @property
    def is_sent(self) -> bool:
        """Whether it was accepted by a leader's stream."""
        return self._term != _NO_TERM

    def wait(self) -> bytes:
        """Poll the client until the reply is there, and return its payload; not from a listener's callback.

        Raises:
            LeaderChangedError: the leader that it was sent to is lost, or leads no longer.
            RequestTimedOutError: no reply came in time.
            RequestClosedError: the client was closed.
        """
        while not self.is_done:
            assert self._poll is not None
            self._poll()
        if self.error is not None:
            raise self.error
        assert self.payload is not None
        return self.payload

    def end(self, *, payload: bytes | None = None, error: ContainerError | None = None) -> None:
        """For the client: the reply is there, or there will be none."""
        self.payload = payload
        self.error = error
        self.is_done = True

    def __repr__(self) -> str:
        state = "waits" if not self.is_done else "answered" if self.error is None else type(self.error).__name__
        return f"<Request {self.key!r} {state}>"


class RequestTable:
    """The requests in flight of one client, or of all sessions of a pool, in the order in which they were sent.

    ``correlate`` returns the key of the request that a payload answers, None for a payload that is no reply. ``resend``
    is for requests that do not say whether they may be sent again.
    """

    def __init__(self, correlate: Correlate | None, *, resend: bool = False) -> None:
        check_requests(correlate, resend)
        self.correlate = correlate
        self.resend = resend
        #: Whoever owns the table has it use the owner's clock.
        self.round_trips = RoundTripRecorder(SystemClock())
        self._waiting: dict[_Place, Request] = {}
        self._next_deadline_ns = _NEVER_NS
        # Each is counted by one thread of an asyncio client: its poller's counts `_resent` and `_ended`.
        self._sent = self._answered = self._unmatched = self._forgotten = self._resent = self._ended = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def change(self, correlate: Correlate, resend: bool) -> None:
        """Another function and another rule from now on; the counts go on."""
        check_requests(correlate, resend)
        self.correlate = correlate
        self.resend = resend

    @property
    def counts(self) -> RequestCounts:
        """Counts of the requests so far, by outcome."""
        return RequestCounts(
            self._sent,
            self._answered,
            self._resent,
            self._forgotten + self._ended,
            self._unmatched,
            len(self._waiting),
        )

    def is_resendable(self, idempotent: bool | None) -> bool:
        """Whether a request may be sent again, which its caller has said or left to the client's setting."""
        return is_idempotent(idempotent, self.resend)

    def check_key(self, session_id: int, key: Hashable) -> None:
        """Raise ClusterError when a request of that session with that key waits already, TypeError for a key that
        cannot be hashed."""
        check_key(key)
        if (session_id, key) in self._waiting:
            raise ClusterError(f"a request with key {key!r} is already waiting for its reply")

    def add(self, session_id: int, request: Request, term: int) -> None:
        """The request was sent, to the leader of that term."""
        request._term = term
        request._sent_ns = self.round_trips.now_ns()
        self._waiting[session_id, request.key] = request
        self._next_deadline_ns = min(self._next_deadline_ns, request._deadline_ns)
        self._sent += 1

    def forget(self, session_id: int, request: Request) -> None:
        """Nobody waits for it any more, for another reason than an error that this table knows of."""
        place = (session_id, request.key)
        if self._waiting.get(place) is request and self._waiting.pop(place, None) is not None:
            self._forgotten += 1
            request.is_done = True

    # Replies

    def take(self, session_id: int, payload: bytes) -> bool:
        """Whether a message is a reply; one for which nobody waits is dropped. Raises what ``correlate`` raises."""
        key = None if self.correlate is None else self.correlate(payload)
        if key is None:
            return False
        self.answer(session_id, key, payload)
        return True

    def answer(self, session_id: int, key: Hashable, payload: bytes) -> bool:
        """End the request with that key; False when there is none."""
        request = self._waiting.pop((session_id, key), None)
        if request is None:
            self._unmatched += 1
            return False
        self._answered += 1
        self.round_trips.record_since(request._sent_ns)
        request.end(payload=payload)
        return True

    # The end of leaders, clients and patience

    def on_leader_lost(self, leader_member_id: int) -> None:
        """The leader is gone: what may not be sent again ends now."""
        self._end_all(
            lambda place, request: request._message is None,
            lambda place, request: LeaderChangedError(
                f"request with key {request.key!r}: the leader, member {leader_member_id}, is lost, and no reply came; "
                "its outcome is unknown"
            ),
        )

    def on_new_leader(self, term: int, leader_member_id: int) -> None:
        """A leader is there: what was sent in another term, and may not be sent again, ends now."""
        self._end_all(
            lambda place, request: request._message is None and request._term != term,
            lambda place, request: LeaderChangedError(
                f"request with key {request.key!r}: member {leader_member_id} leads since term {term}, and no reply "
                f"came to what was sent in term {request._term}; its outcome is unknown"
            ),
        )

    def unsent(self, term: int) -> list[tuple[int, Request, bytes]]:
        """What is to be sent again to the leader of that term: (session id, request, message), first sent first."""
        return [
            (session_id, request, request._message)
            for (session_id, _), request in list(self._waiting.items())
            if request._term != term and request._message is not None
        ]

    def on_resent(self, request: Request, term: int) -> None:
        """It was sent again, to the leader of that term."""
        request._term = term
        request.resent += 1
        self._resent += 1

    def on_closed(self, reason: str) -> None:
        """The client is closed: all requests end."""
        self._end_all(lambda place, request: True, _closing(f"the client is closed: {reason}"))

    def on_session_closed(self, session_id: int, reason: str) -> None:
        """A session of a pool is closed or lost: its requests end."""
        self._end_all(lambda place, request: place[0] == session_id, _closing(f"session {session_id} ended: {reason}"))

    def expire(self, now_ns: int) -> None:
        """End the requests whose deadline has come."""
        if now_ns < self._next_deadline_ns:
            return
        self._end_all(
            lambda place, request: request._deadline_ns <= now_ns,
            lambda place, request: RequestTimedOutError(
                f"no reply with key {request.key!r} within {request._timeout:g} s"
            ),
        )
        self._next_deadline_ns = min((request._deadline_ns for request in self._waiting.values()), default=_NEVER_NS)

    def _end_all(
        self, applies: Callable[[_Place, Request], bool], error: Callable[[_Place, Request], ContainerError]
    ) -> None:
        for place, request in list(self._waiting.items()):
            # Another thread may have taken it out meanwhile: an asyncio client's, whose reply has come.
            if applies(place, request) and self._waiting.pop(place, None) is not None:
                self._ended += 1
                request.end(error=error(place, request))
                if request._on_end is not None:
                    request._on_end(request)


def check_requests(correlate: object, resend: object) -> None:
    """Refuse what cannot be the arguments of a :class:`RequestTable`, with a ConfigurationError."""
    if correlate is not None and not callable(correlate):
        raise ConfigurationError(f"correlate must be a function that returns a reply's key, not {shown(correlate)}")
    check_flag("resend", resend)


def is_idempotent(idempotent: bool | None, resend: bool) -> bool:
    """Whether a request may be sent again; raises ConfigurationError unless ``idempotent`` is None, True or False."""
    if idempotent is None:
        return resend
    check_flag("idempotent", idempotent)
    return idempotent


def check_key(key: Hashable) -> None:
    """Refuse a key that cannot be hashed, with a TypeError."""
    try:
        hash(key)
    except TypeError:
        raise TypeError(f"key must be hashable, such as an int or a bytes, not {shown(key)}") from None


def message_length(buffers: tuple[Buffer, ...]) -> int:
    """Bytes of a message; raises TypeError for what is no buffer."""
    _check_buffers(buffers)
    return sum(memoryview(buffer).nbytes for buffer in buffers)


def as_bytes(buffers: tuple[Buffer, ...]) -> bytes:
    """A message made of the buffers in their order; raises TypeError for what is no buffer."""
    _check_buffers(buffers)
    return b"".join(buffers)


def _check_buffers(buffers: tuple[Buffer, ...]) -> None:
    for index, buffer in enumerate(buffers):
        if not isinstance(buffer, Buffer):
            raise TypeError(
                f"buffers[{index}] must be a bytes-like object, such as bytes or a memoryview, not {shown(buffer)}"
            )


def _closing(reason: str) -> Callable[[_Place, Request], ContainerError]:
    return lambda place, request: RequestClosedError(
        f"request with key {request.key!r}: {reason}; its outcome is unknown"
    )
