"""Memory before a page that may not be touched, so that reading or writing too far ends the process."""

import ctypes
import mmap

_PROT_NONE = 0


class GuardedMemory:
    """Room for up to `capacity` bytes, which end where the forbidden page begins.

    The pages are given back when this object and all views that it gave out are gone.
    """

    def __init__(self, capacity: int) -> None:
        pages = -(-capacity // mmap.PAGESIZE)
        self._end = pages * mmap.PAGESIZE
        self._memory = mmap.mmap(-1, self._end + mmap.PAGESIZE)
        anchor = ctypes.c_char.from_buffer(self._memory)
        self.guard_address = ctypes.addressof(anchor) + self._end
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mprotect(ctypes.c_void_p(self.guard_address), mmap.PAGESIZE, _PROT_NONE) != 0:
            raise OSError(ctypes.get_errno(), "mprotect refused to forbid a page")

    def tail(self, data: bytes) -> memoryview:
        """A writable view of the last bytes before the forbidden page, which now hold `data`."""
        start = self._end - len(data)
        self._memory[start : self._end] = data
        return memoryview(self._memory)[start : self._end]
