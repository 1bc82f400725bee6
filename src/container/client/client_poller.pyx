"""The thread behind an asyncio client: polls egress, keeps the session alive, and wakes the event loop.

It holds the GIL while it reads what has come, and not while it waits: it waits in ``ppoll`` for a time that grows to a
millisecond, and is nudged by each send, because an answer is then to be expected. While no request waits for its reply
the time grows on, as a share of the time since something came: what nobody asked for comes late by that share at most,
and an idle client costs next to nothing. The event loop is woken once for all that has come since it last looked. A
lock keeps a send on the loop's thread and a poll on this one apart; it is never held while anybody waits.
"""
import logging
import os
import threading

from libc.stdint cimport int32_t, int64_t, uint8_t

from container.client.aeron_cluster cimport AeronCluster
from container.client.aeron_cluster import ClientState
from container.client.egress_handler cimport EgressHandler, enumerated
from container.client.egress_listener import AdminRequestType, AdminResponseCode, EventCode
from container.common import forks
from container.common.process_end import Stage, close_at_end, stop_and_join
from container.common.sealed cimport seal
from container.transport.buffer_vectors cimport BufferVectors, gather_vectors, release_vectors
from container.transport.frames cimport ACTION_CONTINUE, FrameHeader
from container.transport.streams cimport Publication

cdef extern from *:
    """
    #include <poll.h>
    #include <sched.h>
    #include <stdint.h>
    #include <time.h>
    #include <unistd.h>
    /* Waits until the descriptor can be read, and reads it, or until the time is over. */
    static void client_poller_wait(int descriptor, int64_t duration_ns)
    {
        char bytes[64];
        struct pollfd nudge = { descriptor, POLLIN, 0 };
    #ifdef __linux__
        struct timespec duration = { (time_t)(duration_ns / 1000000000), (long)(duration_ns % 1000000000) };
        if (ppoll(&nudge, 1, &duration, NULL) > 0 && read(descriptor, bytes, sizeof(bytes)) < 0) { }
    #else
        const int duration_ms = (int)((duration_ns + 999999) / 1000000);
        if (poll(&nudge, 1, duration_ms) > 0 && read(descriptor, bytes, sizeof(bytes)) < 0) { }
    #endif
    }
    static void client_poller_nudge(int descriptor)
    {
        const uint64_t one = 1;
        if (write(descriptor, &one, sizeof(one)) < 0) { }
    }
    """
    void client_poller_wait(int descriptor, int64_t duration_ns) noexcept nogil
    void client_poller_nudge(int descriptor) noexcept nogil
    int sched_yield() noexcept nogil

cdef enum:
    FRAGMENT_LIMIT = 64
    MAX_YIELDS = 20
    MIN_PARK_NS = 5_000
    MAX_PARK_NS = 1_000_000
    MAX_REST_NS = 40_000_000                    # when no reply is awaited
    REST_SHARE = 50                             # of the time since something came or was sent

cdef int CONNECTED = ClientState.CONNECTED

_LOGGER = logging.getLogger("container.client")


cdef class EgressMessage:
    """A message of the service: ``payload`` (bytes), sent at cluster time ``timestamp`` (int).

    ``missed`` (int) is the number of messages dropped before this one because there was no room. ``is_over`` (bool) is
    True for a message that was read although there was no room, to reach later events.
    """

    cdef readonly bytes payload
    cdef readonly int64_t timestamp
    cdef public int64_t missed
    cdef readonly bint is_over                  # it was read although there was no room, for what may be behind it

    def __init__(self, bytes payload not None, int64_t timestamp=0):
        self.payload = payload
        self.timestamp = timestamp

    def __repr__(self):
        return f"EgressMessage({self.payload!r}, timestamp={self.timestamp})"


cdef class ClientPoller(EgressHandler):
    """Polls a connected client in a thread of its own, from :meth:`start` to :meth:`stop`, and closes it at the end.

    ``wake(poller)`` is called by that thread when there is something to :meth:`take`, and once more when the client is
    closed; then :attr:`is_ended` is True. When it raises, the poller stops: the event loop is gone.
    """

    cdef AeronCluster _cluster
    cdef object _lock
    cdef object _wake
    cdef object _thread
    cdef object _requests                       # RequestTable; its requests end on the loop's thread
    # EgressMessage, (name of a listener's callback, arguments), Verdict on a request, Exception. Never replaced: one
    # thread takes from its front, others append to it.
    cdef list _arrived
    cdef bint _is_wake_due                      # the loop knows, and has not looked yet
    cdef bint _is_stopping
    cdef str _reason                            # why it is stopped
    cdef bint _is_parked
    cdef readonly bint is_ended
    cdef bint _is_full                          # nobody takes messages
    cdef bint _is_dropping                      # and all is read anyway
    cdef readonly bint is_held_back             # nothing is read from egress
    cdef int _read_descriptor, _write_descriptor
    cdef int64_t _max_waiting, _max_waiting_bytes
    cdef object __weakref__
    # Messages and bytes that the poller's thread has read, that the loop has looked at, and that have left the client.
    cdef int64_t _read, _read_bytes, _taken_bytes, _released, _released_bytes
    cdef int64_t _heard                         # what the cluster has sent so far
    cdef readonly int64_t wake_count            # how often the event loop was woken
    cdef readonly int64_t poll_count

    def __cinit__(self):
        self._read_descriptor = self._write_descriptor = -1

    def __init__(self, AeronCluster cluster not None, wake, int64_t max_waiting, int64_t max_waiting_bytes, requests):
        self._cluster = cluster
        self._requests = requests
        cluster._use_requests(requests)
        cluster._is_correlating = False         # that is done on the loop
        self._lock = threading.Lock()
        self._wake = wake
        self._arrived = []
        requests.defer(self._arrived.append)    # behind what came before
        self._max_waiting = max_waiting
        self._max_waiting_bytes = max_waiting_bytes
        self._open_nudge()
        cluster._is_guarded = True
        cluster._handler = self
        forks.own(self)

    def _disown(self, long process_id):
        """In a forked child: ended. Its thread is not there, and the descriptors would nudge the parent's."""
        self._lock = threading.Lock()
        self._is_stopping = self.is_ended = True
        self._close_nudge()

    def __dealloc__(self):
        self._close_nudge()

    cdef int _close_nudge(self) except -1:
        for descriptor in {self._read_descriptor, self._write_descriptor} - {-1}:
            os.close(descriptor)
        self._read_descriptor = self._write_descriptor = -1
        return 0

    cdef int _open_nudge(self) except -1:
        if hasattr(os, "eventfd"):
            self._read_descriptor = self._write_descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            return 0
        self._read_descriptor, self._write_descriptor = os.pipe()
        os.set_blocking(self._read_descriptor, False)
        os.set_blocking(self._write_descriptor, False)
        return 0

    def start(self):
        """Start the thread; it is a daemon, so that a client that is not closed does not hold up the interpreter."""
        self._thread = threading.Thread(
            target=self._run, name=f"cluster-client-{self._cluster.cluster_session_id}", daemon=True)
        self._thread.start()
        close_at_end(self, Stage.POOL, stop_and_join)

    def stop(self, str reason=None):
        """Ask the thread to close the client and to end; do not wait. ``reason`` is the client's then, and None where
        its owner closes it."""
        if self._reason is None:
            self._reason = reason
        self._is_stopping = True
        client_poller_nudge(self._write_descriptor)

    def join(self, timeout):
        """Wait for the end of the thread, for at most ``timeout`` seconds (float); True when it has ended."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    # On the event loop's thread

    def offer(self, tuple buffers not None, request=None):
        """As :meth:`AeronCluster.offer`; if it is accepted, ``request`` (Request or None) is in flight."""
        cdef BufferVectors vectors
        cdef int64_t result = 0
        gather_vectors(&vectors, buffers)
        try:
            with self._lock:
                result = self._cluster._offer_vectors(&vectors)
                if request is not None and result > 0:
                    self._begin(request)
        finally:
            release_vectors(&vectors)
        self._nudge()
        return result

    def request_snapshot(self, int64_t correlation_id, request not None):
        """As :meth:`AeronCluster.send_admin_request_to_take_a_snapshot`; if it is sent, ``request`` is in flight."""
        with self._lock:
            if not self._cluster.send_admin_request_to_take_a_snapshot(correlation_id):
                return False
            self._begin(request)
            return True

    cdef int _begin(self, request) except -1:
        # With the lock: the term is the one that it was sent in.
        self._requests.add(self._cluster.cluster_session_id, request, self._cluster.leadership_term_id)
        return 0

    def next_correlation_id(self):
        """As :meth:`AeronCluster.next_correlation_id`."""
        with self._lock:
            return self._cluster.next_correlation_id()

    def signs(self):
        """As :meth:`AeronCluster._signs`."""
        with self._lock:
            return self._cluster._signs()

    @property
    def max_message_length(self):
        """As :attr:`AeronCluster.max_message_length`."""
        with self._lock:
            return self._cluster.max_message_length

    @property
    def close_reason(self):
        """As :attr:`AeronCluster.close_reason`."""
        with self._lock:
            return self._cluster.close_reason

    def take(self):
        """The items received since the last call, in order (list): EgressMessage, a callback's name and arguments, a
        Verdict on a request, or an exception that ended a poll."""
        cdef list arrived
        self._is_wake_due = False               # before it looks: what comes later wakes it again
        arrived = self._arrived[:]
        del self._arrived[:len(arrived)]
        for item in arrived:
            self._taken_bytes += _length(item)
        return arrived

    def release(self, item):
        """Give back the room of an item of :meth:`take` that has left the client, or that nobody asks for."""
        if isinstance(item, EgressMessage):
            self._released += 1
        self._released_bytes += _length(item)

    @property
    def waiting(self):
        """Messages that were read and not yet released (int)."""
        return self._read - self._released

    @property
    def waiting_bytes(self):
        """Bytes of what was read and not yet released (int)."""
        return self._read_bytes - self._released_bytes

    cdef int _nudge(self) except -1:
        if self._is_parked:
            self._is_parked = False
            client_poller_nudge(self._write_descriptor)
        return 0

    # The client's listener, on the poller's thread

    cdef int on_message(
            self, int64_t cluster_session_id, int64_t timestamp, const uint8_t* data, size_t length,
            const FrameHeader* header) except -1:
        cdef EgressMessage message = EgressMessage.__new__(EgressMessage)
        message.payload = (<const char*> data)[:length]
        message.timestamp = timestamp
        message.is_over = self._is_full
        self._read += 1
        return self._append(message)

    cdef int _append(self, item) except -1:
        self._heard += 1
        self._read_bytes += _length(item)
        self._arrived.append(item)
        return ACTION_CONTINUE

    cdef int on_session_event(
            self, int64_t correlation_id, int64_t cluster_session_id, int64_t leadership_term_id,
            int32_t leader_member_id, int32_t code, str detail) except -1:
        self._append(("on_session_event", (
            correlation_id, cluster_session_id, leadership_term_id, leader_member_id, enumerated(EventCode, code),
            detail)))
        return 0

    cdef int on_new_leader(
            self, int64_t cluster_session_id, int64_t leadership_term_id, int32_t leader_member_id,
            str ingress_endpoints) except -1:
        self._append(
            ("on_new_leader", (cluster_session_id, leadership_term_id, leader_member_id, ingress_endpoints)))
        return 0

    cdef int on_admin_response(
            self, int64_t cluster_session_id, int64_t correlation_id, int32_t request_type, int32_t response_code,
            str message, bytes payload) except -1:
        self._append(("on_admin_response", (
            cluster_session_id, correlation_id, enumerated(AdminRequestType, request_type),
            enumerated(AdminResponseCode, response_code), message, payload)))
        return 0

    cdef int on_extension_message(
            self, int block_length, int template_id, int schema_id, int version, bytes body) except -1:
        return self._append(("on_extension_message", (block_length, template_id, schema_id, version, body)))

    # The thread

    def _run(self):
        try:
            self._poll_until_closed()
            with self._lock:
                if self._reason is None:
                    self._cluster.close()
                else:
                    self._cluster._end_because(self._reason)
        except BaseException as error:
            if isinstance(error, Exception):
                self._arrived.append(error)
            self._close_because(f"its thread ended: {error!r}")
        finally:
            self.is_ended = True
            self._is_wake_due = False
            self._wake_loop()

    cdef int _close_because(self, str reason) except -1:
        with self._lock:
            if not self._cluster.is_closed:
                try:
                    self._cluster._send_close_request(self._cluster.cluster_session_id)
                finally:
                    self._cluster._close(reason)
        return 0

    cdef int _poll_until_closed(self) except -1:
        cdef int idle_count = 0
        cdef int64_t park_ns
        cdef int64_t quiet_since_ns = 0
        while not (self._is_stopping or self._cluster.is_closed):
            if self._poll():
                idle_count = 0
            if self._arrived and not self._wake_loop():
                return 0
            if idle_count == 0:
                quiet_since_ns = self._now_ns()
            if idle_count < MAX_YIELDS:
                idle_count += 1
                with nogil:
                    sched_yield()
                continue
            park_ns = min(<int64_t> MAX_PARK_NS, <int64_t> MIN_PARK_NS << min(idle_count - MAX_YIELDS, 12))
            if park_ns == MAX_PARK_NS and self._may_rest():
                park_ns = min(max(park_ns, (self._now_ns() - quiet_since_ns) // REST_SHARE), <int64_t> MAX_REST_NS)
            idle_count += 1
            self._is_parked = True
            with nogil:
                client_poller_wait(self._read_descriptor, park_ns)
            if not self._is_parked:
                idle_count = 0                  # nudged: expect an answer
            self._is_parked = False
        return 0

    cdef int64_t _now_ns(self) except? -1:
        return self._cluster._client.clock.nano_time()

    cdef bint _may_rest(self) except -1:
        # Nothing is due that polls bring about, and nothing that was asked for.
        return (self._cluster._state == CONNECTED and self._cluster._new_leader is None
                and self._cluster._agent_invoker is None and len(self._cluster._in_flight) == 0)

    cdef bint _poll(self) except -1:
        # Whether something came.
        cdef int64_t heard = self._heard
        failure = None
        self.poll_count += 1
        self._check_room()
        try:
            with self._lock:
                if self.is_held_back:
                    self._cluster._invoke()
                    self._cluster._poll_state(True)
                else:
                    self._cluster._poll(FRAGMENT_LIMIT)
        except Exception as error:
            failure = error
        if failure is not None:
            self._arrived.append(failure)
            self._cluster._check_client()
        return self._heard != heard

    cdef int _check_room(self) except -1:
        # A reply, or a new leader's event, may be behind messages that nobody takes. Then everything is read, and the
        # loop drops messages without room. Messages that the loop has not looked at yet are bounded anyway: it will
        # look.
        cdef bint is_full = (self._read - self._released >= self._max_waiting
                             or self._read_bytes - self._released_bytes >= self._max_waiting_bytes)
        cdef bint is_unseen = (len(self._arrived) >= self._max_waiting
                               or self._read_bytes - self._taken_bytes >= self._max_waiting_bytes)
        if is_full and not self._is_full:
            _LOGGER.warning(
                "%d messages of %d bytes wait to be taken from session %d: until some are, nothing more is read; or it "
                "is read and dropped, when a request waits for its reply", self.waiting, self.waiting_bytes,
                self._cluster.cluster_session_id)
        if not is_full:
            self._is_dropping = False
        elif len(self._cluster._in_flight) > 0 or not self._is_leader_there():
            self._is_dropping = True
        self._is_full = is_full
        self.is_held_back = is_unseen or (is_full and not self._is_dropping)
        return 0

    cdef bint _is_leader_there(self) except -1:
        # Its egress does not say it: the driver keeps an image until all of it is read.
        cdef Publication publication = self._cluster._publication
        return self._cluster._state == CONNECTED and publication is not None and publication.is_connected()

    cdef bint _wake_loop(self) except -1:
        if self._is_wake_due:
            return True
        self._is_wake_due = True
        self.wake_count += 1
        cdef bint is_open = True
        try:
            self._wake(self)
        except RuntimeError:                    # of a loop that is closed
            is_open = False
        return is_open


cdef Py_ssize_t _length(item) except -1:
    """Bytes of what came from the cluster."""
    if isinstance(item, EgressMessage):
        return len((<EgressMessage> item).payload)
    if type(item) is tuple:
        *_, last = item[1]
        return len(last) if isinstance(last, bytes) else 0
    return 0


seal((EgressMessage, ClientPoller))
