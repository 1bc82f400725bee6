# Types of container.replay.transport.
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from container.files.directories import Directory
from container.service.cluster import Cluster
from container.service.service_handler import ServiceHandler
from container.transport.clocks import Clock
from container.transport.counters import Counter
from container.transport.streams import Image, PendingAdd, Publication, Subscription
from container.transport.transport_seam import Client, MarkFile, SnapshotReader, SnapshotStore, SnapshotWriter

@final
class ReplayRows:
    def __init__(self, columns: Mapping[str, str], batch_rows: int) -> None: ...
    @property
    def hash_position(self) -> int: ...
    def begin(self, cluster: Cluster) -> None: ...
    def close(self) -> None: ...
    def take(self, is_end: bool = False) -> list[tuple[int, dict[str, Any]]]: ...
    def put_error(self, kind: str, text: str) -> None: ...

@final
class StateHash:
    def __init__(self) -> None: ...
    def update(self, message: bytes) -> None: ...
    def hexdigest(self) -> str: ...

@final
class ReplayPublication(Publication): ...

@final
class EgressPublication(ReplayPublication): ...  # type: ignore[misc]

@final
class ControlPublication(ReplayPublication): ...  # type: ignore[misc]

@final
class StatePublication(ReplayPublication): ...  # type: ignore[misc]

@final
class ReplayImage(Image):
    def __init__(
        self,
        archive_dir: Directory,
        layout: Mapping[str, int],
        *,
        begin: int,
        end: int,
        is_log: bool,
    ) -> None: ...
    @property
    def is_drained(self) -> bool: ...
    def inject(self, message: bytes, position: int) -> None: ...
    def close(self) -> None: ...

@final
class MessagesImage(Image):
    def __init__(self, messages: Sequence[bytes]) -> None: ...
    def close(self) -> None: ...

@final
class LogSubscription(Subscription): ...

@final
class ControlSubscription(Subscription): ...

@final
class ReplaySnapshotWriter(SnapshotWriter): ...

@final
class ReplaySnapshotReader(SnapshotReader): ...

@final
class ReplaySnapshotStore(SnapshotStore):
    def __init__(
        self,
        rows: ReplayRows,
        recorded: Callable[[int], tuple[int, int, str | None]],
        begin: Image | None,
        on_taken: Callable[[list[bytes]], object] | None = None,
    ) -> None: ...

@final
class ReplayClock(Clock):
    def advance(self) -> None: ...

@final
class ReplayCounter(Counter): ...

@final
class ReplayPendingAdd(PendingAdd): ...

@final
class ReplayMarkFile(MarkFile): ...

@final
class ReplayClient(Client):
    @property
    def clock(self) -> ReplayClock: ...
    def __init__(
        self, rows: ReplayRows, log: ReplayImage, join_log: bytes, recovery_key: bytes, cluster_id: int
    ) -> None: ...
    def commit(self, log_position: int) -> None: ...
    def new_counter(self) -> Counter: ...

def takes_batches(handler: ServiceHandler) -> bool: ...
