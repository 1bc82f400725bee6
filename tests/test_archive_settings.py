"""Settings of an archive: the table, each value from each source, every one that is refused, and what must fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from container.errors import ConfigurationError
from container.settings.archive_table import CRC_32, CRC_32C, ArchiveSettings, archive_settings_table, checksum_of
from container.settings.container_table import settings_table
from container.settings.sources import load_archive_settings

INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
MIB = 1024**2
CONTROL_CHANNEL = "aeron:udp?endpoint=localhost:8010"
REPLICATION_CHANNEL = "aeron:udp?endpoint=localhost:0"
REQUIRED = {"control_channel": CONTROL_CHANNEL, "replication_channel": REPLICATION_CHANNEL}

# For each setting: its variable, its default, a value that is not the default, the same as text, and a text that is
# refused.
SETTINGS: dict[str, tuple[str, object, object, str, str]] = {
    "archive_dir": ("AERON_ARCHIVE_DIR", None, "/var/a", "/var/a", ""),
    "mark_file_dir": ("AERON_ARCHIVE_MARK_FILE_DIR", None, "/dev/shm/m", "/dev/shm/m", ""),
    "delete_dir_on_start": ("AERON_ARCHIVE_DIR_DELETE_ON_START", False, True, "true", "yes"),
    "archive_id": ("AERON_ARCHIVE_ID", -1, 7, "7", "x"),
    "aeron_dir": ("AERON_DIR", None, "/dev/shm/a", "/dev/shm/a", ""),
    "aeron_library": ("AERON_LIBRARY", None, "/opt/libaeron.so", "/opt/libaeron.so", ""),
    "driver_timeout_ms": ("AERON_DRIVER_TIMEOUT", 10_000, 2_500, "2500", "2s"),
    "is_control_channel_enabled": ("AERON_ARCHIVE_CONTROL_CHANNEL_ENABLED", True, False, "false", "no"),
    "control_channel": (
        "AERON_ARCHIVE_CONTROL_CHANNEL",
        CONTROL_CHANNEL,
        "aeron:udp?endpoint=a:1",
        "aeron:udp?endpoint=a:1",
        "aeron:ipc",
    ),
    "control_stream_id": ("AERON_ARCHIVE_CONTROL_STREAM_ID", 10, -3, "-3", "2147483648"),
    "local_control_channel": (
        "AERON_ARCHIVE_LOCAL_CONTROL_CHANNEL",
        "aeron:ipc?term-length=64k",
        "aeron:ipc",
        "aeron:ipc",
        "aeron:udp?endpoint=localhost:8010",
    ),
    "local_control_stream_id": ("AERON_ARCHIVE_LOCAL_CONTROL_STREAM_ID", 10, 11, "11", "1e3"),
    "control_term_buffer_length": ("AERON_ARCHIVE_CONTROL_TERM_BUFFER_LENGTH", 65_536, MIB, "1m", "65537"),
    "control_term_buffer_sparse": ("AERON_ARCHIVE_CONTROL_TERM_BUFFER_SPARSE", True, False, "false", "0"),
    "control_mtu_length": ("AERON_ARCHIVE_CONTROL_MTU_LENGTH", 1408, 8192, "8k", "1409"),
    "is_recording_events_enabled": ("AERON_ARCHIVE_RECORDING_EVENTS_ENABLED", False, True, "true", "1"),
    "recording_events_channel": (
        "AERON_ARCHIVE_RECORDING_EVENTS_CHANNEL",
        None,
        "aeron:udp?control=a:1|control-mode=dynamic",
        "aeron:udp?control=a:1|control-mode=dynamic",
        "aeron:tcp",
    ),
    "recording_events_stream_id": ("AERON_ARCHIVE_RECORDING_EVENTS_STREAM_ID", 30, 31, "31", "x"),
    "replication_channel": (
        "AERON_ARCHIVE_REPLICATION_CHANNEL",
        REPLICATION_CHANNEL,
        "aeron:udp?endpoint=a:0",
        "aeron:udp?endpoint=a:0",
        "udp",
    ),
    "message_timeout_ns": ("AERON_ARCHIVE_MESSAGE_TIMEOUT", 10_000_000_000, 5_000_000_000, "5s", "5"),
    "message_retry_attempts": ("AERON_ARCHIVE_MESSAGE_RETRY_ATTEMPTS", 3, 1, "1", "0"),
    "control_response_stream_id": ("AERON_ARCHIVE_CONTROL_RESPONSE_STREAM_ID", 20, 21, "21", "--1"),
    "segment_file_length": ("AERON_ARCHIVE_SEGMENT_FILE_LENGTH", 128 * MIB, 65_536, "64k", "65m"),
    "file_io_max_length": ("AERON_ARCHIVE_FILE_IO_MAX_LENGTH", MIB, 65_536, "64k", "32k"),
    "low_storage_space_threshold": ("AERON_ARCHIVE_LOW_STORAGE_SPACE_THRESHOLD", 128 * MIB, 0, "0", "-1"),
    "file_sync_level": ("AERON_ARCHIVE_FILE_SYNC_LEVEL", 0, 1, "1", "3"),
    "catalog_file_sync_level": ("AERON_ARCHIVE_CATALOG_FILE_SYNC_LEVEL", 0, 2, "2", "-1"),
    "catalog_capacity": ("AERON_ARCHIVE_CATALOG_CAPACITY", MIB, 8 * MIB, "8m", "31"),
    "torn_frame": ("AERON_ARCHIVE_TORN_FRAME", "refuse", "cut", "cut", "accept"),
    "record_checksum": ("AERON_ARCHIVE_RECORD_CHECKSUM", None, "CRC-32C", "CRC-32C", "crc32"),
    "replay_checksum": (
        "AERON_ARCHIVE_REPLAY_CHECKSUM",
        None,
        "org.agrona.checksum.Crc32",
        "org.agrona.checksum.Crc32",
        "MD5",
    ),
    "max_concurrent_recordings": ("AERON_ARCHIVE_MAX_CONCURRENT_RECORDINGS", 20, 1, "1", "0"),
    "max_concurrent_replays": ("AERON_ARCHIVE_MAX_CONCURRENT_REPLAYS", 20, 40, "40", "0"),
    "connect_timeout_ns": ("AERON_ARCHIVE_CONNECT_TIMEOUT", 5_000_000_000, 10**9, "1s", "1h"),
    "session_liveness_check_interval_ns": (
        "AERON_ARCHIVE_SESSION_LIVENESS_CHECK_INTERVAL",
        1_000_000_000,
        2 * 10**9,
        "2s",
        "0",
    ),
    "replay_linger_timeout_ns": ("AERON_ARCHIVE_REPLAY_LINGER_TIMEOUT", 5_000_000_000, 0, "0", "-1s"),
    "error_buffer_length": ("AERON_ARCHIVE_ERROR_BUFFER_LENGTH", MIB, 2 * MIB, "2m", "512k"),
    "threading_mode": ("AERON_ARCHIVE_THREADING_MODE", "SHARED", "INVOKER", "INVOKER", "DEDICATED"),
    "idle_strategy": ("AERON_ARCHIVE_IDLE_STRATEGY", "backoff", "sleep(100us)", "sleep(100us)", "sleep(100ug)"),
    "conductor_cycle_threshold_ns": ("AERON_ARCHIVE_CONDUCTOR_CYCLE_THRESHOLD", 100_000_000, 250_000, "250us", "1h"),
    "authenticator": ("AERON_ARCHIVE_AUTHENTICATOR_SUPPLIER", None, "pkg.module:Name", "pkg.module:Name", "pkg.Name"),
    "authorisation_service": (
        "AERON_ARCHIVE_AUTHORISATION_SERVICE_SUPPLIER",
        None,
        "DENY_ALL",
        "DENY_ALL",
        "deny_all",
    ),
}
NAMES = list(SETTINGS)

# What else must be given for a value that is not the default.
WITH: dict[str, dict[str, object]] = {
    "is_recording_events_enabled": {"recording_events_channel": "aeron:ipc"},
    "file_sync_level": {"catalog_file_sync_level": 1},
}


def load(name: str, value: object, **others: object) -> ArchiveSettings:
    return load_archive_settings(REQUIRED | WITH.get(name, {}) | {name: value} | others, environ={})


def refusal(**keywords: object) -> str:
    with pytest.raises(ConfigurationError) as refused:
        load_archive_settings(REQUIRED | keywords, environ={})
    return str(refused.value)


# The table and its sources.


def test_the_table_has_every_setting_with_its_variable_and_default() -> None:
    table = archive_settings_table()
    assert [(setting.name, setting.variable) for setting in table.values()] == [
        (name, SETTINGS[name][0]) for name in NAMES
    ]
    settings = load_archive_settings(REQUIRED, environ={})
    assert {name: getattr(settings, name) for name in NAMES} == {name: SETTINGS[name][1] for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_each_setting_says_what_it_is(name: str) -> None:
    setting = archive_settings_table()[name]
    assert setting.property == SETTINGS[name][0].lower().replace("_", ".")
    assert setting.doc.endswith(".")
    assert setting.allowed
    default = setting.default_value
    assert default is None or setting.allows(default)


def test_what_container_and_archive_share_is_the_same_in_both() -> None:
    archive, container = archive_settings_table(), settings_table()
    shared = {setting.property for setting in archive.values()} & {setting.property for setting in container.values()}
    assert shared >= {"aeron.dir", "aeron.library", "aeron.driver.timeout", "aeron.archive.message.timeout"}
    for prop in shared:
        one = next(setting for setting in archive.values() if setting.property == prop)
        other = next(setting for setting in container.values() if setting.property == prop)
        assert (one.default_value, one.least, one.most, one.unit) == (
            other.default_value,
            other.least,
            other.most,
            other.unit,
        )


@pytest.mark.parametrize("name", NAMES)
def test_value_from_a_keyword_the_environment_and_a_file(name: str, tmp_path: Path) -> None:
    variable, _default, value, text, _bad = SETTINGS[name]
    assert getattr(load(name, value), name) == value
    others = {key: other for key, other in (REQUIRED | WITH.get(name, {})).items() if key != name}
    assert getattr(load_archive_settings(others, environ={variable: text}), name) == value
    path = tmp_path / "archive.toml"
    written = str(value).lower() if isinstance(value, bool) else value if isinstance(value, int) else f'"{value}"'
    path.write_text(f"{name} = {written}\n")
    assert getattr(load_archive_settings(others, config_file=path, environ={}), name) == value
    environ = {"AERON_ARCHIVE_CONFIG_FILE": str(path), "AERON_CLUSTER_CONFIG_FILE": "/no/such/file"}
    assert getattr(load_archive_settings(others, environ=environ), name) == value


def test_an_unknown_setting_is_refused_with_a_near_one(tmp_path: Path) -> None:
    assert refusal(segment_file_size=1) == "unknown setting 'segment_file_size': did you mean 'segment_file_length'?"
    path = tmp_path / "archive.toml"
    path.write_text("service_id = 1\n")
    with pytest.raises(ConfigurationError, match=f"^unknown setting 'service_id' in config file {path}: "):
        load_archive_settings(REQUIRED, config_file=path, environ={})


def test_settings_of_an_archive_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        load_archive_settings(REQUIRED, environ={}).file_sync_level = 1  # type: ignore[misc]


# What is refused.


@pytest.mark.parametrize("name", [name for name in NAMES if SETTINGS[name][4]])
def test_a_bad_value_is_refused_with_name_value_source_and_what_is_allowed(name: str) -> None:
    variable, _default, _value, _text, bad = SETTINGS[name]
    others = {key: value for key, value in REQUIRED.items() if key != name}
    with pytest.raises(ConfigurationError) as refused:
        load_archive_settings(others, environ={variable: bad})
    assert str(refused.value).startswith(f"{name}={bad!r} from {variable}: ")
    assert len(str(refused.value)) > len(f"{name}={bad!r} from {variable}: ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", NAMES)
def test_a_value_of_another_type_is_refused(name: str) -> None:
    bad: object = "x" if isinstance(SETTINGS[name][2], int) else 1
    assert refusal(**{name: bad}).startswith(f"{name}={bad!r}: must be ")


def test_a_mode_with_threads_for_recording_and_replaying_is_refused_with_a_sentence() -> None:
    assert refusal(threading_mode="DEDICATED") == (
        "threading_mode='DEDICATED': must be SHARED or INVOKER; DEDICATED, upstream's default, is not offered: one "
        "thread does everything here"
    )


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("control_term_buffer_length", 65_536, 1024**3),
        ("segment_file_length", 65_536, 1024**3),
        ("file_io_max_length", 65_536, 1024**3),
    ],
)
def test_a_length_must_be_a_power_of_two(name: str, least: int, most: int) -> None:
    for value in (least, 2 * least, most):
        assert getattr(load(name, value), name) == value
    for value in (0, -least, least // 2, least + 32, 3 * least, most - 1, 2 * most):
        assert refusal(**{name: value}).startswith(
            f"{name}={value}: must be a power of two from {least} to {most} bytes"
        )


def test_a_packet_must_be_a_multiple_of_32() -> None:
    for value in (32, 1376, 65_504):
        assert load("control_mtu_length", value).control_mtu_length == value
    for value in (0, 31, 33, 1400, 65_536):
        assert refusal(control_mtu_length=value).startswith(
            f"control_mtu_length={value}: must be a multiple of 32 from 32 to 65504 bytes"
        )


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("archive_id", -(2**63), INT64_MAX),
        ("low_storage_space_threshold", 0, INT64_MAX),
        ("catalog_capacity", 32, INT32_MAX),
        ("error_buffer_length", MIB, INT32_MAX - 8192),
        ("max_concurrent_recordings", 1, INT32_MAX),
        ("max_concurrent_replays", 1, INT32_MAX),
        ("connect_timeout_ns", 1_000_000, 2**62),
        ("replay_linger_timeout_ns", 0, 2**62),
    ],
)
def test_a_range_is_inclusive(name: str, least: int, most: int) -> None:
    for value in (least, most):
        assert getattr(load(name, value), name) == value
    for value in (least - 1, most + 1):
        assert refusal(**{name: value}).startswith(f"{name}={value}: must be ")


@pytest.mark.parametrize(
    "channel",
    [
        "aeron:ipc",
        "aeron:udp",
        "aeron-spy:aeron:udp?endpoint=a:1",
        "aeron:udp?",
        "aeron:udp?endpoint",
        "aeron:udp?a=\0",
    ],
)
def test_requests_over_the_network_need_a_udp_channel(channel: str) -> None:
    assert refusal(control_channel=channel).startswith("control_channel=")


@pytest.mark.parametrize("package", ["io.aeron.archive", "org.agrona"])
def test_a_checksum_has_the_names_that_upstream_knows(package: str) -> None:
    names = {CRC_32: ("CRC-32", f"{package}.checksum.Crc32"), CRC_32C: ("CRC-32C", f"{package}.checksum.Crc32c")}
    for checksum, each in names.items():
        for name in each:
            assert checksum_of(load("record_checksum", name).record_checksum) == checksum
    assert checksum_of(load_archive_settings(REQUIRED, environ={}).record_checksum) is None


# What must fit together.


def test_the_catalog_is_forced_at_least_as_the_recordings_are() -> None:
    for level, catalog_level in ((0, 0), (0, 2), (1, 1), (1, 2), (2, 2)):
        assert load("file_sync_level", level, catalog_file_sync_level=catalog_level).file_sync_level == level
    for level, catalog_level in ((1, 0), (2, 0), (2, 1)):
        assert refusal(file_sync_level=level, catalog_file_sync_level=catalog_level) == (
            f"catalog_file_sync_level={catalog_level}: must be at least file_sync_level={level}"
        )


def test_channels_that_are_needed_must_be_given() -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_archive_settings({"is_recording_events_enabled": True, "file_sync_level": 1}, environ={})
    assert str(refused.value).split("; ") == [
        "control_channel must be given, such as aeron:udp?endpoint=localhost:8010, or is_control_channel_enabled must "
        "be false",
        "recording_events_channel must be given where is_recording_events_enabled is true",
        "replication_channel must be given, such as aeron:udp?endpoint=localhost:0",
        "catalog_file_sync_level=0: must be at least file_sync_level=1",
    ]


def test_no_channel_is_needed_for_what_is_not_enabled() -> None:
    settings = load_archive_settings(
        {"is_control_channel_enabled": False, "replication_channel": REPLICATION_CHANNEL}, environ={}
    )
    assert settings.control_channel is None
    assert settings.recording_events_channel is None
