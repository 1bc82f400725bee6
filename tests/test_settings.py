"""Settings: the table of them, their four sources, and every value that is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from container.common.quantities import format_duration, format_size
from container.common.semantic_version import (
    compose_version,
    format_version,
    is_version_compatible,
    major_version,
    parse_version,
)
from container.context import Context
from container.errors import ConfigurationError
from container.settings.container_table import settings_markdown, settings_table
from container.settings.sources import load_settings
from container.testing.memory.recording_service import RecordingService

ROOT = Path(__file__).parents[1]
INT32_MIN, INT32_MAX, INT64_MAX = -(2**31), 2**31 - 1, 2**63 - 1

# Every setting of the container: its name, its variable, and its default.
SETTINGS: list[tuple[str, str, object]] = [
    ("cluster_id", "AERON_CLUSTER_ID", 0),
    ("service_id", "AERON_CLUSTER_SERVICE_ID", 0),
    ("service_name", "AERON_CLUSTER_SERVICE_NAME", None),
    ("service_class_name", "AERON_CLUSTER_SERVICE_CLASS_NAME", None),
    ("app_version", "AERON_CLUSTER_APP_VERSION", 1),
    ("cluster_dir", "AERON_CLUSTER_DIR", None),
    ("mark_file_dir", "AERON_CLUSTER_MARK_FILE_DIR", None),
    ("services_dir", "AERON_CLUSTER_SERVICES_DIR", None),
    ("aeron_dir", "AERON_DIR", None),
    ("aeron_library", "AERON_LIBRARY", None),
    ("driver_timeout_ms", "AERON_DRIVER_TIMEOUT", 10_000),
    ("control_channel", "AERON_CLUSTER_CONTROL_CHANNEL", "aeron:ipc?term-length=128k"),
    ("service_stream_id", "AERON_CLUSTER_SERVICE_STREAM_ID", 104),
    ("consensus_module_stream_id", "AERON_CLUSTER_CONSENSUS_MODULE_STREAM_ID", 105),
    ("replay_channel", "AERON_CLUSTER_REPLAY_CHANNEL", "aeron:ipc"),
    ("replay_stream_id", "AERON_CLUSTER_REPLAY_STREAM_ID", 103),
    ("snapshot_channel", "AERON_CLUSTER_SNAPSHOT_CHANNEL", "aeron:ipc?alias=snapshot"),
    ("snapshot_stream_id", "AERON_CLUSTER_SNAPSHOT_STREAM_ID", 106),
    ("archive_control_channel", "AERON_ARCHIVE_LOCAL_CONTROL_CHANNEL", "aeron:ipc?term-length=64k"),
    ("archive_control_stream_id", "AERON_ARCHIVE_LOCAL_CONTROL_STREAM_ID", 10),
    ("archive_response_stream_id", "AERON_ARCHIVE_CONTROL_RESPONSE_STREAM_ID", 20),
    ("archive_message_timeout_ns", "AERON_ARCHIVE_MESSAGE_TIMEOUT", 10_000_000_000),
    ("archive_message_retry_attempts", "AERON_ARCHIVE_MESSAGE_RETRY_ATTEMPTS", 3),
    ("error_buffer_length", "AERON_CLUSTER_SERVICE_ERROR_BUFFER_LENGTH", 1_048_576),
    ("record_error_messages", "AERON_CLUSTER_SERVICE_ERROR_MESSAGES", True),
    ("is_responding_service", "AERON_CLUSTER_SERVICE_RESPONDER", True),
    ("log_fragment_limit", "AERON_CLUSTER_LOG_FRAGMENT_LIMIT", None),
    ("delegating_error_handler", "AERON_CLUSTER_SERVICE_DELEGATING_ERROR_HANDLER", None),
    ("cycle_threshold_ns", "AERON_CLUSTER_SERVICE_CYCLE_THRESHOLD", 100_000_000),
    ("snapshot_duration_threshold_ns", "AERON_CLUSTER_SERVICE_SNAPSHOT_THRESHOLD", 1_000_000_000),
    ("idle_strategy", "AERON_CLUSTER_IDLE_STRATEGY", "backoff"),
    ("callback_error_policy", "AERON_CLUSTER_SERVICE_CALLBACK_ERROR_POLICY", "halt"),
    ("cpu_affinity", "AERON_CLUSTER_SERVICE_CPU_AFFINITY", None),
    ("timer_slack_ns", "AERON_CLUSTER_SERVICE_TIMER_SLACK", None),
    ("print_configuration", "AERON_PRINT_CONFIGURATION", False),
    ("fallback_logger", "AERON_FALLBACK_LOGGER", "stderr"),
]

# For each setting a value that is not its default, the same as text, and a text that is refused.
OTHER_VALUES: dict[str, tuple[object, str, str]] = {
    "cluster_id": (-7, "-7", "7.5"),
    "service_id": (9, "9", "10"),
    "service_name": ("my service", "my service", "größe"),
    "service_class_name": ("pkg.module:Name", "pkg.module:Name", "pkg.module.Name"),
    "app_version": (0x020304, "2.3.4", "2.3"),
    "cluster_dir": ("/var/c", "/var/c", ""),
    "mark_file_dir": ("/var/m", "/var/m", ""),
    "services_dir": ("/var/s", "/var/s", ""),
    "aeron_dir": ("/dev/shm/a", "/dev/shm/a", ""),
    "aeron_library": ("/opt/libaeron.so", "/opt/libaeron.so", ""),
    "driver_timeout_ms": (2_500, "2500", "100us"),
    "control_channel": ("aeron:ipc?term-length=64k", "aeron:ipc?term-length=64k", "ipc"),
    "service_stream_id": (204, "204", "x"),
    "consensus_module_stream_id": (205, "205", "2147483648"),
    "replay_channel": ("aeron:udp?endpoint=localhost:0", "aeron:udp?endpoint=localhost:0", "aeron:tcp"),
    "replay_stream_id": (203, "203", "-2147483649"),
    "snapshot_channel": ("aeron:ipc", "aeron:ipc", "aeron:ipc?alias"),
    "snapshot_stream_id": (206, "206", "1e3"),
    "archive_control_channel": ("aeron:ipc", "aeron:ipc", "aeron:udp?endpoint=localhost:8010"),
    "archive_control_stream_id": (11, "11", "0x10"),
    "archive_response_stream_id": (21, "21", "--1"),
    "archive_message_timeout_ns": (5_000_000_000, "5s", "5"),
    "archive_message_retry_attempts": (1, "1", "0"),
    "error_buffer_length": (2_097_152, "2m", "512k"),
    "record_error_messages": (False, "false", "no"),
    "is_responding_service": (False, "false", "no"),
    "log_fragment_limit": (10, "10", "0"),
    "delegating_error_handler": ("pkg:Name", "pkg:Name", "Name"),
    "cycle_threshold_ns": (250_000, "250us", "1h"),
    "snapshot_duration_threshold_ns": (0, "0", "-1s"),
    "idle_strategy": ("sleep(100us)", "sleep(100us)", "sleep(100ug)"),
    "cpu_affinity": (1, "1", "-1"),
    "timer_slack_ns": (1_000, "1us", "0"),
    "print_configuration": (True, "true", "TRUE"),
    "callback_error_policy": ("skip", "skip", "ignore"),
    "fallback_logger": ("no_op", "no_op", "syslog"),
}

NAMES = [name for name, _variable, _default in SETTINGS]
VARIABLES = {name: variable for name, variable, _default in SETTINGS}


def toml(path: Path, name: str, value: object) -> Path:
    text = str(value).lower() if isinstance(value, bool) else value if isinstance(value, int) else f'"{value}"'
    path.write_text(f"{name} = {text}\n")
    return path


# --- the table


def test_the_table_has_every_setting_with_its_variable_and_default() -> None:
    assert [(setting.name, setting.variable) for setting in settings_table().values()] == [
        (name, variable) for name, variable, _default in SETTINGS
    ]
    assert set(OTHER_VALUES) == set(NAMES)
    settings = load_settings(environ={})
    assert {name: getattr(settings, name) for name in NAMES} == {name: default for name, _v, default in SETTINGS}


@pytest.mark.parametrize("name", NAMES)
def test_variable_mirrors_the_property(name: str) -> None:
    setting = settings_table()[name]
    assert setting.property.startswith("aeron.")
    assert setting.variable == setting.property.upper().replace(".", "_")
    assert setting.doc
    assert setting.allowed


def test_the_document_is_the_table() -> None:
    assert (ROOT / "docs" / "settings.md").read_text() == settings_markdown(), (
        "write container.settings.container_table.settings_markdown() to docs/settings.md"
    )


def test_settings_can_not_be_changed() -> None:
    with pytest.raises(AttributeError):
        load_settings(environ={}).service_id = 3  # type: ignore[misc]


# --- sources


@pytest.mark.parametrize("name", NAMES)
def test_value_from_a_keyword(name: str) -> None:
    value, text, _bad = OTHER_VALUES[name]
    assert getattr(load_settings({name: value}, environ={}), name) == value
    if settings_table()[name].unit:
        assert getattr(load_settings({name: text}, environ={}), name) == value


@pytest.mark.parametrize("name", NAMES)
def test_value_from_the_environment(name: str) -> None:
    value, text, _bad = OTHER_VALUES[name]
    assert getattr(load_settings(environ={VARIABLES[name]: text}), name) == value


@pytest.mark.parametrize("name", NAMES)
def test_value_from_a_file(name: str, tmp_path: Path) -> None:
    value, text, _bad = OTHER_VALUES[name]
    path = toml(tmp_path / "c.toml", name, value)
    assert getattr(load_settings(config_file=path, environ={}), name) == value
    if settings_table()[name].unit:
        path = toml(tmp_path / "c.toml", name, text)
        assert getattr(load_settings(environ={"AERON_CLUSTER_CONFIG_FILE": str(path)}), name) == value


def test_keyword_counts_before_environment_before_file_before_default(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("service_id = 1\nsnapshot_stream_id = 1\nreplay_stream_id = 1\n")
    environ = {"AERON_CLUSTER_SERVICE_ID": "2", "AERON_CLUSTER_SNAPSHOT_STREAM_ID": "2"}
    settings = load_settings({"service_id": 3}, config_file=path, environ=environ)
    assert (settings.service_id, settings.snapshot_stream_id, settings.replay_stream_id) == (3, 2, 1)
    assert settings.service_stream_id == 104


def test_file_given_by_keyword_counts_before_the_one_in_the_environment(tmp_path: Path) -> None:
    one = toml(tmp_path / "one.toml", "service_id", 1)
    two = toml(tmp_path / "two.toml", "service_id", 2)
    environ = {"AERON_CLUSTER_CONFIG_FILE": str(two)}
    assert load_settings(environ=environ).service_id == 2
    assert load_settings(config_file=one, environ=environ).service_id == 1


def test_the_process_environment_is_read_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AERON_CLUSTER_SERVICE_ID", "6")
    assert load_settings().service_id == 6
    assert Context(RecordingService()).settings.service_id == 6


def test_empty_variable_and_none_count_as_not_given() -> None:
    assert load_settings({"service_id": None}, environ={"AERON_CLUSTER_SERVICE_ID": ""}).service_id == 0


def test_other_variables_of_aeron_are_left_alone() -> None:
    others = {"AERON_CLUSTER_MEMBER_ID": "x", "AERON_CLUSTER_INGRESS_CHANNEL": "y"}
    found, expected = load_settings(environ=others), load_settings(environ={})
    assert {name: getattr(found, name) for name in NAMES} == {name: getattr(expected, name) for name in NAMES}


def test_paths_may_be_path_objects(tmp_path: Path) -> None:
    settings = load_settings({"cluster_dir": tmp_path, "aeron_dir": tmp_path / "a"}, environ={})
    assert (settings.cluster_dir, settings.aeron_dir) == (str(tmp_path), str(tmp_path / "a"))


@pytest.mark.parametrize("text", ["  3 ", "+3", "03"])
def test_number_in_the_environment_may_have_spaces_a_sign_or_zeros(text: str) -> None:
    assert load_settings(environ={"AERON_CLUSTER_SERVICE_ID": text}).service_id == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [("7", 7), ("7ns", 7), ("7us", 7_000), ("7 ms", 7_000_000), ("7s", 7_000_000_000), ("7MS", 7_000_000)],
)
def test_durations_as_text(text: str, expected: int) -> None:
    assert load_settings({"cycle_threshold_ns": text}, environ={}).cycle_threshold_ns == expected


@pytest.mark.parametrize(("text", "expected"), [("500", 500), ("500ms", 500), ("3s", 3_000), ("2000us", 2)])
def test_driver_timeout_is_in_milliseconds(text: str, expected: int) -> None:
    assert load_settings({"driver_timeout_ms": text}, environ={}).driver_timeout_ms == expected


@pytest.mark.parametrize("text", ["2s", " 500", "+500", "5e2"])
def test_driver_timeout_in_the_environment_is_what_the_c_client_can_read_as_well(text: str) -> None:
    assert load_settings(environ={"AERON_DRIVER_TIMEOUT": "500"}).driver_timeout_ms == 500
    with pytest.raises(ConfigurationError, match=r"from AERON_DRIVER_TIMEOUT: must be a plain number of milliseconds"):
        load_settings(environ={"AERON_DRIVER_TIMEOUT": text})


@pytest.mark.parametrize(
    ("text", "expected"), [("1048577", 1_048_577), ("1024k", 1_048_576), ("3M", 3_145_728), ("1 g", 1_073_741_824)]
)
def test_sizes_as_text(text: str, expected: int) -> None:
    assert load_settings({"error_buffer_length": text}, environ={}).error_buffer_length == expected


# --- what is refused


@pytest.mark.parametrize("name", [name for name in NAMES if OTHER_VALUES[name][2]])
def test_bad_value_in_the_environment_is_refused_with_name_value_source_and_range(name: str) -> None:
    bad = OTHER_VALUES[name][2]
    with pytest.raises(ConfigurationError) as caught:
        load_settings(environ={VARIABLES[name]: bad})
    assert str(caught.value).startswith(f"{name}={bad!r} from {VARIABLES[name]}: ")
    assert len(str(caught.value)) > len(f"{name}={bad!r} from {VARIABLES[name]}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_value_of_another_type_is_refused(name: str) -> None:
    bad: object = "x" if isinstance(OTHER_VALUES[name][0], int) else 1
    with pytest.raises(ConfigurationError, match=f"^{name}={bad!r}: must be "):
        load_settings({name: bad}, environ={})


@pytest.mark.parametrize("name", [name for name in NAMES if isinstance(OTHER_VALUES[name][0], str)])
def test_empty_text_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name}='': "):
        load_settings({name: ""}, environ={})


@pytest.mark.parametrize("value", [True, 1.0, "1", [1], {"a": 1}])
def test_number_must_be_a_whole_number_and_nothing_like_it(value: object) -> None:
    with pytest.raises(ConfigurationError, match="^service_id=.*: must be a whole number from 0 to 9$"):
        load_settings({"service_id": value}, environ={})


@pytest.mark.parametrize("value", [0, 1, "true"])
def test_flag_must_be_a_bool(value: object) -> None:
    with pytest.raises(ConfigurationError, match="^print_configuration=.*: must be true or false$"):
        load_settings({"print_configuration": value}, environ={})


@pytest.mark.parametrize("service_id", [-1, 10, 127, INT32_MAX])
def test_s1_service_id_outside_0_to_9_is_refused(service_id: int) -> None:
    context = Context(RecordingService(), service_id=service_id, environ={})
    with pytest.raises(ConfigurationError, match=f"^service_id={service_id}: must be a whole number from 0 to 9$"):
        context.conclude()


@pytest.mark.parametrize(
    ("name", "lowest", "highest"),
    [
        ("cluster_id", -21_474_837, 21_474_835),
        ("service_stream_id", INT32_MIN, INT32_MAX),
        ("archive_message_timeout_ns", 1_000_000, 2**62),
        ("archive_message_retry_attempts", 1, INT32_MAX),
        ("log_fragment_limit", 1, INT32_MAX),
        ("cycle_threshold_ns", 0, 2**62),
        ("error_buffer_length", 1_048_576, 2_147_475_455),
        ("driver_timeout_ms", 1, 86_400_000),
        ("app_version", 1, 0xFFFFFF),
    ],
)
def test_range_is_inclusive(name: str, lowest: int, highest: int) -> None:
    for value in (lowest, highest):
        assert getattr(load_settings({name: value}, environ={}), name) == value
    for value in (lowest - 1, highest + 1):
        with pytest.raises(ConfigurationError, match=f"{name}={value}"):
            load_settings({name: value}, environ={})


def test_response_stream_that_does_not_fit_32_bits_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"cluster_id=21474836: .* to 2147483647, not 2147483721"):
        load_settings({"cluster_id": 21_474_836}, environ={})


def test_service_name_may_have_100_characters_as_the_client_name_may() -> None:
    assert load_settings({"service_name": "x" * 100}, environ={}).effective_service_name == "x" * 100
    with pytest.raises(ConfigurationError, match="must be 1 to 100 ASCII characters"):
        load_settings({"service_name": "x" * 101}, environ={})


def test_archive_channel_must_be_ipc() -> None:
    with pytest.raises(ConfigurationError, match="local archive control must be IPC"):
        load_settings({"archive_control_channel": "aeron:udp?endpoint=localhost:8010"}, environ={})


def test_all_bad_values_are_named_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings({"service_id": 10}, environ={"AERON_CLUSTER_LOG_FRAGMENT_LIMIT": "0"})
    assert "service_id=10: " in str(caught.value)
    assert "log_fragment_limit='0' from AERON_CLUSTER_LOG_FRAGMENT_LIMIT: " in str(caught.value)


def test_long_value_is_shortened_in_the_error() -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings({"service_id": "x" * 10_000}, environ={})
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("servce_id", "did you mean 'service_id'?"),
        ("SERVICE_ID", "did you mean 'service_id'?"),
        ("aeron-dir", "did you mean 'aeron_dir'?"),
        ("idle_stratgy", "did you mean 'idle_strategy'?"),
        ("zzz", "see docs/settings.md"),
    ],
)
def test_unknown_setting_is_refused_by_name_with_a_suggestion(tmp_path: Path, name: str, suggestion: str) -> None:
    unknown: dict[str, Any] = {name: 1}
    with pytest.raises(ConfigurationError) as caught:
        Context(RecordingService(), environ={}, **unknown)
    assert str(caught.value) == f"unknown setting {name!r}: {suggestion}"
    path = toml(tmp_path / "c.toml", name, 1)
    with pytest.raises(ConfigurationError) as caught:
        load_settings(config_file=path, environ={})
    assert str(caught.value) == f"unknown setting {name!r} in config file {path}: {suggestion}"


def test_bad_value_in_a_file_is_refused_with_the_file(tmp_path: Path) -> None:
    path = toml(tmp_path / "c.toml", "service_id", 12)
    with pytest.raises(ConfigurationError, match=rf"^service_id=12 from {path}: must be "):
        load_settings(config_file=path, environ={})


def test_file_that_is_missing_or_no_toml_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    with pytest.raises(ConfigurationError, match=rf"config file {path} cannot be read: No such file or directory"):
        load_settings(config_file=path, environ={})
    path.write_text("service_id: 3")
    with pytest.raises(ConfigurationError, match=rf"config file {path} is not TOML: "):
        load_settings(config_file=path, environ={})
    path.write_bytes(b"service_name = '\xff'")
    with pytest.raises(ConfigurationError, match=rf"config file {path} is not TOML: "):
        load_settings(config_file=path, environ={})


# --- semantic versions


@pytest.mark.parametrize(
    ("text", "version"), [("0.0.1", 1), ("1.2.3", 0x010203), ("255.255.255", 0xFFFFFF), (" 1.0.0 ", 0x010000)]
)
def test_version_is_packed(text: str, version: int) -> None:
    assert parse_version(text) == version
    assert format_version(version) == text.strip()


@pytest.mark.parametrize("text", ["", "1", "1.2", "1.2.3.4", "0.0.0", "256.0.0", "1.2.-3", "a.b.c", "v1.2.3"])
def test_text_that_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_version(text)


def test_versions_are_compatible_when_their_majors_are_equal() -> None:
    assert is_version_compatible(compose_version(1, 0, 0), compose_version(1, 255, 9))
    assert not is_version_compatible(compose_version(1, 0, 0), compose_version(2, 0, 0))
    assert major_version(0xFF0000) == 255


@pytest.mark.parametrize("parts", [(0, 0, 0), (-1, 0, 0), (0, 256, 0)])
def test_parts_of_a_version_are_checked(parts: tuple[int, int, int]) -> None:
    with pytest.raises(ConfigurationError, match="each part must be from 0 to 255"):
        compose_version(*parts)


# --- texts of durations and sizes


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (0, "0ns"),
        (1, "1ns"),
        (1_500, "1500ns"),
        (2_000, "2us"),
        (100_000_000, "100ms"),
        (10**9, "1s"),
        (1_500_000_000, "1500ms"),
    ],
)
def test_duration_is_shown_in_the_largest_exact_unit(duration_ns: int, text: str) -> None:
    assert format_duration(duration_ns) == text


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0"), (1023, "1023"), (1024, "1k"), (1024**2, "1m"), (3 * 1024**3, "3g")]
)
def test_size_is_shown_in_the_largest_exact_unit(size: int, text: str) -> None:
    assert format_size(size) == text


def test_a_config_file_without_an_end_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.symlink_to("/dev/zero")
    with pytest.raises(ConfigurationError, match=f"config file {path} is longer than 65536 bytes"):
        load_settings({}, config_file=path, environ={})
