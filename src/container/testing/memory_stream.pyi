# What type checkers see of container.testing.memory_stream, which is compiled.
from typing import final

from container.testing.memory_channel import MemoryChannel
from container.testing.memory_log import MemoryLog

@final
class StreamSender:
    @property
    def position(self) -> int: ...

@final
class MemoryStream:
    @property
    def log(self) -> MemoryLog: ...
    @property
    def channel(self) -> MemoryChannel: ...
    @property
    def registration_id(self) -> int: ...
    @property
    def is_exclusive(self) -> bool: ...
