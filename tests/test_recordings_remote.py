"""Members at URLs: copies and shipped places in an S3 server, what is fetched of them, and what goes wrong there."""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from msgspec import structs

from container.common.slow_answers import said_when_slow
from container.errors import ConfigurationError, RecordingError, RecordingUnavailableError
from container.pipeline.pipeline_command import pipeline_parser, source_options
from container.pipeline.ship import Shipper
from container.pipeline.ship_place import open_place
from container.recordings import (
    VIEWS,
    Filters,
    open_member,
    open_members,
    plan,
    read,
    read_partition,
)
from container.recordings import remote as remote_module
from container.recordings.cluster_time import time_unit
from container.recordings.shipped import ShippedObject, encode_manifest, manifest_path
from container.replay.execution import plan_replay, replay_segment
from container.testing.processes.recordings import write_catalog
from tests.object_store import ObjectStore, write_place
from tests.recordings_world import SEGMENT_LENGTH, World, new_term, session_message
from tests.services import Quiet
from tests.spark.written_members import BEGIN_MS, History, WrittenMember, write_history

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> WrittenMember:
    return write_history(tmp_path_factory.mktemp("member"))


@pytest.fixture(scope="module")
def places(written: WrittenMember, object_store: ObjectStore) -> tuple[str, str]:
    """A copy of the member's directories in the store, and the place where it was shipped to."""
    shipped = object_store.place()
    write_place(object_store, written.base_dir, shipped)
    return object_store.copy(written.base_dir), shipped


def rows(path: str | Path | Sequence[str], view: str = "messages", **options: Any) -> list[dict[str, Any]]:
    return [row for batch in read(path, view, **options) for row in batch.to_pylist()]


@pytest.mark.parametrize("view", VIEWS)
def test_each_view_of_a_remote_member_is_that_of_its_directory(
    written: WrittenMember, object_store: ObjectStore, places: tuple[str, str], view: str
) -> None:
    expected = rows(written.base_dir, view)
    copied, shipped = places
    for path in (
        copied,
        f"{copied}/",
        f"{copied[:-1]}[{copied[-1]}]",
        f"{copied}/cluster",
        f"file://{written.base_dir}",
    ):
        assert rows(path, view, storage_options=object_store.options) == expected, path
    found = rows(shipped, view, storage_options=object_store.storage)
    if view == "recordings":
        assert [row["recording_id"] for row in found] == [row["recording_id"] for row in expected]
    else:
        assert found == expected


@pytest.mark.parametrize("word", ["audit", "ingest", "analytics", "replay"])
def test_the_commands_open_members_with_the_options_of_their_store(
    object_store: ObjectStore, places: tuple[str, str], word: str
) -> None:
    more = {"ingest": ["--table", "t"], "analytics": ["--out", "o"], "replay": ["--out", "o", "--service", "a:B"]}
    given = [word, *places[:1], "--storage-options", object_store.storage.text, *more.get(word, [])]
    storage = source_options(pipeline_parser(argparse.ArgumentParser, "pipeline").parse_args(given)).storage
    assert storage is not None
    assert storage.values() == object_store.options


def test_a_place_on_a_disk_that_all_hosts_see_is_read_like_one_in_an_object_store(
    written: WrittenMember, object_store: ObjectStore, tmp_path: Path
) -> None:
    shipped = object_store.place()
    write_place(object_store, written.base_dir, shipped)
    object_store.file_system.get(shipped, str(tmp_path / "place"), recursive=True)
    assert rows(tmp_path / "place") == rows(f"file://{tmp_path}/place") == rows(written.base_dir)
    assert open_member(tmp_path / "place").member_id == 2
    assert open_member(tmp_path / "place").cluster_id() == 7
    partitions = plan(open_member(tmp_path / "place"), "messages")
    (tmp_path / "place").rename(tmp_path / "unmounted")
    for partition in partitions:
        with pytest.raises(
            RecordingUnavailableError, match=r"/place: host \S+ does not see this directory of member 2"
        ):
            list(read_partition(partition))


def test_a_store_is_watched_while_it_answers_and_a_disk_is_not(
    written: WrittenMember, object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread for each range would take longer than to read it."""
    watched = []

    def counting(log: logging.Logger, what: str) -> Any:
        watched.append(what)
        return said_when_slow(log, what)

    monkeypatch.setattr(remote_module, "said_when_slow", counting)
    url = object_store.place()
    write_place(object_store, written.base_dir, url)
    assert len(rows(url, storage_options=object_store.options)) == len(written.messages)
    assert watched
    watched.clear()
    object_store.file_system.get(url, str(tmp_path / "mounted"), recursive=True)
    assert len(rows(tmp_path / "mounted")) == len(written.messages)
    assert not watched


@pytest.mark.parametrize("name", ["a::b", "sp ace", "per%20cent", "que?ry", "ha#sh", "br[ac]k", "ü-日本"])
def test_a_directory_may_have_any_name(written: WrittenMember, tmp_path: Path, name: str) -> None:
    copied, place = tmp_path / "copied" / name, tmp_path / "shipped" / name
    shutil.copytree(written.base_dir, copied)
    place.parent.mkdir()
    Shipper(open_member(copied), open_place(str(place), {})).run()
    for path in (copied, place):
        for form in (path, f"{path}/", f"file://{path}"):
            assert len(rows(form)) == len(written.messages), form


def test_a_pattern_stands_for_the_members_that_match(
    written: WrittenMember, object_store: ObjectStore, tmp_path: Path
) -> None:
    for name in ("node-1", "node-0"):
        shutil.copytree(written.base_dir, tmp_path / name)
    (tmp_path / "node-x").write_text("no directory")
    assert [member.path for member in open_members(tmp_path / "node-*")] == [
        str(tmp_path / name) for name in ("node-0", "node-1")
    ]
    (tmp_path / "other").mkdir()
    shutil.copytree(written.base_dir, tmp_path / "other" / "node[1]")
    assert [member.path for member in open_members(tmp_path / "other" / "node[1]")] == [f"{tmp_path}/other/node[1]"]
    url = object_store.place()
    for name in ("b", "a"):
        object_store.file_system.put(str(written.base_dir), f"{url}/{name}", recursive=True)
    found = open_members(f"{url}/*", storage_options=object_store.options)
    assert [member.path for member in found] == [f"{url}/a", f"{url}/b"]
    for pattern in (f"{url}/c*", f"s3://no-such-{object_store.bucket[:20]}/*", str(tmp_path / "none-*")):
        with pytest.raises(RecordingUnavailableError) as none:
            open_members(pattern, storage_options=object_store.options)
        assert str(none.value) == f"{pattern}: no directory matches this pattern"
    with pytest.raises(ConfigurationError, match="matches 2 directories, one is wanted"):
        open_member(f"{url}/*", storage_options=object_store.options)


@pytest.fixture(scope="module")
def hours(tmp_path_factory: pytest.TempPathFactory) -> WrittenMember:
    """A log of twelve hours, one in each segment file of a megabyte."""
    history = History(tmp_path_factory.mktemp("hours"), term_length=1024 * 1024, segment_length=1024 * 1024)
    history.begin_term()
    for hour in range(12):
        while history.position < (hour + 1) * 1024 * 1024:
            history.message(1, bytes(30_000))
            history.now_ms += 1_000
        history.now_ms = max(history.now_ms, BEGIN_MS + (hour + 1) * HOUR_MS)
    return history.finish()


@pytest.mark.parametrize("kind", ["copied", "shipped"])
def test_the_last_hour_fetches_the_last_hour(
    hours: WrittenMember, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    url = object_store.place() if kind == "shipped" else object_store.copy(hours.base_dir)
    if kind == "shipped":
        write_place(object_store, hours.base_dir, url)
    begin = BEGIN_MS + 11 * HOUR_MS
    expected = [message["log_position"] for message in hours.messages if message["timestamp"] >= begin]
    assert len(expected) > 30
    with object_store.fetched(monkeypatch) as fetched:
        found = rows(url, filters=Filters(begin_timestamp=begin), storage_options=object_store.options)
    assert [row["log_position"] for row in found] == expected
    segments = {path: length for path, length in fetched.items() if path.endswith(".rec")}
    small = [length for path, length in segments.items() if length < 2_000]
    # Of ten files the beginning of their first message, of the one before the wanted hour all, and of that hour.
    assert len(small) >= 9, segments
    assert sum(segments.values()) < 4 * 1024 * 1024, segments


def test_a_partition_fetches_its_range_and_little_behind_it(
    hours: WrittenMember, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = object_store.copy(hours.base_dir)
    filters = Filters(begin_position=3 * 1024 * 1024, end_position=3 * 1024 * 1024 + 200_000, is_border=True)
    (partition,) = plan(open_member(url, storage_options=object_store.options), "messages", filters=filters)
    with object_store.fetched(monkeypatch) as fetched:
        batches = list(read_partition(partition, filters=filters))
    assert sum(batch.num_rows for batch in batches) == 6
    segments = [length for path, length in fetched.items() if path.endswith(".rec")]
    assert 200_000 <= sum(segments) < 400_000, fetched


def test_a_range_of_which_not_all_comes_is_an_error_that_names_it(
    hours: WrittenMember, object_store: ObjectStore
) -> None:
    url = object_store.copy(hours.base_dir)
    partitions = plan(open_member(url, storage_options=object_store.options), "messages")
    list(read_partition(partitions[0]))
    segment = f"{url}/archive/0-{3 * 1024 * 1024}.rec"
    content = object_store.file_system.cat_file(segment)
    # Meanwhile somebody writes it again, and his copy has not come further.
    object_store.write(segment, content[:100_000])
    for mode in ("strict", "permissive"):
        with pytest.raises(RecordingUnavailableError) as short:
            list(read_partition(replace(partitions[3], mode=mode)))
        assert re.fullmatch(
            rf"{segment}, offset 65536: bytes 65536 to \d+ were asked for, which are \d+, and 34464 came: the "
            "object was changed or the transfer cut; read again",
            str(short.value),
        )
    # By a listing of now it is a file that ends in the middle of what was recorded.
    again = plan(open_member(url, storage_options=object_store.options), "messages")
    remote_module._forget()
    with pytest.raises(RecordingError, match=r"the file ends before byte 1\d{5}, in the middle of what was recorded"):
        list(read_partition(again[3]))
    object_store.file_system.rm(f"{url}/archive/0-{5 * 1024 * 1024}.rec")
    with pytest.raises(
        RecordingUnavailableError, match="0-5242880.rec.*: it was there when the directory was listed, and has gone"
    ):
        list(read_partition(partitions[5]))


def test_ranges_that_were_not_fetched_are_never_zeros(hours: WrittenMember, object_store: ObjectStore) -> None:
    """Each range of a segment is asked for in any order, with any length: what comes is what is in the file."""
    url = object_store.copy(hours.base_dir)
    directory = remote_module.resolve(f"{url}/archive", object_store.storage)
    assert isinstance(directory, remote_module.StoredDirectory)
    content = hours.archive_dir.joinpath("0-1048576.rec").read_bytes()
    for until in (None, 1024 * 1024 + 300_000):
        reader = (directory if until is None else directory.until(until)).segment_reader(0)
        for offset, length in [
            (0, 32),
            (32, 262144),
            (200_000, 8192),
            (900_000, 32),
            (262_176, 262_144),
            (0, 262_144),
            (330_000, 262_144),
            (700_000, 100_000),
            (1_048_000, 4_000),
            (1_048_576, 32),
        ]:
            found = b""
            while len(found) < length:
                part = reader.read(1024 * 1024, offset + len(found), length - len(found))
                if not part:
                    break
                found += part
            assert found == content[offset : offset + length], (offset, length)


def test_a_place_that_goes_on_is_read_on_also_by_who_planned_before(
    written: WrittenMember, object_store: ObjectStore
) -> None:
    url, end = object_store.place(), written.end_position
    middle = next(m["log_position"] for m in written.messages if m["log_position"] > 2 * SEGMENT_LENGTH + 1000)
    first = write_place(object_store, written.base_dir, url, end=middle)
    member = open_member(url, storage_options=object_store.options)
    partitions = plan(member, "messages")
    log = member.log()
    assert (log.log_range.committed_position, log.log_range.recorded_position) == (middle, middle)
    assert (log.committed_by, log.lost_position, time_unit(member)) == ("counter", None, "MILLIS")
    begun = [row["log_position"] for part in partitions[:1] for b in read_partition(part) for row in b.to_pylist()]
    second = write_place(object_store, written.base_dir, url, number=2)
    gone = {one.path for one in (*first.log, *first.metadata)} - {one.path for one in (*second.log, *second.metadata)}
    assert [path for path in gone if path.startswith("tail/")]
    for path in (*gone, manifest_path(1)):
        object_store.file_system.rm(f"{url}/{path}")
    rest = [row["log_position"] for part in partitions[1:] for b in read_partition(part) for row in b.to_pylist()]
    every = [message["log_position"] for message in written.messages]
    assert begun + rest == [position for position in every if position <= middle]
    assert member.log_range().recorded_position == end
    assert [row["log_position"] for row in rows(url, storage_options=object_store.options)] == every


def test_a_place_that_was_removed_and_shipped_anew_is_read_as_it_is_now(
    tmp_path: Path, object_store: ObjectStore
) -> None:
    """Its new manifest has the number of the one that this process has seen."""
    storage = object_store.options
    urls = [object_store.place(), f"file://{tmp_path}/place"]
    for count in (20, 40):
        history = History(tmp_path / str(count))
        history.begin_term()
        for number in range(count):
            history.message(1, b"%d of %d" % (number, count))
        member = history.finish()
        for url in urls:
            options = storage if url.startswith("s3:") else {}
            if count == 40:
                fsspec.core.url_to_fs(url, **options)[0].rm(url, recursive=True)
            assert Shipper(open_member(member.base_dir), open_place(url, options)).run().number == 2
            assert rows(url, storage_options=options) == rows(member.base_dir)


def test_a_place_that_was_deleted_and_begun_again_is_another_one(tmp_path: Path, object_store: ObjectStore) -> None:
    """Its manifests have the numbers of those that were read before."""
    url = object_store.place()
    local = tmp_path / "place"
    for name in ("old", "new", "next"):
        history = History(tmp_path / name)
        history.begin_term()
        for number in range(10):
            history.message(1, b"%s %d" % (name.encode(), number))
        written = history.finish()
        write_place(object_store, written.base_dir, url)
        object_store.file_system.get(url, str(local), recursive=True)
        expected = [b"%s %d" % (name.encode(), number) for number in range(10)]
        for path, options in ((url, {"storage_options": object_store.options}), (local, {})):
            assert [row["payload"] for row in rows(path, "session_messages", **options)] == expected
        object_store.file_system.rm(url, recursive=True)
        shutil.rmtree(local)


def test_what_was_not_shipped_is_not_there_and_what_was_changed_is_refused(
    written: WrittenMember, object_store: ObjectStore
) -> None:
    url, options = object_store.place(), object_store.options
    term = written.terms[1][1]
    manifest = write_place(object_store, written.base_dir, url, end=term - 96)
    assert {row["leadership_term_id"] for row in rows(url, "terms", storage_options=options)} == {0}
    shown = {row["log_position"] for row in rows(url, "snapshots", storage_options=options) if row["item"] == "ENTRY"}
    assert len(shown) == 1
    catalog = next(one for one in manifest.metadata if one.path.endswith("archive.catalog"))
    object_store.write(f"{url}/{catalog.path}", bytes(catalog.length))
    remote_module._forget()
    with pytest.raises(RecordingUnavailableError, match=r"archive\.catalog: its SHA-256 is not that of the manifest"):
        rows(url, storage_options=options)
    object_store.write(f"{url}/{manifest_path(3)}", b"{}")
    with pytest.raises(RecordingError, match=r"shipped/0+3\.json: it is not a manifest of a shipped place"):
        open_member(url, storage_options=options)


@pytest.fixture(scope="module")
def shipped(written: WrittenMember, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("shipped") / "place"
    Shipper(open_member(written.base_dir), open_place(str(place), {})).run()
    return place


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x5A]))


@pytest.mark.parametrize(
    ("pattern", "offset", "view", "filters"),
    [
        ("archive/0-0.rec", 70_000, "messages", Filters()),  # in a payload or a header, as it comes
        ("archive/0-0.rec", 64 + 4, "messages", Filters()),  # in a message's header
        ("archive/0-131072.rec", 130_000, "messages", Filters()),
        # What is wrong lies before and behind the rows that are asked for.
        ("archive/0-131072.rec", 40, "messages", Filters(begin_position=200_000, end_position=210_000)),
        ("archive/0-131072.rec", 130_000, "frames", Filters(begin_position=140_000, end_position=150_000)),
        ("tail/*.rec", -40, "messages", Filters()),
        ("archive/2-0.rec", -1, "snapshots", Filters()),
        ("archive/1-0.rec", 40, "snapshots", Filters()),
    ],
)
def test_bytes_of_a_shipped_place_that_were_changed_are_refused(
    shipped: Path, tmp_path: Path, pattern: str, offset: int, view: str, filters: Filters
) -> None:
    """Also where the rows that are asked for are whole, and in mode permissive, in which damage would be a gap."""
    place = Path(shutil.copytree(shipped, tmp_path / "place"))
    assert rows(place, view, filters=filters)
    (changed,) = sorted(place.glob(pattern))[:1]
    flip(changed, offset % changed.stat().st_size)
    remote_module._forget()
    for mode in ("strict", "permissive", "strict"):
        with pytest.raises(RecordingUnavailableError) as refused:
            rows(place, view, mode=mode, filters=filters)
        assert str(refused.value) == (
            f"file://{changed}: its SHA-256 is not that of the manifest: the object was changed since it was shipped. "
            "`aeron-cluster pipeline ship --check` finds all such objects: move them away, and ship again"
        )
    errors = [row["error"] for row in rows(place, view, mode="audit", filters=filters) if row["error"] is not None]
    assert any("its SHA-256 is not that of the manifest" in error for error in errors)
    shutil.copy(shipped / changed.relative_to(place), changed)
    assert rows(place, view, filters=filters)


@pytest.mark.parametrize("name", ["recording.log", "archive.catalog"])
def test_a_copy_that_the_manifest_names_is_not_taken_for_one_that_never_was(
    shipped: Path, tmp_path: Path, name: str
) -> None:
    """Without a recording log there would be no snapshots, and no leadership terms of frames."""
    place = Path(shutil.copytree(shipped, tmp_path / "place"))
    (gone,) = place.glob(f"metadata/*/{name}")
    gone.unlink()
    for view in ("snapshots", "frames", "terms"):
        with pytest.raises(RecordingUnavailableError, match=f"{name}: the manifest names it, and it is not there"):
            rows(place, view)


def test_a_replay_of_a_shipped_place_that_was_changed_is_refused(shipped: Path, tmp_path: Path) -> None:
    place = Path(shutil.copytree(shipped, tmp_path / "place"))
    for segment in plan_replay(open_member(place)):
        assert all(batch.num_rows for batch in replay_segment(segment, Quiet))
    (changed,) = sorted(place.glob("tail/*.rec"))[:1]
    flip(changed, changed.stat().st_size - 40)
    remote_module._forget()
    *_, last = plan_replay(open_member(place))
    with pytest.raises(RecordingUnavailableError, match=r"tail/.*rec: its SHA-256 is not that of the manifest"):
        list(replay_segment(last, Quiet))


def test_an_object_that_is_read_is_fetched_once_and_one_that_is_looked_at_is_not_checked(
    hours: WrittenMember, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, mib = object_store.place(), 1024 * 1024
    manifest = write_place(object_store, hours.base_dir, url)
    options = object_store.options
    with object_store.fetched(monkeypatch) as fetched:
        assert len(rows(url, storage_options=options)) == len(hours.messages)
    lengths = {path: length for path, length in fetched.items() if path.endswith(".rec")}
    assert len(lengths) == len(manifest.log)
    assert sum(lengths.values()) < sum(piece.length for piece in manifest.log) + 12 * 100_000, lengths
    remote_module._forget()
    part = Filters(begin_position=3 * mib + 500_000, end_position=3 * mib + 600_000, is_border=True)
    with object_store.fetched(monkeypatch) as fetched:
        assert len(rows(url, filters=part, storage_options=options)) > 0
    (whole,) = (length for path, length in fetched.items() if path.endswith(".rec"))
    assert mib <= whole < mib + 200_000
    with object_store.fetched(monkeypatch) as fetched:
        assert len(rows(url, filters=part, storage_options=options)) > 0
    assert sum(fetched.values()) < 700_000, "it was compared before"


def test_a_place_keeps_what_its_member_has_purged_and_lacks_what_only_its_catalog_has(
    written: WrittenMember, object_store: ObjectStore, tmp_path: Path
) -> None:
    purged = WrittenMember(Path(shutil.copytree(written.base_dir, tmp_path / "purged")))
    log, *others = open_member(purged.base_dir).recordings()
    url, options = object_store.place(), object_store.options
    before = write_place(object_store, purged.base_dir, url)
    (purged.archive_dir / "0-0.rec").unlink()
    write_catalog(purged.archive_dir, [replace(log, start_position=SEGMENT_LENGTH), *others])
    after = write_place(object_store, purged.base_dir, object_store.place())
    assert after.start_position == SEGMENT_LENGTH
    catalog = purged.archive_dir.joinpath("archive.catalog").read_bytes()
    path = "metadata/00000000000000000002-1/archive.catalog"
    copy = ShippedObject(path=path, length=len(catalog), sha256=hashlib.sha256(catalog).hexdigest())
    object_store.write(f"{url}/{path}", catalog)
    newer = structs.replace(before, metadata=[copy, *before.metadata[1:]], snapshots=before.snapshots[:-1])
    object_store.write(f"{url}/{manifest_path(2)}", encode_manifest(newer))
    assert rows(url, storage_options=options) == rows(written.base_dir)
    entries = [row for row in rows(url, "snapshots", storage_options=options) if row["item"] == "ENTRY"]
    assert [row["is_complete"] for row in entries] == [True, True, True, False]


def test_a_copy_that_goes_on_is_listed_at_each_look(tmp_path: Path, object_store: ObjectStore) -> None:
    history = History(tmp_path / "member")
    history.begin_term()
    for _ in range(100):
        history.message(1, b"x" * 900)
    written = history.finish(is_closed=False)
    url = object_store.copy(written.base_dir)
    member = open_member(url, committed="recorded", storage_options=object_store.options)
    assert member.log_range().recorded_position == written.end_position
    segment = f"{url}/archive/0-0.rec"
    content = bytearray(object_store.file_system.cat_file(segment))
    content[written.messages[50]["log_position"] :] = bytes(len(content) - written.messages[50]["log_position"])
    object_store.write(segment, bytes(content))
    assert member.log_range().recorded_position == written.messages[50]["log_position"]


class CoarseFileSystem(LocalFileSystem):  # type: ignore[misc]
    """Says times in whole seconds, and no more of a file's state: as SFTP does."""

    protocol = "coarse"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("coarse://")

    def info(self, path: Any, **options: Any) -> dict[str, Any]:
        found = super().info(path, **options)
        return {**found, "mtime": int(found["mtime"])}


def test_a_time_that_is_new_does_not_say_that_a_file_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two writes in one second have one time, and a segment has its length from the beginning."""
    fsspec.register_implementation("coarse", CoarseFileSystem, clobber=True)
    world = World(tmp_path)
    world.begin_term()
    world.close(stop=False)
    os.truncate(world.segment(), SEGMENT_LENGTH)
    member = open_member(f"coarse://{tmp_path}", committed="recorded")
    past = 1_900_000_000

    def end() -> int:
        os.utime(world.segment(), (past, past))
        return member.log_range().recorded_position

    clock = [time.monotonic_ns()]
    monkeypatch.setattr(time, "monotonic_ns", lambda: clock[0])
    for _ in range(3):
        world.log.append(session_message(1, b"x"))
        world.log.flush()
        assert end() == world.log.position
        clock[0] += 900_000_000
    archive = member.archive
    assert isinstance(archive, remote_module.StoredDirectory)
    assert archive.state("0-0.rec") is None
    clock[0] += 300_000_000
    assert end() == world.log.position
    assert archive.state("0-0.rec") == (SEGMENT_LENGTH, str(past))


def test_the_unit_of_time_is_not_that_of_the_cluster_that_was_at_a_url_before(tmp_path: Path) -> None:
    """A time that is new does not say that a catalog is the same, and that none is known says it even less."""
    fsspec.register_implementation("coarse", CoarseFileSystem, clobber=True)
    for unit, name in enumerate(("MILLIS", "MICROS", "NANOS")):
        world = World(tmp_path / "member")
        world.bases.append(0)
        world.log.append(new_term(0, 0, time_unit=unit))
        world.close()
        member = open_member(tmp_path / "member")
        write_catalog(world.archive_dir, [replace(member.log_descriptor(), start_timestamp=BEGIN_MS + unit)])
        assert time_unit(open_member(f"coarse://{tmp_path}/member")) == name
        shutil.rmtree(tmp_path / "member")


def test_what_is_known_of_files_that_are_gone_is_forgotten(tmp_path: Path) -> None:
    """A place gets a new manifest with each pass, and a stream looks at it for months."""
    fsspec.register_implementation("coarse", CoarseFileSystem, clobber=True)
    directory = remote_module.StoredDirectory(f"coarse://{tmp_path}", None)
    for number in range(5):
        (tmp_path / str(number)).write_text("x")
        directory.look()
        assert [list(times) for times in directory._times.values()] == [[str(number)]]
        (tmp_path / str(number)).unlink()


def test_errors_of_places_name_the_fix_and_no_secret(
    written: WrittenMember, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "container")
    url = object_store.copy(written.base_dir)
    object_store.write(f"{url}/other/file", b"nothing of a member")
    member = open_member(url, storage_options=json.dumps(object_store.options))
    assert "a-secret-value" not in f"{member!r} {plan(member, 'messages')!r}"
    assert "storage=StorageOptions(endpoint_url, key, secret)" in repr(member)
    for path, kind, text in (
        (f"{url}/none", RecordingUnavailableError, "none: there is no such directory"),
        (f"{url}/archive/0-0.rec", RecordingUnavailableError, "0-0.rec: is not a directory"),
        (f"{url}/other", RecordingError, "there is no archive.catalog here, below, or beside, and no manifest"),
        ("nowhere://x", ConfigurationError, "path='nowhere://x': fsspec knows no file system nowhere://"),
        ("s3://bucket", RecordingUnavailableError, "s3://bucket: the directory cannot be listed: "),
    ):
        options = {"endpoint_url": "http://127.0.0.1:1", "key": "k", "secret": "a-secret-value"}
        given = options if path == "s3://bucket" else object_store.options if path.startswith("s3") else None
        with pytest.raises(kind) as caught:
            open_member(path, storage_options=given)
        assert text in str(caught.value)
        assert "a-secret-value" not in str(caught.value)
    for wrong in ("[1]", '{"key": "a-secret-value"', "x"):
        with pytest.raises(ConfigurationError, match="^storage_options: must be a JSON object") as refused:
            open_member(url, storage_options=wrong)
        assert wrong not in str(refused.value)
    with pytest.raises(RecordingUnavailableError, match="argument 'endpoint'; look at storage_options$"):
        open_member("s3://bucket", storage_options={"endpoint": "http://127.0.0.1:1"})
    with pytest.raises(ConfigurationError, match="give two paths or two URLs"):
        open_member(url, archive_dir="/archive", storage_options=object_store.options)
    assert "a-secret-value" not in caplog.text
    remote_module._forget()
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "s3")
    with pytest.raises(ImportError, match=r's3:// needs a package .*: pip install ".*\[storage\]"'):
        open_member(url)
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(ImportError, match=r'needs fsspec, and s3:// s3fs: pip install ".*\[storage\]"'):
        open_member(url)
