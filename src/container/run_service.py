"""Runs a container as a main program: waits for its end, and ends it in order on Ctrl-C and SIGTERM."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from container.clustered_service_container import ClusteredServiceContainer
from container.context import Context
from container.errors import AgentTermination
from container.loggers import info, logger
from container.type_names import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run(service: Any = None, **settings: Any) -> None:
    """Run a service until the consensus module ends it, or Ctrl-C or SIGTERM does. The whole of a main program.

    An end that was asked for returns: by the consensus module (shutdown, abort) or by a signal. Then ``on_terminate``
    has run, and the mark file is free for the next start. On another thread than the main one, signals are left alone.

    Args:
        service: the service, or a :class:`~container.context.Context` with everything.
        settings: what :class:`~container.context.Context` takes, but for ``use_agent_invoker``.

    Raises:
        SystemExit: with code 1, when the agent ended otherwise; the reason is in the log.
        ContainerError: the container could not be made; see :meth:`ClusteredServiceContainer.launch`.
    """
    ctx = service if isinstance(service, Context) else Context(service, **settings)
    if ctx is service and settings:
        raise TypeError(f"give settings to the Context, not beside it: {', '.join(settings)}")
    if ctx.use_agent_invoker:
        raise TypeError("run() waits for a container with a thread of its own: leave out use_agent_invoker")
    events: queue.SimpleQueue[signal.Signals | None] = queue.SimpleQueue()
    with _signals_to(events, ctx):
        try:
            container = ClusteredServiceContainer(ctx, on_end=lambda: events.put(None))
        except KeyboardInterrupt:
            info("interrupted while starting")
            return
        container.start()
        caught = _await(events, container)
    # From here on a second signal has its usual effect, so that a callback which never returns can be got rid of.
    if caught is not None:
        info("%s: closing %s", caught.name, ctx.service_name)
    container.close()
    _conclude(container, was_asked_for=caught is not None)


def _await(
    events: queue.SimpleQueue[signal.Signals | None], container: ClusteredServiceContainer
) -> signal.Signals | None:
    info("%s: running until the consensus module ends it, Ctrl-C or SIGTERM", container.context.summary())
    return events.get()


def _conclude(container: ClusteredServiceContainer, *, was_asked_for: bool) -> None:
    failure = container.failure
    if isinstance(failure, AgentTermination) and (was_asked_for or getattr(failure, "is_expected", False)):
        failure = None
    if failure is not None:
        logger().error("%s: ended by %s: %s", container.context.service_name, type(failure).__name__, failure)
        raise SystemExit(1)
    info("%s: ended", container.context.service_name)


@contextmanager
def _signals_to(events: queue.SimpleQueue[signal.Signals | None], ctx: Context) -> Iterator[None]:
    """Put signals into the queue; while the container is being made they interrupt that, too."""

    def on_signal(number: int, _frame: FrameType | None) -> None:
        events.put(signal.Signals(number))  # SimpleQueue.put is the one that may be called from a signal handler
        if ctx.is_starting:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.signal(number, on_signal) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
