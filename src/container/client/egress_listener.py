"""Events of a client of the cluster: implement :class:`EgressListener` or :class:`ControlledEgressListener`."""

from __future__ import annotations

import enum

from container.api import Header, MessageBuffer
from container.errors import ClusterError, ConfigurationError, ContainerError, Outcome


class EventCode(enum.IntEnum):
    """The outcome of a connect request, or the end of a session (schema enum ``EventCode``)."""

    OK = 0
    ERROR = 1
    REDIRECT = 2
    AUTHENTICATION_REJECTED = 3
    CLOSED = 4


class AdminRequestType(enum.IntEnum):
    """Kind of an admin request (schema enum ``AdminRequestType``)."""

    SNAPSHOT = 0


class AdminResponseCode(enum.IntEnum):
    """The answer to an admin request (schema enum ``AdminResponseCode``); OK means accepted, not done."""

    OK = 0
    ERROR = 1
    UNAUTHORISED_ACCESS = 2


class Action(enum.IntEnum):
    """Fate of a message after a callback of a :class:`ControlledEgressListener`; the values are Aeron's."""

    ABORT = 1
    """The message is not consumed and the poll ends: the next one delivers it again."""
    BREAK = 2
    """The message is consumed and the poll ends."""
    COMMIT = 3
    """The message is consumed, and the cluster may send more immediately; the poll continues."""
    CONTINUE = 4
    """The message is consumed, and the poll continues."""


LISTENER_RULE = "an EgressListener or a ControlledEgressListener, or an EgressHandler in Cython"


class SessionEventListener:
    """Events that both kinds of listener receive beside messages: derive from :class:`EgressListener` or
    :class:`ControlledEgressListener`.

    :meth:`AeronCluster.poll_egress` calls a listener, on its thread, for the cluster's messages to this client's
    session. From a callback, ``offer`` and ``send`` may be called, and ``close``, which then takes effect when the
    poll ends; ``poll_egress`` may not. An exception ends the poll, which raises it; the message is consumed. Codes that
    this version does not know are passed as plain ``int``.
    """

    def on_session_event(
        self,
        correlation_id: int,
        cluster_session_id: int,
        leadership_term_id: int,
        leader_member_id: int,
        code: EventCode | int,
        detail: str,
    ) -> None:
        """Something happened to the session; CLOSED: the client is closed when the poll ends (SessionEvent,
        2)."""

    def on_new_leader(
        self, cluster_session_id: int, leadership_term_id: int, leader_member_id: int, ingress_endpoints: str
    ) -> None:
        """A new leader took over the session, and ingress goes there from now on (NewLeaderEvent, 6).

        Messages sent around the change may be lost: only an answer proves that one was processed.
        """

    def on_admin_response(
        self,
        cluster_session_id: int,
        correlation_id: int,
        request_type: AdminRequestType | int,
        response_code: AdminResponseCode | int,
        message: str,
        payload: bytes,
    ) -> None:
        """The answer to an admin request (AdminResponse, 27)."""


class EgressListener(SessionEventListener):
    """A listener that takes each message as it comes; see :class:`SessionEventListener` for the rules of callbacks."""

    def on_message(self, cluster_session_id: int, timestamp: int, buffer: MessageBuffer, header: Header) -> None:
        """A message of the service, sent while it processed the log at cluster time ``timestamp``.

        ``buffer`` and ``header`` are yours for as long as you refer to them (SessionMessageHeader, 1).
        """
        raise _no_listener()

    def on_extension_message(
        self, block_length: int, template_id: int, schema_id: int, version: int, body: bytes
    ) -> None:
        """A message of another schema than the cluster's; ``body`` is what follows the message header."""
        raise _foreign_schema(schema_id)


class ControlledEgressListener(SessionEventListener):
    """A listener that decides the fate of each message (upstream's ``ControlledEgressListener``)."""

    def on_message(
        self, cluster_session_id: int, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> Action | None:
        """As :meth:`EgressListener.on_message`; return an :class:`Action`, None for CONTINUE."""
        raise _no_listener()

    def on_extension_message(
        self, block_length: int, template_id: int, schema_id: int, version: int, body: bytes
    ) -> Action | None:
        """As :meth:`EgressListener.on_extension_message`; return an :class:`Action`, None for CONTINUE."""
        raise _foreign_schema(schema_id)


def _no_listener() -> ContainerError:
    return _of_a_message(
        ConfigurationError(
            "a message came from the cluster and there is no egress listener with on_message: give listener="
        )
    )


def _foreign_schema(schema_id: int) -> ContainerError:
    return _of_a_message(ClusterError(f"expected cluster egress schemaId=111 actual={schema_id}"))


def _of_a_message(error: ContainerError) -> ContainerError:
    """Any call that polls raises the error that a message causes."""
    error.outcome = Outcome.UNKNOWN
    return error
