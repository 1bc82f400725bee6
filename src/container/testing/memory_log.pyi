# What type checkers see of container.testing.memory_log, which is compiled.

from typing import NamedTuple, Self, final

from container.transport.seam import Image

class Frame(NamedTuple):
    position: int
    term_id: int
    term_offset: int
    flags: int
    type: int
    session_id: int
    stream_id: int
    reserved_value: int
    payload: bytes

@final
class MemoryTerm:
    def __new__(cls, length: int) -> Self: ...

@final
class MemoryLog:
    def __init__(
        self,
        session_id: int = 0,
        *,
        stream_id: int = 0,
        initial_term_id: int = 0,
        term_length: int = 65_536,
        mtu_length: int = 1408,
        start_position: int = 0,
    ) -> None: ...
    @property
    def session_id(self) -> int: ...
    @property
    def stream_id(self) -> int: ...
    @property
    def initial_term_id(self) -> int: ...
    @property
    def term_length(self) -> int: ...
    @property
    def mtu_length(self) -> int: ...
    @property
    def position_bits_to_shift(self) -> int: ...
    @property
    def max_payload_length(self) -> int: ...
    @property
    def max_message_length(self) -> int: ...
    @property
    def start_position(self) -> int: ...
    @property
    def end_of_stream_position(self) -> int: ...
    @property
    def max_possible_position(self) -> int: ...
    @property
    def tail_position(self) -> int: ...
    def position_after(self, length: int) -> int: ...
    def append(self, message: bytes) -> int: ...
    def append_frame(
        self,
        payload: bytes,
        *,
        flags: int = 192,
        reserved_value: int = 0,
        padding: bool = False,
        frame_length: int | None = None,
    ) -> int: ...
    def overwrite(self, position: int, data: bytes) -> None: ...
    def fill_term(self) -> None: ...
    def end(self) -> None: ...
    def frames(self, end_position: int = 9_223_372_036_854_775_807) -> list[Frame]: ...
    def messages(self, end_position: int = 9_223_372_036_854_775_807) -> list[bytes]: ...
    def copy(
        self,
        *,
        session_id: int,
        stream_id: int,
        begin_position: int | None = None,
        end_position: int = 9_223_372_036_854_775_807,
    ) -> MemoryLog: ...

@final
class MemoryImage(Image):
    def __init__(self, log: MemoryLog, join_position: int | None = None) -> None: ...
    @property
    def log(self) -> MemoryLog: ...
