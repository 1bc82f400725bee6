"""The command line's arguments: types that refuse what cannot be, before anything starts; an option per setting."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from container.common.loggers import FORMAT_VARIABLE, LEVEL_VARIABLE, LOG_FORMATS, LOG_LEVELS, choice
from container.common.values import is_path, shown, whole_number
from container.errors import ConfigurationError
from container.settings.setting import Setting
from container.settings.sources import parse_text

_MAX_S = 1_000_000_000


def number(least: int, most: int = 2**63 - 1) -> Callable[[str], int]:
    """A whole number in this range."""

    def parse(text: str) -> int:
        value = whole_number(text.strip())
        if value is None or not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{shown(text)}: must be a whole number from {least} to {most}")
        return value

    return parse


def seconds(text: str) -> float:
    """A time in seconds, more than 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= _MAX_S:  # nor is NaN
        raise argparse.ArgumentTypeError(f"{shown(text)}: must be a number of seconds, more than 0 and up to {_MAX_S}")
    return value


def path(text: str) -> Path:
    """The path of a file or directory."""
    if not is_path(text):
        raise argparse.ArgumentTypeError(f"{shown(text)}: must be a path in UTF-8, without NUL")
    return Path(text)


def add_log_level(
    parser: argparse.ArgumentParser,
    default: str = "info",
    about: str = "least severe level that is logged to standard error",
) -> None:
    """Add the options ``--log-level`` and ``--log-format``."""
    level = choice(LEVEL_VARIABLE, LOG_LEVELS, default)
    parser.add_argument(
        "--log-level", choices=LOG_LEVELS, default=level, help=f"{about} (default: {default}) [{LEVEL_VARIABLE}]"
    )
    parser.add_argument(
        "--log-format",
        choices=LOG_FORMATS,
        default=choice(FORMAT_VARIABLE, LOG_FORMATS, "text"),
        help=f"text for people, or a line of JSON for each record (default: text) [{FORMAT_VARIABLE}]",
    )


def add_config(parser: argparse.ArgumentParser, variable: str) -> None:
    """Add the option ``--config``, and ``--properties`` as another name of it."""
    parser.add_argument(
        *("--config", "--properties"),
        dest="config",
        metavar="FILE",
        help="file with settings: TOML, by our names or by those of Aeron's properties, or one of Java's, whose name "
        f"ends with .properties [{variable}]",
    )


def add_settings(
    parser: argparse.ArgumentParser, table: Mapping[str, Setting], *, without: Collection[str] = ()
) -> None:
    """Add an option for each setting of the table, except those in ``without``; None stands for one not given."""

    def value(setting: Setting, text: str) -> Any:
        try:
            return parse_text(setting, text)
        except ConfigurationError as error:
            raise argparse.ArgumentTypeError(f"{shown(text)}: {error}") from None

    group = parser.add_argument_group("settings")
    for setting in table.values():
        if setting.name in without:
            continue
        default = f" Default: {setting.default.replace('`', '')}." if setting.default else ""
        about = f"{setting.doc} Allowed: {setting.allowed}.{default} [{setting.variable}]".replace("%", "%%")
        option = "--" + setting.name.replace("_", "-")
        if setting.is_flag:
            group.add_argument(option, action=argparse.BooleanOptionalAction, default=None, help=about)
        else:
            group.add_argument(
                option, type=partial(value, setting), metavar=setting.unit.upper() or "VALUE", help=about
            )
