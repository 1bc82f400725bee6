# What type checkers see of container.archive.sessions.async_archive, which is compiled.
from typing import final

from container.files.catalog import RecordingDescriptor
from container.transport.seam import Client, FragmentHandler, Publication

STEPS: tuple[str, ...]

@final
class AsyncArchive(FragmentHandler):
    def __init__(
        self,
        client: Client,
        *,
        control_channel: str,
        control_stream_id: int,
        response_channel: str,
        response_stream_id: int,
        term_buffer_length: int,
        mtu_length: int,
        is_sparse: bool,
        client_name: str,
        encoded_credentials: bytes,
        message_timeout_ns: int,
    ) -> None: ...
    @property
    def control_session_id(self) -> int: ...
    @property
    def archive_id(self) -> int: ...
    @property
    def relevant_id(self) -> int: ...
    @property
    def descriptor(self) -> RecordingDescriptor | None: ...
    @property
    def control_channel(self) -> str: ...
    @property
    def control_stream_id(self) -> int: ...
    @property
    def step(self) -> str: ...
    def poll(self) -> bool: ...
    def list_recording(self, recording_id: int) -> int: ...
    def recording_position(self, recording_id: int) -> int: ...
    def replay_token(self, recording_id: int) -> int: ...
    def replay(
        self,
        recording_id: int,
        position: int,
        length: int,
        channel: str,
        stream_id: int,
        file_io_max_length: int,
        replay_token: int = -1,
        publication: Publication | None = None,
    ) -> int: ...
    def stop_replay(self, replay_session_id: int) -> int: ...
    def close(self) -> int: ...
