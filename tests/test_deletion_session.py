"""Files that are deleted one by one, and the signal after the last one, whatever becomes of them."""

from __future__ import annotations

import errno

import pytest

from container.archive.error_codes import GENERIC
from container.archive.server.sessions.control_session import SESSION_CLOSED, ControlSession
from container.archive.server.sessions.deletion_session import DeletionSession
from container.archive.server.store.recording_store import Deletion
from container.errors import ArchiveError
from container.testing.simulation.disk import SimulatedDisk
from tests.control_world import ERROR, ControlWorld, RawClient
from tests.recorded_frames import TERM_LENGTH
from tests.store_world import StoreWorld

CORRELATION_ID = 77
SIGNAL_DELETE = 6
SEGMENTS = 4


class Archive:
    """A stopped recording of some segments, and a control session with a client."""

    def __init__(self, *, level: int = 0, segments: int = SEGMENTS) -> None:
        self.disk = SimulatedDisk()
        storage = self.disk.process()
        storage.make_directory("archive")
        self.files = StoreWorld(storage, "archive", level=level)
        self.store = self.files.store
        self.recording_id = self.files.record(*[bytes(TERM_LENGTH - 32)] * (segments - 1), b"end")
        self.world = ControlWorld()
        self.client: RawClient = self.world.connect()
        self.session: ControlSession = self.client.open()
        self.errors: list[Exception] = []
        assert self.segment_count() == segments

    def segment_count(self) -> int:
        return len(self.files.segments(self.recording_id))

    def deletion(self) -> Deletion:
        return self.store.purge(self.recording_id)

    def begin(self, deletion: Deletion | None = None) -> DeletionSession:
        return DeletionSession(
            self.store,
            self.deletion() if deletion is None else deletion,
            self.session,
            CORRELATION_ID,
            on_error=self.errors.append,
        )

    def received(self) -> list[tuple[int, str] | tuple[int, int, int, int, int]]:
        """The errors and signals that came, as values."""
        messages: list[tuple[int, str] | tuple[int, int, int, int, int]] = []
        for name, fields in self.client.received():
            if name == "RecordingSignalEvent":
                keys = ("correlation_id", "recording_id", "subscription_id", "position", "signal")
                correlation_id, recording_id, subscription_id, position, signal = (fields[key] for key in keys)
                messages.append((correlation_id, recording_id, subscription_id, position, signal))
            else:
                assert (name, fields["code"], fields["correlation_id"]) == ("ControlResponse", ERROR, CORRELATION_ID)
                messages.append((fields["relevant_id"], fields["error_message"].decode()))
        return messages

    @property
    def signal(self) -> tuple[int, int, int, int, int]:
        return CORRELATION_ID, self.recording_id, -1, -1, SIGNAL_DELETE


@pytest.fixture
def archive() -> Archive:
    return Archive()


def test_a_file_is_deleted_in_each_turn_and_the_signal_comes_with_the_last(archive: Archive) -> None:
    session = archive.begin()
    assert (session.recording_id, session.is_done) == (archive.recording_id, False)
    for left in reversed(range(SEGMENTS)):
        assert archive.received() == []
        assert archive.store.is_deleting(archive.recording_id)
        assert session.do_work() == 1
        assert archive.segment_count() == left
        assert session.is_done == (left == 0)
    assert archive.received() == [archive.signal]
    assert not archive.store.is_deleting(archive.recording_id)
    assert session.do_work() == 0
    assert archive.received() == []


def test_a_deletion_without_files_signals_in_its_first_turn(archive: Archive) -> None:
    deletion = archive.store.delete_detached(archive.recording_id)
    assert deletion.is_done
    session = archive.begin(deletion)
    assert (session.is_done, session.do_work(), session.is_done) == (False, 1, True)
    assert archive.received() == [archive.signal]
    assert session.do_work() == 0
    assert archive.segment_count() == SEGMENTS


@pytest.mark.parametrize("failing", range(SEGMENTS))
def test_a_file_that_stays_is_an_error_and_the_others_go(archive: Archive, failing: int) -> None:
    session = archive.begin()
    archive.disk.fail("unlink", errno.EACCES, after=failing)
    for _ in range(SEGMENTS):
        assert not session.is_done
        assert session.do_work() == 1
    assert session.is_done
    path = f"archive/{archive.recording_id}-{failing * TERM_LENGTH}.rec"
    assert archive.received() == [
        (GENERIC, f"unable to delete segment file: {path}: cannot unlink: Permission denied"),
        archive.signal,
    ]
    assert [f"{path}: " in str(error) for error in archive.errors] == [True]
    assert archive.files.segments(archive.recording_id) == [failing * TERM_LENGTH]
    assert not archive.store.is_deleting(archive.recording_id)


def test_each_file_that_stays_is_an_error(archive: Archive) -> None:
    session = archive.begin()
    received = []
    while not session.is_done:
        archive.disk.fail("unlink", errno.EIO)
        session.do_work()
        received += archive.received()
    assert [len(each) for each in received] == [2] * SEGMENTS + [5]
    assert archive.segment_count() == SEGMENTS


def test_a_file_that_is_gone_already_is_no_error(archive: Archive) -> None:
    session = archive.begin()
    archive.files.storage.unlink(f"archive/{archive.recording_id}-{TERM_LENGTH}.rec")
    while not session.is_done:
        session.do_work()
    assert archive.received() == [archive.signal]


def test_a_directory_that_cannot_be_forced_is_an_error_and_the_signal_comes() -> None:
    archive = Archive(level=1, segments=1)
    session = archive.begin()
    archive.disk.fail("force_directory", errno.ENOSPC)
    assert session.do_work() == 1
    assert session.is_done
    [error, signal] = archive.received()
    assert (error[0], signal) == (GENERIC, archive.signal)
    assert archive.segment_count() == 0


def test_the_signal_comes_whatever_is_raised(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    def delete_next_file(deletion: Deletion) -> None:
        deletion._names.clear()
        raise RuntimeError("a bug")

    session = archive.begin()
    monkeypatch.setattr(archive.store, "delete_next_file", delete_next_file)
    assert session.do_work() == 1
    assert archive.received() == [(GENERIC, "a bug"), archive.signal]


def test_a_deletion_goes_on_without_its_control_session(archive: Archive) -> None:
    session = archive.begin()
    session.do_work()
    archive.session.abort(SESSION_CLOSED)
    archive.world.work()
    archive.disk.fail("unlink", errno.EIO)
    while not session.is_done:
        session.do_work()
    assert archive.segment_count() == 1
    assert archive.received() == []
    assert len(archive.errors) == 1
    assert not archive.store.is_deleting(archive.recording_id)


def test_another_deletion_may_begin_after_the_last_file(archive: Archive) -> None:
    session = archive.begin(archive.store.truncate(archive.recording_id, TERM_LENGTH))
    with pytest.raises(ArchiveError, match="another delete operation in progress"):
        archive.deletion()
    while not session.is_done:
        session.do_work()
    assert archive.received() == [archive.signal]
    assert archive.files.segments(archive.recording_id) == [0]
    session = archive.begin()
    session.do_work()
    assert archive.received() == [archive.signal]
    assert archive.segment_count() == 0


def test_a_deletion_that_fails_is_done_again_before_a_truncated_recording_goes_on(archive: Archive) -> None:
    session = archive.begin(archive.store.truncate(archive.recording_id, TERM_LENGTH))
    archive.disk.fail("unlink", errno.EIO)
    while not session.is_done:
        session.do_work()
    assert archive.segment_count() == 2
    writer = archive.files.extend(archive.recording_id)
    assert archive.files.segments(archive.recording_id)[0] == 0
    archive.store.stop(writer, 0)
    assert archive.files.range(archive.recording_id) == (0, TERM_LENGTH)


def test_nobody_need_be_given_errors(archive: Archive) -> None:
    session = DeletionSession(archive.store, archive.deletion(), archive.session, CORRELATION_ID)
    archive.disk.fail("unlink", errno.EIO)
    while not session.is_done:
        session.do_work()
    assert len(archive.received()) == 2


def test_it_is_shown(archive: Archive) -> None:
    session = archive.begin()
    assert repr(session) == "<DeletionSession <Deletion recording_id=0 files=4 of 4>>"
    while not session.is_done:
        session.do_work()
    assert repr(session) == "<DeletionSession <Deletion recording_id=0 files=0 of 4> done>"
