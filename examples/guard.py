"""An authenticator for a cluster and for its archive: clients of the network have to know a secret.

It sends a random challenge; the answer is its HMAC-SHA256 under a secret that both sides know, so that the secret
itself never travels. ``examples/challenge.py`` has the client's side. Clients in shared memory are let in without: only
processes of the node's own user reach it, and its consensus module and services are among them.

Name it in the settings of both, and the file of users in the environment of the node::

    [consensus_module]
    authenticator = "examples.guard:Guard"

    [archive]
    authenticator = "examples.guard:Guard"

The file has a line ``name secret`` for each user, and should be readable for the node's user alone.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from container.archive.authentication import Authenticator, SessionProxy

USERS_VARIABLE = "CLUSTER_USERS_FILE"
CHALLENGE_LENGTH = 32
MAX_CLIENTS = 1_000
"""Clients in the middle of a connect. A client that never continues is forgotten when as many others have come."""


@dataclass
class Client:
    """The facts about one client that connects."""

    user: bytes
    challenge: bytes
    answer: bytes | None = None


class Guard(Authenticator):
    """Challenges each client of the network; its principal is its user's name, and ``local`` in shared memory."""

    def __init__(self, users_file: str | os.PathLike[str] | None = None) -> None:
        lines = Path(users_file or os.environ[USERS_VARIABLE]).read_bytes().splitlines()
        users = (line.split(maxsplit=1) for line in lines if line.strip())
        self._secrets = {name: secret.strip() for name, secret in users}
        self._clients: OrderedDict[int, Client] = OrderedDict()

    def on_connect_request(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        """Remember who wants to connect; nothing can be sent to it yet."""
        self._clients[session_id] = Client(encoded_credentials, secrets.token_bytes(CHALLENGE_LENGTH))
        while len(self._clients) > MAX_CLIENTS:
            self._clients.popitem(last=False)

    def on_connected_session(self, session: SessionProxy, now_ms: int) -> None:
        """Challenge it."""
        client = self._clients.get(session.session_id)
        if session.is_local:
            if session.authenticate(b"local"):
                self._clients.pop(session.session_id, None)
        elif client is None:
            session.reject()
        else:
            session.challenge(client.challenge)

    def on_challenge_response(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        """Keep its answer; it is judged in the next call."""
        client = self._clients.get(session_id)
        if client is not None:
            client.answer = encoded_credentials

    def on_challenged_session(self, session: SessionProxy, now_ms: int) -> None:
        """Accept who knows the secret. An unknown user takes as long as a wrong answer."""
        client = self._clients.get(session.session_id)
        if client is None:
            session.reject()
        elif client.answer is not None:
            secret = self._secrets.get(client.user, b"")
            expected = hmac.digest(secret, client.challenge, hashlib.sha256)
            if not (secret and hmac.compare_digest(expected, client.answer)):
                session.reject()
            elif not session.authenticate(client.user):
                return  # it could not be told now: this is called again
            del self._clients[session.session_id]
