"""The echo service as services are: with a logger of its own, to which it writes when it starts."""

from __future__ import annotations

import logging

from container.api import Cluster, SnapshotImage
from examples.echo_service import EchoService

logger = logging.getLogger(__name__)


class LoggingEchoService(EchoService):
    """Imports `logging` and writes one line."""

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        logger.info("member %d starts", cluster.member_id)
