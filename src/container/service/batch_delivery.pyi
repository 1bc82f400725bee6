# What type checkers see of container.service.batch_delivery, which is compiled.
from typing import final

from container.service.event_handler import EventHandler
from container.service.service_handler import ServiceHandler

@final
class BatchDelivery:
    def __init__(self, handler: ServiceHandler, cluster: EventHandler) -> None: ...
