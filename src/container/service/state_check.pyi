# The types of container.service.state_check, which is compiled.

from typing import Any

def check_state(state: object, state_type: Any, name: str) -> None: ...
