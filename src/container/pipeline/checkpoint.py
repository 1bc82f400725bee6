"""Spark's checkpoint of a streaming query with one source: which query it is, and each batch's end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from container.common.regular_files import read_regular
from container.errors import ContainerError

_VERSION_LINE = "v1"
_LENGTH_MAX = 1024**3


def query_id(checkpoint: Path) -> str | None:
    """The id that the query keeps over restarts; None before its first start."""
    path = checkpoint / "metadata"
    if not path.exists():
        return None
    try:
        found: str = json.loads(read_regular(path, _LENGTH_MAX))["id"]
    except (ValueError, KeyError, TypeError) as error:
        raise ContainerError(f"{path} is damaged: bring the checkpoint back, or give another directory") from error
    return found


def remove_unfinished(checkpoint: Path) -> None:
    """Remove what Spark had begun to write when it was killed or the disk was full; nobody may write there now.

    Spark does not begin its first batch where such a file is left.
    """
    for path in (checkpoint / "offsets", checkpoint / "commits"):
        for pattern in (".*.tmp", ".*.tmp.crc"):
            for file in path.glob(pattern):
                file.unlink(missing_ok=True)


def last_finished(checkpoint: Path) -> int:
    """The last batch that the query has noted as done; -1 when it has none."""
    path = checkpoint / "commits"
    names = [one.name for one in path.iterdir()] if path.exists() else []
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def end_of_batch(checkpoint: Path, batch_id: int) -> dict[str, Any]:
    """The offset up to which a batch reads, as :mod:`container.spark.offsets` has it; written before the batch runs.

    Raises:
        ContainerError: the checkpoint is not of a query with one source, or was written by another version of Spark.
    """
    path = checkpoint / "offsets" / str(batch_id)
    lines = read_regular(path, _LENGTH_MAX).decode("utf-8").splitlines()
    if not lines or lines[0] != _VERSION_LINE:
        raise ContainerError(f"{path} does not begin with {_VERSION_LINE}: it was written by another version of Spark")
    if len(lines) != 3:
        raise ContainerError(f"{path} has {len(lines)} lines, 3 were expected: it is not of a query with one source")
    try:
        offset: dict[str, Any] = json.loads(lines[2])
    except ValueError as error:
        raise ContainerError(f"{path} is damaged: bring the checkpoint back, or give another directory") from error
    return offset
