"""The node of ``./run soak --node``, a process of its own: it serves the ledger until its input ends.

On its output are ``ready``, and ``snapshot`` for each line ``snapshot`` that it reads. When a part of it ends by itself
the process ends with status 1; the cause is in its mark files.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from container.node.cluster_node import ClusterNode
from container.testing.processes.endpoints import HOST
from tests.soak.ledger_service import SequencedLedgerService

MIB = 1 << 20


class Lifetime:
    """Whether the node is to run."""

    is_wanted = True

    def on_end(self) -> None:
        """A part has ended."""
        if self.is_wanted:
            os._exit(1)


def main(directory: Path, aeron_dir: str, port: int, sync_level: int) -> None:
    """Serve; the end of the input is the order to end."""
    lifetime = Lifetime()
    with ClusterNode.launch(
        SequencedLedgerService(directory.parent),
        directory=directory,
        aeron_dir=aeron_dir,
        host=HOST,
        port=port,
        archive={
            "file_sync_level": sync_level,
            "catalog_file_sync_level": sync_level,
            "segment_file_length": MIB,
            "low_storage_space_threshold": MIB,
        },
        consensus_module={"file_sync_level": sync_level, "log_channel": "aeron:udp?term-length=256k"},
        timeout=100.0,
        on_end=lifetime.on_end,
    ) as node:
        print("ready", flush=True)
        for line in sys.stdin:
            assert line == "snapshot\n", line
            node.take_snapshot()
            print("snapshot", flush=True)
        lifetime.is_wanted = False


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
