# The types of container.service.agent_events, which is compiled.
from typing import final

from container.transport.transport_seam import ClientListener

@final
class AgentListener(ClientListener): ...

@final
class ActiveLogEvent: ...
