# What type checkers see of container.batch_delivery, which is compiled.
from typing import final

from container.cluster import Cluster
from container.service_handler import ServiceHandler

@final
class BatchDelivery:
    def __init__(self, handler: ServiceHandler, cluster: Cluster) -> None: ...
