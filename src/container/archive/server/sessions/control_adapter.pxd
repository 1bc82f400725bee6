# Reads the requests of an archive's clients from one subscription.
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.transport.fragment_assembler cimport FragmentAssembler
from container.transport.streams cimport FragmentHandler, Image, Subscription


cdef class RequestStream:                   # one image, and what it has sent of a message so far
    cdef Image image
    cdef FragmentAssembler assembler


cdef class ControlAdapter(FragmentHandler):
    cdef readonly Subscription subscription
    cdef object _handler                    # ControlHandler
    cdef object _on_error
    cdef dict _streams                      # correlation id of an image -> RequestStream
    cdef int _next_image                    # with which the next poll begins
    cdef Image _image                       # of the message that is being handled
    cdef int _template_id
    cpdef int poll(self) except -1
    cpdef int close(self) except -1
    cdef FragmentAssembler _assembler(self, Image image)
    cdef int _forget_images(self) except -1
    cdef int _decode(self, const uint8_t* buffer, size_t length) except -1
    cdef int _check(self, int result, size_t length, size_t needed) except -1
    cdef bint _is_local(self, int32_t source_location) except -1
    cdef object _head(self, const uint8_t* buffer)
    # One for each message: what it says, to the handler.
    cdef int _start_recording(self, const uint8_t* buffer, size_t length) except -1
    cdef int _start_recording2(self, const uint8_t* buffer, size_t length) except -1
    cdef int _extend_recording(self, const uint8_t* buffer, size_t length) except -1
    cdef int _extend_recording2(self, const uint8_t* buffer, size_t length) except -1
    cdef int _stop_recording(self, const uint8_t* buffer, size_t length) except -1
    cdef int _stop_recording_subscription(self, const uint8_t* buffer, size_t length) except -1
    cdef int _stop_recording_by_identity(self, const uint8_t* buffer, size_t length) except -1
    cdef int _replay(self, const uint8_t* buffer, size_t length) except -1
    cdef int _bounded_replay(self, const uint8_t* buffer, size_t length) except -1
    cdef int _stop_replay(self, const uint8_t* buffer, size_t length) except -1
    cdef int _stop_all_replays(self, const uint8_t* buffer, size_t length) except -1
    cdef int _replay_token(self, const uint8_t* buffer, size_t length) except -1
    cdef int _list_recording(self, const uint8_t* buffer, size_t length) except -1
    cdef int _list_recordings(self, const uint8_t* buffer, size_t length) except -1
    cdef int _list_recordings_for_uri(self, const uint8_t* buffer, size_t length) except -1
    cdef int _find_last_matching_recording(self, const uint8_t* buffer, size_t length) except -1
    cdef int _list_recording_subscriptions(self, const uint8_t* buffer, size_t length) except -1
    cdef int _start_position(self, const uint8_t* buffer, size_t length) except -1
    cdef int _recording_position(self, const uint8_t* buffer, size_t length) except -1
    cdef int _stop_position(self, const uint8_t* buffer, size_t length) except -1
    cdef int _max_recorded_position(self, const uint8_t* buffer, size_t length) except -1
    cdef int _truncate_recording(self, const uint8_t* buffer, size_t length) except -1
    cdef int _purge_recording(self, const uint8_t* buffer, size_t length) except -1
    cdef int _detach_segments(self, const uint8_t* buffer, size_t length) except -1
    cdef int _delete_detached_segments(self, const uint8_t* buffer, size_t length) except -1
    cdef int _purge_segments(self, const uint8_t* buffer, size_t length) except -1
    cdef int _attach_segments(self, const uint8_t* buffer, size_t length) except -1
    cdef int _migrate_segments(self, const uint8_t* buffer, size_t length) except -1
    cdef int _update_channel(self, const uint8_t* buffer, size_t length) except -1
    cdef int _replicate(self, const uint8_t* buffer, size_t length) except -1
    cdef int _tagged_replicate(self, const uint8_t* buffer, size_t length) except -1
    cdef int _replicate2(self, const uint8_t* buffer, size_t length) except -1
    cdef int _stop_replication(self, const uint8_t* buffer, size_t length) except -1
    cdef int _challenge_response(self, const uint8_t* buffer, size_t length) except -1
    cdef int _keep_alive(self, const uint8_t* buffer, size_t length) except -1
    cdef int _archive_id(self, const uint8_t* buffer, size_t length) except -1
    cdef int _close_session(self, const uint8_t* buffer, size_t length) except -1
    cdef int _connect(self, const uint8_t* buffer, size_t length) except -1
    cdef int _auth_connect(self, const uint8_t* buffer, size_t length) except -1
