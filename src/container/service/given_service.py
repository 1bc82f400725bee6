"""Check a service as a program gives it: an instance, its maker, or the path of either."""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import Any

from container.api import ClusteredService
from container.common.object_path import check_can_be_made, create_object, load_object
from container.common.values import shown
from container.errors import ConfigurationError
from container.service.service_handler import CALLBACKS, ServiceHandler, check_service


def service_at(path: str, setting: str) -> Any:
    """A service made by the class or the function that ``package.module:Name`` names.

    Raises ConfigurationError, which names ``setting``, when it cannot be found or made, or is not a service.
    """
    service = create_object(path, setting)
    if service is None:
        raise ConfigurationError(
            f"{setting}={shown(path)}: {path.rpartition(':')[2]}() returned None: it must return a service"
        )
    check_given(service, f"{setting}={shown(path)}")
    return service


def check_path(path: str, setting: str) -> None:
    """Refuse as :func:`service_at`, and make no service: a function may yet fail, or make something else."""
    found, what = load_object(path, setting), f"{setting}={shown(path)}"
    if isinstance(found, type | FunctionType):
        check_maker(found, what)
    else:
        check_given(found, what)


def check_given(service: object, what: str) -> None:
    """Refuse an object that cannot serve, with a ConfigurationError that begins with ``what``."""
    if isinstance(service, ServiceHandler):
        return
    try:
        check_service(service)
    except ConfigurationError as error:
        raise ConfigurationError(f"{what}: {error}") from None


def check_maker(maker: object, what: str) -> None:
    """Refuse an object that cannot be called without arguments to make a service.

    The ConfigurationError begins with ``what``. The result of a function is not known yet.
    """
    if not callable(maker):
        raise ConfigurationError(f"{what}: must be a class, or a function that makes one")
    check_can_be_made(maker, what)
    if not isinstance(maker, type) or issubclass(maker, ServiceHandler):
        return
    for name in CALLBACKS:
        if not hasattr(maker, name) and hasattr(ClusteredService, name):
            raise ConfigurationError(
                f"{what}: {maker.__qualname__} has no callback {name}(): derive it from container.ClusteredService"
            )


def made_by(maker: Any, what: str) -> Any:
    """A service made by calling ``maker``; raises ConfigurationError as :func:`check_maker`, and when it makes none."""
    check_maker(maker, what)
    service = maker()
    if isinstance(service, ClusteredService | ServiceHandler):
        return service
    name = getattr(maker, "__qualname__", shown(maker))
    if inspect.iscoroutine(service):
        service.close()
        raise ConfigurationError(f"{what}: {name} is a coroutine function: use def, and return a ClusteredService")
    raise ConfigurationError(f"{what} made {shown(service)}: it must make a ClusteredService: return one from {name}()")
