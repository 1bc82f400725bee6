"""The log out: what a leader appends, each message as upstream's leader writes it."""

from typing import final

from container.transport.streams import Publication

@final
class LogPublisher:
    """Appends to the log publication that it is given, while this member leads."""

    def set_publication(self, publication: Publication | None) -> None: ...
    def release(self) -> Publication | None: ...
    @property
    def publication(self) -> Publication | None: ...
    def close(self) -> int: ...
