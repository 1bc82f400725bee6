"""A client that sends long messages without waiting for answers, and tells each, until it is killed.

Its arguments are a client id and the settings of a ClientContext as JSON.
"""

from __future__ import annotations

import json
import sys

from container.client import AeronCluster, EgressListener
from tests.soak.ledger import COMMAND, Op

# Not of zeros: Java's archive takes a page of zeros at the end of a log for a part that was not written.
_PADDING = bytes([1]) * 60_000
_CONNECT_TIMEOUT_S = 60.0


class _Listener(EgressListener):
    """Passes over the answers."""

    def on_message(self, *arguments: object) -> None:
        pass


def main() -> None:
    """Send until killed."""
    client_id, settings = int(sys.argv[1]), json.loads(sys.argv[2])
    cluster = AeronCluster.connect(listener=_Listener(), message_timeout=_CONNECT_TIMEOUT_S, **settings)
    sequence = 1
    while True:
        cluster.send(COMMAND.pack(Op.ADD, client_id, sequence, 0, sequence) + _PADDING)
        print(sequence, flush=True)
        sequence += 1


if __name__ == "__main__":
    main()
