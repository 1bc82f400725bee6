"""Lists of recordings and of what is subscribed to be recorded, which a client gets piece by piece (8, 9, 10, 16, 17).

Upstream: AbstractListRecordingsSession.java and what derives from it, ListRecordingSubscriptionsSession.java,
``Catalog.findLast``. A session has one list at a time; a list looks at some entries in each turn of the duty cycle, and
waits with the next one while the client has no room for it.

Better than upstream's: a list of nothing, or of less than that, ends with a reply, where upstream sends none and never
ends; no subscription comes twice to a client that is slow; and what can never be sent ends its list with an error.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from container.archive import error_codes
from container.archive.server.sessions.control_session import ControlSession
from container.archive.server.store.catalog import Catalog
from container.common.error_texts import message_of
from container.errors import ArchiveError

__all__ = ["ListingSession", "SubscriptionListing", "find_last_matching"]

_SCANS_PER_TURN = 64
_NULL_RECORDING_ID = -1

# A recording's descriptor as the catalog has it: fixed fields, then three texts, each behind its length.
_SESSION_AND_STREAM_ID = struct.Struct("<ii")
_SESSION_ID_OFFSET = 72
_TEXTS_OFFSET = 80
_TEXT_LENGTH = struct.Struct("<I")


class _Listing(ABC):
    """A list sent to a client in parts, some in each turn."""

    def __init__(
        self, control_session: ControlSession, correlation_id: int, on_error: Callable[[Exception], object] | None
    ) -> None:
        self.control_session = control_session
        self._on_error = on_error
        self._correlation_id = correlation_id
        self._has_ended = False

    @property
    def is_done(self) -> bool:
        """Whether nothing more is sent: all is, or the control session has ended."""
        return self._has_ended or self.control_session.is_done

    def do_work(self) -> int:
        """Send what there is room for, and return how many entries were looked at. Nothing is raised."""
        if self.is_done:
            return 0
        try:
            return self._send_some()
        except Exception as error:  # a disk that fails, or a descriptor that is longer than a message may be
            code = error.code if isinstance(error, ArchiveError) else error_codes.GENERIC
            self._has_ended = True
            if self._on_error is not None:
                self._on_error(error)
            self.control_session.send_error(self._correlation_id, message_of(error), code)
            return 1

    def abort(self, reason: str) -> None:
        """End it: its control session has ended, for whatever reason."""
        self._has_ended = True

    @abstractmethod
    def _send_some(self) -> int:
        """One turn, as :meth:`do_work`; may raise."""


class ListingSession(_Listing):
    """The descriptors of recordings, in the order of their ids, to the client that asked for them.

    Where there are fewer than it asked for, RECORDING_UNKNOWN ends the list, with the id behind the last one. A
    recording that is added or deleted while the list is sent may or may not be in it.

    Args:
        control_session: of the request.
        catalog: is only read.
        correlation_id: of the request.
        from_recording_id: the list begins with the first recording of this id or of a later one.
        record_count: how many descriptors are sent at most.
        stream_id: only recordings of this stream are sent; None: of any.
        channel_fragment: only recordings are sent whose original channel contains these bytes; None: all.
        is_single: only the recording ``from_recording_id`` is sent; RECORDING_UNKNOWN with its id where there is none.
        on_error: receives the error that ends the list as well; it must not raise.
    """

    def __init__(
        self,
        control_session: ControlSession,
        catalog: Catalog,
        correlation_id: int,
        *,
        from_recording_id: int,
        record_count: int,
        stream_id: int | None = None,
        channel_fragment: bytes | None = None,
        is_single: bool = False,
        on_error: Callable[[Exception], object] | None = None,
    ) -> None:
        super().__init__(control_session, correlation_id, on_error)
        self._catalog = catalog
        self._stream_id = stream_id
        self._channel_fragment = channel_fragment
        self._left = 1 if is_single else record_count
        self._following_id = from_recording_id  # behind the last that was looked at
        self._recording_ids = iter((from_recording_id,)) if is_single else self._ids_from(from_recording_id)
        self._recording_id: int | None = None  # the next to be looked at, if one is known

    def _ids_from(self, first_id: int) -> Iterator[int]:
        recording_ids, next_id = self._catalog.recording_ids(), self._catalog.next_recording_id
        yield from recording_ids[bisect_left(recording_ids, first_id) :]
        recording_id = max(first_id, next_id)
        while recording_id < self._catalog.next_recording_id:
            yield recording_id
            recording_id += 1

    def _send_some(self) -> int:
        work_count = 0
        while self._left > 0 and work_count < _SCANS_PER_TURN:
            recording_id = self._next_id()
            if recording_id is None:
                break
            entry = self._catalog.entry_bytes(recording_id)
            if self._matches(entry):
                if not self.control_session.send_descriptor(self._correlation_id, entry):
                    return work_count
                self._left -= 1
            self._recording_id = None
            self._following_id = recording_id + 1
            work_count += 1
            if self._left == 0:
                self._has_ended = True
                return work_count
        if work_count < _SCANS_PER_TURN:
            self._has_ended = True
            self.control_session.send_recording_unknown(self._correlation_id, self._following_id)
            work_count += 1
        return work_count

    def _next_id(self) -> int | None:
        """The next recording that is there; the same one until it was dealt with."""
        if self._recording_id is None or not self._catalog.has(self._recording_id):
            self._recording_id = next(filter(self._catalog.has, self._recording_ids), None)
        return self._recording_id

    def _matches(self, entry: bytes) -> bool:
        if self._stream_id is not None and _session_and_stream_id(entry)[1] != self._stream_id:
            return False
        return self._channel_fragment is None or self._channel_fragment in _original_channel(entry)

    def __repr__(self) -> str:
        return (
            f"<ListingSession correlation_id={self._correlation_id} from={self._following_id} left={self._left}"
            f"{' done' if self.is_done else ''}>"
        )


class SubscriptionListing(_Listing):
    """The archive's subscriptions for recordings, sent to the client that asked for them.

    Where there are fewer than it asked for, SUBSCRIPTION_UNKNOWN ends the list.

    Args:
        control_session: of the request.
        correlation_id: of the request.
        subscriptions: id, stream and channel of each that there is: the stripped channel as the archive subscribed to
            it, with the prefix of a spy where it is one.
        pseudo_index: number of subscriptions to skip, whether they match or not; below 0 none is sent.
        subscription_count: maximum number to send.
        apply_stream_id: whether to send only those of ``stream_id``.
        stream_id: that stream.
        channel_fragment: only those are sent whose channel contains these bytes.
        on_error: receives the error that ends the list as well; it must not raise.
    """

    def __init__(
        self,
        control_session: ControlSession,
        correlation_id: int,
        subscriptions: Sequence[tuple[int, int, str]],
        *,
        pseudo_index: int,
        subscription_count: int,
        apply_stream_id: bool,
        stream_id: int,
        channel_fragment: bytes,
        on_error: Callable[[Exception], object] | None = None,
    ) -> None:
        super().__init__(control_session, correlation_id, on_error)
        self._subscriptions = tuple(subscriptions)
        self._index = pseudo_index
        self._left = subscription_count if pseudo_index >= 0 else 0
        self._stream_id = stream_id if apply_stream_id else None
        self._channel_fragment = channel_fragment

    def _send_some(self) -> int:
        work_count = 0
        while self._left > 0 and work_count < _SCANS_PER_TURN and self._index < len(self._subscriptions):
            subscription = self._subscriptions[self._index]
            if self._matches(subscription):
                if not self.control_session.send_subscription_descriptor(self._correlation_id, *subscription):
                    return work_count
                self._left -= 1
            self._index += 1
            work_count += 1
            if self._left == 0:
                self._has_ended = True
                return work_count
        if work_count < _SCANS_PER_TURN:
            self._has_ended = True
            self.control_session.send_subscription_unknown(self._correlation_id)
            work_count += 1
        return work_count

    def _matches(self, subscription: tuple[int, int, str]) -> bool:
        _, stream_id, channel = subscription
        if self._stream_id is not None and stream_id != self._stream_id:
            return False
        return self._channel_fragment in channel.encode("ascii", "replace")

    def __repr__(self) -> str:
        return (
            f"<SubscriptionListing correlation_id={self._correlation_id} index={self._index} of "
            f"{len(self._subscriptions)} left={self._left}{' done' if self.is_done else ''}>"
        )


def find_last_matching(
    catalog: Catalog, *, min_recording_id: int, session_id: int, stream_id: int, channel_fragment: bytes
) -> int:
    """The newest recording of a session, stream and channel (request 16), or -1 where there is none.

    Args:
        catalog: is only read.
        min_recording_id: recordings before this one do not count.
        session_id: of the stream that was recorded.
        stream_id: of the stream that was recorded.
        channel_fragment: the original channel contains these bytes.

    Raises ArchiveError, code UNKNOWN_RECORDING, for an id that cannot be; OSError or RecordingError when the catalog
    cannot be read.
    """
    if min_recording_id < 0:
        raise ArchiveError(f"minRecordingId={min_recording_id} < 0", code=error_codes.UNKNOWN_RECORDING)
    recording_ids = catalog.recording_ids()
    for recording_id in reversed(recording_ids[bisect_left(recording_ids, min_recording_id) :]):
        entry = catalog.entry_bytes(recording_id)
        if _session_and_stream_id(entry) == (session_id, stream_id) and channel_fragment in _original_channel(entry):
            return recording_id
    return _NULL_RECORDING_ID


def _session_and_stream_id(entry: bytes) -> tuple[int, int]:
    session_id, stream_id = _SESSION_AND_STREAM_ID.unpack_from(entry, _SESSION_ID_OFFSET)
    return session_id, stream_id


def _original_channel(entry: bytes) -> bytes:
    """The second of the texts."""
    offset = _TEXTS_OFFSET + _TEXT_LENGTH.size + _TEXT_LENGTH.unpack_from(entry, _TEXTS_OFFSET)[0]
    begin = offset + _TEXT_LENGTH.size
    return entry[begin : begin + _TEXT_LENGTH.unpack_from(entry, offset)[0]]
