"""The subscription of a request for a recording: from the driver's answer to the end of its recordings.

Upstream: the subscriptions and their reference counts in ArchiveConductor.java. The driver is asked and not waited for,
so that no other recording waits either.
"""
from libc.stdint cimport int32_t, int64_t

from container.archive.server.sessions.control_session cimport ControlSession
from container.archive.server.sessions.recording_session cimport RecordingSession
from container.common.sealed cimport seal
from container.transport.frames cimport NULL_VALUE
from container.transport.transport_seam cimport Client
from container.transport.streams cimport Image

cdef class RecordingSubscription:
    """A subscription whose images are recorded.

    Args:
        client: adds it (Client).
        control_session: of the request (ControlSession).
        correlation_id: of the request, or the id of the replication that needs the recording (int).
        key: what no two of them may share (str).
        channel: what is subscribed to (str).
        stream_id: of it (int).
        stripped_channel, original_channel: what the catalog keeps of the request's channel (str).
        is_auto_stop: whether it ends with its first recording (bool).
        extended_recording_id: the recording that the image is recorded into; -1: each image begins a recording.
    """

    def __init__(
        self, Client client not None, ControlSession control_session not None, int64_t correlation_id, *,
        str key not None, str channel not None, int32_t stream_id, str stripped_channel not None,
        str original_channel not None, bint is_auto_stop, int64_t extended_recording_id=NULL_VALUE
    ):
        self.control_session, self.correlation_id = control_session, correlation_id
        self.key, self.stream_id = key, stream_id
        self.stripped_channel, self.original_channel = stripped_channel, original_channel
        self.is_auto_stop, self.extended_recording_id = is_auto_stop, extended_recording_id
        self.subscription_id = NULL_VALUE
        self._pending = client.begin_add_subscription(channel, stream_id, True)

    cdef bint poll(self) except -1:
        """Whether the driver has just added it; raises what it refuses it with, once."""
        cdef object added
        if self._pending is None:
            return False
        try:
            added = self._pending.poll()
        except Exception:
            self._pending = None
            raise
        if added is None:
            return False
        self._pending = None
        self.subscription = added
        self.subscription_id = self.subscription.registration_id
        return True

    cdef bint is_awaited(self) noexcept:
        """Whether the driver has not answered yet."""
        return self._pending is not None

    cdef Image take_new_image(self):
        return None if self.subscription is None or self.is_ended else self.subscription.take_new_image()

    cdef int begin_recording(self) noexcept:
        self.recording_count += 1
        return 0

    cdef int end_recording(self) noexcept:
        self.recording_count -= 1
        return 0

    cdef int set_recording(self, RecordingSession recording) noexcept:
        self.recording = recording
        return 0

    cdef int end(self, object error=None) except -1:
        """Begin no further recording, and keep the first reason (ArchiveError); :meth:`close` is to follow."""
        self.is_ended = True
        if self.error is None:
            self.error = error
        return 0

    cpdef int close(self) except -1:
        """End it: close the subscription, or give the add up. May be called twice."""
        cdef object closable = self._pending if self.subscription is None else self.subscription
        self.is_ended = True
        self._pending = None
        self.subscription = None
        if closable is not None:
            closable.close()
        return 0

    def __repr__(self):
        return f"<RecordingSubscription {self.key} subscription_id={self.subscription_id}>"


seal((RecordingSubscription,))
