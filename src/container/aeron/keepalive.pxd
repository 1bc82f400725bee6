# A thread that runs the turns of a client or a media driver in invoker mode while its own thread is busy.
from libc.stdint cimport int64_t
from posix.types cimport pid_t

from container.aeron.conductor_events cimport pthread_mutex_t

cdef extern from "pthread.h" nogil:
    ctypedef struct pthread_cond_t:
        pass
    ctypedef struct pthread_t:
        pass


ctypedef int (*Turn)(void* target) noexcept nogil


cdef struct Keepalive:              # may not move from `start_keepalive` to `stop_keepalive`
    Turn turn                       # of C: how much was done
    void* target                    # its argument
    pthread_mutex_t* guard          # the lock around each turn, which guards the two below
    int64_t turns                   # done by those whose work it is
    bint is_stopping
    int64_t waiting                 # atomic: how many want the guard; the thread takes no further turn then
    int64_t interval_ns             # how long they may do none
    int64_t idle_ns                 # between two looks while they do none
    pid_t process_id                # whose thread it is: a forked child has none
    pthread_cond_t wake
    pthread_t thread


# Around each taking of the guard by another thread: a lock that is given back and taken again at once lets nobody in.
cdef void begin_wait(Keepalive* keepalive) noexcept nogil
cdef void end_wait(Keepalive* keepalive) noexcept nogil

# An errno value when the system has no thread to give, else 0.
cdef int start_keepalive(Keepalive* keepalive, Turn turn, void* target, pthread_mutex_t* guard, int64_t interval_ns,
                         int64_t idle_ns) noexcept
# Wait for a turn in progress, hence not with the guard held. Do nothing in a forked child.
cdef void stop_keepalive(Keepalive* keepalive) noexcept nogil
