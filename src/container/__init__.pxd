# What services in Cython cimport: `from container cimport ServiceHandler`. docs/cython.md is the manual.
from container.cluster cimport Cluster
from container.container_client_session cimport ContainerClientSession
from container.service_handler cimport ServiceHandler
from container.snapshot_loader cimport SnapshotImage
from container.snapshot_taker cimport SnapshotPublication
from container.transport cimport (
    ACTION_ABORT, ACTION_BREAK, ACTION_COMMIT, ACTION_CONTINUE, ADMIN_ACTION, BACK_PRESSURED, CLOSED,
    MAX_POSITION_EXCEEDED, NOT_CONNECTED, BufferVector, FragmentHandler, FrameHeader,
)
