from typing import final

# Types of container.recordings.message_reader.
from container.recordings.frame_reader import FrameReader

@final
class MessageReader(FrameReader): ...  # type: ignore[misc]
