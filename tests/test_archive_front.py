"""An archive from launch to end, with a scripted conductor: starts that fail, duty cycles, losses, ends in order."""

from __future__ import annotations

import errno
import threading
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import container.archive
from container.agent.composite_agent import CompositeAgent
from container.archive.authentication import AcceptAll, DenyAll
from container.archive.server.archive_agent import ArchiveAgent
from container.archive.server.archive_arguments import ArchiveArguments, ArchiveSettingsArguments
from container.archive.server.archive_context import ArchiveContext
from container.archive.server.archive_counters import recording_position_key
from container.archive.server.archive_mark_file import LINK_FILE_NAME, MARK_FILE_NAME
from container.archive.server.native_archive import Archive
from container.errors import (
    AgentTermination,
    ArchiveError,
    ClosedError,
    ConcurrentConcludeError,
    ConfigurationError,
    ContainerError,
    MarkFileError,
    RecordingError,
    RegistrationError,
    TimedOutError,
)
from container.files.catalog import NULL_POSITION
from container.settings.archive_table import archive_settings_table
from container.storage.storage_seam import CREATE
from container.testing.memory import transport_probe as seam
from container.testing.processes.process import wait_until
from container.testing.simulation.disk import SimulatedDisk
from container.transport.idle_strategy import NoOpIdleStrategy
from tests.archive_owner import ARCHIVE_ID, CHANNELS, Owner, ScriptedConductor
from tests.forking import Child
from tests.limits import LIMIT_S
from tests.mark_file_world import DEAD_MS, DIRECTORY, MS, NOW_MS, READY, START, TIMESTAMP, VERSION, new_disk

TERMINATED = -1


@pytest.fixture(params=["files", "simulated disk"])
def owner(request: pytest.FixtureRequest, tmp_path: Path) -> Owner:
    if request.param == "files":
        return Owner(str(tmp_path))
    return Owner(DIRECTORY, new_disk().process())


@pytest.fixture
def invoked(owner: Owner) -> Iterator[tuple[Owner, Archive]]:
    """An archive that the test drives."""
    archive = owner.launch()
    owner.work(archive)
    yield owner, archive
    archive.close()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Callable[..., tuple[Owner, Archive]]]:
    """Launches an archive on a thread of its own."""
    archives: list[Archive] = []

    def launch(prepare: Callable[[ScriptedConductor], object] = lambda _: None, **settings: Any) -> Any:
        owner = Owner(str(tmp_path), auto_advance_ns=MS)
        owner.prepare = prepare
        archives.append(owner.launch(use_agent_invoker=False, **settings))
        return owner, archives[-1]

    yield launch
    for archive in archives:
        archive.close()


def counter_types(owner: Owner) -> list[int]:
    """Types of the counters that are allocated, but for those of clients."""
    counters = seam.counters(owner.driver.connect("looking"))
    records = [seam.counter_record(counters, each) for each in range(40)]
    return sorted({record["type_id"] for record in records if record["state"] == 1 and record["type_id"] >= 100})


def error_count(archive: Archive) -> int:
    return archive.context.counters.error_counter.value


# --- a start


def test_a_start_makes_all_and_the_mark_file_shows_it(owner: Owner) -> None:
    with owner.launch(process_id=815) as archive:
        header = owner.header()
        assert (header[VERSION], header[TIMESTAMP], header[START]) == (READY, owner.clock.now_ms, NOW_MS)
        assert header[4:] == (815, 10, 10, 30, 8192, 1 << 20, ARCHIVE_ID, bytes(64))
        assert owner.conductor.calls == ["start"]
        assert {"archive.catalog", "archive.positions", MARK_FILE_NAME} <= set(owner.world.names())
        assert counter_types(owner) == list(range(101, 113))
        assert archive.is_running
        assert archive.archive_id == ARCHIVE_ID
        assert "running" in repr(archive)
    assert "ended" in repr(archive)


def test_an_end_in_order_gives_everything_back(owner: Owner) -> None:
    archive = owner.launch()
    archive.close()
    archive.close()
    assert not archive.is_running
    assert archive.join(0)
    assert archive.failure is None
    assert owner.conductor.calls == ["start", "close"]
    assert owner.header()[TIMESTAMP] == TERMINATED
    assert counter_types(owner) == []
    assert archive.context.is_closed
    assert archive.invoke() == 0
    assert owner.errors == []
    assert not owner.client.is_closed(), "it is the caller's"


def test_the_next_start_needs_not_wait(owner: Owner) -> None:
    owner.launch().close()
    owner.launch().close()


def test_a_second_archive_on_a_live_directory_is_refused_and_touches_nothing(owner: Owner) -> None:
    with owner.launch() as archive:
        before = {name: owner.world.content(name) for name in owner.world.names()}
        with pytest.raises(MarkFileError, match="active mark file detected"):
            owner.launch(archive_id=ARCHIVE_ID + 1, delete_dir_on_start=True)
        assert {name: owner.world.content(name) for name in owner.world.names()} == before
        owner.work(archive)
        assert archive.is_running


def test_a_killed_archive_s_directory_is_free_after_10_s(owner: Owner) -> None:
    owner.launch()
    owner.client.sever()
    owner.client.expire()  # as the driver does for a process that is gone
    with pytest.raises(MarkFileError, match="active mark file detected"):
        owner.launch()
    owner.clock.advance(DEAD_MS * MS)
    owner.launch().close()


def test_a_second_archive_with_the_same_id_is_refused_and_leaves_its_directory_free(tmp_path: Path) -> None:
    first, second = Owner(str(tmp_path / "a")), Owner(str(tmp_path / "b"))
    second.driver = first.driver
    with first.launch() as archive:
        second.step = lambda: first.work(archive)  # the first one lives
        for _ in range(2):
            with pytest.raises(ArchiveError, match=f"found existing archive for archiveId={ARCHIVE_ID}"):
                second.launch()
            assert second.header()[TIMESTAMP] == TERMINATED
    second.launch().close()


@pytest.mark.parametrize("is_recording", [True, False])
def test_a_start_waits_for_the_counters_of_an_archive_that_was_killed(
    owner: Owner, caplog: pytest.LogCaptureFixture, is_recording: bool
) -> None:
    archive = owner.launch()
    killed = owner.client
    if is_recording:
        key = recording_position_key(0, 3, "aeron:ipc", ARCHIVE_ID)
        seam.add_counter(killed, 100, key, "rec-pos")
    seam.add_counter(killed, 100, recording_position_key(0, 3, "aeron:ipc", ARCHIVE_ID + 1), "of another archive")
    seam.add_counter(killed, 100, bytes(12) + b"\xff\xff\xff\x7f", "of whatever")
    if is_recording:
        archive.context.counters.close()  # the position alone is left
    killed.sever()
    owner.clock.advance(DEAD_MS * MS)
    begin_ms = owner.clock.now_ms
    stale: list[int] = []

    def step() -> None:
        owner.clock.advance(10 * MS)
        stale.append(owner.clock.now_ms - owner.header()[TIMESTAMP])
        if owner.clock.now_ms - begin_ms == 7_000:
            killed.expire()

    owner.step = step
    with owner.launch():
        assert owner.clock.now_ms - begin_ms == 7_000
    assert max(stale) <= 1_010, "the mark file was kept live"
    (wait,) = [record for record in caplog.records if record.__dict__.get("event") == "waiting"]
    assert "archive: still waiting for the counters of a former archive with archiveId=42" in wait.getMessage()
    assert wait.__dict__["fields"]["source"] == "archive"


def test_counters_that_never_go_end_the_start(owner: Owner) -> None:
    owner.launch()
    owner.client.sever()
    owner.clock.advance(DEAD_MS * MS)
    begin_ms = owner.clock.now_ms
    with pytest.raises(ArchiveError, match="found existing archive for archiveId=42"):
        owner.launch()
    assert owner.clock.now_ms - begin_ms == 15_010
    assert owner.header()[TIMESTAMP] == TERMINATED


def test_an_archive_without_an_id_has_that_of_the_client_it_was_given(owner: Owner) -> None:
    with owner.launch(archive_id=None) as archive:
        assert archive.archive_id == seam.client_id(owner.client)


def test_mark_file_in_another_directory(tmp_path: Path) -> None:
    owner = Owner(str(tmp_path / "a"))
    marks = tmp_path / "marks"
    with owner.launch(mark_file_dir=marks) as archive:
        assert archive.context.mark_file_dir == str(marks)
        assert (marks / MARK_FILE_NAME).exists()
        assert (tmp_path / "a" / LINK_FILE_NAME).read_text() == str(marks)
    assert (archive.context.archive_dir, archive.context.is_concluded) == (str(tmp_path / "a"), True)


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="archive_dir=.*file/a': cannot be created"):
        Owner(str(tmp_path / "file" / "a")).launch()
    disk = SimulatedDisk()
    disk.fail("make_directory", errno.EACCES)
    with pytest.raises(ConfigurationError, match="archive_dir='/archive': cannot be created"):
        Owner(DIRECTORY, disk.process()).launch()


def test_a_directory_of_a_simulated_disk_is_made() -> None:
    owner = Owner(DIRECTORY, SimulatedDisk().process())
    owner.launch().close()
    assert MARK_FILE_NAME in owner.world.names()


# --- a start that fails


def refused_counter(owner: Owner) -> dict[str, Any]:
    owner.driver.fail_next_add("counter")
    return {}


def refused_subscription(owner: Owner) -> dict[str, Any]:
    owner.driver.fail_next_add("subscription")
    return {}


def damaged_catalog(owner: Owner) -> dict[str, Any]:
    owner.launch(archive_id=7).close()
    file = owner.world.storage.open_file(f"{owner.directory}/archive.catalog", CREATE)
    file.write((9 << 16).to_bytes(4, "little"), 0)
    file.close()
    return {}


def interrupted(owner: Owner) -> dict[str, Any]:
    def interrupt(conductor: ScriptedConductor) -> None:
        def act() -> None:
            assert conductor.context.is_starting
            raise KeyboardInterrupt

        conductor.actions["start"] = act

    owner.prepare = interrupt
    return {}


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (refused_counter, RegistrationError),
        (refused_subscription, RegistrationError),
        (damaged_catalog, (ContainerError, RecordingError)),
        (interrupted, KeyboardInterrupt),
    ],
)
def test_a_start_that_fails_closes_all_and_frees_the_mark_file(
    owner: Owner, spoil: Callable[[Owner], dict[str, Any]], error: type[BaseException]
) -> None:
    settings = spoil(owner)
    with pytest.raises(error):
        owner.launch(**settings)
    assert owner.header()[TIMESTAMP] == TERMINATED
    assert counter_types(owner) == []
    assert owner.driver.open_resources() == []
    if spoil is not damaged_catalog:
        owner.prepare = lambda _: None
        owner.launch().close()


class PythonIdleStrategy(NoOpIdleStrategy):
    """One whose method nobody would call."""

    def idle(self, work_count: int) -> None:
        raise AssertionError(work_count)


def test_a_bad_setting_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    owner = Owner(str(tmp_path / "a"))
    for settings, text in (
        ({"file_sync_level": 3}, "file_sync_level=3: must be a whole number from 0 to 2"),
        ({"segment_file_length": "100k"}, "segment_file_length='100k': must be a power of two"),
        ({"replication_channel": None}, "replication_channel must be given"),
        ({"idle_strategy": "never"}, "idle_strategy='never'"),
        ({"idle_strategy": lambda: 3}, "idle_strategy made 3: it must make an IdleStrategy"),
        ({"idle_strategy": PythonIdleStrategy}, "its idle() is in Python, and only one in Cython is called"),
        ({"idle_strategy": NoOpIdleStrategy()}, "idle_strategy=noop: give its text, or a function that makes one"),
        ({"authenticator": "no.such:Class"}, "module no.such cannot be imported"),
        ({"authorisation_service": "tests.archive_owner:Owner"}, "authorisation_service='tests.archive_owner:Owner'"),
        ({"threading_mode": "DEDICATED"}, "threading_mode='DEDICATED': must be SHARED or INVOKER"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            owner.launch(**settings)
        assert text in str(caught.value)
    assert not (tmp_path / "a").exists()
    assert owner.conductors == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"client": 1}, "client=1: must be a Client of container.transport.transport_seam"),
        ({"clock": "now"}, "clock='now': must be a Clock"),
        ({"storage": object}, "must be a Storage of container.storage.storage_seam"),
        ({"process_id": -1}, "process_id=-1: must be a whole number"),
        ({"first_session_id": 2**31}, "first_session_id=2147483648: must be a whole number from 0 to 2147483647"),
        ({"first_session_id": True}, "first_session_id=True: must be"),
        ({"error_handler": 5}, "error_handler=5: must be callable"),
        ({"next_token": lambda _: 0}, "does not fit its parameters"),
        ({"authenticator": object()}, "object has no on_connect_request, on_connected_session"),
        ({"authorisation_service": object()}, "object has no is_authorised"),
        ({"archive_idd": 5}, "unknown setting 'archive_idd': did you mean 'archive_id'?"),
        ({"config_file": "/no/such/file"}, "config file /no/such/file cannot be read"),
    ],
)
def test_a_context_refuses_what_cannot_be(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        ArchiveContext(**{"environ": {}} | arguments)
    assert text in str(caught.value)


def test_a_context_is_for_one_archive(owner: Owner) -> None:
    context = owner.context()
    Archive(context).close()
    with pytest.raises(ConcurrentConcludeError):
        Archive(context)
    with pytest.raises(TypeError, match="give settings to the ArchiveContext, not beside it: archive_id"):
        Archive.launch(context, archive_id=3)


@pytest.mark.parametrize("given", ["/var/lib/archive", {"archive_dir": "/var/lib/archive"}])
def test_what_is_no_context_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"context=.*: must be an ArchiveContext; give settings by name"):
        Archive.launch(given)


def test_settings_come_from_a_file_and_the_environment(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('archive_id = 3\nsegment_file_length = "1m"\n')
    environ = {"AERON_ARCHIVE_CONFIG_FILE": str(tmp_path / "a.toml"), "AERON_ARCHIVE_ID": "4"}
    settings = ArchiveContext(environ=environ, **CHANNELS).settings
    assert (settings.archive_id, settings.segment_file_length) == (4, 1 << 20)


def test_objects_in_place_of_settings(owner: Owner) -> None:
    strategies: list[NoOpIdleStrategy] = []

    def new_strategy() -> NoOpIdleStrategy:
        strategies.append(NoOpIdleStrategy())
        return strategies[-1]

    authenticator, service = AcceptAll(), DenyAll()
    with owner.launch(
        idle_strategy=new_strategy,
        authenticator=authenticator,
        authorisation_service=service,
        first_session_id=5,
        next_token=lambda: 9,
    ) as archive:
        context: Any = archive.context
        assert context.runner_idle_strategy is strategies[0]
        assert (context._authenticator, context._authorisation_service) == (authenticator, service)
        assert (context._first_session_id, context._next_token()) == (5, 9)


def test_numbers_that_are_not_given_are_random(owner: Owner) -> None:
    ids, tokens = set(), set()
    for _ in range(8):
        with owner.launch() as archive:
            context: Any = archive.context
            ids.add(context._first_session_id)
            tokens.add(context._next_token())
    assert len(ids) == len(tokens) == 8
    assert all(0 <= each < 2**31 for each in ids)
    assert all(-(2**63) <= each < 2**63 for each in tokens)


# --- recordings that are deleted at the start, or were not ended


def record(archive: Archive, length: int = 0) -> int:
    """A recording in progress, without a byte."""
    writer = archive.context.store.start_recording(
        start_position=0,
        initial_term_id=1,
        term_buffer_length=1 << 16,
        mtu_length=1408,
        session_id=2,
        stream_id=3,
        stripped_channel="aeron:ipc",
        original_channel="aeron:ipc",
        source_identity="aeron:ipc",
        now_ms=NOW_MS,
    )
    writer.open()
    return writer.recording_id


def stop_position(archive: Archive, recording_id: int) -> int:
    descriptor = archive.context.store.catalog.descriptor(recording_id)
    assert descriptor is not None
    return descriptor.stop_position


def test_a_recording_in_progress_is_ended_by_the_next_start(owner: Owner, caplog: pytest.LogCaptureFixture) -> None:
    with owner.launch(low_storage_space_threshold=0) as archive:
        recording_id = record(archive)
        assert stop_position(archive, recording_id) == NULL_POSITION
    with caplog.at_level("INFO", "container"), owner.launch() as archive:
        assert stop_position(archive, recording_id) == 0
    assert (
        f"archive archiveId={ARCHIVE_ID}: recording 0 had not ended: stop position 0, by what it had announced"
        in caplog.text
    )


def test_a_truncation_that_is_finished_is_not_called_an_end(owner: Owner, caplog: pytest.LogCaptureFixture) -> None:
    with owner.launch(low_storage_space_threshold=0) as archive:
        record(archive)
    with owner.launch() as archive:
        archive.context.store.truncate(0, 0)
    with caplog.at_level("INFO", "container"), owner.launch():
        pass
    assert (
        f"archive archiveId={ARCHIVE_ID}: recording 0 lost now what a truncation or a failure had left" in caplog.text
    )
    assert "had not ended" not in caplog.text


@pytest.mark.slow
def test_many_recordings_that_had_not_ended_are_few_lines(owner: Owner, caplog: pytest.LogCaptureFixture) -> None:
    with owner.launch(low_storage_space_threshold=0) as archive:
        for _ in range(23):
            record(archive)
    with caplog.at_level("INFO", "container"), owner.launch():
        pass
    assert caplog.text.count("had not ended") == 20
    assert "and 3 more recordings" in caplog.text


def test_recordings_are_deleted_where_that_is_wanted_and_nothing_else(owner: Owner) -> None:
    with owner.launch() as archive:
        record(archive)
    for name in ("5-65536.rec.del", "notes.txt", "5-1.record", "archive.catalog.compact", "archive-old-error.log"):
        owner.world.put(b"x", name)
    with owner.launch(delete_dir_on_start=True) as archive:
        assert archive.context.store.catalog.next_recording_id == 0
        kept = {"notes.txt", "5-1.record", "archive-old-error.log", MARK_FILE_NAME}
        assert set(owner.world.names()) == kept | {"archive.catalog", "archive.positions"}


def test_files_are_deleted_before_the_catalog_that_names_them() -> None:
    disk = new_disk()
    owner = Owner(DIRECTORY, disk.process())
    with owner.launch() as archive:
        record(archive)
    disk.fail("unlink", errno.EIO, after=2)  # a link file that is not there, and the segment
    with pytest.raises(OSError, match="archive.catalog"):
        owner.launch(delete_dir_on_start=True)
    assert "archive.catalog" in owner.world.names()
    assert "0-0.rec" not in owner.world.names()
    owner.launch(delete_dir_on_start=True).close()


def test_the_mark_file_stays_live_during_a_long_recovery() -> None:
    disk = new_disk()
    owner = Owner(DIRECTORY, disk.process())
    with owner.launch(low_storage_space_threshold=0) as archive:
        for _ in range(5):
            record(archive)
    invoked = owner.client.invoke_count
    seen: list[int] = []

    def look() -> None:
        seen.append(owner.clock.now_ms - owner.header()[TIMESTAMP])

    owner.storage = disk.process()
    disk.on_latency = lambda _kind, _length: owner.clock.advance(300 * MS)
    owner.prepare = lambda _conductor: look()
    with owner.launch():
        pass
    assert owner.clock.now_ms - NOW_MS > 10_000, "longer than a dead owner's file stays taken"
    assert owner.client.invoke_count - invoked > 10
    assert max(seen) < 2_000


def test_a_driver_that_gives_the_client_up_ends_a_start() -> None:
    disk = new_disk()
    owner = Owner(DIRECTORY, disk.process())
    with owner.launch(low_storage_space_threshold=0) as archive:
        record(archive)

    def slow(kind: str, _length: int) -> None:
        owner.clock.advance(2 * MS)
        if kind == "rename" and owner.driver.is_alive:
            owner.driver.kill()

    disk.on_latency = slow
    with pytest.raises(ClosedError, match="unexpected Aeron close: the memory driver has been killed"):
        owner.launch()
    assert owner.header()[TIMESTAMP] == TERMINATED


# --- duty cycles


def test_each_millisecond_invokes_the_client_and_each_second_refreshes_the_mark_file(
    invoked: tuple[Owner, Archive],
) -> None:
    owner, archive = invoked
    count = owner.client.invoke_count
    for _ in range(5):
        archive.invoke()
    assert owner.client.invoke_count == count, "the millisecond is the same"
    owner.work(archive, 3_000)
    assert owner.client.invoke_count == count + 3_000
    assert 0 <= owner.clock.now_ms - owner.header()[TIMESTAMP] < 1_000


def test_a_clock_that_goes_back_is_time_that_passes(invoked: tuple[Owner, Archive]) -> None:
    owner, archive = invoked
    owner.clock.set_epoch_ms(NOW_MS - 60_000)
    archive.invoke()
    assert owner.header()[TIMESTAMP] == NOW_MS - 60_000


def test_the_work_of_a_cycle_is_the_conductor_s_and_the_client_s(invoked: tuple[Owner, Archive]) -> None:
    owner, archive = invoked
    owner.conductor.actions["do_work"] = lambda: 7
    assert archive.invoke() == 7
    owner.clock.advance(1_000 * MS)
    assert archive.invoke() == 8, "the mark file was refreshed"


def test_cycles_are_measured_with_what_is_between_them(invoked: tuple[Owner, Archive]) -> None:
    owner, archive = invoked
    tracker = archive.context.counters.conductor_cycle
    owner.work(archive)
    assert tracker.max_counter.value == MS
    owner.clock.advance(150 * MS)
    archive.invoke()
    assert (tracker.max_counter.value, tracker.exceeded_counter.value) == (150 * MS, 1)


def raise_error(error: BaseException) -> Callable[[], object]:
    def act() -> None:
        raise error

    return act


def test_an_error_of_a_cycle_is_counted_and_recorded_and_ends_nothing(invoked: tuple[Owner, Archive]) -> None:
    owner, archive = invoked
    owner.conductor.actions["do_work"] = raise_error(ArchiveError("of a cycle"))
    owner.work(archive, 2)
    assert archive.is_running
    assert error_count(archive) == 2
    assert [str(error) for error in owner.errors] == ["of a cycle"] * 2
    assert [text for text in owner.recorded() if "of a cycle" in text]


def test_an_error_of_the_client_s_turn_is_counted_and_ends_nothing(invoked: tuple[Owner, Archive]) -> None:
    owner, archive = invoked
    owner.driver.fail_next_invoke(RegistrationError("of a turn", code=11))
    owner.work(archive, 3)
    assert archive.is_running
    assert error_count(archive) == 1


def test_a_mark_file_that_cannot_be_written_for_a_while_is_counted_and_ends_nothing() -> None:
    disk = new_disk()
    owner = Owner(DIRECTORY, disk.process())
    with owner.launch() as archive:
        owner.work(archive)
        disk.fail("write", errno.EIO)
        owner.work(archive, 1_001)
        assert archive.is_running
        assert error_count(archive) == 1
        owner.work(archive, 2_000)
        assert owner.clock.now_ms - owner.header()[TIMESTAMP] < 1_000


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_what_ends_a_program_goes_through_invoke(invoked: tuple[Owner, Archive], error: BaseException) -> None:
    owner, archive = invoked
    owner.conductor.actions["do_work"] = raise_error(error)
    with pytest.raises(type(error)):
        archive.invoke()
    owner.conductor.actions.clear()
    assert archive.is_running
    owner.work(archive)


def test_no_memory_ends_it(invoked: tuple[Owner, Archive]) -> None:
    owner, archive = invoked
    owner.conductor.actions["do_work"] = raise_error(MemoryError())
    assert archive.invoke() == 0
    assert isinstance(archive.failure, MemoryError)
    assert not archive.is_running


def test_invoke_and_close_inside_a_callback(invoked: tuple[Owner, Archive]) -> None:
    owner, archive = invoked
    refusals: list[str] = []

    def act() -> int:
        with pytest.raises(ContainerError) as caught:
            archive.invoke()
        refusals.append(str(caught.value))
        with pytest.raises(ContainerError) as caught:
            archive.context.agent.do_work()
        refusals.append(str(caught.value))
        archive.close()
        assert archive.is_running
        return 5

    owner.conductor.actions["do_work"] = act
    assert archive.invoke() == 5
    assert refusals == [
        "invoke() was called from inside a callback of the archive",
        "a duty cycle is in progress: a callback of the archive must not run another one",
    ]
    assert not archive.is_running
    assert owner.conductor.calls == ["start", "do_work", "close"]


def test_invoke_and_close_inside_the_handler_of_an_error_of_a_turn_that_a_node_gave(owner: Owner) -> None:
    heard: list[object] = []

    def on_error(error: BaseException) -> None:
        try:
            heard.append(archive.invoke())
        except ContainerError as refusal:
            heard.append(str(refusal))
        archive.close()
        heard.append((str(error), archive.is_running))

    def fail() -> None:
        raise OSError("disk")

    archive = owner.launch(error_handler=on_error)
    node = CompositeAgent(None, owner.errors.append, lambda: None, lambda: None)
    node.add(archive, archive.agent)
    node.do_work()
    owner.conductor.actions["do_work"] = fail
    node.do_work()
    assert heard == ["invoke() was called from inside a callback of the archive", ("disk", True)]
    assert owner.errors == []
    assert not archive.is_running
    assert owner.conductor.calls == ["start", "do_work", "close"]


def test_an_agent_takes_a_conductor_alone_which_has_its_turns_without_a_call_of_python() -> None:
    with pytest.raises(TypeError, match="'conductor' has incorrect type"):
        ArchiveAgent(SimpleNamespace(), *[None] * 5)  # type: ignore[arg-type]


def test_an_archive_with_a_thread_is_not_invoked(running: Callable[..., tuple[Owner, Archive]]) -> None:
    _owner, archive = running()
    with pytest.raises(ContainerError, match="launch with use_agent_invoker=True to invoke it"):
        archive.invoke()


# --- losses


def taken_over(owner: Owner) -> None:
    """Another process has claimed the mark file, which nobody refreshed for 10 s, and is the owner now."""
    owner.clock.advance(DEAD_MS * MS)
    owner.world.take(process_id=99, archive_id=77).signal_ready()


def test_a_driver_that_is_gone_ends_it_and_leaves_the_recordings_to_the_next_start(
    invoked: tuple[Owner, Archive], caplog: pytest.LogCaptureFixture
) -> None:
    owner, archive = invoked
    record(archive)
    owner.driver.kill()
    assert owner.work(archive, 1) == 0
    assert isinstance(archive.failure, AgentTermination)
    assert "unexpected Aeron close: the memory driver has been killed" in str(archive.failure)
    assert not archive.is_running
    assert owner.conductor.calls == ["start", "do_work"], "it is not closed in order"
    assert owner.header()[TIMESTAMP] == TERMINATED
    assert "unexpected Aeron close" in caplog.text
    assert [text for text in owner.recorded() if "unexpected Aeron close" in text]


def test_a_mark_file_that_is_another_owner_s_ends_it_with_nothing_touched(owner: Owner) -> None:
    archive = owner.launch(low_storage_space_threshold=0)
    record(archive)
    taken_over(owner)
    before = {name: owner.world.content(name) for name in owner.world.names()}
    assert archive.invoke() == 0
    assert "is not this archive's any more: pid 99 has taken it over" in str(archive.failure)
    assert owner.conductor.calls == ["start"]
    assert {name: owner.world.content(name) for name in owner.world.names()} == before
    assert archive.context.is_closed


def test_a_close_sees_a_loss_that_no_cycle_has_seen(owner: Owner) -> None:
    archive = owner.launch()
    taken_over(owner)
    before = {name: owner.world.content(name) for name in owner.world.names()}
    archive.close()
    assert owner.conductor.calls == ["start"]
    assert isinstance(archive.failure, AgentTermination)
    assert {name: owner.world.content(name) for name in owner.world.names()} == before


def test_after_a_loss_the_storage_is_asked_for_no_write_and_no_force() -> None:
    disk = new_disk()
    owner = Owner(DIRECTORY, disk.process())
    archive = owner.launch(low_storage_space_threshold=0)
    record(archive)
    taken_over(owner)
    kinds: list[str] = []
    disk.on_latency = lambda kind, _length: kinds.append(kind)
    archive.invoke()
    assert not archive.is_running
    assert set(kinds) <= {"look", "read"}


def test_an_end_that_fails_at_each_step_comes_to_its_end() -> None:
    disk = new_disk()
    owner = Owner(DIRECTORY, disk.process())
    archive = owner.launch()
    owner.conductor.actions["close"] = raise_error(SystemExit(1))
    disk.fail("force", errno.EIO)
    archive.close()
    assert not archive.is_running
    assert [type(error) for error in owner.errors] == [SystemExit]
    assert archive.context.mark_file.is_closed
    assert counter_types(owner) == []


# --- on a thread


def test_a_thread_works_until_it_is_closed(running: Callable[..., tuple[Owner, Archive]]) -> None:
    owner, archive = running()
    wait_until(lambda: "do_work" in owner.conductor.calls or None, LIMIT_S, "a duty cycle")
    names = [thread.name for thread in threading.enumerate()]
    assert f"archive archiveId={ARCHIVE_ID}" in names
    assert not archive.join(0)
    archive.close()
    assert owner.conductor.calls == ["start", "do_work", "close"]
    assert (archive.failure, owner.header()[TIMESTAMP], owner.errors) == (None, TERMINATED, [])


def test_a_thread_ends_with_the_driver(running: Callable[..., tuple[Owner, Archive]]) -> None:
    owner, archive = running()
    owner.driver.kill(at_next_invoke=True)
    assert archive.join(LIMIT_S)
    assert isinstance(archive.failure, AgentTermination)
    assert owner.header()[TIMESTAMP] == TERMINATED


@pytest.mark.parametrize("error", [MemoryError(), SystemExit(3), AgentTermination("of a callback")])
def test_a_thread_ends_in_order_with_what_is_no_error(
    running: Callable[..., tuple[Owner, Archive]], error: BaseException
) -> None:
    owner, archive = running(lambda conductor: conductor.actions.update(do_work=raise_error(error)))
    assert archive.join(LIMIT_S)
    assert archive.failure is error
    assert owner.errors == [error]
    assert owner.conductor.calls[-1] == "close"


def test_a_thread_goes_on_after_errors(running: Callable[..., tuple[Owner, Archive]]) -> None:
    failures = iter([ArchiveError("one"), RuntimeError("two"), OSError(errno.EIO, "three")])

    def act() -> int:
        for error in failures:
            raise error
        return 1

    owner, archive = running(lambda conductor: conductor.actions.update(do_work=act))
    wait_until(lambda: len(owner.errors) == 3 or None, LIMIT_S, "three errors")
    assert archive.is_running


def test_a_close_waits_for_a_cycle_in_progress_and_says_so(
    running: Callable[..., tuple[Owner, Archive]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("container.agent.agent_owner._INTERRUPTION_INTERVAL_S", 0.01)
    go_on, is_inside = threading.Event(), threading.Event()

    def act() -> int:
        is_inside.set()
        go_on.wait(LIMIT_S)
        return 0

    _owner, archive = running(lambda conductor: conductor.actions.update(do_work=act))
    assert is_inside.wait(LIMIT_S)
    with pytest.raises(TimedOutError, match="has not ended 0 s after close.*: a callback or its disk keeps it"):
        archive.close(timeout=0.05)
    assert "a callback or its disk keeps it" in caplog.text
    assert archive.is_running
    go_on.set()
    archive.close()


def test_a_close_inside_a_callback_of_the_thread_only_asks(running: Callable[..., tuple[Owner, Archive]]) -> None:
    known: list[Archive] = []

    def act() -> int:
        for archive in known:
            archive.close()
        return 0

    _owner, archive = running(lambda conductor: conductor.actions.update(do_work=act))
    known.append(archive)
    assert archive.join(LIMIT_S)
    assert archive.failure is None


def test_a_thread_that_the_system_refuses_closes_everything(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", refuse)
    with pytest.raises(ContainerError, match="the thread of the archive cannot be started: can't start new thread"):
        owner.launch(use_agent_invoker=False)
    assert owner.header()[TIMESTAMP] == TERMINATED
    assert owner.conductor.calls == ["start", "close"]


@pytest.mark.parametrize("is_there", [False, True])
def test_ctrl_c_while_the_thread_is_started_closes_everything_once(
    owner: Owner, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    start, threads = threading.Thread.start, []

    def interrupted(thread: threading.Thread) -> None:
        owner.conductor.actions.update(close=lambda: threads.append(threading.current_thread()))
        threads.append(thread)
        if is_there:
            start(thread)
            wait_until(lambda: "do_work" in owner.conductor.calls, LIMIT_S, "the thread to run the agent")
        raise KeyboardInterrupt

    monkeypatch.setattr("threading.Thread.start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        owner.launch(use_agent_invoker=False)
    thread, closing = threads
    assert closing is (thread if is_there else threading.current_thread())
    assert owner.conductor.calls[-1] == "close"
    assert owner.conductor.calls.count("close") == 1
    assert owner.header()[TIMESTAMP] == TERMINATED
    calls = owner.conductor.calls[:]
    if not is_there:  # it comes late
        monkeypatch.undo()
        thread.start()
    thread.join(LIMIT_S)
    assert owner.conductor.calls == calls


def test_a_callback_can_not_wait_for_the_end_of_its_thread(running: Callable[..., tuple[Owner, Archive]]) -> None:
    refused: list[ContainerError] = []
    known: list[Archive] = []

    def act() -> int:
        if known and not refused:
            assert not known[0].join(0)
            try:
                known[0].join()
            except ContainerError as error:
                refused.append(error)
        return 0

    _owner, archive = running(lambda conductor: conductor.actions.update(do_work=act))
    known.append(archive)
    wait_until(lambda: bool(refused), LIMIT_S, "join() to be refused")
    assert "from inside a callback of the archive" in str(refused[0])


def test_a_forked_child_cannot_use_it(invoked: tuple[Owner, Archive]) -> None:
    owner, archive = invoked
    with Child() as child:
        if child.fork():
            texts = []
            for call in (archive.invoke, archive.join, archive.context.agent.do_work):
                try:
                    call()
                except ContainerError as error:
                    texts.append(type(error).__name__)
            archive.close()
            archive.context.agent.close()
            child.end(*texts, str(archive.is_running), str("of process" in repr(archive)))
        assert child.outcome() == (0, ["ForkedError"] * 3 + ["False", "True"])
    owner.work(archive)
    assert archive.is_running


# --- names


def test_the_package_has_its_public_names() -> None:
    assert container.archive.Archive is Archive
    assert Archive.Context is container.archive.ArchiveContext is ArchiveContext
    assert set(container.archive.__all__) <= set(dir(container.archive))
    with pytest.raises(AttributeError, match="no attribute 'Archives'"):
        container.archive.Archives  # noqa: B018


def test_the_keywords_for_type_checkers_are_the_settings() -> None:
    objects = {"idle_strategy", "authenticator", "authorisation_service"}
    assert set(ArchiveSettingsArguments.__annotations__) == set(archive_settings_table()) - objects
    hints = typing.get_type_hints(ArchiveContext.__init__)
    own = set(hints) - {"settings", "return"}
    assert set(typing.get_type_hints(ArchiveArguments)) == set(archive_settings_table()) | own
