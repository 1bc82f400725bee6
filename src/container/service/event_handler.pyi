# The types of container.service.event_handler, which is compiled.

from container.service.cluster import Cluster

class EventHandler(Cluster): ...
