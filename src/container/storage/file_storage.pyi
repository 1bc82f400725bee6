# The types of container.storage.file_storage, which is compiled.

from typing import final

from container.storage.storage_seam import Storage, StorageFile, StorageMap

@final
class FileMap(StorageMap): ...

@final
class OpenFile(StorageFile):
    @property
    def descriptor(self) -> int: ...

@final
class FileStorage(Storage):
    def __init__(self) -> None: ...
