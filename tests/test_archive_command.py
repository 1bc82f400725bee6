"""The command `aeron-cluster archive`: options and errors; a process beside a real driver, signals, kills, restarts.

The archive that it runs is the real one: what a client recorded is there after each of them.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from container.__main__ import main
from container.aeron import AeronClient, MediaDriver
from container.archive import Archive
from container.archive.client.aeron_archive import AeronArchive
from container.archive.client.archive_client_context import ArchiveClientContext
from container.archive.client.archive_snapshot_store import ArchiveSnapshotStore, ArchiveSnapshotWriter
from container.archive.server.archive_context import ArchiveContext
from container.archive.server.archive_mark_file import MARK_FILE_NAME
from container.errors import AgentTermination, ArchiveError, MarkFileError
from container.files.catalog import read_catalog
from container.files.cnc_file import mark_terminated, read_mark_file
from container.settings.archive_table import archive_settings_table
from container.testing.memory import transport_probe as seam
from container.testing.processes.endpoints import PortReservation
from container.testing.processes.process import Process, wait_until
from container.transport.idle_strategy import BackoffIdleStrategy
from tests.archive_owner import CHANNELS
from tests.limits import LIMIT_S
from tests.resources import allocated_counters, grown, grown_each_time, mappings, open_files
from tests.test_archive_settings import SETTINGS

CONTEXT = ArchiveClientContext(client_name="test")
MESSAGES = [bytes([number % 256]) * (number % 1300) for number in range(1, 600)]


@pytest.fixture
def contexts(monkeypatch: pytest.MonkeyPatch) -> list[ArchiveContext]:
    """The contexts that the command would run, instead of running them."""
    seen: list[ArchiveContext] = []
    monkeypatch.setattr(
        "container.archive.server.archive_command.run_until_ended", lambda _made, context: seen.append(context)
    )
    for setting in archive_settings_table().values():
        monkeypatch.delenv(setting.variable, raising=False)
    return seen


def code_of(*arguments: str) -> int:
    """Exit code of the command, however it ends."""
    try:
        return main(["archive", *arguments])
    except SystemExit as end:
        return int(str(end.code))


def option_of(name: str, text: str) -> list[str]:
    option = "--" + name.replace("_", "-")
    if archive_settings_table()[name].is_flag:
        return [option if text == "true" else "--no-" + option[2:]]
    return [option, text]


REQUIRED = [part for name, text in CHANNELS.items() for part in option_of(name, text)]


# --- options and errors


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_is_an_option(contexts: list[ArchiveContext], name: str) -> None:
    _variable, _default, value, text, _bad = SETTINGS[name]
    more = ["--catalog-file-sync-level", "2"] if name == "file_sync_level" else []
    if name == "is_recording_events_enabled":
        more = ["--recording-events-channel", "aeron:ipc"]
    assert code_of(*REQUIRED, *option_of(name, text), *more) == 0
    assert getattr(contexts[0].settings, name) == value


def test_the_directory_has_a_short_option_and_settings_a_file(contexts: list[ArchiveContext], tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('archive_id = 12\narchive_dir = "other"\n')
    assert code_of(*REQUIRED, "--dir", "/var/a", "--config", str(tmp_path / "a.toml")) == 0
    assert (contexts[0].settings.archive_dir, contexts[0].settings.archive_id) == ("/var/a", 12)


def test_help_names_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("--help") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Run an archive next to a media driver, until Ctrl-C or SIGTERM" in text
    assert "--replication-channel VALUE" in text
    assert main_help(capsys).count("run an archive next to a media driver") == 1


def main_help(capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit):
        main(["--help"])
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--no-such-option"], "unrecognized arguments: --no-such-option"),
        (["--archive-id", "ten"], "argument --archive-id: 'ten': must be a whole number"),
        (["--config", "/no/such/file"], "config file /no/such/file cannot be read"),
        (["--threading-mode", "DEDICATED"], "threading_mode='DEDICATED': must be SHARED or INVOKER"),
        (["--threading-mode", "INVOKER"], "this waits for an archive with a thread of its own"),
        ([], "control_channel must be given, such as aeron:udp?endpoint=localhost:8010"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(
    arguments: list[str], text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for setting in archive_settings_table().values():
        monkeypatch.delenv(setting.variable, raising=False)
    assert code_of(*(REQUIRED if arguments else []), *arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("aeron-cluster")
    assert text in line


def test_a_driver_that_is_not_there_is_one_line_and_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").mkdir()
    places = ["--aeron-dir", str(tmp_path / "d"), "--dir", str(tmp_path / "a"), "--driver-timeout-ms", "20"]
    assert code_of(*REQUIRED, *places) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("aeron-cluster: error: no media driver within 20 ms")
    assert not (tmp_path / "a" / MARK_FILE_NAME).exists(), "it is claimed when there is a driver"


# --- beside a real driver


@pytest.fixture(scope="module")
def driver() -> Iterator[MediaDriver]:
    with MediaDriver.launch_embedded(publication_linger_timeout_ns=50_000_000, timer_interval_ns=20_000_000) as driver:
        yield driver


@pytest.fixture
def client(driver: MediaDriver) -> Iterator[AeronClient]:
    with AeronClient(driver.aeron_dir, "test") as opened:
        yield opened


def settings_in(directory: Path, driver: MediaDriver, ports: PortReservation) -> dict[str, Any]:
    return {
        "aeron_dir": driver.aeron_dir,
        "archive_dir": directory,
        "control_channel": f"aeron:udp?endpoint=localhost:{ports.take()}",
        "replication_channel": "aeron:udp?endpoint=localhost:0",
        "segment_file_length": "64k",
        "environ": {},
    }


@pytest.fixture
def process(tmp_path: Path, driver: MediaDriver, ports: PortReservation) -> Iterator[Process]:
    """The command, not started."""
    command = [sys.executable, "-m", "container", "archive", "--dir", str(tmp_path / "a")]
    command += ["--aeron-dir", driver.aeron_dir, "--replication-channel", "aeron:udp?endpoint=localhost:0"]
    command += ["--control-channel", f"aeron:udp?endpoint=localhost:{ports.take()}", "--segment-file-length", "64k"]
    (tmp_path / "a").mkdir()
    with Process("archive", command, directory=tmp_path) as made:
        yield made


def start(process: Process) -> None:
    process.start()
    process.wait_until(lambda: "is ready: archive_dir=" in process.errors(), LIMIT_S, "the archive to be ready")


def record_open(client: AeronClient, messages: list[bytes]) -> ArchiveSnapshotWriter:
    """Record the messages; the recording goes on."""
    writer = ArchiveSnapshotStore(client, CONTEXT).create(BackoffIdleStrategy())
    left = deque(messages)

    def is_recorded() -> bool:
        seam.invoke(client)
        while left and seam.offer(writer.publication, left[0]) > 0:
            left.popleft()
        return not left and writer.is_complete()

    wait_until(is_recorded, LIMIT_S, "the archive to record all")
    return writer


def record(client: AeronClient, messages: list[bytes]) -> int:
    """Record the messages, as a service does with a snapshot, and return the recording's id."""
    writer = record_open(client, messages)
    writer.close()
    return writer.recording_id


def replay(client: AeronClient, recording_id: int) -> list[bytes]:
    """The messages of a recording."""
    reader = ArchiveSnapshotStore(client, CONTEXT).open(recording_id, BackoffIdleStrategy())
    found: list[bytes] = []

    def is_over() -> bool:
        seam.invoke(client)
        reader.check()
        found.extend(payload for payload, _header in seam.poll(reader.image, 100))
        return seam.is_end_of_stream(reader.image)

    wait_until(is_over, LIMIT_S, "the end of the replay")
    reader.close()
    return found


def recorded_in(directory: Path) -> list[tuple[int, int]]:
    """Id and stop position of each recording, as the catalog on the disk has it."""
    return [(each.recording_id, each.stop_position) for each in read_catalog(directory)]


def test_what_a_client_records_is_replayed_also_by_the_next_start(
    driver: MediaDriver, client: AeronClient, tmp_path: Path, ports: PortReservation
) -> None:
    settings = settings_in(tmp_path, driver, ports)
    with Archive.launch(**settings) as archive:
        assert (
            AeronArchive.connect(CONTEXT, client=client, idle_strategy=BackoffIdleStrategy()).archive_id
            == archive.archive_id
        )
        recording_id = record(client, MESSAGES)
        assert replay(client, recording_id) == MESSAGES
        with pytest.raises(MarkFileError, match=f"active mark file detected: .*pid {os.getpid()}, was alive"):
            Archive.launch(**settings)
        first_id = archive.archive_id
    with Archive.launch(**settings) as archive:
        assert archive.archive_id != first_id, "a new one of the driver's"
        assert replay(client, recording_id) == MESSAGES
        assert record(client, MESSAGES[:5]) == recording_id + 1


def test_files_are_open_while_they_are_needed_and_no_longer(
    driver: MediaDriver, client: AeronClient, tmp_path: Path, ports: PortReservation
) -> None:
    with Archive.launch(**settings_in(tmp_path, driver, ports)):
        held = files_in_use(tmp_path)
        for _ in range(5):
            writer = record_open(client, MESSAGES)
            assert len(files_in_use(tmp_path)) > len(held)
            writer.close()
            assert replay(client, writer.recording_id) == MESSAGES
        wait_until(lambda: files_in_use(tmp_path) == held, LIMIT_S, "all segments to be closed")
    assert files_in_use(tmp_path) == []


def files_in_use(directory: Path) -> list[str]:
    """The files there that this process has open or mapped."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.append(str(each.readlink()))
    found += [line.partition("/")[2] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line]
    return sorted(each for each in found if f"{directory}/".strip("/") in each)


def test_an_archive_that_its_caller_drives(driver: MediaDriver, tmp_path: Path, ports: PortReservation) -> None:
    settings = settings_in(tmp_path, driver, ports)
    with AeronClient(driver.aeron_dir, "given") as given:
        archive = Archive.launch(**settings, client=given, threading_mode="INVOKER")
        assert archive.archive_id == seam.client_id(given)
        channel, stream_id = CONTEXT.control_channel, CONTEXT.control_stream_id
        with AeronClient(driver.aeron_dir, "test") as client:
            publication = seam.add_publication(client, channel, stream_id)
            wait_until(
                lambda: (archive.invoke(), seam.invoke(client), seam.is_connected(publication))[2], LIMIT_S, "requests"
            )
        archive.close()
        assert not given.is_closed()


def test_a_driver_that_ends_ends_the_archive(tmp_path: Path, ports: PortReservation) -> None:
    driver = MediaDriver.launch_embedded()
    archive = Archive.launch(**settings_in(tmp_path, driver, ports), driver_timeout_ms=1_000)
    driver.close()
    assert archive.join(LIMIT_S)
    assert isinstance(archive.failure, AgentTermination)
    assert "unexpected Aeron close" in str(archive.failure)
    assert read_mark_file(tmp_path / MARK_FILE_NAME).activity_timestamp_ms == -1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_command_in_order(
    process: Process, client: AeronClient, tmp_path: Path, number: signal.Signals
) -> None:
    start(process)
    recording_id = record(client, MESSAGES)
    process.send_signal(number)
    assert process.wait(LIMIT_S) == 0, process.errors()
    assert f"{number.name}: closing archive archiveId=" in process.errors()
    assert read_mark_file(tmp_path / "a" / MARK_FILE_NAME).activity_timestamp_ms == -1
    ((found_id, stop_position),) = recorded_in(tmp_path / "a")
    assert found_id == recording_id
    assert stop_position > sum(map(len, MESSAGES))
    start(process)
    assert replay(client, recording_id) == MESSAGES
    assert process.stop(LIMIT_S) == 0


def test_a_recording_in_progress_survives_a_kill(process: Process, client: AeronClient, tmp_path: Path) -> None:
    start(process)
    writer = record_open(client, MESSAGES)
    position = seam.position(writer.publication)
    process.kill()
    assert recorded_in(tmp_path / "a") == [(writer.recording_id, -1)]
    process.start()
    assert process.wait(LIMIT_S) == 1
    (line,) = [each for each in process.errors().splitlines() if each.startswith("aeron-cluster: error: ")]
    assert "active mark file detected" in line
    mark_terminated(tmp_path / "a" / MARK_FILE_NAME)
    start(process)
    assert (
        f"recording {writer.recording_id} had not ended: stop position {position}, by what it had announced"
        in process.errors()
    )
    assert recorded_in(tmp_path / "a") == [(writer.recording_id, position)]
    assert replay(client, writer.recording_id) == MESSAGES
    assert process.stop(LIMIT_S) == 0


def test_a_second_command_on_a_live_directory_is_one_line_and_code_1(
    process: Process, client: AeronClient, tmp_path: Path
) -> None:
    start(process)
    with Process("second", process.command, directory=tmp_path) as second:
        second.start()
        assert second.wait(LIMIT_S) == 1
        (line,) = second.errors().splitlines()
        assert "active mark file detected" in line
    assert replay(client, record(client, MESSAGES[:3])) == MESSAGES[:3]


# --- an id that is set: it is the same after a kill, when the driver has the counters of the dead archive yet


@pytest.fixture
def hasty_driver() -> Iterator[MediaDriver]:
    """A driver that gives a client up when it has shown no life for 2 s."""
    with MediaDriver.launch_embedded(client_liveness_timeout_ns=2_000_000_000) as driver:
        yield driver


def test_a_start_with_the_id_of_a_killed_archive_waits_for_its_counters(
    hasty_driver: MediaDriver, process: Process, tmp_path: Path
) -> None:
    process.command += ["--aeron-dir", hasty_driver.aeron_dir, "--archive-id", "77"]
    start(process)
    with AeronClient(hasty_driver.aeron_dir, "test") as client:
        writer = record_open(client, MESSAGES)
        process.kill()
        mark_terminated(tmp_path / "a" / MARK_FILE_NAME)
        assert sorted(archive_counter_types(client)) == list(range(100, 114))
        start(process)
        assert sorted(archive_counter_types(client)) == list(range(101, 113)), "none of the dead one"
        assert replay(client, writer.recording_id) == MESSAGES
    assert process.stop(LIMIT_S) == 0


def archive_counter_types(client: AeronClient) -> list[int]:
    counters = seam.counters(client)
    records = [seam.counter_record(counters, each) for each in range(200)]
    return [record["type_id"] for record in records if record["state"] == 1 and 100 <= record["type_id"] < 120]


def test_an_id_that_a_live_archive_has_is_refused(driver: MediaDriver, tmp_path: Path, ports: PortReservation) -> None:
    with Archive.launch(**settings_in(tmp_path / "a", driver, ports) | {"archive_id": 78}) as archive:
        with pytest.raises(ArchiveError, match="found existing archive for archiveId=78"):
            Archive.launch(**settings_in(tmp_path / "b", driver, ports) | {"archive_id": 78})
        assert read_mark_file(tmp_path / "b" / MARK_FILE_NAME).activity_timestamp_ms == -1
        assert archive.is_running


# --- a long life

RECORDINGS, ROUNDS, SETTLED_S = 32, 4, 0.5


def holdings(client: AeronClient) -> Counter[str]:
    """What the process holds, with driver, archive and client in it."""
    found = Counter({f"counters of type {type_id}": count for type_id, count in allocated_counters(client).items()})
    found.update({"open files": open_files(), "mapped files": mappings("/")})
    return found


def settled_growth(client: AeronClient, before: Counter[str]) -> dict[str, int]:
    """By how much the process holds more than before, once the driver has let go of what is closed."""
    deadline_s = time.monotonic() + LIMIT_S
    while growth := grown(before, holdings(client)):
        seam.invoke(client)
        if time.monotonic() > deadline_s:
            break
    return growth


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts files and mappings in /proc")
def test_recordings_and_replays_leave_nothing(tmp_path: Path, ports: PortReservation) -> None:
    """With a driver of its own: one that has a killed archive's subscription yet gives the next one old requests."""
    with (
        MediaDriver.launch_embedded(publication_linger_timeout_ns=50_000_000, timer_interval_ns=20_000_000) as driver,
        AeronClient(driver.aeron_dir, "test") as client,
        Archive.launch(**settings_in(tmp_path, driver, ports)) as archive,
    ):

        def live() -> None:
            for _ in range(RECORDINGS // ROUNDS):
                assert replay(client, record(client, MESSAGES[:200])) == MESSAGES[:200]

        live()
        settled_s = time.monotonic() + SETTLED_S
        wait_until(lambda: (seam.invoke(client), time.monotonic() > settled_s)[1], LIMIT_S, "the driver to settle")
        before = holdings(client)
        assert grown_each_time(live, ROUNDS, at_least=RECORDINGS // ROUNDS) == {}
        assert settled_growth(client, before) == {}
        assert archive.context.counters.error_counter.value == 0
