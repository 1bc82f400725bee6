"""Arguments of ``aeron-cluster top`` and ``exporter``: directories of nodes; and the packages that both need."""

from __future__ import annotations

import argparse
from pathlib import Path

from container.settings.arguments import path

INSTALL_HINT = 'pip install "aeron-cluster-container[operate]"'
PORT_MAX = 65_535
HOST = "localhost"
"""Where metrics are served unless a host is given."""
_DIRECTORY_VARIABLE = "AERON_CLUSTER_DIR"


def add_directories(parser: argparse.ArgumentParser) -> None:
    """Add the directories of nodes, any number of them."""
    parser.add_argument(
        "dirs", nargs="*", type=path, metavar="DIR", help=f"directories of nodes [{_DIRECTORY_VARIABLE}]"
    )


def directories(options: argparse.Namespace) -> list[Path]:
    """Return the directories that are given, or the one of the environment.

    Raises:
        ConfigurationError: there is none, or the one of the environment is not a path.
    """
    from container.operate.places import directory_of_environment  # a service that starts needs no facts

    return options.dirs or [directory_of_environment([_DIRECTORY_VARIABLE])]
