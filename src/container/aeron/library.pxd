# The loaded Aeron library: its tables of functions, and the one function that turns its errors into
# exceptions.
from container.aeron.libaeron cimport ClientFunctions, DriverFunctions

cdef ClientFunctions lib        # valid once ensure_client() has returned
cdef DriverFunctions driver_lib     # valid once ensure_driver() has returned

cpdef int ensure_client(path=?) except -1
cpdef int ensure_driver(path=?) except -1

# The exception for a code and text of the C client; `what` says in words what was tried.
cdef object aeron_error(int code, str text, str what=?)
# The exception for what the last call on this thread reported.
cdef object last_error(str what)
cdef object last_driver_error(str what)
cdef enum:
    MAX_CHANNEL_LENGTH = 4096

# Encoded for C; raises ConfigurationError when there is a NUL in it or it is longer than max_length bytes.
cdef bytes encoded(str name, str value, Py_ssize_t max_length)
