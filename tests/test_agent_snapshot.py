"""Snapshots over memory: what is written, the ack, and every way to fail."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Literal

import msgspec
import pytest

from container.api import TimeUnit
from container.codecs import messages as codecs
from container.errors import AgentTermination, ArchiveError, ClusterError, SnapshotError, TimedOutError
from container.snapshots import read_snapshot, write_snapshot
from container.testing.memory import transport_probe as seam
from container.testing.memory.scripted_member import ScriptedMember

NULL_VALUE = -1
type Operation = Literal["create", "check", "complete"]
BACK_PRESSURED, NOT_CONNECTED, CLOSED = -2, -1, -4
SNAPSHOT_CHANNEL = "aeron:ipc?alias=snapshot"


def take(member: ScriptedMember, **fields: Any) -> int:
    """Has a snapshot taken; its log position."""
    position = member.cm.snapshot(**fields)
    member.commit()
    return position


def saved(member: ScriptedMember, recording_id: int | None = None) -> list[bytes]:
    """The messages of a snapshot, the newest unless given."""
    return member.store.messages(member.store.recording_ids[-1] if recording_id is None else recording_id)


@pytest.mark.parametrize("role", ["lead", "follow"])
def test_s42_a_snapshot_is_acked_with_its_recording_id(role: str) -> None:
    member: ScriptedMember = getattr(ScriptedMember(), role)()
    position = take(member)
    ack = member.cm.acks[-1]
    assert (ack.log_position, ack.ack_id, ack.relevant_id) == (position, 2, member.store.recording_ids[-1])
    assert ack.timestamp == member.service.cluster.time


def test_s42_it_holds_begin_sessions_in_upstreams_order_end_and_the_users_messages() -> None:
    member = ScriptedMember(app_version=0x010203).start()
    member.context.app_version_validator = lambda _own, _other: True
    member.lead()
    for session_id in (9, 4, 6):
        member.cm.open_session(session_id, encoded_principal=b"p%d" % session_id)
    member.commit()
    member.in_callback(
        lambda publication: (publication.send(b"one"), publication.send(b"t", b"wo")), "on_take_snapshot"
    )
    position = take(member)
    decoded = [codecs.decode("cluster", message) for message in saved(member)[:5]]
    expected = {
        "type_id": 2,
        "log_position": position,
        "leadership_term_id": 1,
        "index": 0,
        "time_unit": 0,
        "app_version": 0x010203,
    }
    assert decoded[0] == ("SnapshotMarker", {**expected, "mark": 0})
    assert decoded[4] == ("SnapshotMarker", {**expected, "mark": 2})
    assert [(name, fields["cluster_session_id"]) for name, fields in decoded[1:4]] == [
        ("ClientSession", 9),
        ("ClientSession", 4),
        ("ClientSession", 6),
    ]
    assert decoded[2][1]["encoded_principal"] == b"p4"
    assert decoded[2][1]["response_channel"] == b"aeron:udp?endpoint=localhost:20004"
    assert saved(member)[5:] == [b"one", b"two"]


def test_a_session_longer_than_a_frame_is_written_whole() -> None:
    member = ScriptedMember().lead()
    principal = bytes(range(256)) * 16
    member.open_session(1, encoded_principal=principal)
    take(member)
    assert codecs.decode("cluster", saved(member)[1])[1]["encoded_principal"] == principal


def test_s17_what_was_written_is_loaded_by_the_next_start() -> None:
    member = ScriptedMember().lead()
    member.open_session(1, encoded_principal=b"who")
    state = {"a": list(range(10_000)), "b": [1]}
    member.in_callback(lambda publication: write_snapshot(publication, state, version=4), "on_take_snapshot")
    position = take(member)
    messages = saved(member)

    second = ScriptedMember(log_position=position)
    recording_id = second.store.add_recording(messages)
    loaded = second.in_callback(
        lambda _cluster, image: (read_snapshot(image, dict, version=4), image.is_end_of_stream), "on_start"
    )
    second.start(recording_ids=[recording_id], leadership_term_id=1)
    assert loaded == [(state, True)]
    assert second.service.cluster.client_sessions[0].encoded_principal == b"who"


def test_the_log_is_not_consumed_while_a_snapshot_is_taken() -> None:
    member = ScriptedMember().lead()
    member.cm.session_message(1, b"before")
    seen = member.in_callback(lambda _publication: list(member.service.messages), "on_take_snapshot")
    member.cm.snapshot()
    member.deliver(b"after")
    assert seen == [[b"before"]]
    assert member.service.messages == [b"before", b"after"]


@pytest.mark.parametrize("not_yet", [1, 20])
def test_the_ack_waits_until_everything_is_recorded(not_yet: int) -> None:
    member = ScriptedMember().lead()
    member.store.script("complete", [0] * not_yet)
    before = member.idle_strategy.idle_count
    take(member)
    assert member.idle_strategy.idle_count - before >= not_yet
    assert member.cm.acks[-1].relevant_id != NULL_VALUE


def test_s44_an_exception_in_on_take_snapshot_is_acked_with_minus_one_and_counted() -> None:
    member = ScriptedMember().lead()
    member.in_callback(lambda _publication: 1 // 0, "on_take_snapshot")
    position = take(member)
    assert member.cm.acks[-1] == (position, 1_000, 2, NULL_VALUE, 0)
    assert [type(error) for error in member.errors] == [ZeroDivisionError]
    member.deliver(b"x")
    assert member.service.messages == [b"x"]
    take(member)
    assert member.cm.acks[-1].ack_id == 3
    assert member.cm.acks[-1].relevant_id != NULL_VALUE
    assert not any(
        resource.channel.startswith(SNAPSHOT_CHANNEL)
        for resource in member.client.open_resources
        if hasattr(resource, "channel")
    )


@pytest.mark.parametrize("operation", ["create", "check", "complete"])
def test_an_archive_error_is_acked_with_minus_one(operation: Operation) -> None:
    member = ScriptedMember().lead()
    member.store.script(operation, [ArchiveError("generic trouble", code=0)])
    take(member)
    assert member.cm.acks[-1].relevant_id == NULL_VALUE
    assert [str(error) for error in member.errors] == ["generic trouble"]
    take(member)
    assert member.cm.acks[-1].relevant_id != NULL_VALUE


@pytest.mark.parametrize("operation", ["create", "check", "complete"])
def test_s45_an_archive_without_space_is_acked_and_ends_the_agent_with_the_hook(
    operation: Operation,
) -> None:
    member = ScriptedMember().lead()
    member.store.script(operation, [ArchiveError("no space", code=ArchiveError.STORAGE_SPACE)])
    member.cm.snapshot()
    member.cm.commit()
    termination = member.terminated()
    assert "out of storage space" in str(termination)
    assert member.cm.acks[-1].relevant_id == NULL_VALUE
    assert member.hooks == 1


def test_a_recording_that_stops_is_an_error() -> None:
    member = ScriptedMember().lead()
    member.store.script("complete", [0, 0, ClusterError("recording stopped unexpectedly: 7")])
    take(member)
    assert [str(error) for error in member.errors] == ["recording stopped unexpectedly: 7"]
    assert member.cm.acks[-1].relevant_id == NULL_VALUE


@pytest.mark.parametrize(
    ("is_standby", "flags", "is_taken"),
    [
        (False, 0, True),
        (False, None, True),
        (False, 1, False),
        (True, 0, True),
        (True, 1, True),
        (True, 2, False),
        (False, 2, False),
    ],
)
def test_s46_standby_flags_decide_whether_a_snapshot_is_taken(
    is_standby: bool, flags: int | None, is_taken: bool
) -> None:
    member = ScriptedMember().start()
    member.cm.join_as_follower(is_standby=is_standby)
    member.work()
    member.cm.new_leadership_term()
    member.cm.snapshot(flags=flags)
    member.commit()
    assert (member.service.of("on_take_snapshot") == [()]) is is_taken
    assert len(member.cm.acks) == (3 if is_taken else 2), "one that is not wanted is not acked"


def test_an_action_without_flags_is_a_default_one() -> None:
    member = ScriptedMember().lead()
    member.cm.cluster_action(2, version=10)
    member.commit()
    assert len(member.service.of("on_take_snapshot")) == 1


@pytest.mark.parametrize("action", [0, 1])
def test_suspend_and_resume_are_passed_over(action: int) -> None:
    member = ScriptedMember().lead()
    member.cm.cluster_action(action)
    member.commit()
    assert len(member.cm.acks) == 2
    assert member.errors == []


@pytest.mark.parametrize("fails", [False, True])
def test_s47_the_duration_is_measured_for_failed_snapshots_as_well(fails: bool) -> None:
    member = ScriptedMember().lead()
    tracker = member.context.snapshot_duration_tracker

    def slow(_publication: object) -> None:
        member.clock.advance(2_500_000_000)
        if fails:
            raise KeyError("fails")

    member.in_callback(slow, "on_take_snapshot")
    take(member)
    assert 2_500_000_000 <= tracker.max_counter.value < 3_000_000_000
    assert tracker.exceeded_counter.value == 1
    take(member)
    assert tracker.exceeded_counter.value == 1


def test_s58_the_snapshots_ack_is_tried_until_sent() -> None:
    member = ScriptedMember().lead()
    member.results(*[BACK_PRESSURED] * 30)
    ticks = len(member.mark_file.activity_timestamps)
    member.idle_ns = 500_000_000
    take(member)
    assert len(member.cm.acks) == 3
    assert len(member.mark_file.activity_timestamps) - ticks >= 10


def test_the_containers_own_frames_wait_out_back_pressure() -> None:
    member = ScriptedMember().lead()
    member.open_session()
    scripted: list[int] = [BACK_PRESSURED, -3] * 10
    created = member.in_callback(lambda _publication: None, "on_take_snapshot")
    member.driver.publication_results(SNAPSHOT_CHANNEL, 106, scripted)
    take(member)
    assert created == [None]
    assert member.cm.acks[-1].relevant_id != NULL_VALUE
    assert len(saved(member)) == 3


@pytest.mark.parametrize(
    ("result", "text"), [(NOT_CONNECTED, "is not connected"), (CLOSED, "is closed"), (-5, "at max position")]
)
def test_a_dead_snapshot_publication_fails_the_snapshot(result: int, text: str) -> None:
    member = ScriptedMember().lead()
    member.driver.publication_results(SNAPSHOT_CHANNEL, 106, [result])
    take(member)
    assert member.cm.acks[-1].relevant_id == NULL_VALUE
    assert text in str(member.errors[0])


def test_the_users_send_waits_out_back_pressure_and_sees_archive_errors() -> None:
    member = ScriptedMember().lead()

    def on_take_snapshot(publication: Any) -> None:
        member.driver.publication_results(SNAPSHOT_CHANNEL, 106, [BACK_PRESSURED] * 5)
        publication.send(b"state")
        member.driver.publication_results(SNAPSHOT_CHANNEL, 106, [BACK_PRESSURED] * 5)
        member.store.script("check", [None, ArchiveError("disk trouble", code=3)])
        publication.send(b"more")

    member.in_callback(on_take_snapshot, "on_take_snapshot")
    take(member)
    assert [str(error) for error in member.errors] == ["disk trouble"]
    assert member.cm.acks[-1].relevant_id == NULL_VALUE


def test_a_raw_offer_to_a_snapshot_gives_its_result() -> None:
    member = ScriptedMember().lead()
    results: list[int] = []

    def on_take_snapshot(publication: Any) -> None:
        before = publication.position
        results.append(publication.offer(b"x") - before)
        member.driver.publication_results(SNAPSHOT_CHANNEL, 106, [BACK_PRESSURED])
        results.append(publication.offer(b"x"))
        publication.send(b"x")
        with pytest.raises(ValueError, match=str(publication.max_message_length)):
            publication.send(b"x" * (publication.max_message_length + 1))

    member.in_callback(on_take_snapshot, "on_take_snapshot")
    take(member)
    assert results == [64, BACK_PRESSURED]
    assert member.errors == []


def test_a_snapshot_publication_is_of_no_use_after_the_callback() -> None:
    member = ScriptedMember().lead()
    kept = member.in_callback(lambda publication: publication, "on_take_snapshot")
    take(member)
    uses: list[Callable[[], Any]] = [
        lambda: kept[0].send(b"x"),
        lambda: kept[0].offer(b"x"),
        lambda: kept[0].position,
    ]
    for use in uses:
        with pytest.raises(ClusterError, match="only inside on_take_snapshot"):
            use()


@pytest.mark.parametrize("ending", ["interrupt", "driver", "consensus module"])
def test_an_end_in_the_middle_of_a_snapshot_ends_the_agent_in_order(ending: str) -> None:
    member = ScriptedMember().lead()
    end = {
        "interrupt": member.agent.interrupt,
        "driver": member.driver.kill,
        "consensus module": member.cm.remove_commit_counter,
    }[ending]

    def on_take_snapshot(_publication: object) -> None:
        end()
        while True:
            member.service.cluster.idle()

    member.in_callback(on_take_snapshot, "on_take_snapshot")
    member.cm.snapshot()
    member.cm.commit()
    assert isinstance(member.terminated(), AgentTermination)
    assert member.hooks == 1
    member.agent.close()
    assert member.mark_file.is_terminated


def test_the_time_unit_of_the_term_is_in_the_markers() -> None:
    member = ScriptedMember().lead()
    member.cm.new_leadership_term(time_unit=2)
    member.commit()
    take(member)
    assert codecs.decode("cluster", saved(member)[0])[1]["time_unit"] == 2
    assert seam.result_name(-2) == "BACK_PRESSURED"


def test_a_time_unit_that_is_not_known_yet_is_null_in_the_markers_and_read_as_milliseconds() -> None:
    member = ScriptedMember().start()
    member.cm.join_as_follower()
    position = take(member)
    assert codecs.decode("cluster", saved(member)[0])[1]["time_unit"] is None
    second = ScriptedMember(log_position=position)
    second.start(saved(member), leadership_term_id=0)
    assert second.service.cluster.time_unit is TimeUnit.MILLIS


# an archive that stands still


@pytest.mark.parametrize("what", ["completion", "a frame of the container", "a message of the service"])
def test_an_archive_that_records_nothing_for_60_s_fails_the_snapshot_alone(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    member = ScriptedMember().lead()
    member.idle_ns = 500_000_000
    begin = member.clock.now_ns

    def sends(publication: Any) -> None:
        member.driver.publication_results(SNAPSHOT_CHANNEL, 106, [BACK_PRESSURED] * 1_000)
        publication.send(b"state")

    if what == "completion":
        member.store.script("complete", itertools.repeat(0))
    elif what == "a frame of the container":
        member.driver.publication_results(SNAPSHOT_CHANNEL, 106, [BACK_PRESSURED] * 1_000)
    else:
        member.in_callback(sends, "on_take_snapshot")
    take(member)
    assert 60 <= (member.clock.now_ns - begin) / 1e9 < 70
    (error,) = member.errors
    assert isinstance(error, TimedOutError)
    awaited = "finish snapshot recording 7" if what == "completion" else "record the snapshot"
    stalled = f"nothing was recorded for 60 s while waiting for the archive to {awaited}: recording 7 is at "
    assert str(error).startswith(stalled)
    assert f"still waiting for the archive to {awaited} after 5 s" in caplog.text
    assert member.cm.acks[-1].relevant_id == NULL_VALUE
    member.driver.publication_results(SNAPSHOT_CHANNEL, 106, [])
    member.deliver(b"next")
    assert member.service.messages == [b"next"]


@pytest.mark.parametrize("what", ["completion", "a message"])
def test_a_member_that_stands_still_while_it_waits_does_not_blame_the_archive(what: str) -> None:
    member = ScriptedMember().lead()

    def write(publication: Any) -> None:
        member.after_idles(2, lambda: member.clock.advance(90_000_000_000))
        if what == "completion":
            member.store.script("complete", [0] * 3)
        else:
            member.driver.publication_results(SNAPSHOT_CHANNEL, 106, [BACK_PRESSURED] * 3)
        publication.send(b"state")

    member.in_callback(write, "on_take_snapshot")
    take(member)
    assert member.errors == []
    assert member.cm.acks[-1].relevant_id != NULL_VALUE


def test_an_archive_that_is_slow_is_waited_for() -> None:
    member = ScriptedMember().lead()
    member.idle_ns = 500_000_000
    begin = member.clock.now_ns

    def sends(publication: Any) -> None:
        recording = member.store.recording(member.store.recording_ids[-1])
        member.driver.publication_results(SNAPSHOT_CHANNEL, 106, [BACK_PRESSURED] * 400)
        for _ in range(3):
            member.after_idles(100, lambda: recording.log.append(b"x"))
        publication.send(b"state")

    member.in_callback(sends, "on_take_snapshot")
    take(member)
    assert (member.clock.now_ns - begin) / 1e9 > 180
    assert member.errors == []
    assert saved(member)[-1] == b"state"


def test_a_recording_that_stops_ends_a_send_as_well() -> None:
    member = ScriptedMember().lead()

    def sends(publication: Any) -> None:
        member.driver.publication_results(SNAPSHOT_CHANNEL, 106, [BACK_PRESSURED, CLOSED])
        publication.send(b"state")

    member.in_callback(sends, "on_take_snapshot")
    take(member)
    assert ["is closed" in str(error) for error in member.errors] == [True]
    assert member.cm.acks[-1].relevant_id == NULL_VALUE


# a message that is not in the snapshot


def test_a_failed_offer_to_a_snapshot_that_nobody_looks_at_fails_the_snapshot() -> None:
    member = ScriptedMember().lead()

    def loses_one(publication: Any) -> None:
        member.driver.publication_results(SNAPSHOT_CHANNEL, 106, [BACK_PRESSURED])
        publication.offer(b"first")
        publication.offer(b"second")

    member.in_callback(loses_one, "on_take_snapshot")
    take(member)
    (error,) = member.errors
    assert isinstance(error, SnapshotError)
    assert "SnapshotPublication.offer returned BACK_PRESSURED" in str(error)
    assert "the snapshot lacks a message" in str(error)
    assert member.cm.acks[-1].relevant_id == NULL_VALUE
    take(member)
    assert member.cm.acks[-1].relevant_id != NULL_VALUE


@pytest.mark.parametrize("retry", ["offer", "send"])
def test_a_failed_offer_to_a_snapshot_that_is_retried_does_not(retry: str) -> None:
    member = ScriptedMember().lead()

    def repeats(publication: Any) -> None:
        member.driver.publication_results(SNAPSHOT_CHANNEL, 106, [BACK_PRESSURED])
        assert publication.offer(b"state") == BACK_PRESSURED
        assert getattr(publication, retry)(b"state") > 0

    member.in_callback(repeats, "on_take_snapshot")
    take(member)
    assert member.errors == []
    assert member.cm.acks[-1].relevant_id != NULL_VALUE


# reading inside of a read


@pytest.mark.parametrize("inner", ["poll", "loop", "helper", "iterator"])
def test_a_snapshot_is_not_read_inside_the_handler_of_a_poll(inner: str) -> None:
    class State(msgspec.Struct):
        pass

    member = ScriptedMember().lead()
    member.in_callback(lambda publication: [publication.send(b"%d" % index) for index in range(30)], "on_take_snapshot")
    position = take(member)
    again = ScriptedMember(log_position=position)
    recording = again.store.add_recording([(message, 0xC0) for message in saved(member)])
    refused: list[str] = []

    def loads(_cluster: object, image: Any) -> list[bytes]:
        found: list[bytes] = []
        messages = iter(image)
        found.append(next(messages))
        reads: dict[str, Callable[[], Any]] = {
            "poll": lambda: image.poll(found.append),
            "loop": lambda: list(image),
            "helper": lambda: read_snapshot(image, State),
            "iterator": lambda: next(messages),
        }

        def handler(message: bytes) -> None:
            found.append(message)
            if not refused:
                with pytest.raises(ClusterError) as raised:
                    reads[inner]()
                refused.append(str(raised.value))
                assert image.position > 0
                assert not image.is_end_of_stream

        image.poll(handler, 4)
        found.extend(image)
        return found

    loaded = again.in_callback(loads, "on_start")
    again.start(recording_ids=[recording], leadership_term_id=1, log_position=position)
    assert loaded == [[b"%d" % index for index in range(30)]]
    assert len(refused) == 1
    assert refused[0].startswith("the snapshot is being read: inside the handler of a poll()")
