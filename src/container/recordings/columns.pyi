# Types of container.recordings.columns, whose use is from C.
from collections.abc import Sequence
from typing import final

@final
class ColumnBatch:
    row_limit: int
    byte_limit: int
    def __init__(self, kinds: Sequence[str | None], row_limit: int, byte_limit: int) -> None: ...

@final
class OwnedMemory:
    def __buffer__(self, flags: int, /) -> memoryview: ...
