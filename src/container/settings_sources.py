"""Where the values of settings come from: keyword arguments, environment variables, a TOML file, the defaults.

They count in this order. Everything is validated at once, and every bad value is named with what is allowed.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from container.channel_uri import ChannelUri
from container.errors import ConfigurationError
from container.idle_strategy import parse_duration_ns, parse_idle_strategy, parse_quantity
from container.semantic_version import parse_version
from container.settings import Setting, Settings, settings_table
from container.type_names import Any

CONFIG_FILE_VARIABLE = "AERON_CLUSTER_CONFIG_FILE"

_SIZE_FACTORS = {"k": 1024, "m": 1024**2, "g": 1024**3, "": 1}
_NS_PER_MS = 1_000_000
_FILE_LENGTH_MAX = 1024 * 1024


class Given:
    """A value as it was given, and where."""

    def __init__(self, value: object, source: str, is_text: bool) -> None:
        self.value = value
        self.source = source
        self.is_text = is_text
        """True when it can only be text, whatever its type should be, as in the environment."""


def collect_settings(
    keywords: Mapping[str, object],
    *,
    config_file: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> dict[str, Given]:
    """The values that are given for settings, each from the first of its sources, not validated.

    Args:
        keywords: by the settings' names; None counts as not given.
        config_file: TOML file; by default the one that AERON_CLUSTER_CONFIG_FILE names, if it does.
        environ: the environment; the process's by default. A variable that is empty counts as not given.

    Raises:
        ConfigurationError: unknown setting, or a file that can not be read.
    """
    environ = os.environ if environ is None else environ
    _refuse_unknown(keywords, "")
    path = config_file or environ.get(CONFIG_FILE_VARIABLE)
    given = _read_file(path) if path else {}
    for name, setting in settings_table().items():
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


def validate_settings(given: Mapping[str, Given]) -> Settings:
    """The settings, with defaults where nothing is given.

    Raises ConfigurationError that says, for each bad value, its name, the value, where it came from, and what is
    allowed.
    """
    values: dict[str, Any] = {}
    problems: list[str] = []
    for name, each in given.items():
        setting = settings_table()[name]
        try:
            values[name] = _convert(setting, each.value, each.is_text)
        except ConfigurationError as error:
            problems.append(f"{name}={_shown(each.value)}{each.source}: {error}")
    if problems:
        raise ConfigurationError("; ".join(problems))
    settings = Settings(**values)
    _check_response_stream_id(settings)
    return settings


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
        digits = text[1:] if text.startswith(("+", "-")) else text
        if setting.is_flag or not digits.isdecimal():
            raise ConfigurationError(f"must be {setting.allowed}")
        return int(text)
    return text


def _convert(setting: Setting, value: Any, is_text: bool) -> Any:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if is_text and setting.name == "driver_timeout_ms" and not str(value).isdecimal():
        # The C client would refuse it, whatever is set later.
        raise ConfigurationError("must be a plain number of milliseconds, as Aeron's C client reads this variable, too")
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
            return int(text) if text.isdecimal() else _whole_ms(parse_duration_ns(text))
        return parse_duration_ns(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"must be {setting.allowed}: {error}") from None


def _parse_size(text: str) -> int:
    size = parse_quantity(text, _SIZE_FACTORS)
    if size is None:
        raise ConfigurationError(f"not a size: {text!r}; write a number and, if you like, one of k, m, g")
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


def _read_file(path: str | os.PathLike[str]) -> dict[str, Given]:
    import tomllib  # most containers have no such file
    from pathlib import Path

    try:
        with Path(path).open("rb") as file:  # a pipe, too: a shell makes one of what a command prints
            content = file.read(_FILE_LENGTH_MAX + 1)
        if len(content) > _FILE_LENGTH_MAX:
            raise ConfigurationError(f"config file {path} is longer than {_FILE_LENGTH_MAX} bytes")
        values = tomllib.loads(content.decode("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"config file {path} can not be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"config file {path} is not TOML: {error}") from error
    _refuse_unknown(values, f" in config file {path}")
    return {name: Given(value, f" from {path}", False) for name, value in values.items()}


def _refuse_unknown(names: Collection[str], where: str) -> None:
    unknown = [name for name in names if name not in settings_table()]
    if unknown:
        raise ConfigurationError("; ".join(f"unknown setting {name!r}{where}{_suggestion(name)}" for name in unknown))


def _suggestion(name: str) -> str:
    import difflib

    matches = difflib.get_close_matches(name.lower().replace("-", "_"), settings_table(), n=1)
    return f": did you mean {matches[0]!r}?" if matches else ": see docs/settings.md"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
