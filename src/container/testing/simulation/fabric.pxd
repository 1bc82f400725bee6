# The network of a simulation: it carries UDP streams between the drivers of its hosts.
from libc.stdint cimport int64_t, uint64_t

from container.testing.memory.memory_log cimport MemoryImage, MemoryLog, ReaderListener
from container.testing.memory.memory_stream cimport MemoryStream, StreamSender
from container.testing.memory.memory_transport cimport MemoryClient, MemoryDriver, MemoryNetwork, MemorySubscription
from container.testing.simulation.scheduler cimport Scheduler
from container.testing.simulation.virtual_time cimport Draws, Trace, VirtualTime


cdef class Fabric:
    cdef readonly Scheduler scheduler
    cdef readonly VirtualTime time
    cdef readonly Draws draws
    cdef readonly Trace trace
    cdef readonly int64_t latency_ns
    cdef readonly int64_t mean_latency_ns
    cdef readonly int64_t receiver_window                   # bytes; 0: half a term
    cdef readonly int64_t heartbeat_ns
    cdef readonly int64_t status_ns
    cdef readonly int64_t image_liveness_ns
    cdef readonly int64_t connection_timeout_ns
    cdef readonly int64_t linger_ns
    cdef readonly int64_t client_liveness_ns
    cdef readonly int64_t unblock_timeout_ns
    cdef readonly int64_t lost_images                       # their sessions were not heard for too long
    cdef readonly int64_t rejoined_images                   # of sessions that had images there before
    cdef readonly int64_t repaired_gaps
    cdef dict _hosts                                        # name -> Host
    cdef dict _paths                                        # (from, to) -> Path
    cdef int _lives
    cdef Path path(self, str sender, str receiver)
    cdef list _both(self, str a, str b, bint both_ways)
    cdef Host reached(self, str address)                    # None when it is not up


cdef class Path:                                            # from one host to another
    cdef int64_t least_ns
    cdef int64_t mean_ns
    cdef double loss
    cdef bint is_cut
    cdef int64_t clogged_until_ns


cdef class Wire:                                            # one direction of a link: in order
    cdef Fabric fabric
    cdef Path path
    cdef uint64_t stream                                    # of the draws
    cdef int64_t last_ns                                    # when the last message arrives
    cdef int carry(self, int kind, object action, tuple arguments) except -1


cdef class Link:                                            # a stream and one of its destinations
    cdef Sender source
    cdef str address
    cdef Wire forward
    cdef Wire back
    cdef int64_t begin_ns
    cdef int64_t status_ns                                  # when the last status message came; -1: none yet
    cdef int64_t status_limit                               # how far the receiver lets the sender go
    cdef int64_t heard_ns                                   # when the receiver heard from the sender; -1: never yet
    cdef bint is_ended                                      # the receiver has seen the end of the stream
    cdef bint is_live(self) noexcept
    cdef int offer(self, int kind, int64_t begin) except -1


cdef class Sender(StreamSender):                            # a publication as its host sends it
    cdef Host host
    cdef MemoryStream stream
    cdef list links
    cdef int64_t _limit                                     # of the receivers
    cdef int64_t _window                                    # of the publication
    cdef int64_t _linger_from_ns                            # closed, and all was sent or nobody is there; -1: not yet
    cdef bint _is_due
    cdef bint _is_closed
    cdef bint _is_gone
    cdef bint is_drained(self) noexcept
    cdef bint has_gone(self) noexcept
    cdef int add_link(self, str address) except -1
    cdef int find_links(self) except -1
    cdef int update_limit(self) except -1
    cdef int send(self) except -1


cdef class Endpoint:                                        # where a host receives
    cdef Host host
    cdef list addresses
    cdef str tag
    cdef str control                                        # whom it asks for a stream, or None
    cdef dict destinations                                  # text of a channel that was added -> address
    cdef list subscriptions
    cdef dict receivers                                     # (stream id, session id) -> Receiver
    cdef dict barred                                        # (stream id, session id) -> no new image before that time
    cdef set refused                                        # (subscription's registration id, session id)
    cdef Receiver join(self, Link link, int64_t position)


cdef class Receiver(ReaderListener):                        # a session's frames on a host, and their readers
    cdef Endpoint endpoint
    cdef MemoryLog log
    cdef list links
    cdef list images                                        # one for each of
    cdef list subscriptions
    cdef int64_t correlation_id                             # of the images, as the one below
    cdef str source_identity
    cdef int64_t window
    cdef int64_t status_position                            # up to where all had read at the last status message
    cdef int64_t known_position                             # up to where frames were seen; beyond the log is a gap
    cdef int64_t active_ns
    cdef int64_t repair_ns                                  # when a gap was last asked for
    cdef bint is_closed
    cdef bint is_rejected                                   # hears nothing any more, and so goes
    cdef bint is_draining                                   # the same, once all have read what it has
    cdef Fabric fabric(self)
    cdef int add_reader(self, MemorySubscription subscription) except -1
    cdef int remove_reader(self, MemorySubscription subscription) except -1
    cdef int64_t consumed_position(self) noexcept
    cdef bint is_drained(self) noexcept
    cdef int accept(self, Link link, int64_t begin, int64_t end, bint is_end) except -1
    cdef int send_status(self) except -1
    cdef int revoke(self, Link link, int64_t end) except -1
    cdef bint have_all_ended(self) except -1
    cdef int close(self) except -1


cdef class Host(MemoryNetwork):
    cdef readonly Fabric fabric
    cdef readonly str name
    cdef readonly MemoryDriver driver
    cdef dict bound                                         # address -> Endpoint
    cdef list endpoints
    cdef object _wake
    cdef int _next_port
    cdef int _next_source_port
    cdef str address(self, str endpoint)
    cdef int wake(self) except -1
    cdef Endpoint endpoint_of(self, object channel)
