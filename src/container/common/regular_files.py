"""Opens files that others write, so that whatever lies in their place neither blocks nor floods the reader.

A pipe would block forever, a device has no end, and a sparse file may be longer than all memory.
"""

from __future__ import annotations

import errno
import os
import stat

_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY, mode: int = 0o777) -> int:
    """Open a regular file and return its descriptor.

    Args:
        path: of the file.
        flags: as for :func:`os.open`; the file is never waited for, and is closed in a child process.
        mode: access rights of a file that is created, less those of the umask.

    Raises:
        IsADirectoryError: it is a directory.
        OSError: it cannot be opened, or is a pipe, a device or anything else that is not a regular file.
    """
    descriptor = os.open(path, flags | _FLAGS, mode)
    try:
        found = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(found):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if not stat.S_ISREG(found):
            raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: str | os.PathLike[str], length_max: int) -> bytes:
    """Return the content of a regular file of at most ``length_max`` bytes.

    Raises:
        IsADirectoryError: it is a directory.
        OSError: it cannot be read, is not a regular file, or is longer.
    """
    descriptor = open_regular(path)
    try:
        return read_at(descriptor, 0, checked_length(descriptor, path, length_max))
    finally:
        os.close(descriptor)


def checked_length(descriptor: int, path: str | os.PathLike[str], length_max: int) -> int:
    """Return the length of an open file in bytes.

    Raises:
        OSError: it is more than ``length_max``; the error names ``path``.
    """
    length = os.fstat(descriptor).st_size
    if length > length_max:
        text = f"it has {length} bytes, at most {length_max} are possible"
        raise OSError(errno.EFBIG, text, os.fspath(path))
    return length


def read_at(descriptor: int, offset: int, length: int) -> bytes:
    """Return the bytes of a file from ``offset`` on: ``length`` of them, or fewer where the file ends before.

    Raises:
        OSError: it cannot be read.
    """
    parts = []
    while length > 0:
        part = os.pread(descriptor, length, offset)
        if not part:
            break
        parts.append(part)
        offset += len(part)
        length -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def write_at(descriptor: int, offset: int, content: bytes) -> None:
    """Write all of ``content`` into a file from ``offset`` on.

    Raises:
        OSError: it cannot be written.
    """
    written = os.pwrite(descriptor, content, offset)
    while written < len(content):
        written += os.pwrite(descriptor, memoryview(content)[written:], offset + written)
