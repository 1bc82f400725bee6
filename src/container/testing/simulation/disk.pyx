"""A simulated disk: files in memory that know what was written and what was forced, and two kinds of crash.

*Kill* ends a process. All that it wrote survives, as the system has it; a write in progress is cut at a page of 4 KiB.
**Cut of power* ends all processes. Forced writes survive. Each other sector of 512 bytes is as it was, or as any write
since has left it; so is each length. Creations, renames and unlinks survive if their directory was forced; of the
others all survive, or, in one cut of two, any. Bytes stored through a map are written when the map is closed, when its
file is forced, and at the crash: what one sector was in between, no disk of this kind has.
"""
import itertools
import math
import posixpath
import zlib

from libc.errno cimport EBADF, EEXIST, EFBIG, EINVAL, EISDIR, ENOENT, ENOSPC, ENOTDIR
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy, memset
from posix.mman cimport MAP_ANONYMOUS, MAP_FAILED, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap, munmap

from container.common.sealed cimport hide, seal
from container.storage.storage_seam cimport (
    OPEN_CREATE, OPEN_EXCLUSIVE, OPEN_READ_ONLY, Storage, StorageFile, StorageMap, check_flags, check_rename,
    storage_error,
)
from container.testing.simulation.virtual_time cimport Draws

cdef enum:
    SECTOR = 512                        # what the disk writes whole or not at all
    PAGE = 4096
    ACCESS_RIGHTS = 0o640               # of every file
    MOST_STATES = 4096
    LENGTH = -1                         # of a file: in place of the number of a sector

cdef enum:                              # what is drawn for a file or a name
    MODE = 1
    CHOICE = 2
    CUT = 3

cdef int64_t LONGEST_FILE = <int64_t> 1 << 31
cdef bytes _ZEROS = bytes(SECTOR)
_KINDS = ("look", "open", "read", "write", "extend", "force", "map", "rename", "unlink", "make_directory",
          "force_directory")
_NONE, _ALL, _MODES = 0, 1, 4           # one crash in four loses all that it may, one loses nothing


cdef class _Memory:
    # Address space for the longest file, so that the memory never moves under a map; pages are taken when used.
    cdef uint8_t* data

    def __cinit__(self):
        cdef void* memory = mmap(NULL, <size_t> LONGEST_FILE, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
        if memory == MAP_FAILED:
            raise MemoryError("no address space for a simulated file of up to 2 GiB")
        self.data = <uint8_t*> memory

    def __dealloc__(self):
        if self.data != NULL:
            munmap(self.data, <size_t> LONGEST_FILE)


cdef class _Inode:
    cdef _Memory memory                 # what processes read; zero but in `pages`
    cdef int64_t length
    cdef uint64_t key                   # of its draws
    cdef bint is_linked                 # its pages count as used
    cdef set pages                      # that have a place on the disk
    cdef dict durable                   # unit -> bytes on the disk, without zeros; a unit is a sector or LENGTH
    cdef dict versions                  # unit -> list of what it was since the last force
    cdef set clean                      # pages that a failed force has left unwritten: the next one skips them
    cdef list maps

    def __cinit__(self):
        self.memory = _Memory.__new__(_Memory)
        self.pages, self.clean = set(), set()
        self.durable, self.versions, self.maps = {LENGTH: _encoded(0)}, {}, []
        self.is_linked = True

    cdef bytes unit(self, int64_t index):
        return _encoded(self.length) if index == LENGTH else self.memory.data[index * SECTOR:(index + 1) * SECTOR]

    cdef int note(self, int64_t offset, int64_t length) except -1:
        """Keep what sectors are now, where that is new."""
        cdef int64_t index
        cdef bytes known
        for index in range(offset // SECTOR, (offset + length + SECTOR - 1) // SECTOR):
            known = self.known(index)
            if memcmp(<const char*> known, self.memory.data + index * SECTOR, SECTOR) != 0:
                self.keep(index)
        return 0

    cdef bytes known(self, int64_t index):
        cdef list versions = self.versions.get(index)
        return versions[len(versions) - 1] if versions is not None else self.durable.get(index, _ZEROS)

    cdef int keep(self, int64_t index) except -1:
        self.versions.setdefault(index, []).append(self.unit(index))
        self.clean.discard(_page_of(index))
        return 0

    cdef int observe(self) except -1:
        """Keep what was stored through maps."""
        cdef SimulatedMap each
        for each in self.maps:
            self.note(each._offset, <int64_t> each.length)
        return 0

    cdef int set_length(self, int64_t length) except -1:
        cdef int64_t page, begin
        if length < self.length:
            # The system drops the pages behind the end, and rewrites the page with the end in it.
            self.clean = {page for page in self.clean if (page + 1) * PAGE <= length}
            for page in sorted(self.pages):
                begin = max(page * PAGE, length)
                if begin < (page + 1) * PAGE:
                    memset(self.memory.data + begin, 0, <size_t> ((page + 1) * PAGE - begin))
                    self.note(begin, (page + 1) * PAGE - begin)
        if length != self.length:
            self.length = length
            self.keep(LENGTH)
        return 0

    cdef dict unforced(self, int64_t first_page, int64_t last_page):
        """The units that a force of these pages beginning now brings to the disk; page -1 is the length."""
        self.observe()
        return {index: self.known(index) for index in self.versions
                if first_page <= _page_of(index) <= last_page and _page_of(index) not in self.clean}

    cdef int force(self, dict units) except -1:
        """Mark ``units`` as on the disk. Writes since the force began are not."""
        cdef list versions
        for index, content in units.items():
            versions = self.versions.get(index, [])
            for place in range(len(versions)):
                if versions[place] is content:
                    self.durable[index] = content
                    self.versions[index] = versions[place + 1:]
                    break
            if not self.versions.get(index, True):
                del self.versions[index]
        return 0

    cdef int fail_force(self) except -1:
        """None of it may be on the disk, or any, and the system takes all of it for written."""
        self.clean.update([_page_of(index) for index in self.versions])
        return 0

    cdef int move(self) except -1:
        """Leave the memory to the maps of a process that has died."""
        cdef _Memory memory = _Memory.__new__(_Memory)
        cdef int64_t page
        for page in self.pages:
            memcpy(memory.data + page * PAGE, self.memory.data + page * PAGE, PAGE)
        self.memory = memory
        return 0


cdef class _Writing:
    # A write in progress, by a process that may die in it.
    cdef SimulatedStorage storage
    cdef _Inode inode
    cdef int64_t offset
    cdef const uint8_t* content         # the caller's, as long as the write lasts
    cdef int64_t length


cdef bytes _encoded(int64_t length):
    return length.to_bytes(8, "little")


cdef int64_t _page_of(int64_t index) noexcept:
    return LENGTH if index == LENGTH else index * SECTOR // PAGE


cdef _Inode _restored(int64_t length, dict sectors, set pages, uint64_t key):
    # A file of which all is forced.
    cdef _Inode inode = _Inode.__new__(_Inode)
    cdef bytes content
    cdef int64_t index
    inode.length = length
    inode.key = key
    inode.durable.update(sectors)
    inode.durable[LENGTH] = _encoded(length)
    inode.pages = {page for page in pages if page * PAGE < length}
    for index, content in sectors.items():
        memcpy(inode.memory.data + index * SECTOR, <const char*> content, SECTOR)
        inode.pages.add(index * SECTOR // PAGE)
    return inode


cdef class SimulatedDisk:
    """The disk of a host. Each process uses it through the storage that :meth:`process` makes.

    Args:
        capacity: bytes, in pages of 4 KiB; a write beyond it fails with ENOSPC, after what still fits.
        on_latency: called as ``on_latency(kind, bytes)`` before a call has its effect. It may park a fiber, and the
            process may die meanwhile: the call then has no effect, except that a write may be cut.
        stream: of its draws (int); each disk of a world has its own.

    ``longest_write`` (int, bytes; 0 for any): a longer write is done in several parts, each after its latency; they end
    with sectors.
    """
    cdef public object on_latency
    cdef public int64_t capacity
    cdef public int64_t longest_write
    cdef readonly uint64_t stream
    cdef readonly uint64_t crash_count
    cdef readonly uint64_t boot_count   # of the machine: 1 at first, one more with each cut of the power
    cdef dict _names                    # path -> _Inode, or None for a directory
    cdef dict _durable_names
    cdef list _changes                  # not forced: (directory, ((path, whether it is there, _Inode or None), ...))
    cdef list _passed_over              # of these, what a failed force may have lost: the next one passes them over
    cdef dict _creations                # path -> how often it was created
    cdef dict _faults                   # kind -> list of [calls before it, error, bytes written, whole sectors]
    cdef list _processes                # SimulatedStorage of those that live
    cdef list _writing                  # _Writing of all that are in progress
    cdef int64_t _used_pages

    def __init__(self, *, int64_t capacity=1 << 40, on_latency=None, uint64_t stream=0):
        self.capacity, self.on_latency, self.stream = capacity, on_latency, stream
        self._names, self._durable_names = {"/": None}, {"/": None}
        self._changes, self._processes, self._writing, self._passed_over = [], [], [], []
        self._creations, self._faults = {}, {}
        self.boot_count = 1

    def process(self):
        """A new process's view of the disk (:class:`SimulatedStorage`), until that is killed or the power is cut."""
        cdef SimulatedStorage made = SimulatedStorage.__new__(SimulatedStorage)
        made.disk = self
        self._processes.append(made)
        return made

    def fail(self, str kind not None, int error, *, int after=0, int64_t written=0, bint whole_sectors=False):
        """The next call of a kind fails, or the one ``after`` so many others, with this errno.

        Kinds: look, open, read, write, extend, force, map, rename, unlink, make_directory, force_directory. A write has
        written the first ``written`` bytes, or with ``whole_sectors`` only those up to the end of a sector, as systems
        do with a partial write. Data of a failed force may or may not be lost if the power is cut, and a later force of
        it does nothing.
        """
        if kind not in _KINDS:
            raise ValueError(f"there are no calls of kind {kind!r}: give one of {', '.join(_KINDS)}")
        self._faults.setdefault(kind, []).append([after, error, written, whole_sectors])

    def rot(self, path, int64_t offset, int mask=1):
        """Flip the bits of ``mask`` in a byte of a file, on the disk and in memory. Raises OSError, ValueError."""
        cdef _Inode inode = self._file(_clean(path), path, "rot")
        if not (0 <= offset < inode.length and 0 < mask < 256):
            raise ValueError(f"cannot rot byte {offset} by {mask} in a file of {inode.length} bytes: stay within it")
        index, place = offset // SECTOR, offset % SECTOR
        inode.observe()
        inode.memory.data[offset] ^= <uint8_t> mask
        inode.durable[index] = _flipped(inode.durable.get(index, _ZEROS), place, mask)
        if index in inode.versions:
            inode.versions[index] = [_flipped(each, place, mask) for each in inode.versions[index]]

    def contents(self):
        """The contents as processes see them now: bytes by path, None for a directory (dict)."""
        found = {}
        cdef _Inode inode
        for path, inode in sorted(self._names.items()):
            found[path] = None if inode is None else <bytes> inode.memory.data[:inode.length]
        return found

    def forced(self, path, int64_t offset, int64_t length):
        """The forced bytes of a range of a file: a cut of the power leaves at least these (bytes).

        Fewer where the file ends then; none of a file whose name was not forced.
        """
        cdef _Inode inode = self._durable_names.get(_clean(path))
        if inode is None:
            return b""
        cdef int64_t end = min(offset + length, <int64_t> int.from_bytes(inode.durable[LENGTH], "little"))
        cdef int64_t index
        content = b"".join([
            inode.durable.get(index, _ZEROS) for index in range(offset // SECTOR, (end + SECTOR - 1) // SECTOR)])
        return content[offset % SECTOR:offset % SECTOR + max(0, end - offset)]

    def cut_power(self, Draws draws not None):
        """End all processes and lose what was not forced, as far as ``draws`` says; equal draws lose the same."""
        cdef SimulatedStorage each
        self.crash_count += 1
        self.boot_count += 1
        for each in list(self._processes):
            each._end(draws)
        points = self._open_points()
        self._become(self._outcome(points, self._drawn(draws, points)))

    def crash_states(self, *, int64_t limit=MOST_STATES):
        """Each different disk that a cut of the power now may leave (iterator of :class:`SimulatedDisk`).

        This disk stays usable. Raises ValueError when more than ``limit`` combinations must be looked at; 12 sectors
        and names that are not forced have 4096.
        """
        cdef SimulatedDisk made
        points = self._open_points()
        count = math.prod([len(options) for _, _, options in points])
        if count > limit:
            raise ValueError(f"{count} combinations of {len(points)} sectors, lengths and names that are not forced, "
                             f"more than {limit}: look at a shorter run, force more, or raise the limit")
        seen = set()
        for picks in itertools.product(*[options for _, _, options in points]):
            outcome = self._outcome(points, picks)
            digest = tuple([(path, None if kept is None else (kept[0], tuple(sorted(kept[1].items()))))
                            for path, kept in sorted(outcome.items())])
            if digest not in seen:
                seen.add(digest)
                made = SimulatedDisk(capacity=self.capacity, stream=self.stream)
                made.crash_count = self.crash_count + 1
                made.boot_count = self.boot_count + 1
                made._become(outcome)
                yield made

    cdef list _inodes(self):
        """Files that have a name, or may have one after a cut of the power."""
        found = {id(each): each for _, each in sorted(self._durable_names.items()) if each is not None}
        for _, entries in self._changes:
            found.update({id(each): each for _, _, each in entries if each is not None})
        return list(found.values())

    cdef list _open_points(self):
        """The points that a cut of the power decides: (inode, unit, contents) and (None, index of a change, whether it
        stays)."""
        cdef _Inode inode
        points = []
        for inode in self._inodes():
            inode.observe()
            for index in sorted(inode.versions):
                options = [inode.durable.get(index, _ZEROS), *inode.versions[index]]
                points.append((inode, index, list(dict.fromkeys(options))))
        for index in range(len(self._changes)):
            points.append((None, index, [False, True]))
        return points

    cdef list _drawn(self, Draws draws, list points):
        cdef _Inode inode
        picks = []
        are_all_kept = self._draw(draws, MODE, 0, 0) % 2 == 0
        for inode, index, options in points:
            if inode is None:
                name = zlib.crc32(self._changes[index][1][0][0].encode())
                picks.append(are_all_kept or self._draw(draws, CHOICE, name, index) % 2 == 0)
                continue
            mode = self._draw(draws, MODE, inode.key, 0) % _MODES
            if mode == _NONE:
                picks.append(options[0])
            elif mode == _ALL:
                picks.append(inode.unit(index))
            else:
                picks.append(options[self._draw(draws, CHOICE, inode.key, index + 1) % len(options)])
        return picks

    cdef uint64_t _draw(self, Draws draws, uint64_t what, uint64_t key, uint64_t index) noexcept:
        # By crash, by file or name, and by sector: whatever else there is changes none of them.
        return draws._draw((<uint64_t> 0xD15C << 32) | self.stream, draws._draw(
            self.crash_count << 8 | what, (key << 24) ^ index))

    cdef dict _outcome(self, list points, picks):
        """Files by path, as (length, sectors, pages, key), when each point came out as picked."""
        cdef _Inode inode
        names = dict(self._durable_names)
        units = {id(inode): dict(inode.durable) for inode in self._inodes()}
        for (inode, index, _), pick in zip(points, picks, strict=True):
            if inode is not None:
                units[id(inode)][index] = pick
            elif pick:
                _apply(names, self._changes[index][1])
        outcome = {}
        for path, inode in sorted(names.items()):
            if path != "/" and outcome.get(posixpath.dirname(path), path) is not None:
                continue                # its directory is lost
            if inode is None:
                outcome[path] = None
                continue
            length, kept = int.from_bytes(units[id(inode)][LENGTH], "little"), {}
            for index, content in sorted(units[id(inode)].items()):
                if index * SECTOR < length:
                    content = content[:length - index * SECTOR].ljust(SECTOR, b"\0")
                    if index != LENGTH and content != _ZEROS:
                        kept[index] = content
            outcome[path] = (length, kept, inode.pages, inode.key)
        return outcome

    cdef int _become(self, dict outcome) except -1:
        cdef _Inode inode
        self._names, self._changes, self._passed_over, self._used_pages = {}, [], [], 0
        for path, kept in outcome.items():
            inode = None
            if kept is not None:
                length, sectors, pages, key = kept
                inode = _restored(length, sectors, pages, key)
                self._used_pages += len(inode.pages)
            self._names[path] = inode
        self._durable_names = dict(self._names)
        return 0

    cdef int _change(self, str directory, tuple entries) except -1:
        """Names change, until they are forced in memory alone."""
        cdef _Inode old
        for path, _, new in entries:
            old = self._names.get(path)
            if old is not None and new is not old:
                old.is_linked = False
                self._used_pages -= len(old.pages)
        _apply(self._names, entries)
        for _, is_there, new in entries:
            old = new
            if old is not None and is_there and not old.is_linked:
                old.is_linked = True
                self._used_pages += len(old.pages)
        self._changes.append((directory, entries))
        return 0

    cdef int64_t _take_place(self, _Inode inode, int64_t offset, int64_t length) except -1:
        """Give a range its place on the disk; return how many bytes of it have one, fewer when the disk is full."""
        cdef int64_t page
        for page in range(offset // PAGE, (offset + length + PAGE - 1) // PAGE):
            if page in inode.pages:
                continue
            if (self._used_pages + 1) * PAGE > self.capacity:
                return max(0, page * PAGE - offset)
            inode.pages.add(page)
            self._used_pages += inode.is_linked
        return length

    cdef int64_t _store(self, _Inode inode, int64_t offset, const uint8_t* content, int64_t length) except -1:
        """Write as much as has a place, and return its length."""
        cdef int64_t begin, end
        cdef uint8_t* memory = inode.memory.data
        length = self._take_place(inode, offset, length)
        if length > 0:
            inode.clean.difference_update(range(offset // PAGE, (offset + length + PAGE - 1) // PAGE))
            begin = offset
            while begin < offset + length:          # most of what is zeroed is zero: such pages need no look at sectors
                end = min((begin // PAGE + 1) * PAGE, offset + length)
                if inode.maps or memcmp(memory + begin, content + begin - offset, <size_t> (end - begin)) != 0:
                    memcpy(memory + begin, content + begin - offset, <size_t> (end - begin))
                    inode.note(begin, end - begin)
                begin = end
            for end in [*range((max(inode.length, offset) // PAGE + 1) * PAGE, offset + length, PAGE), offset + length]:
                if end > inode.length:
                    inode.set_length(end)       # page by page, and each length may be the one that survives
        return length

    cdef _Inode _file(self, str path, str given, str action):
        if path not in self._names:
            self._require_parent(path, given, action)
            raise storage_error(ENOENT, f"cannot {action}", given)
        if self._names[path] is None:
            raise storage_error(EISDIR, f"cannot {action}", given)
        return self._names[path]

    cdef str _require_parent(self, str path, str given, str action):
        parent = posixpath.dirname(path)
        if self._names.get(parent, self) is not None:
            is_file = any([self._names.get(each) is not None for each in _parents(path)])
            raise storage_error(ENOTDIR if is_file else ENOENT, f"cannot {action}", given)
        return parent

    cdef int _require_directory(self, str path, str given, str action) except -1:
        if path not in self._names:
            self._require_parent(path, given, action)
            raise storage_error(ENOENT, f"cannot {action}", given)
        if self._names[path] is not None:
            raise storage_error(ENOTDIR, f"cannot {action}", given)
        return 0

    def __repr__(self):
        return f"<SimulatedDisk names={len(self._names)} used={self._used_pages * PAGE} crashes={self.crash_count}>"


cdef class SimulatedStorage(Storage):
    """The storage of one process on a :class:`SimulatedDisk`. Once killed, its calls raise and have no effect."""
    cdef readonly SimulatedDisk disk
    cdef readonly bint is_dead
    cdef dict _failed_directories       # path -> errno of the first force that failed

    def __cinit__(self):
        self._failed_directories = {}

    def kill(self, Draws draws not None):
        """End the process. Its writes survive, a write in progress as far as ``draws`` decides."""
        if not self.is_dead:
            self.disk.crash_count += 1
            self._end(draws)

    cdef int _end(self, Draws draws) except -1:
        cdef SimulatedDisk disk = self.disk
        cdef _Inode inode
        cdef SimulatedMap each
        cdef _Writing writing
        cdef int64_t end
        self.is_dead = True
        disk._processes.remove(self)
        for writing in disk._writing:
            if writing.storage is self:
                end = writing.offset + writing.length
                cuts = [writing.offset, *range((writing.offset // PAGE + 1) * PAGE, end, PAGE), end]
                end = cuts[disk._draw(draws, CUT, writing.inode.key, writing.offset) % len(cuts)]
                disk._store(writing.inode, writing.offset, writing.content, end - writing.offset)
        disk._writing = [writing for writing in disk._writing if writing.storage is not self]
        for inode in disk._inodes():
            inode.observe()
            dead = [each for each in inode.maps if each._file._storage is self]
            if dead:
                inode.maps = [each for each in inode.maps if each._file._storage is not self]
                for each in dead if inode.maps else ():
                    each._sever()       # others map it as well and keep its memory
                if not inode.maps:
                    inode.move()
        return 0

    cdef int _begin(self, str kind, int64_t length, str path) except -1:
        """Let the call take its time; raises when it fails by script, or the process is dead."""
        self._check_alive(path)
        if self.disk.on_latency is not None:
            self.disk.on_latency(kind, length)
            self._check_alive(path)
        fault = self._fault(kind)
        if fault is not None:
            raise storage_error(fault[1], f"cannot {kind.replace('_', ' ')}", path)
        return 0

    cdef int _check_alive(self, str path) except -1:
        if self.is_dead:
            raise storage_error(EBADF, "the process that uses the storage is dead: make a new one by process()", path)
        return 0

    cdef list _fault(self, str kind):
        faults = self.disk._faults.get(kind)
        if not faults:
            return None
        if faults[0][0] > 0:
            faults[0][0] -= 1
            return None
        return faults.pop(0)

    cpdef StorageFile open_file(self, str path, int flags):
        cdef SimulatedDisk disk = self.disk
        cdef str name = _clean(path)
        cdef _Inode inode
        check_flags(flags, path)
        self._begin("open", 0, path)
        if flags & OPEN_EXCLUSIVE and name in disk._names:
            raise storage_error(EEXIST, "cannot open the file", path)
        if flags & OPEN_CREATE and name not in disk._names:
            parent = disk._require_parent(name, path, "open the file")
            disk._creations[name] = disk._creations.get(name, 0) + 1
            inode = _Inode.__new__(_Inode)
            inode.key = zlib.crc32(f"{name}#{disk._creations[name]}".encode())
            disk._change(parent, ((name, True, inode),))
        cdef SimulatedFile made = SimulatedFile.__new__(SimulatedFile)
        made._inode = disk._file(name, path, "open the file")
        made._storage, made.path, made.is_read_only = self, path, flags & OPEN_READ_ONLY
        return made

    cpdef list list_directory(self, str path):
        cdef str name = _clean(path)
        self._begin("look", 0, path)
        self.disk._require_directory(name, path, "list the directory")
        return sorted([posixpath.basename(each) for each in self.disk._names
                       if each != "/" and posixpath.dirname(each) == name])

    cpdef bint exists(self, str path) except -1:
        self._begin("look", 0, path)
        return _clean(path) in self.disk._names

    cpdef int64_t length_of(self, str path) except -1:
        self._begin("look", 0, path)
        return self.disk._file(_clean(path), path, "take the length").length

    cpdef int make_directory(self, str path) except -1:
        cdef str name = _clean(path)
        self._begin("make_directory", 0, path)
        if name in self.disk._names:
            raise storage_error(EEXIST, "cannot make the directory", path)
        parent = self.disk._require_parent(name, path, "make the directory")
        self.disk._change(parent, ((name, True, None),))
        return 0

    cpdef int rename(self, str path, str new_path) except -1:
        cdef str name = _clean(path), new_name = _clean(new_path)
        check_rename(path, new_path)
        self._begin("rename", 0, path)
        inode = self.disk._file(name, path, f"rename to {new_path}")
        if self.disk._names.get(new_name, self) is None:
            raise storage_error(EISDIR, f"cannot rename to {new_path}", path)
        if name != new_name:
            self.disk._change(posixpath.dirname(name), ((new_name, True, inode), (name, False, None)))
        return 0

    cpdef int unlink(self, str path) except -1:
        cdef str name = _clean(path)
        self._begin("unlink", 0, path)
        self.disk._file(name, path, "unlink")
        self.disk._change(posixpath.dirname(name), ((name, False, None),))
        return 0

    cpdef int force_directory(self, str path) except -1:
        cdef SimulatedDisk disk = self.disk
        cdef str name = _clean(path)
        self._check_alive(path)
        if name in self._failed_directories:
            raise storage_error(self._failed_directories[name], "a force of this directory failed before and what it "
                                "lost may count as written: use a new directory", path)
        disk._require_directory(name, path, "force the directory")
        begun = [change for change in disk._changes if change[0] == name]
        try:
            self._begin("force_directory", 0, path)
        except OSError as error:
            if not self.is_dead:
                self._failed_directories[name] = error.errno
                disk._passed_over += begun
            raise
        begun = [change for change in begun if change not in disk._passed_over]
        done = {id(change) for change in begun}     # what changed since then is not forced
        for change in disk._changes:
            if id(change) in done:
                _apply(disk._durable_names, change[1])
        disk._changes = [change for change in disk._changes if id(change) not in done]
        forced = {path for _, entries in begun for path, _, _ in entries}
        for lost in disk._passed_over:              # these names are written again
            if lost in disk._changes and forced.issuperset([path for path, _, _ in lost[1]]):
                disk._changes.remove(lost)
        disk._passed_over = [lost for lost in disk._passed_over if lost in disk._changes]
        return 0

    def retry_directory(self, str path not None):
        self._failed_directories.pop(_clean(path), None)

    cpdef int64_t usable_space(self, str path) except -1:
        self._begin("look", 0, path)
        self.disk._require_directory(_clean(path), path, "take the usable space")
        return max(0, self.disk.capacity - self.disk._used_pages * PAGE)

    cpdef bytes boot_id(self):
        self._check_alive("/")
        return self.disk.stream.to_bytes(8, "little") + self.disk.boot_count.to_bytes(8, "little")

    def __repr__(self):
        return f"<SimulatedStorage{' dead' if self.is_dead else ''} of {self.disk!r}>"


cdef class SimulatedFile(StorageFile):
    """A file that a process has open on a :class:`SimulatedDisk`."""
    cdef SimulatedStorage _storage
    cdef _Inode _inode
    cdef bint _is_closed

    cdef int _begin(self, str kind, int64_t length) except -1:
        self._check_open(kind)
        self._storage._begin(kind, length, self.path)
        self._check_open(kind)
        return 0

    cdef int _check_open(self, str kind) except -1:
        self._storage._check_alive(self.path)
        if self._is_closed:
            raise storage_error(EBADF, f"cannot {kind} a file that is closed: open it again", self.path)
        return 0

    cpdef int64_t length(self) except -1:
        self._begin("look", 0)
        return self._inode.length

    cdef int64_t pread(self, uint8_t* buffer, size_t length, int64_t offset) except -1:
        self._begin("read", <int64_t> length)
        if offset < 0:
            raise storage_error(EINVAL, f"cannot read {length} bytes at {offset}", self.path)
        cdef int64_t count = max(<int64_t> 0, min(<int64_t> length, self._inode.length - offset))
        memcpy(buffer, self._inode.memory.data + min(offset, LONGEST_FILE), <size_t> count)
        return count

    cdef int pwrite(self, const uint8_t* buffer, size_t length, int64_t offset) except -1:
        cdef int64_t done = 0, part, end = <int64_t> length
        self._check_open("write")
        self._check_writable("cannot write")
        if length > 0 and (offset < 0 or offset > LONGEST_FILE - end):
            raise storage_error(EINVAL if offset < 0 else EFBIG, f"cannot write {length} bytes at {offset}, 0 of them "
                                                                 "are written", self.path)
        while done < end:
            part = self._part_of(offset + done, end - done)
            self._write_part(buffer + done, part, offset + done, done, end)
            done += part
        return 0

    cdef int64_t _part_of(self, int64_t offset, int64_t length) noexcept:
        # It ends with a sector, if not with the write: no system leaves half of one to the disk.
        cdef int64_t longest = self._storage.disk.longest_write
        if not 0 < longest < length:
            return length
        return min(length, max(SECTOR - offset % SECTOR, (offset + longest) // SECTOR * SECTOR - offset))

    cdef int _write_part(
            self, const uint8_t* buffer, int64_t length, int64_t offset, int64_t done, int64_t whole) except -1:
        cdef SimulatedDisk disk = self._storage.disk
        cdef int64_t stored
        cdef int error = ENOSPC
        cdef _Writing writing
        if disk.on_latency is not None:
            writing = _Writing.__new__(_Writing)
            writing.storage, writing.inode, writing.offset = self._storage, self._inode, offset
            writing.content, writing.length = buffer, length
            disk._writing.append(writing)
            try:
                disk.on_latency("write", length)
            finally:
                disk._writing = [each for each in disk._writing if each is not writing]
            self._check_open("write")
        fault = self._storage._fault("write")
        if fault is None:
            stored = disk._store(self._inode, offset, buffer, length)
        else:
            error = fault[1]
            stored = min(<int64_t> fault[2], length)
            if fault[3] and stored < length:
                stored = (offset + stored) // SECTOR * SECTOR - offset
            stored = disk._store(self._inode, offset, buffer, max(0, stored))
        if fault is not None or stored < length:
            raise storage_error(error, f"cannot write {whole} bytes at {offset - done}, {done + stored} of them are "
                                       "written", self.path)
        return 0

    cpdef int set_length(self, int64_t length) except -1:
        self._check_open("extend")
        self._check_writable("cannot set the length of")
        self._begin("extend", length)
        self._check_cut(length, self._inode.length)
        if length < 0 or length > LONGEST_FILE:
            raise storage_error(EINVAL if length < 0 else EFBIG, f"cannot set the length to {length} bytes", self.path)
        freed = {page for page in self._inode.pages if page * PAGE >= length}
        self._inode.observe()
        self._inode.set_length(length)
        self._inode.pages -= freed
        self._storage.disk._used_pages -= len(freed) if self._inode.is_linked else 0
        return 0

    cpdef int reserve(self, int64_t length) except -1:
        self._check_open("reserve")
        self._check_writable("cannot reserve")
        self._begin("extend", length)
        if length < 0 or length > LONGEST_FILE:
            raise storage_error(EINVAL if length < 0 else EFBIG, f"cannot reserve {length} bytes", self.path)
        self._take_place(0, length)
        if length > self._inode.length:
            self._inode.set_length(length)
        return 0

    cpdef bint prepare(self, int64_t offset, int64_t length) except -1:
        self._check_open("prepare")
        self._check_writable("cannot prepare")
        if length <= 0 or not 0 <= offset <= LONGEST_FILE - length:
            return False
        return self._storage.disk._take_place(self._inode, offset, length) == length

    cdef int _take_place(self, int64_t offset, int64_t length) except -1:
        if self._storage.disk._take_place(self._inode, offset, length) < length:
            raise storage_error(ENOSPC, f"cannot reserve {length} bytes at {offset}", self.path)
        return 0

    cpdef int force(self, bint with_metadata) except -1:
        self._check_open("force")
        return self._force_pages(LENGTH, LONGEST_FILE // PAGE)

    cdef int _force_pages(self, int64_t first, int64_t last) except -1:
        self._storage._check_alive(self.path)
        self._check_trusted()
        units = self._inode.unforced(first, last)
        try:
            self._storage._begin("force", len(units) * SECTOR, self.path)
        except OSError as error:
            if not self._storage.is_dead:
                self._failed_force = error.errno
                self._inode.observe()
                self._inode.fail_force()
            raise
        return self._inode.force(units)

    cpdef StorageMap map_range(self, int64_t offset, size_t length):
        self._begin("map", <int64_t> length)
        self._check_map(offset, length, self._inode.length)
        if not self.is_read_only:
            self._take_place(offset, <int64_t> length)
        cdef SimulatedMap made = SimulatedMap.__new__(SimulatedMap)
        made._file, made._memory, made._offset = self, self._inode.memory, offset
        made.length, made.is_read_only = length, self.is_read_only
        made.data = made._memory.data + offset
        self._inode.maps.append(made)
        self._map_count += 1
        return made

    cpdef int access_rights(self) except -1:
        self._begin("look", 0)
        return ACCESS_RIGHTS

    cpdef bint is_replaced(self) except -1:
        self._begin("look", 0)
        return self._storage.disk._names.get(_clean(self.path), self._inode) is not self._inode

    cpdef bint is_in_place(self) except -1:
        self._begin("look", 0)
        return self._storage.disk._names.get(_clean(self.path)) is self._inode

    cpdef int close(self) except -1:
        self._is_closed = True
        return 0


cdef class SimulatedMap(StorageMap):
    """A range of a simulated file, as memory that all who map it share."""
    cdef SimulatedFile _file
    cdef _Memory _memory                # kept for as long as the map points into it
    cdef int64_t _offset

    cdef int _sever(self) except -1:
        cdef _Memory memory = _Memory.__new__(_Memory)
        memcpy(memory.data, self.data, self.length)
        self._memory, self.data = memory, memory.data
        return 0

    cpdef int force(self, size_t offset, size_t length) except -1:
        self._check_range(offset, length, self._file.path)
        cdef int64_t begin = self._offset + <int64_t> offset
        return self._file._force_pages(begin // PAGE, (begin + <int64_t> length - 1) // PAGE) if length > 0 else 0

    cpdef int close(self) except -1:
        self._check_unused()
        if self.data != NULL:
            self.data = NULL
            self._file._map_count -= 1
            if not self._file._storage.is_dead:
                self._file._inode.note(self._offset, <int64_t> self.length)
                self._file._inode.maps.remove(self)
        return 0


cdef str _clean(path):
    return posixpath.normpath("/" + path.lstrip("/"))


cdef list _parents(str path):
    found = []
    while path != "/":
        path = posixpath.dirname(path)
        found.append(path)
    return found


cdef bytes _flipped(bytes content, int64_t place, int mask):
    return content[:place] + bytes([content[place] ^ mask]) + content[place + 1:]


cdef int _apply(dict names, tuple entries) except -1:
    for path, is_there, inode in entries:
        if is_there:
            names[path] = inode
        else:
            names.pop(path, None)
    return 0


seal((SimulatedDisk,))
hide((_Memory, _Inode, _Writing, SimulatedStorage, SimulatedFile, SimulatedMap))
