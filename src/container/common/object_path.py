"""Finds a class or an object by a path such as ``package.module:Name``."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from container.common.callbacks import misspelled, signature_text, takes
from container.common.error_texts import is_of_standard_library, message_of, shorten
from container.common.values import shown, suggestion
from container.errors import ConfigurationError

_MESSAGE_LENGTH = 500
_PATH_LENGTH = 200
_OURS = (__name__, "importlib")


def search_current_directory() -> None:
    """Let modules of the current directory be found, as ``python -m`` does; a console script has its own one there."""
    directory = str(Path.cwd())
    if directory not in sys.path:
        sys.path.insert(0, directory)


def load_object(path: str, setting: str) -> Any:
    """Return the object that ``package.module:Name`` names; ``Name`` may have dots.

    Args:
        path: the text.
        setting: where it comes from, for the error.

    Raises:
        ConfigurationError: the text has another form, the module can't be imported, or has no such name.
    """
    module_name, colon, names = path.partition(":") if isinstance(path, str) else ("", "", "")
    if not colon or not module_name or not names:
        module_name, dot, names = path.rpartition(".") if isinstance(path, str) else ("", "", "")
        likely = f": did you mean {shown(f'{module_name}:{names}')}?" if dot and not colon and names.istitle() else ""
        raise ConfigurationError(f"{setting}={shown(path)}: must be package.module:Name{likely}")
    _check_module_name(module_name, names, f"{setting}={shown(path)}")
    try:
        found: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # SystemExit of a module that is a script
        hint = _import_hint(module_name, error) if isinstance(error, ModuleNotFoundError) else ""
        raise ConfigurationError(
            f"{setting}={shown(path)}: module {shown(module_name)[1:-1]} cannot be imported: "
            f"{type(error).__name__}: {_plain(error)}{place_of(error)}{hint}"
        ) from error
    for name in names.split("."):
        try:
            found = getattr(found, name)
        except Exception:  # also for a name that is not UTF-8
            raise ConfigurationError(
                f"{setting}={shown(path)}: {shown(module_name)[1:-1]} has no {shown(names)[1:-1]}"
                f"{_hint(module_name) or f': {_nearest(name, found)}'}"
            ) from None
    if isinstance(found, ModuleType):
        raise ConfigurationError(f"{setting}={shown(path)}: is a module: name a class or a function in it")
    return found


def _check_module_name(module_name: str, names: str, what: str) -> None:
    """Raise ConfigurationError for a file's path, or what begins with a dot, where the name of a module must be."""
    if module_name.startswith(".") or os.sep in module_name or module_name.endswith(".py"):
        name = module_name.rpartition(os.sep)[2].removesuffix(".py").strip(".")
        likely = shown(f"{name or 'my_service'}:{names}")
        raise ConfigurationError(
            f"{what}: must begin with the name of a module, not with a path: give {likely}, and start in the directory "
            "that has it, or add that to PYTHONPATH"
        )


def create_object(path: str, setting: str) -> Any:
    """Call the class or function that ``path`` names without arguments; return any other object as it is.

    Raises ConfigurationError as :func:`load_object`, and when the class or the function fails.
    """
    found = load_object(path, setting)
    if not isinstance(found, type | FunctionType):
        return found
    check_can_be_made(found, f"{setting}={shown(path)}")
    try:
        return found()
    except Exception as error:
        raise ConfigurationError(
            f"{setting}={shown(path)}: {found.__qualname__}() failed: {type(error).__name__}: {_plain(error)}"
            f"{place_of(error)}"
        ) from error


def check_can_be_made(found: Any, what: str) -> None:
    """Refuse a class that lacks a callback, and what cannot be called without arguments.

    The ConfigurationError begins with ``what``.
    """
    name = getattr(found, "__qualname__", shown(found))
    for callback in sorted(getattr(found, "__abstractmethods__", ())):
        near = misspelled(found, callback) if isinstance(found, type) else ""
        fix = f"did you mean that by {near}?" if near else f"write def {callback}(self, ...)"
        raise ConfigurationError(f"{what}: {name} has no {callback}(): {fix}")
    if not takes(found, 0):
        raise ConfigurationError(
            f"{what}: {name}{signature_text(found)} is called without arguments: give its parameters defaults, or give "
            "a function without parameters that makes it"
        )


def _hint(module_name: str) -> str:
    is_ours = module_name.partition(".")[0] == "container"
    return ": container is this package, which hides a module or folder of yours: rename that" if is_ours else ""


def _import_hint(module_name: str, error: ModuleNotFoundError) -> str:
    hint = _hint(module_name)
    if not hint and error.name == module_name.partition(".")[0]:
        return ": start in the directory that has it, or add that to PYTHONPATH"
    return hint


def _nearest(name: str, found: object) -> str:
    names = [each for each in getattr(found, "__dict__", ()) if not each.startswith("_")]
    return suggestion(name, names, getattr(found, "__file__", None) or "its source")


def place_of(error: BaseException) -> str:
    """Return where it was raised: the last line that is of no library, else the last one but the importer's."""
    frames = [
        (frame.f_code.co_filename, line, frame.f_code.co_qualname)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__") not in _OURS and not frame.f_code.co_filename.startswith("<frozen importlib")
    ]
    own = [each for each in frames if not is_of_standard_library(each[0]) and "site-packages" not in each[0]]
    for name, line, function in (own or frames)[-1:]:
        return f' (File "{shown(name, _PATH_LENGTH)[1:-1]}", line {line}, in {function})'
    return ""


def _plain(error: BaseException) -> str:
    text = message_of(error)
    if isinstance(error, ModuleNotFoundError) and len(error.name or "") > _PATH_LENGTH:
        text = f"No module named {shown(error.name)}"
    return shorten(text, _MESSAGE_LENGTH).encode(errors="backslashreplace").decode()
