# The type ids of snapshots, as their markers have them (SnapshotMarker, 100).
# Upstream: SNAPSHOT_TYPE_ID of ConsensusModule.Configuration and of ClusteredServiceContainer.

cdef enum:
    SNAPSHOT_TYPE_CONSENSUS_MODULE = 1
    SNAPSHOT_TYPE_SERVICE = 2
