"""An archive's store on a simulated disk or on files, with what the tests ask of it."""

from __future__ import annotations

from container.archive.server.store.recording_store import Deletion, RecordingStore, StoreSettings
from container.archive.server.store.segment_reader import SegmentReader
from container.archive.server.store.segment_writer import SegmentWriter
from container.storage.storage_seam import CREATE, Storage
from tests.recorded_frames import TERM_LENGTH, Frames

FRAMES = Frames()
NOW_MS = 1_700_000_000_000


class StoreWorld:
    """A store that can be closed and opened again; each start has an owner of its own."""

    def __init__(
        self,
        storage: Storage,
        directory: str,
        *,
        level: int = 0,
        segment_length: int = TERM_LENGTH,
        checksum: int = 0,
        owner: tuple[int, int] | None = None,
    ) -> None:
        self.storage = storage
        self.settings = StoreSettings(
            archive_dir=directory,
            segment_file_length=segment_length,
            file_sync_level=level,
            catalog_file_sync_level=level,
            catalog_capacity=1 << 14,
            low_storage_space_threshold=0,
            record_checksum=checksum,
            replay_checksum=checksum,
        )
        self.directory = directory
        self.errors: list[Exception] = []
        self.owner = owner
        self.progress = 0
        self.open()

    def open(self) -> None:
        owner = (1 if self.owner is None else self.owner[0] + 1, 42)
        self.store = RecordingStore.open(
            self.storage,
            self.settings,
            now_ms=NOW_MS,
            former_owner=self.owner,
            owner=owner,
            write_owner=lambda: setattr(self, "owner", owner),
            report_error=self.errors.append,
            report_progress=self.on_progress,
        )

    def on_progress(self) -> None:
        self.progress += 1

    def reopen(self) -> None:
        self.store.close()
        self.open()

    def start(self, start_position: int = 0, *, stream_id: int = FRAMES.stream_id) -> SegmentWriter:
        writer = self.store.start_recording(
            start_position=start_position,
            initial_term_id=FRAMES.initial_term_id,
            term_buffer_length=TERM_LENGTH,
            mtu_length=TERM_LENGTH,
            session_id=FRAMES.session_id,
            stream_id=stream_id,
            stripped_channel="aeron:ipc",
            original_channel="aeron:ipc?alias=log",
            source_identity="aeron:ipc",
            now_ms=NOW_MS,
        )
        writer.open()
        return writer

    def extend(self, recording_id: int, position: int | None = None) -> SegmentWriter:
        if position is None:
            position = self.store.recorded_position(recording_id)
        writer = self.store.extend_recording(
            recording_id, position, control_session_id=11, correlation_id=12, session_id=FRAMES.session_id
        )
        writer.open()
        return writer

    def record(self, *payloads: bytes | None, start_position: int = 0) -> int:
        """A stopped recording; None is padding. Returns its id."""
        writer = self.start(start_position)
        self.write(writer, *payloads)
        self.store.stop(writer, NOW_MS + 1)
        return writer.recording_id

    def write(self, writer: SegmentWriter, *payloads: bytes | None) -> None:
        for payload in payloads:
            position = writer.position
            writer.write(FRAMES.padding(position) if payload is None else FRAMES.data(position, payload))

    def frames(self, recording_id: int, position: int | None = None) -> bytes:
        """All that is recorded, with headers alone of padding."""
        descriptor = self.store.catalog.descriptor(recording_id)
        assert descriptor is not None
        reader: SegmentReader = self.store.open_reader(
            recording_id, descriptor.start_position if position is None else position
        )
        content = b""
        while True:
            length, part = reader.read_frames(self.store.recorded_position(recording_id))
            if length == 0:
                break
            content += part
            reader.skip(length)
        assert reader.position == self.store.recorded_position(recording_id)
        reader.close()
        return content

    def range(self, recording_id: int) -> tuple[int, int]:
        descriptor = self.store.catalog.descriptor(recording_id)
        assert descriptor is not None
        return descriptor.start_position, descriptor.stop_position

    def segments(self, recording_id: int | None = None) -> list[int]:
        """Where the segments of a recording, or of all, begin."""
        names = [name for name in self.storage.list_directory(self.directory) if ".rec" in name]
        parts = [name.partition(".")[0].split("-") for name in names]
        return sorted(int(base) for each, base in parts if recording_id is None or int(each) == recording_id)

    def content(self, recording_id: int, base: int = 0) -> bytes:
        file = self.storage.open_file(f"{self.directory}/{recording_id}-{base}.rec", 0)
        return file.read(file.length(), 0)

    def put(self, name: str, content: bytes, offset: int = 0, length: int = TERM_LENGTH) -> None:
        file = self.storage.open_file(f"{self.directory}/{name}", CREATE)
        if length > file.length():
            file.set_length(length)
        file.write(content, offset)

    def delete(self, deletion: Deletion) -> int:
        """Delete all files, and return in how many calls."""
        calls = 0
        while not deletion.is_done:
            self.store.delete_next_file(deletion)
            calls += 1
        return calls
