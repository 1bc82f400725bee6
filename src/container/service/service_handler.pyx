"""The C-level callbacks that the agent calls, and the handler that wraps a service in Python."""
import inspect

from cpython.method cimport PyMethod_Check
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.api import ClusteredService, CloseReason, Role, TimeUnit
from container.common.callbacks import code_flags, signature_text, takes, warn_of_unused_methods
from container.common.loggers import report
from container.common.sealed cimport seal
from container.common.values import shown
from container.errors import ConfigurationError
from container.service.cluster cimport Cluster
from container.service.container_client_session cimport ContainerClientSession
from container.service.session_messages cimport SessionMessages
from container.service.snapshot_loader cimport SnapshotImage
from container.service.snapshot_taker cimport SnapshotPublication
from container.transport.message_buffer cimport Header, MessageBuffer
from container.transport.frames cimport FrameHeader

cdef extern from "Python.h":
    size_t PY_VECTORCALL_ARGUMENTS_OFFSET
    object PyObject_Vectorcall(object callback, PyObject** arguments, size_t count, PyObject* names)

cdef enum:
    MAX_WORK_COUNT = 1_000_000      # sums of a few stay far from what a C int holds

cdef tuple _CLOSE_REASONS = (CloseReason.CLIENT_ACTION, CloseReason.SERVICE_ACTION, CloseReason.TIMEOUT)
cdef tuple _ROLES = (Role.FOLLOWER, Role.CANDIDATE, Role.LEADER)
cdef tuple _TIME_UNITS = (TimeUnit.MILLIS, TimeUnit.MICROS, TimeUnit.NANOS)

# The callbacks and the arguments that each is called with, by position.
CALLBACKS = {
    "on_start": "cluster, snapshot_image",
    "on_session_open": "session, timestamp",
    "on_session_close": "session, timestamp, close_reason",
    "on_session_message": "session, timestamp, buffer, header",
    "on_timer_event": "correlation_id, timestamp",
    "on_take_snapshot": "snapshot_publication",
    "on_role_change": "new_role",
    "on_new_leadership_term_event":
        "leadership_term_id, log_position, timestamp, term_base_log_position, leader_member_id, log_session_id, "
        "time_unit, app_version",
    "on_terminate": "cluster",
    "do_background_work": "now_ns",
    "on_session_messages": "messages",
}

# A service that has it gets its session messages in batches.
_BATCH_CALLBACK = "on_session_messages"


cdef class ServiceHandler:
    """Base of services written in Cython: override what is needed; the rest does nothing."""

    cdef int on_start(self, Cluster cluster, SnapshotImage snapshot_image) except? -1:
        return 0

    cdef int on_session_open(self, ContainerClientSession session, int64_t timestamp) except? -1:
        return 0

    cdef int on_session_close(
            self, ContainerClientSession session, int64_t timestamp, int32_t close_reason) except? -1:
        return 0

    cdef int on_session_message(
            self, ContainerClientSession session, int64_t timestamp, const uint8_t* data, size_t length,
            const FrameHeader* header) except? -1:
        return 0

    cdef bint takes_batches(self) noexcept:
        return False

    cdef int on_session_messages(self, SessionMessages messages) except? -1:
        return 0

    cdef int on_timer_event(self, int64_t correlation_id, int64_t timestamp) except? -1:
        return 0

    cdef int on_take_snapshot(self, SnapshotPublication snapshot_publication) except? -1:
        return 0

    cdef int on_role_change(self, int32_t new_role) except? -1:
        return 0

    cdef int on_new_leadership_term_event(
            self, int64_t leadership_term_id, int64_t log_position, int64_t timestamp, int64_t term_base_log_position,
            int32_t leader_member_id, int32_t log_session_id, int32_t time_unit, int32_t app_version) except? -1:
        return 0

    cdef int on_terminate(self, Cluster cluster) except? -1:
        return 0

    cdef int do_background_work(self, int64_t now_ns) except? -1:
        return 0


def check_service(service):
    """Refuse what cannot serve, with a ConfigurationError that names it: a callback that is missing, is a coroutine
    function or a generator function, or cannot be called with the arguments that the container passes."""
    if isinstance(service, type):
        raise ConfigurationError(f"the service must be an instance, not the class {service.__name__}: "
                                 f"pass {service.__name__}()")
    if type(service).__module__ == "builtins":
        name = getattr(service, "__name__", None) if callable(service) else None
        raise ConfigurationError("the service must be an instance of a class that is derived from "
                                 "container.ClusteredService, not " +
                                 (shown(service) if name is None else f"the function {name}: pass {name}()"))
    for name, parameters in CALLBACKS.items():
        callback = getattr(service, name, None)
        if name == _BATCH_CALLBACK and callback is None:
            continue
        if not callable(callback):
            raise ConfigurationError(f"{type(service).__name__} has no callback {name}(): derive it from "
                                     "container.ClusteredService")
        _check_callback(f"{type(service).__name__}.{name}", callback, name, parameters)
    warn_of_unused_methods(type(service), CALLBACKS)


def _check_callback(where, callback, name, parameters):
    flags = code_flags(callback)
    if flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise ConfigurationError(f"{where} is a coroutine function: the callbacks of a replicated service run one "
                                 "after the other and cannot be awaited; use def")
    if flags & inspect.CO_GENERATOR:
        raise ConfigurationError(f"{where} is a generator function: a call of it runs none of its code; "
                                 "remove the yield")
    if not takes(callback, parameters.count(",") + 1):
        raise ConfigurationError(f"{where}{signature_text(callback)} cannot be called with the arguments that the "
                                 f"container passes by position: expected {name}({parameters})")


cdef class PythonServiceHandler(ServiceHandler):
    """Calls a service in Python (:class:`container.api.ClusteredService`).

    A message is handed over as a reusable buffer with a copy of its bytes; when the service keeps the buffer, a view of
    it or the header, the next message gets a fresh one.
    """

    def __init__(self, service not None):
        check_service(service)
        self.service = service
        self._on_session_message = service.on_session_message
        self._bind()
        self._on_session_messages = getattr(service, "on_session_messages", None)
        self._on_timer_event = service.on_timer_event
        self._do_background_work = service.do_background_work
        if getattr(type(service), "do_background_work", None) is ClusteredService.do_background_work:
            self._do_background_work = None
        self._buffer = MessageBuffer.__new__(MessageBuffer)
        self._header = Header.__new__(Header)

    cdef int on_start(self, Cluster cluster, SnapshotImage snapshot_image) except? -1:
        self.service.on_start(cluster, snapshot_image)
        return 0

    cdef int on_session_open(self, ContainerClientSession session, int64_t timestamp) except? -1:
        self.service.on_session_open(session, timestamp)
        return 0

    cdef int on_session_close(
            self, ContainerClientSession session, int64_t timestamp, int32_t close_reason) except? -1:
        self.service.on_session_close(session, timestamp, _CLOSE_REASONS[close_reason])
        return 0

    cdef int on_session_message(
            self, ContainerClientSession session, int64_t timestamp, const uint8_t* data, size_t length,
            const FrameHeader* header) except? -1:
        if self._buffer._is_kept():
            self._buffer = MessageBuffer.__new__(MessageBuffer)
        if self._header._is_kept():
            self._header = Header.__new__(Header)
        self._buffer._fill(data, length)
        self._header._frame = header[0]
        if timestamp != self._timestamp or self._timestamp_object is None:
            self._timestamp = timestamp
            self._timestamp_object = timestamp
        # [0] is the callee's to write to, so that it can put a method's instance there.
        cdef PyObject* arguments[6]
        arguments[1] = <PyObject*> self._instance
        arguments[2] = <PyObject*> session
        arguments[3] = <PyObject*> self._timestamp_object
        arguments[4] = <PyObject*> self._buffer
        arguments[5] = <PyObject*> self._header
        if self._instance is None:
            PyObject_Vectorcall(self._function, arguments + 2, 4 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL)
        else:
            PyObject_Vectorcall(self._function, arguments + 1, 5 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL)
        return 0

    cdef int _bind(self) except -1:
        # Python would take the bound method apart at each call: do it once.
        cdef object callback = self._on_session_message
        self._function, self._instance = callback, None
        if PyMethod_Check(callback):
            self._function, self._instance = callback.__func__, callback.__self__
        return 0

    cdef bint takes_batches(self) noexcept:
        return self._on_session_messages is not None

    cdef int on_session_messages(self, SessionMessages messages) except? -1:
        self._on_session_messages(messages)
        return 0

    cdef int on_timer_event(self, int64_t correlation_id, int64_t timestamp) except? -1:
        self._on_timer_event(correlation_id, timestamp)
        return 0

    cdef int on_take_snapshot(self, SnapshotPublication snapshot_publication) except? -1:
        callback = self.service.on_take_snapshot
        if getattr(callback, "__func__", None) is ClusteredService.on_take_snapshot:
            report("warning", "%s has no on_take_snapshot: this snapshot holds no state, and a start from it begins "
                   "empty. Define it; `pass` is enough for a service without state", type(self.service).__name__)
        callback(snapshot_publication)
        return 0

    cdef int on_role_change(self, int32_t new_role) except? -1:
        self.service.on_role_change(_ROLES[new_role])
        return 0

    cdef int on_new_leadership_term_event(
            self, int64_t leadership_term_id, int64_t log_position, int64_t timestamp, int64_t term_base_log_position,
            int32_t leader_member_id, int32_t log_session_id, int32_t time_unit, int32_t app_version) except? -1:
        self.service.on_new_leadership_term_event(
            leadership_term_id, log_position, timestamp, term_base_log_position, leader_member_id, log_session_id,
            _TIME_UNITS[time_unit], app_version)
        return 0

    cdef int on_terminate(self, Cluster cluster) except? -1:
        self.service.on_terminate(cluster)
        return 0

    cdef int do_background_work(self, int64_t now_ns) except? -1:
        if self._do_background_work is None:
            return 0
        work_count = self._do_background_work(now_ns)
        if work_count is None:
            return 0
        try:
            return int(min(work_count, MAX_WORK_COUNT)) if work_count > 0 else 0
        except TypeError:
            raise TypeError(f"do_background_work returned a {type(work_count).__name__}: return how much was done, "
                            "a number") from None


seal((PythonServiceHandler,))
