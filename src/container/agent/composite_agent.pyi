# Types of container.agent.composite_agent: the parts of a node in one duty cycle.
from collections.abc import Callable
from typing import Any, Protocol, final

from container.aeron.media_driver import MediaDriver
from container.agent.agent import Agent
from container.transport.idle_strategy import IdleStrategy

class _Part(Protocol):
    def invoke(self) -> int: ...
    def end_turn(self, error: BaseException | None) -> None: ...
    def close(self) -> None: ...

class _Service(_Part, Protocol):
    def interrupt(self) -> None: ...

@final
class CompositeAgent(Agent):
    def __init__(
        self,
        driver: MediaDriver | None,
        on_error: Callable[[BaseException], Any],
        prepare: Callable[[], Any],
        before_end: Callable[[], Any],
    ) -> None: ...
    def add(self, part: _Part, agent: Agent | None = None) -> None: ...
    def add_service(self, container: _Service, agent: Agent | None = None) -> None: ...
    def new_idle_strategy(self, inner: IdleStrategy) -> IdleStrategy: ...

@final
class OthersIdleStrategy(IdleStrategy): ...
