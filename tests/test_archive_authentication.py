"""Who may use an archive: the defaults, classes of the user by their names, and names of nothing of the kind."""

from __future__ import annotations

import pytest

from container.archive.authentication import (
    AcceptAll,
    AllowAll,
    Authenticator,
    DenyAll,
    SessionProxy,
    create_authenticator,
    create_authorisation_service,
    is_authorised,
)
from container.errors import ConfigurationError

ARCHIVE, REPLAY, PURGE = 101, 6, 104
HERE = "tests.test_archive_authentication"


class Session:
    """What an authenticator is given, which notes what it decides."""

    def __init__(self, *, can_send: bool = True) -> None:
        self.session_id, self.is_local = 5, False
        self.can_send = can_send
        self.decisions: list[object] = []

    def challenge(self, encoded_challenge: bytes) -> bool:
        self.decisions.append(("challenge", encoded_challenge))
        return self.can_send

    def authenticate(self, encoded_principal: bytes) -> bool:
        self.decisions.append(("authenticate", encoded_principal))
        return self.can_send

    def reject(self) -> None:
        self.decisions.append("reject")


class Password(Authenticator):
    """Challenges once, then accepts those that know the word."""

    def __init__(self) -> None:
        self.answers: dict[int, bytes] = {}

    def on_connected_session(self, session: SessionProxy, now_ms: int) -> None:
        session.challenge(b"word?")

    def on_challenge_response(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        self.answers[session_id] = encoded_credentials

    def on_challenged_session(self, session: SessionProxy, now_ms: int) -> None:
        answer = self.answers.pop(session.session_id, None)
        if answer == b"sesame":
            session.authenticate(b"user")
        elif answer is not None:
            session.reject()


class Readers:
    """Lets everybody replay, and root do everything."""

    def is_authorised(self, protocol_id: int, action_id: int, action_type: object, encoded_principal: bytes) -> bool:
        assert action_type is None
        return protocol_id == ARCHIVE and (action_id == REPLAY or encoded_principal == b"root")


class Careless:
    """Means no, but returns what counts as true."""

    async def is_authorised(self, *question: object) -> bool:
        return False


class Nothing:
    """Neither of them."""


class Broken:
    """Cannot be made."""

    def __init__(self) -> None:
        raise OSError("no such file")


def test_the_default_accepts_every_client_when_it_can_be_answered() -> None:
    authenticator = create_authenticator(None)
    assert type(authenticator) is AcceptAll
    session = Session()
    authenticator.on_connect_request(5, b"", 1)
    assert session.decisions == []
    authenticator.on_connected_session(session, 2)
    authenticator.on_challenge_response(5, b"", 3)
    authenticator.on_challenged_session(session, 4)
    assert session.decisions == [("authenticate", b""), ("authenticate", b"")]


def test_upstreams_name_of_the_default_is_known() -> None:
    assert type(create_authenticator("io.aeron.security.DefaultAuthenticatorSupplier")) is AcceptAll


def test_the_base_class_decides_nothing() -> None:
    session, authenticator = Session(), Authenticator()
    authenticator.on_connect_request(5, b"", 1)
    authenticator.on_connected_session(session, 2)
    authenticator.on_challenge_response(5, b"", 3)
    authenticator.on_challenged_session(session, 4)
    assert session.decisions == []


@pytest.mark.parametrize(("word", "decision"), [(b"sesame", ("authenticate", b"user")), (b"", "reject")])
def test_an_authenticator_of_the_user_challenges_and_decides(word: bytes, decision: object) -> None:
    authenticator = create_authenticator(f"{HERE}:Password")
    session = Session()
    authenticator.on_connect_request(5, b"", 1)
    authenticator.on_connected_session(session, 2)
    authenticator.on_challenged_session(session, 3)
    assert session.decisions == [("challenge", b"word?")]
    authenticator.on_challenge_response(5, word, 4)
    authenticator.on_challenged_session(session, 5)
    assert session.decisions[1:] == [decision]


@pytest.mark.parametrize("name", [None, "ALLOW_ALL"])
def test_everything_is_allowed_by_default(name: str | None) -> None:
    service = create_authorisation_service(name)
    assert type(service) is AllowAll
    assert is_authorised(service, ARCHIVE, PURGE, b"")


def test_everything_can_be_denied() -> None:
    service = create_authorisation_service("DENY_ALL")
    assert type(service) is DenyAll
    assert not is_authorised(service, ARCHIVE, REPLAY, b"root")


def test_a_service_of_the_user_decides_by_action_and_principal() -> None:
    service = create_authorisation_service(f"{HERE}:Readers")
    asked = [(REPLAY, b""), (PURGE, b""), (PURGE, b"root")]
    assert [is_authorised(service, ARCHIVE, action, principal) for action, principal in asked] == [True, False, True]


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_what_only_counts_as_true_denies() -> None:
    service = create_authorisation_service(f"{HERE}:Careless")
    assert not is_authorised(service, ARCHIVE, REPLAY, b"root")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("no_such_module:X", "module no_such_module cannot be imported"),
        (f"{HERE}:Missing", "has no Missing"),
        (f"{HERE}:Broken", r"Broken\(\) failed: OSError: no such file"),
        (HERE, "must be package.module:Name"),
        ("", "must be package.module:Name"),
        ("allow_all", "must be package.module:Name"),
    ],
)
def test_a_name_of_nothing_is_refused_with_the_setting(path: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^authenticator=.*{reason}"):
        create_authenticator(path)
    with pytest.raises(ConfigurationError, match=f"^authorisation_service=.*{reason}"):
        create_authorisation_service(path)


def test_a_class_without_the_methods_is_refused_with_their_names() -> None:
    with pytest.raises(
        ConfigurationError,
        match=f"^authenticator='{HERE}:Nothing': Nothing has no on_connect_request, on_connected_session, "
        "on_challenge_response, on_challenged_session$",
    ):
        create_authenticator(f"{HERE}:Nothing")
    with pytest.raises(
        ConfigurationError, match=f"^authorisation_service='{HERE}:Nothing': Nothing has no is_authorised$"
    ):
        create_authorisation_service(f"{HERE}:Nothing")
