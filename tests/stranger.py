"""A client of a node's archive over the network: requests by name, and what they are answered with."""

from __future__ import annotations

import itertools
from typing import Any

from container.aeron import AeronClient
from container.codecs import messages as codecs
from container.testing.memory import transport_probe as probe
from tests.aeron_session import until

_VERSION = 1 << 16 | 12 << 8
_streams = itertools.count(20)  # one each: what one is still sent, the next does not take for its own


class Stranger:
    """A client beside a media driver of its own, of the node on ``port``; it answers on the port before that."""

    def __init__(self, client: AeronClient, host: str, port: int) -> None:
        self.client = client
        self.channel = f"aeron:udp?endpoint={host}:{port - 1}"
        self.requests = probe.add_publication(client, f"aeron:udp?endpoint={host}:{port + 4}", 10)
        self.stream_id = next(_streams)
        self.responses = probe.add_subscription(client, self.channel, self.stream_id)
        self.session_id = -1
        self.challenge = b""

    def _send(self, name: str, **fields: Any) -> None:
        request = codecs.encode("archive", name, **fields)
        until(self.client, lambda: probe.offer(self.requests, request) > 0, f"{name} to be taken")

    def _answer(self) -> tuple[str, dict[str, Any]]:
        found: list[tuple[str, dict[str, Any]]] = []

        def is_answered() -> bool:
            messages = [codecs.decode("archive", data) for data, _ in probe.poll(self.responses, 10)]
            found.extend(each for each in messages if each[0] in ("ControlResponse", "Challenge"))
            return bool(found)

        until(self.client, is_answered, "the answer")
        return found[0]

    def ask(self, name: str, **fields: Any) -> tuple[int, int, str]:
        """Code, relevant id and text of what a request is answered with."""
        self._send(name, correlation_id=7, control_session_id=self.session_id, **fields)
        _, answer = self._answer()
        return answer["code"], answer["relevant_id"], answer["error_message"].decode()

    def connect(self, credentials: bytes = b"") -> tuple[str, int, str]:
        """Ask for a session: the answer's name, and its code and text."""
        self._send(
            "AuthConnectRequest",
            correlation_id=7,
            response_channel=self.channel.encode(),
            response_stream_id=self.stream_id,
            version=_VERSION,
            encoded_credentials=credentials,
            client_info=b"",
        )
        return self._connected()

    def respond(self, answer: bytes) -> tuple[str, int, str]:
        """Answer the challenge: the answer to that."""
        session = {"correlation_id": 7, "control_session_id": self.session_id}
        self._send("ChallengeResponse", encoded_credentials=answer, **session)
        return self._connected()

    def _connected(self) -> tuple[str, int, str]:
        name, answer = self._answer()
        self.session_id = answer["control_session_id"]
        if name == "Challenge":
            self.challenge = answer["encoded_challenge"]
            return name, 0, ""
        if answer["code"] == 0:
            self._send("KeepAliveRequest", correlation_id=-1, control_session_id=self.session_id)
        return name, answer["code"], answer["error_message"].decode()
