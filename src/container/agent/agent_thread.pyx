"""How the system schedules the agent's thread: its processor, and how late its timers may be."""
import os

from container.errors import ConfigurationError

cdef extern from *:
    """
    #if defined(__linux__)
    #include <errno.h>
    #include <string.h>
    #include <sys/prctl.h>
    static int container_set_timer_slack(unsigned long slack_ns)
    {
        return prctl(PR_SET_TIMERSLACK, slack_ns, 0, 0, 0) == 0 ? 0 : errno;
    }
    static long container_timer_slack(void)
    {
        return prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
    }
    #else
    static int container_set_timer_slack(unsigned long slack_ns)
    {
        return -1;
    }
    static long container_timer_slack(void)
    {
        return -1;
    }
    #endif
    """
    int container_set_timer_slack(unsigned long slack_ns) noexcept nogil
    long container_timer_slack() noexcept nogil


def set_timer_slack(unsigned long slack_ns):
    """Let this thread sleep as exactly as ``slack_ns`` (Linux gives 50,000 by default); 0 restores the default.

    Raise ConfigurationError where the system has no such setting, OSError when it refuses.
    """
    cdef int error = container_set_timer_slack(slack_ns)
    if error < 0:
        raise ConfigurationError("timer_slack_ns: only Linux lets a thread choose its timer slack; leave it out")
    if error > 0:
        raise OSError(error, os.strerror(error))


def timer_slack():
    """The timer slack of this thread (int, nanoseconds), or None where the system has no such setting."""
    cdef long slack_ns = container_timer_slack()
    return slack_ns if slack_ns >= 0 else None


def pin_to_cpu(int cpu):
    """Run this thread on one processor only, by its number.

    Raise ConfigurationError where the system has no such setting, or when the process may not use that processor.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise ConfigurationError(f"cpu_affinity={cpu}: this system cannot bind a thread to a processor; leave it out")
    try:
        os.sched_setaffinity(0, {cpu})      # of the calling thread, not of the process
    except OSError as error:
        allowed = ", ".join(map(str, sorted(os.sched_getaffinity(0))))
        raise ConfigurationError(f"cpu_affinity={cpu}: {error.strerror}; this process may use: {allowed}") from None
