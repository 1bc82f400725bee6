"""The HTTP server of the metrics, with clients that connect and say nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import pytest

from container.operate import http_server
from container.operate.http_server import REQUESTS_MAX, MetricsServer


def hello(environ: dict[str, Any], start: Callable[..., object]) -> Iterable[bytes]:
    start("200 OK", [])
    return [b"metrics"]


def test_a_request_is_answered_behind_hundreds_of_silent_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "PATIENCE_S", 600.0)  # no connection leaves room by its own end
    monkeypatch.setattr(http_server._Handler, "timeout", 600.0)
    server = MetricsServer("127.0.0.1", 0, hello)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        with ExitStack() as stack:
            address = ("127.0.0.1", server.server_port)
            for _ in range(8 * REQUESTS_MAX):
                stack.enter_context(socket.create_connection(address))
            client = stack.enter_context(socket.create_connection(address, timeout=60))
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            answer = b"".join(iter(lambda: client.recv(4096), b""))
            assert answer.endswith(b"metrics")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
