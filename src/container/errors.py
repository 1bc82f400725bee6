"""The exceptions of the container: caller's misuse, operating trouble, a broken protocol, and termination.

Each class says what a program can do about it: ``is_retryable``, whether the same call may succeed later with nothing
changed (on a new client, where this one is closed), and ``outcome``, what is known of what was asked for. Where Python
has a class for such trouble (ConnectionError, TimeoutError, PermissionError, ValueError), they derive from it too.

Aeron prefixes the text of its exceptions with a category (``FATAL``, ``ERROR`` or ``WARN``); so do ours where they are
written to an error log (see :func:`container.common.error_texts.headline`).
"""

from __future__ import annotations

import enum


class Category(enum.Enum):
    """How bad an error is, as in upstream's ``AeronException.Category``."""

    FATAL = "FATAL"
    ERROR = "ERROR"
    WARN = "WARN"


class Outcome(enum.Enum):
    """The known outcome of a request, when an error comes in place of a result."""

    NOT_DONE = "not done"
    """It was not done and will not be: the message was not sent, or was refused."""
    UNKNOWN = "unknown"
    """It may be done, or may be done yet. Ask for it again only if it may be done twice, or find out."""


class ContainerError(Exception):
    """Base of all errors of this package that a caller may handle."""

    #: Whether the same call may succeed later, with nothing changed; on a new client where this one is closed.
    is_retryable: bool = False
    #: Whether the request is known not to have been carried out.
    outcome: Outcome = Outcome.UNKNOWN

    def __init__(self, message: str, *, category: Category = Category.ERROR) -> None:
        super().__init__(message)
        self.category = category

    def __reduce__(self) -> tuple[object, ...]:
        return _made_again, (type(self), self.args, self.__dict__)


def _made_again(kind: type[BaseException], arguments: tuple[object, ...], state: dict[str, object]) -> BaseException:
    """Rebuild an exception in another process, such as a Spark driver that gets the error of a task; skip
    ``__init__``."""
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(state)
    return error


class ConfigurationError(ContainerError, ValueError):
    """A setting is missing, unknown or out of range; the text names the setting, the value and what is allowed."""

    outcome = Outcome.NOT_DONE


class ConcurrentConcludeError(ContainerError):
    """A context was concluded a second time; make a new context for each container."""

    outcome = Outcome.NOT_DONE


class ClusterError(ContainerError):
    """Upstream's ``ClusterException``: a rule of the cluster was broken by the caller, the log or a peer."""

    outcome = Outcome.NOT_DONE


class PublicationUnavailableError(ClusterError, ConnectionError):
    """The stream to the consensus module, or of a snapshot, cannot be used any more; the text says why."""


class ClusterUnavailableError(ClusterError, ConnectionError):
    """A client reaches no leader now, or no member while it connects; the text says which were tried."""

    is_retryable = True


class OutcomeUnknownError(ClusterError):
    """A client's request was sent, and its reply is not waited for any more: it may have been processed, or not."""

    is_retryable = True
    outcome = Outcome.UNKNOWN


class LeaderChangedError(OutcomeUnknownError, ConnectionError):
    """The leader that a request was sent to is lost, or no longer leads: do not expect its reply."""


class SessionError(ClusterError):
    """The cluster refused a client's session, in a SessionEvent: ``code`` is its event code, ``detail`` its text."""

    def __init__(self, message: str, *, code: int, detail: str) -> None:
        super().__init__(message)
        self.code = code
        self.detail = detail


class AuthenticationError(SessionError, PermissionError):
    """The cluster's authenticator rejected a client (event code AUTHENTICATION_REJECTED)."""


class SessionLimitError(SessionError, ConnectionRefusedError):
    """The cluster has as many sessions as it allows (``aeron.cluster.max.sessions``)."""

    is_retryable = True


class CodecError(ContainerError, ValueError):
    """Bytes are not the message they should be: too short, foreign schema, another template."""


class SnapshotError(ClusterError):
    """A snapshot's frames are not what the service or the container wrote."""


class RecordingError(ContainerError):
    """A file of an archive or of a cluster directory is missing, damaged or of a version that is not known.

    ``file`` is its path, ``offset`` the byte in it, ``log_position`` the position in the recording; each is ``None``
    where it is not known. The text names them all.
    """

    def __init__(
        self, message: str, *, file: str | None = None, offset: int | None = None, log_position: int | None = None
    ) -> None:
        places = (("", file), ("offset ", offset), ("log position ", log_position))
        where = ", ".join(f"{name}{value}" for name, value in places if value is not None)
        super().__init__(f"{where}: {message}" if where else message)
        self.detail = message
        self.file = file
        self.offset = offset
        self.log_position = log_position


class RecordingUnavailableError(RecordingError):
    """A file or directory that must be there is missing, or cannot be opened or read now.

    Its content is unknown, and it may exist a moment later or on another machine. So this does not count as damage: it
    is raised in mode permissive as well.
    """

    is_retryable = True
    outcome = Outcome.NOT_DONE


class MarkFileError(ContainerError):
    """A mark file is held by a live owner, belongs to another component or cannot be read."""


class AeronError(ContainerError):
    """The Aeron client refused a call; ``code`` is the C client's error code."""

    outcome = Outcome.NOT_DONE

    def __init__(self, message: str, *, code: int = 0, category: Category = Category.ERROR) -> None:
        super().__init__(message, category=category)
        self.code = code


class RegistrationError(AeronError):
    """The driver refused to add a publication, subscription or counter: ``code`` is the driver's error code.

    A retry can help for UNKNOWN_HOST, RESOURCE_TEMPORARILY_UNAVAILABLE and STORAGE_SPACE, and then ``is_retryable`` of
    the error is True.
    """

    UNKNOWN_HOST = 9
    RESOURCE_TEMPORARILY_UNAVAILABLE = 10
    STORAGE_SPACE = 12

    def __init__(self, message: str, *, code: int = 0, category: Category = Category.ERROR) -> None:
        super().__init__(message, code=code, category=category)
        if code in (self.UNKNOWN_HOST, self.RESOURCE_TEMPORARILY_UNAVAILABLE, self.STORAGE_SPACE):
            self.is_retryable = True


class ForkedError(ContainerError):
    """The object was made in another process, of which this one is a forked child: it cannot be used here."""

    outcome = Outcome.NOT_DONE


class ClosedError(AeronError, ConnectionError):
    """The object or its client is closed; the text says why. The call had no effect."""

    is_retryable = True


class RequestClosedError(OutcomeUnknownError, ClosedError):
    """The client was closed while a request waited for its reply; the text says why."""


class OutboxFullError(ContainerError):
    """The outbox of a reconnecting client has no room for a message; it was not sent."""

    is_retryable = True
    outcome = Outcome.NOT_DONE


class ClaimLostError(AeronError):
    """A claim was committed so late that the media driver had given it up: its message is not sent."""

    is_retryable = True
    outcome = Outcome.NOT_DONE


class MessageTooLongError(AeronError, ValueError):
    """A message or claim is longer than its publication can carry; the text gives both lengths, in bytes.

    From a client both are without the header that goes ahead of each message.
    """


class TimedOutError(AeronError, TimeoutError):
    """An answer did not come in time; the text says what was awaited and for how long."""

    is_retryable = True
    outcome = Outcome.UNKNOWN


class SendTimedOutError(TimedOutError):
    """A client's message was not accepted in time, and so was not sent."""

    outcome = Outcome.NOT_DONE


class RequestTimedOutError(OutcomeUnknownError, TimedOutError):
    """A client's request was sent, and no reply came in time."""


class DriverTimeoutError(TimedOutError):
    """The media driver is not there, not ready or no longer alive."""

    outcome = Outcome.NOT_DONE


class ArchiveError(ContainerError):
    """Upstream's ``ArchiveException``: the archive answered with an error, or its session is gone.

    ``code`` is the archive's error code (:attr:`STORAGE_SPACE` and so on), ``correlation_id`` the request's, or -1.
    """

    GENERIC = 0
    """The code of an error without a code of its own."""
    STORAGE_SPACE = 11
    """The code of an archive without usable space."""

    def __init__(self, message: str, *, code: int = 0, correlation_id: int = -1) -> None:
        super().__init__(message)
        self.code = code
        self.correlation_id = correlation_id


class Event(ContainerError):
    """An event for the error log that is not a failure of the code: recorded without a stack trace."""

    def __init__(self, message: str, *, category: Category = Category.WARN) -> None:
        super().__init__(message, category=category)


class AeronEvent(Event):
    """An event of the transport, such as a counter that went away."""


class ClusterEvent(Event):
    """An event of the cluster, such as the close of an unknown session."""


class ArchiveEvent(Event):
    """An event of the archive, such as a control session that ended because its client did not read."""


class AgentTermination(BaseException):
    """Ends the agent. It passes through user callbacks, so it is not an ``Exception``: do not swallow it.

    ``facts`` (dict of str to int or str) say where in the log it was, when a callback is the reason: ``callback``,
    ``log_position``, ``cluster_time``, and what the event was of, as the log's fields name it.
    """

    def __init__(self, message: str, *, category: Category = Category.ERROR) -> None:
        super().__init__(message)
        self.category = category
        self.facts: dict[str, int | str] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return _made_again, (type(self), self.args, self.__dict__)


class AgentInterrupted(AgentTermination):
    """The container is being closed while the agent idles in a callback or waits for the consensus module."""


class ClusterTermination(AgentTermination):
    """The consensus module asked for the end, or is gone; ``is_expected`` is True for an orderly end.

    ``reason`` (str) is what ended a consensus module that was not asked to end, '' in the service that it ends then.
    """

    def __init__(self, *, is_expected: bool, reason: str = "") -> None:
        text = "expected termination"
        if not is_expected:
            text = f"unexpected termination: {reason or 'the log of the consensus module has the cause'}"
        super().__init__(text, category=Category.WARN if is_expected else Category.ERROR)
        self.is_expected = is_expected
        self.reason = reason
