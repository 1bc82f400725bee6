"""A clock and a disk of a process's own: its time of day is off by some seconds, and its writes take their time. Linux.

A library is preloaded into the process (``LD_PRELOAD``), and reads both numbers from a file, which may change at any
time.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Self

_NUMBERS = struct.Struct("qq")
_COMPILE_LIMIT_S = 600

# Python's time.time() and Aeron's clocks ask with clock_gettime; Java's and Python's files are written with pwrite64
# and the like.
_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *numbers;   /* seconds to add, microseconds that a write takes */

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("TEST_WARP");
    const int descriptor = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor >= 0)
    {
        void *found = mmap(NULL, 2 * sizeof(int64_t), PROT_READ, MAP_SHARED, descriptor, 0);
        numbers = found == MAP_FAILED ? NULL : found;
        close(descriptor);
    }
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    static int (*real)(clockid_t, struct timespec *);
    if (real == NULL)
    {
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    }
    const int result = real(clock, time);
    if (result == 0 && numbers != NULL && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    {
        time->tv_sec += numbers[0];
    }
    return result;
}

int gettimeofday(struct timeval *time, void *zone)
{
    struct timespec now;
    (void)zone;
    const int result = clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return result;
}

time_t time(time_t *found)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (found != NULL)
    {
        *found = now.tv_sec;
    }
    return now.tv_sec;
}

static void delay(void)
{
    if (numbers != NULL && numbers[1] > 0)
    {
        usleep((useconds_t)numbers[1]);
    }
}

#define SLOW(result, name, parameters, arguments)                            \
    result name parameters                                                   \
    {                                                                        \
        static result (*real) parameters;                                    \
        if (real == NULL)                                                    \
        {                                                                    \
            real = (result (*) parameters)dlsym(RTLD_NEXT, #name);           \
        }                                                                    \
        delay();                                                             \
        return real arguments;                                               \
    }

SLOW(ssize_t, pwrite, (int file, const void *data, size_t length, off_t offset), (file, data, length, offset))
SLOW(ssize_t, pwrite64, (int file, const void *data, size_t length, off64_t offset), (file, data, length, offset))
SLOW(ssize_t, pwritev, (int file, const struct iovec *data, int count, off_t offset), (file, data, count, offset))
SLOW(ssize_t, pwritev64, (int file, const struct iovec *data, int count, off64_t offset), (file, data, count, offset))
SLOW(int, fsync, (int file), (file))
SLOW(int, fdatasync, (int file), (file))
"""


def unavailable_reason() -> str | None:
    """Why there can be none on this machine, in one sentence; None when there can."""
    if not sys.platform.startswith("linux") or shutil.which("cc") is None:
        return "a clock of a process's own needs Linux and the program cc"
    return None


class Warp:
    """Clocks and disks of members, as files of a directory."""

    def __init__(self, directory: Path) -> None:
        """Compile the library."""
        self._directory = directory
        self._library = directory / "warp.so"
        source = directory / "warp.c"
        source.write_text(_SOURCE)
        command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(self._library), str(source), "-ldl"]
        subprocess.run(command, check=True, timeout=_COMPILE_LIMIT_S)

    def environment(self, name: str) -> dict[str, str]:
        """The variables of the processes that have this clock and disk."""
        self.set(name)
        return {"LD_PRELOAD": str(self._library), "TEST_WARP": str(self._path(name))}

    def set(self, name: str, *, step_s: int = 0, write_us: int = 0) -> Self:
        """Set the time of day off by some seconds, and have each write to a file take some microseconds longer."""
        path = self._path(name)
        with path.open("r+b" if path.exists() else "wb") as file:
            file.write(_NUMBERS.pack(step_s, write_us))
        return self

    def _path(self, name: str) -> Path:
        return self._directory / name
