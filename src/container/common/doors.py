"""How a client is opened: by one door, its ``connect(...)``, which every error of another way names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

_AWAITABLE = frozenset({"AsyncAeronArchive", "AsyncAeronCluster"})


def door(name: str) -> str:
    """The code that opens a client of the class of that name."""
    if not name.startswith("Async"):
        return f"'with {name}.connect(...) as client'"
    awaited = f", or 'client = await {name}.connect(...)'" if name in _AWAITABLE else ""
    return f"'async with {name}.connect(...) as client'{awaited}"


def made_by_hand(name: str) -> TypeError:
    """The error of a call of the class itself."""
    return TypeError(f"{name}(...) connects nothing: use {name}.connect(...), as in {door(name)}")


def wrong_with(name: str) -> TypeError:
    """The error of ``with`` where it should be ``async with``, and the reverse."""
    is_async = name.startswith("Async")
    other = name.removeprefix("Async") if is_async else f"Async{name}"
    right, wrong = ("async with", "with") if is_async else ("with", "async with")
    return TypeError(f"{name} takes '{right}': write {door(name)}; '{wrong}' is for {other}")


def not_entered(name: str) -> str:
    """The text of the error of a use before the client is connected."""
    return f"{name} is not connected yet: write {door(name)}"


class _Door:
    """A client that only its ``connect`` makes, by :func:`make`. Classes that are derived from it and have an
    ``__init__`` of their own, such as a fake for a test, are made as any other."""

    if not TYPE_CHECKING:  # a type checker knows the class by its __init__

        def __new__(cls, *arguments: Any, **settings: Any) -> NoReturn:
            if cls.__init__.__module__.startswith("container."):
                raise made_by_hand(cls.__name__)
            return object.__new__(cls)


def make[**P, T](kind: Callable[P, T], *arguments: P.args, **settings: P.kwargs) -> T:
    """Make an object of a class that refuses to be called."""
    made: T = object.__new__(kind)  # type: ignore[arg-type]
    kind.__init__(made, *arguments, **settings)  # type: ignore[call-arg]
    return made


class EnteredByWith(_Door):
    """A client that blocks."""

    if not TYPE_CHECKING:  # a type checker refuses what these refuse

        def __aenter__(self) -> NoReturn:
            raise wrong_with(type(self).__name__)

        def __aexit__(self, *error: object) -> NoReturn:
            raise wrong_with(type(self).__name__)


class EnteredByAsyncWith(_Door):
    """A client for asyncio."""

    if not TYPE_CHECKING:

        def __enter__(self) -> NoReturn:
            raise wrong_with(type(self).__name__)

        def __exit__(self, *error: object) -> NoReturn:
            raise wrong_with(type(self).__name__)


class Entering:
    """The result of ``connect`` of a client for asyncio, until that is awaited or entered."""

    _client_type: ClassVar[type]  # the class of the client

    if not TYPE_CHECKING:  # a type checker knows all attributes

        def __enter__(self) -> NoReturn:
            raise wrong_with(self._client_type.__name__)

        def __exit__(self, *error: object) -> NoReturn:
            raise wrong_with(self._client_type.__name__)

        def __getattr__(self, name: str) -> NoReturn:
            if hasattr(self._client_type, name) and not name.startswith("_"):
                raise AttributeError(not_entered(self._client_type.__name__))
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
