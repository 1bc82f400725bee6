"""Elections that fall inside a message: the first of its frames are committed when its leader is gone."""

from __future__ import annotations

from tests.consensus_world import LOG_RECORDING
from tests.members_world import MembersWorld, MemberWorld, payloads
from tests.test_native_edges import scene, stalled_archive

FRAME_LENGTH = 1408


def recorded(member: MemberWorld) -> int:
    return max(int(each["value"]) for each in member.counter(LOG_RECORDING))


def logged(member: MemberWorld) -> list[bytes]:
    """The beginnings of the messages in a member's log that have this test's mark."""
    return [data[data.index(b"long") :][:5] for _, data in member.recorded_log(0) if b"long" in data]


def half_read(world: MembersWorld, leader: MemberWorld, followers: list[MemberWorld]) -> None:
    """Have all services offer a message of four frames; followers have them all, and hear that two are committed."""
    base, term_id = leader.published_position, leader.counter_value(239)
    half = base + 2 * FRAME_LENGTH
    with stalled_archive(leader):
        for member in world.members:
            member.services[0].offer(b"long1" + bytes(5_000))
        world.until(lambda: leader.published_position > base)
        end = leader.published_position
        world.until(lambda: all(recorded(each) == end for each in followers))
        for follower in followers:
            follower.agent.on_commit_position(term_id, half, leader.member_id)
        world.until(lambda: all(each.commit_position == half for each in followers))
        leader.die()


def test_a_message_of_a_service_that_was_half_read_is_in_the_log_once() -> None:
    world, leader, followers = scene()
    half_read(world, leader, followers)
    new = world.await_leader()
    world.client(new).message(b"after")
    world.await_read(b"after")
    assert [logged(member) for member in followers] == [[b"long1"]] * 2
    assert [[each[:5] for each in payloads(member)] for member in followers] == [[b"one", b"long1", b"after"]] * 2
