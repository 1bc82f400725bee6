"""Sources of settings: keyword arguments, environment variables, a config file (TOML or .properties), the defaults.

They count in this order. Everything is validated at once, and every bad value is named with what is allowed.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from container.common.channel_uri import ChannelUri
from container.common.loggers import report
from container.common.quantities import SIZE_FACTORS
from container.common.semantic_version import parse_version
from container.common.values import is_path, shown, shown_path, suggestion, whole_number
from container.errors import ConfigurationError
from container.settings.archive_table import ArchiveSettings, archive_settings_table
from container.settings.backup_table import BackupSettings, backup_settings_table
from container.settings.consensus_module_table import ConsensusModuleSettings, consensus_module_settings_table
from container.settings.container_table import Settings, settings_table
from container.settings.driver_table import driver_settings_table
from container.settings.property_files import parse_properties
from container.settings.setting import Setting
from container.transport.idle_strategy import parse_duration_ns, parse_idle_strategy, parse_quantity

CONFIG_FILE_VARIABLE = "AERON_CLUSTER_CONFIG_FILE"
ARCHIVE_CONFIG_FILE_VARIABLE = "AERON_ARCHIVE_CONFIG_FILE"
CONSENSUS_MODULE_CONFIG_FILE_VARIABLE = "AERON_CLUSTER_CONSENSUS_MODULE_CONFIG_FILE"
BACKUP_CONFIG_FILE_VARIABLE = "AERON_CLUSTER_BACKUP_CONFIG_FILE"

_OWN_VARIABLES = (
    CONFIG_FILE_VARIABLE,
    ARCHIVE_CONFIG_FILE_VARIABLE,
    CONSENSUS_MODULE_CONFIG_FILE_VARIABLE,
    BACKUP_CONFIG_FILE_VARIABLE,
    "AERON_CLUSTER_LOG_FORMAT",
    "AERON_CLUSTER_LOG_LEVEL",
)
_VARIABLE_PREFIXES = ("AERON_CLUSTER_", "AERON_ARCHIVE_")
_PROPERTY_PREFIXES = ("aeron.", "cluster.")
_AGENT_PREFIX = "aeron.event."  # of Java's agent, which logs events: no part of a node reads them
_IDLE_STRATEGY_CLASSES = {
    "org.agrona.concurrent.BackoffIdleStrategy": "backoff",
    "org.agrona.concurrent.BusySpinIdleStrategy": "busy_spin",
    "org.agrona.concurrent.NoOpIdleStrategy": "noop",
    "org.agrona.concurrent.SleepingIdleStrategy": "sleep-ns",
    "org.agrona.concurrent.SleepingMillisIdleStrategy": "sleep-ms",
    "org.agrona.concurrent.YieldingIdleStrategy": "yield",
}
_FROM_JAVA = "docs/from-java.md"
_SETTINGS_PAGE = "docs/settings.md"
_NAME_LENGTH_MAX = 200
_NS_PER_MS = 1_000_000
_FILE_LENGTH_MAX = 64 * 1024
_NAME_PARTS_MAX = 16
_UNKNOWN_SHOWN = 10
# Python's reader of TOML takes a minute for a name of some ten thousand parts, and ever more for longer ones.
_NAME_PART = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"?|'[^'\n]*+'?)"""
_NAME_PARTS = re.compile(rf"(?:{_NAME_PART}[ \t]*+\.[ \t]*+)++|{_NAME_PART}")

_warned: set[str] = set()
"""Names that were warned about, each once in a process."""


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
        config_file: TOML or ``.properties`` file; by default the one that ``config_file_variable`` names, if it does.
        environ: the environment; the process's by default. A variable that is empty counts as not given.
        objects: names of what the caller takes beside settings, any of which an unknown name may have been meant for.
        table: the settings; a container's by default.
        config_file_variable: what names the file when ``config_file`` does not.

    Raises:
        ConfigurationError: unknown setting, a file that cannot be read, or an environment that is not a mapping.
    """
    environ = os.environ if environ is None else environ
    if not isinstance(environ, Mapping):
        raise ConfigurationError(f"environ={shown(environ)}: must be a mapping of strings, such as os.environ")
    table = settings_table() if table is None else table
    warn_of_unknown_variables(environ)
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


def load_backup_settings(
    keywords: Mapping[str, object] | None = None,
    *,
    config_file: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> BackupSettings:
    """The settings of a backup, collected as :func:`collect_settings` does and validated.

    AERON_CLUSTER_BACKUP_CONFIG_FILE names the file by default. Raises ConfigurationError as the two others.
    """
    return validate_backup_settings(
        collect_settings(
            keywords or {},
            config_file=config_file,
            environ=environ,
            table=backup_settings_table(),
            config_file_variable=BACKUP_CONFIG_FILE_VARIABLE,
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


def validate_backup_settings(given: Mapping[str, Given]) -> BackupSettings:
    """The settings of a backup, with defaults where nothing is given; raises as :func:`validate_settings`."""
    settings = BackupSettings(**_validated(given, backup_settings_table()))
    settings.check()
    return settings


def validate_driver_settings(given: Mapping[str, object]) -> dict[str, Any]:
    """The given settings of a node's media driver, validated; None counts as not given.

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
        raise ConfigurationError("must be a plain number of milliseconds, as Aeron's own clients also read it")
    if isinstance(value, str) and (is_text or setting.unit):
        value = parse_text(setting, value)
    if not setting.allows(value):
        raise ConfigurationError(f"must be {setting.allowed}")
    if setting.name == "idle_strategy":
        value = _IDLE_STRATEGY_CLASSES.get(value, value)
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
    size = parse_quantity(text, SIZE_FACTORS)
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


def warn_of_unknown_variables(environ: Mapping[str, str]) -> None:
    """Log once each unknown variable that looks like one of the cluster or the archive, with the nearest name.

    If there are many, as Kubernetes makes for a service named ``aeron-cluster``, log only the first ones.
    """
    names = [name for name in environ if isinstance(name, str) and name.startswith(_VARIABLE_PREFIXES)]
    if not names or _warned.issuperset(names):
        return
    known = {_variable_of(each) for each in (*_own_properties(), *_java_properties())}.union(_OWN_VARIABLES)
    unknown = sorted(set(names) - known - _warned)
    _warned.update(unknown)
    for name in unknown[:_UNKNOWN_SHOWN]:
        import difflib

        nearest = difflib.get_close_matches(name[:_NAME_LENGTH_MAX], sorted(known), n=1)
        hint = f"did you mean {nearest[0]}?" if nearest else f"see {_SETTINGS_PAGE}"
        report("warning", "unknown variable %s has no effect: %s", shown(name)[1:-1], hint)
    if len(unknown) > _UNKNOWN_SHOWN:
        count = len(unknown) - _UNKNOWN_SHOWN
        report("warning", "%d more unknown variables have no effect: see %s", count, _SETTINGS_PAGE)


def _variable_of(name: str) -> str:
    return name.upper().replace(".", "_")


def _own_properties() -> set[str]:
    tables = (
        *(settings_table(), archive_settings_table(), consensus_module_settings_table(), driver_settings_table()),
        backup_settings_table(),
    )
    return {setting.property for table in tables for setting in table.values()}


def _java_properties() -> Collection[str]:
    from container.settings.java_properties import JAVA_PROPERTIES  # which most starts do not need

    return JAVA_PROPERTIES


def _read_file(given_path: object, source: str, table: Mapping[str, Setting]) -> dict[str, Given]:
    values, properties, path = read_config_file(given_path, source)
    _refuse_unknown(values, f" in config file {path}", table, table)
    given = {name: Given(value, f" from {path}", False) for name, value in values.items()}
    for name, each in settings_of_properties(properties, path, table).items():
        if name in given:
            raise ConfigurationError(
                f"{name} is in config file {path} twice: leave out {name} or {table[name].property}"
            )
        given[name] = each
    return given


def settings_of_properties(
    properties: Mapping[str, object], path: str, table: Mapping[str, Setting]
) -> dict[str, Given]:
    """The settings of this table that Aeron's own properties give, not validated.

    Properties of another part of a node are skipped; those without a meaning here are logged once.

    Raises ConfigurationError for a property that is not Aeron's, with the nearest name.
    """
    names = {setting.property: name for name, setting in table.items()}
    others = set(properties).difference(_own_properties())
    if others:
        known = {*_own_properties(), *_java_properties()}
        unknown = sorted(name for name in others - known if not name.startswith(_AGENT_PREFIX))
        _raise_unknown("property", unknown, f" in config file {path}", known, _FROM_JAVA)
        idle = sorted(others - _warned)
        if idle:
            _warned.update(idle)
            report(
                "warning", "config file %s: these have no effect here: %s: see %s", path, ", ".join(idle), _FROM_JAVA
            )
    return {
        names[each]: Given(value, f" from {each} in {path}", isinstance(value, str))
        for each, value in properties.items()
        if each in names
    }


def given_values(given: Mapping[str, Given], table: Mapping[str, Setting]) -> dict[str, Any]:
    """The values of what is given, validated one by one; raises as :func:`validate_settings`."""
    return _validated(given, table)


def read_config_file(given_path: object, source: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    """The contents of a config file: values by our names, values by the names of Aeron's properties, and its path.

    A file whose name ends with ``.properties`` is one of Java's; other programs' properties in it are skipped. In TOML
    a property is a quoted key, or nested tables: ``"aeron.cluster.dir"``, or ``dir`` in ``[aeron.cluster]``.

    Raises ConfigurationError when it is not a path, cannot be read, is too long, or not what its name says.
    """
    content, path = _read(given_path, source)
    if not path.endswith(".properties"):
        return *_split_properties(_parse_toml(content, path)), path
    try:
        found = parse_properties(content)
    except ValueError as error:
        raise ConfigurationError(f"config file {path}: {error}") from error
    own = {name: value for name, value in found.items() if "." not in name}
    if own:
        name = next(iter(own))
        raise ConfigurationError(
            f"config file {path}: {shown(name)} is not a property: write Aeron's name, such as aeron.cluster.dir"
        )
    return {}, {name: value for name, value in found.items() if name.startswith(_PROPERTY_PREFIXES)}, path


def _split_properties(values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values by our names, and those by Aeron's: whatever is below ``aeron``."""
    own: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    left = list(values.items())
    while left:
        name, value = left.pop()
        if not f"{name}.".startswith(_PROPERTY_PREFIXES):
            own[name] = value
        elif isinstance(value, dict) and len(name) < _NAME_LENGTH_MAX:
            left += [(f"{name}.{key}", each) for key, each in value.items()]
        elif name in properties:
            raise ConfigurationError(f"{name} is given twice: as a quoted key, and in nested tables")
        else:
            properties[name] = value
    return own, properties


def _read(given_path: object, source: str) -> tuple[bytes, str]:
    """The content of a config file, and its path."""
    try:
        path = os.fspath(given_path) if isinstance(given_path, os.PathLike) else given_path
    except Exception:
        path = None
    if not isinstance(path, str) or not is_path(path):
        raise ConfigurationError(
            f"{source}={shown(given_path)}: must be the path of a TOML or .properties file in UTF-8, without NUL"
        )
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a pipe as well: a shell makes one of what a command prints
            content = file.read(_FILE_LENGTH_MAX + 1)
    except OSError as error:
        raise ConfigurationError(f"config file {shown_path(path)[1:-1]} cannot be read: {error.strerror}") from error
    if len(content) > _FILE_LENGTH_MAX:
        raise ConfigurationError(f"config file {path} is longer than {_FILE_LENGTH_MAX} bytes")
    return content, path


def _parse_toml(content: bytes, path: str) -> dict[str, Any]:
    try:
        text = content.decode()
        _check_names(text, path)
        return tomllib.loads(text)
    except RecursionError:
        raise ConfigurationError(f"config file {path} is not TOML: its values are nested too deep") from None
    except ValueError as error:  # also a number of too many digits, and what is not UTF-8
        raise ConfigurationError(f"config file {path} is not TOML: {error}") from error


def _check_names(text: str, path: str) -> None:
    """Refuse TOML that has a name of very many parts."""
    for found in _NAME_PARTS.finditer(text):
        name = found[0]
        if name.count(".") >= _NAME_PARTS_MAX and len(re.findall(_NAME_PART, name)) >= _NAME_PARTS_MAX:
            text = shown(name)
            raise ConfigurationError(f"config file {path}: {text} has more than {_NAME_PARTS_MAX} parts: shorten it")


def _refuse_unknown(
    names: Collection[object], where: str, known: Collection[str], table: Mapping[str, Setting]
) -> None:
    unknown = [name for name in names if not isinstance(name, str) or name not in table]
    _raise_unknown("setting", unknown, where, known, _SETTINGS_PAGE)


def _raise_unknown(kind: str, unknown: list[Any], where: str, known: Collection[str], page: str) -> None:
    if unknown:
        texts = [
            f"unknown {kind} {shown(name)}{where}: {suggestion(name, known, page)}" for name in unknown[:_UNKNOWN_SHOWN]
        ]
        more = [f"and {len(unknown) - _UNKNOWN_SHOWN} more"] if len(unknown) > _UNKNOWN_SHOWN else []
        raise ConfigurationError("; ".join(texts + more))
