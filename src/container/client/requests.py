"""Requests in flight: which wait for a reply, and how each ends when the leader or the client is lost.

Free of I/O. A request is bound to the leadership term in which it was sent: the leader of another term will not answer
it. So with a new leader it is sent again, where the caller allows that, or ends with an error that says that its
outcome is unknown. The client that owns the table polls, offers and keeps the time.

A reply says which key it answers, and not which request. So a key is refused while a reply with it may still come: to a
request that waits, that ended without its reply, or that was sent to two leaders and answered by one.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Buffer, Callable, Hashable, Iterator
from contextlib import suppress
from heapq import heapify, heappop, heappush
from types import CodeType
from typing import NamedTuple

from container.client.client_context import check_flag
from container.client.round_trip_recorder import RoundTripRecorder
from container.common.values import counted, shown
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
type _Sent = tuple[_Place, Request]

_NO_TERM = -1
_NEVER_NS = 2**63 - 1
_MIN_COMPACTED = 1_024

MAX_OWED = 65_536
"""Keys that are refused because a reply may still come. Beyond that the oldest are usable again."""


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
        "_is_doomed",
        "_message",
        "_on_end",
        "_owed",
        "_poll",
        "_sent_ns",
        "_term",
        "_timeout",
        "error",
        "hint",
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
        """For the client: ``message`` is kept to be sent again, None for never; ``on_end`` is called at the end."""
        #: The key by which its reply is found.
        self.key = key
        #: True once :attr:`payload` or :attr:`error` is there.
        self.is_done = False
        #: The reply's payload (bytes); None before, and when there is none.
        self.payload: bytes | None = None
        #: Why there is no reply; None before, and when there is one.
        self.error: ContainerError | None = None
        #: How often it was sent again, to a new leader.
        self.resent = 0
        #: A likely reason why no reply came, for the error; empty when none is known.
        self.hint = ""
        self._message = message
        self._timeout = timeout
        self._deadline_ns = deadline_ns
        self._term = _NO_TERM
        self._sent_ns = 0
        self._owed = 0  # replies that may come: one for each time that it was sent
        self._is_doomed = False  # its owner has been told how it ends
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
        if self._on_end is not None:
            self._on_end(self)

    def __repr__(self) -> str:
        state = "waits" if not self.is_done else "answered" if self.error is None else type(self.error).__name__
        return f"<Request {self.key!r} {state}>"


class Verdict(NamedTuple):
    """How a request is to end, for the owner of its fate: see :meth:`RequestTable.defer`."""

    place: _Place
    request: Request
    error: ContainerError


class Deadlines[T]:
    """Entries by deadline, the earliest first. ``is_over`` says which have ended before their own."""

    def __init__(self, is_over: Callable[[T], bool]) -> None:
        self._is_over = is_over
        self._heap: list[tuple[int, int, T]] = []
        self._number = 0
        self._most = _MIN_COMPACTED

    def add(self, deadline_ns: int, item: T) -> None:
        """It may be added again, with the same deadline or another."""
        if len(self._heap) >= self._most:
            self._heap = [entry for entry in self._heap if not self._is_over(entry[2])]
            heapify(self._heap)
            self._most = max(_MIN_COMPACTED, 2 * len(self._heap))
        self._number += 1
        heappush(self._heap, (deadline_ns, self._number, item))

    def due(self, now_ns: int) -> Iterator[T]:
        """Those whose deadline has come and which are not over; each is returned once."""
        while self._heap and self._heap[0][0] <= now_ns:
            item = heappop(self._heap)[2]
            if not self._is_over(item):
                yield item


class RequestTable:
    """The requests in flight of one client, or of all sessions of a pool, in the order in which they were sent.

    ``correlate`` returns the key of the request that a payload answers, None if it is not a reply. ``resend``
    is for requests that do not say whether they may be sent again.

    One thread at a time uses it. An asyncio client has two: see :meth:`defer`.
    """

    def __init__(self, correlate: Correlate | None, *, resend: bool = False) -> None:
        check_requests(correlate, resend)
        self.correlate = correlate
        self.resend = resend
        #: The owner of the table replaces the clock by its own.
        self.round_trips = RoundTripRecorder(SystemClock())
        self._waiting: dict[_Place, Request] = {}
        self._owed: OrderedDict[_Place, int] = OrderedDict()  # replies that may come to requests that have ended
        self._keys: dict[int, dict[Hashable, None]] = {}  # by session: of those that wait, and of those owed
        self._deadlines: Deadlines[_Sent] = Deadlines(lambda sent: sent[1].is_done)
        self._to_resend: deque[_Sent] = deque()
        self._term = _NO_TERM  # for which that was filled
        self._defer: Callable[[Verdict], object] | None = None
        self._sent = self._answered = self._unmatched = self._resent = self._unknown = 0
        self._stray: tuple[_Place, int] | None = None  # the last key that no request was sent with, and when it came

    def __len__(self) -> int:
        return len(self._waiting)

    def change(self, correlate: Correlate, resend: bool) -> None:
        """Use another function and another rule from now on; the counts continue."""
        check_requests(correlate, resend)
        self.correlate = correlate
        self.resend = resend

    def defer(self, tell: Callable[[Verdict], object]) -> None:
        """Another thread decides about leaders and the client's end, and does not know which replies have come.

        From now on ``tell`` is called there with how a request is to end, and the request's owner calls :meth:`end`
        in its turn: a reply that has come before counts.
        """
        self._defer = tell

    @property
    def counts(self) -> RequestCounts:
        """Counts of the requests so far, by outcome."""
        return RequestCounts(
            self._sent, self._answered, self._resent, self._unknown, self._unmatched, len(self._waiting)
        )

    def is_resendable(self, idempotent: bool | None) -> bool:
        """Whether a request may be sent again, which its caller has said or left to the client's setting."""
        return is_idempotent(idempotent, self.resend)

    def check_key(self, session_id: int, key: Hashable) -> None:
        """Raise ClusterError when a reply of that session with that key may still come, TypeError for a key that
        cannot be hashed."""
        check_key(key)
        place = (session_id, key)
        if place in self._waiting:
            raise ClusterError(f"a request with key {key!r} is already waiting for its reply")
        if place in self._owed:
            raise ClusterError(
                f"key {key!r} was that of a request whose reply may still come, and would answer this one: use keys "
                "that are never used twice, such as numbers that go up"
            )

    def add(self, session_id: int, request: Request, term: int) -> None:
        """The request was sent, to the leader of that term."""
        place = (session_id, request.key)
        request._term = term
        request._owed = 1
        request._sent_ns = self.round_trips.now_ns()
        self._waiting[place] = request
        self._keys.setdefault(session_id, {})[request.key] = None
        if request._deadline_ns != _NEVER_NS:
            self._deadlines.add(request._deadline_ns, (place, request))
        self._sent += 1

    def forget(self, session_id: int, request: Request) -> None:
        """Nobody waits for it any more, for another reason than an error that this table knows of."""
        self.explain(session_id, request)
        if self._take_out((session_id, request.key), request):
            self._unknown += 1
            request.is_done = True

    def end(self, place: _Place, request: Request, error: ContainerError) -> None:
        """It ends with that error, unless it has ended."""
        if self._take_out(place, request):
            self._unknown += 1
            request.end(error=error)

    def _take_out(self, place: _Place, request: Request) -> bool:
        """False when it is not there any more."""
        if self._waiting.get(place) is not request:
            return False
        del self._waiting[place]
        self._owe(place, request._owed)
        return True

    # Replies

    def take(self, session_id: int, payload: bytes) -> bool:
        """Whether a message is a reply; one for which nobody waits is dropped. Raises as :func:`reply_key`."""
        key = None if self.correlate is None else reply_key(self.correlate, payload)
        if key is None:
            return False
        self.answer(session_id, key, payload)
        return True

    def answer(self, session_id: int, key: Hashable, payload: bytes) -> bool:
        """End the request with that key; False when there is none."""
        place = (session_id, key)
        request = self._waiting.pop(place, None)
        if request is None:
            self._unmatched += 1
            if place in self._owed:
                self._owe(place, self._owed[place] - 1)
            else:
                self._stray = place, self.round_trips.now_ns()
            return False
        self._answered += 1
        self._owe(place, request._owed - 1)
        self.round_trips.record_since(request._sent_ns)
        request.end(payload=payload)
        return True

    def _owe(self, place: _Place, replies: int) -> None:
        """So many may still come for that key, for which no request waits."""
        if replies > 0:
            self._owed[place] = replies
            if len(self._owed) <= MAX_OWED:
                return
            place, _ = self._owed.popitem(last=False)
        else:
            self._owed.pop(place, None)
        session_id, key = place
        keys = self._keys[session_id]
        del keys[key]
        if not keys:
            del self._keys[session_id]

    # The end of leaders, clients and patience

    def on_leader_lost(self, leader_member_id: int) -> None:
        """The leader is gone: what may not be sent again ends now."""
        for place, request in self._in_flight():
            if request._message is None:
                self._conclude(
                    place,
                    request,
                    LeaderChangedError(
                        f"request with key {request.key!r}: the leader, member {leader_member_id}, is lost, and no "
                        "reply came; its outcome is unknown"
                    ),
                )

    def on_new_leader(self, term: int, leader_member_id: int) -> None:
        """A leader is there: requests sent in another term end now, or are sent again: see :meth:`resend_next`. Nothing
        happens the second time for a term."""
        if term == self._term:
            return
        self._term = term
        self._to_resend.clear()
        for place, request in self._in_flight():
            if request._term == term:
                continue
            if request._message is not None:
                self._to_resend.append((place, request))
                continue
            self._conclude(
                place,
                request,
                LeaderChangedError(
                    f"request with key {request.key!r}: member {leader_member_id} leads since term {term}, and no "
                    f"reply came to what was sent in term {request._term}; its outcome is unknown"
                ),
            )

    def resend_next(self, send: Callable[[int, bytes], int]) -> bool:
        """Send the next request to the new leader again, first sent first. ``send`` is given its session's id and its
        message, and returns a position (> 0) when that was accepted. False when it was not, or all were sent."""
        while self._to_resend:
            place, request = self._to_resend[0]
            message = request._message
            if self._waiting.get(place) is request and message is not None:
                request._owed += 1  # before it is sent: its end may be noted on another thread
                if send(place[0], message) <= 0:
                    request._owed -= 1
                    return False
                self._to_resend.popleft()
                request._term = self._term
                request.resent += 1
                self._resent += 1
                return True
            self._to_resend.popleft()
        return False

    @property
    def is_all_resent(self) -> bool:
        """Whether no request waits to be sent again."""
        return not self._to_resend

    def on_closed(self, reason: str) -> None:
        """The client is closed: all requests end, and no reply comes any more."""
        for place, request in self._in_flight():
            self._conclude(place, request, _closing(request, f"the client is closed: {reason}"))
        if self._defer is None:
            self._owed.clear()
            self._keys.clear()

    def on_session_closed(self, session_id: int, reason: str) -> None:
        """A session of a pool is closed or lost: its requests end, and no reply comes in it any more."""
        for key in self._keys.pop(session_id, ()):
            place = (session_id, key)
            self._owed.pop(place, None)
            request = self._waiting.pop(place, None)
            if request is not None:
                self._unknown += 1
                request.end(error=_closing(request, f"session {session_id} ended: {reason}"))

    def expire(self, now_ns: int) -> None:
        """End the requests whose deadline has come."""
        for place, request in self._deadlines.due(now_ns):
            self._conclude(
                place,
                request,
                no_reply_error(request.key, request._timeout, self.explain(place[0], request)),
            )

    def explain(self, session_id: int, request: Request) -> str:
        """A likely reason why no reply came, also in :attr:`Request.hint`: ``correlate`` makes another key of it."""
        if self._stray is not None and request.is_sent:
            (stray_session_id, key), came_ns = self._stray
            # One of the same type may be another reply to a request that was answered, or of another client's.
            is_alike = type(key) is type(request.key)
            if stray_session_id == session_id and came_ns >= request._sent_ns and not is_alike:
                request.hint = (
                    f"; meanwhile correlate returned {shown(key)} for a message, and no request has that key: give "
                    "request() a key that is equal to what correlate returns"
                )
        return request.hint

    def _in_flight(self) -> list[_Sent]:
        """Those whose end is not decided."""
        return [sent for sent in list(self._waiting.items()) if not sent[1]._is_doomed]

    def _conclude(self, place: _Place, request: Request, error: ContainerError) -> None:
        if self._defer is None:
            self.end(place, request, error)
        else:
            request._is_doomed = True
            self._defer(Verdict(place, request, error))


def check_requests(correlate: object, resend: object) -> None:
    """Refuse what cannot be the arguments of a :class:`RequestTable`, with a ConfigurationError."""
    if correlate is not None and not callable(correlate):
        raise ConfigurationError(f"correlate must be a function that returns a reply's key, not {shown(correlate)}")
    check_flag("resend", resend)


def reply_key(correlate: Correlate, payload: bytes) -> Hashable | None:
    """The key of the request that a payload answers, as the user's function says. None: it is not a reply.

    Raises TypeError for a key that cannot be hashed, and what the function raises, with a note that names the function
    and the message.
    """
    try:
        key = correlate(payload)
    except Exception as error:
        _add_note(error, f"{_named(correlate)} failed for the message {_shown(payload)}")
        raise
    if key is None:
        return None
    try:
        hash(key)
    except TypeError:
        raise TypeError(
            f"{_named(correlate)} returned {shown(key)} for the message {_shown(payload)}: a key must be hashable, "
            "such as an int or a bytes; return None for a message that is not a reply"
        ) from None
    return key


def _named(correlate: Correlate) -> str:
    """A user's function as an error names it, with the place of its code."""
    name = getattr(correlate, "__qualname__", None)
    code = getattr(correlate, "__code__", None)
    text = f"correlate {name}()" if isinstance(name, str) else f"correlate {shown(correlate)}"
    return f'{text} (File "{code.co_filename}", line {code.co_firstlineno})' if isinstance(code, CodeType) else text


def _shown(payload: bytes) -> str:
    return f"{shown(payload)} ({counted(len(payload), 'byte')})"


def _add_note(error: BaseException, begin: str) -> None:
    note = f"{begin}: it is called with every message of the service; return None for one that is not a reply"
    with suppress(Exception):  # of a class that keeps no notes
        if note not in getattr(error, "__notes__", ()):  # the same error, raised again
            error.add_note(note)


def no_reply_error(key: Hashable, timeout: float, hint: str) -> RequestTimedOutError:
    """The error of a request to which no reply came within ``timeout`` seconds; see :attr:`Request.hint`."""
    return RequestTimedOutError(f"no reply with key {key!r} within {timeout:g} s{hint}")


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
    """Bytes of a message; raises TypeError for what is not a buffer."""
    _check_buffers(buffers)
    return sum(memoryview(buffer).nbytes for buffer in buffers)


def as_bytes(buffers: tuple[Buffer, ...]) -> bytes:
    """A message made of the buffers in their order; raises TypeError for what is not a buffer."""
    _check_buffers(buffers)
    return b"".join(buffers)


def _check_buffers(buffers: tuple[Buffer, ...]) -> None:
    for index, buffer in enumerate(buffers):
        if not isinstance(buffer, Buffer):
            raise TypeError(
                f"buffers[{index}] must be a bytes-like object, such as bytes or a memoryview, not {shown(buffer)}"
            )


def _closing(request: Request, reason: str) -> ContainerError:
    return RequestClosedError(f"request with key {request.key!r}: {reason}; its outcome is unknown")
