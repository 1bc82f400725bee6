"""A stream is recorded by an archive and replayed into pandas: prices of a symbol, and their mean per second.

Media driver and archive run in this process, in a directory that is removed at the end. A program that uses an archive
that runs already needs :func:`record` and :func:`replay` alone.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from container.aeron import MediaDriver
from container.archive import AeronArchive, Archive, RecordedPublication

CHANNEL, STREAM_ID, REPLAY_STREAM_ID = "aeron:ipc", 1001, 2001
TICK = struct.Struct("<qd")
"""Nanoseconds since 1970, and a price."""
TICKS = 10_000


def ticks() -> Iterator[bytes]:
    """Prices of ten seconds."""
    for number in range(TICKS):
        yield TICK.pack(1_700_000_000_000_000_000 + number * 1_000_000, 100 + number % 50 / 100)


def send(publication: RecordedPublication, message: bytes) -> None:
    """Publish a message; wait for room."""
    while publication.offer(message) < 0:
        pass


def record(archive: AeronArchive) -> int:
    """Publish and record; return the recording's id."""
    with archive.add_recorded_publication(CHANNEL, STREAM_ID) as publication:
        for message in ticks():
            send(publication, message)
        while not (found := archive.list_recordings_for_uri(0, 1, CHANNEL, STREAM_ID)):
            pass
        recording_id = found[0].recording_id
        while archive.get_max_recorded_position(recording_id) < publication.position:
            pass
    while archive.get_stop_position(recording_id) == -1:
        pass
    return recording_id


def replay(archive: AeronArchive, recording_id: int) -> Any:
    """Return the prices of a recording as a DataFrame."""
    import pandas

    end = archive.get_stop_position(recording_id)
    messages = archive.read(archive.replay(recording_id, 0, end, CHANNEL, REPLAY_STREAM_ID))
    frame = pandas.DataFrame.from_records([TICK.unpack(message) for message, _ in messages], columns=["time", "price"])
    return frame.assign(time=pandas.to_datetime(frame.time))


def main() -> None:
    """Record and replay."""
    with tempfile.TemporaryDirectory() as directory:
        archive_dir = Path(directory, "archive")
        archive_dir.mkdir()
        with (
            MediaDriver.launch_embedded() as driver,
            Archive.launch(
                aeron_dir=driver.aeron_dir,
                archive_dir=archive_dir,
                is_control_channel_enabled=False,
                replication_channel="aeron:udp?endpoint=localhost:0",
            ),
            AeronArchive.connect(aeron_dir=driver.aeron_dir) as archive,
        ):
            recording_id = record(archive)
            prices = replay(archive, recording_id)
            print(f"recording {recording_id}: {len(prices)} prices", flush=True)
            print(prices.resample("1s", on="time").price.mean(), flush=True)


if __name__ == "__main__":
    main()
