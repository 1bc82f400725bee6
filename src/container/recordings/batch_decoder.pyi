# Types of container.recordings.batch_decoder.
from typing import Any

from container.recordings.message_reader import MessageReader

class BatchDecoder(MessageReader):
    @property
    def rows(self) -> int: ...
    @property
    def is_full(self) -> bool: ...
    def take(self) -> dict[str, Any]: ...
