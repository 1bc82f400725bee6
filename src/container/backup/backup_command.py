"""The command ``aeron-cluster backup``: one beside driver and archive, until it is asked to end."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from container.agent.agent_owner import run_until_ended
from container.backup.backup_context import ClusterBackupContext
from container.backup.cluster_backup import ClusterBackup
from container.settings.arguments import add_config, add_log_level, add_settings, path
from container.settings.backup_table import backup_settings_table


def backup_parser(make: Callable[..., argparse.ArgumentParser], program: str) -> argparse.ArgumentParser:
    """The parser of what follows ``aeron-cluster backup``; its result has ``command``, to be called."""
    parser = make(
        prog=program,
        description="Keep a copy of a cluster's log and latest snapshot, beside a media driver and an archive of the "
        "copy's own, until Ctrl-C or SIGTERM.",
        epilog="Options override the environment variable in brackets, which overrides the file of --config.",
    )
    parser.add_argument(
        "--dir", dest="cluster_dir", type=path, metavar="DIR", help="the same as --cluster-dir [AERON_CLUSTER_DIR]"
    )
    add_config(parser, "AERON_CLUSTER_BACKUP_CONFIG_FILE")
    add_log_level(parser)
    add_settings(parser, backup_settings_table())
    parser.set_defaults(command=_run)
    return parser


def _run(options: argparse.Namespace) -> None:
    settings: dict[str, Any] = {name: getattr(options, name) for name in backup_settings_table()}
    run_until_ended(ClusterBackup, ClusterBackupContext(config_file=options.config, **settings))
