"""The HTTP server of the metrics, with clients that connect and say nothing."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

from container.operate.http_server import REQUESTS_MAX, MetricsServer


def hello(environ: dict[str, Any], start: Callable[..., object]) -> Iterable[bytes]:
    start("200 OK", [])
    return [b"metrics"]


def test_a_request_is_answered_behind_hundreds_of_silent_connections() -> None:
    server = MetricsServer("127.0.0.1", 0, hello)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        with ExitStack() as stack:
            address = ("127.0.0.1", server.server_port)
            for _ in range(8 * REQUESTS_MAX):
                stack.enter_context(socket.create_connection(address))
            begun = time.monotonic()
            client = stack.enter_context(socket.create_connection(address, timeout=20))
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            answer = b"".join(iter(lambda: client.recv(4096), b""))
            assert answer.endswith(b"metrics")
            assert time.monotonic() - begun < 5  # without room it would wait 2 s for each 32 of them
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
