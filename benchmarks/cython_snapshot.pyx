"""The service of _snapshot_service.py in Cython: no Python object for a message."""
import os
import time

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from container cimport (
    ACTION_CONTINUE, Cluster, FragmentHandler, FrameHeader, ServiceHandler, SnapshotImage, SnapshotPublication,
)


cdef class Checker(FragmentHandler):
    """Checks each message of a snapshot."""

    cdef size_t length
    cdef int64_t loaded

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        cdef int64_t number = -1
        if length == self.length:
            memcpy(&number, buffer, sizeof(number))
        if number != self.loaded:
            raise ValueError(f"message {self.loaded} of the snapshot is not what was written")
        self.loaded += 1
        return ACTION_CONTINUE


cdef class SnapshotHandler(ServiceHandler):
    """In Cython."""

    cdef size_t length
    cdef int64_t count

    def __init__(self):
        self.length = int(os.environ["SNAPSHOT_LENGTH"])
        self.count = int(os.environ["SNAPSHOT_COUNT"])

    cdef int on_start(self, Cluster cluster, SnapshotImage snapshot_image) except? -1:
        cdef Checker checker = Checker()
        if snapshot_image is None:
            return 0
        begin = time.perf_counter()
        checker.length = self.length
        snapshot_image.read_all(checker)
        if checker.loaded != self.count:
            raise ValueError(f"{checker.loaded} of {self.count} messages")
        print("loaded", time.perf_counter() - begin, flush=True)
        return 0

    cdef int on_take_snapshot(self, SnapshotPublication snapshot_publication) except? -1:
        cdef uint8_t* message = <uint8_t*> calloc(1, self.length)
        cdef int64_t number
        if message == NULL:
            raise MemoryError(f"no memory for a message of {self.length} bytes")
        begin = time.perf_counter()
        try:
            for number in range(self.count):
                memcpy(message, &number, sizeof(number))
                snapshot_publication.send_bytes(message, self.length)
        finally:
            free(message)
        print("taken", time.perf_counter() - begin, flush=True)
        return 0
