# What conducts a client in invoker mode while the thread that should is busy with something else.
from libc.stdint cimport int64_t
from posix.types cimport pid_t

from container.aeron.conductor_events cimport pthread_mutex_t
from container.aeron.libaeron cimport aeron_t

cdef extern from "pthread.h" nogil:
    ctypedef struct pthread_cond_t:
        pass
    ctypedef struct pthread_t:
        pass


cdef struct Keepalive:              # may not move from `start_keepalive` to `stop_keepalive`
    aeron_t* aeron
    pthread_mutex_t* guard          # the client's lock, which guards the two below
    int64_t turns                   # of the conductor, done by those whose work it is
    bint is_stopping
    int64_t interval_ns
    pid_t process_id                # whose thread it is: a forked child has none
    pthread_cond_t wake
    pthread_t thread


# An errno value when the system has no thread to give, else 0. The interval is how long nobody else may conduct.
cdef int start_keepalive(
    Keepalive* keepalive, aeron_t* aeron, pthread_mutex_t* guard, int64_t interval_ns) noexcept
# Wait for a turn in progress, hence not with the guard held. Do nothing in a forked child.
cdef void stop_keepalive(Keepalive* keepalive) noexcept nogil
