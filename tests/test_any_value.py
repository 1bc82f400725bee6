"""Settings of every kind and from every source: any value whatsoever is taken or refused with a ConfigurationError."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from container.client.client_context import _VARIABLES, ClientContext, parse_ingress_endpoints
from container.common.channel_uri import ChannelUri
from container.common.object_path import load_object
from container.common.semantic_version import compose_version, parse_version
from container.common.values import counted, is_path, shown, whole_number
from container.context import Context
from container.errors import ConfigurationError
from container.settings.archive_table import archive_settings_table
from container.settings.arguments import number, path, seconds
from container.settings.container_table import settings_table
from container.settings.setting import Setting
from container.settings.sources import load_archive_settings, load_settings
from container.testing.memory.recording_service import RecordingService
from container.transport.idle_strategy import (
    BackoffIdleStrategy,
    SleepingIdleStrategy,
    parse_duration_ns,
    parse_idle_strategy,
)

TABLE = settings_table()
ARCHIVE_TABLE = archive_settings_table()


class Hostile:
    """Raises whatever is asked of it."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = None  # type: ignore[assignment]

    def __fspath__(self) -> str:
        raise RuntimeError("no path")

    def __float__(self) -> float:
        raise RuntimeError("no number")


class OddPath:
    """A path in bytes."""

    def __fspath__(self) -> bytes:
        return b"/tmp"


class HostileInt(int):
    """A number that cannot be compared."""

    def __le__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __ge__ = __gt__ = __lt__ = __le__


def nested(depth: int) -> list[Any]:
    """A list in a list in a list."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


DIGITS = "9" * 5_000
ODD_TEXTS = [
    DIGITS, "-" + DIGITS, DIGITS + "ms", DIGITS + "g", f"sleep({DIGITS})", f"backoff({DIGITS},1,1,1)", f"0={DIGITS}",
    f"{DIGITS}=a:1", "\0", "a\0b", "aeron:ipc?alias=\0", "\ud800", "aeron:ipc?alias=\udc80", "\udcff/x",
    "\u0663", "\u00b2", "\u00e9" * 101,
    "a:\ud800", "os:\ud800", ":", "x" * 100_000, "a/" * 3_000, "9223372036854775807s", "9223372036854775808", "1.2.3.4",
    "nan", "inf", "1e400", "[" * 50_000, "aeron:udp?endpoint=" + "|" * 10, " ", "\n", "-0", "+",
    "0x10", "1_000", "%s%n",
]  # fmt: skip
ODD_VALUES: list[object] = [
    10**5_000, -(10**5_000), 2**31, 2**63, 2**64, -(2**63) - 1, float("nan"), float("inf"), 1e308, 0.5, True, b"bytes",
    bytearray(b"x"), [], {}, (), set(), object(), int, nested(10), Hostile(), OddPath(), HostileInt(3), 1j,
    range(3), memoryview(b"x"), Path("\0"), Path("a/" * 3_000), os.environ, lambda: 1,
]  # fmt: skip
ODD: list[Any] = [*ODD_VALUES, *ODD_TEXTS]
DEEP = nested(100_000)
"""More than Python can show; it takes a tenth of a second to find that out."""
TEXTS = st.text(max_size=50) | st.text("0123456789.:=,()-+smnuk ", max_size=40)
VALUES = st.one_of(
    TEXTS,
    st.integers(),
    st.floats(),
    st.none(),
    st.booleans(),
    st.binary(max_size=20),
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3), max_leaves=5
    ),
)
relaxed = settings(max_examples=15, suppress_health_check=list(HealthCheck))


def tried(action: Callable[[], object], *names: str) -> object:
    """What it returns, or None after a ConfigurationError that is short, one line, and has one of the names."""
    try:
        return action()
    except ConfigurationError as error:
        text = str(error)
        assert len(text) < 1_200, text
        assert "\n" not in text
        text.encode()
        assert not names or any(name in text for name in names), text
    return None


def check_setting(setting: Setting, value: Any) -> None:
    """Try the value as the setting, from the environment and as a keyword; it is taken as it may be, or refused."""
    tried(lambda: load_settings(environ={setting.variable: value}), setting.name, "cluster_id")
    taken: Any = tried(lambda: load_settings({setting.name: value}, environ={}), setting.name, "cluster_id")
    if taken is not None and getattr(taken, setting.name) is not None:
        assert setting.allows(getattr(taken, setting.name))


def check_archive_setting(setting: Setting, value: Any) -> None:
    """The same for a setting of an archive."""
    needed = {"control_channel": "aeron:udp?endpoint=a:1", "replication_channel": "aeron:udp?endpoint=a:0"}
    needed.pop(setting.name, None)
    tried(lambda: load_archive_settings(needed, environ={setting.variable: value}), setting.name)
    taken: Any = tried(lambda: load_archive_settings({**needed, setting.name: value}, environ={}), setting.name)
    if taken is not None and getattr(taken, setting.name) is not None:
        assert setting.allows(getattr(taken, setting.name))


def check_context(name: str, value: Any) -> None:
    """Try the value as an argument of a context."""
    tried(lambda: Context(RecordingService(), environ={}, **{name: value}).settings, name)


@pytest.mark.parametrize("setting", TABLE.values(), ids=list(TABLE))
@given(value=VALUES)
@relaxed
def test_any_value_of_a_setting(setting: Setting, value: object) -> None:
    check_setting(setting, value)


@pytest.mark.parametrize("setting", TABLE.values(), ids=list(TABLE))
def test_each_odd_value_of_a_setting(setting: Setting, tmp_path: Path) -> None:
    name, file = setting.name, tmp_path / "c.toml"
    for value in ODD:
        check_setting(setting, value)
        check_context(name, value)
        if isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value):
            file.write_text(f"{name} = {json.dumps(value)}\n")
            tried(
                lambda: load_settings(config_file=file, environ={}), name, "is not TOML", "is longer than 65536 bytes"
            )


@pytest.mark.parametrize("setting", ARCHIVE_TABLE.values(), ids=list(ARCHIVE_TABLE))
@given(value=VALUES)
@relaxed
def test_any_value_of_a_setting_of_an_archive(setting: Setting, value: object) -> None:
    check_archive_setting(setting, value)


@pytest.mark.parametrize("setting", ARCHIVE_TABLE.values(), ids=list(ARCHIVE_TABLE))
def test_each_odd_value_of_a_setting_of_an_archive(setting: Setting) -> None:
    for value in ODD:
        check_archive_setting(setting, value)


@pytest.mark.parametrize(
    "content",
    [
        "[" * 10_000,
        "service_id = " + "[" * 10_000 + "]" * 10_000,
        "a." * 3_000 + "b = 1",
        f"service_id = {DIGITS}",
        "service_id = 1979-05-27T07:32:00Z",
        "service_id = nan",
        "service_id = {a = 1}",
        '"" = 1',
        "\0",
        f'"{"x" * 10_000}" = 1',
        "\n".join(f"unknown_{index} = 1" for index in range(10_000)),
    ],
    ids=lambda content: content[:20],
)
def test_any_content_of_a_file_is_refused_with_the_file(content: str, tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(content)
    with pytest.raises(ConfigurationError) as caught:
        load_settings(config_file=file, environ={})
    assert str(file) in str(caught.value)
    assert len(str(caught.value)) < 3_000


def test_a_file_that_cannot_be_one_of_settings_is_refused(tmp_path: Path) -> None:
    large = tmp_path / "large.toml"
    large.write_bytes(b"#" * 2_000_000)
    odd: list[Any] = [tmp_path, large, "/dev/zero", tmp_path / "none", *ODD_VALUES]
    for file in [*odd, *(text for text in ODD_TEXTS if text.strip())]:
        with pytest.raises(ConfigurationError):
            load_settings(config_file=file, environ={})
    with pytest.raises(ConfigurationError, match="AERON_CLUSTER_CONFIG_FILE='.udcff': must be the path"):
        load_settings(environ={"AERON_CLUSTER_CONFIG_FILE": "\udcff"})


@pytest.mark.parametrize("key", [5, None, b"service_id", ("a",), "\ud800", "x" * 100_000, Hostile.__repr__])
def test_a_key_that_is_no_setting_is_refused(key: Any) -> None:
    with pytest.raises(ConfigurationError, match="unknown setting"):
        load_settings({key: 1}, environ={})


@pytest.mark.parametrize(
    "name",
    ["environ", "error_handler", "app_version_validator", "termination_hook", "client", "clock", "snapshot_store",
     "mark_file", "storage"],
)  # fmt: skip
@pytest.mark.parametrize("value", [5, Hostile()], ids=["int", "hostile"])
def test_objects_of_a_context_are_checked(name: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name}=(5|<Hostile>): must be"):
        Context(RecordingService(), **{name: value})  # type: ignore[arg-type]


def test_a_directory_may_be_deep(tmp_path: Path) -> None:
    from container.common.directories import created_directory

    deep = str(tmp_path) + "/a" * 1_500
    assert created_directory("cluster_dir", deep) == os.path.realpath(deep)
    with pytest.raises(ConfigurationError, match=r"^cluster_dir=.*File name too long"):
        created_directory("cluster_dir", str(tmp_path / ("x" * 300)))


CLIENT: dict[str, Any] = {"ingress_channel": "aeron:udp", "egress_channel": "aeron:ipc"}
CLIENT_NAMES = list(ClientContext.__dataclass_fields__)


def check_client_setting(name: str, value: Any) -> None:
    """Try the value as a keyword and, if there is one, as the environment's variable."""
    context: Any = tried(lambda: ClientContext(**(CLIENT | {name: value})), name)
    if context is not None:
        assert 0 <= context.message_timeout_ns < 2**62
        assert 0 <= context.keep_alive_interval_ns < 2**62
    variable = _VARIABLES[name][0] if name in _VARIABLES else ""
    others = {key: each for key, each in CLIENT.items() if key != name}
    tried(lambda: ClientContext.from_environment({variable: value}, **others), variable, name)


@pytest.mark.parametrize("name", CLIENT_NAMES)
@given(value=VALUES)
@relaxed
def test_any_value_of_a_clients_setting(name: str, value: object) -> None:
    check_client_setting(name, value)


@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_each_odd_value_of_a_clients_setting(name: str) -> None:
    for value in ODD:
        check_client_setting(name, value)


def test_an_unknown_setting_of_a_client_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="unknown setting 'egress'"):
        ClientContext.from_environment({}, egress=1)  # type: ignore[call-arg]


def test_a_value_that_is_nested_too_deep_is_refused_everywhere() -> None:
    for setting in ("cluster_id", "cluster_dir", "control_channel", "idle_strategy"):
        check_setting(TABLE[setting], DEEP)
        check_context(setting, DEEP)
    check_archive_setting(ARCHIVE_TABLE["control_channel"], DEEP)
    check_client_setting("message_timeout", DEEP)
    for parse in PARSERS:
        tried(lambda parse=parse: parse(DEEP))  # type: ignore[misc]
    with pytest.raises(ConfigurationError):
        load_settings(config_file=DEEP, environ={})  # type: ignore[arg-type]


PARSERS: list[Callable[[Any], object]] = [
    parse_idle_strategy,
    parse_duration_ns,
    parse_version,
    parse_ingress_endpoints,
    ChannelUri.parse,
    SleepingIdleStrategy,
    BackoffIdleStrategy,
    lambda value: BackoffIdleStrategy(1, 1, 1, value),
    lambda value: compose_version(1, value, 1),
    lambda value: load_object(value, "setting"),
]


@pytest.mark.parametrize("index", range(len(PARSERS)))
@given(value=VALUES)
@relaxed
def test_any_value_of_a_parser(index: int, value: object) -> None:
    tried(lambda: PARSERS[index](value))


@pytest.mark.parametrize("index", range(len(PARSERS)))
def test_each_odd_value_of_a_parser(index: int) -> None:
    for value in ODD:
        tried(lambda value=value: PARSERS[index](value))  # type: ignore[misc]


def check_argument(text: str) -> None:
    """Try the text as each type of the command line's arguments."""
    for kind in (number(0), number(1, 10), seconds, path):
        try:
            value: Any = kind(text)
        except argparse.ArgumentTypeError as error:
            assert len(str(error)) < 300  # noqa: PT017 - a valid text is not a failure
        else:
            assert isinstance(value, Path) or 0 <= value <= 2**63 - 1


@given(text=TEXTS)
@relaxed
def test_any_argument_of_the_command_line(text: str) -> None:
    check_argument(text)


def test_each_odd_argument_of_the_command_line() -> None:
    for text in ODD_TEXTS:
        check_argument(text)


def check_option(name: str, value: Any) -> None:
    """Try the value as this option of the Spark source."""
    options = pytest.importorskip("container.spark.options")
    parsed: Any = tried(lambda: options.parse_options({"path": "/a", name: value}), shown(name).strip("'"))
    assert parsed is None or all(is_path(directory) for directory in parsed.paths)


OPTION_NAMES = ["path", "paths", "archive_dir", "view", "mode", "decoder", "columns", "batch_rows",
                "max_bytes_per_batch", "committed_only"]  # fmt: skip


@pytest.mark.parametrize("name", OPTION_NAMES)
@given(value=TEXTS)
@relaxed
def test_any_option_of_the_spark_source(name: str, value: str) -> None:
    check_option(name, value)


@pytest.mark.parametrize("name", OPTION_NAMES)
def test_each_odd_option_of_the_spark_source(name: str) -> None:
    for value in ODD:
        check_option(name, value)


def test_an_option_of_an_odd_name_is_refused() -> None:
    options = pytest.importorskip("container.spark.options")
    odd_names: list[Any] = [*ODD_TEXTS, 5, None, b"path", 10**5_000]
    for name in odd_names:
        with pytest.raises(ConfigurationError, match="^option ") as refused:
            options.parse_options({"path": "/a", name: "1"})
        assert len(str(refused.value)) < 500


@given(value=VALUES)
@relaxed
def test_any_value_can_be_shown(value: object) -> None:
    text = shown(value)
    assert len(text) <= 80
    assert "\n" not in text
    text.encode()


def test_each_odd_value_can_be_shown() -> None:
    for value in [*ODD, DEEP]:
        assert len(shown(value)) <= 80
        shown(value).encode()


@given(value=st.integers())
@relaxed
def test_a_whole_number_is_what_its_digits_say_or_out_of_every_range(value: int) -> None:
    if -(10**19) < value < 10**19:
        assert whole_number(str(value)) == value
    else:
        assert whole_number(str(value)) in (2**64, -(2**64))


def test_what_is_counted_agrees_with_its_number() -> None:
    assert [counted(number, "fault") for number in (0, 1, 2, 2_000)] == [
        "0 faults",
        "1 fault",
        "2 faults",
        "2,000 faults",
    ]
    assert [counted(number, "entry", "entries") for number in (1, 2)] == ["1 entry", "2 entries"]
