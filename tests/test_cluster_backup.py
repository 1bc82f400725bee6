"""A backup, step by step: archives in memory, a member that is scripted, and each failure where it comes."""

from __future__ import annotations

import errno
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import pytest

from container.archive.client.archive_connection import ArchiveRequest
from container.backup.backup_machine import BackupState
from container.backup.member_answer import BEGIN_ANEW, MemberAnswer, check_same_log, compared_from
from container.consensus.cluster_member import parse_cluster_members
from container.consensus.snapshot_copy import SnapshotCopy
from container.errors import ClusterError, RegistrationError
from container.settings.setting import MAX_SERVICE_COUNT
from container.testing.memory import transport_probe as seam
from tests.backup_world import (
    CONSENSUS_STREAM_ID,
    FRAME,
    INTERVAL_MS,
    TIMEOUT_NS,
    Backup,
    Credentials,
    Member,
    check_copy,
)
from tests.replication_world import (
    MS,
    SEGMENT_LENGTH,
    STREAM_ID,
    MemoryWorld,
    NetworkWorld,
    Stream,
    recorded,
    recorded_messages,
    recording,
    snapshot_messages,
)

type Lie = Callable[[MemoryWorld, Member], tuple[Member, str]]
"""Has a member answer with a recording that is not its log; the member, and a part of what the backup says."""

STATES = [each for each in BackupState if each < BackupState.RESET_BACKUP]


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld()


@pytest.fixture
def member(world: MemoryWorld) -> Member:
    made = Member(world)
    made.begin_term()
    return made


def behind(world: MemoryWorld, member: Member) -> tuple[Backup, int, int]:
    """A backup of a member whose commit counter stays behind its snapshot; the positions of both."""
    before = member.commit.value
    position = member.grow(4 * FRAME)
    member.take_snapshot()
    seam.set_counter(member.commit, before)
    return Backup(world, member), before, position


def entries(backup: Backup) -> list[tuple[int, int, int]]:
    """Term, position and service of each entry; of a term the service is -2."""
    return [
        (each.leadership_term_id, each.log_position, -2 if each.is_term else each.service_id)
        for each in backup.recording_log.entries
    ]


def test_a_log_without_snapshots_is_copied_and_followed(world: MemoryWorld, member: Member) -> None:
    backup = Backup(world, member)
    backup.until_backing_up()
    assert entries(backup) == [(0, -1, -2)]
    end = member.grow(5 * FRAME)
    backup.until(lambda: backup.machine.position == end == backup.display.position)
    assert check_copy(backup, member) == end
    assert backup.errors == []
    assert backup.display.states == [0, 2, 3, 4, 5]
    assert backup.display.deadline_ms > INTERVAL_MS


@pytest.mark.parametrize("services", [1, 3])
def test_the_snapshots_of_all_services_are_copied_with_the_log(
    world: MemoryWorld, member: Member, services: int
) -> None:
    position = member.take_snapshot(services=services)
    end = member.grow(3 * FRAME)
    backup = Backup(world, member)
    backup.until_backing_up()
    assert entries(backup) == [(0, -1, -2), *((0, position, each) for each in range(services - 1, -2, -1))]
    backup.until(lambda: backup.machine.position == end)
    assert check_copy(backup, member, services) == end
    assert backup.display.snapshots == 1
    (updated,) = [fields for name, fields in backup.events if name == "backup_updated"]
    assert updated["snapshot_position"] == position


def test_from_the_latest_snapshot_on_where_that_is_set(world: MemoryWorld, member: Member) -> None:
    position = member.take_snapshot()
    member.grow(3 * FRAME)
    backup = Backup(world, member, initial_replay_start="LATEST_SNAPSHOT")
    backup.until_backing_up()
    assert backup.archive.range(backup.log_recording_id())[0] == position
    assert check_copy(backup, member) >= position


def test_a_query_says_all_that_upstreams_does(world: MemoryWorld, member: Member) -> None:
    backup = Backup(world, member)
    backup.until_backing_up()
    (query,) = member.queries
    assert query["log_position"] == 2**63 - 1
    assert (query["response_stream_id"], query["version"]) == (108, 0x300)
    assert query["response_channel"].decode() == backup.settings.consensus_channel
    assert query["encoded_credentials"] == b"backup"


@pytest.mark.parametrize(("source_type", "chosen"), [("LEADER", 1), ("FOLLOWER", 0)])
def test_the_member_is_a_leader_or_a_follower_as_it_is_set(
    world: MemoryWorld, member: Member, source_type: str, chosen: int
) -> None:
    member.open_term(1, FRAME, leader_id=1)
    leader = Member(world, 1)
    leader.begin_term()
    backup = Backup(world, member, leader, source_type=source_type)
    backup.until_backing_up()
    assert check_copy(backup, [member, leader][chosen]) > 0
    assert backup.errors == []


def test_without_such_a_member_it_says_so_and_asks_again(world: MemoryWorld, member: Member) -> None:
    backup = Backup(world, member, source_type="FOLLOWER")
    backup.until_state(BackupState.RESET_BACKUP)
    assert backup.failures() == [
        f"no member answers as it should: {member.endpoint} is the leader, source_type=FOLLOWER"
    ]
    member.open_term(1, FRAME, leader_id=3)
    backup.until_backing_up()


def test_a_challenge_is_answered(world: MemoryWorld, member: Member) -> None:
    member.challenge = b"word?"
    backup = Backup(world, member)
    backup.until_backing_up()
    (response,) = member.responses
    assert (response["encoded_credentials"], response["cluster_session_id"]) == (b"answer to word?", -1)


@pytest.mark.parametrize(("code", "name"), [(1, "ERROR"), (3, "AUTHENTICATION_REJECTED")])
def test_a_refusal_is_reported_with_its_text(world: MemoryWorld, member: Member, code: int, name: str) -> None:
    member.refusal = code, b"not you"
    backup = Backup(world, member)
    backup.until_state(BackupState.RESET_BACKUP)
    assert backup.failures() == [f"no member answers as it should: {member.endpoint}: {name}: not you"]
    member.refusal = None
    backup.until_backing_up()


def test_a_member_that_is_silent_is_left_for_the_next_one(world: MemoryWorld, member: Member) -> None:
    silent = Member(world, 1)
    silent.is_answering = False
    for members in ((member, silent), (silent, member)):
        backup = Backup(world, *members)
        backup.until_backing_up()
        assert backup.failures() == []
        backup.close()


def test_a_member_whose_name_is_not_known_is_left_for_the_next_one(world: MemoryWorld, member: Member) -> None:
    other = Member(world, 1)
    other.begin_term()
    backup = Backup(world, member, other)
    backup.until(lambda: backup.machine._archive)
    world.turn()  # the publication to its own archive is there, but no answer
    world.driver.fail_next_add("exclusive_publication", code=RegistrationError.UNKNOWN_HOST, text="unknown host")
    backup.until_backing_up()
    assert backup.failures() == []


def test_it_says_where_no_name_is_known(world: MemoryWorld, member: Member) -> None:
    backup = Backup(world, member)
    backup.until(lambda: backup.machine._archive)
    world.turn()  # the publication to its own archive is there, but no answer
    world.driver.fail_next_add("exclusive_publication", code=RegistrationError.UNKNOWN_HOST, text="unknown host")
    backup.until(backup.failures)
    assert backup.failures() == [f"no member answers as it should: {member.endpoint}: unknown host"]
    backup.until_backing_up()


@pytest.mark.parametrize("members", [b"0,:0", b"0,a:1,b:2", b"\xff|"])
def test_a_list_of_members_that_is_invalid_ends_the_round_of_no_other_member(
    world: MemoryWorld, member: Member, members: bytes
) -> None:
    wrong = Member(world, 1, leader_id=0)
    wrong.begin_term()
    wrong.fields = {"cluster_members": members}
    backup = Backup(world, wrong, member)
    backup.machine._endpoints[:] = [wrong.endpoint, member.endpoint]
    backup.until_backing_up()
    assert backup.failures() == []
    assert check_copy(backup, member) >= 0
    backup.close()
    backup = Backup(world, wrong)
    backup.until(backup.failures)
    assert backup.failures()[0].startswith(f"no member answers as it should: {wrong.endpoint}: ")


def test_nobody_answers(world: MemoryWorld, member: Member) -> None:
    member.is_answering = False
    backup = Backup(world, member)
    begin_ns = world.clock.now_ns
    backup.until_state(BackupState.RESET_BACKUP)
    assert world.clock.now_ns - begin_ns < TIMEOUT_NS + 200 * MS
    assert "it was asked and does not answer within 0.5 s" in backup.failures()[0]
    member.is_answering = True
    backup.until_backing_up()


@pytest.mark.parametrize("header", [b"x" * 8, b"\x10\0\x0f\x27\x6f\0\x10\0"], ids=["schema", "template"])
def test_what_cannot_be_read_hides_no_answer(world: MemoryWorld, member: Member, header: bytes) -> None:
    """Anybody may send to where the members answer."""
    client = world.connect(0)
    member.is_answering = False
    backup = Backup(world, member)
    publication = seam.add_publication(
        client, str(backup.settings.consensus_channel), CONSENSUS_STREAM_ID, exclusive=True
    )

    def send() -> None:
        seam.invoke(client)
        seam.offer(publication, header + bytes(32))

    world.tasks.append(send)
    backup.until(backup.failures)
    assert "within 0.5 s; received something else: " in backup.failures()[0]
    member.is_answering = True
    backup.until_backing_up()


def test_a_member_that_names_itself_not_is_passed_over(world: MemoryWorld, member: Member) -> None:
    """As upstream before 1.44."""
    member.fields = {"member_id": None}
    backup = Backup(world, member)
    backup.until_state(BackupState.RESET_BACKUP)
    assert "it answers as member None" in backup.failures()[0]


def test_new_snapshots_come_with_the_next_query(world: MemoryWorld, member: Member) -> None:
    first = member.take_snapshot()
    backup = Backup(world, member, backup_interval_ns=100 * MS)
    backup.until_backing_up()
    second = member.grow(4 * FRAME)
    member.take_snapshot()
    backup.until(lambda: len(backup.recording_log.entries) == 5)
    assert entries(backup) == [(0, -1, -2), *((0, each, service) for each in (first, second) for service in (0, -1))]
    recordings = len(backup.archive.store.catalog.recording_ids())
    queries = len(member.queries)
    backup.until(lambda: len(member.queries) > queries + 2)
    assert len(backup.archive.store.catalog.recording_ids()) == recordings == 5, "what it has is not copied again"
    assert check_copy(backup, member) == second
    assert backup.errors == []


@pytest.mark.parametrize(("hours", "early"), [(-24, 0), (24, 1)])
def test_a_time_of_day_that_is_set_delays_no_query(world: MemoryWorld, member: Member, hours: int, early: int) -> None:
    """Set back, it brings none forward either."""
    backup = Backup(world, member)
    backup.until_backing_up()
    world.clock.set_epoch_ms(world.clock.now_ms + hours * 3600 * 1000)
    world.clock.advance((INTERVAL_MS - 1000) * MS)
    for _ in range(100):
        world.turn()
    assert len(member.queries) == 1 + early
    for count in (2 + early, 3 + early):
        world.clock.advance(INTERVAL_MS * MS)
        backup.until(lambda count=count: len(member.queries) == count and backup.state == 5)  # type: ignore[misc]
    assert backup.errors == []


def test_an_operator_sets_when_it_asks(world: MemoryWorld, member: Member) -> None:
    backup = Backup(world, member)
    backup.until_backing_up()
    backup.display.deadline_ms = 0
    backup.until(lambda: len(member.queries) == 2)
    backup.until_backing_up()
    assert backup.display.deadline_ms > INTERVAL_MS


def test_older_snapshots_than_the_copy_has_are_left(world: MemoryWorld, member: Member) -> None:
    member.take_snapshot()
    member.grow(FRAME)
    member.take_snapshot()
    backup = Backup(world, member, backup_interval_ns=50 * MS)
    backup.until_backing_up()
    count = len(backup.recording_log.entries)
    assert member.recording_log.invalidate_latest_snapshot()
    queries = len(member.queries)
    backup.until(lambda: len(member.queries) > queries + 1)
    assert len(backup.recording_log.entries) == count


def test_nothing_is_entered_before_the_log_is_recorded_so_far(world: MemoryWorld, member: Member) -> None:
    """The member's commit position is behind its snapshot: nothing of the copy counts until it is there."""
    backup, before, position = behind(world, member)
    backup.until(lambda: backup.machine.position == before)
    for _ in range(100):
        world.turn()
    assert backup.state == BackupState.LIVE_LOG_REPLAY
    assert check_copy(backup, member) == -1
    seam.set_counter(member.commit, position)
    backup.until_backing_up()
    assert check_copy(backup, member) == position


def test_a_log_that_is_not_recorded_further_begins_again_and_goes_on(world: MemoryWorld, member: Member) -> None:
    """The recorded part is not copied twice, although no recording log names it yet."""
    backup, before, position = behind(world, member)
    backup.until_state(BackupState.RESET_BACKUP)
    assert backup.failures() == [f"no progress within 0.5 s: the log is recorded up to {before}, needed is {position}"]
    seam.set_counter(member.commit, position)
    backup.until_backing_up()
    assert backup.archive.range(backup.log_recording_id())[0] == 0
    assert check_copy(backup, member) == position


@pytest.mark.parametrize("has_older", [False, True])
def test_a_log_that_begins_behind_the_next_members_snapshot_begins_anew(world: MemoryWorld, has_older: bool) -> None:
    """Nothing names what was recorded of the first member's log, from its latest snapshot on: the other has not that.

    It has an older one, or none.
    """
    first, second = Member(world), Member(world, 1, leader_id=0)
    for each in (first, second):
        each.begin_term()
        if has_older:
            each.take_snapshot()
        each.grow(5 * FRAME)
    first.take_snapshot()
    before = first.commit.value
    first.grow(FRAME)
    first.open_term(1, FRAME)
    seam.set_counter(first.commit, before)
    backup = Backup(world, first, initial_replay_start="LATEST_SNAPSHOT")
    backup.until_state(BackupState.RESET_BACKUP)
    backup.machine._endpoints[:] = [second.endpoint]
    end = second.grow(9 * FRAME)
    backup.until_backing_up()
    backup.until(lambda: backup.machine.position == end)
    assert "has no snapshot from there on" in backup.failures()[1]
    assert check_copy(backup, second) == end
    assert unnamed(backup) == []


def test_a_recording_that_nothing_names_yet_may_be_gone(world: MemoryWorld, member: Member) -> None:
    backup, _, position = behind(world, member)
    backup.until_state(BackupState.RESET_BACKUP)
    recording_id = backup.machine._log_recording_id
    world.until(lambda: not backup.archive.store.is_active(recording_id))
    backup.archive.requests().ok("PurgeRecordingRequest", recording_id=recording_id)
    seam.set_counter(member.commit, position)
    backup.until_backing_up()
    assert check_copy(backup, member) == position
    assert f"unknown recording id: {recording_id}" in backup.failures()[1]


def test_a_recording_that_nothing_names_yet_is_found_after_many_failures(
    world: MemoryWorld, member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each round notes what it copies, and of many notes the oldest ones go."""
    backup, _, position = behind(world, member)
    backup.until_state(BackupState.RESET_BACKUP)
    with monkeypatch.context() as patched:
        patched.setattr(SnapshotCopy, "_until_whole", refused)
        backup.until(lambda: len(backup.failures()) > 20)
        backup.crash()
    seam.set_counter(member.commit, position)
    after = backup.next_life(member)
    after.until_backing_up()
    assert unnamed(after) == []
    assert check_copy(after, member) == position


def refused(_self: SnapshotCopy, _request: ArchiveRequest, _what: str) -> Generator[None, None, int]:
    yield
    raise ClusterError("refused")


def test_a_position_that_the_members_log_does_not_reach_ends_the_round(world: MemoryWorld, member: Member) -> None:
    """A log that grows shows progress for ever."""
    member.fields = {"last_leadership_term_id": 1, "last_term_base_log_position": 2**40}
    backup = Backup(world, member)
    backup.until(backup.failures)
    assert backup.failures() == [f"member 0 names position {2**40}, and its log goes to {20 * FRAME}"]
    assert check_copy(backup, member) == -1
    member.fields = {}
    backup.until_backing_up()


def snapshots_of(member: Member) -> list[dict[str, int | None]]:
    """The snapshots of a member as it answers with them."""
    return [
        {
            "recording_id": each.recording_id,
            "leadership_term_id": each.leadership_term_id,
            "term_base_log_position": each.term_base_log_position,
            "log_position": each.log_position,
            "timestamp": each.timestamp,
            "service_id": each.service_id,
        }
        for each in member.recording_log.entries
        if each.is_snapshot
    ]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((each, None) for each in ("recording_id", "leadership_term_id", "term_base_log_position", "log_position")),
        *((each, None) for each in ("timestamp", "service_id")),
        *((each, -7) for each in ("recording_id", "leadership_term_id", "term_base_log_position", "log_position")),
        *((each, 2**62) for each in ("leadership_term_id", "term_base_log_position")),
        ("log_position", 20 * FRAME + 8),
    ],
)
def test_a_snapshot_that_cannot_be_is_none(world: MemoryWorld, member: Member, field: str, value: int | None) -> None:
    member.take_snapshot()
    member.fields = {"snapshots": [each | {field: value} for each in snapshots_of(member)]}
    backup = Backup(world, member)
    backup.until(backup.failures)
    assert "a snapshot that cannot be" in backup.failures()[0]
    assert check_copy(backup, member) == -1
    member.fields = {}
    backup.until_backing_up()


def test_more_snapshots_than_a_member_has_services_are_not_copied(world: MemoryWorld, member: Member) -> None:
    member.take_snapshot(services=MAX_SERVICE_COUNT + 1, length=FRAME)
    backup = Backup(world, member)
    backup.until(backup.failures)
    assert "its snapshots are not one of the consensus module and of each service" in backup.failures()[0]
    assert len(backup.archive.store.catalog.recording_ids()) == 0


@pytest.mark.parametrize("method", ["encoded_credentials", "on_challenge"])
def test_credentials_that_raise_end_the_round_alone(
    world: MemoryWorld, member: Member, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    wrong = KeyError("no key")

    def broken(*_: object) -> bytes:
        raise wrong

    member.challenge = b"word?"
    backup = Backup(world, member)
    with monkeypatch.context() as patched:
        patched.setattr(Credentials, method, broken)
        backup.until(backup.failures)
    assert backup.failures() == ["'no key'"]
    assert backup.errors[0] is wrong
    assert "'no key' (in state BACKUP_QUERY; the next try begins in " in backup.texts()[1]
    assert len(backup.errors) == 2
    backup.until_backing_up()


def test_a_set_of_snapshots_that_is_not_whole_is_none(world: MemoryWorld, member: Member) -> None:
    position = member.take_snapshot(services=2)
    snapshots: list[dict[str, Any]] = list(snapshots_of(member))
    member.open_term(1, FRAME)
    for wrong in (
        [each | {"term_base_log_position": 0 if each["service_id"] < 1 else FRAME} for each in snapshots],
        [each for each in snapshots if each["service_id"] != 0],
        [each for each in snapshots if each["service_id"] != -1],
        [each | {"log_position": position - 32 * max(0, each["service_id"])} for each in snapshots],
        [snapshots[0] | {"service_id": each, "recording_id": 50 + each} for each in range(11)] + snapshots[-1:],
    ):
        member.fields = {"snapshots": wrong}
        backup = Backup(world, member)
        backup.until_state(BackupState.RESET_BACKUP)
        assert "its snapshots are not one of the consensus module and of each service" in backup.failures()[0]
        assert check_copy(backup, member) == -1
        backup.close()


END = 20 * FRAME
SNAPSHOT = {
    "recording_id": 1,
    "leadership_term_id": 0,
    "term_base_log_position": 0,
    "log_position": END,
    "timestamp": 7,
    "service_id": -1,
}
CANNOT_BE: list[dict[str, Any]] = [
    {"log_recording_id": None},
    {"log_recording_id": -1},
    {"last_leadership_term_id": None},
    {"last_leadership_term_id": -1},
    {"last_term_base_log_position": None},
    {"last_term_base_log_position": -32},
    {"last_term_base_log_position": 7},
    {"commit_position_counter_id": None},
    *(
        {"snapshots": [SNAPSHOT | wrong | {"service_id": 0}, SNAPSHOT | {"recording_id": 2} | wrong]}
        for wrong in (
            {"recording_id": 2},
            {"recording_id": None},
            {"leadership_term_id": None},
            {"leadership_term_id": 1},
            {"leadership_term_id": -1},
            {"term_base_log_position": None},
            {"term_base_log_position": 32},
            {"log_position": None},
            {"log_position": -32},
            {"log_position": END + 1},
            {"timestamp": None},
        )
    ),
    {"snapshots": [SNAPSHOT | {"recording_id": 0}]},
]


@pytest.mark.parametrize("wrong", CANNOT_BE, ids=range(len(CANNOT_BE)))
def test_what_no_member_can_have_is_not_copied(world: MemoryWorld, member: Member, wrong: dict[str, object]) -> None:
    member.take_snapshot()
    member.fields = wrong
    backup = Backup(world, member)
    backup.until_state(BackupState.RESET_BACKUP)
    (failure,) = backup.failures()
    assert "that cannot be" in failure
    assert check_copy(backup, member) == -1
    member.fields = {}
    backup.until_backing_up()
    assert check_copy(backup, member) == END


def test_what_comes_from_others_does_not_keep_an_answer_away(world: MemoryWorld, member: Member) -> None:
    backup = Backup(world, member)
    channel = str(backup.settings.consensus_channel)
    stray = seam.add_publication(member.client, channel, CONSENSUS_STREAM_ID, exclusive=True)
    member.is_answering = False
    backup.until(lambda: seam.offer(stray, b"junk") > 0)
    backup.until_state(BackupState.RESET_BACKUP)
    assert "does not answer within 0.5 s; received something else: " in backup.failures()[0]
    backup.until_state(BackupState.BACKUP_QUERY)
    member.is_answering = True
    world.tasks.append(lambda: seam.offer(stray, b"junk"))
    backup.until_backing_up()
    assert len(backup.failures()) == 1


def test_a_snapshot_that_the_archive_has_not_is_no_snapshot(world: MemoryWorld, member: Member) -> None:
    position = member.grow(FRAME)
    for service_id in (0, -1):
        member.recording_log.append_snapshot(77 - service_id, 0, 0, position, 7, service_id)
    backup = Backup(world, member)
    backup.until_state(BackupState.RESET_BACKUP)
    assert backup.failures() == ["the archive of member 0 does not know recording 77, which it names"]
    assert check_copy(backup, member) == -1


def earlier(snapshots: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each | {"log_position": FRAME} for each in snapshots]


def exchanged(snapshots: list[dict[str, Any]]) -> list[dict[str, Any]]:
    first, last = snapshots[0], snapshots[-1]
    return [
        first | {"recording_id": last["recording_id"]},
        *snapshots[1:-1],
        last | {"recording_id": first["recording_id"]},
    ]


@pytest.mark.parametrize("services", [1, 3])
@pytest.mark.parametrize(
    ("lie", "named", "true", "should"),
    [
        (earlier, f"{{first}}, which member 0 names as the snapshot of service {{top}} at {FRAME}", "a service", FRAME),
        (
            exchanged,
            f"{{last}}, which member 0 names as the snapshot of service {{top}} at {20 * FRAME}",
            "the consensus module",
            20 * FRAME,
        ),
    ],
)
def test_a_snapshot_that_is_another_one_than_the_member_names_is_no_copy(
    world: MemoryWorld,
    member: Member,
    lie: Callable[[list[dict[str, Any]]], list[dict[str, Any]]],
    named: str,
    true: str,
    should: int,
    services: int,
) -> None:
    position = member.take_snapshot(services=services)
    snapshots = snapshots_of(member)
    member.fields = {"snapshots": lie(snapshots)}
    backup = Backup(world, member)
    backup.until(backup.failures)
    place = named.format(
        first=snapshots[0]["recording_id"], last=snapshots[-1]["recording_id"], top=snapshots[0]["service_id"]
    )
    assert backup.failures() == [
        f"recording {place}, is another one: a marker says it is of {true} at {position} in term 0, and it should be "
        f"of a service at {should} in term 0"
    ]
    assert check_copy(backup, member, services) == -1
    member.fields = {}
    backup.until_backing_up()
    assert check_copy(backup, member, services) == position
    assert unnamed(backup) == []


def markers_of(term_id: int, service_id: int) -> Callable[[list[bytes]], list[bytes]]:
    return lambda messages: snapshot_messages(service_id, 20 * FRAME, term_id, FRAME)


NO_END = "is not whole: it has no end marker"
NO_BEGIN = "is another one: it has no begin marker"
CUT = "is another one: one of its markers is cut short"


@pytest.mark.parametrize("of", [0, 1, -1])
@pytest.mark.parametrize(
    ("edit", "what"),
    [
        pytest.param(lambda _: [], "is not whole: it is empty", id="empty"),
        pytest.param(lambda each: each[:1], NO_END, id="no end"),
        pytest.param(lambda each: each[1:], NO_BEGIN, id="no begin"),
        pytest.param(lambda each: [b"junk", *each], NO_BEGIN, id="junk first"),
        pytest.param(lambda each: [each[0], b"no message", *each[1:]], "a message that is not of a cluster", id="junk"),
        pytest.param(lambda each: [each[0], *each], "is another one: it has two begin markers", id="two begins"),
        pytest.param(lambda each: [each[0][:20], *each[1:]], CUT, id="begin cut"),
        pytest.param(
            lambda each: each[:1] + [m[:30] if len(m) < 100 else m for m in each[1:]],
            CUT,
            id="end cut",
        ),
        pytest.param(markers_of(7, 0), "in term 7, and it should be of ", id="a service's of term 7"),
        pytest.param(markers_of(7, -1), "in term 7, and it should be of ", id="a module's of term 7"),
    ],
)
def test_a_snapshot_without_whole_markers_is_no_copy(
    world: MemoryWorld, member: Member, of: int, edit: Callable[[list[bytes]], list[bytes]], what: str
) -> None:
    """One of two services, or the consensus module: nothing is entered of the others either."""
    position = member.take_snapshot(
        services=2, edit=lambda service_id, messages: edit(messages) if service_id == of else messages
    )
    (recording_id,) = [
        each.recording_id for each in member.recording_log.entries if each.is_snapshot and each.service_id == of
    ]
    backup = Backup(world, member)
    backup.until(backup.failures)
    named = f"recording {recording_id}, which member 0 names as the snapshot of service {of} at {position}, "
    assert backup.failures()[0].startswith(named)
    assert what in backup.failures()[0]
    assert check_copy(backup, member, 2) == -1
    end = member.grow(FRAME)
    member.take_snapshot(services=2)
    backup.until_backing_up()
    assert check_copy(backup, member, 2) == end
    assert unnamed(backup) == []


def test_a_later_snapshot_that_is_none_leaves_the_copy_as_it_is(world: MemoryWorld, member: Member) -> None:
    position = member.take_snapshot()
    backup = Backup(world, member, backup_interval_ns=100 * MS)
    backup.until_backing_up()
    end = member.grow(FRAME)
    member.take_snapshot(edit=lambda service_id, messages: messages[:1] if service_id == -1 else messages)
    backup.until(lambda: len(backup.failures()) > 1)
    assert all("the snapshot of service -1" in each for each in backup.failures())
    assert check_copy(backup, member) == end
    assert [each[1] for each in entries(backup) if each[2] == -1] == [position]


def test_of_a_long_snapshot_of_a_service_its_own_state_is_not_read(world: MemoryWorld, member: Member) -> None:
    """The replay that reads the markers ends with its subscription."""
    member.take_snapshot(length=200 * FRAME)
    backup = Backup(world, member)
    backup.until_backing_up()
    assert check_copy(backup, member) == 20 * FRAME
    assert backup.errors == []
    for each in backup.archive.store.catalog.recording_ids():
        assert backup.archive.conductor.replayer.lowest_position(each) is None, each


def test_a_replay_of_the_copy_that_ends_early_ends_the_round(world: MemoryWorld, member: Member) -> None:
    """Somebody has stopped it, or the archive has found a damaged frame; before the next round it is deleted."""
    member.take_snapshot(length=200 * FRAME)
    backup = Backup(world, member)
    replayer = backup.archive.conductor.replayer
    seen: list[int] = []

    def stop_in_the_middle() -> None:
        for each in backup.archive.store.catalog.recording_ids():
            position = replayer.lowest_position(each)
            if position is not None and position > 100 * FRAME and not seen:
                seen.append(each)
                replayer.stop_all(each)

    world.tasks.append(stop_in_the_middle)
    backup.until(backup.failures)
    (failure,) = backup.failures()
    assert failure.startswith(f"the replay of recording {seen[0]} ended at ")
    assert failure.endswith(": the archive's error log says why")
    assert check_copy(backup, member) == -1
    backup.until_backing_up()
    assert check_copy(backup, member) == 20 * FRAME
    assert unnamed(backup) == []


def test_the_next_process_goes_on_where_the_one_before_ended(world: MemoryWorld, member: Member) -> None:
    backup = Backup(world, member)
    backup.until_backing_up()
    recording_id = backup.log_recording_id()
    backup.close()
    world.until(lambda: not backup.archive.store.is_active(recording_id))
    end = member.grow(7 * FRAME)
    after = backup.next_life(member)
    after.until_backing_up()
    after.until(lambda: after.machine.position == end)
    assert after.log_recording_id() == recording_id
    assert check_copy(after, member) == end
    assert after.errors == []


@pytest.mark.parametrize("lost", ["the log", "the snapshot of service 0 at", "the snapshot of service -1 at"])
def test_a_copy_whose_archive_lacks_a_part_of_it_does_not_go_on(world: MemoryWorld, member: Member, lost: str) -> None:
    """As where the archive was put back to an earlier state: what it records next gets the id of what it lacks."""
    member.take_snapshot()
    backup = Backup(world, member)
    backup.until_backing_up()
    backup.close()
    log_recording_id = backup.log_recording_id()
    world.until(lambda: not backup.archive.store.is_active(log_recording_id))
    ids = {"the log": log_recording_id} | {
        f"the snapshot of service {each.service_id} at": each.recording_id
        for each in backup.recording_log.entries
        if each.is_snapshot
    }
    backup.archive.requests().ok("PurgeRecordingRequest", recording_id=ids[lost])
    after = backup.next_life(member)
    after.until_state(BackupState.RESET_BACKUP)
    (failure,) = after.failures()
    assert failure.startswith(f"the archive of the backup does not know recording {ids[lost]}, which is {lost}")
    assert failure.endswith(BEGIN_ANEW)
    assert len(after.recording_log.entries) == 3


def test_a_log_that_does_not_begin_at_its_beginning_needs_a_snapshot(world: MemoryWorld, member: Member) -> None:
    member.grow(2 * SEGMENT_LENGTH)
    member.archive.requests().ok("PurgeSegmentsRequest", recording_id=0, new_start_position=SEGMENT_LENGTH)
    backup = Backup(world, member)
    backup.until_state(BackupState.RESET_BACKUP)
    assert backup.failures() == [
        f"the log of member 0 begins at {SEGMENT_LENGTH}, and it has no snapshot from there on: have the cluster take "
        "one: aeron-cluster snapshot"
    ]
    assert check_copy(backup, member) == -1
    position = member.take_snapshot()
    backup.until_backing_up()
    assert check_copy(backup, member) >= position


def test_a_copy_that_is_too_old_is_said_to_be(world: MemoryWorld, member: Member) -> None:
    backup = Backup(world, member)
    backup.until_backing_up()
    old = backup.machine.position
    backup.close()
    member.grow(2 * SEGMENT_LENGTH)
    member.take_snapshot()
    member.archive.requests().ok("PurgeSegmentsRequest", recording_id=0, new_start_position=SEGMENT_LENGTH)
    after = backup.next_life(member)
    after.until_state(BackupState.RESET_BACKUP)
    assert after.failures() == [
        f"the log of member 0 begins at {SEGMENT_LENGTH} and the copy ends at {old}: what lies between, or shows that "
        f"both are of one log, is gone, unless another member has it; else {BEGIN_ANEW}"
    ]
    assert entries(after) == [(0, -1, -2)], "the old copy stays"


def wiped(world: MemoryWorld, *terms: tuple[int, int], length: int) -> Member:
    """A member of the cluster that has begun anew, with these terms and their bases."""
    made = Member(world, archive=world.archive(0))
    bases = [base for _, base in terms[1:]] + [length]
    made.begin_term(terms[0][0], bases[0])
    for (term_id, base), end in zip(terms[1:], bases[1:], strict=True):
        made.open_term(term_id, end - base)
    return made


@pytest.mark.parametrize(
    ("terms", "text"),
    [
        ([(0, 0)], "member 0 is in term 0 and the copy in term 1: it is behind; if all members are, the cluster began"),
        ([(0, 0), (1, 4 * FRAME)], f"term 1 of member 0 begins at {4 * FRAME}, term 1 of the copy at {20 * FRAME}: "),
        (
            [(0, 0), (1, 20 * FRAME), (2, 24 * FRAME)],
            f"the log of member 0 from {20 * FRAME} to {30 * FRAME} does not match the end of the copy",
        ),
    ],
)
def test_a_cluster_that_has_begun_anew_is_not_the_one_that_was_copied(
    world: MemoryWorld, member: Member, terms: list[tuple[int, int]], text: str
) -> None:
    end = member.open_term(1, 10 * FRAME)
    backup = Backup(world, member)
    backup.until(lambda: backup.machine.position == end)
    backup.until_backing_up()
    backup.close()
    other = wiped(world, *terms, length=60 * FRAME)
    after = backup.next_life(other)
    after.until_state(BackupState.RESET_BACKUP)
    assert text in after.failures()[0]
    assert after.failures()[0].endswith("and start the backup with empty ones")
    assert check_copy(after, member) == end, "the copy of what was stays one"


def test_a_cluster_that_began_again_is_found_by_its_log_where_its_terms_fit(world: MemoryWorld, member: Member) -> None:
    """Restored from an older copy, it has come by the end of this one, and has begun a term behind it."""
    end = member.open_term(1, 10 * FRAME)
    backup = Backup(world, member)
    backup.until(lambda: backup.machine.position == end)
    backup.until_backing_up()
    backup.close()
    other = wiped(world, (0, 0), (1, 20 * FRAME), (2, 24 * FRAME), (3, 50 * FRAME), length=60 * FRAME)
    after = backup.next_life(other)
    after.until_state(BackupState.RESET_BACKUP)
    assert after.failures() == [
        f"the log of member 0 from {20 * FRAME} to {end} does not match the end of the copy: the cluster began again "
        f"from an older state: {BEGIN_ANEW}"
    ]
    assert check_copy(after, member) == end, "the copy of what was stays one"


@pytest.mark.parametrize("port", [0, 7777])
def test_the_end_of_the_copy_is_compared_on_any_port(port: int) -> None:
    world = NetworkWorld()
    member = Member(world)
    member.begin_term()
    endpoint = f"{world.hosts[1]}:{port}"
    backup = Backup(world, member, catchup_endpoint=endpoint)
    backup.until_backing_up()
    member.take_snapshot()
    backup.close()
    end = member.grow(7 * FRAME)
    after = backup.next_life(member, catchup_endpoint=endpoint)
    after.until(lambda: after.machine.position == end)
    after.until_backing_up()
    assert check_copy(after, member) == end
    assert after.errors == []


def test_what_is_compared_begins_where_a_frame_does(world: MemoryWorld, member: Member) -> None:
    """At the last place that is known before the end of the copy: a term, a snapshot, an end of a term buffer."""
    member.grow(3 * SEGMENT_LENGTH)
    position = member.take_snapshot()
    backup = Backup(world, member)
    backup.until_backing_up()
    own = backup.archive.descriptor(backup.log_recording_id())
    source = member.archive.descriptor(member.recording_id)
    term = own.term_buffer_length

    def begin(end: int, *, source_start: int = 0, start: int = 0) -> int:
        copy = replace(own, start_position=start, stop_position=end)
        return compared_from(backup.recording_log, copy, replace(source, start_position=source_start))

    assert begin(position + 64) == position
    assert begin(position) == position // term * term
    assert begin(2 * term) == begin(2 * term - 32) == term
    assert begin(term - 32) == 0
    assert begin(term - 32, start=1024) == begin(term - 32, source_start=1024) == 1024
    assert begin(0) == 0, "nothing was copied"
    assert begin(1024, start=1024) == 1024


def test_a_log_of_which_nothing_can_be_compared_does_not_go_on(world: MemoryWorld, member: Member) -> None:
    """It begins exactly where the copy ends."""
    backup = Backup(world, member)
    backup.until_backing_up()
    answer = MemberAnswer(0, 0, 0, 0, 0, parse_cluster_members(member.members())[0], ())
    own = replace(backup.archive.descriptor(0), stop_position=SEGMENT_LENGTH)
    source = replace(member.archive.descriptor(0), start_position=SEGMENT_LENGTH)
    with pytest.raises(ClusterError, match="what lies between, or shows that both are of one log, is gone"):
        check_same_log(backup.recording_log, answer, own, source)
    check_same_log(backup.recording_log, answer, replace(own, start_position=SEGMENT_LENGTH), source)


def test_terms_are_not_entered_of_a_cluster_whose_archive_is_not_the_one_that_is_copied(
    world: MemoryWorld, member: Member
) -> None:
    """Wiped and begun again, a member answers before the driver has given up the images of the old one."""
    backup = Backup(world, member)
    backup.until_backing_up()
    member.archive.is_working = False
    member.fields = {"last_leadership_term_id": 5, "last_term_base_log_position": 0}
    backup.display.deadline_ms = 0
    backup.until(backup.failures)
    assert entries(backup) == [(0, -1, -2)]


def test_a_term_that_begins_before_those_of_the_copy_is_not_entered(world: MemoryWorld, member: Member) -> None:
    member.open_term(1, FRAME)
    backup = Backup(world, member)
    backup.until_backing_up()
    member.fields = {"last_leadership_term_id": 2, "last_term_base_log_position": 10 * FRAME}
    backup.display.deadline_ms = 0
    backup.until(backup.failures)
    assert backup.failures()[0].startswith(
        f"term 2 of member 0 begins at {10 * FRAME}, term 1 of the copy at {20 * FRAME}: the cluster began again"
    )
    assert entries(backup) == [(1, -1, -2)]


@pytest.mark.parametrize("ends_in_order", [True, False])
def test_a_term_into_which_the_log_was_copied_is_entered_by_the_next_life(
    world: MemoryWorld, member: Member, ends_in_order: bool
) -> None:
    """The backup has ended before it entered the term."""
    backup = Backup(world, member)
    backup.until_backing_up()
    base = member.commit.value
    end = member.open_term(1, 7 * FRAME)
    backup.until(lambda: backup.machine.position == end)
    assert entries(backup) == [(0, -1, -2)]
    (backup.close if ends_in_order else backup.crash)()
    after = backup.next_life(member)
    after.until_backing_up()
    assert after.failures() == []
    assert entries(after) == [(0, base, -2), (1, -1, -2)]
    assert after.recording_log.entries[1].term_base_log_position == base
    end = member.grow(2 * FRAME)
    after.until(lambda: after.machine.position == end)
    assert check_copy(after, member) == end


@pytest.mark.parametrize("days", [1, 366])
def test_an_old_copy_goes_on_where_the_cluster_still_has_the_log(world: MemoryWorld, member: Member, days: int) -> None:
    backup = Backup(world, member)
    backup.until_backing_up()
    backup.close()
    world.until(lambda: not backup.archive.store.is_active(0))
    world.clock.set_epoch_ms(world.clock.now_ms + days * 24 * 3600 * 1000)
    for term_id in range(1, 5):
        base = member.grow(4 * FRAME)
        end = member.open_term(term_id, FRAME)
        member.take_snapshot(term_id, base)
    after = backup.next_life(member)
    after.until_backing_up()
    assert check_copy(after, member) == end
    assert entries(after) == [(0, -1, -2), (4, -1, -2), (4, end, 0), (4, end, -1)]
    assert after.errors == []


def test_a_cluster_that_was_shut_down_and_started_again_is_copied(world: MemoryWorld, member: Member) -> None:
    """Its snapshot is of the term before, at the log's end."""
    position = member.take_snapshot()
    end = member.open_term(1, 2 * FRAME)
    backup = Backup(world, member)
    backup.until_backing_up()
    backup.until(lambda: backup.machine.position == end)
    assert entries(backup) == [(0, position, -2), (0, position, 0), (0, position, -1), (1, -1, -2)]
    assert check_copy(backup, member) == end


def seeded(world: MemoryWorld, former_position: int = 300 * FRAME) -> Member:
    """A member that has begun with a snapshot and without the log before it (aeron-cluster recording-log seed).

    That is of position 0 from then on, and its markers say where it was taken.
    """
    member = Member(world)
    for service_id in (0, -1):
        messages = snapshot_messages(service_id, former_position, 4, 3 * FRAME)
        recording_id = recorded_messages(member.archive, messages, stream_id=107 if service_id == -1 else 106)
        member.recording_log.append_snapshot(recording_id, 4, 0, 0, 7, service_id)
    member.begin_term(5)
    return member


@pytest.mark.parametrize("last_term_id", [5, 6])
def test_a_cluster_that_was_begun_with_a_snapshot_alone_is_copied(world: MemoryWorld, last_term_id: int) -> None:
    member = seeded(world)
    end = member.commit.value if last_term_id == 5 else member.open_term(last_term_id, 2 * FRAME)
    backup = Backup(world, member)
    backup.until_backing_up()
    backup.until(lambda: backup.machine.position == end)
    assert backup.errors == []
    assert [each.log_position for each in backup.recording_log.entries if each.is_snapshot] == [0, 0]
    assert check_copy(backup, member) == end


def a_snapshot(service_id: int) -> Lie:
    """Its recording, and no snapshots."""

    def named(_: MemoryWorld, member: Member) -> tuple[Member, str]:
        member.take_snapshot()
        (recording_id,) = [
            each.recording_id
            for each in member.recording_log.entries
            if each.is_snapshot and each.service_id == service_id
        ]
        member.fields = {"log_recording_id": recording_id, "snapshots": []}
        return (
            member,
            f"is of stream {107 if service_id == -1 else 106}, and the log is of stream {STREAM_ID} (log_stream_id)",
        )

    named.__name__ = f"the snapshot of service {service_id}"
    return named


def a_stream_of_a_service(_: MemoryWorld, member: Member) -> tuple[Member, str]:
    """A service records what it likes in the member's archive."""
    member.fields = {"log_recording_id": recording(member.archive, stream_id=5)[0]}
    return member, "is of stream 5, and the log is of stream"


def a_services_stream_with_the_logs_id(_: MemoryWorld, member: Member) -> tuple[Member, str]:
    channel = "aeron:ipc?term-length=64k|mtu=1408|session-id=77"
    member.archive.requests().start_recording(channel=channel)
    stream = Stream(member.archive, channel=channel)
    recording_id = member.recording_id + 1
    member.world.until(lambda: member.archive.store.is_active(recording_id))
    stream.fill(100 * FRAME)
    member.fields = {"log_recording_id": recording_id}
    return member, "at 0 it has no message of a cluster, and not the begin of term 0 from 0 under leader 0"


def the_log_of_an_earlier_life(world: MemoryWorld, member: Member) -> tuple[Member, str]:
    """The cluster was wiped, and its archives were kept."""
    assert member.stream is not None
    member.stream.close()
    world.until(lambda: not member.archive.store.is_active(member.recording_id))
    now = Member(world, archive=member.archive)
    now.begin_term()
    now.fields = {"log_recording_id": member.recording_id}
    return now, "has ended: the log of a member that answers is recorded still"


def the_log_of_another_cluster(world: MemoryWorld, member: Member) -> tuple[Member, str]:
    other = Member(world, archive=member.archive, leader_id=2)
    other.begin_term()
    member.fields = {"log_recording_id": other.recording_id}
    return (
        member,
        "at 0 it has the begin of term 0 from 0 under leader 2, and not the begin of term 0 from 0 under leader 0",
    )


def the_log_of_a_cluster_in_another_term(world: MemoryWorld, member: Member) -> tuple[Member, str]:
    other = Member(world, archive=member.archive)
    other.begin_term()
    other.open_term(1, 20 * FRAME)
    member.fields = {"log_recording_id": other.recording_id}
    member.open_term(2, FRAME)
    return member, "at 20480 it has the begin of term 1 from 20480 under leader 0, and not the begin of term 2"


def a_term_that_begins_elsewhere(_: MemoryWorld, member: Member) -> tuple[Member, str]:
    member.open_term(1, 20 * FRAME)
    member.fields = {"last_term_base_log_position": 19 * FRAME}
    return member, "at 19456 it has a SessionMessageHeader, and not the begin of term 1 from 19456 under leader 0"


def a_term_that_begins_within_a_message(_: MemoryWorld, member: Member) -> tuple[Member, str]:
    member.fields = {"last_term_base_log_position": 32}
    return member, "is not read from 32 on: replayPosition=32 does not point to a valid frame"


def a_term_of_a_log_that_begins_behind_it(_: MemoryWorld, member: Member) -> tuple[Member, str]:
    member.grow(2 * SEGMENT_LENGTH)
    member.archive.requests().ok("PurgeSegmentsRequest", recording_id=0, new_start_position=SEGMENT_LENGTH)
    member.take_snapshot()
    member.fields = {
        "last_leadership_term_id": 3,
        "snapshots": [each | {"leadership_term_id": 3} for each in snapshots_of(member)],
    }
    return member, f"at {SEGMENT_LENGTH} it has a message of term 0, and not one of term 3"


def a_snapshots_term_that_begins_elsewhere(_: MemoryWorld, member: Member) -> tuple[Member, str]:
    """Its markers do not say where that begins."""
    member.take_snapshot()
    member.open_term(1, FRAME)
    member.fields = {"snapshots": [each | {"term_base_log_position": FRAME} for each in snapshots_of(member)]}
    return member, "at 1024 it has a SessionMessageHeader, and not the begin of term 0 from 1024"


def a_snapshot_with_which_no_log_begins(_: MemoryWorld, member: Member) -> tuple[Member, str]:
    """A node would apply the log before the snapshot to it."""
    member.take_snapshot()
    member.open_term(1, FRAME)
    at_0 = {"term_base_log_position": 0, "log_position": 0}
    member.fields = {"snapshots": [each | at_0 for each in snapshots_of(member)]}
    return member, "at 0 it has the begin of term 0 from 0 under leader 0, and not a later one than term 0 from 0"


def a_snapshots_term_without_a_message(_: MemoryWorld, member: Member) -> tuple[Member, str]:
    """A snapshot is of a term that has one at least, by which it was taken."""
    position = member.take_snapshot()
    member.open_term(1, FRAME)
    member.fields = {"snapshots": [each | {"term_base_log_position": position} for each in snapshots_of(member)]}
    return member, f"at {position} it has the begin of term 1 from {position} under leader 0, and not the begin of term"


@pytest.mark.parametrize(
    "lie",
    [
        a_snapshot(0),
        a_snapshot(-1),
        a_stream_of_a_service,
        a_services_stream_with_the_logs_id,
        the_log_of_an_earlier_life,
        the_log_of_another_cluster,
        the_log_of_a_cluster_in_another_term,
        a_term_that_begins_elsewhere,
        a_term_that_begins_within_a_message,
        a_term_of_a_log_that_begins_behind_it,
        a_snapshots_term_that_begins_elsewhere,
        a_snapshot_with_which_no_log_begins,
        a_snapshots_term_without_a_message,
    ],
    ids=lambda each: each.__name__,
)
def test_a_recording_that_is_not_the_members_log_is_not_copied(world: MemoryWorld, member: Member, lie: Lie) -> None:
    """Nothing is left of it, and the true answer is taken."""
    answering, text = lie(world, member)
    backup = Backup(world, answering)
    backup.until(backup.failures)
    named = answering.fields.get("log_recording_id", answering.recording_id)
    assert backup.failures()[0].startswith(f"recording {named}, which member 0 names as its log, ")
    assert text in backup.failures()[0]
    assert check_copy(backup, answering) == -1
    assert backup.archive.store.catalog.recording_ids() == []
    answering.fields = {}
    backup.until_backing_up()
    end = answering.grow(FRAME)
    backup.until(lambda: backup.machine.position == end)
    assert check_copy(backup, answering) == end
    assert unnamed(backup) == []


@pytest.mark.parametrize("is_followed", [True, False])
def test_a_copy_does_not_continue_with_a_recording_that_is_not_the_members_log(
    world: MemoryWorld, member: Member, is_followed: bool
) -> None:
    """Not even where the copy has nothing that could be compared: it begins and ends at the latest snapshot."""
    position = member.take_snapshot()
    backup = Backup(world, member, initial_replay_start="LATEST_SNAPSHOT")
    backup.until_backing_up()
    assert backup.archive.range(backup.log_recording_id())[0] == position == backup.machine.position
    before = entries(backup)
    other = Member(world, archive=member.archive, leader_id=2)
    other.begin_term()
    other.open_term(1, 9 * FRAME)
    member.fields = {"log_recording_id": other.recording_id, "snapshots": []}
    if is_followed:
        backup.display.deadline_ms = 0
    else:
        backup.close()
        backup = backup.next_life(member, initial_replay_start="LATEST_SNAPSHOT")
    backup.until(backup.failures)
    text = "the log is that of member 0, recording" if is_followed else "names as its log, is another one"
    assert text in backup.failures()[0]
    assert entries(backup) == before
    member.fields = {}
    backup.until_backing_up()
    end = member.grow(FRAME)
    backup.until(lambda: backup.machine.position == end)
    assert check_copy(backup, member) == end


def test_a_term_of_the_log_that_is_followed_is_entered_where_the_log_has_it(world: MemoryWorld, member: Member) -> None:
    backup = Backup(world, member)
    backup.until_backing_up()
    base = member.grow(FRAME)
    member.fields = {"last_leadership_term_id": 1, "last_term_base_log_position": base - FRAME}
    backup.display.deadline_ms = 0
    backup.until(backup.failures)
    assert f"at {base - FRAME} it has a SessionMessageHeader, and not the begin of term 1" in backup.failures()[0]
    assert entries(backup) == [(0, -1, -2)]
    member.fields = {}
    end = member.open_term(1, FRAME)
    backup.until(lambda: len(backup.recording_log.entries) == 2 and backup.machine.position == end)
    assert entries(backup) == [(0, base, -2), (1, -1, -2)]
    assert check_copy(backup, member) == end


def test_a_snapshot_with_which_the_log_that_is_followed_does_not_begin_is_not_copied(
    world: MemoryWorld, member: Member
) -> None:
    backup = Backup(world, member)
    backup.until_backing_up()
    _, text = a_snapshot_with_which_no_log_begins(world, member)
    backup.display.deadline_ms = 0
    backup.until(backup.failures)
    assert text in backup.failures()[0]
    assert entries(backup) == [(0, -1, -2)]


def test_a_snapshots_term_that_the_copy_has_elsewhere_is_looked_for_in_the_log_that_is_followed(
    world: MemoryWorld, member: Member
) -> None:
    backup = Backup(world, member)
    backup.until_backing_up()
    position = member.take_snapshot()
    member.open_term(1, FRAME)
    member.fields = {"snapshots": [each | {"term_base_log_position": FRAME} for each in snapshots_of(member)]}
    backup.display.deadline_ms = 0
    backup.until(backup.failures)
    assert "at 1024 it has a SessionMessageHeader, and not the begin of term 0 from 1024" in backup.failures()[0]
    assert entries(backup) == [(0, -1, -2)]
    member.fields = {}
    backup.until(lambda: len(backup.recording_log.entries) == 4)
    assert {each.term_base_log_position for each in backup.recording_log.entries if each.is_snapshot} == {0}
    assert check_copy(backup, member) > position


def test_a_term_that_is_about_to_be_opened_is_awaited(world: MemoryWorld, member: Member) -> None:
    """A follower that knows it may answer before its archive has the term's first message."""
    base = member.commit.value
    member.recording_log.append_term(member.recording_id, 1, base, 6)
    backup = Backup(world, member)
    backup.until(lambda: backup.machine._subscriptions)
    for _ in range(100):
        world.turn()
    assert (backup.state, backup.failures()) == (BackupState.BACKUP_QUERY, [])
    end = member.grow(2 * FRAME)
    backup.until_backing_up()
    backup.until(lambda: backup.machine.position == end)
    assert check_copy(backup, member) == end
    assert backup.failures() == []


def test_messages_of_an_extension_do_not_hide_the_terms_of_a_log(world: MemoryWorld, member: Member) -> None:
    """A log that begins within a message, and then has one of another schema."""
    member.grow(SEGMENT_LENGTH - 20 * FRAME - 1024)
    assert member.stream is not None
    member.stream.send(bytes(3000), b"\x10\0\x0f\x27\x6f\x01\x10\0".ljust(FRAME - 32, b"x"))
    member.grow(2 * SEGMENT_LENGTH)
    member.archive.requests().ok("PurgeSegmentsRequest", recording_id=0, new_start_position=SEGMENT_LENGTH)
    position = member.take_snapshot()
    backup = Backup(world, member)
    backup.until_backing_up()
    assert check_copy(backup, member) == position
    assert backup.errors == []


def test_a_log_with_another_length_of_terms_is_another_log(world: MemoryWorld, member: Member) -> None:
    backup = Backup(world, member)
    backup.until_backing_up()
    answer = MemberAnswer(0, 0, 0, 0, 0, parse_cluster_members(member.members())[0], ())
    own, source = backup.archive.descriptor(0), member.archive.descriptor(0)
    with pytest.raises(
        ClusterError, match="is another one than was copied: term_buffer_length=131072, the copy's 65536"
    ):
        check_same_log(backup.recording_log, answer, own, replace(source, term_buffer_length=128 * 1024))


def test_the_files_of_the_members_archive_may_have_another_length(world: MemoryWorld) -> None:
    member = Member(world, archive=world.archive(0, segment_file_length=2 * SEGMENT_LENGTH))
    member.begin_term()
    member.grow(3 * SEGMENT_LENGTH)
    member.take_snapshot()
    backup = Backup(world, member)
    backup.until_backing_up()
    backup.close()
    end = member.grow(SEGMENT_LENGTH)
    after = backup.next_life(member)
    after.until(lambda: after.machine.position == end)
    assert check_copy(after, member) == end
    assert after.errors == []


def test_a_log_with_another_initial_term_is_another_log(world: MemoryWorld, member: Member) -> None:
    """Each log's publication draws one at random."""
    backup = Backup(world, member)
    backup.until_backing_up()
    backup.close()
    world.until(lambda: not backup.archive.store.is_active(0))
    answer = MemberAnswer(0, 0, 0, 0, 0, parse_cluster_members(member.members())[0], ())
    own, source = backup.archive.descriptor(0), member.archive.descriptor(0)
    check_same_log(backup.recording_log, answer, own, source)
    with pytest.raises(ClusterError, match="^the log of member 0 is another one than was copied: initial_term"):
        check_same_log(backup.recording_log, answer, own, replace(source, initial_term_id=99))


def until_in(backup: Backup, state: BackupState) -> None:
    """Until a state is entered, or was already."""
    backup.until(lambda: state in backup.display.states and (state == 0 or backup.display.states[-1] >= state))


@pytest.mark.parametrize("state", STATES)
def test_a_member_that_dies_is_left_for_another_one(world: MemoryWorld, member: Member, state: BackupState) -> None:
    """The log continues with another member's, in each state of the backup."""
    member.take_snapshot()
    backup = Backup(world, member, progress_timeout_ns=300 * MS)
    other = Member(world, 1, leader_id=0)
    other.begin_term()
    other.take_snapshot()
    until_in(backup, state)
    member.archive.vanish()
    world.tasks.remove(member.work)
    member.client.close()
    world.driver.give_up_images(-1)
    backup.machine._endpoints.append(other.endpoint)
    end = other.grow(9 * FRAME)
    backup.until(lambda: backup.state == BackupState.BACKING_UP and backup.machine.position == end)
    assert check_copy(backup, other) == end
    assert state == 0 or backup.failures()


@pytest.mark.parametrize("state", STATES[:3])
def test_an_own_archive_that_is_silent_is_reported_and_awaited(
    world: MemoryWorld, member: Member, state: BackupState
) -> None:
    member.take_snapshot()
    backup = Backup(world, member)
    until_in(backup, state)
    backup.archive.is_working = False
    backup.until(backup.failures)
    backup.archive.is_working = True
    backup.until_backing_up()
    end = member.grow(9 * FRAME)
    backup.until(lambda: backup.machine.position == end)
    assert check_copy(backup, member) == end


@pytest.mark.parametrize("state", STATES)
def test_an_own_archive_that_dies_is_reported(world: MemoryWorld, member: Member, state: BackupState) -> None:
    member.take_snapshot()
    backup = Backup(world, member)
    until_in(backup, state)
    position = backup.machine.position
    backup.archive.vanish()
    backup.until(backup.failures)
    assert "archive" in backup.failures()[0] or "recorded" in backup.failures()[0]
    assert backup.display.position == position
    backup.until(lambda: len(backup.failures()) > 1)


@pytest.mark.parametrize("state", STATES)
def test_a_network_that_is_cut_is_reported_and_the_copy_goes_on_when_it_is_there_again(state: BackupState) -> None:
    """Two hosts; the backup's driver gives the member's streams up after half a second."""
    world = NetworkWorld(
        image_liveness_ns=500 * MS, connection_timeout_ns=500 * MS, linger_ns=100 * MS, status_ns=20 * MS
    )
    member = Member(world)
    member.begin_term()
    member.take_snapshot()
    backup = Backup(world, member)
    until_in(backup, state)
    world.network.fabric.cut("a", "b")
    backup.until(backup.failures)
    position = backup.machine.position
    assert check_copy(backup, member) in (-1, position)
    end = member.grow(9 * FRAME)
    world.network.fabric.heal("a", "b")
    backup.until(lambda: backup.state == BackupState.BACKING_UP and backup.machine.position == end)
    assert check_copy(backup, member) == end


@pytest.mark.parametrize("state", STATES)
def test_an_archive_whose_disk_is_full_is_reported_and_the_copy_goes_on_with_room(
    world: MemoryWorld, member: Member, state: BackupState
) -> None:
    member.take_snapshot(length=60 * FRAME)
    backup = Backup(world, member)
    until_in(backup, state)
    disk = backup.archive.disk
    capacity, disk.capacity = disk.capacity, 4096
    member.grow(2 * SEGMENT_LENGTH)
    backup.until(backup.failures)
    assert any(each in backup.failures()[0] for each in ("No space left on device", "low storage threshold"))
    assert check_copy(backup, member) in (-1, backup.machine.position)
    for _ in range(2):
        count = len(backup.failures())
        backup.until(lambda count=count: len(backup.failures()) > count)  # type: ignore[misc]
    disk.capacity = capacity
    end = member.grow(9 * FRAME)
    backup.until(lambda: backup.state == BackupState.BACKING_UP and backup.machine.position == end)
    assert check_copy(backup, member) == end


def crashed_after(turns: int) -> tuple[MemoryWorld, Member, Backup, bool]:
    """A backup that was killed after so many turns; whether it had a copy then."""
    world = MemoryWorld()
    member = Member(world)
    member.begin_term()
    member.take_snapshot(services=2)
    member.grow(2 * FRAME)
    backup = Backup(world, member)
    for _ in range(turns):
        world.turn()
    is_done = backup.state == BackupState.BACKING_UP
    backup.crash()
    return world, member, backup, is_done


def unnamed(backup: Backup) -> list[tuple[int, int]]:
    """Begin and end of what is in the archive, and not in the recording log."""
    named = {each.recording_id for each in backup.recording_log.entries}
    return [backup.archive.range(each) for each in backup.archive.store.catalog.recording_ids() if each not in named]


def test_a_crash_at_any_moment_leaves_a_copy_or_none_and_the_next_life_makes_one() -> None:
    turns, is_done, ends = 0, False, set()
    while not is_done:
        world, member, dead, is_done = crashed_after(turns)
        turns += 1
        ends.add(check_copy(dead, member, 2) >= 0)
        after = dead.next_life(member)
        after.until_backing_up()
        end = member.grow(2 * FRAME)
        after.until(lambda after=after, end=end: after.machine.position == end)  # type: ignore[misc]
        assert check_copy(after, member, 2) == end
        if unnamed(after):  # the archive began it only when the next life had looked
            after.close()
            after = after.next_life(member)
            after.until_backing_up()
        assert unnamed(after) == [], turns
        assert world.texts() == []
    assert ends == {False, True}
    assert turns > 30


def test_power_that_fails_while_the_recording_log_is_written_leaves_a_copy_or_none(
    world: MemoryWorld, member: Member
) -> None:
    member.take_snapshot()
    backup = Backup(world, member, backup_interval_ns=50 * MS)
    backup.until_backing_up()
    member.grow(FRAME)
    member.take_snapshot()
    backup.until(lambda: len(backup.recording_log.entries) == 5)
    backup.crash()
    found = set()
    for state in backup.disk.crash_states(limit=200):
        backup.disk = state
        assert check_copy(backup, member) >= 0
        found.add(len(entries(backup.next_life(member))))
    assert found


@pytest.mark.parametrize("kind", ["open", "write", "force", "rename"])
def test_a_full_disk_is_reported_and_ends_nothing(world: MemoryWorld, member: Member, kind: str) -> None:
    member.take_snapshot()
    backup = Backup(world, member)
    backup.until_state(BackupState.LIVE_LOG_REPLAY)
    backup.disk.fail(kind, errno.ENOSPC)
    backup.until(lambda: backup.failures())
    assert "No space left on device" in backup.failures()[0]
    assert check_copy(backup, member) in (-1, member.commit.value)
    backup.until_backing_up()
    assert check_copy(backup, member) == member.commit.value


def test_what_is_recorded_elsewhere_in_the_archive_stays(world: MemoryWorld, member: Member) -> None:
    backup = Backup(world, member)
    other = recorded(backup.archive, stream_id=5)
    backup.until_backing_up()
    assert other in backup.archive.store.catalog.recording_ids()
