# Types of container.recordings.message_reader.
from container.recordings.frame_reader import FrameReader

class MessageReader(FrameReader): ...
