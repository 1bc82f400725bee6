"""The meaning of an offer's result for a caller that waits to send."""
from libc.stdint cimport int64_t

from container.transport.frames cimport CLOSED, MAX_POSITION_EXCEEDED, NOT_CONNECTED
from container.transport.streams cimport Publication

from container.errors import PublicationUnavailableError


cdef int check_publication_result(int64_t result, Publication publication) except -1:
    """Raise PublicationUnavailableError for a result after which offering again is useless; with upstream's texts."""
    if result == NOT_CONNECTED:
        raise PublicationUnavailableError(f"publication is not connected: {publication!r}")
    if result == CLOSED:
        raise PublicationUnavailableError(f"publication is closed: {publication!r}")
    if result == MAX_POSITION_EXCEEDED:
        raise PublicationUnavailableError(
            f"publication at max position: term-length={publication.term_buffer_length} {publication!r}")
    return 0
