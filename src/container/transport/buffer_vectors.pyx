"""Python buffers as the parts of a gathered offer, borrowed for the call without a copy."""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t

from container.common.values import shown
from container.transport.message_buffer cimport MessageBuffer

# Address of an empty buffer: a C library may refuse a NULL.
cdef uint8_t NO_BYTES = 0


cdef int _view(object buffer, int index, Py_buffer* view) except -1:
    if not PyObject_CheckBuffer(buffer):
        raise TypeError(
            f"buffers[{index}] must be a bytes-like object, such as bytes or a memoryview, not {shown(buffer)}")
    return PyObject_GetBuffer(buffer, view, PyBUF_SIMPLE)


cdef int borrow_buffer(object buffer, BufferVector* target, BorrowedBuffer* borrowed) except -1:
    """Raise TypeError for what is not a buffer."""
    borrowed.is_view = False
    # The caller refers to the object for as long as it borrows: its bytes stay where they are and as they are.
    if type(buffer) is bytes:
        target.data = <uint8_t*> PyBytes_AS_STRING(buffer)
        target.length = <size_t> PyBytes_GET_SIZE(buffer)
    elif type(buffer) is MessageBuffer:
        # Through no variable: a reference that is counted up and at once down again waits for all writes before it.
        target.length = <size_t> (<MessageBuffer> buffer)._length
        target.data = (<MessageBuffer> buffer)._data if target.length > 0 else &NO_BYTES
    else:
        _view(buffer, 0, &borrowed.view)
        borrowed.is_view = True
        target.data = <uint8_t*> borrowed.view.buf
        target.length = <size_t> borrowed.view.len
    return 0


cdef void release_buffer(BorrowedBuffer* borrowed) noexcept:
    if borrowed.is_view:
        PyBuffer_Release(&borrowed.view)


cdef int gather_vectors(BufferVectors* target, tuple buffers) except -1:
    """Fill vectors[1:] with the buffers. Raise TypeError for what is not a buffer, ValueError for too many."""
    cdef int index
    cdef Py_ssize_t count = len(buffers)
    target.count = 0
    if count > MAX_BUFFERS:
        raise ValueError(f"{count} buffers in one call: at most {MAX_BUFFERS}; join some of them first")
    try:
        for index in range(<int> count):
            _view(buffers[index], index, &target.views[index])
            target.count = index + 1
            target.vectors[index + 1].data = <uint8_t*> target.views[index].buf
            target.vectors[index + 1].length = <size_t> target.views[index].len
    except BaseException:
        release_vectors(target)
        raise
    return 0


cdef void release_vectors(BufferVectors* target) noexcept:
    cdef int index
    for index in range(target.count):
        PyBuffer_Release(&target.views[index])
    target.count = 0
