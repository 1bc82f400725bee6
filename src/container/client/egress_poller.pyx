"""Reads the answers to a client's connect request: SessionEvent (2) and Challenge (7) of schema 111.

A poll ends at each of them, as in upstream's EgressPoller, so that nothing behind the answer is consumed: it is for the
connected client. Other messages carry no correlation id, so they cannot be an answer, and are skipped.
"""
from libc.stdint cimport uint8_t

from container.codecs cimport cluster as codec
from container.codecs.sbe cimport MessageHeader, sbe_read_header
from container.common.sealed cimport seal
from container.transport.decoding cimport check_codec, decode_ascii
from container.transport.fragment_assembler cimport SessionFragmentAssembler
from container.transport.frames cimport ACTION_ABORT, ACTION_BREAK, ACTION_CONTINUE, FrameHeader
from container.transport.streams cimport FragmentHandler, Subscription

cdef enum:
    FRAGMENT_LIMIT = 10


cdef class EgressPoller(FragmentHandler):
    """Holds the last answer that was read from ``subscription``, until the next poll."""

    def __init__(self, Subscription subscription not None):
        self.subscription = subscription
        self._assembler = SessionFragmentAssembler(self)

    cdef int poll(self) except -1:
        self.is_complete = False
        self.encoded_challenge = None
        return self.subscription.controlled_poll(self._assembler, FRAGMENT_LIMIT)

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        cdef MessageHeader message
        if self.is_complete:
            return ACTION_ABORT     # another image's message; the next poll gets it
        if sbe_read_header(buffer, length, &message) < 0 or message.schema_id != codec.CLUSTER_SCHEMA_ID:
            return ACTION_CONTINUE
        if message.template_id == codec.SESSION_EVENT_TEMPLATE_ID:
            self._on_session_event(buffer, length)
        elif message.template_id == codec.CHALLENGE_TEMPLATE_ID:
            self._on_challenge(buffer, length)
        else:
            return ACTION_CONTINUE
        self.session_id = header.session_id
        self.is_complete = True
        return ACTION_BREAK

    cdef int _on_session_event(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.SessionEvent event
        check_codec(codec.session_event_wrap(&event, buffer, length), "SessionEvent")
        self.correlation_id = codec.session_event_correlation_id(&event)
        self.cluster_session_id = codec.session_event_cluster_session_id(&event)
        self.leadership_term_id = codec.session_event_leadership_term_id(&event)
        self.leader_member_id = codec.session_event_leader_member_id(&event)
        self.code = codec.session_event_code(&event)
        self.leader_heartbeat_timeout_ns = codec.session_event_leader_heartbeat_timeout_ns(&event)
        self.detail = decode_ascii(event.detail.data, event.detail.length)
        return 0

    cdef int _on_challenge(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.Challenge challenge
        check_codec(codec.challenge_wrap(&challenge, buffer, length), "Challenge")
        self.correlation_id = codec.challenge_correlation_id(&challenge)
        self.cluster_session_id = codec.challenge_cluster_session_id(&challenge)
        self.encoded_challenge = (<const char*> challenge.encoded_challenge.data)[
            :challenge.encoded_challenge.length] if challenge.encoded_challenge.length > 0 else b""
        return 0


seal((EgressPoller,))
