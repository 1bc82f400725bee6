# Types of container.testing.memory.set_iteration.
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Any

def show_iterations(function: Callable[[AbstractSet[Any]], object] | None) -> None: ...
