# Meaning of an offer's result for a sender that waits.
from libc.stdint cimport int64_t

from container.transport.streams cimport Publication

cdef int check_publication_result(int64_t result, Publication publication) except -1
