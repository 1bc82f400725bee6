"""The services of a member, as its consensus module knows them: who they are, and what they have acknowledged."""
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, int64_t

from container.common.sealed cimport hide, seal
from container.consensus.service_acks import ServiceAck, ServiceAckQueues
from container.consensus.service_proxy cimport ServiceProxy
from container.errors import ClusterError
from container.transport.frames cimport NULL_VALUE
from container.transport.transport_seam cimport Client, ClientListener


cdef class ServiceListener(ClientListener):
    """Remembers which services are gone."""

    def __cinit__(self, int count):
        cdef int service_id
        self._count = count
        self._client_ids = <int64_t*> PyMem_Malloc(max(1, count) * sizeof(int64_t))
        if self._client_ids == NULL:
            raise MemoryError("no memory for the client ids of services")
        for service_id in range(count):
            self._client_ids[service_id] = NULL_VALUE
        self._are_lost = <bint*> PyMem_Calloc(max(1, count), sizeof(bint))
        if self._are_lost == NULL:
            raise MemoryError("no memory for what becomes of services")

    def __dealloc__(self):
        PyMem_Free(self._client_ids)
        PyMem_Free(self._are_lost)

    cdef bint is_watched(self, int service_id) noexcept:
        return 0 <= service_id < self._count and self._client_ids[service_id] != NULL_VALUE

    cdef int watch(self, int service_id, int64_t client_id) except -1:
        self._client_ids[service_id] = client_id
        return 0

    cdef void on_unavailable_counter(self, int64_t registration_id, int32_t counter_id) noexcept nogil:
        cdef int service_id
        if registration_id == NULL_VALUE:
            return
        for service_id in range(self._count):
            if self._client_ids[service_id] == registration_id:
                self._are_lost[service_id] = self.is_any_lost = True


cdef class MemberServices:
    """The services of this member.

    Args:
        context: concluded (ConsensusModuleContext).
        proxy: what sends to them (ServiceProxy); it stays its owner's to close.
    """

    def __init__(self, context, ServiceProxy proxy not None):
        self.proxy, self._on_error = proxy, context.counted_error_handler
        self.count = context.settings.service_count
        self._acks = ServiceAckQueues(self.count, self._on_error)
        self._listener = ServiceListener.__new__(ServiceListener, self.count)

    def watch(self, Client client not None):
        """Notice from now on when one that has started goes away, until :meth:`unwatch`."""
        client.add_listener(self._listener)

    def unwatch(self, Client client not None):
        """Notice no more."""
        client.remove_listener(self._listener)

    cdef bint take_ack(
            self, int64_t log_position, int64_t ack_id, int64_t relevant_id, int32_t service_id) except -1:
        """Keep what a service acknowledges; False for a service that has started already, which is reported."""
        if ack_id == 0 and self._listener.is_watched(service_id):
            self._on_error(ClusterError(
                f"initial ack already received from service: possible duplicate serviceId={service_id}"))
            return False
        self._acks.append(ServiceAck(service_id, ack_id, log_position, relevant_id))
        return True

    cdef bint has_reached(self, int64_t log_position) except -1:
        """Whether all services have acknowledged this position."""
        return self._acks.has_reached(log_position, self._ack_id)

    cdef list poll_acks(self):
        """The ServiceAck of each service, only once all have acknowledged."""
        cdef list acks = self._acks.poll_all()
        self._ack_id += 1
        return acks

    cdef int remove_acks(self) except -1:
        """Forget it."""
        self._acks.remove_heads()
        self._ack_id += 1
        return 0

    cdef int lost_service_id(self, bint is_ending) except? -2:
        """The id of a service that is gone and should not be; NULL_VALUE for none.

        Where services are to end (``is_ending``), one may go once it has acknowledged that.
        """
        cdef int service_id
        if self._listener.is_any_lost and not self.is_end_expected:
            for service_id in range(self.count):
                if self._listener._are_lost[service_id] and not (is_ending and self._acks.is_waiting(service_id)):
                    return service_id
        return NULL_VALUE

    def await_started(self, int64_t log_position):
        """Wait until all have started at a position; ClusterError where one has failed to."""
        while not self.has_reached(log_position):
            yield
        acks = self.poll_acks()
        failed = [ack.service_id for ack in acks if ack.relevant_id == NULL_VALUE]
        if failed:
            raise ClusterError(f"failed to start clustered service(s): {', '.join(map(str, failed))}")
        for ack in acks:
            self._listener.watch(ack.service_id, ack.relevant_id)


hide((ServiceListener,))
seal((MemberServices,))
