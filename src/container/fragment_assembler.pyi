# What type checkers see of container.fragment_assembler, which is compiled.

from collections.abc import Callable

from container.transport import FragmentHandler

class FragmentAssembler(FragmentHandler):
    def __init__(self, delegate: FragmentHandler) -> None: ...

class BytesAssembler(FragmentAssembler):
    callback: Callable[[bytes], object] | None

    def __init__(self, callback: Callable[[bytes], object] | None = None) -> None: ...

class SessionFragmentAssembler(FragmentHandler):
    def __init__(self, delegate: FragmentHandler) -> None: ...
