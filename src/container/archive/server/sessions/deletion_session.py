"""Files of a recording that are deleted, one in each turn of the duty cycle, for the client that asked for it.

Upstream: DeleteSegmentsSession.java. :class:`RecordingStore` decides which files may be deleted and begins each
deletion. The request has been answered when this begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from container.archive import error_codes
from container.archive.server.sessions.control_session import ControlSession
from container.archive.server.store.recording_store import Deletion, RecordingStore
from container.common.error_texts import message_of

__all__ = ["DeletionSession"]

_SIGNAL_DELETE: Final = 6
_NULL_VALUE: Final = -1


class DeletionSession:
    """A deletion that a request (13, 54, 55, 57 or 104) has begun, until its signal was sent.

    Args:
        store: began the deletion.
        deletion: the files to delete; without files, the first turn sends the signal.
        control_session: the request's; a deletion continues without it.
        correlation_id: the request's.
        on_error: receives each error as well, as the client may be gone; it must not raise.
    """

    def __init__(
        self,
        store: RecordingStore,
        deletion: Deletion,
        control_session: ControlSession,
        correlation_id: int,
        *,
        on_error: Callable[[Exception], object] | None = None,
    ) -> None:
        self._store = store
        self._deletion = deletion
        self.control_session = control_session
        self._correlation_id = correlation_id
        self._on_error = on_error
        self._is_done = False

    @property
    def recording_id(self) -> int:
        """Whose files are deleted."""
        return self._deletion.recording_id

    @property
    def is_done(self) -> bool:
        """Whether no file is left that has not been tried, and the signal was sent."""
        return self._is_done

    def do_work(self) -> int:
        """Delete one file, and send the signal DELETE after the last one; return how much was done.

        A file that cannot be deleted stays, the client receives an error for it, and the next call continues.
        """
        if self._is_done:
            return 0
        try:
            if not self._deletion.is_done:
                self._store.delete_next_file(self._deletion)
        except Exception as error:
            if self._on_error is not None:
                self._on_error(error)
            self.control_session.send_error(self._correlation_id, message_of(error), error_codes.GENERIC)
        finally:
            if self._deletion.is_done:
                self._is_done = True
                self.control_session.send_signal(
                    self._correlation_id, self.recording_id, _NULL_VALUE, _NULL_VALUE, _SIGNAL_DELETE
                )
        return 1

    def __repr__(self) -> str:
        return f"<DeletionSession {self._deletion!r}{' done' if self._is_done else ''}>"
