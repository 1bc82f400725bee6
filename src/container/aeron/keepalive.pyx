"""Runs the turns of a client or a media driver in invoker mode while the thread that should is busy.

A client must be conducted within the driver's client liveness timeout, and a driver must serve all its clients. A
callback may run longer than that, sleep, or hold the GIL in C. So a thread of C, which never takes the GIL, looks now
and then whether there was a turn since its last look. If there was none it runs turns itself, until there is one again.
An owner that invokes in time pays for the lock around each turn; a message costs nothing extra.
"""
from libc.stdint cimport int64_t
from posix.unistd cimport getpid

from container.aeron.conductor_events cimport pthread_mutex_t, pthread_mutex_unlock

# Intervals are of a clock that nobody sets. Signals stay with Python's threads, whose waits they have to interrupt.
cdef extern from * nogil:
    """
    #include <pthread.h>
    #include <signal.h>
    #include <stdint.h>
    #include <time.h>

    static int64_t container_atomic_change(int64_t* value, int64_t change)
    {
        return __atomic_add_fetch(value, change, __ATOMIC_SEQ_CST);
    }

    static int container_wake_init(pthread_cond_t* wake)
    {
    #ifdef __APPLE__
        return pthread_cond_init(wake, NULL);
    #else
        pthread_condattr_t attributes;
        pthread_condattr_init(&attributes);
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        int result = pthread_cond_init(wake, &attributes);
        pthread_condattr_destroy(&attributes);
        return result;
    #endif
    }

    static void container_wake_wait(pthread_cond_t* wake, pthread_mutex_t* guard, int64_t duration_ns)
    {
    #ifdef __APPLE__
        struct timespec duration = { duration_ns / 1000000000, duration_ns % 1000000000 };
        pthread_cond_timedwait_relative_np(wake, guard, &duration);
    #else
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += duration_ns / 1000000000;
        until.tv_nsec += duration_ns % 1000000000;
        if (until.tv_nsec >= 1000000000)
        {
            until.tv_sec++;
            until.tv_nsec -= 1000000000;
        }
        pthread_cond_timedwait(wake, guard, &until);
    #endif
    }

    static int container_thread_start(pthread_t* thread, void* (*run)(void*), void* argument)
    {
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        int result = pthread_create(thread, NULL, run, argument);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    #ifdef __linux__
        if (result == 0)
        {
            pthread_setname_np(*thread, "aeron-keepalive");
        }
    #endif
        return result;
    }
    """
    int64_t atomic_change "container_atomic_change" (int64_t* value, int64_t change) noexcept
    int wake_init "container_wake_init" (pthread_cond_t* wake) noexcept
    void wake_wait "container_wake_wait" (pthread_cond_t* wake, pthread_mutex_t* guard, int64_t duration_ns) noexcept
    int thread_start "container_thread_start" (
        pthread_t* thread, void* (*run)(void*) noexcept nogil, void* argument) noexcept

cdef extern from "pthread.h" nogil:
    int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept
    int pthread_cond_signal(pthread_cond_t* wake) noexcept
    int pthread_cond_destroy(pthread_cond_t* wake) noexcept
    int pthread_join(pthread_t thread, void** result) noexcept

# A turn handles one of the driver's messages, of which many may wait: those of a whole interval.
cdef enum:
    MAX_TURNS = 1000


cdef void begin_wait(Keepalive* keepalive) noexcept nogil:
    atomic_change(&keepalive.waiting, 1)


cdef void end_wait(Keepalive* keepalive) noexcept nogil:
    atomic_change(&keepalive.waiting, -1)


cdef void* _run(void* argument) noexcept nogil:
    cdef Keepalive* keepalive = <Keepalive*> argument
    cdef int64_t turns = -1
    cdef int own_turns = 0
    pthread_mutex_lock(keepalive.guard)
    while not keepalive.is_stopping:
        # Short while nobody else runs turns, which the last look has shown.
        wake_wait(&keepalive.wake, keepalive.guard,
                  keepalive.idle_ns if own_turns > 0 else keepalive.interval_ns)
        own_turns = 0
        while not keepalive.is_stopping and keepalive.turns == turns and own_turns < MAX_TURNS:
            own_turns += 1
            if keepalive.turn(keepalive.target) <= 0:
                break
            # The guard is free between two turns, and whoever waits for it gets it.
            if atomic_change(&keepalive.waiting, 0) > 0:
                break
            pthread_mutex_unlock(keepalive.guard)
            pthread_mutex_lock(keepalive.guard)
        turns = keepalive.turns
    pthread_mutex_unlock(keepalive.guard)
    return NULL


cdef int start_keepalive(Keepalive* keepalive, Turn turn, void* target, pthread_mutex_t* guard, int64_t interval_ns,
                         int64_t idle_ns) noexcept:
    cdef int result
    keepalive.turn = turn
    keepalive.target = target
    keepalive.guard = guard
    keepalive.turns = keepalive.waiting = 0
    keepalive.is_stopping = False
    keepalive.interval_ns = interval_ns
    keepalive.idle_ns = idle_ns
    keepalive.process_id = getpid()
    result = wake_init(&keepalive.wake)
    if result != 0:
        return result
    result = thread_start(&keepalive.thread, _run, keepalive)
    if result != 0:
        pthread_cond_destroy(&keepalive.wake)
    return result


cdef void stop_keepalive(Keepalive* keepalive) noexcept nogil:
    if keepalive.process_id != getpid():
        return
    begin_wait(keepalive)
    pthread_mutex_lock(keepalive.guard)
    end_wait(keepalive)
    keepalive.is_stopping = True
    pthread_mutex_unlock(keepalive.guard)
    pthread_cond_signal(&keepalive.wake)
    pthread_join(keepalive.thread, NULL)
    pthread_cond_destroy(&keepalive.wake)
