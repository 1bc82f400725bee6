"""The command ``aeron-cluster backup``: one until it is asked to end, with driver and archive of its own if wanted."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from container.agent.agent_owner import run_until_ended
from container.archive.server.archive_context import ArchiveContext
from container.archive.server.native_archive import Archive
from container.backup.backup_context import ClusterBackupContext
from container.backup.cluster_backup import ClusterBackup
from container.common.error_texts import message_of
from container.common.loggers import report
from container.files.directory_lock import DirectoryLock
from container.files.names import CNC_FILE_NAME
from container.settings.arguments import add_config, add_log_level, add_settings, path
from container.settings.backup_table import BackupSettings, backup_settings_table
from container.settings.sources import load_backup_settings


def backup_parser(make: Callable[..., argparse.ArgumentParser], program: str) -> argparse.ArgumentParser:
    """The parser of what follows ``aeron-cluster backup``; its result has ``command``, to be called."""
    parser = make(
        prog=program,
        description="Keep a copy of a cluster's log and latest snapshot, until Ctrl-C or SIGTERM: beside a media "
        "driver and an archive of the copy's own, or with both in this process.",
        epilog="Options override the environment variable in brackets, which overrides the file of --config.",
    )
    parser.add_argument(
        "--dir", dest="cluster_dir", type=path, metavar="DIR", help="the same as --cluster-dir [AERON_CLUSTER_DIR]"
    )
    parser.add_argument(
        "--archive-dir",
        type=path,
        metavar="DIR",
        help="run a media driver and an archive in this process as well, with the recordings in this directory",
    )
    add_config(parser, "AERON_CLUSTER_BACKUP_CONFIG_FILE")
    add_log_level(parser)
    add_settings(parser, backup_settings_table())
    parser.set_defaults(command=_run)
    return parser


def _run(options: argparse.Namespace) -> None:
    given: dict[str, Any] = {name: getattr(options, name) for name in backup_settings_table()}
    settings = load_backup_settings(given, config_file=options.config)
    has_archive = options.archive_dir is not None
    if has_archive:
        from container.aeron import default_aeron_dir

        given["aeron_dir"] = settings.aeron_dir or f"{default_aeron_dir()}-backup-{settings.cluster_id}"
    context = ClusterBackupContext(config_file=options.config, **given)
    context.check_directory()
    if has_archive:
        archive_context = _archive_context(options.archive_dir, settings, given["aeron_dir"])
        archive_context.check_directory()
    with closing(DirectoryLock(Path(str(settings.cluster_dir)), "backup")) as lock:
        lock.free_files_of_the_dead()
        if has_archive:
            _run_with_archive(archive_context, context, lock)
        else:
            _run_until_ended(context, lock, [])


def _run_with_archive(archive_context: ArchiveContext, context: ClusterBackupContext, lock: DirectoryLock) -> None:
    """Run driver, archive and backup; the program ends with any of them."""
    from container.aeron import MediaDriver

    backups: list[ClusterBackup] = []
    aeron_dir = archive_context.settings.aeron_dir
    with MediaDriver.launch_embedded(aeron_dir, library=context.settings.aeron_library) as driver:
        lock.note(Path(driver.aeron_dir, CNC_FILE_NAME))
        with Archive(archive_context, on_end=lambda: _end(backups)) as archive:
            lock.note(archive_context.mark_file.path)
            archive.start()
            _run_until_ended(context, lock, backups)
            if archive.failure is not None:
                report("critical", "the archive of the backup has ended: %s", message_of(archive.failure))
                raise SystemExit(1)


def _run_until_ended(context: ClusterBackupContext, lock: DirectoryLock, backups: list[ClusterBackup]) -> None:
    """Run the backup until it is asked to end; it is in the list as soon as it is made."""

    def make(context: ClusterBackupContext, *, on_end: Callable[[], object]) -> ClusterBackup:
        backup = ClusterBackup(context, on_end=on_end)
        lock.note(context.mark_file.path)
        backups.append(backup)
        return backup

    run_until_ended(make, context)  # type: ignore[arg-type]


def _archive_context(archive_dir: str, settings: BackupSettings, aeron_dir: str) -> ArchiveContext:
    host = str(settings.catchup_endpoint).rpartition(":")[0]
    return ArchiveContext(
        archive_dir=archive_dir,
        aeron_dir=aeron_dir,
        aeron_library=settings.aeron_library,
        is_control_channel_enabled=False,
        local_control_channel=settings.archive_control_channel,
        local_control_stream_id=settings.archive_control_stream_id,
        replication_channel=f"aeron:udp?endpoint={host}:0",
        # The recording log is forced to the disk: what it names must be there after a power cut as well.
        file_sync_level=1,
        catalog_file_sync_level=1,
        environ={},
    )


def _end(backups: list[ClusterBackup]) -> None:
    for each in backups:
        each.ask_to_end()
