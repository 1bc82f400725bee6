# What type checkers see of container.agent_events, which is compiled.
from typing import final

from container.transport import ClientListener

@final
class AgentListener(ClientListener): ...

@final
class ActiveLogEvent: ...
