"""Finds the official Aeron C library, loads it once per process, and turns its errors into exceptions.

Searched in this order: a path that the caller gives, the environment variable ``AERON_LIBRARY``, the library
that a wheel of this package carries, and the extension module of the package ``pyaeron``. Both of the last have
the C client and the C media driver. The embedded media driver is looked for in ``AERON_DRIVER_LIBRARY``, then
in the client's library, then in ``libaeron_driver`` beside that.
"""
import errno
import glob
import importlib.machinery
import importlib.util
import os
import sys
import threading

from container.aeron.libaeron cimport (
    AERON_CLIENT_ERROR_CLIENT_TIMEOUT, AERON_CLIENT_ERROR_CONDUCTOR_SERVICE_TIMEOUT,
    AERON_CLIENT_ERROR_DRIVER_TIMEOUT, ClientFunctions, DestinationFunctions, DriverFunctions, PublicationFunctions,
)

from container.common.values import shown
from container.errors import AeronError, ConfigurationError, DriverTimeoutError, TimedOutError

cdef extern from "dlfcn.h" nogil:
    int RTLD_NOW
    int RTLD_LOCAL
    void* dlopen(const char* path, int flags) noexcept
    void* dlsym(void* handle, const char* symbol) noexcept
    int dlclose(void* handle) noexcept
    const char* dlerror() noexcept

cdef enum:
    MIN_MAJOR = 1
    MIN_MINOR = 51
    LAST_MINOR_OF_KNOWN_BINDINGS = 54       # of the driver's sockets: compared in the sources of 1.51 to 1.54

_HOW_TO_GET_IT = (
    "install it with 'pip install pyaeron', or set AERON_LIBRARY to the path of an official libaeron of "
    f"version {MIN_MAJOR}.{MIN_MINOR} or later"
)

# One thread loads at a time; loading the driver loads the client first.
_loading = threading.RLock()


def _renew_lock():
    """In a forked child: a thread that no longer exists may hold it."""
    global _loading
    _loading = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)

# Never closed once set: threads of the library may outlive any object.
cdef void* _handle = NULL
cdef void* _driver_handle = NULL
_path = None
_driver_path = None


# Where it is

_SUFFIX = "dylib" if sys.platform == "darwin" else "so"


def _own_library():
    """Path of the library that a wheel of this package carries; None in an installation from its sources."""
    path = os.path.join(os.path.dirname(__file__), f"libaeron_driver.{_SUFFIX}")
    return path if os.path.exists(path) else None


def _pyaeron_module():
    """Path of pyaeron's extension module, found without importing it; None when pyaeron is not installed."""
    spec = None
    try:
        spec = importlib.util.find_spec("pyaeron")
    except (ImportError, ValueError):
        pass
    for directory in (spec.submodule_search_locations or ()) if spec is not None else ():
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            path = os.path.join(directory, f"_pyaeron{suffix}")
            if os.path.exists(path):
                return path
    return None


def _find(path):
    """Path of the client's library and the setting that it comes from."""
    if path is not None:
        return os.fspath(path), "library"
    path = os.environ.get("AERON_LIBRARY")
    if path:
        return path, "AERON_LIBRARY"
    path = _own_library()
    if path is not None:
        return path, "of this package"
    path = _pyaeron_module()
    if path is None:
        raise ImportError(
            "the Aeron C library was not found: no path was given, AERON_LIBRARY is not set, and there is no "
            f"package pyaeron for this Python in {sys.prefix}; {_HOW_TO_GET_IT}")
    return path, "pyaeron"


def _find_driver(path):
    """Path of the library with the media driver, None for the client's own, and the setting that it comes
    from."""
    if path is not None:
        return os.fspath(path), "driver_library"
    path = os.environ.get("AERON_DRIVER_LIBRARY")
    if path:
        return path, "AERON_DRIVER_LIBRARY"
    if dlsym(_handle, b"aeron_driver_init") != NULL:
        return _path, "the client's library"
    for path in sorted(glob.glob(os.path.join(os.path.dirname(_path), f"libaeron_driver.{_SUFFIX}*"))):
        return path, "beside the client's library"
    raise ImportError(
        f"{_path} has no media driver, and there is no libaeron_driver.{_SUFFIX} beside it; set "
        "AERON_DRIVER_LIBRARY to the path of one, or use pyaeron's library, which has both")


# Loading

cdef void* _open(str path, str setting) except NULL:
    cdef bytes name = os.fsencode(path)
    cdef void* handle
    if not os.path.isfile(path):
        raise ImportError(f"the Aeron C library {path} ({setting}) is not there; {_HOW_TO_GET_IT}", path=path)
    # Local: with global symbols, two Aeron libraries in a process would replace each other's functions.
    handle = dlopen(name, RTLD_NOW | RTLD_LOCAL)
    if handle == NULL:
        reason = (<bytes> dlerror()).decode(errors="replace")
        raise ImportError(f"the Aeron C library {path} ({setting}) cannot be loaded: {reason}", path=path)
    return handle


cdef int _bind(void* handle, str name, void** slot, list missing) except -1:
    slot[0] = dlsym(handle, name.encode())
    if slot[0] == NULL:
        missing.append(name)
    return 0


def _refuse_missing(list missing, str path, str setting):
    if missing:
        names = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        raise ImportError(f"{path} ({setting}) is not a usable Aeron library: it lacks {names}; "
                          f"{_HOW_TO_GET_IT}", path=path)


cdef int _check_version(void* handle, str path, str setting) except -1:
    """Before anything else is looked up, so that an old library is called old and not incomplete. Whether its sockets'
    bindings have a known layout."""
    cdef ClientFunctions table
    cdef list missing = []
    _bind(handle, "aeron_version_major", <void**> &table.version_major, missing)
    _bind(handle, "aeron_version_minor", <void**> &table.version_minor, missing)
    _bind(handle, "aeron_version_patch", <void**> &table.version_patch, missing)
    _refuse_missing(missing, path, setting)
    version = (table.version_major(), table.version_minor(), table.version_patch())
    if version < (MIN_MAJOR, MIN_MINOR, 0):
        raise ImportError(
            f"{path} ({setting}) is Aeron {'.'.join(map(str, version))}, which is too old: "
            f"{MIN_MAJOR}.{MIN_MINOR} is the least that works; {_HOW_TO_GET_IT}", path=path)
    return version[:2] <= (MIN_MAJOR, LAST_MINOR_OF_KNOWN_BINDINGS)


cdef int _bind_publication(void* handle, str kind, PublicationFunctions* table, list missing) except -1:
    cdef str prefix = f"aeron_{kind}publication_"
    cdef str add = f"aeron_async_add_{kind}publication"
    _bind(handle, add, <void**> &table.async_add, missing)
    _bind(handle, f"{add}_poll", <void**> &table.adding.poll, missing)
    _bind(handle, f"{add}_cancel", <void**> &table.adding.cancel, missing)
    _bind(handle, f"{prefix}constants", <void**> &table.constants, missing)
    _bind(handle, f"{prefix}offer", <void**> &table.offer, missing)
    _bind(handle, f"{prefix}offerv", <void**> &table.offerv, missing)
    _bind(handle, f"{prefix}try_claim", <void**> &table.try_claim, missing)
    _bind(handle, f"{prefix}position", <void**> &table.position, missing)
    _bind(handle, f"{prefix}position_limit", <void**> &table.position_limit, missing)
    _bind_destinations(handle, prefix, &table.destinations, missing)
    _bind(handle, f"{prefix}is_connected", <void**> &table.is_connected, missing)
    _bind(handle, f"{prefix}is_closed", <void**> &table.is_closed, missing)
    _bind(handle, f"{prefix}close", <void**> &table.close, missing)
    return 0


cdef int _bind_exclusive(void* handle, ClientFunctions* table, list missing) except -1:
    _bind(handle, "aeron_exclusive_publication_offer_block",
          <void**> &table.exclusive_publication_offer_block, missing)
    _bind(handle, "aeron_exclusive_publication_append_padding",
          <void**> &table.exclusive_publication_append_padding, missing)
    _bind(handle, "aeron_exclusive_publication_revoke_on_close",
          <void**> &table.exclusive_publication_revoke_on_close, missing)
    return 0


cdef int _bind_destinations(void* handle, str prefix, DestinationFunctions* table, list missing) except -1:
    _bind(handle, f"{prefix}async_add_destination", <void**> &table.async_add, missing)
    _bind(handle, f"{prefix}async_remove_destination", <void**> &table.async_remove, missing)
    _bind(handle, f"{prefix}async_destination_poll", <void**> &table.poll, missing)
    return 0


cdef int _bind_context(void* handle, ClientFunctions* table, list missing) except -1:
    _bind(handle, "aeron_version_major", <void**> &table.version_major, missing)
    _bind(handle, "aeron_version_minor", <void**> &table.version_minor, missing)
    _bind(handle, "aeron_version_patch", <void**> &table.version_patch, missing)
    _bind(handle, "aeron_errcode", <void**> &table.errcode, missing)
    _bind(handle, "aeron_errmsg", <void**> &table.errmsg, missing)
    _bind(handle, "aeron_default_path", <void**> &table.default_path, missing)
    _bind(handle, "aeron_context_init", <void**> &table.context_init, missing)
    _bind(handle, "aeron_context_close", <void**> &table.context_close, missing)
    _bind(handle, "aeron_context_set_dir", <void**> &table.context_set_dir, missing)
    _bind(handle, "aeron_context_set_client_name", <void**> &table.context_set_client_name, missing)
    _bind(handle, "aeron_context_set_driver_timeout_ms",
          <void**> &table.context_set_driver_timeout_ms, missing)
    _bind(handle, "aeron_context_set_keepalive_interval_ns",
          <void**> &table.context_set_keepalive_interval_ns, missing)
    _bind(handle, "aeron_context_set_use_conductor_agent_invoker",
          <void**> &table.context_set_use_conductor_agent_invoker, missing)
    _bind(handle, "aeron_context_set_error_handler", <void**> &table.context_set_error_handler, missing)
    _bind(handle, "aeron_context_set_on_unavailable_counter",
          <void**> &table.context_set_on_unavailable_counter, missing)
    _bind(handle, "aeron_context_set_on_close_client", <void**> &table.context_set_on_close_client, missing)
    return 0


cdef int _bind_client(void* handle, ClientFunctions* table, list missing) except -1:
    _bind(handle, "aeron_init", <void**> &table.init, missing)
    _bind(handle, "aeron_start", <void**> &table.start, missing)
    _bind(handle, "aeron_close", <void**> &table.close, missing)
    _bind(handle, "aeron_main_do_work", <void**> &table.main_do_work, missing)
    _bind(handle, "aeron_is_closed", <void**> &table.is_closed, missing)
    _bind(handle, "aeron_client_id", <void**> &table.client_id, missing)
    _bind(handle, "aeron_next_correlation_id", <void**> &table.next_correlation_id, missing)
    _bind(handle, "aeron_async_next_session_id", <void**> &table.async_next_session_id, missing)
    _bind(handle, "aeron_async_next_session_id_poll", <void**> &table.next_session_id.poll, missing)
    table.next_session_id.cancel = NULL
    _bind(handle, "aeron_counters_reader", <void**> &table.counters_reader, missing)
    _bind(handle, "aeron_counters_reader_get_buffers", <void**> &table.counters_reader_get_buffers, missing)
    _bind(handle, "aeron_async_add_counter", <void**> &table.async_add_counter, missing)
    _bind(handle, "aeron_async_add_counter_poll", <void**> &table.adding_counter.poll, missing)
    _bind(handle, "aeron_async_add_counter_cancel", <void**> &table.adding_counter.cancel, missing)
    _bind(handle, "aeron_counter_addr", <void**> &table.counter_addr, missing)
    _bind(handle, "aeron_counter_constants", <void**> &table.counter_constants, missing)
    _bind(handle, "aeron_counter_close", <void**> &table.counter_close, missing)
    return 0


cdef int _bind_subscription(void* handle, ClientFunctions* table, list missing) except -1:
    _bind(handle, "aeron_async_add_subscription", <void**> &table.async_add_subscription, missing)
    _bind(handle, "aeron_async_add_subscription_poll", <void**> &table.adding_subscription.poll, missing)
    _bind(handle, "aeron_async_add_subscription_cancel", <void**> &table.adding_subscription.cancel, missing)
    _bind(handle, "aeron_subscription_constants", <void**> &table.subscription_constants, missing)
    _bind(handle, "aeron_subscription_is_connected", <void**> &table.subscription_is_connected, missing)
    _bind(handle, "aeron_subscription_is_closed", <void**> &table.subscription_is_closed, missing)
    _bind(handle, "aeron_subscription_image_count", <void**> &table.subscription_image_count, missing)
    _bind(handle, "aeron_subscription_image_by_session_id",
          <void**> &table.subscription_image_by_session_id, missing)
    _bind(handle, "aeron_subscription_image_at_index", <void**> &table.subscription_image_at_index, missing)
    _bind(handle, "aeron_subscription_resolved_endpoint",
          <void**> &table.subscription_resolved_endpoint, missing)
    _bind(handle, "aeron_subscription_close", <void**> &table.subscription_close, missing)
    _bind_destinations(handle, "aeron_subscription_", &table.subscription_destinations, missing)
    return 0


cdef int _bind_image(void* handle, ClientFunctions* table, list missing) except -1:
    _bind(handle, "aeron_image_release", <void**> &table.image_release, missing)
    _bind(handle, "aeron_image_constants", <void**> &table.image_constants, missing)
    _bind(handle, "aeron_image_position", <void**> &table.image_position, missing)
    _bind(handle, "aeron_image_end_of_stream_position", <void**> &table.image_end_of_stream_position, missing)
    _bind(handle, "aeron_image_is_end_of_stream", <void**> &table.image_is_end_of_stream, missing)
    _bind(handle, "aeron_image_is_closed", <void**> &table.image_is_closed, missing)
    _bind(handle, "aeron_image_active_transport_count", <void**> &table.image_active_transport_count, missing)
    _bind(handle, "aeron_image_reject", <void**> &table.image_reject, missing)
    _bind(handle, "aeron_image_block_poll", <void**> &table.image_block_poll, missing)
    _bind(handle, "aeron_image_controlled_poll", <void**> &table.image_controlled_poll, missing)
    _bind(handle, "aeron_image_bounded_controlled_poll",
          <void**> &table.image_bounded_controlled_poll, missing)
    _bind(handle, "aeron_header_values", <void**> &table.header_values, missing)
    return 0


cdef int _bind_driver(void* handle, DriverFunctions* table, list missing) except -1:
    cdef str prefix = "aeron_driver_context_set_"
    _bind(handle, "aeron_errcode", <void**> &table.errcode, missing)
    _bind(handle, "aeron_errmsg", <void**> &table.errmsg, missing)
    _bind(handle, "aeron_driver_context_init", <void**> &table.context_init, missing)
    _bind(handle, "aeron_driver_context_close", <void**> &table.context_close, missing)
    _bind(handle, f"{prefix}dir", <void**> &table.context_set_dir, missing)
    _bind(handle, f"{prefix}dir_warn_if_exists", <void**> &table.context_set_dir_warn_if_exists, missing)
    _bind(handle, f"{prefix}dir_delete_on_start", <void**> &table.context_set_dir_delete_on_start, missing)
    _bind(handle, f"{prefix}dir_delete_on_shutdown",
          <void**> &table.context_set_dir_delete_on_shutdown, missing)
    _bind(handle, f"{prefix}threading_mode", <void**> &table.context_set_threading_mode, missing)
    _bind(handle, f"{prefix}term_buffer_length", <void**> &table.context_set_term_buffer_length, missing)
    _bind(handle, f"{prefix}ipc_term_buffer_length",
          <void**> &table.context_set_ipc_term_buffer_length, missing)
    _bind(handle, f"{prefix}counters_buffer_length",
          <void**> &table.context_set_counters_buffer_length, missing)
    _bind(handle, f"{prefix}mtu_length", <void**> &table.context_set_mtu_length, missing)
    _bind(handle, f"{prefix}ipc_mtu_length", <void**> &table.context_set_ipc_mtu_length, missing)
    _bind(handle, f"{prefix}receiver_io_vector_capacity",
          <void**> &table.context_set_receiver_io_vector_capacity, missing)
    _bind(handle, f"{prefix}network_publication_max_messages_per_send",
          <void**> &table.context_set_network_publication_max_messages_per_send, missing)
    _bind(handle, f"{prefix}term_buffer_sparse_file",
          <void**> &table.context_set_term_buffer_sparse_file, missing)
    _bind(handle, f"{prefix}client_liveness_timeout_ns",
          <void**> &table.context_set_client_liveness_timeout_ns, missing)
    _bind(handle, f"{prefix}image_liveness_timeout_ns",
          <void**> &table.context_set_image_liveness_timeout_ns, missing)
    _bind(handle, f"{prefix}publication_linger_timeout_ns",
          <void**> &table.context_set_publication_linger_timeout_ns, missing)
    _bind(handle, f"{prefix}timer_interval_ns", <void**> &table.context_set_timer_interval_ns, missing)
    _bind(handle, "aeron_driver_init", <void**> &table.init, missing)
    _bind(handle, "aeron_driver_start", <void**> &table.start, missing)
    _bind(handle, "aeron_driver_main_do_work", <void**> &table.main_do_work, missing)
    _bind(handle, "aeron_driver_close", <void**> &table.close, missing)
    return 0


cdef int _bind_bindings(void* handle, DriverFunctions* table) except -1:
    cdef str name = "udp_channel_transport_bindings"
    _bind(handle, f"aeron_driver_context_get_{name}", <void**> &table.context_get_udp_channel_transport_bindings, [])
    _bind(handle, f"aeron_driver_context_set_{name}", <void**> &table.context_set_udp_channel_transport_bindings, [])
    _bind(handle, "aeron_udp_channel_transport_recvmmsg", &table.udp_channel_transport_recvmmsg, [])
    return 0


def _refuse_second(path, loaded):
    if path is not None and os.path.realpath(path) != os.path.realpath(loaded):
        raise ConfigurationError(
            f"the Aeron library {loaded} is loaded already, so {os.fspath(path)} cannot be: a process has "
            "one; give the path (or AERON_LIBRARY) before the first use, and the same one everywhere")


cpdef int ensure_client(path=None) except -1:
    """Load the client's library unless that is done; the arguments and errors are those of
    :func:`load_library`."""
    with _loading:
        if _handle == NULL:
            _load_client(path)
        else:
            _refuse_second(path, _path)
    return 0


cdef int _load_client(object path) except -1:
    global lib, _handle, _path
    cdef void* handle
    cdef ClientFunctions table
    cdef list missing = []
    found, setting = _find(path)
    handle = _open(found, setting)
    try:
        _check_version(handle, found, setting)
        _bind_context(handle, &table, missing)
        _bind_client(handle, &table, missing)
        _bind_publication(handle, "", &table.shared, missing)
        _bind_publication(handle, "exclusive_", &table.exclusive, missing)
        _bind_exclusive(handle, &table, missing)
        _bind_subscription(handle, &table, missing)
        _bind_image(handle, &table, missing)
        _refuse_missing(missing, found, setting)
    except BaseException:
        dlclose(handle)
        raise
    lib = table
    _handle = handle
    _path = os.path.abspath(found)
    return 0


cpdef int ensure_driver(path=None) except -1:
    """Load the library with the media driver unless that is done. Raise as :func:`load_library` does."""
    with _loading:
        if _driver_handle == NULL:
            _load_driver(path)
        else:
            _refuse_second(path, _driver_path)
    return 0


cdef int _load_driver(object path) except -1:
    global driver_lib, _driver_handle, _driver_path
    cdef void* handle
    cdef DriverFunctions table
    cdef list missing = []
    cdef bint has_known_bindings
    ensure_client()
    found, setting = _find_driver(path)
    handle = _open(found, setting)
    try:
        has_known_bindings = _check_version(handle, found, setting)
        _bind_driver(handle, &table, missing)
        table.context_get_udp_channel_transport_bindings = NULL
        table.context_set_udp_channel_transport_bindings = NULL
        table.udp_channel_transport_recvmmsg = NULL
        if has_known_bindings:
            _bind_bindings(handle, &table)
        _refuse_missing(missing, found, setting)
    except BaseException:
        dlclose(handle)
        raise
    driver_lib = table
    _driver_handle = handle
    _driver_path = os.path.abspath(found)
    return 0


def load_library(path=None):
    """Load the Aeron C library, which otherwise happens at first use; once per process.

    ``path`` (str or path-like) is that of an official libaeron; None searches ``AERON_LIBRARY``, then
    the one in this package's wheel, then pyaeron. Raise ImportError when none is found, it lacks a function or
    is older than 1.51, and ConfigurationError when a library of another path is loaded already.
    """
    ensure_client(path)


def library_version():
    """``(major, minor, patch)`` of the Aeron C library, which is loaded if it was not."""
    ensure_client()
    return lib.version_major(), lib.version_minor(), lib.version_patch()


def library_path():
    """Absolute path (str) of the Aeron C library, which is loaded if it was not."""
    ensure_client()
    return _path


# Errors

# "[function, file.c:123] " and "(-1000) generic error" are for the developers of the library, and what was
# tried is said better by the caller.
cdef str _without_place(str line):
    if line.startswith("[") and "]" in line:
        line = line.partition("]")[2]
    return line.strip()


cdef bint _is_noise(str line) except -1:
    cdef str number = line.partition(") ")[0]
    if number.startswith("(") and number != line:
        return number[1:].removeprefix("-").isdecimal()
    return line.startswith("async_add_") and line.endswith(" registration error")


cdef str _clean(str text):
    """The sentences of an error of the C client, without the places in its source where it was passed on."""
    cdef list lines = [_without_place(line) for line in text.splitlines()]
    cdef list sentences = [line for line in lines if line and not _is_noise(line)]
    return "; ".join(sentences) or "; ".join(lines) or "no reason given"


_SIGNS_OF_TOO_LITTLE_SPACE = (
    "insufficient usable storage", "Failed to allocate file space", "Failed to truncate file",
    "No space left on device", "File too large")
_MORE_SPACE = (
    "; give the driver's directory more space (of a container's /dev/shm with --shm-size), raise a limit of file sizes "
    "(ulimit -f), or give channels a smaller term-length (`aeron-cluster dev`: --term-length)")


cdef object aeron_error(int code, str text, str what=None):
    """The exception for an error of the C client; negative codes are its own, positive ones are errno values
    or, from a conductor, its own too."""
    cdef int aeron_code = -code if code < 0 else code
    cdef str message = _clean(text)
    for sign in _SIGNS_OF_TOO_LITTLE_SPACE:
        if sign in message:
            message += _MORE_SPACE
            break
    if what is not None:
        message = f"{what}: {message}"
    if aeron_code == AERON_CLIENT_ERROR_DRIVER_TIMEOUT:
        return DriverTimeoutError(message, code=aeron_code)
    if aeron_code in (AERON_CLIENT_ERROR_CLIENT_TIMEOUT, AERON_CLIENT_ERROR_CONDUCTOR_SERVICE_TIMEOUT):
        return TimedOutError(message, code=aeron_code)
    if code == <int> errno.ETIMEDOUT:
        return TimedOutError(message, code=aeron_code)
    return AeronError(message, code=aeron_code)


cdef object last_error(str what):
    return aeron_error(lib.errcode(), lib.errmsg().decode("utf-8", "replace"), what)


cdef object last_driver_error(str what):
    return aeron_error(driver_lib.errcode(), driver_lib.errmsg().decode("utf-8", "replace"), what)


cdef bytes encoded(str name, str value, Py_ssize_t max_length):
    cdef bytes result
    try:
        result = os.fsencode(value)
    except UnicodeEncodeError:
        raise ConfigurationError(
            f"{name} {shown(value)} has half of a surrogate pair in it: use valid UTF-8") from None
    if b"\0" in result:
        raise ConfigurationError(
            f"{name} {shown(value)} has a NUL character in it; C would read only what is before it")
    if len(result) > max_length:
        raise ConfigurationError(
            f"{name} {shown(value)} is {len(result)} bytes long; at most {max_length} are allowed")
    return result
