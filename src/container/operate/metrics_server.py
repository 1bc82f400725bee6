"""The metrics of a node served by its own process, for programs that take a port for them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from container.common.values import shown
from container.errors import ConfigurationError
from container.operate.node_arguments import PORT_MAX
from container.settings.arguments import number


def add_metrics_port(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--metrics-port``."""
    parser.add_argument(
        "--metrics-port",
        type=number(0, PORT_MAX),
        metavar="PORT",
        help="serve metrics to Prometheus on this port of localhost; 0: a free one (default: none are served)",
    )


@contextmanager
def serve_metrics(port: int | None, directory: str | os.PathLike[str]) -> Iterator[None]:
    """Serve the metrics of the node in a directory during a ``with`` block; None serves none.

    Raises:
        ConfigurationError: it is no port, or prometheus_client is not installed.
        ContainerError: nothing can be listened on there.
    """
    if port is None:
        yield
        return
    if not 0 <= port <= PORT_MAX:
        raise ConfigurationError(f"metrics_port={shown(port)}: must be from 0 to {PORT_MAX}")
    from container.common.log_events import log_started
    from container.operate.exporter import HOST, Exporter  # what nothing needs without a port

    exporter = Exporter([Path(directory)], HOST, port)
    try:
        log_started("exporter", f"metrics are at {exporter.url}")
        yield
    finally:
        exporter.close()
