# Python buffers as the parts of a gathered offer.
from container.transport.frames cimport BufferVector

cdef enum:
    MAX_BUFFERS = 15            # of the user in one offer; one more vector is kept for a session header


cdef struct BufferVectors:
    BufferVector vectors[16]    # [0] is left for the caller's header
    Py_buffer views[15]
    int count                   # of the user's buffers, at vectors[1:count + 1]


cdef struct BorrowedBuffer:     # one buffer of the user
    Py_buffer view
    bint is_view                # False: the bytes of an object that cannot move them, so there is nothing to release


# Point `target` to the bytes of one buffer until release_buffer(), which must be called once after a success.
cdef int borrow_buffer(object buffer, BufferVector* target, BorrowedBuffer* borrowed) except -1
cdef void release_buffer(BorrowedBuffer* borrowed) noexcept
# Borrow the bytes of each buffer until release_vectors(), which must be called once after a success.
cdef int gather_vectors(BufferVectors* target, tuple buffers) except -1
cdef void release_vectors(BufferVectors* target) noexcept
