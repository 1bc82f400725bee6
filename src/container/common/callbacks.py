"""Checks once, at the start, that the container can call a callback: a mistake shows before the first event."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Collection
from typing import Any
from weakref import WeakSet

from container.common.loggers import report
from container.errors import ConfigurationError

_NEAR = 0.85  # of difflib: one letter more, less or other
_seen: WeakSet[type] = WeakSet()


def check_callable(what: str, callback: Any, parameters: str) -> None:
    """Refuse what cannot be called with these arguments, or what a call of would run nothing of.

    ``what`` names it in the ConfigurationError.
    """
    if not callable(callback):
        raise ConfigurationError(f"{what}: must be callable")
    if code_flags(callback) & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_GENERATOR):
        raise ConfigurationError(f"{what}: must be a plain function, not a coroutine function or a generator function")
    if not takes(callback, len(parameters.split(",")) if parameters else 0):
        raise ConfigurationError(f"{what}: is called with ({parameters}), which does not fit its parameters")


def warn_of_unused_methods(kind: type, callbacks: Collection[str]) -> None:
    """Log each of :func:`unused_methods` of a class, once."""
    if kind in _seen:
        return
    _seen.add(kind)
    for text in unused_methods(kind, callbacks):
        report("warning", "%s", text)


def unused_methods(kind: type, callbacks: Collection[str]) -> list[str]:
    """A warning of each method of a class that is spelled nearly as a callback which the class leaves to its base.

    One that is nearest to a callback which the class has is a helper of that.
    """
    own = _own_names(kind)
    near = [(name, _nearest_callback(kind, name, callbacks)) for name in sorted(own.difference(callbacks))]
    return [
        f"{kind.__name__}.{name} is never called: did you mean {callback}?"
        for name, callback in near
        if callback is not None and callback not in own
    ]


def misspelled(kind: type, callback: str) -> str | None:
    """The first method of a class that is spelled nearly as a callback which it must have; None where there is none."""
    return next((name for name in sorted(_own_names(kind)) if _nearest_callback(kind, name, [callback])), None)


def _own_names(kind: type) -> set[str]:
    return {name for each in kind.__mro__ if not each.__module__.startswith("container.") for name in vars(each)}


def _nearest_callback(kind: type, name: str, callbacks: Collection[str]) -> str | None:
    if not name.startswith("on") or not callable(getattr(kind, name, None)):
        return None
    import difflib  # a program seldom has such a method

    spelled = {each.replace("_", ""): each for each in callbacks}
    near = difflib.get_close_matches(name.replace("_", "").lower(), spelled, n=1, cutoff=_NEAR)
    return spelled[near[0]] if near else None


def code_flags(callback: Any) -> int:
    """The flags of the code that a call runs; 0 where it is not Python code."""
    function = _plain_function(callback)
    if function is None:
        function = _plain_function(_unwrapped(callback))
    return 0 if function is None else function.__code__.co_flags


def takes(callback: Any, count: int) -> bool:
    """Whether a call with ``count`` positional arguments fits the signature; True where no signature is known."""
    function = _plain_function(callback)
    if function is None:
        return _signature_takes(callback, count)
    code = function.__code__
    if type(callback) is types.MethodType:
        count += 1
    required = code.co_argcount - len(function.__defaults__ or ())
    keyword_only = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    if count < required or any(name not in (function.__kwdefaults__ or {}) for name in keyword_only):
        return False
    return count <= code.co_argcount or bool(code.co_flags & inspect.CO_VARARGS)


def signature_text(callback: Any) -> str:
    """The signature as Python writes it, without the instance that a method is bound to."""
    return str(inspect.signature(callback, follow_wrapped=False)).partition(" -> ")[0]


def _plain_function(callback: Any) -> types.FunctionType | None:
    """The function of a function or of a method; None for everything else."""
    if type(callback) is types.MethodType:
        callback = callback.__func__
    return callback if type(callback) is types.FunctionType else None


def _signature_takes(callback: Any, count: int) -> bool:
    try:
        signature = inspect.signature(callback, follow_wrapped=False)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def _unwrapped(callback: Any) -> Any:
    """The function that a partial or a callable object finally calls."""
    for _ in range(100):  # an object whose __call__ is another such object never ends
        if isinstance(callback, functools.partial):
            callback = callback.func
        elif type(callback) is types.MethodType:
            callback = callback.__func__
        elif type(callback) is types.FunctionType:
            return callback
        else:
            callback = type(callback).__call__
            if type(callback) is not types.FunctionType:
                return None
    return callback
