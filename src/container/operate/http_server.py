"""An HTTP server for metrics, which may live in a node's process: clients cost it a few threads and files, and no more.

A client that stands still, or a thousand at once, must not use up what the member needs.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

REQUESTS_MAX = 32
"""Connections at a time. One more closes the oldest that has not sent its request yet; with none, it waits, and is
closed after :data:`PATIENCE_S`."""
PATIENCE_S = 2.0
"""How long a client may take to send, or to read, what is next."""


class _Handler(WSGIRequestHandler):
    timeout = PATIENCE_S
    server: MetricsServer

    def parse_request(self) -> bool:
        """Read the request's head; from then on the connection is not closed for another."""
        is_request = super().parse_request()
        self.server.heard(self.connection)
        return is_request

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
        self._guard = threading.Lock()
        self._silent: dict[socket.socket, None] = {}  # connections without a request, the oldest first
        self._room = threading.BoundedSemaphore(REQUESTS_MAX)
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        self.address_family = family
        super().__init__((str(address[0]), int(address[1])), _Handler)
        self.set_app(application)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a request on a thread, when there is room for it."""
        if not self._room.acquire(blocking=False):
            self._close_oldest()
            if not self._room.acquire(timeout=PATIENCE_S):
                self.shutdown_request(request)
                return
        with self._guard:
            self._silent[request] = None
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread can be made
            self.heard(request)
            self._room.release()
            raise

    def heard(self, request: socket.socket) -> None:
        """The connection has sent its request, or has ended."""
        with self._guard:
            self._silent.pop(request, None)

    def _close_oldest(self) -> None:
        """End the oldest connection that is silent: its thread reads the end, and leaves its room."""
        with self._guard, contextlib.suppress(StopIteration, OSError):
            oldest = next(iter(self._silent))
            del self._silent[oldest]
            oldest.shutdown(socket.SHUT_RDWR)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a request on the thread that was made for it."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.heard(request)
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Forget a client that has gone in the middle: nobody else has to know."""
