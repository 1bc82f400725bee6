# The types of container.service.service_handler, which is compiled.

from collections.abc import Mapping
from typing import Any, final

class ServiceHandler: ...

@final
class PythonServiceHandler(ServiceHandler):
    service: Any
    def __init__(self, service: object) -> None: ...

CALLBACKS: Mapping[str, str]

def check_service(service: object) -> None: ...
