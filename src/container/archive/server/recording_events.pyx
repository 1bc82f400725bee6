"""The events that an archive publishes about its recordings: how they begin, proceed and end (101 to 103).

Upstream: RecordingEventsProxy.java. Events are for monitors: one that cannot be sent at once is dropped, and whatever
is wrong with their publication holds up no recording and ends none, which is better than upstream's.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from container.codecs.archive cimport (
    RECORDING_PROGRESS_ENCODED_LENGTH, RECORDING_STOPPED_ENCODED_LENGTH, recording_progress_encode,
    recording_started_encode, recording_started_encoded_length, recording_stopped_encode,
)
from container.common.sealed cimport seal
from container.transport.frames cimport ADMIN_ACTION, BACK_PRESSURED
from container.transport.transport_seam cimport Client

cdef enum:
    ATTEMPTS = 3            # of an event that comes once for a recording


cdef class RecordingEvents:
    """The events of an archive's recordings, on an exclusive publication.

    Args:
        client: the archive's (Client); its driver is asked for the publication, which blocks until it has answered.
        channel: on which the events are (str).
        stream_id: on which the events are (int).

    Raises what the client raises: RegistrationError where the driver refuses, DriverTimeoutError when it is gone.
    """

    def __init__(self, Client client not None, str channel not None, int32_t stream_id):
        self.publication = client.add_exclusive_publication(channel, stream_id)

    cpdef int started(
            self, int64_t recording_id, int64_t start_position, int32_t session_id, int32_t stream_id, str channel,
            str source_identity) except -1:
        """An image begins to be recorded. Return 0, also where nobody listens or there is no room.

        Args:
            recording_id: of the recording (int).
            start_position: where the image has joined, not where the recording begins (int, log position).
            session_id: of the image (int).
            stream_id: of the image (int).
            channel: as the client asked for it (str).
            source_identity: who sends to the image (str).
        """
        cdef bytes channel_text = channel.encode("ascii", "replace")
        cdef bytes identity = source_identity.encode("ascii", "replace")
        cdef uint32_t channel_length = <uint32_t> len(channel_text)
        cdef uint32_t identity_length = <uint32_t> len(identity)
        cdef int64_t length = recording_started_encoded_length(channel_length, identity_length)
        cdef bytes message = PyBytes_FromStringAndSize(NULL, length)
        cdef uint8_t* data = <uint8_t*> PyBytes_AS_STRING(message)
        recording_started_encode(
            data, length, recording_id, start_position, session_id, stream_id, channel_text, channel_length, identity,
            identity_length)
        self._send(data, length, ATTEMPTS)
        return 0

    cpdef bint progress(self, int64_t recording_id, int64_t start_position, int64_t position) except -1:
        """A recording has got to ``position``. Whether that was sent (bool): it need not be said again then.

        Args:
            recording_id: of the recording (int).
            start_position: as in :meth:`started` (int, log position).
            position: up to where it is recorded (int, log position).
        """
        cdef uint8_t[RECORDING_PROGRESS_ENCODED_LENGTH] message
        recording_progress_encode(message, sizeof(message), recording_id, start_position, position)
        return self._send(message, sizeof(message), 1)

    cpdef int stopped(self, int64_t recording_id, int64_t start_position, int64_t stop_position) except -1:
        """A recording has ended at ``stop_position``. Return 0, also where nobody listens or there is no room.

        Args:
            recording_id: of the recording (int).
            start_position: as in :meth:`started` (int, log position).
            stop_position: where it ends (int, log position).
        """
        cdef uint8_t[RECORDING_STOPPED_ENCODED_LENGTH] message
        recording_stopped_encode(message, sizeof(message), recording_id, start_position, stop_position)
        self._send(message, sizeof(message), ATTEMPTS)
        return 0

    cpdef int close(self) except -1:
        """Close the publication. May be called twice; events after that are dropped."""
        return self.publication.close()

    cdef bint _send(self, const uint8_t* message, size_t length, int attempts) noexcept:
        cdef int64_t result
        cdef int _attempt
        try:
            for _attempt in range(attempts):
                result = self.publication.offer(message, length)
                if result > 0:
                    return True
                if result != BACK_PRESSURED and result != ADMIN_ACTION:
                    break
        except Exception:       # for instance a message that is too long for the publication
            pass
        return False

    def __repr__(self):
        return f"<RecordingEvents {self.publication.channel} stream {self.publication.stream_id}>"


seal((RecordingEvents,))
