# What type checkers see of container.archive.store.window, which is compiled.
from typing import final

@final
class FileWindow: ...
