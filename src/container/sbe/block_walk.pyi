# Types of container.sbe.block_walk; its docstrings say what the numbers are.
from typing import Final, final

NO_HEADER: Final[int]
OTHER_SCHEMA: Final[int]
UNKNOWN_TEMPLATE: Final[int]
SHORT_BLOCK: Final[int]
TRUNCATED: Final[int]
TOO_MANY_ENTRIES: Final[int]
NO_TEXT: Final[int]
BYTES: Final[int]
UTF8: Final[int]
LATIN1: Final[int]

type _Place = tuple[int, int, bool]
type _Block = tuple[
    list[tuple[int, int]],
    list[tuple[int, int, int]],
    list[tuple[int, _Place, _Place, int, int]],
    list[tuple[int, _Place, int, int]],
]

@final
class BlockWalk:
    def __init__(
        self,
        header: tuple[int, _Place, _Place, _Place, _Place],
        schema_id: int,
        is_big_endian: bool,
        blocks: list[_Block],
        templates: dict[int, int],
    ) -> None: ...
    def walk(
        self, payloads: object, offsets: int, data: int, validity: int, first: int, count: int
    ) -> list[tuple[int, int, int, int]]: ...
    def entry_count(self, number: int) -> int: ...
    def rows(self, number: int) -> bytes: ...
    def numbers(
        self,
        number: int,
        offset: int,
        width: int,
        length: int,
        out_width: int,
        since: int,
        null: int,
        has_null: bool,
        is_nan_null: bool,
    ) -> tuple[bytes, bytes | None, int]: ...
    def choices(
        self, number: int, offset: int, width: int, bit: int, since: int
    ) -> tuple[bytes, bytes | None, int]: ...
    def present(self, number: int, since: int) -> tuple[bytes | None, int]: ...
    def texts(
        self, number: int, offset: int, length: int, since: int, null: int, encoding: int
    ) -> tuple[bytes, bytes, bytes | None, int]: ...
    def data(self, number: int, index: int) -> tuple[bytes, bytes, bytes | None, int]: ...
    def groups(self, number: int, index: int) -> tuple[bytes, bytes | None, int]: ...
