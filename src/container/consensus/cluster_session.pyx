"""A session: what a member knows of one client, from its connect request to the close event in the log.

Upstream: ClusterSession.java. The session decides nothing: :mod:`container.consensus.session_manager` does. Unlike
upstream's it asks the driver for its egress and its counter without waiting also after an election, and a refusal of
the driver is the session's loss and nobody else's.
"""
from libc.stdint cimport int32_t, int64_t

from container.codecs.sbe cimport SBE_NULL_INT32
from container.common.aeron_defaults import CounterType
from container.common.channel_uri import ChannelUri
from container.common.quantities import format_size
from container.common.sealed cimport seal
from container.errors import RegistrationError
from container.transport.counters cimport Counter
from container.transport.frames cimport NULL_VALUE
from container.transport.transport_seam cimport Client

cdef int32_t CLUSTER_SESSION_TYPE_ID = CounterType.CLUSTER_SESSION
cdef int32_t NULL_CLOSE_REASON = SBE_NULL_INT32
cdef int32_t TEMPORARILY_UNAVAILABLE = RegistrationError.RESOURCE_TEMPORARILY_UNAVAILABLE

cdef enum:
    NULL_POSITION = -1

STATES = ("INIT", "CONNECTING", "CONNECTED", "CHALLENGED", "AUTHENTICATED", "REJECTED", "OPEN", "CLOSING", "INVALID",
          "CLOSED")


cdef class ClusterSession:
    """The session ``session_id``, -1 for one that is only answered.

    Args:
        session_id: its id in the log (int).
        response_channel, response_stream_id: where its client listens (str, int).
        label: of the counter that shows it (str).
        on_error: is given what fails (Exception); it must not raise.
        action: what is done once its client is authenticated (one of container.consensus.backup_requests); None: it
            becomes a client's session in the log.
    """

    def __init__(self, int64_t session_id, str response_channel not None, int32_t response_stream_id,
                 str label not None, on_error, action=None):
        self.id = session_id
        self.response_channel = response_channel
        self.response_stream_id = response_stream_id
        self.action = action
        self.encoded_principal = b""
        self.correlation_id = self.ingress_image_correlation_id = NULL_VALUE
        self.opened_log_position = self.closed_log_position = NULL_POSITION
        self.close_reason = NULL_CLOSE_REASON
        self.is_open_event_pending = True
        self.state = INIT
        self._egress_channel = response_channel
        self._label = label
        self._on_error = on_error

    @property
    def state_name(self):
        """The name of its state (str), one of ``STATES``."""
        return STATES[<int> self.state]

    cdef bint is_open(self) noexcept:
        return self.state == OPEN

    # Its egress

    cdef int expect_one_answer(self, int64_t term_length) except -1:
        """It gets one short answer and then ends: its egress is its own, with the least memory that does for that."""
        uri = ChannelUri.parse(self.response_channel)
        uri.put("term-length", format_size(term_length))
        self._egress_channel, self._is_egress_exclusive = str(uri), True
        return 0

    cdef bint is_connecting(self) noexcept:
        """Whether the driver still makes the egress."""
        return self._pending_publication is not None

    cdef int begin_connect(self, Client client, int32_t cluster_id) except -1:
        """Ask the driver for the egress, and for the counter that shows the session (type 241)."""
        self._client = client
        key = cluster_id.to_bytes(4, "little", signed=True) + self.id.to_bytes(8, "little", signed=True)
        self._pending_counter = client.begin_add_counter(CLUSTER_SESSION_TYPE_ID, key, self._label)
        return self._begin_publication()

    cdef int _begin_publication(self) except -1:
        self._pending_publication = self._client.begin_add_publication(
            self._egress_channel, self.response_stream_id, self._is_egress_exclusive)
        return 0

    cdef bint poll_connected(self, int64_t now_ns) except -1:
        """Whether the client listens to its egress; looks after what the driver was asked for."""
        if self._pending_publication is not None:
            self._poll_publication(now_ns)
        if self._pending_counter is not None:
            self._poll_counter()
        return self.publication is not None and self.publication.is_connected()

    cdef int _poll_publication(self, int64_t now_ns) except -1:
        cdef object added = None
        try:
            added = self._pending_publication.poll()
        except Exception as error:
            self._pending_publication = None
            self._on_failed_publication(error)
        if added is not None:
            self._pending_publication = None
            self.publication = added
            if self.state == INIT:
                self.state = CONNECTING
                self.time_of_last_activity_ns = now_ns
        return 0

    def _on_failed_publication(self, error):
        if isinstance(error, RegistrationError) and error.code == TEMPORARILY_UNAVAILABLE:
            self._begin_publication()
            return
        self._on_error(error)
        if self.state == INIT or self.state == REJECTED:
            self.state = INVALID                # nobody can be told anything

    cdef int _poll_counter(self) except -1:
        cdef Counter counter = None
        cdef object failure = None
        if self.publication is None and self.state == INIT:
            return 0                            # it refers to the publication
        try:
            counter = self._pending_counter.poll()
        except Exception as error:
            failure = error
        if counter is not None or failure is not None:
            self._pending_counter = None
        if failure is not None:                 # the session does without
            self._on_error(failure)
        elif counter is not None:
            self._counter = counter
            counter.set(self.id)
            if self.publication is not None:
                counter.set_reference_id(self.publication.registration_id)
        return 0

    cdef int disconnect(self) except -1:
        """Give the egress and the counter up."""
        cdef object publication = self.publication, counter = self._counter
        cdef object pending_publication = self._pending_publication, pending_counter = self._pending_counter
        self.publication = self._counter = self._pending_publication = self._pending_counter = None
        for closable in (publication, pending_publication, counter, pending_counter):
            try:
                if closable is not None:
                    closable.close()
            except Exception as error:
                self._on_error(error)
        return 0

    cdef int close(self) except -1:
        """It has ended."""
        self.disconnect()
        self.state = CLOSED
        return 0

    # Its life

    cdef int answer_to(self, int64_t correlation_id, int64_t now_ns) except -1:
        """Its next answer is to this request."""
        self.correlation_id = correlation_id
        self.time_of_last_activity_ns = now_ns
        return 0

    cdef int refuse(self, int32_t code, str detail) except -1:
        """Send it an EventCode and a text, and end it."""
        self.refusal = (code, detail)
        self.state = REJECTED
        return 0

    cdef int authenticate(self, bytes encoded_principal) except -1:
        self.encoded_principal = encoded_principal
        self.state = AUTHENTICATED
        return 0

    cdef int open(self, int64_t opened_log_position) except -1:
        """Its open event is in the log, and ends there."""
        self.opened_log_position = opened_log_position
        self.state = OPEN
        return 0

    cdef int closing(self, int32_t close_reason) except -1:
        """Close it: at the next check of the sessions if not immediately."""
        self.close_reason = close_reason
        self.is_open_event_pending = self.is_new_leader_event_pending = False
        self.state = CLOSING
        return 0

    cdef int closed_at(self, int64_t log_position) except -1:
        """Its close event is in the log, and ends there."""
        self.closed_log_position = log_position
        return 0

    cdef int restore(self) except -1:
        """Close it again: its close event was lost with the leader that appended it."""
        self.closed_log_position = NULL_POSITION
        self.state = CLOSING
        return 0

    cdef int reopen(self) except -1:
        """It is not to be closed after all."""
        self.close_reason = NULL_CLOSE_REASON
        self.state = OPEN
        return 0

    cdef int load(self, int64_t correlation_id, int64_t opened_log_position, int32_t close_reason) except -1:
        """Set the state that a snapshot has of it."""
        self.correlation_id = correlation_id
        self.opened_log_position = opened_log_position
        self.close_reason = close_reason
        self.is_open_event_pending = False
        self.state = OPEN if close_reason == NULL_CLOSE_REASON else CLOSING
        return 0

    cdef int link(self, int64_t image_correlation_id) except -1:
        """Its client sends on this image of the ingress; the first one counts."""
        if self.ingress_image_correlation_id == NULL_VALUE:
            self.ingress_image_correlation_id = image_correlation_id
        return 0

    cdef int lose_ingress(self) except -1:
        self.ingress_image_correlation_id = NULL_VALUE
        return self.disconnect()

    cdef int expect_new_leader_event(self) except -1:
        self.is_new_leader_event_pending = True
        return 0

    cdef int new_leader_event_sent(self) except -1:
        self.is_new_leader_event_pending = False
        return 0

    cdef int open_event_sent(self) except -1:
        self.is_open_event_pending = False
        return 0

    cdef bint has_timed_out(self, int64_t now_ns, int64_t session_timeout_ns) noexcept:
        return self.state != INIT and now_ns - self.time_of_last_activity_ns > session_timeout_ns

    def __repr__(self):
        return f"<ClusterSession {self.id} {self.state_name} {self.response_channel} stream {self.response_stream_id}>"


seal((ClusterSession,))
