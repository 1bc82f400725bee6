# Types of container.recordings.message_reader.
from typing import final

from container.recordings.frame_reader import FrameReader

@final
class MessageReader(FrameReader): ...  # type: ignore[misc]
