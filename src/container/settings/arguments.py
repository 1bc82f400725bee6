"""The command line's arguments: types that refuse what cannot be, before anything starts; an option per setting."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from container.common.values import is_path, shown, whole_number
from container.errors import ConfigurationError
from container.settings.setting import Setting
from container.settings.sources import parse_text

_MAX_S = 1_000_000_000
_LOG_LEVELS = ("debug", "info", "warning", "error", "critical")


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
    parser: argparse.ArgumentParser, default: str = "info", about: str = "what is logged to standard error"
) -> None:
    """Add the option ``--log-level``."""
    parser.add_argument("--log-level", choices=_LOG_LEVELS, default=default, help=f"{about} (default: {default})")


def add_settings(
    parser: argparse.ArgumentParser, table: Mapping[str, Setting], *, without: Collection[str] = ()
) -> None:
    """Add an option for each setting of the table, but for those of these names; None stands for one not given."""

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
