"""Finds a class or an object by a text such as ``package.module:Name``."""

from __future__ import annotations

import importlib

from container.errors import ConfigurationError
from container.type_names import Any


def load_object(path: str, setting: str) -> Any:
    """What ``package.module:Name`` names; ``Name`` may have dots.

    Args:
        path: the text.
        setting: where it comes from, for the error.

    Raises:
        ConfigurationError: the text has another form, the module can't be imported, or has no such name.
    """
    module_name, colon, names = path.partition(":")
    if not colon or not module_name or not names:
        raise ConfigurationError(f"{setting}={path!r}: must be package.module:Name")
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        raise ConfigurationError(
            f"{setting}={path!r}: module {module_name} can not be imported: {type(error).__name__}: {error}"
        ) from error
    for name in names.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise ConfigurationError(f"{setting}={path!r}: {module_name} has no {names}") from None
    return found


def create_object(path: str, setting: str) -> Any:
    """A new instance of the class that ``path`` names, made without arguments, or the object itself if it is none.

    Raises ConfigurationError as :func:`load_object`, and when the class can't be instantiated.
    """
    found = load_object(path, setting)
    if not isinstance(found, type):
        return found
    try:
        return found()
    except Exception as error:
        raise ConfigurationError(
            f"{setting}={path!r}: {found.__qualname__}() failed: {type(error).__name__}: {error}"
        ) from error
