# Types of container.recordings.batch_decoder.
from typing import Any, final

from container.recordings.message_reader import MessageReader

@final
class BatchDecoder(MessageReader):  # type: ignore[misc]
    @property
    def rows(self) -> int: ...
    @property
    def is_full(self) -> bool: ...
    def take(self) -> dict[str, Any]: ...
