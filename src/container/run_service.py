"""Runs a container as a main program: waits for its end, and ends it in order on Ctrl-C and SIGTERM."""

from __future__ import annotations

from typing import Unpack

from container.agent.agent_owner import run_until_ended
from container.api import ClusteredService
from container.cli.failures import EXPECTED, print_failure
from container.clustered_service_container import ClusteredServiceContainer
from container.common.loggers import log_as_the_environment_says
from container.context import Context
from container.service.service_handler import ServiceHandler
from container.setting_types import ContainerArguments


def run(
    service: ClusteredService | ServiceHandler | Context | None = None, **settings: Unpack[ContainerArguments]
) -> None:
    """Run a service until the consensus module, Ctrl-C or SIGTERM ends it. This can be a whole main program.

    An end that was asked for returns: by the consensus module (shutdown, abort) or by a signal. Then ``on_terminate``
    has run, and the mark file is free for the next start. On another thread than the main one, signals are left alone.

    Events are logged on standard error, unless the program has set up `logging`: docs/logs.md.

    After a crash (SIGBUS, SIGSEGV…) standard error shows where it happened: this call enables `faulthandler`.

    Args:
        service: the service, or a :class:`~container.context.Context` with everything.
        settings: arguments of :class:`~container.context.Context`, except ``use_agent_invoker``.

    Raises:
        SystemExit: with code 1 when the agent ended otherwise; the reason is in the log. When the container could not
            be made, with code 2 for a wrong setting or service, else 1; standard error says why in one line, and the
            exception's ``__cause__`` is what :meth:`ClusteredServiceContainer.launch` raises.
    """
    if isinstance(service, Context) and settings:
        raise TypeError(f"give settings to the Context, not beside it: {', '.join(settings)}")
    try:
        log_as_the_environment_says()
        run_context(service if isinstance(service, Context) else Context(service, **settings))
    except EXPECTED as error:
        raise SystemExit(print_failure("container.run", error)) from error


def run_context(context: Context) -> None:
    """The same for a context, for a program that says itself why it could not start.

    Raises:
        SystemExit: with code 1 when the agent ended otherwise.
        ContainerError: the container could not be made; see :meth:`ClusteredServiceContainer.launch`.
    """
    if context.use_agent_invoker:
        raise TypeError("run() waits for a container with a thread of its own: leave out use_agent_invoker")
    run_until_ended(ClusteredServiceContainer, context)
