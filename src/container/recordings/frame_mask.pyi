# Types of container.recordings.frame_mask.
def mask_frames(
    block: bytes,
    target: bytearray,
    begin: int,
    next_frame: int,
    content_end: int,
    last_frame: int,
    term_length: int,
) -> tuple[int, int, int, int]: ...
