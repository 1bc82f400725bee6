"""Credentials are in no text: neither of a setting that is refused, nor of a connect that fails, nor of a request."""

from __future__ import annotations

import logging
import traceback
from dataclasses import dataclass
from typing import Any

import pytest

from container.archive.server.sessions.replication_request import ReplicationRequest
from container.client import ClientContext
from container.errors import ConfigurationError, ContainerError
from tests.client_world import World
from tests.ingress_member import AUTHENTICATION_REJECTED, ERROR, IngressMember

SECRET = "Xyzzy-7-Plugh"
SECRET_BYTES = SECRET.encode()


@dataclass
class Supplier:
    """Shows what it has to whoever asks for its text."""

    encoded: Any = SECRET_BYTES

    def encoded_credentials(self) -> Any:
        return self.encoded

    def on_challenge(self, encoded_challenge: bytes) -> Any:
        return self.encoded


@pytest.mark.parametrize("value", [SECRET, SECRET_BYTES, {"password": SECRET}, [SECRET]], ids=repr)
def test_credentials_in_place_of_a_supplier_are_refused_by_their_type(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="credentials_supplier must have encoded_credentials") as caught:
        ClientContext(ingress_channel="aeron:ipc", egress_channel="aeron:ipc", credentials_supplier=value)
    assert f"not an object of type {type(value).__name__}" in str(caught.value)
    assert SECRET not in str(caught.value)


def test_the_text_of_a_context_has_no_credentials() -> None:
    context = ClientContext(ingress_channel="aeron:ipc", egress_channel="aeron:ipc", credentials_supplier=Supplier())
    assert "aeron:ipc" in repr(context)
    assert SECRET not in repr(context)


def test_the_text_of_a_request_for_a_replication_has_no_credentials() -> None:
    request = ReplicationRequest(7, encoded_credentials=SECRET_BYTES, live_destination="aeron:ipc")
    assert "src_recording_id=7, " in repr(request)
    assert "live_destination='aeron:ipc'" in repr(request)
    assert SECRET not in repr(request)


@pytest.mark.parametrize("encoded", [SECRET_BYTES, SECRET, {SECRET: 1}], ids=repr)
@pytest.mark.parametrize("code", [ERROR, AUTHENTICATION_REJECTED])
def test_a_connect_that_fails_says_nothing_of_them(
    encoded: Any, code: int, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    world = World()
    IngressMember(world.driver).refuse(code, "session failed authentication")
    with pytest.raises((ContainerError, TypeError)) as caught:
        world.connect(credentials_supplier=Supplier(encoded))
    said = [repr(caught.value), "".join(traceback.format_exception(caught.value)), caplog.text, *capfd.readouterr()]
    assert [text for text in said if SECRET in text] == []
