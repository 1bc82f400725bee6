"""A member cuts off the end of its log that the leader's has not: in archives in memory, with a crash at each step."""

from __future__ import annotations

import pytest

from container.archive import error_codes
from container.errors import ArchiveError, TimedOutError
from container.testing.memory import transport_probe as seam
from tests.log_copy_world import LogMember, member_of, terms
from tests.replication_world import Archive, MemoryWorld, recorded
from tests.scripted_archive import Request, ScriptedArchive, Session

FRAME = 1024  # of each message that recorded() sends
CUT = 40 * FRAME


def with_terms(archive: Archive, member: LogMember) -> int:
    """Three terms of a log in recording 0, the last of which began behind CUT; where it ends."""
    end = archive.range(0)[1]
    member.recording_log.append_term(0, 3, 0, 1)
    member.recording_log.append_term(0, 4, 20 * FRAME, 1)
    member.recording_log.append_term(0, 5, 60 * FRAME, 1)
    member.recording_log.force()
    return end


BEFORE = [(3, 0, 20 * FRAME), (4, 20 * FRAME, 60 * FRAME), (5, 60 * FRAME, -1)]
AFTER = [(3, 0, 20 * FRAME), (4, 20 * FRAME, CUT), (5, CUT, CUT)]
MENDED = [(3, 0, 20 * FRAME), (4, 20 * FRAME, CUT), (5, CUT, -1)]


def logged() -> tuple[MemoryWorld, Archive, LogMember]:
    world = MemoryWorld()
    archive = world.archive(0)
    recorded(archive, 100 * FRAME)
    member = member_of(archive)
    with_terms(archive, member)
    return world, archive, member


def replay(archive: Archive, port: int) -> None:
    """A replay of the whole recording that somebody reads slowly, or not at all."""
    client = archive.world.connect(0)
    seam.add_subscription(client, f"aeron:udp?endpoint=localhost:{port}", 9)
    archive.requests().ok(
        "ReplayRequest", recording_id=0, position=0, length=-1, replay_stream_id=9, file_io_max_length=-1,
        replay_token=-1, replay_channel=f"aeron:udp?endpoint=localhost:{port}".encode(),
    )  # fmt: skip


def test_the_log_is_cut_off_though_it_is_replayed() -> None:
    _, archive, member = logged()
    before = archive.content(0)
    for port in (9001, 9002):
        replay(archive, port)
    assert archive.conductor.replayer.lowest_position(0) is not None
    member.truncate(0, 5, CUT)
    assert archive.range(0) == (0, CUT)
    assert archive.content(0) == before[:CUT]
    assert terms(member.recording_log) == AFTER
    assert archive.conductor.replayer.lowest_position(0) is None
    assert member.archive.waiting == 0


def test_a_replay_that_services_are_to_join_goes_on_until_they_have() -> None:
    _, archive, member = logged()
    replay(archive, 9001)
    member.is_replay_awaited = True
    member.truncation.begin(0, 5, CUT)
    for _ in range(100):
        member.turn()
        assert not member.truncation.poll()
    assert archive.conductor.replayer.lowest_position(0) is not None
    member.is_replay_awaited = False
    member.truncate(0, 5, CUT)
    assert archive.range(0) == (0, CUT)


def test_the_log_goes_on_where_it_was_cut_off() -> None:
    world, archive, member = logged()
    before = archive.content(0)
    leader = world.archive(1)
    recorded(leader, 120 * FRAME)
    member.truncate(0, 5, CUT)
    member.recording_id = 0
    end = leader.range(0)[1]
    assert member.copy(leader, 0, end).position == end
    assert archive.content(0) == before[:CUT] + leader.content(0)[CUT:]


@pytest.mark.parametrize("polls", range(12))
def test_a_crash_at_each_step_leaves_the_log_as_before_or_one_that_is_mended(polls: int) -> None:
    _, archive, member = logged()
    end = archive.range(0)[1]
    replay(archive, 9001)
    member.truncation.begin(0, 5, CUT)
    for _ in range(polls):
        member.turn()
        member.truncation.poll()
    member.crash()
    for _ in range(50):
        archive.world.turn()
    life = member_of(archive, disk=member.disk)
    position = life.start()
    assert (position, terms(life.recording_log)) in [(end, BEFORE), (CUT, MENDED), (CUT, AFTER)]
    life.truncate(0, 5, CUT)
    assert (archive.range(0), terms(life.recording_log)) == ((0, CUT), AFTER)


def test_a_crash_between_archive_and_recording_log_is_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    _, archive, member = logged()
    with monkeypatch.context() as dies:
        dies.setattr(type(member.recording_log), "end_terms", lambda *_: None)
        member.truncate(0, 5, CUT)
    assert (archive.range(0), terms(member.recording_log)) == ((0, CUT), BEFORE)
    member.crash()
    life = member_of(archive, disk=member.disk)
    assert life.start() == CUT
    assert terms(life.recording_log) == MENDED
    assert life.recording_log.drop_last_terms(5) == 4
    assert terms(life.recording_log) == [(3, 0, 20 * FRAME), (4, 20 * FRAME, -1)]


def test_a_position_that_is_none_is_refused() -> None:
    _, archive, member = logged()
    end = archive.range(0)[1]
    with pytest.raises(ArchiveError, match="invalid position"):
        member.truncate(0, 5, end + FRAME)
    assert (archive.range(0), terms(member.recording_log)) == ((0, end), BEFORE)


def test_a_truncation_that_is_given_up_asks_no_more() -> None:
    world, archive, member = logged()
    end = archive.range(0)[1]
    member.truncation.begin(0, 5, CUT)
    member.turn()
    member.truncation.poll()
    member.truncation.close()
    member.truncation.close()
    for _ in range(50):
        member.turn()
    assert member.truncation.poll()
    assert member.archive.waiting == 0
    assert (archive.range(0), terms(member.recording_log)) == ((0, end), BEFORE)
    assert world.texts() == []


class Busy:
    """An archive whose replays go on for a while after it has said that they end, as upstream's."""

    def __init__(self, refusals: int) -> None:
        self.world = MemoryWorld()
        self.archive = ScriptedArchive(self.world.driver, control_channel="aeron:ipc")
        self.refusals = refusals
        self.archive.hooks["StopAllReplaysRequest"] = self._stop
        self.archive.hooks["TruncateRecordingRequest"] = self._truncate
        self.member = LogMember(self.world, 0, control_stream_id=10, replication_channel="aeron:ipc")
        self.member.recording_log.append_term(0, 5, 0, 1)

    def _stop(self, archive: ScriptedArchive, session: Session | None, request: Request) -> None:
        assert session is not None
        archive.respond(session, request["correlation_id"])

    def _truncate(self, archive: ScriptedArchive, session: Session | None, request: Request) -> None:
        assert session is not None
        self.refusals -= 1
        if self.refusals < 0:
            archive.respond(session, request["correlation_id"])
        else:
            archive.respond(
                session, request["correlation_id"], error_codes.ACTIVE_RECORDING, code=1, error_message="is replayed"
            )


def test_replays_that_are_about_to_end_are_waited_for() -> None:
    busy = Busy(3)
    busy.member.truncate(0, 5, 4096)
    assert busy.archive.request_names()[-5:] == ["StopAllReplaysRequest"] + ["TruncateRecordingRequest"] * 4
    assert terms(busy.member.recording_log) == [(5, 0, 4096)]


def test_replays_that_do_not_end_are_not_waited_for_without_a_limit() -> None:
    busy = Busy(1_000_000)
    with pytest.raises(TimedOutError, match=r"^waited 0\.5 s for replays of recording 0 to end$"):
        busy.member.truncate(0, 5, 4096)
    assert terms(busy.member.recording_log) == [(5, 0, -1)]
