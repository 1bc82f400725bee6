"""Reads along what clients of a simulated driver publish."""
from libc.stdint cimport int64_t, uint8_t

from container.common.sealed cimport hide, seal
from container.testing.memory.memory_log cimport MemoryImage, MemoryLog
from container.testing.memory.memory_transport cimport MemoryClient, MemoryPublication
from container.transport.frames cimport ACTION_CONTINUE, FrameHeader
from container.transport.streams cimport FragmentHandler

cdef enum:
    FRAGMENTS_MAX = 1_000                   # of a publication and a reading


cdef class Fragments(FragmentHandler):
    """Collects fragments with the id of their stream."""
    cdef list found
    cdef object stream_id

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        self.found.append((self.stream_id, buffer[:length]))
        return ACTION_CONTINUE


cdef class Taps:
    """Reads along what clients publish, each publication from where its log begins to be held when it is first seen.

    Args:
        clients: of one driver (sequence of MemoryClient).
        stream_ids: of the streams that are read (sequence of int).
    """
    cdef list _clients
    cdef tuple _stream_ids
    cdef list _images
    cdef int64_t _last_id                   # of the driver when it was last looked for publications

    def __init__(self, clients not None, stream_ids not None):
        self._clients, self._stream_ids = list(clients), tuple(stream_ids)
        self._images = []
        self._last_id = -1

    def read(self):
        """Fragments that were published since the last call: a list of ``(stream_id, bytes)``."""
        cdef MemoryImage image
        cdef Fragments fragments = None
        self._find()
        for image in self._images:
            if image._position < image.log.position():
                if fragments is None:
                    fragments = Fragments.__new__(Fragments)
                    fragments.found = []
                fragments.stream_id = image.log.stream_id
                image.controlled_poll(fragments, FRAGMENTS_MAX)
        return [] if fragments is None else fragments.found

    cdef int _find(self) except -1:
        cdef MemoryClient client
        cdef MemoryImage image
        cdef MemoryLog log
        if not self._clients or (<MemoryClient> self._clients[0]).driver._next_id == self._last_id:
            return 0
        self._last_id = (<MemoryClient> self._clients[0]).driver._next_id
        for client in self._clients:
            for resource in client._resources.values():
                if not isinstance(resource, MemoryPublication):
                    continue
                log = (<MemoryPublication> resource).log
                if log.stream_id not in self._stream_ids:
                    continue
                for image in self._images:      # clients share the log of a publication that is not exclusive
                    if image.log is log:
                        break
                else:
                    self._images.append(MemoryImage(log, max(log.start_position, log.first_position())))
        return 0


hide((Fragments,))
seal((Taps,))
