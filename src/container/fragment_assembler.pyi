# What type checkers see of container.fragment_assembler, which is compiled.

from container.transport import FragmentHandler

class FragmentAssembler(FragmentHandler):
    def __init__(self, delegate: FragmentHandler) -> None: ...

class SessionFragmentAssembler(FragmentHandler):
    def __init__(self, delegate: FragmentHandler) -> None: ...
