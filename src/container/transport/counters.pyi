# The types of container.transport.counters, which is compiled.

COUNTER_METADATA_LENGTH: int
COUNTER_KEY: slice
COUNTER_LABEL_LENGTH_OFFSET: int
COUNTER_LABEL_OFFSET: int
COUNTER_MAX_LABEL_LENGTH: int
COUNTER_VALUE_LENGTH: int

class Counter:
    @property
    def counter_id(self) -> int: ...
    @property
    def registration_id(self) -> int: ...
    @property
    def label(self) -> str: ...
    @property
    def value(self) -> int: ...
    def close(self) -> int: ...

class Counters:
    def read(self) -> list[tuple[int, int, str, int]]: ...
