"""Sources of settings: keyword arguments, environment variables, a TOML file, the defaults.

They count in this order. Everything is validated at once, and every bad value is named with what is allowed.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, cast

from container.common.channel_uri import ChannelUri
from container.common.semantic_version import parse_version
from container.common.values import is_path, shown, shown_path, suggestion, whole_number
from container.errors import ConfigurationError
from container.settings.archive_table import ArchiveSettings, archive_settings_table
from container.settings.consensus_module_table import ConsensusModuleSettings, consensus_module_settings_table
from container.settings.driver_table import driver_settings_table
from container.settings.setting import Setting
from container.settings.table import Settings, settings_table
from container.transport.idle_strategy import parse_duration_ns, parse_idle_strategy, parse_quantity

CONFIG_FILE_VARIABLE = "AERON_CLUSTER_CONFIG_FILE"
ARCHIVE_CONFIG_FILE_VARIABLE = "AERON_ARCHIVE_CONFIG_FILE"
CONSENSUS_MODULE_CONFIG_FILE_VARIABLE = "AERON_CLUSTER_CONSENSUS_MODULE_CONFIG_FILE"

_SIZE_FACTORS = {"k": 1024, "m": 1024**2, "g": 1024**3, "": 1}
_NS_PER_MS = 1_000_000
_FILE_LENGTH_MAX = 1024 * 1024
_UNKNOWN_SHOWN = 10


@dataclass(frozen=True)
class Given:
    """A value as it was given, and where."""

    value: object
    source: str
    is_text: bool
    """True when it can only be text, whatever its type should be, as in the environment."""


def collect_settings(
    keywords: Mapping[str, object],
    *,
    config_file: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    objects: Collection[str] = (),
    table: Mapping[str, Setting] | None = None,
    config_file_variable: str = CONFIG_FILE_VARIABLE,
) -> dict[str, Given]:
    """The values that are given for settings, each from the first of its sources, not validated.

    Args:
        keywords: by the settings' names; None counts as not given.
        config_file: TOML file; by default the one that ``config_file_variable`` names, if it does.
        environ: the environment; the process's by default. A variable that is empty counts as not given.
        objects: names of what the caller takes beside settings, any of which an unknown name may have been meant for.
        table: the settings; a container's by default.
        config_file_variable: what names the file when ``config_file`` does not.

    Raises:
        ConfigurationError: unknown setting, a file that cannot be read, or an environment that is no mapping.
    """
    environ = os.environ if environ is None else environ
    if not isinstance(environ, Mapping):
        raise ConfigurationError(f"environ={shown(environ)}: must be a mapping of strings, such as os.environ")
    table = settings_table() if table is None else table
    _refuse_unknown(keywords, "", [*table, *objects], table)
    path, source = config_file, "config_file"
    if path is None or (isinstance(path, str) and not path):
        path, source = environ.get(config_file_variable) or None, config_file_variable
    given = {} if path is None else _read_file(path, source, table)
    for name, setting in table.items():
        if keywords.get(name) is not None:
            given[name] = Given(keywords[name], "", False)
        elif environ.get(setting.variable):
            given[name] = Given(environ[setting.variable], f" from {setting.variable}", True)
    return given


def load_settings(
    keywords: Mapping[str, object] | None = None,
    *,
    config_file: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Collect and validate the settings; arguments and errors as for the two functions that it calls."""
    return validate_settings(collect_settings(keywords or {}, config_file=config_file, environ=environ))


def load_archive_settings(
    keywords: Mapping[str, object] | None = None,
    *,
    config_file: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> ArchiveSettings:
    """The settings of an archive, collected as :func:`collect_settings` does and validated.

    AERON_ARCHIVE_CONFIG_FILE names the file by default. Raises ConfigurationError as the two others do.
    """
    return validate_archive_settings(
        collect_settings(
            keywords or {},
            config_file=config_file,
            environ=environ,
            table=archive_settings_table(),
            config_file_variable=ARCHIVE_CONFIG_FILE_VARIABLE,
        )
    )


def load_consensus_module_settings(
    keywords: Mapping[str, object] | None = None,
    *,
    config_file: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> ConsensusModuleSettings:
    """The settings of a consensus module, collected as :func:`collect_settings` does and validated.

    AERON_CLUSTER_CONSENSUS_MODULE_CONFIG_FILE names the file by default. Raises ConfigurationError as the two others.
    """
    return validate_consensus_module_settings(
        collect_settings(
            keywords or {},
            config_file=config_file,
            environ=environ,
            table=consensus_module_settings_table(),
            config_file_variable=CONSENSUS_MODULE_CONFIG_FILE_VARIABLE,
        )
    )


def validate_settings(given: Mapping[str, Given]) -> Settings:
    """The settings, with defaults where nothing is given.

    Raises ConfigurationError that says, for each bad value, its name, the value, where it came from, and what is
    allowed.
    """
    settings = Settings(**_validated(given, settings_table()))
    _check_response_stream_id(settings)
    return settings


def validate_archive_settings(given: Mapping[str, Given]) -> ArchiveSettings:
    """The settings of an archive, with defaults where nothing is given; raises as :func:`validate_settings`."""
    settings = ArchiveSettings(**_validated(given, archive_settings_table()))
    settings.check()
    return settings


def validate_consensus_module_settings(given: Mapping[str, Given]) -> ConsensusModuleSettings:
    """The settings of a consensus module, with defaults where nothing is given; raises as :func:`validate_settings`."""
    settings = ConsensusModuleSettings(**_validated(given, consensus_module_settings_table()))
    settings.check()
    return settings


def validate_driver_settings(given: Mapping[str, object]) -> dict[str, Any]:
    """What is given of the settings of a node's media driver, validated; None counts as not given.

    Raises ConfigurationError for an unknown name, and as :func:`validate_settings`.
    """
    table = driver_settings_table()
    _refuse_unknown(given, "", table, table)
    return _validated({name: Given(value, "", False) for name, value in given.items() if value is not None}, table)


def _validated(given: Mapping[str, Given], table: Mapping[str, Setting]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    problems: list[str] = []
    for name, each in given.items():
        setting = table[name]
        try:
            values[name] = _convert(setting, each.value, each.is_text)
        except ConfigurationError as error:
            problems.append(f"{name}={shown(each.value)}{each.source}: {error}")
        except Exception:  # of an object that raises when it is compared or converted
            problems.append(f"{name}={shown(each.value)}{each.source}: must be {setting.allowed}")
    if problems:
        raise ConfigurationError("; ".join(problems))
    return values


def parse_text(setting: Setting, text: str) -> Any:
    """The value that a text from the environment or the command line stands for; its range is not checked here.

    Raises ConfigurationError, with what is allowed, when it stands for none.
    """
    text = text.strip()
    if setting.is_flag and text in ("true", "false"):
        return text == "true"
    if setting.unit:
        return _parse_quantity(setting, text)
    if setting.is_number or setting.is_flag:
        number = whole_number(text)
        if setting.is_flag or number is None:
            raise ConfigurationError(f"must be {setting.allowed}")
        return number
    return text


def _convert(setting: Setting, value: Any, is_text: bool) -> Any:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if is_text and setting.name == "driver_timeout_ms" and not (str(value).isascii() and str(value).isdigit()):
        # The C client would refuse it, whatever is set later.
        raise ConfigurationError("must be a plain number of milliseconds, as Aeron's C client also reads this variable")
    if isinstance(value, str) and (is_text or setting.unit):
        value = parse_text(setting, value)
    if not setting.allows(value):
        raise ConfigurationError(f"must be {setting.allowed}")
    if setting.name == "idle_strategy":
        parse_idle_strategy(value)
    elif setting.name.endswith("_channel"):
        ChannelUri.parse(value)
    return value


def _parse_quantity(setting: Setting, text: str) -> int:
    try:
        if setting.unit == "version":
            return parse_version(text)
        if setting.unit == "bytes":
            return _parse_size(text)
        if setting.unit == "ms":
            number = whole_number(text)
            return _whole_ms(parse_duration_ns(text)) if number is None else number
        return parse_duration_ns(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"must be {setting.allowed}: {error}") from None


def _parse_size(text: str) -> int:
    size = parse_quantity(text, _SIZE_FACTORS)
    if size is None:
        raise ConfigurationError(f"not a size: {shown(text)}; write a number and, if you like, one of k, m, g")
    return size


def _whole_ms(duration_ns: int) -> int:
    if duration_ns % _NS_PER_MS:
        raise ConfigurationError(f"{duration_ns}ns is not a whole number of milliseconds")
    return duration_ns // _NS_PER_MS


def _check_response_stream_id(settings: Settings) -> None:
    """The one rule that is about several settings."""
    stream_id = settings.cluster_id * 100 + 100 + settings.archive_response_stream_id + settings.service_id + 1
    if not -(2**31) <= stream_id < 2**31:
        raise ConfigurationError(
            f"archive_response_stream_id={settings.archive_response_stream_id} with cluster_id={settings.cluster_id}: "
            f"cluster_id * 100 + 100 + archive_response_stream_id + service_id + 1 must be from {-(2**31)} to "
            f"{2**31 - 1}, not {stream_id}"
        )


def _read_file(given_path: object, source: str, table: Mapping[str, Setting]) -> dict[str, Given]:
    values = read_toml(given_path, source)
    path = os.fspath(cast("str | os.PathLike[str]", given_path))
    _refuse_unknown(values, f" in config file {path}", table, table)
    return {name: Given(value, f" from {path}", False) for name, value in values.items()}


def read_toml(given_path: object, source: str) -> dict[str, Any]:
    """What a TOML file holds.

    Args:
        given_path: its path (str or os.PathLike).
        source: what gave the path, for the error.

    Raises:
        ConfigurationError: it is no path, cannot be read, is too long, or no TOML.
    """
    try:
        path = os.fspath(given_path) if isinstance(given_path, os.PathLike) else given_path
    except Exception:
        path = None
    if not isinstance(path, str) or not is_path(path):
        raise ConfigurationError(f"{source}={shown(given_path)}: must be the path of a TOML file in UTF-8, without NUL")
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a pipe as well: a shell makes one of what a command prints
            content = file.read(_FILE_LENGTH_MAX + 1)
    except OSError as error:
        raise ConfigurationError(f"config file {shown_path(path)[1:-1]} cannot be read: {error.strerror}") from error
    if len(content) > _FILE_LENGTH_MAX:
        raise ConfigurationError(f"config file {path} is longer than {_FILE_LENGTH_MAX} bytes")
    try:
        return tomllib.loads(content.decode())
    except RecursionError:
        raise ConfigurationError(f"config file {path} is not TOML: its values are nested too deep") from None
    except ValueError as error:  # also a number of too many digits, and what is not UTF-8
        raise ConfigurationError(f"config file {path} is not TOML: {error}") from error


def _refuse_unknown(
    names: Collection[object], where: str, known: Collection[str], table: Mapping[str, Setting]
) -> None:
    unknown = [name for name in names if not isinstance(name, str) or name not in table]
    if unknown:
        texts = [
            f"unknown setting {shown(name)}{where}: {suggestion(name, known, 'docs/settings.md')}"
            for name in unknown[:_UNKNOWN_SHOWN]
        ]
        more = [f"and {len(unknown) - _UNKNOWN_SHOWN} more"] if len(unknown) > _UNKNOWN_SHOWN else []
        raise ConfigurationError("; ".join(texts + more))
