"""An HTTP server for metrics, which may live in a node's process: clients cost it a few threads and files, and no more.

A client that stands still, or a thousand at once, must not use up what the member needs.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

REQUESTS_MAX = 32
"""Requests that are answered at a time; others wait until one is, or are closed after :data:`PATIENCE_S`."""
PATIENCE_S = 2.0
"""How long a client may take to send, or to read, what is next."""


class _Handler(WSGIRequestHandler):
    timeout = PATIENCE_S

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        """Log no request."""


class MetricsServer(ThreadingMixIn, WSGIServer):
    """Answers requests on threads of its own, a few at a time.

    Args:
        host: name or address to listen on.
        port: to listen on; 0 for one that is free.
        application: what answers, by WSGI.

    Raises:
        OSError, UnicodeError: nothing can be listened on there.
    """

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, host: str, port: int, application: Callable[..., Iterable[bytes]]) -> None:
        self._room = threading.BoundedSemaphore(REQUESTS_MAX)
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        self.address_family = family
        super().__init__((str(address[0]), int(address[1])), _Handler)
        self.set_app(application)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a request on a thread, when there is room for it."""
        if not self._room.acquire(timeout=PATIENCE_S):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread can be made
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a request on the thread that was made for it."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Forget a client that has gone in the middle: nobody else has to know."""
