"""Session messages to a service that takes many at once, and the effect of an exception in the middle of a batch.

Where a batch begins and ends depends on when the log was polled, so it differs between members and in a replay. The
effects of a batch must not depend on it: an exception concerns the message that the service's iteration is at, as
without batches. Where that message is skipped, the messages after it are delivered again. Outside of an iteration it is
unknown which message is concerned, and members would diverge: so the container ends.
"""
from libc.stdint cimport int64_t, uint8_t

from container.common.error_texts import type_name
from container.common.sealed cimport seal
from container.errors import AgentTermination
from container.service.event_handler cimport EventHandler
from container.service.service_handler cimport ServiceHandler
from container.service.session_messages cimport new_session_messages


cdef class BatchDelivery:
    """Collects session messages for ``handler``; ``cluster`` decides what an exception of its callback means."""

    def __init__(self, ServiceHandler handler not None, EventHandler cluster not None):
        self._handler = handler
        self._cluster = cluster
        self._messages = new_session_messages(cluster)

    cdef int add(self, object session, int64_t session_id, int64_t log_position, int64_t timestamp,
                 const uint8_t* data, size_t length) except -1:
        self._messages._append(session, session_id, log_position, timestamp, data, length)
        return self.deliver() if self._messages._is_full() else 0

    cdef int deliver(self) except -1:
        """Raise AgentTermination and nothing else. A message that the service has taken is never delivered again."""
        try:
            while self._messages._count > 0:
                self._messages._begin()
                try:
                    try:
                        self._handler.on_session_messages(self._messages)
                    finally:
                        self._messages._end()
                except AgentTermination:
                    raise
                except BaseException as error:
                    self._skip_message(error)
                else:
                    if self._cluster._loose_ends is not None:
                        self._cluster.report_loose_ends()
                    if self._messages._is_left_early():
                        raise AgentTermination(
                            f"on_session_messages left its iteration at message {self._messages._current} of "
                            f"{self._messages._count}: what became of the rest would depend on where a batch ends, and "
                            "the members would diverge; iterate to the end, or use the columns alone")
                    self._messages = self._messages._emptied()
        except BaseException:
            self._messages = new_session_messages(self._cluster)
            self._cluster.take_loose_ends()     # the events are replayed
            raise
        return 0

    cdef int _skip_message(self, object error) except -1:
        if not self._messages._is_at_a_message():
            raise AgentTermination(
                f"on_session_messages raised {type_name(error)} outside of an iteration over its messages: "
                "which one to skip cannot be known, and the members would diverge") from error
        self._cluster.skip_message(
            "on_session_messages", self._messages._current_session_id(), self._messages._current_length(), error)
        if self._cluster._loose_ends is not None:
            self._cluster.report_loose_ends()
        self._messages = self._messages._rest()
        return 0


seal((BatchDelivery,))
