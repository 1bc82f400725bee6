# What the result of an offer means for whoever waits to send.
from libc.stdint cimport int64_t

from container.transport.streams cimport Publication

cdef int check_publication_result(int64_t result, Publication publication) except -1
