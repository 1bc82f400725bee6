"""Reads the error logs of all parts of a node. Upstream: ErrorStat, and ClusterTool's errors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from container.files.cnc_file import FileFormatError, read_mark_file
from container.files.error_log import ErrorRecord as Record
from container.files.names import CNC_FILE_NAME
from container.operate.answers import Answer, NoFactsError
from container.operate.driver_counters import open_cnc
from container.operate.facts import ErrorLog, ErrorRecord, Errors
from container.operate.marks import read_mark_and_errors, service_paths
from container.operate.places import archive_mark_file_of, find_archive_dir, find_cluster_dir, mark_file_of
from container.recordings.live import read_archive_mark


def errors(path: Path) -> Answer:
    """Answer the errors of a node, or of the media driver or the archive whose directory it is."""
    problems: list[str] = []
    if (path / CNC_FILE_NAME).exists():
        return Answer(Errors(logs=[_driver_errors(path)], problems=problems))
    try:
        cluster_dir = find_cluster_dir(path)
    except NoFactsError as error:
        return Answer(Errors(logs=_errors_of_archive(path, error, problems), problems=problems))
    return Answer(Errors(logs=read_errors(cluster_dir, problems), problems=problems))


def read_errors(cluster_dir: Path, problems: list[str]) -> list[ErrorLog]:
    """Read the error logs of a node; what cannot be read becomes a sentence in ``problems``."""
    logs: list[ErrorLog] = []
    mark = None
    try:
        mark, records = read_mark_and_errors(mark_file_of(cluster_dir))
        logs.append(_log("backup" if mark.component == "BACKUP" else "consensus module", mark.path, records))
    except NoFactsError as error:
        problems.append(str(error))
    for service_path in service_paths(mark, cluster_dir, problems):
        try:
            service, records = read_mark_and_errors(service_path)
            logs.append(_log(f"service {service.service_id}", service.path, records))
        except NoFactsError as error:
            problems.append(str(error))
    archive = _archive_errors([cluster_dir, cluster_dir.parent], problems)
    if archive is not None:
        logs.append(archive)
    if mark is not None:
        try:
            logs.append(_driver_errors(Path(mark.aeron_directory)))
        except NoFactsError as error:
            problems.append(str(error))
    return logs


def _errors_of_archive(path: Path, no_node: NoFactsError, problems: list[str]) -> list[ErrorLog]:
    """The errors of an archive outside of a node, and of its media driver."""
    try:
        mark = read_archive_mark(find_archive_dir(path))
    except NoFactsError:
        raise no_node from None
    archive = _archive_errors([path], problems)
    logs = [] if archive is None else [archive]
    if mark is not None and mark.aeron_dir:
        try:
            logs.append(_driver_errors(Path(mark.aeron_dir)))
        except NoFactsError as error:
            problems.append(str(error))
    return logs


def _archive_errors(places: Sequence[Path], problems: list[str]) -> ErrorLog | None:
    for place in places:
        try:
            archive_dir = find_archive_dir(place)
        except NoFactsError:
            continue
        try:
            path = archive_mark_file_of(archive_dir)
        except NoFactsError as error:
            problems.append(str(error))
            return None
        try:
            return _log("archive", str(path), list(read_mark_file(path).errors))
        except (OSError, ValueError, FileFormatError) as error:
            problems.append(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}")
            return None
    return None


def _driver_errors(aeron_dir: Path) -> ErrorLog:
    with open_cnc(aeron_dir) as file:
        return _log("media driver", str(file.path), file.errors())


def _log(source: str, path: str, records: list[Record]) -> ErrorLog:
    return ErrorLog(
        source=source,
        path=path,
        errors=[
            ErrorRecord(
                count=each.observation_count,
                first_ms=each.first_observation_ms,
                last_ms=each.last_observation_ms,
                text=each.text,
            )
            for each in records
        ],
    )
