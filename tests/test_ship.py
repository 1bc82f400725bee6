"""Shipping a member: what is copied, kills at every step, full disks, two at once, damage, other histories."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from container.__main__ import main
from container.common import slow_answers
from container.errors import ConfigurationError, ContainerError, RecordingError
from container.operate.answers import NoFactsError
from container.operate.logs import Wanted, read_log
from container.pipeline import ship_place
from container.pipeline.ship import Pass, Shipper, ShipStopped, check_place
from container.pipeline.ship_place import Directory, Place, open_place
from container.recordings import Member, open_member, read
from container.recordings.shipped import (
    Retired,
    ShippedManifest,
    encode_manifest,
    manifest_path,
    newest_manifest,
    parse_manifest,
)
from container.testing.processes.recordings import write_catalog
from tests.limits import LIMIT_S
from tests.recordings_world import SEGMENT_LENGTH, TERM_LENGTH, marker
from tests.seeds import drawn
from tests.spark.written_members import History, WrittenMember, write_history

VIEWS = ("messages", "snapshots", "recording_log")


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> WrittenMember:
    return write_history(tmp_path_factory.mktemp("member"))


def ship(member: WrittenMember, place: Path, **options: Any) -> Pass:
    return Shipper(open_member(member.base_dir, **options), open_place(str(place), {})).run()


def manifest_of(place: Path) -> ShippedManifest:
    number = newest_manifest(path.relative_to(place).as_posix() for path in place.glob("shipped/*.json"))
    assert number is not None
    path = place / manifest_path(number)
    return parse_manifest(path.read_bytes(), str(path))


def rows_of(path: Path, view: str) -> list[dict[str, Any]]:
    rows = [row for batch in read(path, view) for row in batch.to_pylist()]
    return [{name: value for name, value in row.items() if name != "committed"} for row in rows]


def assert_whole(member: WrittenMember, place: Path, end: int | None = None) -> None:
    """The place has the member's bytes, no others but those of readers that may still come, and gives the same rows."""
    manifest, faults = check_place(open_place(str(place), {}))
    assert faults == []
    assert manifest.end_position == (member.end_position if end is None else end)
    for piece in [*manifest.log, *manifest.snapshots]:
        base = piece.position - piece.position % SEGMENT_LENGTH
        content = (member.archive_dir / f"{piece.recording_id}-{base}.rec").read_bytes()
        assert (place / piece.path).read_bytes() == content[piece.position - base : piece.end - base]
    if end is None:
        for view in VIEWS:
            assert rows_of(place, view) == rows_of(member.base_dir, view)
    assert not [*place.glob("**/.part-*")]


def test_a_place_has_all_of_a_member_and_the_next_pass_copies_nothing(member: WrittenMember, tmp_path: Path) -> None:
    done = ship(member, tmp_path / "place")
    assert_whole(member, tmp_path / "place")
    assert (done.end_position, done.committed_position) == (member.end_position, member.end_position)
    files = sorted((tmp_path / "place").rglob("*"))
    again = ship(member, tmp_path / "place")
    assert (again.copied_count, again.copied_length, again.number) == (0, 0, done.number)
    assert sorted((tmp_path / "place").rglob("*")) == files


def test_a_snapshot_of_many_segments_gets_through_a_slow_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manifest names it when all of it is there, which takes longer than manifests wait for what is copied."""
    history = History(tmp_path / "member")
    history.begin_term()
    history.message(1, b"x")
    begin, end = (marker(mark, position=history.position) for mark in (0, 2))
    history.world.add_snapshot(0, [begin, end, *[bytes(8000)] * 50], history.position)
    history.world.add_snapshot(0, [begin, end, *[bytes(8000)] * 50], history.position)
    written = history.finish()
    assert (written.archive_dir / f"1-{3 * SEGMENT_LENGTH}.rec").exists()
    monkeypatch.setattr("container.pipeline.ship.PUBLISH_INTERVAL_S", 0.0)
    published: list[Pass] = []

    def on_publish(found: Pass) -> None:
        published.append(found)
        assert len(published) < 10, "it begins anew each time"

    Shipper(open_member(written.base_dir), open_place(str(tmp_path / "place"), {}), on_publish=on_publish).run()
    assert_whole(written, tmp_path / "place")
    assert [found.number for found in published] == [2, 3, 4]


def test_a_growing_log_is_copied_as_it_grows(tmp_path: Path) -> None:
    history, place = History(tmp_path / "member"), tmp_path / "place"
    history.begin_term()
    copied, steps = 0, 120
    for step in range(steps):
        for number in range(12):
            history.message(1, bytes([step % 251]) * (300 + number))
        grown = history.finish(is_closed=False)
        copied += ship(grown, place, committed="recorded").copied_length
    assert grown.end_position > 3 * SEGMENT_LENGTH
    assert_whole(grown, place)
    manifest = manifest_of(place)
    assert len(manifest.log) <= grown.end_position // SEGMENT_LENGTH + 10, "stretches of the tail are joined"
    assert copied < 8 * grown.end_position, "each byte is copied a few times only"
    assert len([*place.glob("shipped/*")]) <= 10
    # What is not named any more stays for readers for an hour, and goes then.
    assert manifest.retired
    clock = pytest.MonkeyPatch()
    clock.setattr("container.pipeline.ship._now_ms", lambda: manifest.written_ms + 3_600_001)
    try:
        history.message(1, b"one more")
        ship(history.finish(is_closed=False), place, committed="recorded")
    finally:
        clock.undo()
    manifest = manifest_of(place)
    named = {one.path for one in manifest.log} | {one.path for one in manifest.retired}
    assert {path.relative_to(place).as_posix() for path in place.glob("tail/*")} <= named
    assert_whole(history.member, place)


def test_nothing_is_shipped_that_an_election_may_remove(tmp_path: Path) -> None:
    history = History(tmp_path / "member")
    history.begin_term(0)
    history.message(1, b"committed")
    history.begin_term(1)
    history.message(1, b"not known to be committed")
    member = history.finish(is_closed=False)
    ship(member, tmp_path / "place")
    assert_whole(member, tmp_path / "place", member.terms[1][1])
    assert [row["log_position"] for row in rows_of(tmp_path / "place", "messages")] == [
        message["log_position"] for message in member.messages[:2]
    ]


def test_what_is_not_shipped_of_a_member_that_does_not_run_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the place has more than the files show by now, as the member ran when it was shipped."""
    history = History(tmp_path / "member")
    history.begin_term(0)
    history.message(1, b"shipped while the member ran")
    shipped = history.finish(is_closed=False).end_position
    words = ["pipeline", "ship", str(history.member.base_dir), "--to", str(tmp_path / "place")]
    assert main([*words, "--committed", str(shipped)]) == 0
    assert "warning" not in capsys.readouterr().err
    history.message(1, b"nothing shows that it is committed")
    end = history.finish(is_closed=False).end_position
    assert main(words) == 0
    found = capsys.readouterr()
    assert f"its last {end - shipped} bytes of log, from {shipped} on, are not shipped" in found.err
    assert f"has the log up to {shipped}" in found.out
    assert main([*words, "--committed", "recorded"]) == 0
    found = capsys.readouterr()
    assert "warning" not in found.err
    assert f"log shipped to {end} of {end};" in found.err


def killed_at(number: int, run: Callable[[], object], patched: Iterable[tuple[Any, str]]) -> bool:
    """Run in a process of its own, which kills itself before its ``number``-th use of some functions.

    Returns:
        Whether it was killed; it may have come to its end before.
    """
    pid = os.fork()
    if pid == 0:
        try:
            left = number

            def counting(function: Callable[..., Any]) -> Callable[..., Any]:
                def call(*arguments: Any, **options: Any) -> Any:
                    nonlocal left
                    left -= 1
                    if left == 0:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return function(*arguments, **options)

                return call

            for owner, name in patched:
                setattr(owner, name, counting(getattr(owner, name)))
            run()
            os._exit(0)
        except BaseException:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


STEPS = (
    (os, "link"),
    (os, "fsync"),
    (os, "open"),
    (Path, "unlink"),
    (Path, "replace"),
    (Path, "mkdir"),
    (ship_place, "write_at"),
)


OF_THIS_COMMIT = drawn("kills of a shipper", 1)[0] % 4


@pytest.mark.parametrize(
    "first", [pytest.param(each, marks=[] if each == OF_THIS_COMMIT else pytest.mark.slow) for each in range(4)]
)
def test_a_kill_at_any_step_leaves_a_place_that_the_next_pass_completes(
    member: WrittenMember, tmp_path: Path, first: int
) -> None:
    """At each fourth step; which ones, each commit draws anew."""
    number = first - 3
    while killed_at(number := number + 4, lambda: ship(member, tmp_path / str(number)), STEPS):
        place = tmp_path / str(number)
        if [*place.glob("shipped/*.json")]:
            _, faults = check_place(open_place(str(place), {}))
            assert faults == [], f"killed at step {number}"
        if number % 3 == 0:
            ship(member, place)
            assert_whole(member, place)
        shutil.rmtree(place, ignore_errors=True)
    assert number > 60


def test_kills_again_and_again_come_to_an_end(tmp_path: Path) -> None:
    """Each time the log has grown, and what the killed ones left is in the place."""
    history, place = History(tmp_path / "member"), tmp_path / "place"
    history.begin_term()
    for step in range(40):
        for _ in range(40):
            history.message(1, bytes([step]) * 1000)
        history.finish(is_closed=False)
        killed_at(3 + 7 * step % 45, lambda: ship(history.member, place, committed="recorded"), STEPS)
    last = ship(history.member, place, committed="recorded")
    assert last.end_position == history.member.end_position
    assert_whole(history.member, place)


def test_a_full_disk_is_one_sentence_and_the_next_pass_goes_on(
    member: WrittenMember, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each object in turn the disk takes half of it and no more."""
    for number in range(1, 12):
        left, place = number, tmp_path / str(number)

        def fill(file: int, offset: int, content: bytes) -> None:
            nonlocal left
            left -= 1
            os.pwrite(file, content[: len(content) // 2 if left == 0 else None], offset)
            if left == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        text = "No space left on device: make room there, and run this again"
        monkeypatch.setattr(ship_place, "write_at", fill)
        with pytest.raises(ContainerError, match=text):
            ship(member, place)
        monkeypatch.undo()
        ship(member, place)
        assert_whole(member, place)


def test_a_place_that_may_not_be_written_is_one_sentence(
    member: WrittenMember, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(ContainerError, match=r"Permission denied: let this user list, read, write and remove objects"):
        ship(member, tmp_path / "place")


@pytest.mark.parametrize("count", [2, 5])
def test_shippers_at_once_make_one_place(member: WrittenMember, tmp_path: Path, count: int) -> None:
    done, place = list[Pass | ContainerError](), tmp_path / "place"
    barrier = threading.Barrier(count)

    def run() -> None:
        shipper = Shipper(open_member(member.base_dir), open_place(str(place), {}))
        barrier.wait(LIMIT_S)
        try:
            done.append(shipper.run())
        except ContainerError as error:
            done.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive(), "a shipper does not end"
    assert [one.end_position for one in done if isinstance(one, Pass)] == [member.end_position] * count
    assert_whole(member, place)


class Changing(Directory):
    """A place in which something happens before the n-th object is written."""

    def __init__(self, root: Path, number: int, change: Callable[[], None]) -> None:
        super().__init__(str(root), root)
        self._left = number
        self._change = change

    def put(self, path: str, content: bytes, *, create: bool) -> None:
        self._left -= 1
        if self._left == 0:
            self._change()
        super().put(path, content, create=create)


def test_a_log_that_is_cut_while_it_is_copied_is_never_named(tmp_path: Path) -> None:
    history = write_history(tmp_path / "member")
    log, *others = open_member(history.base_dir).recordings()
    cut = next(message["log_position"] for message in history.messages if message["log_position"] > SEGMENT_LENGTH)

    def truncate() -> None:
        write_catalog(history.archive_dir, [replace(log, stop_position=cut), *others])

    for number in range(1, 12):
        place = tmp_path / f"place-{number}"
        write_catalog(history.archive_dir, [log, *others])
        member = open_member(history.base_dir, committed="recorded")
        Shipper(member, Changing(place, number, truncate)).run()
        manifest, faults = check_place(open_place(str(place), {}))
        assert faults == []
        assert manifest.end_position in (cut, history.end_position)
        if number <= 6:
            assert manifest.end_position == cut, "it was cut before the manifest"


def test_what_the_member_purges_stays_in_the_place(tmp_path: Path) -> None:
    member = write_history(tmp_path / "member")
    expected = rows_of(member.base_dir, "messages")
    log, *others = open_member(member.base_dir).recordings()
    ship(member, tmp_path / "place")
    (member.archive_dir / "0-0.rec").unlink()
    write_catalog(member.archive_dir, [replace(log, start_position=SEGMENT_LENGTH), *others])
    ship(member, tmp_path / "place")
    assert rows_of(tmp_path / "place", "messages") == expected
    # A new place begins where the member does now.
    ship(member, tmp_path / "later")
    assert manifest_of(tmp_path / "later").start_position == SEGMENT_LENGTH
    assert rows_of(tmp_path / "later", "messages") == rows_of(member.base_dir, "messages")


def test_a_place_that_is_too_far_behind_is_refused(tmp_path: Path) -> None:
    history = History(tmp_path / "member")
    history.begin_term()
    history.message(1, b"first")
    early = history.finish(is_closed=False)
    ship(early, tmp_path / "place", committed="recorded")
    for _ in range(300):
        history.message(1, bytes(1000))
    late = history.finish()
    log, *others = open_member(late.base_dir).recordings()
    (late.archive_dir / "0-0.rec").unlink()
    write_catalog(late.archive_dir, [replace(log, start_position=SEGMENT_LENGTH), *others])
    with pytest.raises(ConfigurationError, match="the member's log begins at 131072: it has removed what lies between"):
        ship(late, tmp_path / "place")


def test_damage_in_the_place_is_found_and_what_is_missing_is_copied_again(
    member: WrittenMember, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    ship(member, place)
    segment = place / "archive" / "0-0.rec"
    content = segment.read_bytes()
    segment.write_bytes(content[:500] + bytes([content[500] ^ 1]) + content[501:])
    (place / "archive" / "1-0.rec").write_bytes(b"short")
    (place / "archive" / "2-0.rec").unlink()
    _, faults = check_place(open_place(str(place), {}))
    assert [fault.partition(" ")[0] for fault in faults] == ["archive/0-0.rec", "archive/1-0.rec", "archive/2-0.rec"]
    assert "has other bytes than were shipped" in faults[0]
    ship(member, place)
    _, faults = check_place(open_place(str(place), {}))
    assert [fault.partition(" ")[0] for fault in faults] == ["archive/0-0.rec"]
    segment.unlink()
    ship(member, place)
    assert_whole(member, place)


def test_a_place_is_of_one_member_and_one_history(member: WrittenMember, tmp_path: Path) -> None:
    place = tmp_path / "place"
    ship(member, place)
    other = History(tmp_path / "other")
    other.now_ms += 5
    other.begin_term()
    with pytest.raises(ConfigurationError, match="It was wiped or replaced: give the new log a new place"):
        ship(other.finish(), place)
    diverged = write_history(tmp_path / "diverged", message_count=2000)
    with pytest.raises(ConfigurationError, match=r"these are two histories"):
        ship(diverged, place)
    used = tmp_path / "used"
    used.mkdir()
    (used / "notes.txt").write_text("mine")
    (used / ".part-2").write_text("mine")  # called as what a killed shipper leaves
    with pytest.raises(ConfigurationError, match=r"has notes.txt and no manifest: it is used for something else"):
        ship(member, used)
    assert sorted(path.name for path in used.iterdir()) == [".part-2", "notes.txt"]
    with pytest.raises(ConfigurationError, match="there is no directory .*/nowhere for"):
        ship(member, tmp_path / "nowhere" / "place")
    assert_whole(member, place)


def test_a_restore_into_the_same_files_is_another_history(tmp_path: Path) -> None:
    """One shipper goes on meanwhile, and never sees the member behind the place."""
    ends = []
    for name, count in (("member", 40), ("restored", 60)):
        history = History(tmp_path / name)
        history.begin_term()
        for number in range(count):
            history.message(1, b"%s %d" % (name.encode(), number))
        ends.append(history.finish(is_closed=False).end_position)
    member = open_member(tmp_path / "member", committed="recorded")
    shipper = Shipper(member, open_place(str(tmp_path / "place"), {}))
    assert [shipper.run().end_position for _ in range(2)] == [ends[0]] * 2 < ends
    for path in (tmp_path / "restored").rglob("*.*"):
        (tmp_path / "member" / path.relative_to(tmp_path / "restored")).write_bytes(path.read_bytes())
    with pytest.raises(ConfigurationError, match="has other bytes from log position"):
        shipper.run()


@pytest.mark.parametrize("start", [96, TERM_LENGTH + 3200, 3 * SEGMENT_LENGTH + 64, SEGMENT_LENGTH])
def test_a_log_that_begins_within_a_segment_is_read_while_that_grows(tmp_path: Path, start: int) -> None:
    """As the log of a backup that begins with the latest snapshot."""
    history = History(tmp_path / "member", start_position=start)
    history.begin_term()
    for _ in range(5):
        for number in range(250):
            history.message(1, b"%d" % number * 30)
        grown = history.finish(is_closed=False)
        ship(grown, tmp_path / "place", committed="recorded")
        assert check_place(open_place(str(tmp_path / "place"), {}))[1] == []
        assert rows_of(tmp_path / "place", "messages") == rows_of(grown.base_dir, "messages")


def test_a_place_that_lacks_the_begin_of_its_first_segment_gets_it(tmp_path: Path) -> None:
    """As releases before left it, for a log that begins within a segment."""
    history, place = History(tmp_path / "member", start_position=3200), tmp_path / "place"
    history.begin_term()
    ship(history.finish(is_closed=False), place, committed="recorded")
    manifest = manifest_of(place)
    (piece,) = manifest.log
    content = (place / piece.path).read_bytes()[3200:]
    cut = structs.replace(
        piece,
        path=f"tail/0-3200-{piece.end}.rec",
        position=3200,
        length=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )
    (place / cut.path).write_bytes(content)
    (place / manifest_path(90)).write_bytes(encode_manifest(structs.replace(manifest, log=[cut])))
    history.message(1, b"more")
    grown = history.finish(is_closed=False)
    ship(grown, place, committed="recorded")
    assert rows_of(place, "messages") == rows_of(grown.base_dir, "messages")


def _retire(path: str) -> Callable[[ShippedManifest], ShippedManifest]:
    return lambda found: structs.replace(found, retired=[Retired(path=path, since_ms=0)])


def _with_piece(**changes: Any) -> Callable[[ShippedManifest], ShippedManifest]:
    return lambda found: structs.replace(found, log=[structs.replace(found.log[0], **changes), *found.log[1:]])


def _with(**changes: Any) -> Callable[[ShippedManifest], ShippedManifest]:
    return lambda found: structs.replace(found, **changes)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (_retire("../precious"), "is not a path of an object in it"),
        (_retire("archive/../../precious"), "is not a path of an object in it"),
        (_retire("shipped/00000000000000000001.json"), "is not a path of an object in it"),
        (_retire(str(Path("/precious"))), "is not a path of an object in it"),
        (_with_piece(path="../other-place/archive/0-0.rec"), "is not a path of an object in it"),
        (_with_piece(position=-32, length=SEGMENT_LENGTH + 32), "is not between 0 and"),
        (_with(start_position=2**63), "is not between 0 and"),
        (_with(segment_length=0), "a segment cannot have 0 bytes"),
        (_with(segment_length=SEGMENT_LENGTH // 2), "lies in several segments"),
        (_with(recording_id=2**70), "recording 1180591620717411303424 is said to be"),
        (_with(recording="0@"), "recording 0 is said to be '0@'"),
        (_with(time_unit="WEEKS"), "'WEEKS' is not a unit of time"),
        (lambda found: structs.replace(found, snapshots=found.snapshots * 2), "a part of a snapshot is there twice"),
    ],
    ids=map(str, range(13)),
)
def test_a_hostile_manifest_is_refused_and_removes_nothing(
    member: WrittenMember,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[ShippedManifest], ShippedManifest],
    fault: str,
) -> None:
    place = tmp_path / "place"
    ship(member, place)
    (tmp_path / "precious").write_bytes(b"1")
    (place / manifest_path(90)).write_bytes(encode_manifest(change(manifest_of(place))))
    monkeypatch.setattr(Shipper, "_wait", lambda *_: None)
    for use in (lambda: ship(member, place), lambda: rows_of(place, "messages")):
        with pytest.raises(RecordingError, match=fault):
            use()
    assert (tmp_path / "precious").exists()


def test_a_stop_ends_between_two_objects_and_is_no_loss(member: WrittenMember, tmp_path: Path) -> None:
    stop = threading.Event()
    place = Changing(tmp_path / "place", 5, stop.set)
    with pytest.raises(ShipStopped, match="stopped; .* has the log up to"):
        Shipper(open_member(member.base_dir), place, stop=stop).run()
    ship(member, tmp_path / "place")
    assert_whole(member, tmp_path / "place")


class Failing(Directory):
    """A place whose store is in trouble now and then."""

    def __init__(self, root: Path, errors: Iterator[OSError | None]) -> None:
        super().__init__(str(root), root)
        self._errors = errors

    def put(self, path: str, content: bytes, *, create: bool) -> None:
        if (error := next(self._errors, None)) is not None:
            raise error
        super().put(path, content, create=create)


def test_a_store_in_trouble_is_asked_again_for_a_while(
    member: WrittenMember, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    waited = list[float | None]()

    class Impatient(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waited.append(timeout)
            return False

    trouble = [None, None, None, ConnectionError("reset"), TimeoutError("late"), None, ConnectionError("reset")]
    opened: Member = open_member(member.base_dir)
    Shipper(opened, Failing(tmp_path / "place", iter(trouble)), stop=Impatient()).run()
    assert_whole(member, tmp_path / "place")
    assert waited == [1.0, 2.0, 1.0]
    assert "recording.log: reset; trying again in 1 s, attempt 2 of 5" in caplog.text
    trouble = [ConnectionError("reset")] * 50
    with pytest.raises(ContainerError, match="cannot write .*: reset"):
        Shipper(opened, Failing(tmp_path / "other", iter(trouble)), stop=Impatient()).run()


def test_a_directory_that_was_named_by_mistake_stays_as_it_is(member: WrittenMember, tmp_path: Path) -> None:
    """What another program calls as a shipper calls what it writes is not a shipper's."""
    used = tmp_path / "used"
    for name in ("notes.txt", ".part-1", "archive/.part-of-a-film", f"mine/.part-{'0' * 32}"):
        (used / name).parent.mkdir(parents=True, exist_ok=True)
        (used / name).write_text("mine")
    before = sorted(used.rglob("*"))
    with pytest.raises(ConfigurationError, match="it is used for something else"):
        ship(member, used)
    assert sorted(used.rglob("*")) == before
    with pytest.raises(ContainerError, match="Not a directory"):
        ship(member, used / "notes.txt")


def test_what_a_killed_shipper_was_writing_is_removed(member: WrittenMember, tmp_path: Path) -> None:
    leftovers = [tmp_path / "place" / name / f".part-{'0' * 32}" for name in ("shipped", "tail", "metadata/1-2")]
    for leftover in leftovers:
        leftover.parent.mkdir(parents=True)
        leftover.write_text("half")
    ship(member, tmp_path / "place")
    assert_whole(member, tmp_path / "place")


def test_a_directory_that_another_shipper_removes_is_no_error_of_a_listing(
    member: WrittenMember, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = open_place(str(tmp_path / "place"), {})
    Shipper(open_member(member.base_dir), place).run()
    expected = place.lengths()
    removed = tmp_path / "place" / "metadata" / "removed"
    walk = os.walk

    def walk_and_remove(*arguments: Any, **options: Any) -> Iterator[Any]:
        removed.mkdir()
        for found in walk(*arguments, **options):
            if removed.is_dir() and removed.name in found[1]:
                removed.rmdir()
            yield found

    monkeypatch.setattr(os, "walk", walk_and_remove)
    assert place.lengths() == expected
    assert not removed.exists()
    (tmp_path / "place").rename(tmp_path / "gone")
    monkeypatch.undo()
    with pytest.raises(FileNotFoundError):
        place.lengths()


class Slow(Directory):
    """A store whose answer to a write does not come before someone says that it is late."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root), root)
        self.is_late = threading.Event()

    def put(self, path: str, content: bytes, *, create: bool) -> None:
        assert self.is_late.wait(LIMIT_S), "nobody says what is waited for"
        super().put(path, content, create=create)


def test_who_waits_for_a_store_says_so(member: WrittenMember, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, said = Slow(tmp_path / "place"), list[str]()

    def warn(_log: logging.Logger, text: str, *arguments: object) -> None:
        said.append(text % arguments)
        place.is_late.set()

    monkeypatch.setattr(slow_answers, "SLOW_S", 0.01)
    monkeypatch.setattr(logging.Logger, "warning", warn)
    Shipper(open_member(member.base_dir), place).run()
    assert any("probe: not done after 0.01 s, still waiting" in text for text in said)


def test_a_second_signal_ends_a_command_whose_store_does_not_answer(member: WrittenMember) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        options = json.dumps({"key": "k", "secret": "s", "endpoint_url": f"http://127.0.0.1:{server.getsockname()[1]}"})
        words = ["pipeline", "ship", str(member.base_dir), "--to", "s3://bucket/place", "--storage-options", options]
        with subprocess.Popen([sys.executable, "-m", "container", *words]) as process:
            try:
                server.settimeout(LIMIT_S)
                connection, _ = server.accept()
                with connection:
                    for _ in range(2):
                        process.terminate()
                        with contextlib.suppress(subprocess.TimeoutExpired):
                            process.wait(2)
                    assert process.wait(LIMIT_S) == -signal.SIGTERM
            finally:
                process.kill()


class Deaf(Directory):
    """A store that does what it is asked for, and whose first answer to a write is lost."""

    def put(self, path: str, content: bytes, *, create: bool) -> None:
        is_first = not self.lengths()
        super().put(path, content, create=create)
        if is_first:
            raise ConnectionError("reset")


def test_a_first_write_whose_answer_is_lost_is_no_error(
    member: WrittenMember, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Shipper, "_wait", lambda *_: None)
    Shipper(open_member(member.base_dir), Deaf("deaf", tmp_path / "place")).run()
    assert_whole(member, tmp_path / "place")


class Forgetful(Directory):
    """A store that overwrites what it was asked to create, as one without conditional writes does."""

    def put(self, path: str, content: bytes, *, create: bool) -> None:
        super().put(path, content, create=False)


def test_a_store_without_conditional_writes_is_refused(member: WrittenMember, tmp_path: Path) -> None:
    place: Place = Forgetful("forgetful", tmp_path / "place")
    with pytest.raises(ConfigurationError, match=r"does not refuse to create an object twice .*: use another store"):
        Shipper(open_member(member.base_dir), place).run()


def test_a_check_makes_no_directory(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nowhere': nothing was shipped there"):
        open_place(str(tmp_path / "nowhere"), {}, make=False)
    assert list(tmp_path.iterdir()) == []
    assert open_place(str(tmp_path / "nowhere"), {}).lengths() == {}


def test_the_log_word_names_a_shipped_place(member: WrittenMember, tmp_path: Path) -> None:
    ship(member, tmp_path / "place")
    with pytest.raises(NoFactsError, match="place is a place of `pipeline ship`, which this word does not read"):
        list(read_log(tmp_path / "place", Wanted(), has_payload=False, follows=False, limit=None))
