"""What a streaming query has finished: the logs that Spark keeps in its checkpoint and beside the files of its sink."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from container.errors import ContainerError
from container.regular_files import read_regular
from container.spark.offsets import end_positions, member_keys

SINK_LOG_NAME = "_spark_metadata"
_COMPACT_SUFFIX = ".compact"
_VERSION_LINE = "v1"
_LENGTH_MAX = 1024**3


class FinishedBatch(NamedTuple):
    """The last micro-batch that was committed, and the log position of each member up to which all was read."""

    batch_id: int
    positions: dict[str, int]
    keys: dict[int | None, str]
    """The members' keys by the ids that their rows say."""


def finished_batch(checkpoint: Path) -> FinishedBatch | None:
    """The last batch that a query has committed; None before the first.

    Raises:
        ContainerError: the checkpoint's logs are not those of a query with one source.
    """
    committed = [int(path.name) for path in (checkpoint / "commits").glob("*") if path.name.isdecimal()]
    if not committed:
        return None
    batch_id = max(committed)
    path = checkpoint / "offsets" / str(batch_id)
    lines = _read(path)
    if len(lines) != 3:
        raise ContainerError(f"{path} has {len(lines)} lines, 3 were expected: it is not of a query with one source")
    offset = json.loads(lines[2])
    return FinishedBatch(batch_id, end_positions(offset), member_keys(offset))


def finished_files(table: Path, last: int, known_count: int, known_batch_id: int) -> list[Path] | None:
    """The files of the batches up to ``last`` beyond the first ``known_count``; None while the logs do not tell.

    Spark merges the logs of all earlier batches into each tenth one, in the order of the batches.

    Args:
        table: the directory of the files.
        last: the id of the last batch that is wanted.
        known_count: how many files were known after ``known_batch_id``.
        known_batch_id: the last batch that is known, -1 for none.
    """
    directory = table / SINK_LOG_NAME
    needed = [directory / str(batch_id) for batch_id in range(known_batch_id + 1, last + 1)]
    if all(log.exists() for log in needed):
        return [file for log in needed for file in _files(log)]
    for begin in range(last, -1, -1):
        merged = directory / f"{begin}{_COMPACT_SUFFIX}"
        later = [directory / str(batch_id) for batch_id in range(begin + 1, last + 1)]
        if merged.exists() and all(log.exists() for log in later):
            return [file for log in (merged, *later) for file in _files(log)][known_count:]
    return None


def _files(log: Path) -> list[Path]:
    entries: list[dict[str, Any]] = [json.loads(line) for line in _read(log)[1:]]
    return [Path(unquote(urlsplit(entry["path"]).path)) for entry in entries if entry["action"] == "add"]


def _read(path: Path) -> list[str]:
    lines = read_regular(path, _LENGTH_MAX).decode("utf-8").splitlines()
    if not lines or lines[0] != _VERSION_LINE:
        raise ContainerError(f"{path} does not begin with {_VERSION_LINE}: it was written by another version of Spark")
    return lines
