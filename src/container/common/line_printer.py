"""Prints lines on standard error and standard output without waiting for their reader.

A pipe that nobody reads, or a terminal that is stopped, would otherwise hold up the agent's thread, and so the member.
Lines that do not fit are lost and counted; the flags of a descriptor, which other processes may share, stay as they
are.
"""

from __future__ import annotations

import os
import select
import stat
import time
from dataclasses import dataclass
from io import TextIOWrapper
from typing import TextIO

from container.common import interruptions
from container.common.values import counted

_PATIENCE_NS = 50_000_000
_PAUSE_NS = 1_000_000_000
_NS_PER_MS = 1_000_000


@dataclass
class _Output:
    """The lines written and lost for one descriptor."""

    lost_count: int = 0  # or cut, since the last one that was written
    is_cut: bool = False  # within a line
    impatient_until_ns: int = 0


_outputs: dict[int, _Output] = {}


def print_line(text: str, stream: TextIO | None) -> None:
    """Print a line, unless the stream is missing, closed, full, read by nobody or broken otherwise. Never raise.

    Wait at most 50 ms for a reader, and after that not at all for a second. The first line that is written after lost
    ones says how many those were. A stream that is not a plain file of Python's is printed to as it is.
    """
    if stream is None:
        return
    try:
        descriptor = _descriptor(stream)
        if descriptor is None:
            print(text, file=stream, flush=True)
        else:
            _print(text.encode(stream.encoding or "utf-8", "backslashreplace"), descriptor)
    except BaseException as error:  # of a stream of the user's, SystemExit too: the agent ends in order or not at all
        interruptions.keep(error)


def non_blocking_copy(descriptor: int) -> int:
    """A new descriptor of the same pipe or terminal to which a write never waits; where there is none, a plain copy.

    Only Linux has one, by reopening it; sockets and files have none.

    Raises OSError when the descriptor is not open, or there is no room for another one.
    """
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        try:
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            return os.open(f"/proc/self/fd/{descriptor}", flags)
        except OSError:
            pass
    return os.dup(descriptor)


def _descriptor(stream: TextIO) -> int | None:
    if type(stream) is not TextIOWrapper:
        return None
    try:
        return stream.fileno()
    except (OSError, ValueError):  # closed, or over memory
        return None


def _print(line: bytes, descriptor: int) -> None:
    output = _outputs.setdefault(descriptor, _Output())
    notice = b"\n" if output.is_cut else b""
    if output.lost_count > 0:
        notice += f"{counted(output.lost_count, 'line')} lost or cut here: nobody read them in time\n".encode()
    text = b"%b%b\n" % (notice, line)
    now_ns = time.monotonic_ns()
    deadline_ns = now_ns + _PATIENCE_NS if now_ns >= output.impatient_until_ns else now_ns
    written = _write(descriptor, text, deadline_ns)
    if written == len(text):
        _outputs[descriptor] = _Output()
        return
    output.impatient_until_ns = time.monotonic_ns() + _PAUSE_NS
    if written == 0:
        output.lost_count += 1
    else:
        output.lost_count, output.is_cut = 1, True


def _write(descriptor: int, text: bytes, deadline_ns: int) -> int:
    """How many bytes of the text were written until the deadline, or until the first error."""
    written = 0
    try:
        copy = non_blocking_copy(descriptor)
    except OSError:  # no room for another one, or closed: the write below says so
        copy = descriptor
    try:
        poll = select.poll()
        poll.register(copy, select.POLLOUT)
        while written < len(text):
            left_ns = max(0, deadline_ns - time.monotonic_ns())
            if not poll.poll(left_ns // _NS_PER_MS):
                break
            # That much is taken at once, whatever the descriptor is, unless another process is faster.
            written += os.write(copy, text[written : written + select.PIPE_BUF])
    except OSError:
        pass
    finally:
        if copy != descriptor:
            os.close(copy)
    return written
