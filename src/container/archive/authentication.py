"""Access to an archive: authenticators and authorisation services, as upstream's ``io.aeron.security``.

An authenticator is asked at each step of a client's connect; an authorisation service at each request. Both are your
own classes, or the defaults, which accept everybody and allow everything. The archive reports any error that these
methods raise, and does not carry out the client's request.
"""

from __future__ import annotations

from typing import Protocol

from container.common.aeron_defaults import ALLOW_ALL, DEFAULT_AUTHENTICATOR, DENY_ALL
from container.common.object_path import create_object
from container.common.values import shown
from container.errors import ConfigurationError

__all__ = [
    "AcceptAll",
    "AllowAll",
    "Authenticator",
    "AuthorisationService",
    "DenyAll",
    "SessionProxy",
    "check_authenticator",
    "check_authorisation_service",
    "create_authenticator",
    "create_authorisation_service",
    "is_authorised",
]


class SessionProxy(Protocol):
    """A client that is being connected, as an authenticator decides about it; valid only during the call."""

    @property
    def session_id(self) -> int:
        """The id of the session; -1 of a client of a cluster that wants an answer and no session, such as a backup."""

    @property
    def is_local(self) -> bool:
        """Whether it asks in shared memory, which only processes of the media driver's user reach."""

    def challenge(self, encoded_challenge: bytes) -> bool:
        """Ask the client for more; False when it could not be sent now: decide again when asked again."""

    def authenticate(self, encoded_principal: bytes) -> bool:
        """Accept the client, as this principal; False when that could not be sent now, as for a challenge."""

    def reject(self) -> None:
        """Refuse the client."""


class Authenticator:
    """Decides who may connect; your class derives from it, or has the same methods.

    This class never decides, so every client fails after the archive's connect timeout. Times are milliseconds since
    1970.
    """

    def on_connect_request(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        """A client wants to connect, with these credentials, which may be empty."""

    def on_connected_session(self, session: SessionProxy, now_ms: int) -> None:
        """The client can be answered: challenge, authenticate or reject it. Called until you do one of these."""

    def on_challenge_response(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        """A client that was challenged answers, with these credentials."""

    def on_challenged_session(self, session: SessionProxy, now_ms: int) -> None:
        """Decide about a client that was challenged, whether it has answered or not. Called until you decide."""


class AcceptAll(Authenticator):
    """Accepts every client, as a principal without a name."""

    def on_connected_session(self, session: SessionProxy, now_ms: int) -> None:
        """Accept the client."""
        session.authenticate(b"")

    def on_challenged_session(self, session: SessionProxy, now_ms: int) -> None:
        """Accept the client."""
        session.authenticate(b"")


class AuthorisationService(Protocol):
    """Decides what a client may do."""

    def is_authorised(self, protocol_id: int, action_id: int, action_type: object, encoded_principal: bytes) -> bool:
        """Whether a principal may do what a message of this schema id and template id asks for.

        ``action_type`` is None for an archive. Any result other than True denies.
        """


class AllowAll:
    """Allows everything."""

    def is_authorised(self, protocol_id: int, action_id: int, action_type: object, encoded_principal: bytes) -> bool:
        """Return True."""
        return True


class DenyAll:
    """Denies everything: clients can connect, and no more."""

    def is_authorised(self, protocol_id: int, action_id: int, action_type: object, encoded_principal: bytes) -> bool:
        """Return False."""
        return False


def create_authenticator(path: str | None, setting: str = "authenticator") -> Authenticator:
    """The authenticator that ``package.module:Class`` names, made without arguments; None is the default's name.

    Raises ConfigurationError, which names ``setting``, when there is none, or it lacks a method.
    """
    if path is None or path == DEFAULT_AUTHENTICATOR:
        return AcceptAll()
    created: Authenticator = create_object(path, setting)
    check_authenticator(created, f"{setting}={shown(path)}")
    return created


def create_authorisation_service(path: str | None, setting: str = "authorisation_service") -> AuthorisationService:
    """The service that ``ALLOW_ALL``, ``DENY_ALL`` or ``package.module:Class`` names; None is the default's name.

    Raises ConfigurationError, which names ``setting``, when there is none, or it lacks the method.
    """
    if path is None or path == ALLOW_ALL:
        return AllowAll()
    if path == DENY_ALL:
        return DenyAll()
    created: AuthorisationService = create_object(path, setting)
    check_authorisation_service(created, f"{setting}={shown(path)}")
    return created


def is_authorised(service: AuthorisationService, protocol_id: int, action_id: int, encoded_principal: bytes) -> bool:
    """Whether the service allows it: only True does, not a coroutine or another object that counts as true."""
    return service.is_authorised(protocol_id, action_id, None, encoded_principal) is True


def check_authenticator(given: object, what: str) -> None:
    """Refuse an object without the methods of an authenticator; ``what`` names it in the ConfigurationError."""
    _require_methods(given, Authenticator, what)


def check_authorisation_service(given: object, what: str) -> None:
    """Refuse an object without the method of an authorisation service; ``what`` names it in the ConfigurationError."""
    _require_methods(given, AllowAll, what)


def _require_methods(given: object, kind: type, what: str) -> None:
    missing = [name for name in vars(kind) if name[0] != "_" and not callable(getattr(given, name, None))]
    if missing:
        raise ConfigurationError(f"{what}: {type(given).__name__} has no {', '.join(missing)}")
