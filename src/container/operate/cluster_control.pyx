"""Asks a running consensus module, sets the counters by which it is controlled, and has an archive delete.

It is one more party on the control channel, beside the services. Upstream: ClusterTool, ClusterControl, AeronArchive.
"""
import time
from contextlib import suppress

from libc.stdint cimport int32_t, int64_t, uint8_t

from container.aeron.client cimport AeronClient
from container.archive import error_codes
from container.archive.client.archive_connection cimport ArchiveRequest
from container.archive.client.async_archive cimport AsyncArchive
from container.codecs.messages import decode, encode
from container.common.aeron_defaults import ARCHIVE_RESPONSE_STREAM_ID
from container.common.sealed cimport hide, seal
from container.errors import ArchiveError, CodecError
from container.transport.fragment_assembler cimport SessionFragmentAssembler
from container.transport.counters cimport COUNTER_ALLOCATED, Counters
from container.transport.frames cimport ACTION_BREAK, ACTION_CONTINUE, FrameHeader
from container.transport.streams cimport FragmentHandler, Publication, Subscription

cdef extern from *:
    """
    #include <stdint.h>
    static inline int container_compare_and_set(int64_t* value, int64_t expected, int64_t wanted)
    {
        return __atomic_compare_exchange_n(value, &expected, wanted, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    }
    static inline void container_set_release(int64_t* value, int64_t wanted)
    {
        __atomic_store_n(value, wanted, __ATOMIC_RELEASE);
    }
    """
    bint _compare_and_set "container_compare_and_set" (int64_t* value, int64_t expected, int64_t wanted) noexcept nogil
    void _set_release "container_set_release" (int64_t* value, int64_t wanted) noexcept nogil

cdef enum:
    FRAGMENT_LIMIT = 10
    COUNTER_STRIDE = 128
    TERM_LENGTH = 64 * 1024
    MTU_LENGTH = 1408

cdef double PAUSE_S = 0.001


def _decoded(data):
    """Name and fields of a message; an empty name for one of a later release."""
    with suppress(CodecError):
        return decode("cluster", data)
    return "", {}


cdef class _AnswerHandler(FragmentHandler):
    """Keeps the answer to one query; the services' messages on the same stream are skipped."""

    cdef int64_t correlation_id
    cdef object answer

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        name, fields = _decoded(buffer[:length])
        if name.startswith("ClusterMembers") and fields.get("correlation_id") == self.correlation_id:
            self.answer = name, fields
            return ACTION_BREAK
        return ACTION_CONTINUE


cdef class ClusterControl:
    """A client of a node's media driver that asks the node's consensus module; close it.

    Args:
        aeron_dir: of the media driver (str).

    Raises what AeronClient raises: DriverTimeoutError when the driver is gone.
    """

    cdef AeronClient _client
    cdef Counters _counters

    def __init__(self, aeron_dir):
        self._client = AeronClient(aeron_dir, "aeron-cluster")
        self._counters = self._client.counters()

    def query_members(self, str channel not None, int32_t service_stream_id, int32_t consensus_module_stream_id,
                      double limit_s):
        """Name (str) and fields (dict) of the answer to the question for the members; None without one in time.

        Args:
            channel: between consensus module and services (str).
            service_stream_id: from the consensus module (int).
            consensus_module_stream_id: to it (int).
            limit_s: for how long to wait, in seconds (float).
        """
        cdef double deadline_s = time.monotonic() + limit_s
        cdef Subscription subscription = self._client.add_subscription(channel, service_stream_id)
        cdef Publication publication = None
        cdef _AnswerHandler handler = _AnswerHandler.__new__(_AnswerHandler)
        cdef SessionFragmentAssembler assembler = SessionFragmentAssembler(handler)
        cdef bint is_sent = False
        cdef bytes query
        handler.correlation_id = self._client.next_correlation_id()
        query = encode("cluster", "ClusterMembersQuery", correlation_id=handler.correlation_id, extended=1)
        try:
            publication = self._client.add_publication(channel, consensus_module_stream_id)
            while handler.answer is None and time.monotonic() < deadline_s:
                self._client.invoke()
                # Both directions must be there: upstream asks as soon as one is, and may miss the answer.
                if not is_sent and subscription.is_connected() and publication.is_connected():
                    is_sent = publication.offer(query, len(query)) > 0
                if subscription.controlled_poll(assembler, FRAGMENT_LIMIT) == 0:
                    time.sleep(PAUSE_S)
        finally:
            subscription.close()
            if publication is not None:
                publication.close()
        return handler.answer

    def value(self, int32_t counter_id):
        """The value of a counter (int)."""
        return self._counters.value(counter_id)

    def compare_and_set(self, int32_t counter_id, int32_t type_id, int64_t expected, int64_t value):
        """Set a counter of a type that has the expected value (int); whether it had (bool)."""
        return _compare_and_set(self._place(counter_id, type_id), expected, value)

    def set(self, int32_t counter_id, int32_t type_id, int64_t value):
        """Set a counter of a type."""
        _set_release(self._place(counter_id, type_id), value)

    cdef int64_t* _place(self, int32_t counter_id, int32_t type_id) except NULL:
        if (not 0 <= counter_id < self._counters.capacity()
                or self._counters.state(counter_id) != COUNTER_ALLOCATED
                or self._counters.type_id(counter_id) != type_id):
            raise ValueError(f"counter {counter_id} is no longer of type {type_id}")
        return <int64_t*> (self._counters._values + <size_t> counter_id * COUNTER_STRIDE)

    def close(self):
        """Close the client; may be called twice."""
        self._client.close()


cdef class ArchiveControl:
    """A client of an archive, which waits for the answer to each request; close it.

    Args:
        aeron_dir: of the archive's media driver (str).
        channel, stream_id: where the archive listens to this machine (str, int).
        limit_s: for how long to wait for an answer, in seconds (float).

    Raises what AeronClient raises, and what :class:`AsyncArchive` does: TimedOutError when there is no answer in time.
    """

    cdef AeronClient _client
    cdef AsyncArchive _archive

    def __init__(self, str aeron_dir not None, str channel not None, int32_t stream_id, double limit_s):
        self._client = AeronClient(aeron_dir, "aeron-cluster")
        try:
            self._archive = AsyncArchive(
                self._client, control_channel=channel, control_stream_id=stream_id, response_channel=channel,
                response_stream_id=ARCHIVE_RESPONSE_STREAM_ID, term_buffer_length=TERM_LENGTH, mtu_length=MTU_LENGTH,
                is_sparse=True, client_name="aeron-cluster", encoded_credentials=b"",
                message_timeout_ns=<int64_t> (limit_s * 1e9))
            while not self._archive.poll():
                self._pause()
        except BaseException:
            self.close()
            raise

    cdef int _pause(self) except -1:
        self._client.invoke()
        time.sleep(PAUSE_S)
        return 0

    cdef int64_t _answer(self, ArchiveRequest request) except? -2:
        while not request.is_done:
            self._archive.poll()
            if not request.is_done:
                self._pause()
        if request.error is not None:
            raise request.error
        return request.relevant_id

    def delete_recording(self, int64_t recording_id):
        """Delete a stopped recording; whether it was there (bool). Raises ArchiveError when the archive refuses."""
        cdef bint was_there = True
        try:
            self._answer(self._archive.purge_recording(recording_id))
        except ArchiveError as error:
            if error.code != error_codes.UNKNOWN_RECORDING:
                raise
            was_there = False
        return was_there

    def delete_segments(self, int64_t recording_id, int64_t new_start_position):
        """Let a recording begin at a later segment; how many are deleted (int). Raises ArchiveError as above."""
        return self._answer(self._archive.purge_segments(recording_id, new_start_position))

    def close(self):
        """Close session and client; may be called twice."""
        if self._archive is not None:
            self._archive.close()
            self._archive = None
        self._client.close()


hide((_AnswerHandler,))
seal((ClusterControl, ArchiveControl))
