"""The settings of an archive, each with its name, default, unit and range, and what must hold between them.

Names, defaults and meanings are those of upstream's ``Archive.Configuration`` and ``AeronArchive.Configuration``.
Settings of threads that this archive does not have, for recording and replaying, are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from container.common import aeron_defaults
from container.errors import ConfigurationError
from container.settings import shared_fields as shared
from container.settings.setting import (
    INT32,
    INT32_MAX,
    Setting,
    channel_field,
    choice_field,
    duration_field,
    flag_field,
    is_udp_channel,
    number_field,
    path_field,
    setting_field,
    table_of,
    text_field,
)

SHARED = "SHARED"
INVOKER = "INVOKER"

#: Ways to treat the last frame of a recording, which a crash may have cut.
REFUSE = "refuse"
CUT = "cut"

CRC_32 = "CRC-32"
CRC_32C = "CRC-32C"

_MIN_TERM_LENGTH = 64 * 1024
_MAX_TERM_LENGTH = 1024**3
_INT64 = (-(2**63), 2**63 - 1)

_CHECKSUM_NAMES = (
    *(CRC_32, CRC_32C),
    *("io.aeron.archive.checksum.Crc32", "io.aeron.archive.checksum.Crc32c"),
    *("org.agrona.checksum.Crc32", "org.agrona.checksum.Crc32c"),
)


def checksum_of(name: str | None) -> str | None:
    """Which checksum one of the settings for them means: :data:`CRC_32` or :data:`CRC_32C`; None for none."""
    if name is None:
        return None
    return CRC_32C if name.lower().endswith("32c") else CRC_32


@dataclass(frozen=True, kw_only=True)
class ArchiveSettings:
    """All settings of an archive with their defaults; read only.

    :func:`~container.settings.sources.load_archive_settings` validates them.
    """

    archive_dir: str | None = path_field(
        "aeron.archive.dir",
        "Directory of the archive: its catalog and its recordings; must be given.",
        None,
        shown="must be given",
    )
    mark_file_dir: str | None = path_field(
        "aeron.archive.mark.file.dir",
        "Directory of the mark file alone, such as one in memory.",
        None,
        shown="`archive_dir`",
    )
    delete_dir_on_start: bool = flag_field(
        "aeron.archive.dir.delete.on.start",
        "Delete all recordings, and the catalog, at each start.",
        False,
    )
    archive_id: int = number_field(
        "aeron.archive.id",
        "Distinguishes the counters of archives that share a driver; -1 takes a new id of the driver at each start.",
        -1,
        *_INT64,
    )
    aeron_dir: str | None = shared.AERON_DIR
    aeron_library: str | None = shared.AERON_LIBRARY
    driver_timeout_ms: int = shared.DRIVER_TIMEOUT_MS
    is_control_channel_enabled: bool = flag_field(
        "aeron.archive.control.channel.enabled", "If true, serve clients on other machines.", True
    )
    control_channel: str | None = text_field(
        "aeron.archive.control.channel",
        "Channel of requests over the network; must be given unless it is disabled.",
        None,
        is_udp_channel,
        "a UDP channel, such as aeron:udp?endpoint=localhost:8010",
    )
    control_stream_id: int = number_field(
        "aeron.archive.control.stream.id",
        "Stream of requests over the network.",
        aeron_defaults.ARCHIVE_CONTROL_STREAM_ID,
        *INT32,
    )
    local_control_channel: str = shared.local_control_channel_field("Channel of requests of this machine.")
    local_control_stream_id: int = number_field(
        "aeron.archive.local.control.stream.id",
        "Stream of requests of this machine.",
        aeron_defaults.ARCHIVE_CONTROL_STREAM_ID,
        *INT32,
    )
    control_term_buffer_length: int = number_field(
        "aeron.archive.control.term.buffer.length",
        "Term length of the streams of requests and responses, unless the client sets one.",
        _MIN_TERM_LENGTH,
        _MIN_TERM_LENGTH,
        _MAX_TERM_LENGTH,
        unit="bytes",
        is_power_of_two=True,
    )
    control_term_buffer_sparse: bool = flag_field(
        "aeron.archive.control.term.buffer.sparse",
        "If true, the term files of these streams are sparse, unless the client sets otherwise.",
        True,
    )
    control_mtu_length: int = number_field(
        "aeron.archive.control.mtu.length",
        "Longest packet of these streams, unless the client sets one.",
        1408,
        32,
        65_504,
        unit="bytes",
        multiple_of=32,
    )
    is_recording_events_enabled: bool = flag_field(
        "aeron.archive.recording.events.enabled",
        "If true, publish the start, progress and stop of recordings.",
        False,
    )
    recording_events_channel: str | None = channel_field(
        "aeron.archive.recording.events.channel",
        "Channel on which recording events are published; must be given if they are enabled.",
        None,
    )
    recording_events_stream_id: int = number_field(
        "aeron.archive.recording.events.stream.id",
        "Stream on which recording events are published.",
        aeron_defaults.ARCHIVE_RECORDING_EVENTS_STREAM_ID,
        *INT32,
    )
    replication_channel: str | None = channel_field(
        "aeron.archive.replication.channel",
        "Channel on which other archives replay their recordings to this one; must be given, such as "
        "`aeron:udp?endpoint=localhost:0`.",
        None,
    )
    message_timeout_ns: int = duration_field(
        "aeron.archive.message.timeout",
        "Time to wait for an answer of another archive.",
        aeron_defaults.ARCHIVE_MESSAGE_TIMEOUT_NS,
        least=1_000_000,
    )
    message_retry_attempts: int = number_field(
        "aeron.archive.message.retry.attempts",
        "Attempts to send a request to another archive.",
        aeron_defaults.ARCHIVE_MESSAGE_RETRY_ATTEMPTS,
        1,
        INT32_MAX,
    )
    control_response_stream_id: int = number_field(
        "aeron.archive.control.response.stream.id",
        "Stream on which another archive answers.",
        aeron_defaults.ARCHIVE_RESPONSE_STREAM_ID,
        *INT32,
    )
    segment_file_length: int = number_field(
        "aeron.archive.segment.file.length",
        "Length of a file of a recording; a recording whose term is longer has files as long as its term.",
        128 * 1024**2,
        _MIN_TERM_LENGTH,
        _MAX_TERM_LENGTH,
        unit="bytes",
        is_power_of_two=True,
    )
    file_io_max_length: int = number_field(
        "aeron.archive.file.io.max.length",
        "Longest block that one write or read transfers.",
        1024**2,
        _MIN_TERM_LENGTH,
        _MAX_TERM_LENGTH,
        unit="bytes",
        is_power_of_two=True,
    )
    low_storage_space_threshold: int = number_field(
        "aeron.archive.low.storage.space.threshold",
        "Usable space at or below which no recording is started or extended.",
        128 * 1024**2,
        0,
        _INT64[1],
        unit="bytes",
    )
    file_sync_level: int = number_field(
        "aeron.archive.file.sync.level",
        "Parts forced to the disk after each block of a recording: 0 nothing, 1 its data, 2 its metadata as well.",
        0,
        0,
        2,
    )
    catalog_file_sync_level: int = number_field(
        "aeron.archive.catalog.file.sync.level",
        "The same for each change of the catalog; at least `file_sync_level`.",
        0,
        0,
        2,
    )
    catalog_capacity: int = number_field(
        "aeron.archive.catalog.capacity",
        "Initial length of the catalog's file; it grows.",
        1024**2,
        32,
        INT32_MAX,
        unit="bytes",
    )
    torn_frame: str = choice_field(
        "aeron.archive.torn.frame",
        "Action at start if a crash may have cut the last frame of a recording. `refuse` ends the start, as upstream "
        "does; `cut` removes the frame.",
        REFUSE,
        (REFUSE, CUT),
    )
    record_checksum: str | None = setting_field(
        "aeron.archive.record.checksum",
        "Checksum written into each recorded frame and into the catalog.",
        None,
        allowed_text="CRC-32 or CRC-32C, or the name of upstream's class for it",
        choices=_CHECKSUM_NAMES,
        shown="none",
    )
    replay_checksum: str | None = setting_field(
        "aeron.archive.replay.checksum",
        "Checksum that each replayed frame must have.",
        None,
        allowed_text="CRC-32 or CRC-32C, or the name of upstream's class for it",
        choices=_CHECKSUM_NAMES,
        shown="none",
    )
    max_concurrent_recordings: int = number_field(
        "aeron.archive.max.concurrent.recordings", "Maximum number of active recordings.", 20, 1, INT32_MAX
    )
    max_concurrent_replays: int = number_field(
        "aeron.archive.max.concurrent.replays", "Maximum number of active replays.", 20, 1, INT32_MAX
    )
    connect_timeout_ns: int = duration_field(
        "aeron.archive.connect.timeout",
        "Time for a client to connect, to read a response, or to subscribe to a replay.",
        5_000_000_000,
        least=1_000_000,
    )
    session_liveness_check_interval_ns: int = duration_field(
        "aeron.archive.session.liveness.check.interval",
        "Interval between two pings to a client.",
        1_000_000_000,
        least=1_000_000,
    )
    replay_linger_timeout_ns: int = duration_field(
        "aeron.archive.replay.linger.timeout",
        "Time for which an ended replay can still be read, unless the client sets one.",
        5_000_000_000,
        least=0,
    )
    error_buffer_length: int = shared.error_buffer_length_field("aeron.archive.error.buffer.length")
    threading_mode: str = setting_field(
        "aeron.archive.threading.mode",
        "`SHARED`: one thread of the archive does everything. `INVOKER`: the caller's thread does.",
        SHARED,
        allowed_text="SHARED or INVOKER; DEDICATED, upstream's default, is not offered: "
        "one thread does everything here",
        choices=(SHARED, INVOKER),
    )
    idle_strategy: str = shared.idle_strategy_field(
        "aeron.archive.idle.strategy", "Strategy of the archive's thread when there is no work."
    )
    conductor_cycle_threshold_ns: int = duration_field(
        "aeron.archive.conductor.cycle.threshold", "Duty cycles longer than this are counted.", 100_000_000, least=0
    )
    authenticator: str | None = shared.authenticator_field("aeron.archive.authenticator.supplier")
    authorisation_service: str | None = shared.authorisation_service_field(
        "aeron.archive.authorisation.service.supplier", shown="`ALLOW_ALL`"
    )

    def check(self) -> None:
        """Check what must hold between settings; raises ConfigurationError that names all that does not."""
        problems = list(self._problems())
        if problems:
            raise ConfigurationError("; ".join(problems))

    def _problems(self) -> Iterator[str]:
        if self.is_control_channel_enabled and self.control_channel is None:
            yield (
                "control_channel must be given, such as aeron:udp?endpoint=localhost:8010, "
                "or is_control_channel_enabled must be false"
            )
        if self.is_recording_events_enabled and self.recording_events_channel is None:
            yield "recording_events_channel must be given where is_recording_events_enabled is true"
        if self.replication_channel is None:
            yield "replication_channel must be given, such as aeron:udp?endpoint=localhost:0"
        if self.catalog_file_sync_level < self.file_sync_level:
            yield (
                f"catalog_file_sync_level={self.catalog_file_sync_level}: must be at least "
                f"file_sync_level={self.file_sync_level}"
            )


_TABLE = table_of(ArchiveSettings)


def archive_settings_table() -> dict[str, Setting]:
    """All settings of an archive by name, in the order in which they are documented."""
    return _TABLE
