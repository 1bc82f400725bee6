# The types of container.archive.server.store.recovery, which is compiled.
from collections.abc import Callable
from typing import Literal

from container.archive.server.store.catalog import Catalog
from container.archive.server.store.facts import Recovered
from container.archive.server.store.recording_positions import RecordingPositions
from container.storage.storage_seam import Storage

def recover(
    storage: Storage,
    archive_dir: str,
    catalog: Catalog,
    positions: RecordingPositions,
    *,
    now_ms: int,
    torn_frame: Literal["refuse", "cut"] = "refuse",
    checksum: int = 0,
    report_progress: Callable[[], object] | None = None,
) -> list[Recovered]: ...
