"""A recorder of nothing but block polls and pwrite, as a process: ``python -m benchmarks._bare_recorder``.

Its arguments: the driver's directory, that of the files, an archive id, the lengths of segments and blocks, an idle
strategy, then pairs of channel and stream id. It says ``ready``, and ends with its standard input.
"""

from __future__ import annotations

import select
import sys

from benchmarks._harness import CACHE, ROOT
from container.aeron import AeronClient
from container.archive.server.archive_counters import recording_position_key
from container.common.aeron_defaults import CounterType
from container.testing.memory import transport_probe as seam
from container.transport.counters import Counter
from container.transport.idle_strategy import parse_idle_strategy
from container.transport.streams import Image
from tests.cython_module import compile_cython, load_module


def main(arguments: list[str]) -> None:
    """Record until standard input ends."""
    aeron_dir, directory, archive_id, segment_length, block_length, idle, *pairs = arguments
    load = load_module(compile_cython(ROOT / "benchmarks" / "archive_load.pyx", CACHE))
    with AeronClient(aeron_dir) as client:
        subscriptions = [
            seam.add_subscription(client, channel, int(stream_id))
            for channel, stream_id in zip(pairs[::2], pairs[1::2], strict=True)
        ]

        def make_counter(image: Image) -> Counter:
            key = recording_position_key(0, image.session_id, image.source_identity, int(archive_id))
            return seam.add_counter(client, CounterType.RECORDING_POSITION, key, "bare")

        print("ready", flush=True)
        load.record(
            client,
            subscriptions,
            make_counter,
            directory,
            int(segment_length),
            int(block_length),
            parse_idle_strategy(idle),
            lambda: bool(select.select([sys.stdin], [], [], 0)[0]),
        )


if __name__ == "__main__":
    main(sys.argv[1:])
