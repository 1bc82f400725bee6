"""Who the members of a cluster are, and what a quorum of them is."""

from __future__ import annotations

import pytest

from container.consensus.cluster_member import NATIVE_PROTOCOL_VERSION, ClusterMembers, parse_cluster_members
from container.errors import ConfigurationError

TEXT = "0,a:1,a:2,a:3,a:4,a:5|1,b:1,b:2,b:3,b:4,b:5|2,c:1,c:2,c:3,c:4,c:5"
S = 1_000_000_000
TERM = 7


def members(this: int = 0, text: str = TEXT) -> ClusterMembers:
    return ClusterMembers(parse_cluster_members(text), this)


def quorum_position(all_members: ClusterMembers, *, ends: dict[int, int] | None = None, now_ns: int = 5 * S) -> int:
    return all_members.quorum_position(TERM, (ends or {}).get, now_ns, 10 * S)  # type: ignore[arg-type]


def test_members_are_parsed_and_encoded_again() -> None:
    found = members(1)
    assert found.encode() == TEXT
    assert found.ingress_endpoints() == "0=a:1,1=b:1,2=c:1"
    assert found.this_member.catchup_endpoint == "b:4"
    assert [each.id for each in found.others()] == [0, 2]
    assert found.find(3) is None


def test_response_endpoints_may_be_given() -> None:
    (member,) = parse_cluster_members("5,a:1,a:2,a:3,a:4,a:5,a:6,a:7")
    assert (member.archive_response_endpoint, member.egress_response_endpoint) == ("a:6", "a:7")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not a member: it takes id,ingress"),
        ("0,a:1,a:2,a:3,a:4", "is not a member"),
        ("0,a:1,a:2,,a:4,a:5", "is not a member"),
        ("0,a:1,a:2,a:3,a:4,a:5,a:6,a:7,a:8", "is not a member"),
        ("x,a:1,a:2,a:3,a:4,a:5", "the id 'x' .* is not a number from 0"),
        ("-1,a:1,a:2,a:3,a:4,a:5", "the id '-1' .* is not a number from 0"),
        ("2147483648,a:1,a:2,a:3,a:4,a:5", "is not a number from 0 to 2147483647"),
        ("0,a:1,a:2,a:3,a:4,a:5|0,b:1,b:2,b:3,b:4,b:5", "the id 0 is given to two members"),
    ],
)
def test_a_malformed_list_is_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        parse_cluster_members(text)


def test_this_member_must_be_among_them() -> None:
    with pytest.raises(ConfigurationError, match="cluster_member_id=9 is not in cluster_members: the members are 0, 1"):
        members(9)


@pytest.mark.parametrize(("count", "threshold"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_a_quorum_is_more_than_half(count: int, threshold: int) -> None:
    text = "|".join(f"{each},h:1,h:2,h:3,h:4,h:5" for each in range(count))
    assert members(text=text).threshold == threshold


def test_the_quorum_has_what_its_last_member_has() -> None:
    found = members()
    for member, position in zip(found.members, (300, 100, 200), strict=True):
        member.set_log(TERM, position, S)
    assert quorum_position(found) == 200


def test_a_silent_member_does_not_count() -> None:
    found = members()
    for member, position in zip(found.members, (300, 200, 100), strict=True):
        member.set_log(TERM, position, S if member.id else -20 * S)
    assert quorum_position(found) == 100
    found.members[1].set_log(TERM, 200, -20 * S)
    assert quorum_position(found) == 0


def test_a_log_of_an_older_term_counts_up_to_the_end_of_that_term() -> None:
    found = members()
    found.members[0].set_log(TERM, 300, S)
    found.members[1].set_log(TERM - 1, 250, S)  # what it has behind 120 no majority ever had
    assert quorum_position(found, ends={TERM - 1: 120}) == 120
    found.members[1].set_log(TERM - 1, 100, S)
    assert quorum_position(found, ends={TERM - 1: 120}) == 100


def test_a_quorum_at_a_position_is_of_the_term() -> None:
    found = members()
    found.members[0].set_log(TERM, 300, S)
    found.members[1].set_log(TERM - 1, 300, S)
    assert not found.has_quorum_at_position(TERM, 300, 2 * S, 10 * S)
    found.members[1].set_log(TERM, 299, S)
    assert not found.has_quorum_at_position(TERM, 300, 2 * S, 10 * S)
    found.members[1].set_log(TERM, 300, S)
    assert found.has_quorum_at_position(TERM, 300, 2 * S, 10 * S)
    assert not found.has_quorum_at_position(TERM, 300, 12 * S, 10 * S)
    assert found.has_active_quorum(2 * S, 10 * S)
    assert not found.has_active_quorum(12 * S, 10 * S)


def test_all_or_a_quorum_may_want_a_candidate() -> None:
    found = members()
    found.this_member.set_log(3, 100, S)
    assert not found.is_quorum_candidate()
    found.members[1].set_log(3, 100, S)
    assert found.is_quorum_candidate()
    assert not found.is_unanimous_candidate(-1)
    assert found.is_unanimous_candidate(2)  # the leader that closed in order
    found.members[2].set_log(4, 50, S)  # its log is the better one, though shorter
    assert not found.is_unanimous_candidate(-1)
    assert found.is_quorum_candidate()


@pytest.mark.parametrize(
    ("theirs", "ours", "is_wanted", "is_wanted_by_upstreams"),
    [
        ((2, 0), (1, 100), True, False),  # it has nothing to lose, and upstream's compare its term all the same
        ((2, 0), (-1, 0), True, False),
        ((1, 100), (2, 0), True, True),
        ((2, 100), (2, 0), False, False),
        ((-1, 0), (-1, 0), True, True),
    ],
)
def test_who_has_nothing_votes_for_any_candidate_unless_it_is_one_of_upstreams(
    theirs: tuple[int, int], ours: tuple[int, int], is_wanted: bool, is_wanted_by_upstreams: bool
) -> None:
    found = members()
    found.this_member.set_log(*ours, S)
    other = found.members[1]
    other.set_protocol_version(NATIVE_PROTOCOL_VERSION)
    assert not other.will_vote_for(found.this_member)
    other.set_log(*theirs, S)
    assert other.will_vote_for(found.this_member) == is_wanted
    other.set_protocol_version(1 << 16)
    assert other.will_vote_for(found.this_member) == is_wanted_by_upstreams


def test_one_vote_against_it_keeps_a_candidate_from_leading_by_quorum() -> None:
    found = members()
    found.become_candidate(9)
    assert not found.is_quorum_leader(9)
    found.members[1].candidate_term_id, found.members[1].vote = 9, 1
    assert found.is_quorum_leader(9)
    assert not found.is_unanimous_leader(9, -1)
    assert found.is_unanimous_leader(9, 2)
    found.members[2].candidate_term_id, found.members[2].vote = 9, 0
    assert not found.is_quorum_leader(9)
    assert not found.is_quorum_leader(8)


def test_what_members_said_is_forgotten() -> None:
    found = members()
    found.members[1].set_log(3, 100, S)
    found.set_leader(1)
    found.reset()
    assert (found.members[1].log_position, found.members[1].is_leader) == (-1, False)
    assert not found.members[1].is_active(2 * S, 10 * S)
