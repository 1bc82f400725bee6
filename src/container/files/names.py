"""Names of files in the directories of a node, for whoever looks for them and reads none."""

from __future__ import annotations

CATALOG_NAME = "archive.catalog"
CNC_FILE_NAME = "cnc.dat"
LOG_REPLICATION_NAME = "log-replication.dat"
NODE_STATE_NAME = "node-state.dat"
RECORDING_LOG_NAME = "recording.log"
