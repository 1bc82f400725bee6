# The types of container.transport.fragment_assembler, which is compiled.
from collections.abc import Callable
from typing import final

from container.transport.streams import FragmentHandler

@final
class FragmentAssembler(FragmentHandler):
    def __init__(self, delegate: FragmentHandler) -> None: ...

@final
class BytesAssembler(FragmentAssembler):  # type: ignore[misc]
    callback: Callable[[bytes], object] | None

    def __init__(self, callback: Callable[[bytes], object] | None = None) -> None: ...

@final
class SessionFragmentAssembler(FragmentHandler):
    def __init__(self, delegate: FragmentHandler) -> None: ...
