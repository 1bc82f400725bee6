"""How far a log is committed when no member runs: by one member, by the majority of several, or as it was asked for."""

from __future__ import annotations

import logging
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from container.errors import ConfigurationError
from container.files.recording_log import read_recording_log
from container.recordings import LogRange, Member, commit, open_member, open_members
from container.recordings.commit import all_end_texts, end_texts
from container.replay.execution import plan_replay
from container.testing.processes.recordings import write_catalog, write_recording_log
from tests.recordings_world import SEGMENT_LENGTH, World, entry, rows_of, session_message, write_mark
from tests.test_recordings_member import RunningMember

LENGTH = 96
"""Bytes of a message of these logs, with its header."""


def append(world: World, count: int) -> None:
    for number in range(count):
        world.log.append(session_message(1, b"%04d" % number, term=len(world.bases) - 1))


def member_of(base_dir: Path, *, terms: int = 1, count: int = 10, member_id: int | None = 0) -> World:
    """A member whose last term is open, as a kill leaves it; term t is led by member t."""
    world = World(base_dir)
    for _ in range(terms):
        world.begin_term()
        append(world, count)
    world.close()
    if member_id is not None:
        write_mark(base_dir, member_id)
    return world


def copy_of(world: World, path: Path, member_id: int | None, end: int | None = None) -> Path:
    """Another member with the same log, or less of it."""
    shutil.copytree(world.base_dir, path)
    (path / "cluster" / "cluster-mark.dat").unlink(missing_ok=True)
    if member_id is not None:
        write_mark(path, member_id)
    if end is not None:
        (log,) = open_member(path).recordings()
        write_catalog(path / "archive", [replace(log, stop_position=end)])
        kept = [one for one in read_recording_log(path / "cluster") if one.term_base_log_position <= end]
        write_recording_log(path / "cluster", kept)
    return path


def ranges(*paths: Path, committed: str | int | None = None) -> list[tuple[int, int]]:
    """Where each member's log is recorded and committed to."""
    found = [member.log_range() for member in open_members(list(paths), committed=committed)]
    return [(one.recorded_position, one.committed_position) for one in found]


def test_all_that_a_lone_member_has_recorded_is_committed(tmp_path: Path) -> None:
    end = member_of(tmp_path).log.position
    assert ranges(tmp_path) == [(end, end)]
    assert {row["committed"] for row in rows_of(tmp_path, "messages", committed=None)} == {True}
    member = open_member(tmp_path)
    assert plan_replay(member)[-1].end_position == end
    (text,) = all_end_texts([member], "strict")
    assert text == (
        f"the log of member 0 in {tmp_path} is recorded to {end} and known to be committed to 0: all that is recorded "
        "counts as committed, as no other member ever led it. If the cluster has other members, name their directories "
        "too, or set committed=known"
    )


@pytest.mark.parametrize("member_id", [1, None], ids=["other", "two"])
def test_a_log_that_another_member_led_is_committed_to_what_is_known(
    tmp_path: Path, member_id: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Member 1 was led by member 0 in the first term; without its mark file, two leaders tell as much."""
    world = member_of(tmp_path, terms=2, member_id=member_id)
    end, base = world.log.position, world.bases[1]
    assert ranges(tmp_path) == [(end, base)]
    assert ranges(tmp_path, committed="known") == [(end, base)]
    assert ranges(tmp_path, committed="recorded") == [(end, end)]
    name = tmp_path if member_id is None else f"member 1 in {tmp_path}"
    with caplog.at_level(logging.WARNING):
        assert plan_replay(open_member(tmp_path))[-1].end_position == base
    assert caplog.messages == [
        f"the log of {name} is recorded to {end} and known to be committed to {base}: what lies between is left out, "
        "as an election may remove it. Name the directories of all members, or set committed=recorded"
    ]
    (text,) = all_end_texts([open_member(tmp_path, committed="recorded")], "strict")
    assert f"is recorded to {end} and known to be committed to {base}: all that is recorded counts" in text


@pytest.mark.parametrize("kept", [0, 1, 2])
@pytest.mark.parametrize("count", [10, 2000])
def test_a_recording_log_that_lost_its_end_does_not_make_a_member_alone(
    tmp_path: Path, kept: int, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody knows any more who led, but the log itself shows that there were more terms."""
    world = member_of(tmp_path, terms=3, count=count)
    entries = list(read_recording_log(world.cluster_dir))
    assert ranges(tmp_path) == [(world.log.position, world.bases[2])]
    write_recording_log(world.cluster_dir, entries[:kept])
    ((recorded, committed),) = ranges(tmp_path)
    assert recorded == world.log.position
    assert committed <= world.bases[kept]
    (text,) = all_end_texts([open_member(tmp_path)], "strict")
    assert "what lies between is left out" in text


def test_a_lone_member_is_alone_in_many_terms_and_in_long_ones(tmp_path: Path) -> None:
    world = World(tmp_path)
    for _ in range(4):
        world.begin_term(leader_member_id=0)
        append(world, 2000)
    world.close()
    write_mark(tmp_path, 0)
    assert ranges(tmp_path) == [(world.log.position, world.log.position)]


def test_an_archive_alone_is_committed_to_what_is_known(tmp_path: Path) -> None:
    world = member_of(tmp_path)
    assert ranges(world.archive_dir) == [(world.log.position, 0)]
    assert ranges(world.archive_dir, committed="recorded") == [(world.log.position, world.log.position)]
    assert len(all_end_texts([open_member(world.archive_dir)], "strict")) == 1


@pytest.mark.parametrize(("asked", "given"), [(0, 0), (480, 480), ("00480", 480), (2**40, None)])
def test_a_log_position_can_be_given(tmp_path: Path, asked: int | str, given: int | None) -> None:
    end = member_of(tmp_path).log.position
    assert ranges(tmp_path, committed=asked) == [(end, end if given is None else given)]
    assert all_end_texts([open_member(tmp_path, committed=asked)], "strict") == []


@pytest.mark.parametrize("value", ["all", "", "1.5", "-1", "RECORDED"])
def test_other_settings_are_refused(tmp_path: Path, value: str) -> None:
    member_of(tmp_path)
    with pytest.raises(ConfigurationError, match="must be recorded .*, known .* or a log position"):
        open_member(tmp_path, committed=value)


@pytest.mark.parametrize("asked", [None, "recorded", "known"])
def test_a_running_member_knows_it_by_its_counter(tmp_path: Path, asked: str | None) -> None:
    world = World(tmp_path)
    world.begin_term()
    append(world, 10)
    world.close(stop=False)
    running = RunningMember(world)
    running.recorded, running.committed = world.log.position, 192
    running.write()
    member = open_member(tmp_path, committed=asked)
    assert member.log_range() == LogRange(0, world.log.position, 192)
    assert end_texts(member, member.log()) == {}


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ((11, 11, 11), 11),
        ((11, 11, 3), 11),
        ((11, 7, 3), 7),
        ((11, 3, 3), 3),
        ((7, 11, 3), 7),
        ((11, 7), 7),
        ((11, 9, 7, 5, 3), 7),
        ((11, 9, 7, 5), 7),
    ],
)
def test_what_a_majority_has_recorded_is_committed(tmp_path: Path, ends: tuple[int, ...], expected: int) -> None:
    world = member_of(tmp_path / "whole", member_id=None)
    paths = [
        copy_of(world, tmp_path / f"member-{member_id}", member_id, end * LENGTH) for member_id, end in enumerate(ends)
    ]
    assert ranges(*paths) == [(end * LENGTH, min(end, expected) * LENGTH) for end in ends]
    assert ranges(*reversed(paths)) == [(end * LENGTH, min(end, expected) * LENGTH) for end in reversed(ends)]
    texts = all_end_texts(open_members(paths), "strict")
    assert len(texts) == sum(end > expected for end in ends)
    assert all(f"committed to {expected * LENGTH}, by the majority of the members" in text for text in texts)


def test_a_tail_of_an_earlier_leader_is_no_vote(tmp_path: Path) -> None:
    """Member 0 has more of its term than the others, who went on in the next one; member 2 has not much of that."""
    old = member_of(tmp_path / "member-0", count=40, member_id=0)
    new = World(tmp_path / "member-1")
    new.begin_term()
    append(new, 10)
    base = new.begin_term() and new.bases[1]
    append(new, 20)
    new.close()
    write_mark(new.base_dir, 1)
    third = copy_of(new, tmp_path / "member-2", 2, base + 5 * LENGTH)
    found = ranges(old.base_dir, new.base_dir, third)
    assert found == [
        (old.log.position, base),
        (new.log.position, base + 5 * LENGTH),
        (base + 5 * LENGTH, base + 5 * LENGTH),
    ]
    # Without the third one only two of what may be three agree, up to where the terms part.
    assert ranges(old.base_dir, new.base_dir) == [(old.log.position, base), (new.log.position, base)]


def test_a_tail_of_an_earlier_leader_is_no_vote_for_a_log_that_was_purged(tmp_path: Path) -> None:
    """Where the terms part the newest log has no frames any more; its recording log has the place."""
    old = member_of(tmp_path / "member-0", count=SEGMENT_LENGTH // LENGTH + 40, member_id=0)
    new = World(tmp_path / "member-1")
    new.begin_term()
    append(new, 10)
    base = new.begin_term() and new.bases[1]
    append(new, SEGMENT_LENGTH // LENGTH + 100)
    new.close()
    write_mark(new.base_dir, 1)
    third = copy_of(new, tmp_path / "member-2", 2, base + 5 * LENGTH)
    (log,) = open_member(new.base_dir).recordings()
    write_catalog(new.archive_dir, [replace(log, start_position=SEGMENT_LENGTH)])
    new.segment(0).unlink()
    assert ranges(old.base_dir, new.base_dir, third) == [
        (old.log.position, base),
        (new.log.position, SEGMENT_LENGTH),
        (base + 5 * LENGTH, base + 5 * LENGTH),
    ]
    # As a backup has it: the last term alone. Where the term before ended it does not know.
    write_recording_log(new.cluster_dir, [entry(0, 0, leadership_term_id=2, term_base_log_position=SEGMENT_LENGTH)])
    assert ranges(old.base_dir, new.base_dir)[0] == (old.log.position, 0)


def test_logs_that_nobody_writes_are_compared_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream looks each second, and each look at each member compares it with all the others."""
    world = member_of(tmp_path / "0", terms=3)
    paths = [world.base_dir, copy_of(world, tmp_path / "1", 1), copy_of(world, tmp_path / "2", 2)]
    reads = []
    for name in ("read_term_message", "read_leadership_term_id"):
        function = getattr(commit, name)

        def counting(*of: Any, function: Any = function) -> Any:
            reads.append(of)
            return function(*of)

        monkeypatch.setattr(commit, name, counting)

    def count() -> int:
        reads.clear()
        assert ranges(*paths) == [(world.log.position, world.log.position)] * 3
        return len(reads)

    assert (count() > 0, count() > 0) == (True, True), "what was written a moment ago may be written again"
    past = time.time() - 60
    for path in paths:
        os.utime(path / "archive" / "0-0.rec", (past, past))
    assert (count() > 0, count(), count()) == (True, 0, 0)
    for member in open_members(paths):
        log = member.log()
        assert log != member.own_log()
        assert commit.names_newest_term(member, log)
    assert (len(reads), count()) == (0, 0), "a stream asks for it as well, when it knows how far all are committed"
    entries = list(read_recording_log(paths[0] / "cluster"))
    write_recording_log(paths[0] / "cluster", [*entries[:-1], replace(entries[-1], timestamp=4)])
    assert (count() > 0, count()) == (True, 0)
    # An election has cut a log, and the next leader's is as long.
    with (paths[1] / "archive" / "0-0.rec").open("r+b") as file:
        file.seek(world.bases[2] + 32 + 8 + 32)
        file.write(b"\5")
    os.utime(paths[1] / "archive" / "0-0.rec", (past, past))
    assert [end for _, end in ranges(*paths)] == [world.log.position, world.bases[2], world.log.position]


def test_what_could_not_be_read_for_a_moment_is_read_again(tmp_path: Path) -> None:
    """Old segments may lie on another disk, which may be away when a stream looks."""
    world = member_of(tmp_path / "0", terms=3, count=600)
    end = world.log.position - 10 * LENGTH
    paths = [world.base_dir, copy_of(world, tmp_path / "1", 1, end), copy_of(world, tmp_path / "2", 2, end)]
    past, disk, away = time.time() - 60, tmp_path / "disk", tmp_path / "away"
    away.mkdir()
    for path in paths:
        for segment in (path / "archive").glob("*.rec"):
            os.utime(segment, (past, past))
    for path in paths[1:]:
        segment = path / "archive" / "0-0.rec"
        segment.rename(away / path.name)
        segment.symlink_to(disk / path.name)
    assert [committed for _, committed in ranges(*paths)] == [world.bases[2]] * 3
    away.rename(disk)
    assert [committed for _, committed in ranges(*paths)] == [end] * 3


def test_what_is_known_counts_also_when_fewer_have_it(tmp_path: Path) -> None:
    """A closed term or a snapshot was committed, whoever of the members that are left has it."""
    world = member_of(tmp_path / "member-0", member_id=0)
    write_recording_log(world.cluster_dir, [entry(0, 0), entry(1, 7, entry_type=1, log_position=9 * LENGTH)])
    other = copy_of(world, tmp_path / "member-1", 1, 3 * LENGTH)
    third = copy_of(world, tmp_path / "member-2", 2, 3 * LENGTH)
    assert ranges(world.base_dir, other, third) == [
        (world.log.position, 9 * LENGTH),
        (3 * LENGTH, 3 * LENGTH),
        (3 * LENGTH, 3 * LENGTH),
    ]


def test_a_copy_is_no_vote(tmp_path: Path) -> None:
    world = member_of(tmp_path / "member-0", member_id=0)
    paths = [copy_of(world, tmp_path / f"member-{number}", number, 3 * LENGTH) for number in (1, 2)]
    copy = copy_of(world, tmp_path / "copy", None)
    end = world.log.position
    assert ranges(world.base_dir, *paths, copy) == [
        (end, 3 * LENGTH),
        (3 * LENGTH, 3 * LENGTH),
        (3 * LENGTH, 3 * LENGTH),
        (end, 3 * LENGTH),
    ]


def test_a_member_that_cannot_be_read_has_recorded_nothing(tmp_path: Path) -> None:
    world = member_of(tmp_path / "member-0", member_id=0)
    other, broken = (
        copy_of(world, tmp_path / f"member-{number}", number, end) for number, end in ((1, 480), (2, None))
    )
    (broken / "archive" / "archive.catalog").write_bytes(b"\xff" * 64)
    members = open_members([world.base_dir, other, broken])
    assert [member.log_range().committed_position for member in members[:2]] == [480, 480]


def test_a_running_member_decides_for_those_that_do_not_run(tmp_path: Path) -> None:
    world = World(tmp_path / "member-2")
    world.begin_term()
    append(world, 10)
    world.close(stop=False)
    stopped = [copy_of(world, tmp_path / f"member-{number}", number) for number in (0, 1)]
    running = RunningMember(world)
    running.recorded, running.committed = world.log.position, 6 * LENGTH
    running.write()
    assert [committed for _, committed in ranges(*stopped, world.base_dir)] == [6 * LENGTH] * 3


def test_members_are_sent_to_other_processes_with_what_they_know_of_each_other(tmp_path: Path) -> None:
    import pickle

    world = member_of(tmp_path / "member-0", member_id=0)
    members = open_members([world.base_dir, copy_of(world, tmp_path / "member-1", 1, 480)])
    sent: list[Member] = pickle.loads(pickle.dumps(members))
    assert sent == members
    assert sent[0].log_range().committed_position == 480
