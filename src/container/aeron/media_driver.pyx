"""The media driver: where it is, whether it is alive, and an embedded one for tests and for users of one
process.

The layout of a driver's CnC file is upstream's: aeron_cnc_file_descriptor.h and aeron_rb.h.
"""
import fcntl
import os
import struct
import sys
import time
import warnings
import weakref

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from container.aeron.libaeron cimport (
    AERON_THREADING_MODE_DEDICATED, AERON_THREADING_MODE_INVOKER, AERON_THREADING_MODE_SHARED,
    AERON_THREADING_MODE_SHARED_NETWORK, aeron_driver_context_t, aeron_driver_t,
)
from container.aeron.conductor_events cimport (
    lock_mutex, pthread_mutex_destroy, pthread_mutex_t, pthread_mutex_unlock,
)
from container.aeron.keepalive cimport Turn, begin_wait, end_wait, start_keepalive, stop_keepalive
from container.aeron.library cimport driver_lib, encoded, ensure_client, ensure_driver, last_driver_error, lib

from container.common import forks
from container.common.closed_files import closed_to_others
from container.common.loggers import report
from container.common.process_end import Stage, close_at_end
from container.common.regular_files import open_regular
from container.common.sealed cimport seal
from container.errors import AeronError, ConfigurationError, ContainerError, DriverTimeoutError

cdef extern from "pthread.h" nogil:
    ctypedef struct pthread_mutexattr_t:
        pass
    int pthread_mutex_init(pthread_mutex_t* mutex, const pthread_mutexattr_t* attributes) noexcept

# The driver asks for several packets at once with a timeout of zero, after which Linux returns with the first one, so
# that a turn takes one packet of each socket. (Upstream: aeron_udp_channel_transport.c and _bindings.h.)
cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #if defined(__linux__)
    #include <sys/socket.h>
    typedef void (*container_on_packet_t)(void);
    typedef int (*container_receive_t)(
        void *transport, struct mmsghdr *messages, size_t count, int64_t *bytes, container_on_packet_t on_packet,
        void *clientd);
    enum { CONTAINER_BINDINGS = 15, CONTAINER_RECEIVE = 3, CONTAINER_NAME = 12, CONTAINER_KIND = 13 };
    static void *container_bindings[CONTAINER_BINDINGS];
    static container_receive_t container_receive_one;

    static int container_receive(
        void *transport, struct mmsghdr *messages, size_t count, int64_t *bytes, container_on_packet_t on_packet,
        void *clientd)
    {
        int received = 0;
        while (received < (int)count)
        {
            struct mmsghdr first = messages[0];
            int result = container_receive_one(transport, messages, count, bytes, on_packet, clientd);
            messages[0] = first;                // the call leaves in it what it has received
            if (result < 0)
            {
                return result;                  // the caller logs it; what came before has been handed on and counted
            }
            if (result == 0)
            {
                break;
            }
            received += result;
        }
        return received;
    }

    static void **container_receive_bindings(void **known, void *receive)
    {
        if (known == NULL || receive == NULL || known[CONTAINER_RECEIVE] != receive ||
            strcmp((const char *)known[CONTAINER_NAME], "default") != 0 ||
            strcmp((const char *)known[CONTAINER_KIND], "media") != 0)
        {
            return NULL;                        // of another layout, or not the system's sockets
        }
        container_receive_one = (container_receive_t)receive;
        memcpy(container_bindings, known, sizeof(container_bindings));
        container_bindings[CONTAINER_RECEIVE] = (void *)container_receive;
        return container_bindings;
    }
    #else
    static void **container_receive_bindings(void **known, void *receive)
    {
        return NULL;
    }
    #endif
    """
    void** receive_bindings "container_receive_bindings" (void** known, void* receive) noexcept nogil

cdef enum:
    KEEPALIVE_INTERVAL_NS = 20_000_000      # how long nobody may invoke a driver in invoker mode
    KEEPALIVE_IDLE_NS = 1_000_000           # its own thread's pause when there is no work, as that of an idle driver
    MAX_PATH_LENGTH = 4096
    # A log buffer's file name within the driver's directory, with room to spare.
    MAX_FILE_NAME_LENGTH = 128
    NULL_HEARTBEAT = -1
    DEFAULT_FILE_PAGE_SIZE = 4096
    MAX_FILE_PAGE_SIZE = 1 << 30
    LIVENESS_MS = 10_000
    DEFAULT_TERM_LENGTH = 1024 * 1024

_CNC_FILE = "cnc.dat"
_CNC_MAJOR_VERSION = 0
_METADATA = struct.Struct("<6i3qi")     # version, 5 buffer lengths, liveness timeout, start, pid, page size
_METADATA_LENGTH = 128
_TRAILER_LENGTH = 768                   # of the ring buffer to the driver, which follows the metadata
_HEARTBEAT_OFFSET = 640                 # in the trailer
_POLL_INTERVAL_S = 0.005
_LOG_BUFFER_DIRECTORIES = ("publications", "images")
_LOG_BUFFER_DIRECTORY_MODE = 0o700      # log buffers come later, with the modes that the umask of their time gives
_OWN_PREFIX = "aeron-embedded-of-"      # then the id of the process, which holds the directory's lock

_THREADING_MODES = {
    "DEDICATED": AERON_THREADING_MODE_DEDICATED,
    "SHARED_NETWORK": AERON_THREADING_MODE_SHARED_NETWORK,
    "SHARED": AERON_THREADING_MODE_SHARED,
    "INVOKER": AERON_THREADING_MODE_INVOKER,
}

# By id, in place of a WeakSet: threads may add and remove while another goes through a copy of its references.
_live_drivers = weakref.WeakValueDictionary()


# Functions for any driver

def default_aeron_dir():
    """The directory (str) that drivers and clients use by default, such as
    ``/dev/shm/aeron-<user>``.

    ``AERON_DIR`` is not looked at. Raises ImportError when the Aeron C library cannot be loaded.
    """
    cdef char path[MAX_PATH_LENGTH]
    cdef int length
    ensure_client()
    length = lib.default_path(path, MAX_PATH_LENGTH)
    if not 0 < length < MAX_PATH_LENGTH:
        raise AeronError(f"the C library's default directory is {length} bytes long; set AERON_DIR")
    return os.fsdecode(<bytes> path[:length])


def _read_metadata(path):
    """The unpacked metadata of a CnC file and the driver's heartbeat (int, ms since 1970), or the reason
    (str) why there is none yet."""
    reason = None
    try:
        file = open_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        reason = f"{path} does not exist"
    except PermissionError:
        reason = f"{path} may not be read by this user"
    except OSError as error:
        reason = f"{path} cannot be read: {error.strerror}"
    if reason is not None:
        return reason
    try:
        data = os.pread(file, _METADATA_LENGTH, 0)
        if len(data) < _METADATA_LENGTH:
            return f"{path} is only {len(data)} bytes long"
        metadata = _METADATA.unpack_from(data)
        if metadata[0] == 0:
            return f"{path} is not initialised"
        if metadata[0] >> 16 != _CNC_MAJOR_VERSION:
            version = ".".join(str(metadata[0] >> shift & 0xFF) for shift in (16, 8, 0))
            raise AeronError(
                f"{path} has version {version}, which is not compatible with {_CNC_MAJOR_VERSION}.2.0; use a "
                "media driver of the same major version as the client")
        if metadata[1] < _TRAILER_LENGTH or min(metadata[2:6]) < 0:
            raise AeronError(
                f"{path} is damaged: its metadata has the buffer lengths {metadata[1:6]}; end the media driver of that "
                "directory, if there is one, and start it again")
        trailer = os.pread(file, 8, _METADATA_LENGTH + metadata[1] - _TRAILER_LENGTH + _HEARTBEAT_OFFSET)
        if len(trailer) < 8 or os.fstat(file).st_size < _METADATA_LENGTH + sum(metadata[1:6]):
            return f"{path} is not complete"
        return metadata, int.from_bytes(trailer, "little", signed=True)
    finally:
        os.close(file)


def _await(path, int64_t timeout_ns, is_ready, hint):
    """Read the CnC file until ``is_ready(metadata, heartbeat)`` returns None. Until then it returns the reason to
    wait."""
    deadline = time.monotonic_ns() + timeout_ns
    while True:
        result = _read_metadata(path)
        reason = result if isinstance(result, str) else is_ready(*result)
        if reason is None:
            return result[0]
        if time.monotonic_ns() >= deadline:
            raise no_driver(reason, timeout_ns, hint)
        time.sleep(_POLL_INTERVAL_S)


_HINT = "start a media driver there, or set the directory (AERON_DIR) to that of a running one"


def wait_for_driver(aeron_dir, int64_t timeout_ns):
    """Wait until a media driver is alive in ``aeron_dir`` (str): until its CnC file is complete and its
    heartbeat is not older than the limit ``timeout_ns`` (int, nanoseconds). Ctrl-C ends the wait.

    Raise DriverTimeoutError, saying what is missing, when that does not happen within the limit, and
    AeronError when the file is one of another major version.
    """
    path = os.path.join(aeron_dir, _CNC_FILE)
    _await(path, timeout_ns, lambda metadata, heartbeat: _why_dead(path, heartbeat, timeout_ns), _HINT)


def driver_absence(aeron_dir, int64_t max_age_ns):
    """Why no media driver is alive in ``aeron_dir`` (str) now (str), or None when one is. Never waits.

    ``max_age_ns`` (int, nanoseconds) is how old its heartbeat may be. Raises AeronError when the CnC file is one of
    another major version.
    """
    path = os.path.join(aeron_dir, _CNC_FILE)
    result = _read_metadata(path)
    return result if isinstance(result, str) else _why_dead(path, result[1], max_age_ns)


def no_driver(reason, int64_t timeout_ns, hint=_HINT):
    """The exception (DriverTimeoutError) for a driver that did not come in time, ``reason`` (str) is why."""
    return DriverTimeoutError(f"no media driver within {timeout_ns // 1_000_000} ms: {reason}; {hint}")


def _why_dead(path, heartbeat, int64_t max_age_ns):
    if heartbeat == 0:
        return f"{path} has no heartbeat of a driver yet"
    if heartbeat == NULL_HEARTBEAT:
        return f"the driver of {path} has been shut down"
    age = time.time_ns() // 1_000_000 - heartbeat
    if age > max_age_ns // 1_000_000:
        return f"the driver of {path} died: its last heartbeat is {age} ms old"
    return None


def read_cnc_file_page_size(aeron_dir, int64_t timeout_ns):
    """The file page size (int, bytes, a power of two) of the driver in ``aeron_dir`` (str), from its CnC
    file.

    Waits for at most ``timeout_ns`` (int, nanoseconds) until a driver has written the file, and then raises
    DriverTimeoutError. Raises AeronError when the file has another major version or an impossible page size.
    """
    path = os.path.join(aeron_dir, _CNC_FILE)
    metadata = _await(path, timeout_ns, lambda metadata, heartbeat: None, _HINT)
    page_size = metadata[9] or DEFAULT_FILE_PAGE_SIZE
    if not DEFAULT_FILE_PAGE_SIZE <= page_size <= MAX_FILE_PAGE_SIZE or page_size & (page_size - 1):
        raise AeronError(
            f"{path} says that the file page size is {page_size}; allowed is a power of two from "
            f"{DEFAULT_FILE_PAGE_SIZE} to {MAX_FILE_PAGE_SIZE}")
    return page_size


# Embedded

def _new_directory():
    """A new directory (str), in memory where the system has such a place, and the file descriptor (int) that holds its
    lock, -1 where the file system has no locks.

    Only this user may look into it. The lock lasts as long as the process: what a killed one left behind is removed by
    the next one that makes such a directory.
    """
    from tempfile import gettempdir, mkdtemp    # slow to import, and not every user of this module starts a driver

    is_shared_memory = os.path.isdir("/dev/shm") and os.access("/dev/shm", os.W_OK)
    parent = "/dev/shm" if is_shared_memory else gettempdir()
    _remove_abandoned(parent)
    while True:
        path = mkdtemp(prefix=f"{_OWN_PREFIX}{os.getpid()}-", dir=parent)
        lock = -1
        try:
            lock = _locked(path, fcntl.LOCK_EX)
        except FileNotFoundError:               # another process took it for abandoned before it was locked
            path = None
        except OSError:
            pass
        if path is not None:
            return path, lock


def _locked(path, int operation):
    """A file descriptor (int) of the directory, with its lock. Raises OSError when the lock cannot be had, and
    FileNotFoundError when the directory is gone."""
    file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(file, operation)
        if not os.path.samestat(os.fstat(file), os.stat(path, follow_symlinks=False)):
            raise FileNotFoundError(path)
    except BaseException:
        os.close(file)
        raise
    return file


def _remove_tree(path):
    from shutil import rmtree

    rmtree(path, ignore_errors=True)


def _remove_abandoned(parent):
    """Remove the directories of this user's embedded drivers whose process has ended, as its lock has."""
    with os.scandir(parent) as entries:
        found = [entry for entry in entries if entry.name.startswith(_OWN_PREFIX)]
    for entry in found:
        try:
            if entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                lock = _locked(entry.path, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove_tree(entry.path)
                os.close(lock)
        except OSError:                         # it is in use, or another process has just removed it
            pass


def _refuse_live_driver(aeron_dir):
    """The C driver removes what is in its directory on start without looking whether another driver uses
    it."""
    found = _read_metadata(os.path.join(aeron_dir, _CNC_FILE))
    if isinstance(found, str):
        return
    metadata, heartbeat = found
    age_ms = time.time_ns() // 1_000_000 - heartbeat
    if heartbeat > 0 and age_ms < LIVENESS_MS:
        raise AeronError(
            f"the media driver of {aeron_dir}, process {metadata[8]}, was alive {age_ms} ms ago. If it runs, end it or "
            f"use another directory; if it was killed, start again in {LIVENESS_MS - age_ms} ms")


cdef class MediaDriver:
    """The C media driver in threads of this process; made by :meth:`launch_embedded`, a context manager.

    Clients connect to it by its :attr:`aeron_dir`. Close them first: to them, a driver that closes is a
    driver that died. Its threads do not survive a fork.

    Its directory belongs to this user: others cannot look into it, and the group can read its counters and errors, but
    no traffic. For some milliseconds during its start, the umask of this process includes 027.

    With ``threading="INVOKER"`` the caller runs it by :meth:`invoke`. If nobody does so for 20 to 40 ms, a native
    thread runs it, so that a busy caller costs no client its driver. Aeron clients of this process invoke it while they
    wait for it.
    """

    def __cinit__(self):
        pthread_mutex_init(&self._guard, NULL)

    def __init__(self):
        if self._driver == NULL:
            raise TypeError("a MediaDriver is made by MediaDriver.launch_embedded()")

    @staticmethod
    def launch_embedded(
            aeron_dir=None, *, bint dir_delete_on_start=True, bint dir_delete_on_shutdown=True,
            str threading="SHARED", term_buffer_length=DEFAULT_TERM_LENGTH,
            ipc_term_buffer_length=DEFAULT_TERM_LENGTH, bint term_buffer_sparse_file=False,
            counters_buffer_length=None, mtu_length=None, ipc_mtu_length=None, receiver_io_vector_capacity=None,
            network_publication_max_messages_per_send=None, client_liveness_timeout_ns=None,
            image_liveness_timeout_ns=None, publication_linger_timeout_ns=None, timer_interval_ns=None,
            library=None):
        """Start a driver and return it; ``with MediaDriver.launch_embedded() as driver: ...`` closes it at
        the end.

        - ``aeron_dir`` (str): None makes one of its own, in memory if possible, that is removed at the end.
        - ``dir_delete_on_start``, ``dir_delete_on_shutdown`` (bool): remove what is in the directory.
        - ``threading`` (str): ``SHARED`` (one thread), ``SHARED_NETWORK`` (two), ``DEDICATED`` (three), or ``INVOKER``:
          see :meth:`invoke`.
        - ``term_buffer_length``, ``ipc_term_buffer_length`` (int, bytes): 1 MiB by default; None leaves
          Aeron's defaults or ``AERON_…`` variables.
        - ``term_buffer_sparse_file`` (bool): False reserves the space of a log buffer, three times its term length,
          when it is made, so that too little is an error then. With True a log buffer costs what is used of it, and
          a full disk ends the process that writes into one (SIGBUS).
        - ``counters_buffer_length`` (int, bytes): 128 for each counter, of which a stream has some; four times that is
          reserved for their labels. None leaves Aeron's default, 8 MiB, or the ``AERON_…`` variable.
        - ``mtu_length``, ``ipc_mtu_length`` (int, bytes): the longest frame of channels that give none, a multiple of
          32. None leaves Aeron's default, 1408, or the ``AERON_…`` variable.
        - ``receiver_io_vector_capacity``, ``network_publication_max_messages_per_send`` (int, 1 to 16): packets that a
          call of the system receives at most, and that a publication sends in a turn. None leaves Aeron's default, 4,
          or the ``AERON_…`` variable.
        - the timeouts and the timer interval (int, nanoseconds); None leaves Aeron's defaults or ``AERON_…``
          variables.
        - ``library`` (str): path of a library with the driver; see :func:`container.aeron.load_library`.

        Raise AeronError when the driver refuses a setting or another one is alive in the directory,
        ImportError when there is no library, ConfigurationError for a setting that is refused here.
        """
        if threading not in _THREADING_MODES:
            raise ConfigurationError(f"threading {threading!r} is not one of {', '.join(_THREADING_MODES)}")
        ensure_driver(library)
        cdef MediaDriver driver = MediaDriver.__new__(MediaDriver)
        if aeron_dir is None:
            driver._parent, driver._lock = _new_directory()
            driver.aeron_dir = os.path.join(driver._parent, "driver")
        else:
            driver.aeron_dir = os.fspath(aeron_dir)
        _refuse_live_driver(driver.aeron_dir)
        forks.own(driver)
        try:
            driver._configure(dir_delete_on_start, dir_delete_on_shutdown or aeron_dir is None)
            driver._configure_threads(threading)
            driver._configure_lengths(
                term_buffer_sparse_file, term_buffer_length, ipc_term_buffer_length, counters_buffer_length)
            driver._configure_packets(mtu_length, ipc_mtu_length, receiver_io_vector_capacity,
                                      network_publication_max_messages_per_send)
            driver._configure_times(client_liveness_timeout_ns, image_liveness_timeout_ns,
                                    publication_linger_timeout_ns, timer_interval_ns)
            driver._start(threading == "INVOKER")
        except BaseException:
            driver.close()
            raise
        _live_drivers[id(driver)] = driver
        # A process that ends leaves no directory behind, and no thread of the driver runs while it is torn down.
        close_at_end(driver, Stage.DRIVER)
        return driver

    cdef int _check(self, int result, str what) except -1:
        if result < 0:
            raise last_driver_error(f"embedded media driver in {self.aeron_dir}: {what}")
        return 0

    cdef int _configure(self, bint delete_on_start, bint delete_on_shutdown) except -1:
        cdef bytes path = encoded("aeron_dir", self.aeron_dir, MAX_PATH_LENGTH - MAX_FILE_NAME_LENGTH)
        self._check(driver_lib.context_init(&self._context), "cannot make a context")
        self._check(driver_lib.context_set_dir(self._context, path), "aeron_dir")
        self._check(driver_lib.context_set_dir_warn_if_exists(self._context, False), "dir_warn_if_exists")
        self._check(
            driver_lib.context_set_dir_delete_on_start(self._context, delete_on_start), "dir_delete_on_start")
        self._check(
            driver_lib.context_set_dir_delete_on_shutdown(self._context, delete_on_shutdown),
            "dir_delete_on_shutdown")
        return self._receive_several()

    cdef int _receive_several(self) except -1:
        """Have a turn take as many packets of a socket as it may, where the library's layout is the known one."""
        cdef void** bindings = NULL
        if (driver_lib.context_get_udp_channel_transport_bindings != NULL
                and driver_lib.context_set_udp_channel_transport_bindings != NULL):
            bindings = receive_bindings(driver_lib.context_get_udp_channel_transport_bindings(self._context),
                                        driver_lib.udp_channel_transport_recvmmsg)
        if bindings != NULL:
            self._check(driver_lib.context_set_udp_channel_transport_bindings(self._context, bindings), "bindings")
        elif sys.platform == "linux":
            report("info", "media driver in %s: a turn takes one packet of each socket, as the library is newer than "
                   "the releases whose sockets are known (1.51 to 1.54), or has others than the usual ones",
                   self.aeron_dir)
        return 0

    cdef int _configure_threads(self, str threading) except -1:
        return self._check(
            driver_lib.context_set_threading_mode(self._context, _THREADING_MODES[threading]), "threading")

    cdef int _configure_lengths(self, bint is_sparse, length, ipc_length, counters_length) except -1:
        self._check(
            driver_lib.context_set_term_buffer_sparse_file(self._context, is_sparse),
            "term_buffer_sparse_file")
        if length is not None:
            self._check(
                driver_lib.context_set_term_buffer_length(self._context, <size_t> length),
                "term_buffer_length")
        if ipc_length is not None:
            self._check(
                driver_lib.context_set_ipc_term_buffer_length(self._context, <size_t> ipc_length),
                "ipc_term_buffer_length")
        if counters_length is not None:
            self._check(
                driver_lib.context_set_counters_buffer_length(self._context, <size_t> counters_length),
                "counters_buffer_length")
        return 0

    cdef int _configure_packets(self, mtu_length, ipc_mtu_length, receiver_capacity, max_messages) except -1:
        if mtu_length is not None:
            self._check(driver_lib.context_set_mtu_length(self._context, <size_t> mtu_length), "mtu_length")
        if ipc_mtu_length is not None:
            self._check(
                driver_lib.context_set_ipc_mtu_length(self._context, <size_t> ipc_mtu_length), "ipc_mtu_length")
        if receiver_capacity is not None:
            self._check(
                driver_lib.context_set_receiver_io_vector_capacity(self._context, <uint32_t> receiver_capacity),
                "receiver_io_vector_capacity")
        if max_messages is not None:
            self._check(
                driver_lib.context_set_network_publication_max_messages_per_send(
                    self._context, <uint32_t> max_messages),
                "network_publication_max_messages_per_send")
        return 0

    cdef int _configure_times(
            self, client_liveness_ns, image_liveness_ns, publication_linger_ns, timer_interval_ns) except -1:
        if client_liveness_ns is not None:
            self._check(
                driver_lib.context_set_client_liveness_timeout_ns(
                    self._context, <uint64_t> client_liveness_ns),
                "client_liveness_timeout_ns")
        if image_liveness_ns is not None:
            self._check(
                driver_lib.context_set_image_liveness_timeout_ns(self._context, <uint64_t> image_liveness_ns),
                "image_liveness_timeout_ns")
        if publication_linger_ns is not None:
            self._check(
                driver_lib.context_set_publication_linger_timeout_ns(
                    self._context, <uint64_t> publication_linger_ns),
                "publication_linger_timeout_ns")
        if timer_interval_ns is not None:
            self._check(
                driver_lib.context_set_timer_interval_ns(self._context, <uint64_t> timer_interval_ns),
                "timer_interval_ns")
        return 0

    cdef int _start(self, bint is_invoked) except -1:
        cdef int result
        # The driver recreates its directory, whatever is there. Only the umask can close that directory from the first
        # moment.
        with closed_to_others():
            with nogil:
                result = driver_lib.init(&self._driver, self._context)
        self._check(result, "cannot start")
        for name in _LOG_BUFFER_DIRECTORIES:
            os.chmod(os.path.join(self.aeron_dir, name), _LOG_BUFFER_DIRECTORY_MODE)
        with nogil:
            result = driver_lib.start(self._driver, is_invoked)
        self._check(result, "cannot start its threads")
        if is_invoked:
            result = start_keepalive(&self._keepalive, <Turn> driver_lib.main_do_work, self._driver, &self._guard,
                                     KEEPALIVE_INTERVAL_NS, KEEPALIVE_IDLE_NS)
            if result != 0:
                raise AeronError(f"embedded media driver in {self.aeron_dir}: no thread for it: {os.strerror(result)}",
                                 code=result)
            self._is_kept_alive = True
        return 0

    cpdef int invoke(self) except? -1:
        """Run one turn of a driver in invoker mode, with the GIL held: how much was done, 0 once it is closed.

        For any thread. Raise AeronError when the turn failed, ContainerError for a driver with threads.
        """
        cdef int work_count = 0
        if self._driver == NULL:
            return 0
        if not self._is_kept_alive:
            raise ContainerError(f"the media driver in {self.aeron_dir} has its own threads: launch it with "
                                 'threading="INVOKER" to invoke it')
        begin_wait(&self._keepalive)
        lock_mutex(&self._guard)
        end_wait(&self._keepalive)
        if self._driver != NULL:
            self._keepalive.turns += 1
            work_count = driver_lib.main_do_work(self._driver)
        pthread_mutex_unlock(&self._guard)
        return self._check(work_count, "a turn failed") if work_count < 0 else work_count

    cdef int _stop(self) except -1:
        cdef aeron_driver_t* driver
        cdef aeron_driver_context_t* context
        cdef int result = 0
        with cython.critical_section(self):     # one thread stops it, whoever else closes it as well
            begin_wait(&self._keepalive)
            lock_mutex(&self._guard)
            end_wait(&self._keepalive)
            driver, context = self._driver, self._context
            self._driver = NULL
            self._context = NULL
            pthread_mutex_unlock(&self._guard)
        if context == NULL:
            return 0
        if self._is_kept_alive:
            with nogil:
                stop_keepalive(&self._keepalive)
        if driver != NULL:
            with nogil:
                result = driver_lib.close(driver)
            # Its threads still use the context, which therefore stays.
            self._check(result, "cannot stop its threads")
        else:
            # Not started, so what is in the directory is not its own.
            driver_lib.context_set_dir_delete_on_shutdown(context, False)
        with nogil:
            result = driver_lib.context_close(context)
        if self._parent is not None:
            _remove_tree(self._parent)
            self._unlock()
        return self._check(result, "cannot remove its directory")

    cdef int _unlock(self) except -1:
        # The lock itself stays until all processes that share the file have closed it.
        if self._parent is not None and self._lock >= 0:
            os.close(self._lock)
        self._parent = None
        return 0

    def _disown(self, long process_id):
        """In a forked child: the driver's threads and its directory are the parent's, and so may be the guard."""
        pthread_mutex_init(&self._guard, NULL)
        self._driver = NULL
        self._context = NULL
        self._unlock()

    def close(self):
        """Stop the driver's threads and remove its directory if so set. May be called twice; in a forked
        child it does nothing. Raise AeronError when a thread cannot be stopped or the directory cannot be
        removed."""
        _live_drivers.pop(id(self), None)
        self._stop()

    @property
    def is_closed(self):
        """True once :meth:`close` was called (bool)."""
        return self._driver == NULL

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __dealloc__(self):
        if self._driver != NULL:
            warnings.warn(f"unclosed media driver in {self.aeron_dir}", ResourceWarning)
        self._stop()
        pthread_mutex_destroy(&self._guard)

    def __repr__(self):
        return f"<MediaDriver {self.aeron_dir}{' closed' if self._driver == NULL else ''}>"


cdef MediaDriver driver_to_invoke(str aeron_dir):
    cdef MediaDriver driver
    for reference in _live_drivers.valuerefs():
        driver = reference()
        if driver is not None and driver._is_kept_alive and driver.aeron_dir == aeron_dir:
            return driver
    return None


seal((MediaDriver,))
