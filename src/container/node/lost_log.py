"""A recording log that has lost the log of a cluster of one, which the archive still has.

The recording log alone names the recording of the log. Without its entries upstream's node begins a new log with an
empty state, and says nothing about the messages that it has acknowledged.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from container.errors import ClusterError, RecordingError
from container.files.catalog import read_catalog
from container.files.names import RECORDING_LOG_NAME
from container.files.recording_log import read_recording_log

_ALIAS = "alias=log"  # of each log that a leader publishes; upstream: ConsensusModuleAgent.java, addLogPublication


def check_log_is_named(cluster_dir: Path, archive_dir: Path, log_stream_id: int) -> None:
    """Raise ClusterError when the archive has a log, and the recording log has no entry.

    To be called once the archive has looked at its files. A leader writes the entry of its term before the first frame
    of its log, so a recording without frames is of a start that was cut short.
    """
    with suppress(FileNotFoundError, RecordingError):
        for _ in read_recording_log(cluster_dir):
            return
    lost = [
        each
        for each in read_catalog(archive_dir)
        if each.stream_id == log_stream_id
        and each.stop_position > each.start_position
        and _ALIAS in each.original_channel.partition("?")[2].split("|")
    ]
    if lost:
        last = lost[-1]
        raise ClusterError(
            f"{cluster_dir / RECORDING_LOG_NAME} has no entry, and recording {last.recording_id} in {archive_dir} is a "
            f"log from {last.start_position} to {last.stop_position}: the node would begin with an empty state. "
            f"Restore {RECORDING_LOG_NAME} from a backup; or, to start over, remove {cluster_dir} and {archive_dir}"
        )
