"""The metrics of a node served by its own process, for programs that take an address for them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from container.common.values import shown, whole_number, without_brackets
from container.errors import ConfigurationError
from container.operate.node_arguments import HOST, PORT_MAX


def add_metrics_port(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--metrics-port``."""
    parser.add_argument(
        "--metrics-port",
        type=_address,
        metavar="[HOST:]PORT",
        help="serve metrics to Prometheus on this port, of localhost unless a host is given; 0: a free port "
        "(default: none are served)",
    )


def _address(text: str) -> str:
    try:
        metrics_address(text)
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def metrics_address(value: int | str) -> tuple[str, int]:
    """Return host and port of a port (int), or of a text such as ``9644``, ``0.0.0.0:9644`` or ``[::]:9644``.

    Raises:
        ConfigurationError: it is not an address.
    """
    host, colon, text = value.rpartition(":") if isinstance(value, str) else ("", "", str(value))
    port = whole_number(text)
    bare = without_brackets(host)
    if ":" in host and host == bare:
        port = None  # an address of IPv6, of which the port may be a part
    if port is None or not 0 <= port <= PORT_MAX or bool(bare) != bool(colon):
        raise ConfigurationError(
            f"metrics_port={shown(value)}: must be a port from 0 to {PORT_MAX}, or host:port such as 0.0.0.0:9644"
        )
    return bare or HOST, port


@contextmanager
def serve_metrics(address: int | str | None, *directories: str | os.PathLike[str]) -> Iterator[None]:
    """Serve the metrics of the nodes in directories during a ``with`` block; None serves none.

    Args:
        address: as :func:`metrics_address` takes it.
        directories: of the nodes.

    Raises:
        ConfigurationError: the address is invalid, or prometheus_client is not installed.
        ContainerError: nothing can be listened on there.
    """
    if address is None:
        yield
        return
    host, port = metrics_address(address)
    from container.common.log_events import log_started
    from container.operate.exporter import Exporter  # what nothing needs without an address

    exporter = Exporter([Path(each) for each in directories], host, port)
    try:
        log_started("exporter", f"metrics are at {exporter.url}")
        yield
    finally:
        exporter.close()
