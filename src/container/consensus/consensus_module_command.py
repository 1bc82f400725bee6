"""The command ``aeron-cluster consensus-module``: one beside driver and archive, until it is asked to end."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from container.agent.agent_owner import run_until_ended
from container.consensus.consensus_module import ConsensusModule
from container.consensus.consensus_module_context import ConsensusModuleContext
from container.settings.arguments import add_config, add_log_level, add_settings, path
from container.settings.consensus_module_table import consensus_module_settings_table


def consensus_module_parser(make: Callable[..., argparse.ArgumentParser], program: str) -> argparse.ArgumentParser:
    """The parser of what follows ``aeron-cluster consensus-module``; its result has ``command``, to be called."""
    parser = make(
        prog=program,
        description="Run the consensus module of a member next to a media driver and an archive, until a tool ends "
        "the cluster, Ctrl-C or SIGTERM.",
        epilog="Options override the environment variable in brackets, which overrides the file of --config.",
    )
    parser.add_argument(
        "--dir", dest="cluster_dir", type=path, metavar="DIR", help="the same as --cluster-dir [AERON_CLUSTER_DIR]"
    )
    add_config(parser, "AERON_CLUSTER_CONSENSUS_MODULE_CONFIG_FILE")
    add_log_level(parser)
    add_settings(parser, consensus_module_settings_table())
    parser.set_defaults(command=_run)
    return parser


def _run(options: argparse.Namespace) -> None:
    settings: dict[str, Any] = {name: getattr(options, name) for name in consensus_module_settings_table()}
    run_until_ended(ConsensusModule, ConsensusModuleContext(config_file=options.config, **settings))
