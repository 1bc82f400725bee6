# Names for services in Cython: `from container cimport ServiceHandler`. docs/cython.md is the manual.
from container.service.cluster cimport Cluster
from container.service.container_client_session cimport ContainerClientSession
from container.service.service_handler cimport ServiceHandler
from container.service.snapshot_loader cimport SnapshotImage
from container.service.snapshot_taker cimport SnapshotPublication
from container.transport.frames cimport (
    ACTION_ABORT, ACTION_BREAK, ACTION_COMMIT, ACTION_CONTINUE, ADMIN_ACTION, BACK_PRESSURED, CLOSED,
    MAX_POSITION_EXCEEDED, NOT_CONNECTED, BufferVector, FrameHeader,
)
from container.transport.streams cimport FragmentHandler
