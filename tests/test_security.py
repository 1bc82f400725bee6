"""What docs/security.md promises of a node: who is let in, and what is kept of those that are not."""

from __future__ import annotations

import hashlib
import hmac
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import container
from container.aeron import AeronClient, MediaDriver
from container.client import AdminResponseCode, AeronCluster, EgressListener
from container.client.client_context import NullCredentialsSupplier
from container.errors import AuthenticationError
from container.testing.processes.endpoints import PortReservation
from container.testing.processes.process import wait_until
from examples import guard, roles
from examples.challenge import HmacCredentials
from examples.guard import Guard
from tests.documents import all_blocks
from tests.limits import LIMIT_S
from tests.services import Counter
from tests.stranger import Stranger
from tests.test_cluster_node import ask

HOST = "127.0.0.1"
USER, SECRET = "alice", b"Xyzzy-7-Plugh"


@pytest.fixture
def port() -> Iterator[int]:
    ports = PortReservation(HOST)
    yield ports.take_row(6) + 1
    ports.close()


@pytest.fixture
def users_file(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    path.write_bytes(b"bob another\n\n" + USER.encode() + b" " + SECRET + b"\n")
    return path


def connect(
    node: container.ClusterNode,
    user: str,
    secret: bytes,
    *,
    is_ipc: bool = False,
    listener: EgressListener | None = None,
) -> AeronCluster:
    return AeronCluster.connect(
        aeron_dir=node.aeron_dir,
        ingress_channel="aeron:ipc" if is_ipc else "aeron:udp",
        ingress_endpoints=None if is_ipc else node.ingress_endpoints,
        egress_channel="aeron:ipc" if is_ipc else f"aeron:udp?endpoint={HOST}:0",
        credentials_supplier=HmacCredentials(user, secret) if user else NullCredentialsSupplier(),
        listener=listener or EgressListener(),
        message_timeout=LIMIT_S,
    )


def test_the_guard_of_the_document_lets_in_who_knows_the_secret_and_the_node_s_own(
    port: int, users_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tomllib.loads(all_blocks()["docs/security.md: Ask clients for a secret (toml)"].text)
    parts = {part: settings[part] for part in ("archive", "consensus_module")}
    monkeypatch.setenv(guard.USERS_VARIABLE, str(users_file))
    with (
        container.launch_node(Counter(), host=HOST, port=port, **parts) as node,
        MediaDriver.launch_embedded() as driver,
        AeronClient(driver.aeron_dir) as client,
    ):
        connect(node, USER, SECRET).close()
        connect(node, "", b"", is_ipc=True).close()
        for user, secret in ((USER, b"wrong"), ("mallory", SECRET), ("mallory", b""), ("", b"")):
            with pytest.raises(AuthenticationError):
                connect(node, user, secret)
        for user, secret in ((USER, SECRET), (USER, b"wrong"), ("mallory", b"")):
            stranger = Stranger(client, HOST, port)
            assert stranger.connect(user.encode())[0] == "Challenge"
            answer = stranger.respond(hmac.digest(secret, stranger.challenge, hashlib.sha256))
            assert answer == ("ControlResponse", *((0, "") if secret == SECRET else (1, "authentication rejected")))
            stranger.requests.close()
            stranger.responses.close()


class AdminAnswers(EgressListener):
    """Keeps the answers to admin requests."""

    def __init__(self) -> None:
        self.found: list[tuple[int, str]] = []

    def on_message(self, *_: object) -> None: ...

    def on_admin_response(
        self,
        cluster_session_id: int,
        correlation_id: int,
        request_type: int,
        response_code: int,
        message: str,
        payload: bytes,
    ) -> None:
        self.found.append((response_code, message))


def test_operators_of_the_document_may_ask_for_a_snapshot_and_others_may_not(
    port: int, users_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tomllib.loads(all_blocks()["docs/security.md: Authorise requests (toml)"].text)
    parts = {part: settings[part] for part in ("archive", "consensus_module")}
    monkeypatch.setenv(guard.USERS_VARIABLE, str(users_file))
    monkeypatch.setenv(roles.OPERATORS_VARIABLE, USER)
    with container.launch_node(Counter(), host=HOST, port=port, **parts) as node:
        for user, secret, code in (
            (USER, SECRET, AdminResponseCode.OK),
            ("bob", b"another", AdminResponseCode.UNAUTHORISED_ACCESS),
        ):
            answers = AdminAnswers()
            with connect(node, user, secret, listener=answers) as client:
                assert client.send_admin_request_to_take_a_snapshot(1)

                def is_answered(client: AeronCluster = client, answers: AdminAnswers = answers) -> bool:
                    client.poll_egress()
                    return bool(answers.found)

                wait_until(is_answered, LIMIT_S, "the answer")
            assert answers.found[0][0] == code


def test_a_node_does_without_its_archive_s_port(port: int) -> None:
    archive = {"is_control_channel_enabled": False}
    with container.launch_node(Counter(), host=HOST, port=port, archive=archive) as node:
        assert ask(node, b"1") == b"1"
        node.take_snapshot()


class Session:
    """A client, as an authenticator decides about it."""

    def __init__(self, session_id: int, *, is_local: bool = False, can_send: bool = True) -> None:
        self.session_id, self.is_local, self.can_send = session_id, is_local, can_send
        self.challenges: list[bytes] = []
        self.principal: bytes | None = None
        self.is_rejected = False

    def challenge(self, encoded_challenge: bytes) -> bool:
        self.challenges.append(encoded_challenge)
        return self.can_send

    def authenticate(self, encoded_principal: bytes) -> bool:
        self.principal = encoded_principal if self.can_send else None
        return self.can_send

    def reject(self) -> None:
        self.is_rejected = True


def test_the_guard_forgets_who_never_goes_on(users_file: Path) -> None:
    asked = Guard(users_file)
    for session_id in range(10_000):
        asked.on_connect_request(session_id, USER.encode(), 0)
    assert len(asked._clients) == guard.MAX_CLIENTS
    forgotten, known = Session(0), Session(9_999)
    asked.on_connected_session(forgotten, 0)
    asked.on_connected_session(known, 0)
    assert forgotten.is_rejected
    assert len(known.challenges[0]) == guard.CHALLENGE_LENGTH


def test_the_guard_accepts_a_client_that_could_not_be_told_when_it_can(users_file: Path) -> None:
    asked, session = Guard(users_file), Session(1, can_send=False)
    asked.on_connect_request(1, USER.encode(), 0)
    asked.on_connected_session(session, 0)
    asked.on_connected_session(session, 0)
    assert session.challenges[0] == session.challenges[1]
    asked.on_challenged_session(session, 0)  # it has not answered
    asked.on_challenge_response(1, hmac.digest(SECRET, session.challenges[0], hashlib.sha256), 0)
    asked.on_challenged_session(session, 0)
    session.can_send = True
    asked.on_challenged_session(session, 0)
    assert session.principal == USER.encode()
    assert not session.is_rejected
    assert not asked._clients
