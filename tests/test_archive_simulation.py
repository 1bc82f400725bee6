"""Simulated archives: what the oracle sees on a disk that is wrong, or in what a client is told."""

from __future__ import annotations

import contextlib
import io
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from container.codecs import messages as codecs
from container.testing.memory import transport_probe as seam
from container.testing.simulation.nodes.recorded import Violation, read_catalog
from tests.recorded_frames import TERM_LENGTH, Frames
from tests.sim import __main__ as command
from tests.sim.archive_oracle import Disk, Recording, check_disk, with_checksum, without_ids
from tests.sim.archive_world import World, expand, run

FRAMES = Frames(stream_id=1000)


def test_a_part_in_which_nothing_is_found_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["sim", "--archive", "--first", "1", "--keep", "0,1"])
    assert command.main() == 0
    assert capsys.readouterr().out == "nothing was found\n"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("--archive --keep 1,x", "argument --keep: '1,x': must be numbers with commas, such as 1,2,5"),
        ("--keep 1,2", "give --archive, --node or --cluster as well"),
        ("--archive --seeds 0", "--seeds 0: must be at least 1"),
        ("--archive ledger", "--archive simulates none of these services: leave out ledger"),
        ("--node ledger", "--node simulates none of these services: leave out ledger"),
    ],
)
def test_arguments_that_would_do_nothing_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: str, text: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["sim", *arguments.split()])
    with pytest.raises(SystemExit) as caught:
        command.main()
    assert caught.value.code == 2
    assert text in capsys.readouterr().err


# The oracle, on disks that are made by hand.


def entry(recording_id: int, start: int, stop: int, *, state: int = 1, stream_id: int = 1000) -> bytes:
    body = struct.pack(
        "<7q6i", 0, 0, recording_id, 1, 2, start, stop, 7, TERM_LENGTH, TERM_LENGTH, 1408, -77, stream_id
    )
    body = body.ljust(96, b"\0")
    return struct.pack("<iiI20x", len(body), state, 0) + body


def catalog(*entries: bytes, next_id: int = 5, version: int = 0x030100, alignment: int = 64) -> bytes:
    return (struct.pack("<iiqi12x", version, 32, next_id, alignment) + b"".join(entries)).ljust(4096, b"\0")


def segment(*payloads: bytes) -> bytes:
    return FRAMES.block(0, *payloads).ljust(TERM_LENGTH, b"\0")


def known(*payloads: bytes, **fields: Any) -> Recording:
    recording = Recording(1000, 0, recording_id=0, is_certain=True, **fields)
    recording.add(0, FRAMES.block(0, *payloads), None)
    return recording


def check(files: dict[str, bytes], recording: Recording, *, is_uncertain: bool = False) -> None:
    disk = Disk({f"/archive/{name}": content for name, content in files.items()}, "/archive")
    check_disk(disk, {recording.stream_id: recording}, is_uncertain=is_uncertain)


ONE_TWO = {"archive.catalog": catalog(entry(0, 0, 128)), "0-0.rec": segment(b"one", b"two")}


def test_what_is_right_becomes_what_is_known() -> None:
    recording = known(b"one", b"two", b"three", announced=128)
    check(ONE_TWO, recording)
    assert (recording.start, recording.stop, recording.announced, recording.end) == (0, 128, 128, 128)
    assert recording.boundaries(128) == [0, 64, 128]


@pytest.mark.parametrize(
    ("oracle", "files", "make"),
    [
        ("announced", {}, lambda: known(b"one", b"two", b"three", announced=192)),
        ("stop", {}, lambda: known(b"one", b"two", b"three", stop=64)),
        ("boundary", {}, lambda: known(b"one", bytes(100))),
        ("start", {}, lambda: Recording(1000, 64, recording_id=0, is_certain=True)),
        ("frames", {}, lambda: known(b"one", b"TWO")),
        ("purge", {}, lambda: known(b"one", b"two", is_gone=True)),
        ("ids", {}, lambda: Recording(1000, 0, recording_id=3, is_certain=True)),
        ("catalog", {}, lambda: Recording(1001, 0)),
        ("lost", {"archive.catalog": catalog()}, lambda: known(b"one", b"two")),
        ("range", {"archive.catalog": catalog(entry(0, 0, -1))}, lambda: known(b"one", b"two")),
        ("segment", {"0-0.rec": None}, lambda: known(b"one", b"two")),
        ("tail", {"0-0.rec": segment(b"one", b"two", b"three")}, lambda: known(b"one", b"two")),
        ("tail", {"0-65536.rec": segment()}, lambda: known(b"one", b"two")),
        ("frames", {"0-0.rec": segment(b"one", b"two")[:100]}, lambda: known(b"one", b"two")),
        ("tail", {"0-0.rec": segment(b"one", b"two") + b"x"}, lambda: known(b"one", b"two")),
        ("files", {"4-0.rec": segment()}, lambda: known(b"one", b"two")),
        ("catalog", {"archive.catalog": catalog(entry(0, 0, 128), entry(1, 0, 0))}, lambda: known(b"one", b"two")),
    ],
)
def test_what_is_wrong_on_a_disk_is_seen(
    oracle: str, files: dict[str, bytes | None], make: Callable[[], Recording]
) -> None:
    changed = {name: content for name, content in (ONE_TWO | files).items() if content is not None}
    with pytest.raises(Violation) as caught:
        check(changed, make())
    assert caught.value.oracle == oracle
    assert str(caught.value).startswith(f"{oracle}: ")


@pytest.mark.parametrize(
    "content",
    [
        b"short",
        catalog(version=0x020000),
        catalog(alignment=48),
        catalog(entry(0, 0, 0, state=3)),
        catalog(entry(1, 0, 0), entry(0, 0, 0)),
        catalog(entry(5, 0, 0)),
        catalog()[:-1] + b"x",
    ],
)
def test_a_catalog_that_is_wrong_is_seen(content: bytes) -> None:
    with pytest.raises(Violation, match="^catalog: "):
        read_catalog(content)


def test_after_a_loss_what_is_read_must_be_what_was_published() -> None:
    lost = ONE_TWO | {"0-0.rec": segment(b"one")}
    check(lost, known(b"one", b"two", announced=128), is_uncertain=True)
    check({"archive.catalog": catalog()}, known(b"one"), is_uncertain=True)
    with pytest.raises(Violation, match="nobody asked"):
        check(ONE_TWO, Recording(1001, 0), is_uncertain=True)


def test_a_deleted_entry_is_a_purge() -> None:
    _, entries, deleted = read_catalog(catalog(entry(0, 0, 0, state=2), entry(1, 0, 64)))
    assert ([each.recording_id for each in entries], deleted) == ([1], {0})


def test_frames_are_compared_as_they_are_stored_and_replayed() -> None:
    frame = FRAMES.data(0, b"payload")
    assert with_checksum(frame, None) == frame
    assert with_checksum(FRAMES.padding(0), "CRC-32") == FRAMES.padding(0)
    stored = with_checksum(frame, "CRC-32C")
    assert stored[12:16] != frame[12:16]
    assert without_ids(stored) == without_ids(frame)


# What a client is told.


@pytest.fixture
def world() -> Iterator[World]:
    with contextlib.redirect_stderr(io.StringIO()):
        world = World(expand(7).only([]))
        world.boot()
        for _ in range(4):
            world.turn(1)
        yield world


@pytest.mark.parametrize(
    ("oracle", "name", "fields"),
    [
        ("answer", "ControlResponse", {"code": 0, "relevant_id": 1, "version": 0, "error_message": ""}),
        ("signal", "RecordingSignalEvent", {"signal": 6, "recording_id": 0, "position": -1, "subscription_id": 1}),
        ("signal", "RecordingSignalEvent", {"signal": 0, "recording_id": 0, "position": 0, "subscription_id": 1}),
    ],
)
def test_an_answer_that_was_not_to_come_is_seen(world: World, oracle: str, name: str, fields: dict[str, Any]) -> None:
    assert world.is_connected
    assert world.control is not None
    settings = {"control_session_id": world.control.session_id, "correlation_id": 12345}
    publication = seam.add_publication(world.users, world.control.channel, world.control.stream_id, exclusive=True)
    seam.invoke(world.control.client)
    assert seam.offer(publication, codecs.encode("archive", name, **settings, **fields)) > 0
    with pytest.raises(Violation) as caught:
        world.turn()
    assert caught.value.oracle == oracle


def test_an_error_of_the_archive_is_seen(world: World) -> None:
    world.errors.append(TypeError("planted"))
    with pytest.raises(Violation, match="^reported: TypeError: planted"):
        world.turn()


def test_a_plan_without_operations_ends_with_a_crash() -> None:
    result = run(expand(3).only([]))
    assert result.violation is None
    assert result.stats["kills"] == 1
