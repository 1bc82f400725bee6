"""Runs a container as a main program: waits for its end, and ends it in order on Ctrl-C and SIGTERM."""

from __future__ import annotations

from typing import Unpack

from container.api import ClusteredService
from container.cli.failures import EXPECTED, print_failure
from container.clustered_service_container import ClusteredServiceContainer
from container.common.directories import await_directory
from container.common.error_texts import message_of, type_name
from container.common.log_events import log_closing, log_ended, log_started
from container.common.loggers import log_as_the_environment_says, report
from container.common.main_program import Ending, report_crashes
from container.context import Context
from container.errors import AgentTermination
from container.service.service_handler import ServiceHandler
from container.setting_types import ContainerArguments


def run(
    service: ClusteredService | ServiceHandler | Context | None = None, **settings: Unpack[ContainerArguments]
) -> None:
    """Run a service until the consensus module ends it, or Ctrl-C or SIGTERM does. The whole of a main program.

    An end that was asked for returns: by the consensus module (shutdown, abort) or by a signal. Then ``on_terminate``
    has run, and the mark file is free for the next start. On another thread than the main one, signals are left alone.

    What happens is logged on standard error, unless the program has set up `logging`: docs/logs.md.

    A crash (SIGBUS, SIGSEGV…) prints on standard error where it came: `faulthandler` is enabled, unless it is already.

    Args:
        service: the service, or a :class:`~container.context.Context` with everything.
        settings: what :class:`~container.context.Context` takes, but for ``use_agent_invoker``.

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
    await_directory("cluster_dir", context.settings.cluster_dir, context.settings.driver_timeout_ms)
    report_crashes()
    with Ending(context) as end:
        try:
            member = ClusteredServiceContainer(context, on_end=lambda: end.tell(None))
        except KeyboardInterrupt:
            report("info", "interrupted while starting")
            return
        member.start()
        log_started(
            context.service_name, f"{context.summary()}: running until the consensus module ends it, Ctrl-C or SIGTERM"
        )
        caught = end.wait()
    # From here on a second signal has its usual effect, so that a callback which never returns can be got rid of.
    if caught is not None:
        log_closing(context.service_name, caught.name)
    member.close()
    _conclude(member, was_asked_for=caught is not None)


def _conclude(member: ClusteredServiceContainer, *, was_asked_for: bool) -> None:
    failure, name = member.failure, member.context.service_name
    if isinstance(failure, AgentTermination) and (was_asked_for or getattr(failure, "is_expected", False)):
        failure = None
    if failure is not None:
        message = message_of(failure, is_shown=member.context.settings.record_error_messages)
        log_ended(name, was_asked_for=was_asked_for, failure=(type_name(failure).rpartition(".")[2], message))
        raise SystemExit(1)
    log_ended(name, was_asked_for=was_asked_for)
