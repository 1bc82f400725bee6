# The types of container.service.service_handler, which is compiled.

from typing import Any, final

class ServiceHandler: ...

@final
class PythonServiceHandler(ServiceHandler):
    service: Any
    def __init__(self, service: object) -> None: ...

def check_service(service: object) -> None: ...
