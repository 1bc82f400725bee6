# The distinct error log of a mark file, as type checkers see it.
from collections.abc import Buffer, Callable
from typing import NamedTuple, final

from container.files.mark_file import OwnedMarkFile
from container.transport.clocks import Clock
from container.transport.counters import Counter

class ErrorRecord(NamedTuple):
    observation_count: int
    first_observation_ms: int
    last_observation_ms: int
    text: str

@final
class DistinctErrorLog:
    def __init__(
        self, region: Buffer | OwnedMarkFile, clock: Clock | None = None, *, has_messages: bool = True
    ) -> None: ...
    def record(self, error: BaseException) -> int: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def refusal(self) -> str | None: ...
    def close(self) -> None: ...

@final
class CountedErrorHandler:
    @property
    def error_counter(self) -> Counter: ...
    @property
    def error_handler(self) -> Callable[[BaseException], object]: ...
    def __init__(self, error_counter: Counter, error_handler: Callable[[BaseException], object]) -> None: ...
    def __call__(self, error: BaseException) -> None: ...

def read_error_log(region: Buffer, since_ms: int = 0) -> list[ErrorRecord]: ...
def format_error_log(records: list[ErrorRecord]) -> str: ...
