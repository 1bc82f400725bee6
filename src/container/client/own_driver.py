"""Chooses a client's media driver: one that runs, or one embedded in the client's process."""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

from container.client.client_context import NS_PER_S, ClientContext, is_ipc
from container.errors import ClosedError
from container.files.cnc_file import CncFile

_LOGGER = logging.getLogger("container.client")

_SEND_LIMIT_S = 0.1
_SEND_PAUSE_S = 0.001
_PUBLISHER_LIMIT_TYPE_ID = 1
_SENDER_POSITION_TYPE_ID = 2

_COUNTERS_BUFFER_LENGTH = 1024 * 1024
"""8,192 counters are some thousand streams. With Aeron's default a driver takes 48 MiB of shared memory."""

_HINT = "start a media driver there, or set the directory (AERON_DIR) to that of a running one"


class OwnDriver:
    """A client's embedded driver. At its end it has sent what its client did last, such as the ends of sessions: else
    the cluster would keep these until they time out."""

    def __init__(self) -> None:
        """Launch it. Raise AeronError when it cannot start."""
        from container.aeron import MediaDriver  # loads the Aeron library: only where it is needed

        self._driver = MediaDriver.launch_embedded(counters_buffer_length=_COUNTERS_BUFFER_LENGTH)
        #: Its directory.
        self.aeron_dir = self._driver.aeron_dir

    def close(self) -> None:
        """End the driver, whose client has closed its publications, as soon as it has sent them, or after 0.1 s."""
        try:
            self._await_sent()
        finally:
            self._driver.close()

    def _await_sent(self) -> None:
        cnc = None if self._driver.is_closed else CncFile.open_ready(Path(self.aeron_dir))
        if cnc is None:
            return
        deadline = time.monotonic() + _SEND_LIMIT_S
        try:
            while _is_sending(cnc) and time.monotonic() < deadline:
                time.sleep(_SEND_PAUSE_S)
        finally:
            cnc.close()


def _is_sending(cnc: CncFile) -> bool:
    """Whether a publication has more than the driver has sent. The limit of one that is closed is its end."""
    limits: dict[int, int] = {}
    positions: dict[int, int] = {}
    for counter in cnc.counters():
        if counter.type_id == _PUBLISHER_LIMIT_TYPE_ID:
            limits[counter.key_int64(0)] = counter.value
        elif counter.type_id == _SENDER_POSITION_TYPE_ID:
            positions[counter.key_int64(0)] = counter.value
    return any(position < limits.get(number, 0) for number, position in positions.items())


class DriverChoice:
    """The driver of one client, chosen when this is made: a running one, or one that is launched for this client."""

    def __init__(self, context: ClientContext) -> None:
        """Launch the driver if the client gets its own; never wait for another.

        Raise AeronError when that one cannot start.
        """
        from container.aeron import default_aeron_dir  # loads the Aeron library: only where it is needed

        given = context.aeron_dir or os.environ.get("AERON_DIR")
        #: Where the client looks for a driver, unless it has its own.
        self.aeron_dir = given or default_aeron_dir()
        #: The client's own driver, which its AeronClient closes; None when it uses one that runs.
        self.driver: OwnDriver | None = None
        self._max_age_ns = int(context.driver_timeout * NS_PER_S)
        self._hint = _HINT
        if context.embedded_driver or (context.embedded_driver is None and not given):
            self._launch_if_needed(context)
        elif not given:
            self._hint = f"{_HINT}; embedded_driver=False refuses one of the client's own"

    def _launch_if_needed(self, context: ClientContext) -> None:
        absence = "embedded_driver=True" if context.embedded_driver else self.absence()
        if absence is None:
            return
        if context.embedded_driver is None and (is_ipc(context.ingress_channel) or is_ipc(context.egress_channel)):
            self._hint = f"{_HINT}: over IPC it must be the member's own, so none is started for this client"
            return
        try:
            self.driver = OwnDriver()
        except ImportError as error:  # the library that was named has no driver
            if context.embedded_driver:
                raise
            self._hint = f"{_HINT}: none can be started for this client: {error}"
            return
        _LOGGER.info("started an embedded media driver for this client, in %s: %s", self.driver.aeron_dir, absence)

    def absence(self) -> str | None:
        """Why no driver runs in :attr:`aeron_dir` now; None when one does."""
        from container.aeron.media_driver import driver_absence

        return driver_absence(self.aeron_dir, self._max_age_ns)

    def timed_out(self, absence: str, waited_ns: int) -> Exception:
        """The error of a client for which no driver came in time."""
        from container.aeron.media_driver import no_driver

        return no_driver(absence, waited_ns, self._hint)


class LastingDriver:
    """The embedded driver of a reconnecting client: launched for the first attempt that needs one, and used by
    all later ones. Launching it waits, so asyncio does that on another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._driver: OwnDriver | None = None
        self._is_closed = False

    def context(self, context: ClientContext) -> ClientContext:
        """The context of an attempt, which launches no driver itself.

        Raises AeronError when the driver cannot start, and ClosedError when this was closed meanwhile.
        """
        if self._driver is None and context.client is None:
            driver = DriverChoice(context).driver
            with self._lock:
                self._driver = driver
                is_late = self._is_closed
            if is_late:
                self.close()
                raise ClosedError("the client was closed while its media driver was started")
        if self._driver is None:
            return context
        return replace(context, aeron_dir=self._driver.aeron_dir, embedded_driver=False)

    def close(self) -> None:
        """End the driver, when no client uses it any more. May be called again, on any thread."""
        with self._lock:
            driver, self._driver, self._is_closed = self._driver, None, True
        if driver is not None:
            driver.close()
