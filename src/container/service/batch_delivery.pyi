# What type checkers see of container.service.batch_delivery, which is compiled.
from typing import final

from container.service.cluster import Cluster
from container.service.service_handler import ServiceHandler

@final
class BatchDelivery:
    def __init__(self, handler: ServiceHandler, cluster: Cluster) -> None: ...
